"""Commands: what they are given, what they give, and what they may use."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.commands import PYTHON, python, ran

from rota.config import ExecutorSettings
from rota.executors.command import filled_in
from rota.executors.sandbox import sandbox_problem
from rota.executors.wards import keepers, pids, tree
from rota.executors.wards.leftovers import FOLDER, MARK

if TYPE_CHECKING:
    from pathlib import Path


def test_what_it_prints_is_the_log_and_its_last_json_the_result(tmp_path: Path) -> None:
    code = "import sys; print('one'); print('{\"n\": 1}'); print('bye'); print('oops', file=sys.stderr)"
    outcome, shell = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.ok
    assert outcome.result == {"n": 1}
    assert sorted(shell.lines) == ["bye", "one", "oops", '{"n": 1}']
    assert {note.level for note in shell.notes} == {"info", "warning"}
    assert not list((tmp_path / FOLDER).iterdir()), "its folder goes with it"


def test_a_folder_full_of_files_goes_with_it(tmp_path: Path) -> None:
    code = "import os\nfor n in range(1100):\n  os.mkdir('d'); os.chdir('d')\nprint('[1]')"
    outcome, _ = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.result == [1]
    assert not list((tmp_path / FOLDER).iterdir()), "however deep it is"


def test_progress_is_told_by_lines_of_its_own(tmp_path: Path) -> None:
    code = "print('::progress 40'); print('::progress {\"page\": 2}')"
    _, shell = asyncio.run(ran(tmp_path, *python(code)))
    assert [note.progress for note in shell.notes] == [{"page": 2}], "the last of a moment counts"
    assert not shell.lines
    _, shell = asyncio.run(ran(tmp_path, "echo", "::progress half way"))
    assert [note.progress for note in shell.notes] == ["half way"]


def test_params_are_single_arguments_whatever_they_say(tmp_path: Path) -> None:
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    argv = (*python(code), "{{url}}", "--n={{deep.n}}", "{{all}}", "plain", "{{dash}}")
    params = {"url": "; rm -rf / $(x) '\"", "deep": {"n": 3}, "all": [1, True], "dash": "--help"}
    outcome, _ = asyncio.run(ran(tmp_path, *argv, params=params))
    assert outcome.result == ["; rm -rf / $(x) '\"", "--n=3", "[1,true]", "plain", "--help"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "params.x is missing"),
        ({"x": None}, "params.x is missing"),
        ({"x": "a\0b"}, "NUL"),
        ({"x": "y" * 200_000}, "longer than 131072 bytes"),
        ({"x": ["y" * 50_000] * 3}, "longer than 131072 bytes"),
    ],
)
def test_bad_params_start_nothing(tmp_path: Path, params: dict[str, Any], words: str) -> None:
    outcome, shell = asyncio.run(ran(tmp_path, "echo", "{{x}}", params=params))
    assert outcome.code == "bad_params"
    assert words in outcome.error
    assert shell.keepers.keeper is None


def test_arguments_as_long_as_they_may_be_arrive(tmp_path: Path) -> None:
    code = "import sys; print([len(sys.argv[1])])"
    value = "\x01" * 130_000  # each takes six bytes on its way
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), "{{x}}", params={"x": value}))
    assert outcome.result == [130_000]


def test_a_placeholder_is_filled_in_once() -> None:
    assert filled_in(("p", "{{a}}"), {"a": "{{b}}", "b": "c"}) == ["p", "{{b}}"]


def test_its_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), env={"ROTA_TOKEN": "mine"}))
    env = outcome.result
    assert env["ROTA_TOKEN"] == "mine"
    assert env["ROTA_TASK_ID"] == "tsk_1"
    assert env["ROTA_ATTEMPT_TOKEN"] == "7"
    assert env["HOME"].startswith(str(tmp_path))
    ours = {"ROTA_TASK_ID", "ROTA_AGENT_ID", "ROTA_ATTEMPT", "ROTA_ATTEMPT_TOKEN", MARK}
    assert set(env) - ours <= {"PATH", "LANG", "HOME", "TMPDIR", "ROTA_TOKEN", "LC_CTYPE"}


def test_it_has_three_descriptors_a_session_of_its_own_and_hears_signals(tmp_path: Path) -> None:
    code = """
import os, json, signal
is_open = []
for fd in range(1000):
    try:
        os.fstat(fd)
        is_open.append(fd)
    except OSError:
        pass
heard = [signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)]
print(json.dumps([is_open, os.getpid() == os.getsid(0) == os.getpgrp(), heard]))
"""
    outcome, _ = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.result == [[0, 1, 2], True, [True] * 3]


FORKS_20 = """
import os, time
for _ in range(20):
    if os.fork() == 0: time.sleep(600)
time.sleep(600)
"""
THREADS_20 = """
import threading, time
for _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("code", "more", "expected", "details"),
    [
        ("import sys; print('why'); sys.exit(3)", {}, "command_failed", {"exitCode": 3}),
        ("import os; os.kill(os.getpid(), 9)", {}, "command_killed", {"signal": 9}),
        ("import time; time.sleep(600)", {"timeLimitMs": 200}, "time_limit", {"signal": 15}),
        ("while True: pass", {"cpuSecondsMax": 1}, "cpu_limit", {"signal": 24}),
        (
            "import signal; signal.signal(24, signal.SIG_IGN)\nwhile True: pass",
            {"cpuSecondsMax": 1},
            "cpu_limit",
            {"signal": 9},
        ),
        (
            "x = bytearray(300 << 20)\nimport time; time.sleep(600)",
            {"memoryMbMax": 100},
            "memory_limit",
            {},
        ),
        (FORKS_20, {"processesMax": 5}, "process_limit", {}),
        (THREADS_20, {"processesMax": 5}, "process_limit", {}),
        ("while True: print('x' * 1000)", {"outputBytesMax": 100_000}, "output_limit", {}),
    ],
)
def test_an_end_that_is_not_well_says_why(
    tmp_path: Path, code: str, more: dict[str, Any], expected: str, details: dict[str, Any]
) -> None:
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), graceMs=500, **more))
    assert not outcome.ok
    assert outcome.code == expected, outcome
    assert details.items() <= outcome.details.items()
    assert outcome.error.startswith("the command ")


def test_processes_are_counted_by_looking_where_there_is_no_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"""import sys; sys.path.insert(0, {keepers.ROOT!r})
from rota.executors.wards import keeper, pids
pids.make_home = lambda mark: None
keeper.main()"""
    monkeypatch.setattr(keepers, "PROGRAM", program)
    outcome, _ = asyncio.run(ran(tmp_path, *python(FORKS_20), processesMax=5))
    assert outcome.code == "process_limit"


def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    code = """
import os, time
x = bytearray(60 << 20)
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0: time.sleep(600)
    children.append(pid)
time.sleep(0.5)
for pid in children: os.kill(pid, 9)
print('[1]')
"""
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), memoryMbMax=150))
    assert outcome.ok, outcome


def test_a_file_that_is_too_large_ends_it(tmp_path: Path) -> None:
    argv = ("dd", "if=/dev/zero", "of=big", "bs=1M", "count=5")
    outcome, _ = asyncio.run(ran(tmp_path, *argv, fileMbMax=1))
    assert outcome.code == "file_size_limit"


@pytest.mark.parametrize(
    ("script", "more", "code"),
    [
        ("dd if=/dev/zero of=big bs=1M count=5; exit $?", {"fileMbMax": 1}, "file_size_limit"),
        ("sh -c 'while :; do :; done'; exit $?", {"cpuSecondsMax": 1}, "cpu_limit"),
        ("exit 152", {"fileMbMax": 1}, "command_failed"),
        ("exit 153", {"cpuSecondsMax": 1}, "command_failed"),
    ],
)
def test_a_limit_that_a_child_has_passed_is_known_by_the_exit_code(
    tmp_path: Path, script: str, more: dict[str, Any], code: str
) -> None:
    outcome, _ = asyncio.run(ran(tmp_path, "sh", "-c", script, **more))
    assert outcome.code == code, outcome
    assert outcome.details["exitCode"] in {152, 153}


@pytest.mark.parametrize(
    ("argv", "more", "code", "words"),
    [
        (("no-such-program",), {}, "command_not_found", "no-such-program"),
        (("/etc/passwd",), {}, "command_not_found", "Permission denied: /etc/passwd"),
        (("true",), {"cwd": "/no/such/folder"}, "command_not_started", "/no/such/folder"),
        (("true",), {"env": {"BIG": "x" * 200_000}}, "command_not_started", "too long"),
    ],
)
def test_what_cannot_be_started_says_why(
    tmp_path: Path, argv: tuple[str, ...], more: dict[str, Any], code: str, words: str
) -> None:
    outcome, _ = asyncio.run(ran(tmp_path, *argv, **more))
    assert outcome.code == code, outcome
    assert words in outcome.error


@pytest.mark.parametrize(
    ("text", "code"),
    [("'{no'", "bad_result"), ("'{\"a\": 1}'", ""), ("'1' * 1048577", "result_too_large")],
)
def test_the_result_may_be_a_file(tmp_path: Path, text: str, code: str) -> None:
    write = f"open('out.json', 'w').write({text})"
    outcome, _ = asyncio.run(ran(tmp_path, *python(write), resultFile="out.json"))
    assert outcome.code == code
    assert outcome.result == ({"a": 1} if not code else None)


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
def test_attempts_that_share_a_folder_have_results_of_their_own(
    tmp_path: Path, sandbox: str
) -> None:
    """Where there can be no sandbox, the case that asks for one is the same as the other."""
    shared, data = tmp_path / "shared", tmp_path / "data"
    shared.mkdir()
    data.mkdir()
    (shared / "out.json").write_text("[1]")
    more = {"cwd": str(shared), "resultFile": "out.json"}
    more["sandbox"] = "none" if sandbox_problem() else sandbox
    outcome, _ = asyncio.run(ran(data, "true", **more))
    assert outcome.code == "bad_result", "what lies there is of another"
    code = "import os; open(os.environ['ROTA_RESULT_FILE'], 'w').write('[2]'); open('x', 'w')"
    outcome, _ = asyncio.run(ran(data, *python(code), **more))
    assert outcome.result == [2]
    assert (shared / "x").exists()
    assert not list((data / FOLDER).iterdir())


@pytest.mark.parametrize(
    "code",
    [
        "os.symlink('/etc/passwd', 'out.json')",
        "os.mkfifo('out.json')",
        "os.mkdir('out.json')",
        "open('out.json', 'w').truncate(1 << 30)",
        "pass",
    ],
)
def test_a_result_file_that_is_no_plain_file_is_refused(tmp_path: Path, code: str) -> None:
    argv = python(f"import os; {code}")
    outcome, _ = asyncio.run(ran(tmp_path, *argv, resultFile="out.json"))
    assert outcome.code == ("result_too_large" if "truncate" in code else "bad_result")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "command"}, "argv is missing"),
        ({"kind": "command", "argv": ["{{x}}"]}, "not for a task to say"),
        ({"kind": "command", "argv": ["a", "{{x y}}"]}, "{{x y}} is no name of a param"),
        ({"kind": "command", "argv": ["a", "-b={{ }}"]}, "{{ }} is no name of a param"),
        ({"kind": "command", "argv": ["a", "{{x}}{{}}"]}, "argv: {{}} is no name of a param"),
        ({"kind": "command", "argv": ["a"], "url": "http://127.0.0.1:1"}, "a command has none"),
        ({"kind": "command", "argv": ["a", "b\0"]}, "NUL"),
        ({"kind": "command", "argv": ["a"], "env": {"A=B": "c"}}, "has = in it"),
        ({"kind": "command", "argv": ["a"], "resultFile": "../x"}, "a name, not a path"),
        ({"kind": "command", "argv": ["a"], "cwd": "here"}, "from the root"),
        ({"kind": "http"}, "url is missing"),
        ({"kind": "http", "url": "http://127.0.0.1:1", "argv": ["a"]}, "only an executor of kind"),
        ({"kind": "http", "url": "http://127.0.0.1:1", "memoryMbMax": 1}, "only an executor of"),
        (
            {"kind": "tab", "url": "http://h", "cancelUrl": "http://h"},
            "cancelUrl: only an executor",
        ),
        ({"kind": "http", "url": "http://h", "cancelUrl": "ftp://h"}, "cancelUrl"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ExecutorSettings(**settings)


def test_the_keeper_needs_nothing_of_rota() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import rota.executors.wards.keeper; print(*sys.modules)"
    argv = [PYTHON, "-I", "-S", "-c", code, keepers.ROOT]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.split(".")[0] == "rota"}
    names = {f"rota.executors.wards.{name}" for name in ("keeper", "ward", "tree", "pids")}
    assert ours == {"rota", "rota.executors", "rota.executors.wards", *names}


def test_cgroups_are_made_in_our_own_or_beside_it() -> None:
    old = "9:name=systemd:/\n8:cpu,pids:/box/a\n0::/\n"
    mounts = (
        "39 31 0:36 / /cg/pids rw - cgroup cgroup rw,cpu,pids\n30 1 0:1 / / rw - ext4 /dev/x rw\n"
    )
    assert list(pids._folders(old, mounts)) == ["/cg/pids/box/a", "/cg/pids/box"]
    new = "0::/system.slice/rota.service/server\n"
    unified = "39 31 0:36 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    found = list(pids._folders(new, unified))
    assert found[1] == "/sys/fs/cgroup/system.slice/rota.service"
    inside = "39 31 0:36 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert list(pids._folders("0::/box\n", inside)) == ["/sys/fs/cgroup"]


def test_who_is_not_root_has_a_bound_on_the_processes_of_its_user() -> None:
    assert pids.rlimit_nproc(5) > pids.MARGIN + 5


def test_a_signal_reaches_only_those_below() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        stranger = subprocess.Popen(["sleep", "600"])
        tree.send(process.pid, [stranger.pid], 9)
        assert stranger.poll() is None
        tree.send(os.getpid(), [stranger.pid], 9)
        assert stranger.wait(60) == -9
    finally:
        process.kill()
        process.wait(60)

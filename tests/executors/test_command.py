"""Commands: what they give, what they may use, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from rota.config import ExecutorSettings
from rota.errors import ConfigError
from rota.executors import wards
from rota.executors.command import CommandExecutor, filled_in
from rota.executors.leftovers import FOLDER, MARK, kill_leftovers, marked, marks_of
from rota.executors.port import Attempt, Note
from rota.executors.wards import Keepers

if TYPE_CHECKING:
    from pathlib import Path

    from rota.domain.commands import Outcome

PATIENCE_S = 60
PYTHON = sys.executable
IGNORES_TERM = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
FORKS = "import os, time\nos.fork()\nos.fork()\nprint('up', flush=True)\ntime.sleep(600)"
ESCAPES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
print('up', flush=True)
time.sleep(600)
"""
FLOODS = "import time\nprint('up', flush=True)\nwhile True: print('x' * 1000)"
STUBBORN = {"ignores": IGNORES_TERM, "forks": FORKS, "escapes": ESCAPES, "floods": FLOODS}


class Shell:
    """An executor with its keeper, and what it told."""

    def __init__(self, folder: Path, argv: tuple[str, ...], **more: Any) -> None:
        settings = ExecutorSettings(kind="command", argv=argv, **more)
        self.folder = folder
        self.keepers = Keepers(marks_of(folder))
        self.executor = CommandExecutor(settings, self.keepers, folder / FOLDER)
        self.notes: list[Note] = []
        self.is_up = asyncio.Event()

    def tell(self, note: Note) -> None:
        self.notes.append(note)
        if "up" in note.lines:
            self.is_up.set()

    async def run(self, **params: Any) -> Outcome:
        attempt = Attempt("tsk_1", "agent", 1, 7, "cmd", "cmd", params)
        async with asyncio.timeout(PATIENCE_S):
            return await self.executor.run(attempt, self.tell)

    @property
    def lines(self) -> list[str]:
        return [line for note in self.notes for line in note.lines]

    def alive(self) -> list[psutil.Process]:
        """Give whoever is below the keeper, and not a ward."""
        keeper = self.keepers._process
        if keeper is None or not psutil.pid_exists(keeper.pid):
            return []
        below = psutil.Process(keeper.pid).children(recursive=True)
        return [each for each in below if each.status() != psutil.STATUS_ZOMBIE]


async def ran(folder: Path, *argv: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
    """Run a command to its end; give the outcome and the lines that it printed."""
    shell = Shell(folder, argv, **more)
    try:
        outcome = await shell.run(**(params or {}))
        assert not shell.alive()
    finally:
        await shell.executor.close()
    return outcome, shell


def python(code: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", code)


def test_what_it_prints_is_the_log_and_its_last_json_the_result(tmp_path: Path) -> None:
    code = "import sys; print('one'); print('{\"n\": 1}'); print('bye'); print('oops', file=sys.stderr)"
    outcome, shell = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.ok
    assert outcome.result == {"n": 1}
    assert sorted(shell.lines) == ["bye", "one", "oops", '{"n": 1}']
    assert {note.level for note in shell.notes} == {"info", "warning"}
    assert not list((tmp_path / FOLDER).iterdir()), "its folder goes with it"


def test_progress_is_told_by_lines_of_its_own(tmp_path: Path) -> None:
    code = "print('::progress 40'); print('::progress {\"page\": 2}'); print('::progress half')"
    _, shell = asyncio.run(ran(tmp_path, *python(code)))
    assert [note.progress for note in shell.notes] == [40, {"page": 2}, "half"]
    assert not shell.lines


def test_params_are_single_arguments_whatever_they_say(tmp_path: Path) -> None:
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    argv = (*python(code), "{{url}}", "--n={{deep.n}}", "{{all}}", "plain")
    params = {"url": "; rm -rf / $(x) '\"", "deep": {"n": 3}, "all": [1, True]}
    outcome, _ = asyncio.run(ran(tmp_path, *argv, params=params))
    assert outcome.result == ["; rm -rf / $(x) '\"", "--n=3", "[1,true]", "plain"]


@pytest.mark.parametrize("params", [{}, {"x": None}, {"x": "a\0b"}, {"x": "y" * 200_000}])
def test_bad_params_start_nothing(tmp_path: Path, params: dict[str, Any]) -> None:
    outcome, shell = asyncio.run(ran(tmp_path, "echo", "{{x}}", params=params))
    assert outcome.code == "bad_params"
    assert shell.keepers._process is None


def test_a_placeholder_is_filled_in_once() -> None:
    assert filled_in(("p", "{{a}}"), {"a": "{{b}}", "b": "c"}) == ["p", "{{b}}"]


def test_its_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), env={"MINE": "1"}))
    env = outcome.result
    assert env["MINE"] == "1"
    assert env["ROTA_TASK_ID"] == "tsk_1"
    assert env["ROTA_TOKEN"] == "7"
    assert env["HOME"].startswith(str(tmp_path))
    known = {
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
        "MINE",
        "ROTA_TASK_ID",
        "ROTA_AGENT_ID",
        "ROTA_ATTEMPT",
    }
    assert set(env) - known <= {"ROTA_TOKEN", MARK, "LC_CTYPE"}


def test_it_inherits_three_descriptors_and_a_session_of_its_own(tmp_path: Path) -> None:
    code = "import os, json; print(json.dumps([sorted(map(int, os.listdir('/proc/self/fd'))), os.getpid() == os.getsid(0)]))"
    outcome, _ = asyncio.run(ran(tmp_path, *python(code)))
    fds, leads = outcome.result
    assert set(fds) <= {0, 1, 2, 3}  # the last is the look itself
    assert leads


@pytest.mark.parametrize(
    ("code", "more", "expected", "details"),
    [
        ("import sys; print('why'); sys.exit(3)", {}, "command_failed", {"exitCode": 3}),
        ("import os; os.kill(os.getpid(), 9)", {}, "command_killed", {"signal": 9}),
        ("import time; time.sleep(600)", {"timeLimitMs": 200}, "time_limit", {"signal": 15}),
        ("while True: pass", {"cpuSecondsMax": 1}, "cpu_limit", {"signal": 24}),
        (
            "x = bytearray(300 << 20)\nimport time; time.sleep(600)",
            {"memoryMbMax": 100},
            "memory_limit",
            {},
        ),
        (
            "import os, time\nfor _ in range(20):\n  if not os.fork(): time.sleep(600)\ntime.sleep(600)",
            {"processesMax": 5},
            "process_limit",
            {},
        ),
        ("while True: print('x' * 1000)", {"outputBytesMax": 100_000}, "output_limit", {}),
    ],
)
def test_an_end_that_is_not_well_says_why(
    tmp_path: Path, code: str, more: dict[str, Any], expected: str, details: dict[str, Any]
) -> None:
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), graceMs=500, **more))
    assert not outcome.ok
    assert outcome.code == expected
    assert details.items() <= outcome.details.items()


def test_a_file_that_is_too_large_ends_it(tmp_path: Path) -> None:
    outcome, _ = asyncio.run(
        ran(tmp_path, "dd", "if=/dev/zero", "of=big", "bs=1M", "count=5", fileMbMax=1)
    )
    assert outcome.code == "file_size_limit"


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    outcome, _ = asyncio.run(ran(tmp_path, "no-such-program"))
    assert outcome.code == "command_not_found"
    assert "no-such-program" in outcome.error


@pytest.mark.parametrize(
    ("text", "code"),
    [("'{no'", "bad_result"), ("'{\"a\": 1}'", ""), ("'1' * 1048577", "result_too_large")],
)
def test_the_result_may_be_a_file(tmp_path: Path, text: str, code: str) -> None:
    write = f"open('out.json', 'w').write({text})"
    outcome, _ = asyncio.run(ran(tmp_path, *python(write), resultFile="out.json"))
    assert outcome.code == code
    assert outcome.result == ({"a": 1} if not code else None)


def test_a_result_file_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    link = "import os; os.symlink('/etc/passwd', 'out.json')"
    outcome, _ = asyncio.run(ran(tmp_path, *python(link), resultFile="out.json"))
    assert outcome.code == "bad_result"
    missing, _ = asyncio.run(ran(tmp_path, "true", resultFile="out.json"))
    assert missing.code == "bad_result"


def test_odd_output_is_kept_as_text_and_within_bounds(tmp_path: Path) -> None:
    code = "import sys; w = sys.stdout.buffer.write; w(b'\\xff\\x00a\\r\\n'); w(b'y' * 3000000); w(b'\\n' * 5000)"
    outcome, shell = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.ok
    assert shell.lines[0] == "\ufffd\0a"
    assert len(shell.lines) <= 1000
    assert max(map(len, shell.lines)) == 2000


def test_what_it_leaves_behind_is_killed_when_it_ends(tmp_path: Path) -> None:
    code = "import os, time\nif os.fork() == 0: time.sleep(600)\nprint('[1]')"
    outcome, _ = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.result == [1]


@pytest.mark.parametrize("name", STUBBORN)
def test_nothing_is_left_of_what_was_cut_off(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        more = {"outputBytesMax": 1 << 40} if name == "floods" else {}
        shell = Shell(tmp_path, python(STUBBORN[name]), graceMs=300, **more)
        task = asyncio.create_task(shell.run())
        async with asyncio.timeout(PATIENCE_S):
            await shell.is_up.wait()
            assert shell.alive()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not shell.alive()
        await shell.executor.close()

    asyncio.run(story())


def test_a_ward_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(
            tmp_path, python("import os, signal, time\nos.kill(os.getppid(), 9)\ntime.sleep(600)")
        )
        outcome = await shell.run()
        assert outcome.code == "command_lost"
        assert not shell.alive()
        assert (await shell.run()).code == "command_lost", "the keeper goes on"
        await shell.executor.close()

    asyncio.run(story())


def test_a_keeper_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, ("echo", "{}"))
        assert (await shell.run()).ok
        process = shell.keepers._process
        assert process is not None
        process.kill()
        await process.wait()
        assert (await shell.run()).ok
        await shell.executor.close()

    asyncio.run(story())


@pytest.mark.parametrize("name", STUBBORN)
def test_what_a_killed_server_left_is_killed_before_the_next_goes_on(
    tmp_path: Path, name: str
) -> None:
    server = f"""
import asyncio, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from rota.config import ExecutorSettings
from rota.executors.command import CommandExecutor
from rota.executors.leftovers import FOLDER, marks_of
from rota.executors.port import Attempt
from rota.executors.wards import Keepers

def tell(note):
    if "up" in note.lines:
        print("up", flush=True)

async def main():
    folder = Path({str(tmp_path)!r})
    settings = ExecutorSettings(kind="command", argv={python(STUBBORN[name])!r}, outputBytesMax=1 << 40)
    executor = CommandExecutor(settings, Keepers(marks_of(folder)), folder / FOLDER)
    await executor.run(Attempt("t", "a", 1, 1, "c", "c", {{}}), tell)

asyncio.run(main())
"""

    async def story() -> None:
        process = await asyncio.create_subprocess_exec(
            PYTHON, "-c", server, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"up\n"
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) >= 3  # the keeper, a ward, the command
        process.kill()
        await process.wait()
        kill_leftovers(tmp_path)
        _, left = psutil.wait_procs(below, 5)
        assert not left

    asyncio.run(story())


def test_leftovers_with_the_mark_are_killed_even_when_nobody_keeps_them(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    process = subprocess.Popen(["sleep", "600"], env=marks_of(tmp_path))
    assert [each.pid for each in marked(marks_of(tmp_path)[MARK])] == [process.pid]
    assert kill_leftovers(tmp_path) == 1
    assert not psutil.pid_exists(process.pid)
    process.wait(60)


def test_a_sandbox_has_no_network_and_only_its_folder_to_write(tmp_path: Path) -> None:
    """Where there is no bwrap, asking for it is refused."""
    if shutil.which("bwrap") is None:
        with pytest.raises(ConfigError, match="bwrap"):
            asyncio.run(ran(tmp_path, "true", sandbox="bubblewrap"))
        return
    code = """
import json, os, socket
found = {}
open("mine", "w").close()
try:
    open("/etc/rota-was-here", "w").close()
    found["wrote"] = True
except OSError as error:
    found["wrote"] = error.strerror
found["links"] = [n for _, n in socket.if_nameindex()]
print(json.dumps(found))
"""
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), sandbox="bubblewrap"))
    assert outcome.result == {"wrote": "Read-only file system", "links": ["lo"]}, outcome


def test_a_sandbox_without_its_program_is_refused_by_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no program 'bwrap'"):
        asyncio.run(ran(tmp_path, "true", sandbox="bubblewrap"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "command"}, "argv is missing"),
        ({"kind": "command", "argv": ["{{x}}"]}, "not for a task to say"),
        ({"kind": "command", "argv": ["a"], "url": "http://127.0.0.1:1"}, "a command has none"),
        ({"kind": "http"}, "url is missing"),
        ({"kind": "http", "url": "http://127.0.0.1:1", "argv": ["a"]}, "only an executor of kind"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ExecutorSettings(**settings)


def test_the_keeper_needs_nothing_of_rota() -> None:
    text = wards.KEEPER.read_text()
    assert "from rota" not in text
    assert "import rota" not in text
    assert os.access(wards.KEEPER, os.R_OK)

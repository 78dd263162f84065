"""Commands of a real server: their lives over HTTP, and that none outlives its server."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from support.commands import STUBBORN, python
from support.server_process import ServerFailed, ServerProcess

from rota.client.sync_client import JsonClient
from rota.executors.sandbox import sandbox_problem
from rota.executors.wards.leftovers import has_ended, marked, marks_of

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 60
ADD = 'echo adding; echo "{\\"sum\\": $(($1 + $2))}"'
HANG = "import signal, os, time\nsignal.signal(15, signal.SIG_IGN)\nos.fork()\ntime.sleep(600)"
STOP = "kill -STOP $PPID; echo up; sleep 600"
TYPES = ("add", "hang", "stop", "late", *STUBBORN)
CONFIG = {
    "server": {"graceS": 1},
    "executors": {
        "add": {"kind": "command", "argv": ["sh", "-c", ADD, "sh", "{{x}}", "{{y}}"]},
        "hang": {"kind": "command", "argv": [sys.executable, "-c", HANG], "graceMs": 200},
        "stop": {"kind": "command", "argv": ["sh", "-c", STOP], "graceMs": 200},
        "late": {"kind": "command", "argv": ["sh", "-c", STOP], "timeLimitMs": 500},
        **{
            name: {
                "kind": "command",
                "argv": list(python(code)),
                "graceMs": 200,
                "outputBytesMax": 1 << 40,
            }
            for name, code in STUBBORN.items()
        },
    },
    "types": {name: {"executor": name, "timeoutMs": 500_000} for name in TYPES},
}


def commands_of(server: ServerProcess) -> list[psutil.Process]:
    """Give whatever runs of the server's commands, without keeper and wards."""
    found = []
    for each in marked(marks_of(server.data_dir)):
        with contextlib.suppress(psutil.Error):
            if each.cmdline() and "wards.keeper" not in " ".join(each.cmdline()):
                found.append(each)
    return found


def until(server: ServerProcess, count: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while len(commands_of(server)) != count:
        assert time.monotonic() < end, commands_of(server)
        time.sleep(0.05)


def test_a_command_gives_its_result_and_its_log(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", config=CONFIG) as server,
        JsonClient(server.url) as rota,
    ):
        task = rota.submit("add", "me", params={"x": 2, "y": 3})["taskId"]
        ended = rota.wait(task, PATIENCE_S)
        assert ended["state"] == "succeeded"
        assert ended["result"] == {"sum": 5}
        bad = rota.wait(rota.submit("add", "me", params={"x": 2})["taskId"], PATIENCE_S)
        assert bad["state"] == "failed"
        assert bad["error"]["code"] == "bad_params"
        assert bad["error"]["message"] == "params.y is missing: the command needs it"
        lines = [entry["message"] for entry in rota.logs(task)["lines"]]
        assert lines == ["adding", '{"sum": 5}']


def test_a_cancelled_command_is_gone_with_all_it_started(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", config=CONFIG) as server,
        JsonClient(server.url) as rota,
    ):
        task = rota.submit("hang", "me")["taskId"]
        until(server, 2)
        rota.cancel(task)
        until(server, 0)


@pytest.mark.parametrize("how", ["limit", "cancel", "force-stop", "server"])
def test_one_that_stops_its_ward_ends_like_any_other(tmp_path: Path, how: str) -> None:
    with (
        ServerProcess(tmp_path / "data", config=CONFIG) as server,
        JsonClient(server.url) as rota,
    ):
        if how == "limit":
            ended = rota.wait(rota.submit("late", "me")["taskId"], PATIENCE_S)
            assert ended["error"]["code"] == "time_limit"
        elif how == "force-stop":
            rota.add_to_project("p", "stop")
            run = rota.run_project("p", "loop")["runId"]
            until(server, 2)
            assert rota.force_stop_project("p")["killedRuns"] == [run]
        else:
            task = rota.submit("stop", "me")["taskId"]
            until(server, 2)
            if how == "cancel":
                rota.cancel(task)
            else:
                assert server.stop() == 0
        until(server, 0)


def test_a_force_stop_leaves_no_process_alive(tmp_path: Path) -> None:
    """Of one that ignores TERM, one that forks, one that gets away, one that fills its output."""
    with (
        ServerProcess(tmp_path / "data", config=CONFIG) as server,
        JsonClient(server.url) as rota,
    ):
        runs = {}
        for name in STUBBORN:
            task = rota.add_to_project(name, name)["taskId"]
            runs[name] = rota.run_project(name, "loop")["runId"]
            end = time.monotonic() + PATIENCE_S
            while not rota.logs(task)["lines"]:
                assert time.monotonic() < end
                time.sleep(0.05)
        there = psutil.Process(server.pid).children(recursive=True)
        commands = [each for each in there if "wards.keeper" not in " ".join(each.cmdline())]
        assert len(commands) >= 1 + 4 + 2 + 1
        for name, run in runs.items():
            answer = rota.force_stop_project(name)
            assert answer == {"success": True, "killedRuns": [run], "stillRunning": []}
        assert all(map(has_ended, commands))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_command_outlives_its_server_and_the_task_runs_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ServerProcess(tmp_path / "data", config=CONFIG) as server:
        with JsonClient(server.url) as rota:
            task = rota.submit("hang", "me")["taskId"]
        until(server, 2)
        before = {each.pid for each in commands_of(server)}
        if number is signal.SIGKILL:
            server.kill()
        else:
            server.stop()
        server.start()
        until(server, 2)
        assert not before & {each.pid for each in commands_of(server)}
        with JsonClient(server.url) as rota:
            rota.cancel(task)
        until(server, 0)


def test_a_sandboxed_command_of_one_namespace_sees_nothing_of_another(tmp_path: Path) -> None:
    """Where there can be no sandbox, the server does not start."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    logs = [data / "data.mdb", data / "namespaces" / "a" / "data.mdb", elsewhere / "data.mdb"]
    look = (
        f"import json, os; print(json.dumps([os.path.exists(p) for p in {list(map(str, logs))}]))"
    )
    config = {
        "executors": {
            "look": {"kind": "command", "argv": list(python(look)), "sandbox": "bubblewrap"}
        },
        "types": {"look": {"executor": "look"}},
        "namespaces": {"a": {}, "b": {"dataDir": str(elsewhere)}},
    }
    if sandbox_problem():
        with pytest.raises(ServerFailed, match="does not work here"), ServerProcess(data, config):
            pass
        return
    with ServerProcess(data, config=config) as server:
        assert all(log.exists() for log in logs)
        for name in ("default", "a", "b"):
            with JsonClient(server.url, namespace=name) as rota:
                ended = rota.wait(rota.submit("look", "me")["taskId"], PATIENCE_S)
                assert ended["result"] == [False] * 3, ended

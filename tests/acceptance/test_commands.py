"""Commands of a real server: their lives over HTTP, and that none outlives its server."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.server_process import ServerProcess

from rota.client import SyncRotaClient
from rota.executors.leftovers import MARK, marked, marks_of

if TYPE_CHECKING:
    from pathlib import Path

    import psutil

PATIENCE_S = 60
CONFIG = {
    "executors": {
        "add": {
            "kind": "command",
            "argv": [
                "sh",
                "-c",
                'echo adding; echo "{\\"sum\\": $(($1 + $2))}"',
                "sh",
                "{{x}}",
                "{{y}}",
            ],
        },
        "hang": {
            "kind": "command",
            "argv": [
                sys.executable,
                "-c",
                "import signal, os, time\nsignal.signal(15, signal.SIG_IGN)\nos.fork()\ntime.sleep(600)",
            ],
            "graceMs": 200,
        },
    },
    "types": {"add": {"executor": "add"}, "hang": {"executor": "hang", "timeoutMs": 500_000}},
}


def commands_of(server: ServerProcess) -> list[psutil.Process]:
    found = marked(marks_of(server.data_dir)[MARK])
    return [each for each in found if "keeper.py" not in " ".join(each.cmdline())]


def until(server: ServerProcess, count: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while len(commands_of(server)) != count:
        assert time.monotonic() < end, commands_of(server)
        time.sleep(0.05)


def test_a_command_gives_its_result_and_its_log(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", config=CONFIG) as server,
        SyncRotaClient(server.url) as rota,
    ):
        task = rota.submit("add", "me", params={"x": 2, "y": 3})["taskId"]
        ended = rota.wait(task, PATIENCE_S)
        assert ended["state"] == "succeeded"
        assert ended["result"] == {"sum": 5}
        bad = rota.wait(rota.submit("add", "me", params={"x": 2})["taskId"], PATIENCE_S)
        assert bad["error"]["code"] == "bad_params" if isinstance(bad.get("error"), dict) else bad


def test_a_cancelled_command_is_gone_with_all_it_started(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", config=CONFIG) as server,
        SyncRotaClient(server.url) as rota,
    ):
        task = rota.submit("hang", "me")["taskId"]
        until(server, 2)
        rota.cancel(task)
        until(server, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_command_outlives_its_server_and_the_task_runs_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ServerProcess(tmp_path / "data", config=CONFIG) as server:
        with SyncRotaClient(server.url) as rota:
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
        with SyncRotaClient(server.url) as rota:
            rota.cancel(task)
        until(server, 0)

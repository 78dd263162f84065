"""kill -9 while a project is worked through: the run goes on where it was, each task once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.http_server import until
from support.kill_harness import verify
from support.server_process import ServerProcess

from rota.client.sync_client import JsonClient

if TYPE_CHECKING:
    from pathlib import Path

TASKS, KILLS = 6, 3


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    with server:
        server.args = ("--port", str(server.port))
        with JsonClient(server.url, retries=200, timeout_s=60) as rota:
            tasks = [{"action": "sleep", "params": {"ms": 150}}] * TASKS
            ids = [each["taskId"] for each in rota.add_many_to_project("p", tasks)["tasks"]]
            run = rota.run_project("p", "loop")["runId"]
            for _ in range(KILLS):
                done = rota.project_status("p")["completed"]
                until(lambda done=done: rota.project_status("p")["completed"] > done)
                server.kill()
                server.start()
            status = until(lambda: None if (s := rota.project_status("p"))["isRunning"] else s)
            assert (status["stopReason"], status["completed"]) == ("empty", TASKS)
            assert rota.get_run("p", run)["state"] == "completed"
            events = list(rota.iter_events())
            selected = [e["data"]["item"] for e in events if e["kind"] == "run_task_selected"]
            assert selected == ids
    verify(tmp_path / "data")

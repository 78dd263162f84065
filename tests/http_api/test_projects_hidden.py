"""A project's list with tasks of an agent that a token is not for: they are not there for it.

An administrator may put any agent's tasks on any list. Whoever has a token for the project's agent
hears of the others' tasks what it hears of what never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.http_server import until
from support.stubborn import EXECUTORS, STUBBORN, TYPES, StubbornRota
from support.tokens import OPS, Guarded, bearer

from rota.domain.project_parts import RUNS_KEPT

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Answer, Servers

ECHO = {"action": "echo"}
BOBS = {"agentId": "bob", "taskId": "b-secret"}
FAILS = {**BOBS, "action": "fail", "params": {"message": "the vault is at 12 Elm"}}
LIST = "/v1/projects/ann/tasks"


class Ann:
    """Somebody with a token for ann, on a server where bob's tasks are on ann's list, too."""

    def __init__(self, serve: Servers, *tasks: dict[str, Any]) -> None:
        self.guarded = Guarded(serve, {})
        self.guarded.make("submit", "submit", "ann")
        self.ops = self.guarded.rota
        self.added = self.add(*tasks)

    def add(self, *tasks: dict[str, Any]) -> list[str]:
        answer = self.ops.post(LIST, list(tasks))
        assert answer.status == 201, answer
        return [row["taskId"] for row in answer.json["tasks"]]

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self.guarded.ask("submit", method, path, body)

    def ran(self, body: dict[str, Any] | None = None) -> str:
        """Have the project run until it ends."""
        run_id: str = self.ops.post("/v1/projects/ann/run", body).json["runId"]
        path = "/v1/projects/ann/queue/status"
        until(lambda: not self.ops.get(path).json["isRunning"])
        return run_id

    def paths(self, run_id: str) -> list[str]:
        run = f"/runs/{run_id}"
        under = ["", "/tasks", "/queue/status", "/runs", run, f"{run}/events"]
        return ["/v1/projects", *(f"/v1/projects/ann{each}" for each in under)]

    def said(self, run_id: str) -> str:
        """Give all that there is to be heard of the project."""
        return "\n".join(str(self.ask("GET", path).json) for path in self.paths(run_id))


def test_neither_id_nor_error_of_what_is_anothers_is_shown(serve: Servers) -> None:
    ann = Ann(serve, FAILS)
    run_id = ann.ran({"taskId": "b-secret"})
    whole = "\n".join(str(ann.ops.get(path).json) for path in ann.paths(run_id))
    assert "b-secret" in whole
    assert "12 Elm" in whole
    for _ in range(RUNS_KEPT + 1):
        said = ann.said(run_id)  # from memory at first, and at last from the log
        assert "b-secret" not in said
        assert "Elm" not in said
        assert run_id in said
        ann.add(ECHO)
        ann.ran()
    row = ann.ask("GET", f"/v1/projects/ann/runs/{run_id}").json
    assert (row["state"], row["stopReason"], row["error"]) == ("failed", "task_failed", None)
    events = ann.ask("GET", f"/v1/projects/ann/runs/{run_id}/events").json["events"]
    assert [each["kind"] for each in events] == ["run_queued", "run_started", "run_ended"]
    assert ann.ask("GET", f"/v1/projects/ann/runs/{run_id}/events?after=1").status == 200


def test_what_is_its_own_is_shown_beside_what_is_anothers(serve: Servers) -> None:
    ann = Ann(serve, {**BOBS, **ECHO}, {"action": "fail", "params": {"message": "own words"}})
    own = ann.added[1]
    run_id = ann.ran({"mode": "loop", "taskId": "b-secret"})
    row = ann.ask("GET", f"/v1/projects/ann/runs/{run_id}").json
    assert row["taskId"] is None
    assert "own words" in row["error"]
    assert "own words" in ann.ask("GET", "/v1/projects/ann/queue/status").json["lastError"]
    said = ann.said(run_id)
    assert "b-secret" not in said
    assert own in said
    ann.add({"action": "fail", "taskId": "anns", "params": {"message": "first words"}})
    run_id = ann.ran({"taskId": "anns"})
    row = ann.ask("GET", f"/v1/projects/ann/runs/{run_id}").json
    assert row["taskId"] == "anns"
    path = f"/v1/projects/ann/runs/{run_id}/events"
    assert ann.ask("GET", path).json == ann.ops.get(path).json


def test_what_runs_of_anothers_is_not_named_even_if_it_cannot_be_killed(
    serve: Servers, tmp_path: Path
) -> None:
    config = {"types": TYPES, "executors": EXECUTORS, "projects": {"killWaitMs": 0}}
    rota = StubbornRota(tmp_path / "data", {**config, "server": {"tokens": {"ops": OPS}}})
    serve.adopt(rota)
    rota.token = OPS
    wanted = {"name": "submit", "role": "submit", "agents": ["ann"]}
    anns = bearer(rota.post("/v1/tokens", wanted).json["token"])
    assert rota.post(LIST, {**BOBS, "action": STUBBORN}).status == 201
    run_id = rota.post("/v1/projects/ann/run", {}).json["runId"]
    until(lambda: "b-secret" in rota.runner.running)
    path = "/v1/projects/ann/queue/status"
    assert rota.get(path).json["currentTaskId"] == "b-secret"
    assert rota.request("GET", path, None, anns).json["currentTaskId"] is None
    answer = rota.request("POST", "/v1/projects/ann/queue/force-stop", None, anns).json
    assert answer["stillRunning"] == [{"runId": run_id, "taskId": None}]
    records = rota.request("GET", f"/v1/projects/ann/runs/{run_id}/events", None, anns).json
    assert "b-secret" not in str(records)
    assert records["events"][-1]["kind"] == "run_stop_requested"
    rota.runner.let_go("b-secret")
    until(lambda: not rota.get(path).json["isRunning"])

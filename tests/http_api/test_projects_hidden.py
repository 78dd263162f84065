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
    from collections.abc import Iterator
    from pathlib import Path

    from support.http_server import Answer, Rota, Servers

ECHO = {"action": "echo"}
BOBS = {"agentId": "bob", "taskId": "b-secret"}
FAILS = {**BOBS, "action": "fail", "params": {"message": "the vault is at 12 Elm"}}
NEW = ("x-request-id", "date", "content-length")
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


def told(answer: Answer, name: str) -> tuple[Any, ...]:
    """Give all that an answer says, but for the name that was asked for and what is drawn anew."""
    headers = {key: value for key, value in answer.headers.items() if key not in NEW}
    said = {key: value for key, value in answer.json.items() if key != "requestId"}
    return answer.status, headers, str(said).replace(name, "NAME")


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


def test_the_feed_and_streams_have_the_runs_of_its_own_projects(serve: Servers) -> None:
    ann = Ann(serve, {**ECHO, "taskId": "mine"}, FAILS)
    for project in ("bob", "ann-too"):
        ann.ops.post(f"/v1/projects/{project}/tasks", {**ECHO, "agentId": "bob"})
        ann.ops.post(f"/v1/projects/{project}/run")
    run_id = ann.ran({"mode": "loop"})
    got = ann.ask("GET", "/v1/events?limit=1000&kind=run_queued,run_task_selected,run_ended")
    assert [each["kind"] for each in got.json["events"]] == [
        "run_queued", "run_task_selected", "run_task_selected", "run_ended",
    ]  # fmt: skip
    queued, own, others, ended = (each["data"] for each in got.json["events"])
    assert {each["run"] for each in (queued, own, others, ended)} == {run_id}
    assert (own["item"], others) == ("mine", {"run": run_id, "project": "ann"})
    assert (ended["reason"], "error" in ended) == ("task_failed", False)
    path = "/v1/events/stream?after=0&project=ann&kind=run_task_selected,run_ended"
    token = bearer(ann.guarded.tokens["submit"])
    with ann.ops.stream(path, **token) as stream:
        frames = [frame.event for frame in stream.take(3)]
    assert frames == got.json["events"][1:]
    said = ann.ask("GET", "/v1/events?limit=1000").body.decode()
    assert "b-secret" not in said
    assert "Elm" not in said


def test_the_feed_in_browseros_words_bears_what_was_left_out(serve: Servers) -> None:
    ann = Ann(serve, FAILS)
    ann.ran()
    assert ann.ask("GET", "/v1/events?view=browseros").status == 200
    assert ann.ops.get("/health").json["status"] == "ok"


def test_the_place_of_its_own_is_told_without_the_id_of_anothers(serve: Servers) -> None:
    own = {"action": "waits", "taskId": "anns"}
    ann = Ann(serve, own, {**own, "taskId": "anns-next"}, {**BOBS, "action": "waits"})
    for place in ({"before": "anns"}, {"position": 2}, {"position": 1}):
        assert ann.ask("PATCH", f"{LIST}/anns-next", place).status == 200
    ann.ops.post(LIST, {**own, "taskId": "anns-last", "before": "b-secret"})
    kinds = "kind=project_task_added,project_task_moved"
    path = f"/v1/events?{kinds}"
    whole, got = (ask.json["events"] for ask in (ann.ops.get(path), ann.ask("GET", path)))
    assert [each["data"].get("before") for each in whole] == [
        None, None, None, "anns", None, "b-secret", "b-secret",
    ]  # fmt: skip
    assert [each["data"].get("before") for each in got] == [None, None, "anns", None, None, None]
    of_view = ann.ask("GET", "/v1/events?limit=1000&view=automechanica")
    of_task = ann.ask("GET", "/v1/tasks/anns-next/events")
    for answer in (ann.ask("GET", "/v1/events?limit=1000"), of_view, of_task):
        assert "b-secret" not in answer.body.decode()
        assert "bob" not in answer.body.decode()
        assert "anns-next" in answer.body.decode()
    token = bearer(ann.guarded.tokens["submit"])
    for view in ("native", "automechanica"):
        with ann.ops.stream(f"/v1/events/stream?after=0&{kinds}&view={view}", **token) as stream:
            frames = [frame.event for frame in stream.take(len(got))]
        shown = got if view == "native" else [each["data"] for each in got]
        assert (frames if view == "native" else [each["payload"] for each in frames]) == shown


def test_the_feed_and_streams_filter_by_project(rota: Rota) -> None:
    tasks = [{**ECHO, "taskId": "t1"}, {**ECHO, "taskId": "t2", "agentId": "bob"}]
    for project in ("p", "q"):
        rota.request("PUT", f"/v1/projects/{project}")
    rota.post("/v1/projects/p/tasks", tasks)
    rota.post("/v1/projects/q/tasks", {**ECHO, "params": {"project": "p"}})
    with rota.stream("/v1/events/stream?project=p") as stream:
        for project in ("q", "p"):
            run = rota.post(f"/v1/projects/{project}/run", {"mode": "loop"}).json["runId"]
            assert rota.get(f"/v1/projects/{project}/runs/{run}?waitMs=9000").json["completed"]
        kinds = [
            "run_queued", "run_started", "run_task_selected", "task_submitted",
            "run_task_selected", "task_submitted", "run_ended",
        ]  # fmt: skip
        assert [frame.event["kind"] for frame in stream.take(len(kinds))] == kinds
    found = rota.events(project="p")
    assert [each["kind"] for each in found] == [
        "project_created", "project_task_added", "project_task_added", *kinds,
    ]  # fmt: skip
    assert {each["data"]["project"] for each in found} == {"p"}
    assert rota.events(project="p", agentId="bob", kind="project_task_added") == [found[2]]
    assert rota.events(project="nobody") == []


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


def asked_of(item: str, own: str) -> Iterator[tuple[str, str, Any]]:
    """Name an item wherever something can be asked about one."""
    yield "POST", LIST, {**ECHO, "before": item}
    yield "POST", LIST, {"tasks": [ECHO], "before": item}
    yield "PATCH", f"{LIST}/{own}", {"before": item}
    yield "PATCH", f"{LIST}/{own}", {"priority": "low", "before": item}
    yield "PATCH", f"{LIST}/{item}", {"priority": "low"}
    yield "PATCH", f"{LIST}/{item}", {"position": 0}
    yield "PATCH", f"{LIST}/{item}", {"before": own}
    yield "DELETE", f"{LIST}/{item}", None
    yield "POST", "/v1/projects/ann/run", {"taskId": item}


def test_what_is_anothers_on_its_list_is_answered_as_what_never_was(serve: Servers) -> None:
    own = {"action": "waits", "taskId": "anns"}
    ann = Ann(serve, {**BOBS, "action": "waits"}, own, {**own, "taskId": "anns-next"})

    def compare(status: int) -> None:
        pairs = zip(
            asked_of("b-secret", "anns-next"), asked_of("b-absent", "anns-next"), strict=True
        )
        for there, gone in pairs:
            found, absent = ann.ask(*there), ann.ask(*gone)
            assert told(found, "b-secret") == told(absent, "b-absent"), there
            assert found.status == (status if there[1].endswith("/run") else 404), there

    compare(404)
    ann.ops.post("/v1/projects/ann/run", {"taskId": "anns"})
    compare(409)  # a run is under way, whatever there is
    assert ann.ops.post("/v1/projects/ann/queue/force-stop").json["success"]
    ann.ops.post("/v1/projects/ann/run", {"taskId": "b-secret"})
    until(lambda: ann.ops.get(LIST).json["current"])
    compare(409)
    assert ann.ops.post("/v1/projects/ann/queue/force-stop").json["success"]
    assert "b-secret" in str(ann.ops.get(LIST).json["done"])
    compare(404)
    assert [row["taskId"] for row in ann.ops.get(LIST).json["tasks"]] == ["anns-next"]


def test_a_project_with_anothers_tasks_is_not_its_to_delete(serve: Servers) -> None:
    ann = Ann(serve, {**BOBS, **ECHO}, ECHO)
    answer = ann.ask("DELETE", "/v1/projects/ann")
    assert (answer.status, answer.code) == (404, "project_not_found")
    assert ann.ops.get(LIST).json["count"] == 2
    assert ann.ops.request("DELETE", f"{LIST}/b-secret").status == 200
    assert ann.ask("DELETE", "/v1/projects/ann").json["removed"] == 1


def test_a_key_of_anothers_task_on_its_list_is_not_known(serve: Servers) -> None:
    ann = Ann(serve, {**ECHO, "taskId": "anns"})
    keyed = {**ECHO, "idempotencyKey": "k"}
    [bobs] = ann.ops.post(LIST, {"agentId": "bob", "tasks": [keyed]}).json["tasks"]
    made = ann.ask("POST", LIST, keyed)
    assert made.status == 201
    assert made.json["taskId"] != bobs["taskId"]
    assert ann.ask("POST", LIST, keyed).json == {**made.json, "idempotent": True}


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

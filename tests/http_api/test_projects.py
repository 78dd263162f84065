"""/projects and /v1/projects: what is refused, what is bounded, and who may see what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.tokens import Guarded

from rota.domain import project_lists

if TYPE_CHECKING:
    from support.http_server import Rota, Servers

ECHO = {"action": "echo"}


def add(rota: Rota, project: str, *tasks: dict[str, Any]) -> list[str]:
    answer = rota.post(f"/v1/projects/{project}/tasks", {"tasks": list(tasks)})
    assert answer.status == 201, answer
    return [row["taskId"] for row in answer.json["tasks"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        ({**ECHO, "colour": 1}, "colour"),
        ({**ECHO, "dependsOn": ["x"]}, "dependsOn"),
        ({**ECHO, "workflowId": "wfl_1"}, "workflowId"),
        ({**ECHO, "dedup": {"key": "k"}}, "dedup"),
        ({**ECHO, "agentId": ""}, "agentId"),
        ({**ECHO, "priority": -1}, "priority"),
        ({**ECHO, "requires": ["gpu"]}, "requires"),
        ({**ECHO, "taskId": "tsk_mine"}, "taskId"),
        ({"tasks": []}, "tasks"),
        ({"tasks": [{**ECHO, "before": "x"}]}, "tasks.0.before"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused_by_its_field(
    rota: Rota, body: dict[str, Any], field: str
) -> None:
    answer = rota.post("/v1/projects/p/tasks", body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert answer.json["details"]["field"] == field
    assert rota.get("/v1/projects").json["count"] == 0
    told = rota.post("/projects/p/tasks", body).json
    assert set(told) == {"error", "message"}
    assert told["error"] == "bad-request"


@pytest.mark.parametrize("name", ["run", "stop", "force-stop", "%20", "x" * 201, "a%0Ab"])
def test_a_project_cannot_be_called_anything(rota: Rota, name: str) -> None:
    assert rota.post(f"/projects/{name}/tasks", ECHO).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"colour": 1},
        {"agentId": "q"},
        {"taskId": "x"},
        {"action": None},
        {"before": "x", "position": 0},
        {"position": -1},
        {"dependsOn": []},
        {"workflowId": "w"},
    ],
)
def test_a_change_that_makes_no_sense_is_refused(rota: Rota, body: dict[str, Any]) -> None:
    [task] = add(rota, "p", ECHO)
    assert rota.request("PATCH", f"/v1/projects/p/tasks/{task}", body).status == 400


def test_a_change_changes_what_it_says_and_nothing_else(rota: Rota) -> None:
    [task] = add(rota, "p", {**ECHO, "params": {"a": 1}, "timeoutMs": 5, "delayMs": 9, "key": "k"})
    change = {"priority": "low", "timeoutMs": None, "notBefore": "2030-01-01T00:00:00Z"}
    assert rota.request("PATCH", f"/v1/projects/p/tasks/{task}", change).status == 400  # too far
    change["notBefore"] = rota.get("/v1/projects/p").json["createdAt"]
    assert rota.request("PATCH", f"/v1/projects/p/tasks/{task}", change).status == 200
    [row] = rota.get("/v1/projects/p/tasks").json["tasks"]
    assert (row["priority"], row["params"], row["key"]) == (3, {"a": 1}, "k")
    assert "timeoutMs" not in row
    assert "delayMs" not in row
    assert row["notBefore"] == change["notBefore"]


@pytest.mark.parametrize(
    "body", [{"mode": "twice"}, {"mode": 1}, {"colour": 1}, {"taskId": "x" * 201}]
)
def test_a_start_that_makes_no_sense_is_refused(rota: Rota, body: dict[str, Any]) -> None:
    add(rota, "p", ECHO)
    assert rota.post("/projects/p/run", body).json["error"] == "bad-request"


def test_what_is_not_there_is_not_found(rota: Rota) -> None:
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("GET", "/tasks"), ("GET", "/queue/status"), ("GET", "/runs"),
        ("GET", "/runs/r"), ("GET", "/runs/r/events"), ("POST", "/run"), ("POST", "/queue/stop"),
        ("POST", "/queue/force-stop"), ("DELETE", "/tasks/t"),
    ):  # fmt: skip
        answer = rota.request(method, f"/v1/projects/nobody{path}")
        assert (answer.status, answer.code) == (404, "project_not_found"), path


def test_an_idempotency_key_stands_for_one_task_of_its_list(rota: Rota) -> None:
    body = {**ECHO, "idempotencyKey": "once"}
    first = rota.post("/v1/projects/p/tasks", body)
    again = rota.post("/v1/projects/p/tasks", body)
    assert (first.status, again.status) == (201, 200)
    assert again.json == {**first.json, "idempotent": True}
    other = rota.post("/v1/projects/p/tasks", {**body, "params": {"n": 1}})
    assert (other.status, other.code) == (409, "idempotency_conflict")
    assert rota.post("/v1/projects/q/tasks", body).status == 201
    rota.post("/v1/projects/p/run")
    until(lambda: not rota.get("/v1/projects/p/queue/status").json["isRunning"])
    assert rota.post("/v1/projects/p/tasks", body).json["taskId"] == first.json["taskId"]


def test_an_id_of_your_own_is_nobody_elses(rota: Rota) -> None:
    add(rota, "p", {**ECHO, "taskId": "mine"})
    assert rota.post("/v1/projects/q/tasks", {**ECHO, "taskId": "mine"}).code == "id_taken"
    plain = {"agentId": "a", "action": "echo", "taskId": "mine"}
    assert rota.post("/v1/tasks", plain).code == "id_taken"
    rota.submit_native(taskId="taken")
    assert rota.post("/v1/projects/p/tasks", {**ECHO, "taskId": "taken"}).code == "id_taken"


def test_a_list_has_so_many_tasks_and_bytes_at_most(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota = serve({"projects": {"maxItems": 2}})
    add(rota, "p", ECHO, ECHO)
    full = rota.post("/v1/projects/p/tasks", ECHO)
    assert (full.status, full.code) == (429, "project_full")
    monkeypatch.setattr(project_lists, "ITEMS_MAX", 3)
    add(rota, "q", ECHO)
    assert rota.post("/v1/projects/q/tasks", ECHO).code == "projects_full"
    monkeypatch.setattr(project_lists, "ITEMS_MAX", 100)
    monkeypatch.setattr(project_lists, "ITEM_BYTES_MAX", 1000)
    large = {**ECHO, "params": {"x": "y" * 1000}}
    assert rota.post("/v1/projects/q/tasks", large).code == "projects_full"
    [task] = [row["taskId"] for row in rota.get("/v1/projects/q/tasks").json["tasks"]]
    edit = rota.request("PATCH", f"/v1/projects/q/tasks/{task}", {"params": large["params"]})
    assert edit.code == "projects_full"
    monkeypatch.setattr(project_lists, "PROJECTS_MAX", 2)
    assert rota.post("/v1/projects/r/tasks", ECHO).code == "too_many_projects"
    assert rota.request("DELETE", "/v1/projects/q").json["removed"] == 1
    add(rota, "r", ECHO)


def test_long_lists_are_read_in_pages(rota: Rota) -> None:
    ids = add(rota, "p", *[ECHO] * 5)
    seen: list[str] = []
    cursor = "0"
    while cursor:
        page = rota.get(f"/projects/p/tasks?limit=2&cursor={cursor}").json
        seen += [row["taskId"] for row in page["tasks"]]
        cursor = page.get("nextCursor", "")
    assert seen == ids


def test_a_project_that_runs_is_not_deleted(rota: Rota) -> None:
    add(rota, "p", {"action": "sleep", "params": {"ms": 60_000}})
    rota.post("/projects/p/run")
    assert rota.request("DELETE", "/v1/projects/p").code == "queue_already_running"
    rota.post("/projects/p/queue/force-stop")
    assert rota.request("DELETE", "/v1/projects/p").status == 200


def test_a_token_has_the_projects_that_are_called_like_its_agents(serve: Servers) -> None:
    guarded = Guarded(serve, {})
    guarded.make("submit", "submit", "ann")
    assert guarded.ask("submit", "POST", "/v1/projects/ann/tasks", ECHO).status == 201
    assert guarded.rota.post("/v1/projects/bob/tasks", ECHO).status == 201
    for body, project in (({**ECHO, "agentId": "bob"}, "ann"), (ECHO, "bob")):
        answer = guarded.ask("submit", "POST", f"/v1/projects/{project}/tasks", body)
        assert (answer.status, answer.code) == (403, "forbidden")
    seen = guarded.ask("submit", "GET", "/v1/projects").json["projects"]
    assert [each["projectId"] for each in seen] == ["ann"]
    for method, path in (("GET", ""), ("POST", "/run"), ("POST", "/queue/stop"), ("DELETE", "")):
        answer = guarded.ask("submit", method, f"/v1/projects/bob{path}")
        assert (answer.status, answer.code) == (404, "project_not_found"), path
    assert guarded.ask("submit", "POST", "/v1/projects/ann/run").status == 202

"""/projects and /v1/projects: what is refused, what is bounded, and who may see what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from support.clocks import SetClock, passing
from support.http_server import Rota, until
from support.stubborn import EXECUTORS, STUBBORN
from support.tokens import Guarded

from rota.config import BATCH_MAX
from rota.domain import admission, project_lists
from rota.domain.project_parts import DONE_KEPT
from rota.http.project_models import MANY_MAX
from rota.http.v1 import health
from rota.http.v1.projects import LIST_BYTES_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Servers

ECHO = {"action": "echo"}


def add(rota: Rota, project: str, *tasks: dict[str, Any]) -> list[str]:
    answer = rota.post(f"/v1/projects/{project}/tasks", {"tasks": list(tasks)})
    assert answer.status == 201, answer
    return [row["taskId"] for row in answer.json["tasks"]]


def test_what_the_file_says_of_projects_holds_from_a_reload_on(
    tmp_path: Path, serve: Servers
) -> None:
    made = Rota(tmp_path / "reloaded", {"projects": {"maxConcurrent": 1}})
    made.write_config(made.config)
    rota = serve.adopt(made)
    for name in "pqr":
        add(rota, name, {"action": "sleep", "params": {"ms": 60_000}})
        rota.post(f"/v1/projects/{name}/run")

    def in_progress() -> int:
        runs = [rota.get(f"/v1/projects/{name}/runs").json["runs"][0] for name in "pqr"]
        return [run["state"] for run in runs].count("in_progress")

    assert in_progress() == 1
    rota.write_config({"projects": {"maxConcurrent": 2}})
    until(lambda: in_progress() == 2)
    (event,) = rota.events(kind="config_changed")
    assert event["data"]["changed"] == ["maxConcurrentProjects"]
    rota.write_config({"projects": {"maxConcurrent": 0, "killWaitMs": 7, "maxItems": 1}})
    until(lambda: in_progress() == 3)
    assert rota.get("/v1/config").json["projects"]["killWaitMs"] == 7
    assert any("killWaitMs" in line for line in rota.log.lines)
    add(rota, "p", ECHO)
    assert rota.post("/v1/projects/p/tasks", ECHO).code == "project_full"


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
        ({**ECHO, "deadline": "2020-01-01T00:00:00Z"}, "deadline"),
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


@pytest.mark.parametrize(
    "name", ["run", "stop", "force-stop", "%20", "x" * 201, "a%0Ab", ".", "..", "%2E%2E", "a%2Fb"]
)
def test_a_project_cannot_be_called_anything(rota: Rota, name: str) -> None:
    answer = rota.post(f"/projects/{name}/tasks", ECHO)
    assert answer.status == 400
    assert answer.json["message"].startswith("field 'projectId': must ")


@pytest.mark.parametrize("name", ["0b1f6c1e-2f3a-4c7e-9d55-0a1b2c3d4e5f", "a.b", "...", "a:b c"])
def test_a_project_can_be_called_what_is_one_part_of_a_path(rota: Rota, name: str) -> None:
    made = rota.post(f"/projects/{quote(name)}/tasks", ECHO)
    assert (made.status, made.json["projectId"]) == (201, name)


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
        {"deadline": "2020-01-01T00:00:00Z"},
    ],
)
def test_a_change_that_makes_no_sense_is_refused(rota: Rota, body: dict[str, Any]) -> None:
    [task] = add(rota, "p", ECHO)
    assert rota.request("PATCH", f"/v1/projects/p/tasks/{task}", body).status == 400


@pytest.mark.parametrize("body", [{"action": None}, {"taskId": "x"}, {"onMissing": "wait"}])
def test_a_change_that_is_refused_names_its_field(rota: Rota, body: dict[str, Any]) -> None:
    [task] = add(rota, "p", ECHO)
    told = rota.request("PATCH", f"/v1/projects/p/tasks/{task}", body).json
    [field] = body
    assert told["details"] == {"field": field}
    assert told["error"].startswith(f"field '{field}': ")


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


def test_what_was_done_is_told_in_the_words_of_its_path(rota: Rota) -> None:
    [task] = add(rota, "p", ECHO)
    assert rota.post("/v1/projects/p/run").status == 202
    until(lambda: rota.get("/v1/projects/p/tasks").json["done"])
    for path, word in (("/v1/projects", "succeeded"), ("/projects", "completed")):
        [done] = rota.get(f"{path}/p/tasks").json["done"]
        assert (done["taskId"], done["action"], done["state"]) == (task, "echo", word)


@pytest.mark.parametrize("base", ["/v1/projects", "/projects"])
def test_an_idempotency_key_stands_for_one_task_of_its_list(rota: Rota, base: str) -> None:
    body = {**ECHO, "idempotencyKey": "once"}
    first = rota.post(f"{base}/p/tasks", body)
    again = rota.post(f"{base}/p/tasks", body)
    assert (first.status, again.status) == (201, 200)
    assert again.json == {**first.json, "idempotent": True}
    other = rota.post(f"{base}/p/tasks", {**body, "params": {"n": 1}})
    assert other.status == 422
    assert "different request" in other.json["message" if base == "/projects" else "error"]
    assert rota.post(f"{base}/q/tasks", body).status == 422, "it is for another project"
    rota.post(f"{base}/p/run")
    until(lambda: not rota.get(f"{base}/p/queue/status").json["isRunning"])
    done = "completed" if base == "/projects" else "succeeded"
    assert rota.post(f"{base}/p/tasks", body).json == {**again.json, "state": done}


def test_a_key_said_twice_in_one_request_stands_for_one_task(rota: Rota) -> None:
    keyed = {**ECHO, "idempotencyKey": "once"}
    rows = rota.post("/v1/projects/p/tasks", {"tasks": [keyed, keyed]}).json["tasks"]
    assert rows[0]["taskId"] == rows[1]["taskId"]
    assert "idempotent" in rows[1]
    other = {**keyed, "params": {"n": 1}}
    answer = rota.post("/v1/projects/q/tasks", {"tasks": [keyed, other]})
    assert (answer.status, answer.code) == (422, "idempotency_conflict")


@pytest.mark.parametrize("where", ["header", "body"])
def test_one_key_stands_for_all_tasks_of_one_request(rota: Rota, where: str) -> None:
    path, headers = "/v1/projects/p/tasks", {"Idempotency-Key": "k"} if where == "header" else {}
    key = {"idempotencyKey": "k"} if where == "body" else {}

    def ask(*tasks: dict[str, Any]) -> Any:
        return rota.request("POST", path, {"tasks": [*tasks], **key}, headers=headers)

    first = ask(ECHO, ECHO, {**ECHO, "params": {"n": 3}})
    assert first.status == 201, first
    ids = [row["taskId"] for row in first.json["tasks"]]
    assert len(set(ids)) == 3, "alike ones are tasks of their own"
    again = ask(ECHO, ECHO, {**ECHO, "params": {"n": 3}})
    assert (again.status, again.json) == (200, {**first.json, "idempotent": True})
    assert (ask(ECHO).status, ask(ECHO).code) == (422, "idempotency_conflict")
    twice = ask({**ECHO, "idempotencyKey": "other"})
    assert (twice.status, twice.json["details"]["field"]) == (400, "tasks.0.idempotencyKey")
    rota.request("DELETE", f"{path}/{ids[2]}", {})
    assert ended_run(rota, "p")["stopReason"] == "single_done"
    rota.restart()
    now = ask(ECHO, ECHO, {**ECHO, "params": {"n": 3}}).json["tasks"]
    assert [row["state"] for row in now] == ["succeeded", "pending", "removed"]
    assert [row["taskId"] for row in now] == ids


def test_a_key_of_many_tasks_stands_for_those_that_the_list_has_forgotten(rota: Rota) -> None:
    body = {"tasks": [ECHO] * (DONE_KEPT + 2), "idempotencyKey": "k"}
    first = rota.post("/v1/projects/p/tasks", body).json["tasks"]
    assert rota.post("/v1/projects/p/run", {"mode": "loop"}).status == 202
    until(lambda: not rota.get("/v1/projects/p/queue/status").json["isRunning"])
    now = rota.post("/v1/projects/p/tasks", body)
    assert (now.status, now.json["tasks"]) == (
        200,
        [{**row, "state": "succeeded"} for row in first],
    )
    rota.post("/v1/projects/p/tasks", {"tasks": [ECHO] * DONE_KEPT})
    assert rota.post("/v1/projects/p/run", {"mode": "loop"}).status == 202
    until(lambda: not rota.get("/v1/projects/p/queue/status").json["isRunning"])
    assert rota.post("/v1/projects/p/tasks", body).status == 201, "none of them is known any more"


def ended_run(rota: Rota, project: str) -> dict[str, Any]:
    assert rota.post(f"/v1/projects/{project}/run").status == 202
    found: dict[str, Any] = until(
        lambda: (
            None if (s := rota.get(f"/v1/projects/{project}/queue/status").json)["isRunning"] else s
        )
    )
    return found


def test_what_the_rules_speak_against_by_now_fails_its_run(serve: Servers) -> None:
    rota = serve({})
    add(rota, "p", {"action": "job", "requires": ["gpu"]})
    rota.stop()
    rota.config |= {"types": {"job": {"executor": STUBBORN}}, "executors": EXECUTORS}
    rota.start()
    ended = ended_run(rota, "p")
    assert (ended["stopReason"], ended["remaining"]) == ("task_failed", 0)
    assert "requires" in ended["lastError"]


def test_what_has_passed_its_deadline_on_the_list_fails_its_run(rota: Rota) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    add(rota, "p", {**ECHO, "deadline": soon})
    with passing(7200):
        ended = ended_run(rota, "p")
    assert (ended["stopReason"], ended["completed"]) == ("task_failed", 0)


def test_a_moment_that_is_too_far_away_once_the_clock_is_set_back_fails_its_run(
    serve: Servers, tmp_path: Path
) -> None:
    clock = SetClock()
    rota = Rota(tmp_path / "set", {}, clock)
    serve.adopt(rota)
    far = (datetime.now(UTC) + timedelta(days=365)).isoformat()
    add(rota, "p", {**ECHO, "deadline": far})
    add(rota, "q", {"action": "job", "notBefore": far})
    clock.ahead_s = -30 * 86_400.0
    until(lambda: rota.events(kind="clock_stepped"), what="the step is noticed")
    for project in ("p", "q"):
        ended = ended_run(rota, project)
        assert (ended["stopReason"], "days away" in ended["lastError"]) == ("task_failed", True)


def test_lists_do_not_let_more_sets_of_labels_wait_than_may(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "REQUIREMENTS_MAX", 2)
    for name in ("a", "b", "c"):
        add(rota, name, {"action": "for-a-worker", "requires": [name]})
        rota.post(f"/v1/projects/{name}/run")
    assert rota.get("/v1/projects/a/queue/status").json["currentTaskId"]
    ended = until(
        lambda: None if (s := rota.get("/v1/projects/c/queue/status").json)["isRunning"] else s
    )
    assert (ended["stopReason"], "labels" in ended["lastError"]) == ("task_failed", True)


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
    room = rota.inside(lambda server: server.shard.state.projects.room(0))
    room.items.most = 3
    add(rota, "q", ECHO)
    assert rota.post("/v1/projects/q/tasks", ECHO).code == "projects_full"
    room.items.most, room.bytes.most = 100, 1000
    large = {**ECHO, "params": {"x": "y" * 1000}}
    assert rota.post("/v1/projects/q/tasks", large).code == "projects_full"
    [task] = [row["taskId"] for row in rota.get("/v1/projects/q/tasks").json["tasks"]]
    edit = rota.request("PATCH", f"/v1/projects/q/tasks/{task}", {"params": large["params"]})
    assert edit.code == "projects_full"
    monkeypatch.setattr(project_lists, "LIST_BYTES_MAX", 500)
    assert rota.post("/v1/projects/q/tasks", large).code == "project_full"
    edit = rota.request("PATCH", f"/v1/projects/q/tasks/{task}", {"params": large["params"]})
    assert (edit.status, edit.code) == (429, "project_full")
    assert edit.json["details"] == {"projectId": "q", "maxBytes": 500}
    room.projects.most = 2
    assert rota.post("/v1/projects/r/tasks", ECHO).code == "too_many_projects"
    assert rota.request("DELETE", "/v1/projects/q").json["removed"] == 1
    add(rota, "r", ECHO)


def test_one_caller_leaves_room_on_lists_for_the_next(rota: Rota) -> None:
    room = rota.inside(lambda server: server.shard.state.projects.room(0))
    room.projects.most, room.items.most, room.bytes.most = 4, 6, 5000
    ann, bob = {**ECHO, "agentId": "ann"}, {**ECHO, "agentId": "bob"}
    add(rota, "a", ann)
    add(rota, "b", ann)
    assert rota.post("/v1/projects/c/tasks", ann).code == "too_many_projects"
    add(rota, "a", ann)
    assert rota.post("/v1/projects/a/tasks", ann).code == "projects_full"
    add(rota, "c", bob)
    large = {"params": {"x": "y" * 2500}}
    assert rota.post("/v1/projects/c/tasks", {**bob, **large}).code == "projects_full"
    assert rota.post("/v1/projects/c/tasks", {**ECHO, "agentId": "eve", **large}).status == 201


def test_one_request_has_so_many_tasks_and_projects_at_most(rota: Rota) -> None:
    assert rota.post("/v1/projects/p/tasks", [ECHO] * (BATCH_MAX + 1)).code == "bad_request"
    many = {"projects": [f"p{n}" for n in range(MANY_MAX + 1)]}
    for how in ("run", "stop", "force-stop"):
        assert rota.post(f"/v1/projects/{how}", many).code == "bad_request"


def test_a_force_stop_that_cannot_wait_says_so_for_its_project(rota: Rota) -> None:
    for name in ("busy", "idle"):
        add(rota, name, {"action": "waits"})
    assert rota.post("/v1/projects/busy/run").status == 202
    rota.inside(lambda server: setattr(server.app.namespaces.default.watches.watching, "most", 0))
    answer = rota.post("/v1/projects/force-stop", {"projects": ["busy", "idle"]})
    busy, idle = answer.json["projects"]
    assert (answer.status, busy["success"], busy["code"]) == (200, False, "too_many_streams")
    assert idle == {"projectId": "idle", "success": True, "killedRuns": [], "stillRunning": []}
    assert not rota.get("/v1/projects/busy/queue/status").json["isRunning"]


def test_long_lists_are_read_in_pages(rota: Rota) -> None:
    ids = add(rota, "p", *[ECHO] * 5)
    seen: list[str] = []
    cursor = "0"
    while cursor:
        page = rota.get(f"/projects/p/tasks?limit=2&cursor={cursor}").json
        seen += [row["taskId"] for row in page["tasks"]]
        cursor = page.get("nextCursor", "")
    assert seen == ids


def test_a_page_of_a_list_is_bounded_in_bytes_and_always_goes_on(rota: Rota) -> None:
    sizes = [LIST_BYTES_MAX * 2, *[LIST_BYTES_MAX // 3] * 4, LIST_BYTES_MAX * 2, 1]
    ids = add(rota, "p", *({**ECHO, "params": {"x": "y" * size}} for size in sizes))
    pages: list[list[str]] = []
    cursor = "0"
    while cursor:
        page = rota.get(f"/projects/p/tasks?limit=1000&cursor={cursor}").json
        pages.append([row["taskId"] for row in page["tasks"]])
        cursor = page.get("nextCursor", "")
    assert pages == [ids[:1], ids[1:3], ids[3:5], ids[5:6], ids[6:]]


@pytest.mark.parametrize("base", ["/v1/projects", "/projects"])
def test_an_empty_project_is_made_once(rota: Rota, base: str) -> None:
    made = rota.request("PUT", f"{base}/p")
    assert (made.status, made.json["projectId"], made.json["runs"]) == (201, "p", [])
    assert rota.request("PUT", f"{base}/p").json == made.json
    assert rota.request("PUT", f"{base}/p").status == 200
    assert rota.request("PUT", f"{base}/run").status == 400
    assert rota.request("PUT", f"{base}/a%2Fb").status == 400
    assert len(rota.events(kind="project_created")) == 1
    run = rota.post(f"{base}/p/run").json["runId"]
    assert rota.get(f"{base}/p/runs/{run}?waitMs=9000").json["stopReason"] == "empty"
    rota.restart()
    assert rota.get(f"{base}/p").json["figures"]["starts"] == 1


def test_an_empty_project_takes_its_place_of_those_there_may_be(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota.request("PUT", "/v1/projects/p")
    monkeypatch.setattr(project_lists, "PROJECTS_MAX", 1)
    rota.restart()
    assert rota.request("PUT", "/v1/projects/p").status == 200
    refused = rota.request("PUT", "/v1/projects/q")
    assert (refused.status, refused.code) == (429, "too_many_projects")


def test_one_task_of_a_list_is_read_by_its_id(rota: Rota) -> None:
    first, second = add(rota, "p", {"action": "sleep", "params": {"ms": 60_000}}, ECHO)
    path = f"/v1/projects/p/tasks/{second}"
    shown = rota.get(path).json
    assert shown["projectId"] == "p"
    del shown["projectId"]
    assert shown == rota.get("/v1/projects/p/tasks").json["tasks"][1]
    rota.post("/v1/projects/p/run")
    assert rota.get(f"/v1/projects/p/tasks/{first}").json["state"] == "in_progress"
    assert rota.get(path).json["position"] == 0
    rota.post("/v1/projects/p/queue/force-stop")
    assert rota.get(f"/v1/projects/p/tasks/{first}").json["state"] == "failed"
    missing = rota.get("/v1/projects/p/tasks/tsk_nobody")
    assert (missing.status, missing.code) == (404, "task_not_found")
    assert rota.get("/v1/projects/q/tasks/tsk_nobody").code == "project_not_found"


def listed(rota: Rota, project: str) -> list[str]:
    return [row["taskId"] for row in rota.get(f"/v1/projects/{project}/tasks").json["tasks"]]


def test_a_list_is_in_the_order_of_priority_and_then_of_place(rota: Rota) -> None:
    names = {"low": "low", "usual": None, "urgent": "critical", "usual-2": 2, "urgent-2": 0}
    tasks = [
        {**ECHO, "taskId": name} | ({"priority": priority} if priority is not None else {})
        for name, priority in names.items()
    ]
    add(rota, "p", *tasks)
    assert listed(rota, "p") == ["urgent", "urgent-2", "usual", "usual-2", "low"]

    def change(task: str, **what: Any) -> list[str]:
        assert rota.request("PATCH", f"/v1/projects/p/tasks/{task}", what).status == 200
        return listed(rota, "p")

    assert change("usual-2", position=0) == ["urgent", "urgent-2", "usual-2", "usual", "low"]
    assert change("urgent", before=None) == ["urgent-2", "urgent", "usual-2", "usual", "low"]
    assert change("low", before="urgent")[-1] == "low"
    assert change("low", priority="critical")[:3] == ["urgent-2", "urgent", "low"]
    assert change("urgent", priority=1) == ["urgent-2", "low", "urgent", "usual-2", "usual"]
    moved = rota.events(kind="project_task_moved")
    assert [each["data"]["item"] for each in moved] == ["usual-2", "urgent"]
    rota.restart()
    run = rota.post("/v1/projects/p/run", {"mode": "loop"}).json["runId"]
    done = rota.get(f"/v1/projects/p/runs/{run}?waitMs=20000").json["tasks"]
    assert done == ["urgent-2", "low", "urgent", "usual-2", "usual"]


def test_a_task_on_a_list_again_goes_by_its_priority(rota: Rota) -> None:
    add(rota, "p", {"action": "fail", "taskId": "bad"}, {**ECHO, "taskId": "next"})
    run = rota.post("/v1/projects/p/run").json["runId"]
    assert rota.get(f"/v1/projects/p/runs/{run}?waitMs=20000").json["state"] == "failed"
    add(rota, "p", {**ECHO, "taskId": "urgent", "priority": 0})
    rota.post("/v1/tasks/bad/retry")
    assert listed(rota, "p") == ["urgent", "bad", "next"]
    rota.post("/v1/tasks/bad/reprioritise", {"priority": 3})
    assert listed(rota, "p") == ["urgent", "next", "bad"]
    rota.restart()
    assert listed(rota, "p") == ["urgent", "next", "bad"]


def test_a_run_is_waited_for_and_names_its_tasks(rota: Rota) -> None:
    tasks = add(
        rota, "p", {"action": "sleep", "params": {"ms": 300}}, ECHO, {"action": "fail"}, ECHO
    )
    run = rota.post("/v1/projects/p/run", {"mode": "loop"}).json["runId"]
    path = f"/v1/projects/p/runs/{run}"
    assert rota.get(path).json["tasks"][:1] == tasks[:1]
    ended = rota.get(f"{path}?waitMs=20000").json
    assert (ended["stopReason"], ended["tasks"]) == ("task_failed", tasks[:3])
    assert rota.get(f"{path}?waitMs=20000").json == ended
    assert rota.get("/v1/projects/p/runs/run-nobody?waitMs=20000").status == 404
    assert rota.get(f"{path}?waitMs=x").status == 400


def test_a_run_names_tasks_of_its_callers_agents_alone(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("mine", "submit", "p")
    own, other = add(guarded.rota, "p", ECHO, {**ECHO, "agentId": "q"})
    run = guarded.rota.post("/v1/projects/p/run", {"mode": "loop"}).json["runId"]
    path = f"/v1/projects/p/runs/{run}?waitMs=20000"
    assert guarded.rota.get(path).json["tasks"] == [own, other]
    assert guarded.ask("mine", "GET", path).json["tasks"] == [own]
    assert guarded.ask("mine", "GET", f"/v1/projects/p/tasks/{own}").status == 200
    assert guarded.ask("mine", "GET", f"/v1/projects/p/tasks/{other}").status == 404
    assert guarded.ask("mine", "PUT", "/v1/projects/q").status == 403


def test_what_will_wait_when_its_turn_comes_is_said_as_it_is_added(rota: Rota) -> None:
    answer = rota.post("/v1/projects/p/tasks", [ECHO, {"action": "nobodys"}]).json
    assert ["waitReason" in row for row in answer["tasks"]] == [False, True]
    rota.post("/v1/agents/p/pause", {"reason": "night"})
    assert (
        rota.post("/v1/projects/p/tasks", ECHO).json["waitReason"] == "agent 'p' is paused: night"
    )
    assert "waitReason" not in rota.post("/projects/p/tasks", ECHO).json


def test_so_many_projects_have_a_label_of_their_own_and_the_rest_is_one(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROJECTS_NAMED_MAX", 1)
    for name in ("busy", "busy", "calm", "gone"):
        add(rota, name, ECHO)
        rota.post(f"/v1/projects/{name}/run")
        until(lambda name=name: not rota.get(f"/v1/projects/{name}").json["status"]["isRunning"])
    assert rota.request("DELETE", "/v1/projects/gone").status == 200
    lines = rota.get("/metrics").body.decode().splitlines()
    told = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines}
    own, rest = 'namespace="default",project="busy"', 'namespace="default",project="other"'
    assert told[f"rota_project_run_seconds_count{{{own}}}"] == "2.0"
    assert told[f"rota_project_run_seconds_count{{{rest}}}"] == "2.0"
    assert told[f'rota_project_runs_ended_total{{{rest},reason="single_done"}}'] == "2.0"
    assert not [line for line in lines if "project=" in line and ("calm" in line or "gone" in line)]


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


def test_a_token_neither_sees_nor_changes_what_is_another_agents(serve: Servers) -> None:
    guarded = Guarded(serve, {})
    guarded.make("submit", "submit", "ann")
    both = [{**ECHO, "agentId": "bob", "params": {"secret": 1}}, ECHO]
    answer = guarded.rota.post("/v1/projects/ann/tasks", both)
    bobs, anns = [row["taskId"] for row in answer.json["tasks"]]
    page = guarded.ask("submit", "GET", "/v1/projects/ann/tasks").json
    assert [row["taskId"] for row in page["tasks"]] == [anns]
    assert page["tasks"][0]["position"] == 1
    path = f"/v1/projects/ann/tasks/{bobs}"
    for method, body in (("PATCH", {"params": {"mine": 1}}), ("DELETE", None)):
        answer = guarded.ask("submit", method, path, body)
        assert (answer.status, answer.code) == (404, "task_not_found")
    assert guarded.ask("submit", "POST", "/v1/projects/ann/run", {"mode": "loop"}).status == 202
    path = "/v1/projects/ann/queue/status"
    until(lambda: not guarded.ask("submit", "GET", path).json["isRunning"])
    page = guarded.ask("submit", "GET", "/v1/projects/ann/tasks").json
    assert [row["taskId"] for row in page["done"]] == [anns]
    assert len(guarded.rota.get("/v1/projects/ann/tasks").json["done"]) == 2

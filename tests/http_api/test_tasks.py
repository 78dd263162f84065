"""/v1/tasks: submit, look, list by page, cancel, and a task's own history."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.http_server import Rota, Servers, Target, until, with_tab

from rota.http.answers import TaskPage, TaskView
from rota.http.route import reserved_words
from rota.http.routes import ROUTES
from rota.ids import DRAWN, PREFIXES


def native(rota: Rota, task_id: str) -> dict[str, Any]:
    answer = rota.get(f"/v1/tasks/{task_id}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def native_ended(rota: Rota, task_id: str) -> dict[str, Any]:
    states = ("succeeded", "failed", "cancelled", "rejected")
    until(lambda: native(rota, task_id)["state"] in states, what=f"{task_id} has ended")
    return native(rota, task_id)


def test_submission_is_accepted_with_exactly_four_keys(rota: Rota) -> None:
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", "params": {"n": 1}})
    assert answer.status == 202
    assert set(answer.json) == {"taskId", "state", "position", "createdAt"}
    assert re.fullmatch(r"tsk_[0-9A-Za-z]{8}", answer.json["taskId"])
    assert (answer.json["state"], answer.json["position"]) == ("ready", 1)


def test_a_fresh_server_does_something_at_once(rota: Rota) -> None:
    task = native_ended(rota, rota.submit_native(params={"n": 1}))
    assert (task["state"], task["result"]) == ("succeeded", {"echo": {"n": 1}})
    assert TaskView.model_validate(task, strict=True)


def test_a_view_leaves_out_what_is_absent(rota: Rota) -> None:
    task = native(rota, rota.submit_native(action="waits-for-a-worker"))
    assert set(task) == {
        "taskId", "agentId", "action", "state", "priority", "executor", "dialect", "attempt",
        "position", "createdAt", "waitReason",
    }  # fmt: skip
    assert (task["state"], task["executor"], task["dialect"]) == ("ready", "pull", "native")
    assert task["priority"] == 2


def test_a_failure_has_a_code_and_a_sentence(rota: Rota) -> None:
    task = native_ended(rota, rota.submit_native(action="fail", params={"message": "no luck"}))
    assert task["error"] == {"code": "asked_to_fail", "message": "no luck"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [("critical", 0), ("high", 1), ("normal", 2), ("medium", 2), ("low", 3), (0, 0), (17, 17)],
)
def test_priority_is_a_number_or_a_word(rota: Rota, given: Any, kept: int) -> None:
    assert native(rota, rota.submit_native(priority=given))["priority"] == kept


def test_an_attempt_that_takes_too_long_is_timed_out(rota: Rota) -> None:
    task_id = rota.submit_native(action="sleep", params={"ms": 60_000}, timeoutMs=50)
    task = native_ended(rota, task_id)
    assert (task["state"], task["error"]["code"]) == ("failed", "timeout")
    assert task["timeoutMs"] == 50


def test_any_task_can_be_seen_in_any_view(rota: Rota) -> None:
    one, other = rota.submit_native(), rota.submit(action="echo")
    rota.ended(one)
    rota.ended(other)
    for task_id in (one, other):
        assert native(rota, task_id)["state"] == "succeeded"
        assert rota.get(f"/v1/tasks/{task_id}?view=native").json == native(rota, task_id)
        assert rota.get(f"/v1/tasks/{task_id}?view=pinchtab").json == rota.task(task_id)
        assert rota.get(f"/tasks/{task_id}?view=native").json == native(rota, task_id)
    assert [t["state"] for t in rota.get("/v1/tasks?view=pinchtab").json["tasks"]] == ["done"] * 2
    answer = rota.get(f"/v1/tasks/{one}?view=martian")
    assert answer.status == 400
    assert "pinchtab" in answer.json["error"]


def test_an_unknown_task_is_not_found(rota: Rota) -> None:
    for method, path in (
        ("GET", "/v1/tasks/tsk_nobody00"),
        ("GET", "/v1/tasks/tsk_nobody00/events"),
        ("POST", "/v1/tasks/tsk_nobody00/cancel"),
    ):
        answer = rota.request(method, path)
        assert (answer.status, answer.code) == (404, "not_found")
        assert answer.json["requestId"] == answer.headers["x-request-id"]
        assert answer.json["retryable"] is False


def test_cancel_records_the_reason_and_happens_once(rota: Rota) -> None:
    task_id = rota.submit_native(action="waits")
    answer = rota.post(f"/v1/tasks/{task_id}/cancel", {"reason": "not needed"})
    assert (answer.status, answer.json) == (200, {"taskId": task_id, "state": "cancelled"})
    assert native(rota, task_id)["error"] == {"code": "cancelled", "message": "not needed"}
    again = rota.post(f"/v1/tasks/{task_id}/cancel")
    assert (again.status, again.code) == (409, "conflict")
    assert again.json["details"] == {"taskId": task_id, "state": "cancelled"}


def test_cancel_of_a_running_task_frees_its_slot(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    task_id = rota.submit(tabId="t", params={"hold": "for ever"})
    tab.wait_for(1)
    assert rota.post(f"/v1/tasks/{task_id}/cancel").status == 200
    until(lambda: tab.left, what="the executor sees rota leave")
    assert rota.ended(rota.submit(tabId="t"))["state"] == "done"


def test_a_tasks_history_is_its_own_events_in_order(rota: Rota) -> None:
    task_id = rota.submit_native()
    rota.submit_native()
    native_ended(rota, task_id)
    events = rota.get(f"/v1/tasks/{task_id}/events").json["events"]
    kinds = ["task_submitted", "task_assigned", "task_started", "task_succeeded"]
    assert [event["kind"] for event in events] == kinds
    assert {event["task"] for event in events} == {task_id}
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(seqs)
    assert events == rota.events(task=task_id)
    first = rota.get(f"/v1/tasks/{task_id}/events?limit=1").json["events"]
    assert first == events[:1]


# -- ids of one's own ----------------------------------------------------------------------------

RESERVED = ["cancel", "retry", "reprioritise", "batch", "stats"]
"""The last parts of paths beside `/tasks/{id}` and `/v1/tasks/{id}`."""


def test_the_reserved_ids_are_those_that_paths_end_in() -> None:
    words = reserved_words(ROUTES)
    assert words["tasks"] == set(RESERVED)
    assert words["projects"] == {"run", "stop", "force-stop"}


@pytest.mark.parametrize("own", [*RESERVED, *(f"{each}1" for each in PREFIXES)])
def test_an_id_that_is_rotas_cannot_be_chosen(rota: Rota, own: str) -> None:
    task = {"agentId": "ann", "action": "waits", "taskId": own}
    batch = {"tasks": [task]}
    for path, body, field in [
        ("/v1/tasks", task, "taskId"),
        ("/v1/batches", batch, "tasks.0.taskId"),
        ("/v1/workflows", batch, "tasks.0.taskId"),
        ("/tasks", {"instruction": "look", "taskId": own}, "taskId"),
        ("/automechanica/tasks", {"agent_name": "a", "task_type": "waits", "id": own}, "id"),
    ]:
        answer = rota.post(path, body)
        assert answer.status == 400, (path, answer)
        if path != "/tasks":
            assert answer.json["details"] == {"field": field}


def test_drawn_ids_begin_with_what_no_chosen_id_may(rota: Rota) -> None:
    item = {"agentId": "ann", "action": "echo"}
    rota.post("/v1/projects/p/tasks", item)
    drawn = [
        rota.submit_native("ann", "echo"),
        rota.post("/v1/batches", {"tasks": [item]}).json["batchId"],
        rota.post("/v1/workflows", {"tasks": [item]}).json["workflowId"],
        rota.post("/v1/projects/p/run").json["runId"],
    ]
    assert {each[:4] for each in drawn} == set(DRAWN)


@pytest.mark.parametrize("own", [*RESERVED, "run-1"])
def test_a_task_of_an_older_log_is_read_whatever_it_is_called(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    with monkeypatch.context() as older:
        older.setattr("rota.http.app.reserved_words", lambda _: {})
        older.setattr("rota.http.models.PREFIXES", ())
        rota.restart()
        rota.submit_native("ann", "waits", taskId=own)
    rota.restart()
    assert rota.get(f"/v1/tasks/{own}").json["taskId"] == own
    assert rota.request("HEAD", f"/v1/tasks/{own}").status == 200
    assert rota.get(f"/automechanica/tasks/{own}").json["id"] == own
    assert rota.post(f"/v1/tasks/{own}/cancel").status == 200
    assert rota.get(f"/v1/tasks/{own}").json["state"] == "cancelled"
    assert rota.get(f"/v1/tasks/{own}/events").json["events"][-1]["kind"] == "task_cancelled"


# -- pages ---------------------------------------------------------------------------------------


def pages(rota: Rota, query: str, limit: int) -> list[list[str]]:
    """Every page of a list, by its cursors."""
    found: list[list[str]] = []
    cursor = ""
    for _ in range(100):
        page = rota.get(f"/v1/tasks?limit={limit}{query}{cursor}").json
        assert TaskPage.model_validate(page, strict=True)
        assert page["count"] == len(page["tasks"])
        found.append([task["taskId"] for task in page["tasks"]])
        if "nextCursor" not in page:
            return found
        cursor = f"&cursor={page['nextCursor']}"
    pytest.fail("the pages do not end")


@pytest.mark.parametrize("limit", [1, 4, 10, 23, 24])
def test_pages_neither_repeat_nor_skip(rota: Rota, limit: int) -> None:
    made = [rota.submit_native(f"agent-{n % 3}", "waits") for n in range(23)]
    found = pages(rota, "", limit)
    assert [task_id for page in found for task_id in page] == made[::-1]
    assert all(len(page) == limit for page in found[:-1])
    some = [task_id for page in pages(rota, "&agentId=agent-1", limit) for task_id in page]
    assert some == made[1::3][::-1]


def test_pages_are_stable_while_tasks_are_added_and_end(rota: Rota) -> None:
    made = [rota.submit_native("ann", "waits") for _ in range(9)]
    first = rota.get("/v1/tasks?limit=3").json
    for task_id in made[:2]:
        rota.post(f"/v1/tasks/{task_id}/cancel")
    rota.submit_native("ann", "waits")
    rest = [first]
    while "nextCursor" in rest[-1]:
        rest.append(rota.get(f"/v1/tasks?limit=3&cursor={rest[-1]['nextCursor']}").json)
    assert [task["taskId"] for page in rest for task in page["tasks"]] == made[::-1]


def test_the_list_is_filtered(rota: Rota) -> None:
    done = rota.submit_native("ann", "echo")
    failed = rota.submit_native("bob", "fail")
    waits = rota.submit_native("ann", "waits")
    native_ended(rota, done)
    native_ended(rota, failed)

    def found(query: str) -> list[str]:
        return [task["taskId"] for task in rota.get(f"/v1/tasks?{query}").json["tasks"]]

    assert found("") == [waits, failed, done]
    assert found("agentId=ann") == [waits, done]
    assert found("state=succeeded,failed") == [failed, done]
    assert found("state=ready&agentId=bob") == []
    assert found("type=fail") == [failed]


@pytest.mark.parametrize(
    "query",
    [
        "state=queued", "state=,", "limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1.5",
        "cursor=x", "cursor=-1", "limit=99999999999999999999", "view=x&state=ready&limit=1x",
    ],
)  # fmt: skip
def test_a_bad_query_is_an_error_that_names_the_parameter(rota: Rota, query: str) -> None:
    answer = rota.get(f"/v1/tasks?{query}")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert answer.json["details"]["field"] in query


def test_full_queues_refuse_natively_too(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    rota.submit_native(action="waits")
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "waits"})
    assert (answer.status, answer.code, answer.json["retryable"]) == (429, "queue_full", True)
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json["details"]["maxQueue"] == 1

"""The PinchTab scheduler document, read from top to bottom, each rule over real HTTP.

The sections carry the document's headings. A browser (`tab`) and a receiver of webhooks (`hooks`)
stand on the loopback; a request to either says in its own params how it wants to be treated.
Tasks of a server without a tab executor wait for ever, which is what tests of queues need.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Rota, Servers, Target, running_process, until, with_tab

from rota.actors.log_rate import LogRate
from rota.http import submissions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TAB = "8f9c7d4e1234567890abcdef12345678"

SCHEDULER = {
    "enabled": True,
    "strategy": "fair-fifo",
    "maxQueueSize": 1000,
    "maxPerAgent": 100,
    "maxInflight": 20,
    "maxPerAgentInflight": 10,
    "resultTTLSec": 300,
    "workerCount": 4,
}
PRESET = {"presets": ["pinchtab"]}
STATES = ["queued", "assigned", "running", "done", "failed", "cancelled", "rejected"]


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server with the document's defaults and a browser."""
    return serve(PRESET | with_tab(tab))


@pytest.fixture
def idle(serve: Servers) -> Rota:
    """A server whose tasks wait: nothing is configured to run them."""
    return serve({"scheduler": {"maxQueueSize": 5, "maxPerAgent": 3}})


def moment(text: str) -> datetime:
    """Read a timestamp of the API."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text), text
    return datetime.fromisoformat(text)


def ahead(seconds: float) -> str:
    """A deadline so many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def stats(rota: Rota) -> dict[str, Any]:
    found: dict[str, Any] = rota.get("/scheduler/stats").json
    return found


def listed(rota: Rota, query: str = "") -> set[str]:
    return {task["taskId"] for task in rota.get(f"/tasks{query}").json["tasks"]}


# -- Enable The Scheduler ------------------------------------------------------------------------


def test_the_smallest_configuration_enables_the_task_routes(serve: Servers) -> None:
    rota = serve({"scheduler": {"enabled": True}})
    assert rota.get("/tasks").json == {"tasks": [], "count": 0}
    assert rota.get("/scheduler/stats").status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tasks"),
        ("POST", "/tasks/batch"),
        ("GET", "/tasks/tsk_a1b2c3d4"),
        ("POST", "/tasks/tsk_a1b2c3d4/cancel"),
        ("GET", "/scheduler/stats"),
    ],
)
def test_a_disabled_scheduler_has_no_task_routes(serve: Servers, method: str, path: str) -> None:
    rota = serve({"scheduler": {"enabled": False}})
    answer = rota.request(method, path, {"agentId": "a", "action": "b"})
    assert answer.status == 404
    if path in ("/tasks", "/tasks/batch"):
        assert answer.code == "scheduler_disabled"
        assert "scheduler.enabled" in answer.json["error"]
    assert rota.get("/v1/tasks").status == 200


def test_a_disabled_scheduler_leaves_browseros_its_routes(serve: Servers) -> None:
    rota = serve({"scheduler": {"enabled": False}})
    own = rota.post("/tasks", {"instruction": "look"})
    batch = rota.post("/tasks/batch", {"tasks": [{"instruction": "look"}]})
    assert (own.status, batch.status) == (201, 201)
    task_id, batch_id = own.json["taskId"], batch.json["batchId"]
    other = rota.submit_native(action="waits")
    assert rota.get("/tasks").json["count"] == 2
    assert rota.get("/tasks?state=pending").json["count"] == 2
    assert rota.get("/tasks/stats").json["total"] == 2
    assert rota.get(f"/tasks/{task_id}").json["state"] == "pending"
    assert rota.get(f"/tasks/{other}").code == "scheduler_disabled"
    assert rota.post(f"/tasks/{other}/cancel").code == "scheduler_disabled"
    assert rota.get(f"/tasks/batch/{batch_id}").status == 200
    assert rota.request("DELETE", f"/tasks/{task_id}").status == 200
    assert rota.request("DELETE", f"/tasks/batch/{batch_id}").status == 200


# -- Scheduler Config ----------------------------------------------------------------------------


def test_a_json_file_with_exactly_the_documents_keys_is_read(tmp_path: Path) -> None:
    other = {"maxQueueSize": 11, "maxPerAgent": 12, "maxInflight": 13, "maxPerAgentInflight": 14}
    other |= {"resultTTLSec": 15, "workerCount": 16, "strategy": "fair-fifo", "enabled": True}
    assert set(other) == set(SCHEDULER)
    with running_process(tmp_path, {"scheduler": other}) as rota:
        assert rota.get("/scheduler/stats").json["config"] == {
            "strategy": "fair-fifo",
            "maxQueueSize": 11,
            "maxPerAgent": 12,
            "maxInflight": 13,
            "maxPerAgentFlight": 14,
            "workerCount": 16,
            "resultTTL": "15s",
        }
        assert rota.get("/v1/config").json["scheduler"].items() >= other.items()


def test_the_presets_numbers_are_those_of_the_table(serve: Servers) -> None:
    rota = serve(PRESET)
    assert rota.get("/v1/config").json["scheduler"].items() >= SCHEDULER.items()


def test_every_field_of_the_table_can_be_left_out(serve: Servers) -> None:
    for name in SCHEDULER:
        kept = {key: value for key, value in SCHEDULER.items() if key != name}
        found = serve(PRESET | {"scheduler": kept}).get("/v1/config").json["scheduler"]
        assert found.items() >= SCHEDULER.items()


def test_max_inflight_bounds_what_executes_at_once(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, maxInflight=2, workerCount=50))
    for n in range(5):
        rota.submit(f"agent-{n}", tabId=TAB, params={"hold": "all"})
    tab.wait_for(2)
    assert stats(rota)["queue"] | {"agentCounts": None} == {
        "totalQueued": 3,
        "totalInflight": 2,
        "agentCounts": None,
    }
    tab.release("all")
    assert len(tab.wait_for(5)) == 5


def test_max_per_agent_inflight_bounds_one_agent_and_not_the_others(
    serve: Servers, tab: Target
) -> None:
    rota = serve(with_tab(tab, maxPerAgentInflight=2, workerCount=50))
    for n in range(4):
        rota.submit("ann", tabId=TAB, params={"hold": "all", "tag": f"ann-{n}"})
    rota.submit("bob", tabId=TAB, params={"hold": "all", "tag": "bob"})
    tab.wait_for(3)
    assert sorted(tab.tags()) == ["ann-0", "ann-1", "bob"]
    assert stats(rota)["queue"]["agentCounts"] == {"ann": 2}
    tab.release("all")
    tab.wait_for(5)


def test_worker_count_bounds_the_calls_to_the_browser(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    for n in range(3):
        rota.submit(f"agent-{n}", tabId=TAB, params={"hold": f"{n}", "tag": n})
    for n in range(3):
        tab.wait_for(n + 1)
        assert tab.tags() == list(range(n + 1))
        tab.release(f"{n}")


# -- Task Object ---------------------------------------------------------------------------------


def test_a_task_has_the_fields_of_the_table(rota: Rota, hooks: Target) -> None:
    given = {
        "agentId": "agent-crawl-01",
        "action": "click",
        "tabId": TAB,
        "ref": "e14",
        "params": {"button": "left"},
        "priority": 5,
        "deadline": ahead(30),
        "callbackUrl": f"{hooks.url}/done",
    }
    task = rota.ended(rota.post("/tasks", given).json["taskId"])
    named = {"taskId", "state", "createdAt", "startedAt", "completedAt", "latencyMs", "result"}
    assert set(task) == set(given) | named | {"position"}
    assert {name: task[name] for name in given if name != "deadline"} == {
        name: value for name, value in given.items() if name != "deadline"
    }
    assert moment(task["deadline"]) == datetime.fromisoformat(str(given["deadline"]))
    assert moment(task["createdAt"]) <= moment(task["startedAt"]) <= moment(task["completedAt"])
    elapsed = moment(task["completedAt"]) - moment(task["startedAt"])
    assert task["latencyMs"] == elapsed // timedelta(milliseconds=1)
    assert task["position"] == 1


def test_a_failed_task_has_an_error_and_no_result(rota: Rota) -> None:
    task = rota.ended(rota.submit(tabId=TAB, params={"status": 500, "text": "no such element"}))
    assert task["state"] == "failed"
    assert "no such element" in task["error"]
    assert "result" not in task


def test_a_waiting_task_shows_no_times_that_have_not_come(idle: Rota) -> None:
    task = idle.task(idle.submit(tabId=TAB))
    assert set(task) == {
        "taskId", "agentId", "action", "priority", "state", "position", "deadline", "createdAt",
        "tabId", "waitReason",
    }  # fmt: skip


def test_task_ids_are_tsk_and_eight_characters(idle: Rota) -> None:
    found = {idle.submit() for _ in range(3)}
    assert len(found) == 3
    assert all(re.fullmatch(r"tsk_[0-9A-Za-z]{8}", task_id) for task_id in found)


# -- Submit A Task -------------------------------------------------------------------------------


def test_the_example_is_accepted_and_answered_with_exactly_its_keys(rota: Rota) -> None:
    before = datetime.now(UTC)
    answer = rota.post(
        "/tasks",
        {
            "agentId": "agent-crawl-01",
            "action": "click",
            "tabId": TAB,
            "ref": "e14",
            "priority": 5,
            "deadline": ahead(300),
        },
    )
    assert answer.status == 202
    assert answer.headers["content-type"].startswith("application/json")
    assert set(answer.json) == {"taskId", "state", "position", "createdAt"}
    assert answer.json["state"] == "queued"
    assert answer.json["position"] == 1
    created = moment(answer.json["createdAt"])
    assert before - timedelta(seconds=1) <= created <= datetime.now(UTC) + timedelta(seconds=1)


def test_position_is_the_place_in_the_queue_at_submission(idle: Rota) -> None:
    def place(agent: str) -> int:
        answer = idle.post("/tasks", {"agentId": agent, "action": "click", "tabId": TAB})
        return int(answer.json["position"])

    assert [place("ann"), place("ann"), place("bob")] == [1, 2, 3]


@pytest.mark.parametrize("missing", ["agentId", "action"])
def test_required_fields_are_required(rota: Rota, missing: str) -> None:
    body = {"agentId": "ann", "action": "click", "tabId": TAB}
    del body[missing]
    answer = rota.post("/tasks", body)
    assert answer.status == 400
    assert missing in answer.json["error"]
    assert answer.json["code"]
    for blank in ("", "   "):
        assert rota.post("/tasks", {**body, missing: blank}).status == 400
    assert stats(rota)["metrics"]["tasksSubmitted"] == 0


def test_only_agent_and_action_are_enforced(rota: Rota) -> None:
    assert rota.post("/tasks", {"agentId": "ann", "action": "click"}).status == 202
    unknown = {"agentId": "ann", "action": "click", "colour": "red"}
    assert rota.post("/tasks", unknown).status == 202


def test_missing_tab_fails_later_in_the_documents_words(rota: Rota, tab: Target) -> None:
    task = rota.ended(rota.submit())
    assert task["state"] == "failed"
    assert task["error"] == "tabId is required for task execution"
    assert tab.requests == []


@pytest.mark.parametrize("fields", [{}, {"tabId": ""}, {"tabId": None}])
@pytest.mark.parametrize("action", ["click", "chat"])
def test_missing_tab_fails_so_too_where_no_tab_executor_is_configured(
    serve: Servers, action: str, fields: dict[str, Any]
) -> None:
    chat = {"executors": {"chat": {"kind": "chat", "url": "http://127.0.0.1:9/chat"}}}
    rota = serve(chat)
    task = rota.ended(rota.submit(action=action, **fields))
    assert (task["state"], task["error"]) == ("failed", "tabId is required for task execution")


def test_a_fresh_server_runs_its_builtin_actions_without_a_tab(serve: Servers) -> None:
    rota = serve()
    assert rota.ended(rota.submit(action="echo", params={"a": 1}))["state"] == "done"


def test_a_tab_without_an_executor_waits_for_a_worker_and_says_so(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "_WAIT_LINES", LogRate(1, 60.0))
    rota = serve()
    task_id = rota.submit(action="click", tabId=TAB)
    for path in (f"/tasks/{task_id}", f"/v1/tasks/{task_id}"):
        found = rota.get(path).json
        assert found["waitReason"] == (
            "no executor is configured for it: it waits for a worker to take it"
        )
    rota.submit(action="click", tabId=TAB)
    (said,) = [line for line in rota.log.lines if "waits for a worker" in line]
    assert said.endswith(
        "(action 'click') waits for a worker: no executor of kind 'tab' is configured"
    )
    assert "waitReason" not in rota.ended(rota.submit(action="echo"))


@pytest.mark.parametrize("action", ["echo", "sleep", "fail", "chat", "click"])
def test_whatever_names_a_tab_goes_to_the_tab(serve: Servers, tab: Target, action: str) -> None:
    config = with_tab(tab)
    config["executors"]["talk"] = {"kind": "chat", "url": "http://127.0.0.1:9/chat"}
    rota = serve(config)
    task = rota.ended(rota.submit(action=action, tabId=TAB, params={"tag": "x"}))
    assert (task["state"], task["result"]) == ("done", {"success": True})
    assert [request.body["kind"] for request in tab.requests] == [action]
    assert rota.get(f"/v1/tasks/{task['taskId']}").json["executor"] == "tab"


def test_a_configured_type_goes_before_the_tab(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab) | {"types": {"echo": {"executor": "builtin"}}})
    task = rota.ended(rota.submit(action="echo", tabId=TAB, params={"tag": "x"}))
    assert task["result"] == {"echo": {"tag": "x"}}
    assert not tab.requests


def test_started_at_stays_the_first_over_a_restart(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab))
    task_id = rota.submit(tabId=TAB, deadline=ahead(600), params={"hold": "it"})
    tab.wait_for(1)
    first = until(lambda: rota.task(task_id).get("startedAt"), what="it has started")
    rota.restart()
    tab.wait_for(2)
    until(lambda: rota.task(task_id)["state"] == "running", what="it runs again")
    assert rota.task(task_id)["startedAt"] == first
    native = rota.get(f"/v1/tasks/{task_id}").json
    assert moment(native["startedAt"]) > moment(first)
    tab.release("it")
    task = rota.ended(task_id)
    assert task["startedAt"] == first
    took = moment(task["completedAt"]) - moment(first)
    assert task["latencyMs"] == took // timedelta(milliseconds=1)


def test_priority_is_zero_unless_given(rota: Rota) -> None:
    assert rota.task(rota.submit(tabId=TAB))["priority"] == 0


def test_deadline_is_a_minute_away_unless_given(rota: Rota) -> None:
    task = rota.task(rota.submit(tabId=TAB))
    left = moment(task["deadline"]) - moment(task["createdAt"])
    assert abs(left.total_seconds() - 60) < 1


@pytest.mark.parametrize(
    "deadline", ["2020-03-08T12:05:00Z", "2020-03-08T12:05:00.123+01:00", "1970-01-01T00:00:00Z"]
)
def test_past_deadlines_are_rejected_at_submission(rota: Rota, deadline: str) -> None:
    answer = rota.post("/tasks", {"agentId": "ann", "action": "click", "deadline": deadline})
    assert answer.status == 400
    assert "deadline" in answer.json["error"]
    assert rota.get("/tasks").json["count"] == 0


@pytest.mark.parametrize("deadline", ["tomorrow", "2026-03-08", "1772971500", "", 1772971500])
def test_deadlines_that_are_not_rfc3339_are_rejected(rota: Rota, deadline: Any) -> None:
    answer = rota.post("/tasks", {"agentId": "ann", "action": "click", "deadline": deadline})
    assert answer.status == 400
    assert "deadline" in answer.json["error"]


def test_a_deadline_may_carry_any_offset(rota: Rota) -> None:
    there = datetime.now(UTC) + timedelta(seconds=30, hours=5)
    text = there.strftime("%Y-%m-%dT%H:%M:%S+05:00")
    task = rota.task(rota.submit(tabId=TAB, deadline=text))
    assert moment(task["deadline"]) == datetime.fromisoformat(text)


# -- Queue Full Response -------------------------------------------------------------------------


def test_a_full_global_queue_is_answered_as_in_the_example(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 2, "maxPerAgent": 100}})
    rota.submit("ann", tabId=TAB)
    rota.submit("bob", tabId=TAB)
    answer = rota.post("/tasks", {"agentId": "agent-crawl-01", "action": "click", "tabId": TAB})
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json == {
        "code": "queue_full",
        "error": "rejected: global queue full",
        "retryable": True,
        "details": {
            "agentId": "agent-crawl-01",
            "queued": 2,
            "maxQueue": 2,
            "maxPerAgent": 100,
        },
    }


def test_a_full_agent_queue_is_answered_likewise(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 50, "maxPerAgent": 2}})
    rota.submit("ann", tabId=TAB)
    rota.submit("ann", tabId=TAB)
    answer = rota.post("/tasks", {"agentId": "ann", "action": "click", "tabId": TAB})
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json == {
        "code": "queue_full",
        "error": "rejected: agent queue full",
        "retryable": True,
        "details": {"agentId": "ann", "queued": 2, "maxQueue": 50, "maxPerAgent": 2},
    }
    assert rota.post("/tasks", {"agentId": "bob", "action": "click", "tabId": TAB}).status == 202


def test_running_tasks_do_not_count_toward_the_queue(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, maxQueueSize=1, workerCount=1))
    rota.submit(tabId=TAB, params={"hold": "all"})
    tab.wait_for(1)
    rota.submit(tabId=TAB)
    assert rota.post("/tasks", {"agentId": "ann", "action": "click"}).status == 429
    tab.release("all")


def test_a_place_in_the_queue_that_is_given_back_can_be_taken(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    first = rota.submit(tabId=TAB)
    assert rota.post("/tasks", {"agentId": "ann", "action": "click", "tabId": TAB}).status == 429
    rota.post(f"/tasks/{first}/cancel")
    assert rota.post("/tasks", {"agentId": "ann", "action": "click", "tabId": TAB}).status == 202


# -- List Tasks ----------------------------------------------------------------------------------


def test_the_list_has_queued_running_and_ended_tasks(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    done = rota.submit(tabId=TAB)
    assert rota.ended(done)["state"] == "done"
    running = rota.submit(tabId=TAB, params={"hold": "all"})
    tab.wait_for(2)
    queued = rota.submit(tabId=TAB)
    page = rota.get("/tasks").json
    assert set(page) == {"tasks", "count"}
    assert page["count"] == 3
    assert {task["taskId"]: task["state"] for task in page["tasks"]} == {
        done: "done",
        running: "running",
        queued: "queued",
    }
    (shown,) = [task for task in page["tasks"] if task["taskId"] == done]
    assert {"taskId", "state", "agentId", "action", "latencyMs"} <= set(shown)
    tab.release("all")


@pytest.fixture
def several(rota: Rota) -> tuple[Rota, dict[str, str]]:
    """A server with tasks in several states."""
    names = {
        "ann-done": rota.submit("ann", tabId=TAB),
        "ann-failed": rota.submit("ann"),
        "bob-done": rota.submit("bob", tabId=TAB),
    }
    for task_id in names.values():
        rota.ended(task_id)
    return rota, names


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?agentId=ann", {"ann-done", "ann-failed"}),
        ("?agentId=nobody", set()),
        ("?state=done", {"ann-done", "bob-done"}),
        ("?state=done,failed", {"ann-done", "ann-failed", "bob-done"}),
        ("?agentId=ann&state=done,failed", {"ann-done", "ann-failed"}),
        ("?agentId=bob&state=failed", set()),
        ("?state=queued,assigned,running,cancelled,rejected", set()),
    ],
)
def test_the_list_is_filtered_by_agent_and_state(
    several: tuple[Rota, dict[str, str]], query: str, expected: set[str]
) -> None:
    rota, names = several
    assert listed(rota, query) == {names[name] for name in expected}
    assert rota.get(f"/tasks{query}").json["count"] == len(expected)


@pytest.mark.parametrize("state", ["finished", "done,finished", "DONE", "succeeded", "ready"])
def test_an_unknown_state_is_an_error(rota: Rota, state: str) -> None:
    answer = rota.get(f"/tasks?state={state}")
    assert answer.status == 400
    assert "state" in answer.json["error"]


@pytest.mark.parametrize("state", STATES)
def test_every_state_of_the_document_is_a_filter(rota: Rota, state: str) -> None:
    assert rota.get(f"/tasks?state={state}").status == 200


# -- Get One Task --------------------------------------------------------------------------------


def test_one_task_is_shown_as_in_the_example(rota: Rota) -> None:
    task_id = rota.submit("agent-crawl-01", tabId=TAB, ref="e14", priority=5)
    task = rota.ended(task_id)
    example = {
        "taskId", "agentId", "action", "tabId", "ref", "priority", "state", "createdAt",
        "startedAt", "completedAt", "latencyMs", "result",
    }  # fmt: skip
    assert set(task) == example | {"deadline", "position"}
    assert task["taskId"] == task_id
    assert (task["agentId"], task["action"], task["tabId"]) == ("agent-crawl-01", "click", TAB)
    assert (task["ref"], task["priority"], task["state"]) == ("e14", 5, "done")
    assert task["result"] == {"success": True}
    assert isinstance(task["latencyMs"], int)


def test_an_unknown_task_is_not_found_in_exactly_these_words(rota: Rota) -> None:
    answer = rota.get("/tasks/tsk_a1b2c3d4")
    assert answer.status == 404
    assert answer.json == {"code": "not_found", "error": "task not found"}


# -- Cancel A Task -------------------------------------------------------------------------------


def test_a_queued_task_is_removed_from_the_queue(idle: Rota) -> None:
    task_id = idle.submit(tabId=TAB)
    answer = idle.post(f"/tasks/{task_id}/cancel")
    assert answer.status == 200
    assert answer.json == {"status": "cancelled", "taskId": task_id}
    assert idle.task(task_id)["state"] == "cancelled"
    assert "startedAt" not in idle.task(task_id)
    assert stats(idle)["queue"] == {"totalQueued": 0, "totalInflight": 0, "agentCounts": {}}


def test_a_running_task_has_its_request_aborted(rota: Rota, tab: Target) -> None:
    task_id = rota.submit(tabId=TAB, params={"hold": "for ever"})
    tab.wait_for(1)
    answer = rota.post(f"/tasks/{task_id}/cancel")
    assert (answer.status, answer.json["status"]) == (200, "cancelled")
    until(lambda: tab.left, what="the browser sees rota leave")
    task = rota.task(task_id)
    assert task["state"] == "cancelled"
    assert "result" not in task
    assert stats(rota)["queue"]["totalInflight"] == 0


def test_cancel_wins_over_a_result_that_comes_later(rota: Rota, tab: Target) -> None:
    task_id = rota.submit(tabId=TAB, params={"hold": "late"})
    tab.wait_for(1)
    rota.post(f"/tasks/{task_id}/cancel")
    tab.release("late")
    rota.ended(rota.submit(tabId=TAB))
    assert rota.task(task_id)["state"] == "cancelled"


def test_a_cancelled_task_is_never_executed(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    rota.submit(tabId=TAB, params={"hold": "all", "tag": 1})
    tab.wait_for(1)
    second = rota.submit(tabId=TAB, params={"tag": 2})
    last = rota.submit(tabId=TAB, params={"tag": 3})
    rota.post(f"/tasks/{second}/cancel")
    tab.release("all")
    rota.ended(last)
    assert tab.tags() == [1, 3]


@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "rejected"])
def test_ended_tasks_cannot_be_cancelled(serve: Servers, tab: Target, state: str) -> None:
    rota = serve(with_tab(tab, maxQueueSize=1, workerCount=1))
    if state == "done":
        task_id = rota.submit(tabId=TAB)
    elif state == "failed":
        task_id = rota.submit()
    else:
        rota.submit(tabId=TAB, params={"hold": "all"})
        tab.wait_for(1)
        task_id = rota.submit(tabId=TAB)
        if state == "cancelled":
            rota.post(f"/tasks/{task_id}/cancel")
        else:
            assert rota.post("/tasks", {"agentId": "ann", "action": "click"}).status == 429
            (task_id,) = listed(rota, "?state=rejected")
    assert rota.ended(task_id)["state"] == state
    answer = rota.post(f"/tasks/{task_id}/cancel")
    assert answer.status == 409
    assert set(answer.json) <= {"code", "error", "details"}
    assert rota.task(task_id)["state"] == state
    tab.release("all")


def test_a_refused_cancel_speaks_of_the_state_in_the_documents_words(rota: Rota) -> None:
    task_id = rota.submit(tabId=TAB)
    rota.ended(task_id)
    answer = rota.post(f"/tasks/{task_id}/cancel")
    assert "succeeded" not in answer.body.decode()
    assert "done" in answer.json["error"]


def test_of_many_cancels_at_once_one_succeeds(rota: Rota, tab: Target) -> None:
    task_id = rota.submit(tabId=TAB, params={"hold": "for ever"})
    tab.wait_for(1)
    statuses: list[int] = []

    def cancel() -> None:
        statuses.append(rota.post(f"/tasks/{task_id}/cancel").status)

    threads = [threading.Thread(target=cancel) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [409] * 9
    assert rota.kinds(task_id).count("task_cancelled") == 1


def test_an_unknown_task_cannot_be_cancelled(rota: Rota) -> None:
    answer = rota.post("/tasks/tsk_a1b2c3d4/cancel")
    assert answer.status == 404
    assert answer.json == {"code": "not_found", "error": "task not found"}


# -- Task States ---------------------------------------------------------------------------------


def test_a_task_goes_through_the_documents_states(rota: Rota, tab: Target) -> None:
    task_id = rota.submit(tabId=TAB, params={"hold": "all"})
    tab.wait_for(1)
    assert rota.when(task_id, "running")["startedAt"]
    tab.release("all")
    assert rota.ended(task_id)["state"] == "done"
    kinds = rota.kinds(task_id)
    assert kinds == ["task_submitted", "task_assigned", "task_started", "task_succeeded"]


def test_a_rejected_task_is_listed_and_final(idle: Rota) -> None:
    for _ in range(3):
        idle.submit("ann", tabId=TAB)
    idle.post("/tasks", {"agentId": "ann", "action": "click", "tabId": TAB})
    (task,) = idle.get("/tasks?state=rejected").json["tasks"]
    assert (task["agentId"], task["error"]) == ("ann", "rejected: agent queue full")
    assert task["completedAt"] == task["createdAt"]
    assert "startedAt" not in task


# -- How Tasks Execute ---------------------------------------------------------------------------


def test_the_type_example_becomes_a_tab_action(rota: Rota, tab: Target) -> None:
    task_id = rota.submit("my-agent", "type", tabId=TAB, ref="e12", params={"text": "Alan Turing"})
    (request,) = tab.wait_for(1)
    assert request.path == f"/tabs/{TAB}/action"
    assert request.body == {"kind": "type", "ref": "e12", "text": "Alan Turing"}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-rota-task-id"] == task_id
    assert request.headers["x-rota-agent-id"] == "my-agent"
    assert request.headers["x-rota-attempt"] == "1"


def test_ref_is_forwarded_only_when_present(rota: Rota, tab: Target) -> None:
    rota.submit(action="scroll", tabId=TAB, params={"scrollY": 400, "deep": {"a": [1, None]}})
    (request,) = tab.wait_for(1)
    assert request.body == {"kind": "scroll", "scrollY": 400, "deep": {"a": [1, None]}}


def test_params_cannot_override_kind_tab_or_the_given_ref(rota: Rota, tab: Target) -> None:
    params = {"kind": "evil", "tabId": "other", "ref": "other", "x": 1}
    rota.submit(action="click", tabId=TAB, ref="e1", params=params)
    (request,) = tab.wait_for(1)
    assert request.path == f"/tabs/{TAB}/action"
    assert request.body == {"kind": "click", "ref": "e1", "x": 1}


@pytest.mark.parametrize("tab_id", ["a/b", "a b", "é", "%2e%2e", "x?y#z", "..", "."])
def test_a_tab_id_cannot_lead_to_another_endpoint(rota: Rota, tab: Target, tab_id: str) -> None:
    task = rota.ended(rota.submit(tabId=tab_id))
    paths = [request.path for request in tab.requests]
    assert all(re.fullmatch(r"/tabs/[^/?#]+/action", path) for path in paths), paths
    assert task["state"] == ("done" if paths else "failed")


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500, 503])
def test_an_answer_of_400_or_more_fails_with_status_and_body(rota: Rota, status: int) -> None:
    params = {"status": status, "json": {"message": "element e14 is gone"}}
    task = rota.ended(rota.submit(tabId=TAB, params=params))
    assert task["state"] == "failed"
    assert str(status) in task["error"]
    assert "element e14 is gone" in task["error"]


@pytest.mark.parametrize(
    "result", [{"success": True}, [1, 2, 3], "done", 7, {"deep": {"er": [None, 1.5]}}]
)
def test_the_executors_answer_is_the_result(rota: Rota, result: Any) -> None:
    task = rota.ended(rota.submit(tabId=TAB, params={"json": result}))
    assert (task["state"], task["result"]) == ("done", result)


def test_a_browser_that_cannot_be_reached_fails_the_task(serve: Servers, tab: Target) -> None:
    config = with_tab(tab)
    config["executors"]["tab"]["url"] = "http://127.0.0.1:1"
    rota = serve(config)
    task = rota.ended(rota.submit(tabId=TAB))
    assert task["state"] == "failed"
    assert task["error"]


# -- Fairness, Deadlines, And Retention ----------------------------------------------------------


@pytest.fixture
def one_by_one(serve: Servers, tab: Target) -> Iterator[Rota]:
    """A server with one worker, which is busy until `first` is released."""
    rota = serve(with_tab(tab, workerCount=1))
    rota.submit("busy", tabId=TAB, params={"hold": "first", "tag": "busy"})
    tab.wait_for(1)
    yield rota
    tab.release("first")


def order(rota: Rota, tab: Target, tasks: list[tuple[str, dict[str, Any], str]]) -> list[str]:
    """Submit tasks, let them run one by one, and tell in which order they did."""
    for agent, fields, tag in tasks:
        rota.submit(agent, tabId=TAB, params={"tag": tag}, **fields)
    tab.release("first")
    tab.wait_for(1 + len(tasks))
    return tab.tags()[1:]


def test_lower_priority_values_run_first(one_by_one: Rota, tab: Target) -> None:
    tasks = [("ann", {"priority": p}, f"p{p}") for p in (5, 1, 9, 0, 3)]
    assert order(one_by_one, tab, tasks) == ["p0", "p1", "p3", "p5", "p9"]


def test_equal_priorities_run_in_order_of_submission(one_by_one: Rota, tab: Target) -> None:
    tasks = [("ann", {"priority": 4}, f"n{n}") for n in range(6)]
    assert order(one_by_one, tab, tasks) == ["n0", "n1", "n2", "n3", "n4", "n5"]


def test_priority_counts_within_an_agent_only(one_by_one: Rota, tab: Target) -> None:
    tasks: list[tuple[str, dict[str, Any], str]] = [
        ("ann", {"priority": 9}, "ann"),
        ("bob", {"priority": 0}, "bob"),
    ]
    assert order(one_by_one, tab, tasks) == ["ann", "bob"]


def test_equals_take_turns_and_the_one_that_waited_longest_goes_first(
    one_by_one: Rota, tab: Target
) -> None:
    tasks: list[tuple[str, dict[str, Any], str]] = [("ann", {}, f"a{n}") for n in range(3)]
    tasks += [("bob", {}, f"b{n}") for n in range(3)] + [("cyd", {}, "c0")]
    assert order(one_by_one, tab, tasks) == ["a0", "b0", "c0", "a1", "b1", "a2", "b2"]


def test_the_agent_with_the_fewest_in_flight_is_preferred(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=3))
    for n in range(2):
        rota.submit("ann", tabId=TAB, params={"hold": "ann", "tag": f"ann-{n}"})
    rota.submit("bob", tabId=TAB, params={"hold": "bob", "tag": "bob-0"})
    tab.wait_for(3)
    rota.submit("ann", tabId=TAB, params={"tag": "ann-2"})
    rota.submit("cyd", tabId=TAB, params={"tag": "cyd-0", "hold": "cyd"})
    tab.release("bob")
    tab.wait_for(4)
    assert tab.tags()[3] == "cyd-0"
    tab.release("cyd")
    tab.release("ann")
    tab.wait_for(5)


def test_one_busy_agent_does_not_starve_the_others(one_by_one: Rota, tab: Target) -> None:
    tasks: list[tuple[str, dict[str, Any], str]] = [("ann", {}, f"a{n}") for n in range(10)]
    tasks.append(("bob", {}, "bob"))
    assert order(one_by_one, tab, tasks).index("bob") == 1


def test_a_queued_task_fails_at_its_deadline_in_exactly_these_words(
    one_by_one: Rota, tab: Target
) -> None:
    rota = one_by_one
    task_id = rota.submit(tabId=TAB, deadline=ahead(0.4), params={"tag": "late"})
    assert rota.task(task_id)["state"] == "queued"
    task = rota.ended(task_id)
    assert task["state"] == "failed"
    assert task["error"] == "deadline exceeded while queued"
    assert "startedAt" not in task
    late = moment(task["completedAt"]) - moment(task["deadline"])
    assert timedelta() <= late < timedelta(seconds=0.5)
    counts = stats(rota)
    assert counts["metrics"]["tasksExpired"] == 1
    assert counts["metrics"]["tasksFailed"] == 1
    assert counts["queue"]["totalQueued"] == 0
    tab.release("first")
    rota.ended(rota.submit(tabId=TAB, params={"tag": "after"}))
    assert tab.tags() == ["busy", "after"]


def test_a_running_task_is_stopped_at_its_deadline(rota: Rota, tab: Target) -> None:
    task_id = rota.submit(tabId=TAB, deadline=ahead(0.4), params={"hold": "for ever"})
    task = rota.ended(task_id)
    assert task["state"] == "failed"
    assert "deadline exceeded" in task["error"]
    assert task["error"] != "deadline exceeded while queued"
    until(lambda: tab.left, what="the request is aborted")
    counts = stats(rota)["metrics"]
    assert (counts["tasksFailed"], counts["tasksExpired"]) == (1, 0)


def test_ended_tasks_leave_the_list_but_not_the_log(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, resultTTLSec=1))
    task_id = rota.submit(tabId=TAB)
    task = rota.ended(task_id)
    assert listed(rota) == {task_id}
    until(lambda: not listed(rota), what="the task leaves the list")
    assert rota.get("/tasks").json == {"tasks": [], "count": 0}
    assert datetime.now(UTC) - moment(task["completedAt"]) >= timedelta(seconds=1)
    assert rota.task(task_id) == task
    rota.ended(rota.submit(tabId=TAB))
    assert rota.task(task_id) == task
    assert rota.post(f"/tasks/{task_id}/cancel").status == 409


def test_waiting_tasks_stay_however_long_the_retention(serve: Servers) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    gone, kept = rota.submit(tabId=TAB), rota.submit(tabId=TAB)
    rota.post(f"/tasks/{gone}/cancel")
    until(lambda: listed(rota) == {kept}, what="only the waiting one is listed")


# -- Phase 2: Scheduler Stats --------------------------------------------------------------------


COUNTERS = {
    "tasksSubmitted",
    "tasksCompleted",
    "tasksFailed",
    "tasksCancelled",
    "tasksRejected",
    "tasksExpired",
    "dispatchCount",
}


def test_stats_have_exactly_the_documents_fields_and_types(rota: Rota) -> None:
    rota.ended(rota.submit("agent-crawl-01", tabId=TAB))
    found = stats(rota)
    assert set(found) == {"queue", "metrics", "config"}
    assert set(found["queue"]) == {"totalQueued", "totalInflight", "agentCounts"}
    assert set(found["metrics"]) == COUNTERS | {"avgDispatchLatencyMs", "agents"}
    for name in COUNTERS:
        assert type(found["metrics"][name]) is int, name
    assert type(found["metrics"]["avgDispatchLatencyMs"]) is float
    assert found["metrics"]["agents"] == {
        "agent-crawl-01": {
            "submitted": 1,
            "completed": 1,
            "failed": 0,
            "cancelled": 0,
            "rejected": 0,
        }
    }
    assert found["config"] == {
        "strategy": "fair-fifo",
        "maxQueueSize": 1000,
        "maxPerAgent": 100,
        "maxInflight": 20,
        "maxPerAgentFlight": 10,
        "workerCount": 4,
        "resultTTL": "5m0s",
    }


def test_a_fresh_server_counts_from_zero(rota: Rota) -> None:
    found = stats(rota)
    assert found["queue"] == {"totalQueued": 0, "totalInflight": 0, "agentCounts": {}}
    assert found["metrics"] == {
        **dict.fromkeys(COUNTERS, 0),
        "avgDispatchLatencyMs": 0.0,
        "agents": {},
    }
    assert type(found["metrics"]["avgDispatchLatencyMs"]) is float


def test_queue_counts_are_of_the_moment(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=2))
    for agent, count in (("ann", 4), ("bob", 3)):
        for _ in range(count):
            rota.submit(agent, tabId=TAB, params={"hold": "all"})
    tab.wait_for(2)
    queue = stats(rota)["queue"]
    assert (queue["totalQueued"], queue["totalInflight"]) == (5, 2)
    assert sum(queue["agentCounts"].values()) == 5
    tab.release("all")
    tab.wait_for(7)


def test_every_fate_is_counted_in_all_and_for_its_agent(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, maxPerAgent=1, workerCount=1))
    rota.ended(rota.submit("ann", tabId=TAB))
    rota.ended(rota.submit("ann"))
    rota.submit("bob", tabId=TAB, params={"hold": "all"})
    tab.wait_for(2)
    cancelled = rota.submit("ann", tabId=TAB)
    assert rota.post("/tasks", {"agentId": "ann", "action": "click"}).status == 429
    rota.post(f"/tasks/{cancelled}/cancel")
    rota.ended(rota.submit("ann", tabId=TAB, deadline=ahead(0.15)))
    metrics = stats(rota)["metrics"]
    assert {name: metrics[name] for name in COUNTERS} == {
        "tasksSubmitted": 5,
        "tasksCompleted": 1,
        "tasksFailed": 2,
        "tasksCancelled": 1,
        "tasksRejected": 1,
        "tasksExpired": 1,
        "dispatchCount": 3,
    }
    assert metrics["agents"] == {
        "ann": {"submitted": 4, "completed": 1, "failed": 2, "cancelled": 1, "rejected": 1},
        "bob": {"submitted": 1, "completed": 0, "failed": 0, "cancelled": 0, "rejected": 0},
    }
    tab.release("all")


def test_average_dispatch_latency_is_the_time_in_the_queue(one_by_one: Rota, tab: Target) -> None:
    before = stats(one_by_one)["metrics"]
    assert before["dispatchCount"] == 1
    task_id = one_by_one.submit(tabId=TAB)
    until(lambda: datetime.now(UTC) - moment(one_by_one.task(task_id)["createdAt"]) > timedelta(
        milliseconds=200
    ))  # fmt: skip
    tab.release("first")
    task = one_by_one.ended(task_id)
    waited = (moment(task["startedAt"]) - moment(task["createdAt"])) / timedelta(milliseconds=1)
    after = stats(one_by_one)["metrics"]
    assert after["dispatchCount"] == 2
    total = after["avgDispatchLatencyMs"] * 2 - before["avgDispatchLatencyMs"]
    assert 200 <= total <= waited + 1
    assert waited - total < 100


def test_counters_count_since_startup(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab))
    rota.ended(rota.submit("ann", tabId=TAB))
    rota.restart()
    metrics = stats(rota)["metrics"]
    assert {metrics[name] for name in COUNTERS} == {0}
    assert metrics["agents"] == {}
    rota.ended(rota.submit("bob", tabId=TAB))
    assert set(stats(rota)["metrics"]["agents"]) == {"bob"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (59, "59s"), (60, "1m0s"), (90, "1m30s"), (3600, "1h0m0s"), (90061, "25h1m1s")],
)
def test_result_ttl_is_written_as_a_duration(serve: Servers, seconds: int, text: str) -> None:
    rota = serve({"scheduler": {"resultTTLSec": seconds}})
    assert stats(rota)["config"]["resultTTL"] == text


# -- Phase 2: Webhook Callbacks ------------------------------------------------------------------


def only_post(rota: Rota, hooks: Target, task_id: str) -> dict[str, Any]:
    """The one callback of a task: when its delivery is recorded, no other can follow."""
    until(lambda: "delivery_succeeded" in rota.kinds(task_id), what="the callback is delivered")
    found = [r for r in hooks.requests if r.headers["x-pinchtab-task-id"] == task_id]
    assert len(found) == 1
    assert found[0].headers["x-pinchtab-event"] == "task.completed"
    assert found[0].headers["content-type"] == "application/json"
    body: dict[str, Any] = found[0].body
    return body


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_every_end_is_told_once_with_the_tasks_snapshot(
    rota: Rota, tab: Target, hooks: Target, state: str
) -> None:
    params = {"failed": {"status": 500}, "cancelled": {"hold": "for ever"}}.get(state, {})
    task_id = rota.submit(tabId=TAB, params=params, callbackUrl=f"{hooks.url}/hook?a=b")
    if state == "cancelled":
        tab.wait_for(1)
        rota.post(f"/tasks/{task_id}/cancel")
    task = rota.ended(task_id)
    assert task["state"] == state
    assert only_post(rota, hooks, task_id) == task
    assert hooks.requests[0].path == "/hook?a=b"


def test_an_expired_task_is_told_too(serve: Servers, hooks: Target, tab: Target) -> None:
    config = with_tab(tab)
    del config["executors"]
    rota = serve(config)
    task_id = rota.submit(deadline=ahead(0.15), callbackUrl=hooks.url, tabId=TAB)
    assert rota.ended(task_id)["state"] == "failed"
    assert only_post(rota, hooks, task_id)["error"] == "deadline exceeded while queued"


def test_a_rejected_task_is_not_told(serve: Servers, hooks: Target, tab: Target) -> None:
    config = with_tab(tab, maxQueueSize=1)
    del config["executors"]
    rota = serve(config)
    first = rota.submit(callbackUrl=hooks.url, tabId=TAB)
    body = {"agentId": "ann", "action": "click", "tabId": TAB, "callbackUrl": hooks.url}
    assert rota.post("/tasks", body).status == 429
    rota.post(f"/tasks/{first}/cancel")
    only_post(rota, hooks, first)
    assert len(hooks.requests) == 1
    assert rota.get("/v1/stats").json["callbacks"]["pending"] == 0


@pytest.mark.parametrize(
    "url", ["ftp://example.com/x", "file:///etc/passwd", "gopher://a/", "//a/b", "hook", "http://"]
)
def test_only_http_and_https_are_allowed(rota: Rota, url: str) -> None:
    for path, body in (
        ("/tasks", {"agentId": "a", "action": "b", "callbackUrl": url}),
        ("/tasks/batch", {"agentId": "a", "callbackUrl": url, "tasks": [{"action": "b"}]}),
    ):
        answer = rota.post(path, body)
        assert answer.status == 400
        assert answer.json["code"]
    assert rota.get("/tasks").json["count"] == 0


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://[::1]/", "http://10.1/"])
def test_private_addresses_are_refused(rota: Rota, url: str) -> None:
    answer = rota.post("/tasks", {"agentId": "a", "action": "b", "callbackUrl": url})
    assert (answer.status, answer.code) == (400, "callback_refused")


@pytest.mark.parametrize("trouble", ["refused", "broken", "closed"])
def test_a_failed_delivery_does_not_affect_the_task(
    rota: Rota, hooks: Target, trouble: str
) -> None:
    url = "http://127.0.0.1:1/hook" if trouble == "closed" else hooks.url
    hooks.respond = lambda _: (500 if trouble == "refused" else 302, b"no")
    task_id = rota.submit(tabId=TAB, callbackUrl=url)
    task = rota.ended(task_id)
    assert task["state"] == "done"
    until(lambda: "delivery_failed" in rota.kinds(task_id), what="the failure is recorded")
    assert rota.task(task_id) == task


def test_a_failed_delivery_is_logged_without_its_address(
    serve: Servers, tab: Target, hooks: Target
) -> None:
    hooks.respond = lambda _: (500, b"no")
    config = with_tab(tab)
    config["webhooks"]["attempts"] = 1
    rota = serve(config)
    task_id = rota.submit(tabId=TAB, callbackUrl=f"{hooks.url}/a-secret?token=hush")
    line = until(
        lambda: next((x for x in rota.log.lines if "was not delivered" in x), None),
        what="the failure is logged",
    )
    assert line.startswith("WARNING rota.webhook: ")
    for part in (task_id, "127.0.0.1", "try 1", "status 500", "given up"):
        assert part in line
    assert "secret" not in line
    assert "hush" not in line


def test_the_receiver_has_ten_seconds_and_no_more(
    serve: Servers, tab: Target, hooks: Target
) -> None:
    assert serve().get("/v1/config").json["webhooks"]["timeoutMs"] == 10_000
    config = with_tab(tab)
    config["webhooks"]["timeout_ms"] = 200
    rota = serve(config)
    hooks.treat_as = {"hold": "for ever"}
    task_id = rota.submit(tabId=TAB, callbackUrl=hooks.url)
    assert rota.ended(task_id)["state"] == "done"
    until(lambda: "delivery_failed" in rota.kinds(task_id), what="the delivery is given up")
    until(lambda: hooks.left, what="the receiver sees rota leave")


def test_the_callback_url_is_stored_and_returned(rota: Rota) -> None:
    url = "https://example.com/hooks/task-done"
    task_id = rota.submit("my-agent", tabId=TAB, callbackUrl=url)
    assert rota.task(task_id)["callbackUrl"] == url


def test_a_task_without_callback_url_calls_nobody(rota: Rota, hooks: Target) -> None:
    task = rota.ended(rota.submit(tabId=TAB))
    assert "callbackUrl" not in task
    assert hooks.requests == []


# -- Phase 3: Batch Task Submission --------------------------------------------------------------


BATCH = {
    "agentId": "agent-crawl-01",
    "callbackUrl": "https://example.com/hooks/batch",
    "tasks": [
        {"action": "click", "tabId": "TAB_ID", "params": {"selector": "#btn"}},
        {"action": "scroll", "tabId": "TAB_ID", "params": {"scrollY": 400}},
        {"action": "hover", "tabId": "TAB_ID", "params": {"selector": "h1"}, "priority": 1},
    ],
}


def test_the_batch_example_is_accepted(rota: Rota, tab: Target) -> None:
    answer = rota.post("/tasks/batch", BATCH)
    assert answer.status == 202
    assert set(answer.json) == {"tasks", "submitted"}
    assert answer.json["submitted"] == 3
    for position, item in enumerate(answer.json["tasks"], start=1):
        assert set(item) == {"taskId", "state", "position"}
        assert (item["state"], item["position"]) == ("queued", position)
    tasks = [rota.ended(item["taskId"]) for item in answer.json["tasks"]]
    assert [task["action"] for task in tasks] == ["click", "scroll", "hover"]
    assert [task["priority"] for task in tasks] == [0, 0, 1]
    assert {task["agentId"] for task in tasks} == {"agent-crawl-01"}
    assert {task["callbackUrl"] for task in tasks} == {BATCH["callbackUrl"]}
    bodies = sorted((r.body for r in tab.requests), key=lambda body: body["kind"])
    assert bodies == [
        {"kind": "click", "selector": "#btn"},
        {"kind": "hover", "selector": "h1"},
        {"kind": "scroll", "scrollY": 400},
    ]


def test_batch_items_have_the_fields_of_a_single_task(rota: Rota) -> None:
    item = {"action": "type", "tabId": TAB, "ref": "e1", "params": {"text": "x"}, "priority": 7}
    item |= {"deadline": ahead(30)}
    (made,) = rota.post("/tasks/batch", {"agentId": "ann", "tasks": [item]}).json["tasks"]
    task = rota.task(made["taskId"])
    assert {name: task[name] for name in ("action", "tabId", "ref", "params", "priority")} == {
        name: item[name] for name in ("action", "tabId", "ref", "params", "priority")
    }
    assert moment(task["deadline"]) == datetime.fromisoformat(str(item["deadline"]))


def test_agent_and_callback_are_inherited_from_the_batch(rota: Rota, hooks: Target) -> None:
    item = {"action": "click", "tabId": TAB, "agentId": "other", "callbackUrl": "http://other/"}
    body = {"agentId": "ann", "callbackUrl": hooks.url, "tasks": [item]}
    (made,) = rota.post("/tasks/batch", body).json["tasks"]
    task = rota.ended(made["taskId"])
    assert (task["agentId"], task["callbackUrl"]) == ("ann", hooks.url)
    assert only_post(rota, hooks, made["taskId"])["agentId"] == "ann"


@pytest.mark.parametrize(
    "body",
    [
        {"tasks": [{"action": "click"}]},
        {"agentId": "", "tasks": [{"action": "click"}]},
        {"agentId": "ann", "tasks": []},
        {"agentId": "ann"},
        {"agentId": "ann", "tasks": {"action": "click"}},
        {"agentId": "ann", "tasks": [{"tabId": TAB}]},
        {"agentId": "ann", "tasks": ["click"]},
        [],
    ],
)
def test_an_invalid_batch_is_a_bad_request_and_submits_nothing(rota: Rota, body: Any) -> None:
    answer = rota.post("/tasks/batch", body)
    assert answer.status == 400
    assert answer.json["code"]
    assert answer.json["error"]
    assert stats(rota)["metrics"]["tasksSubmitted"] == 0


def test_a_batch_that_is_not_json_is_a_bad_request(rota: Rota) -> None:
    assert rota.request("POST", "/tasks/batch", raw=b'{"agentId": "ann", "tasks": [').status == 400


def test_fifty_tasks_fit_and_fifty_one_are_too_many(serve: Servers) -> None:
    rota = serve({})
    body = {"agentId": "ann", "tasks": [{"action": "click"}] * 51}
    answer = rota.post("/tasks/batch", body)
    assert (answer.status, answer.code) == (400, "batch_too_large")
    assert stats(rota)["metrics"]["tasksSubmitted"] == 0
    body["tasks"] = body["tasks"][:50]
    answer = rota.post("/tasks/batch", body)
    assert (answer.status, answer.json["submitted"]) == (202, 50)
    assert [item["position"] for item in answer.json["tasks"]] == list(range(1, 51))


def test_one_invalid_item_submits_nothing(rota: Rota) -> None:
    items = [{"action": "click"}, {"action": "click", "deadline": "2020-01-01T00:00:00Z"}]
    assert rota.post("/tasks/batch", {"agentId": "ann", "tasks": items}).status == 400
    assert stats(rota)["metrics"]["tasksSubmitted"] == 0


def test_a_batch_may_be_admitted_in_part(idle: Rota) -> None:
    answer = idle.post("/tasks/batch", {"agentId": "ann", "tasks": [{"action": "click"}] * 5})
    assert answer.status == 202
    assert answer.json["submitted"] == 3
    assert [item["state"] for item in answer.json["tasks"]] == ["queued"] * 3 + ["rejected"] * 2
    for item in answer.json["tasks"][3:]:
        assert item["code"] == "queue_full"
        assert item["error"] == "rejected: agent queue full"
        assert "position" not in item
        assert idle.task(item["taskId"])["state"] == "rejected"
    metrics = stats(idle)["metrics"]
    assert (metrics["tasksSubmitted"], metrics["tasksRejected"]) == (3, 2)


# -- Phase 3: Config Hot-Reload ------------------------------------------------------------------


@pytest.fixture
def watched(serve: Servers, tmp_path: Path, tab: Target) -> Rota:
    """A server that watches its configuration file."""
    rota = Rota(tmp_path / "watched", with_tab(tab, maxQueueSize=7, workerCount=1))
    rota.write_config(rota.config)
    serve.adopt(rota)
    assert rota.get("/health").status == 200
    return rota


def changes(rota: Rota) -> list[dict[str, Any]]:
    return rota.events(kind="config_changed")


def config(rota: Rota) -> dict[str, Any]:
    found: dict[str, Any] = stats(rota)["config"]
    return found


def test_a_changed_file_is_put_in_force_and_recorded(watched: Rota) -> None:
    watched.write_config({"scheduler": {"maxQueueSize": 8, "workerCount": 1}})
    until(lambda: config(watched)["maxQueueSize"] == 8, what="the new limit is in force")
    (event,) = changes(watched)
    assert event["data"]["source"] == "file"
    assert len(event["data"]["changed"]) == 1
    assert event["data"]["settings"]["queued"] == 8


def test_a_file_behind_a_link_is_watched_too(serve: Servers, tmp_path: Path, tab: Target) -> None:
    real = tmp_path / "real.json"
    real.write_text('{"scheduler": {"maxQueueSize": 7}}')
    rota = Rota(tmp_path / "linked", with_tab(tab, maxQueueSize=7))
    rota.config_path = tmp_path / "rota.json"
    rota.config_path.symlink_to(real)
    serve.adopt(rota)
    assert rota.get("/health").status == 200
    real.write_text('{"scheduler": {"maxQueueSize": 8}}')
    until(lambda: config(rota)["maxQueueSize"] == 8, within_s=3, what="the change is seen")


def test_a_bad_file_keeps_the_old_values_and_says_so(watched: Rota) -> None:
    for text in ('{"scheduler": {"maxQueueSize": ', '{"scheduler": {"maxQueueSise": 9}}'):
        said = len(watched.log.lines)
        watched.write_config(text)
        until(lambda: len(watched.log.lines) > said, what="the log tells of the bad file")  # noqa: B023
        assert watched.post("/v1/config/reload").status == 400
        assert config(watched)["maxQueueSize"] == 7
    assert changes(watched) == []
    watched.write_config({"scheduler": {"maxQueueSize": 9}})
    until(lambda: config(watched)["maxQueueSize"] == 9, what="a good file is read again")


def test_zero_values_are_ignored(watched: Rota) -> None:
    zeros = dict.fromkeys(("maxQueueSize", "maxPerAgent", "maxInflight", "resultTTLSec"), 0)
    before = config(watched)
    answer = watched.post("/v1/config/reload", {"scheduler": zeros})
    assert (answer.status, answer.json["changed"]) == (200, [])
    watched.write_config({"scheduler": {**zeros, "maxPerAgentInflight": 3, "workerCount": 1}})
    until(lambda: config(watched)["maxPerAgentFlight"] == 3, what="the one value is in force")
    assert config(watched) == {**before, "maxPerAgentFlight": 3}


def test_a_reload_that_changes_nothing_is_not_an_event(watched: Rota) -> None:
    assert watched.post("/v1/config/reload").json["changed"] == []
    assert changes(watched) == []


def test_every_reloadable_field_can_be_reloaded_by_request(rota: Rota) -> None:
    fields = {"maxQueueSize": 31, "maxPerAgent": 32, "maxInflight": 33, "maxPerAgentFlight": 34}
    answer = rota.post("/v1/config/reload", {"scheduler": {**fields, "resultTTLSec": 35}})
    assert answer.status == 200
    assert len(answer.json["changed"]) == 5
    assert config(rota) == {
        "strategy": "fair-fifo",
        **fields,
        "workerCount": 4,
        "resultTTL": "35s",
    }
    (event,) = changes(rota)
    assert event["data"]["source"] == "api"
    assert sorted(event["data"]["changed"]) == sorted(answer.json["changed"])


@pytest.mark.parametrize(
    "bad", [{"maxQueueSize": -1}, {"maxQueueSize": "many"}, {"nonsense": 1}, {"strategy": "lifo"}]
)
def test_a_bad_reload_by_request_changes_nothing(rota: Rota, bad: dict[str, Any]) -> None:
    before = config(rota)
    answer = rota.post("/v1/config/reload", {"scheduler": {"maxInflight": 1, **bad}})
    assert answer.status == 400
    assert next(iter(bad)) in answer.json["error"]
    assert config(rota) == before


def test_two_reloads_at_once_both_count(rota: Rota) -> None:
    """Each of many reloads sets one field; whatever their order, all of them are in force."""
    for n in range(50, 60):
        bodies = [{"maxQueueSize": n}, {"maxPerAgent": n}, {"maxInflight": n}]
        threads = [
            threading.Thread(target=rota.post, args=("/v1/config/reload", {"scheduler": body}))
            for body in bodies
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = config(rota)
        assert (found["maxQueueSize"], found["maxPerAgent"], found["maxInflight"]) == (n, n, n)


def test_reloaded_queue_limits_take_effect(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    rota.submit(tabId=TAB)
    refused = {"agentId": "ann", "action": "click", "tabId": TAB}
    assert rota.post("/tasks", refused).status == 429
    rota.post("/v1/config/reload", {"scheduler": {"maxQueueSize": 5, "maxPerAgent": 2}})
    assert rota.post("/tasks", refused).status == 202
    answer = rota.post("/tasks", refused)
    assert answer.json["error"] == "rejected: agent queue full"
    assert answer.json["details"]["maxPerAgent"] == 2


def test_reloaded_inflight_limits_take_effect_at_once(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, maxInflight=1, workerCount=10))
    for n in range(3):
        rota.submit(f"agent-{n}", tabId=TAB, params={"hold": "all"})
    tab.wait_for(1)
    assert stats(rota)["queue"]["totalInflight"] == 1
    rota.post("/v1/config/reload", {"scheduler": {"maxInflight": 3}})
    assert len(tab.wait_for(3)) == 3
    tab.release("all")


def test_a_reloaded_agent_limit_takes_effect_at_once(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, maxPerAgentInflight=1, workerCount=10))
    for _ in range(3):
        rota.submit("ann", tabId=TAB, params={"hold": "all"})
    tab.wait_for(1)
    rota.post("/v1/config/reload", {"scheduler": {"maxPerAgentFlight": 2}})
    tab.wait_for(2)
    assert stats(rota)["queue"]["totalInflight"] == 2
    tab.release("all")


def test_a_reloaded_retention_takes_effect(rota: Rota) -> None:
    task_id = rota.submit(tabId=TAB)
    rota.ended(task_id)
    rota.post("/v1/config/reload", {"scheduler": {"resultTTLSec": 1}})
    until(lambda: not listed(rota), what="the task leaves the list a second after its end")


def test_reloaded_limits_are_in_force_until_the_file_says_otherwise_after_a_restart(
    watched: Rota,
) -> None:
    watched.post("/v1/config/reload", {"scheduler": {"maxQueueSize": 99}})
    assert config(watched)["maxQueueSize"] == 99
    watched.restart()
    assert config(watched)["maxQueueSize"] == 7


def test_sighup_reloads_a_running_process(tmp_path: Path) -> None:
    with running_process(tmp_path, {"scheduler": {"maxQueueSize": 7}}) as rota:
        assert rota.get("/scheduler/stats").json["config"]["maxQueueSize"] == 7
        text = json.dumps({"scheduler": {"maxQueueSize": 8, "maxInflight": 0}})
        rota.config_path.write_text(text)
        rota.send(signal.SIGHUP)

        def reloaded() -> list[dict[str, Any]]:
            return rota.events(kind="config_changed")

        until(reloaded, what="the change is recorded")
        found = rota.get("/scheduler/stats").json["config"]
        assert (found["maxQueueSize"], found["maxInflight"]) == (8, 1000)
        rota.config_path.write_text("not json")
        rota.send(signal.SIGHUP)
        until(lambda: "not JSON" in rota.output.read_text(), what="it says what is wrong")
        assert rota.get("/scheduler/stats").json["config"]["maxQueueSize"] == 8
        assert rota.end() == 0


def test_a_repeat_under_an_idempotency_key_makes_no_second_task(rota: Rota) -> None:
    body = {"agentId": "ann", "action": "waits"}
    first = rota.post("/tasks", body, **{"X-Idempotency-Key": "k"})
    again = rota.post("/tasks", body, **{"X-Idempotency-Key": "k"})
    assert (first.status, again.status) == (202, 200)
    assert again.json["taskId"] == first.json["taskId"]
    assert again.json["idempotent"] is True


def test_a_repeat_says_how_the_task_is_by_now(rota: Rota) -> None:
    body = {"agentId": "ann", "action": "echo"}
    first = rota.post("/tasks", body, **{"X-Idempotency-Key": "k"}).json
    assert first["state"] == "queued"

    def repeat() -> str:
        return str(rota.post("/tasks", body, **{"X-Idempotency-Key": "k"}).json["state"])

    until(lambda: repeat() == "done", what="the repeat says that it is done")


def test_a_null_is_a_field_that_is_absent(rota: Rota) -> None:
    fields = ("priority", "params", "deadline", "tabId", "ref", "callbackUrl")
    body = {"agentId": "ann", "action": "waits", **dict.fromkeys(fields)}
    task = rota.post("/tasks", body)
    assert task.status == 202, task
    assert rota.get(f"/tasks/{task.json['taskId']}").json["priority"] == 0
    item = {"action": "waits", "priority": None}
    assert rota.post("/tasks/batch", {"agentId": "ann", "tasks": [item]}).status == 202
    assert rota.post("/tasks", {"agentId": None, "action": "waits"}).status == 400

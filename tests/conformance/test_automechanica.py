"""AutoMechanica's task queue document: its table, lifecycle, backoff, dead letters and metrics.

Every test talks to a real server with the preset over HTTP; the builtin executor stands in for a
worker. Headings are the document's.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended as when_ended
from support.http_server import until

from rota.clock import parse_rfc3339, rfc3339
from rota.presets import layered
from rota.sections import RetrySettings

if TYPE_CHECKING:
    from support.http_server import Rota, Servers, Target

COLUMNS = [
    "id",
    "workflow_id",
    "agent_name",
    "task_type",
    "payload",
    "priority",
    "status",
    "attempts",
    "max_attempts",
    "available_at",
    "lease_owner",
    "lease_expires_at",
    "error_info",
    "created_at",
    "updated_at",
]
EVENT = ["id", "agent_name", "workflow_id", "task_id", "event_type", "payload", "created_at"]
FITMENT: dict[str, Any] = {
    "agent_name": "FitmentAgent",
    "task_type": "generate_fitment",
    "payload": {"sku": "BRK-1"},
    "priority": 0,
    "max_attempts": 3,
}
HOLD: dict[str, Any] = {"task_type": "sleep", "payload": {"ms": 60_000}}


def preset(**changes: Any) -> dict[str, Any]:
    return layered(changes, ("automechanica",))


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server with the document's values."""
    return serve(preset())


@pytest.fixture
def quick(serve: Servers) -> Rota:
    """A server with the document's values, but quick to try again."""
    return serve(preset(defaults={"retry": {"baseMs": 1}}))


def created(rota: Rota, **changes: Any) -> dict[str, Any]:
    answer = rota.post("/automechanica/tasks", {**FITMENT, **changes})
    assert answer.status == 201, answer
    row: dict[str, Any] = answer.json
    return row


def row_of(rota: Rota, task_id: str) -> dict[str, Any]:
    answer = rota.get(f"/automechanica/tasks/{task_id}")
    assert answer.status == 200, answer
    row: dict[str, Any] = answer.json
    return row


def when(rota: Rota, task_id: str, status: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        row = row_of(rota, task_id)
        return row if row["status"] == status else None

    return until(look, what=status)


def rows(rota: Rota, query: str = "") -> list[str]:
    return [row["id"] for row in rota.get(f"/automechanica/tasks{query}").json["tasks"]]


# -- 1. Purpose -----------------------------------------------------------------------------------


def test_tasks_are_durable(rota: Rota) -> None:
    waiting = created(rota)
    done = when(rota, created(rota, task_type="echo")["id"], "completed")
    rota.restart()
    assert row_of(rota, waiting["id"]) == waiting
    assert row_of(rota, done["id"]) == done


# -- 2. Task Table Schema -------------------------------------------------------------------------


def test_a_row_has_the_columns_of_the_table_and_no_other(rota: Rota) -> None:
    row = created(rota)
    assert list(row) == COLUMNS
    assert {name: row[name] for name in FITMENT} == FITMENT
    assert (row["status"], row["attempts"]) == ("pending", 0)
    nothing = ("workflow_id", "lease_owner", "lease_expires_at", "error_info")
    assert [row[name] for name in nothing] == [None] * 4
    assert row["available_at"] == row["created_at"] == row["updated_at"]
    assert parse_rfc3339(row["created_at"]) > 0


def test_any_task_can_be_seen_as_a_row(rota: Rota) -> None:
    task_id = rota.submit_native("FitmentAgent", "generate_fitment", params={"sku": "BRK-1"})
    row = rota.get(f"/v1/tasks/{task_id}?view=automechanica").json
    assert list(row) == COLUMNS
    assert row == row_of(rota, task_id)
    (listed,) = rota.get("/v1/tasks?view=automechanica").json["tasks"]
    assert listed == row
    assert (row["priority"], row["max_attempts"]) == (2, 3)


def test_an_id_may_be_a_uuid_of_the_clients(rota: Rota) -> None:
    own = str(uuid.uuid4())
    assert created(rota, id=own)["id"] == own
    again = rota.post("/automechanica/tasks", {**FITMENT, "id": own})
    assert (again.status, again.code) == (409, "id_taken")


def test_max_attempts_is_3_and_priority_2_by_default(rota: Rota) -> None:
    body = {"agent_name": "FitmentAgent", "task_type": "generate_fitment"}
    row = rota.post("/automechanica/tasks", body).json
    assert (row["max_attempts"], row["priority"], row["payload"]) == (3, 2, None)


def test_available_at_can_be_said(rota: Rota) -> None:
    now_us = parse_rfc3339(created(rota)["created_at"])
    later = rfc3339(now_us + 3_600_000_000)
    row = created(rota, available_at=later)
    assert (row["status"], row["available_at"]) == ("pending", later)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"agent_name": ""}, "agent_name"),
        ({"agent_name": None}, "agent_name"),
        ({"task_type": 5}, "task_type"),
        ({"payload": []}, "payload"),
        ({"priority": -1}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 10**9}, "max_attempts"),
        ({"id": "tsk_1"}, "id"),
        ({"available_at": "soon"}, "available_at"),
    ],
)
def test_what_is_wrong_is_named(rota: Rota, change: dict[str, Any], field: str) -> None:
    answer = rota.post("/automechanica/tasks", {**FITMENT, **change})
    assert (answer.status, answer.json["details"]["field"]) == (400, field)


# -- 3. Task Lifecycle ----------------------------------------------------------------------------


def test_pending_then_running_then_completed(rota: Rota) -> None:
    row = created(rota, task_type="echo")
    done = when(rota, row["id"], "completed")
    assert (done["attempts"], done["error_info"]) == (0, None)
    assert done["updated_at"] > row["created_at"]


def test_a_running_first_try_has_no_failed_attempts(rota: Rota) -> None:
    row = when(rota, created(rota, **HOLD)["id"], "running")
    assert (row["attempts"], row["lease_owner"]) == (0, None)
    assert rota.post(f"/v1/tasks/{row['id']}/cancel").status == 200
    assert row_of(rota, row["id"])["attempts"] == 0


def test_a_failure_brings_it_back_as_pending_with_its_error(rota: Rota) -> None:
    row = created(rota, task_type="fail", payload={"message": "no such part"})
    until(lambda: row_of(rota, row["id"])["attempts"], what="the first failure")
    row = row_of(rota, row["id"])
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert row["error_info"]["message"] == "no such part"


def test_the_last_failure_makes_it_dead(quick: Rota) -> None:
    row = when(quick, created(quick, task_type="fail")["id"], "dead")
    assert row["attempts"] == row["max_attempts"] == 3
    assert set(row["error_info"]) >= {"code", "message"}
    assert quick.post(f"/v1/tasks/{row['id']}/retry").status == 202  # a new life counts anew
    assert when(quick, row["id"], "dead")["attempts"] == 3


def test_a_cancelled_task_is_failed_with_error_info(rota: Rota) -> None:
    plain, told = created(rota)["id"], created(rota)["id"]
    rota.post(f"/v1/tasks/{plain}/cancel")
    rota.post(f"/v1/tasks/{told}/cancel", {"reason": "sold out"})
    assert row_of(rota, plain)["error_info"] == {"code": "cancelled", "message": "cancelled"}
    row = row_of(rota, told)
    assert (row["status"], row["error_info"]["message"]) == ("failed", "sold out")
    refused = rota.post(f"/v1/tasks/{told}/cancel")
    assert refused.status == 409


# -- 5. Backoff Rules -----------------------------------------------------------------------------


def test_the_pauses_are_5_20_and_45_seconds_without_chance() -> None:
    policy = RetrySettings.model_validate(preset()["defaults"]["retry"]).policy()
    assert [policy.delay_us(n, draw) for n in (1, 2, 3) for draw in (0.0, 1.0)] == [
        5_000_000, 5_000_000, 20_000_000, 20_000_000, 45_000_000, 45_000_000,
    ]  # fmt: skip
    assert policy.max_attempts == 3


@pytest.mark.parametrize("path", ["/automechanica/tasks", "/v1/tasks"])
def test_a_failed_task_is_available_five_seconds_later(rota: Rota, path: str) -> None:
    native = {"agentId": "FitmentAgent", "action": "fail"}
    answer = rota.post(path, native if path == "/v1/tasks" else {**FITMENT, "task_type": "fail"})
    task_id = answer.json.get("id") or answer.json["taskId"]
    until(lambda: row_of(rota, task_id)["attempts"], what="the first failure")
    row = row_of(rota, task_id)
    pause_us = parse_rfc3339(row["available_at"]) - parse_rfc3339(row["updated_at"])
    assert pause_us == 5_000_000


def test_a_type_of_its_own_goes_before_the_preset(serve: Servers) -> None:
    once = {"executor": "builtin", "retry": {"maxAttempts": 1}}
    rota = serve(preset(types={"fail": once}))
    task_id = rota.submit_native("FitmentAgent", "fail")
    assert when(rota, task_id, "dead")["attempts"] == 1


# -- 7. Task Priorities ---------------------------------------------------------------------------


def test_lower_numbers_go_first(serve: Servers) -> None:
    rota = serve(preset(scheduler={"maxInflight": 1}))
    rota.post("/v1/scheduler/pause")
    ids = [created(rota, task_type="echo", priority=n)["id"] for n in (3, 1, 2, 0)]
    rota.post("/v1/scheduler/resume")
    for task_id in ids:
        when(rota, task_id, "completed")
    order = [e["task"] for e in rota.events(kind="task_assigned")]
    assert order == [ids[3], ids[1], ids[2], ids[0]]


def test_a_critical_task_goes_before_the_background_work_of_all_agents(serve: Servers) -> None:
    rota = serve(preset(scheduler={"maxInflight": 2}))
    rota.post("/v1/scheduler/pause")
    agents = ("AnalyticsAgent", "SeoAgent")
    low = [created(rota, task_type="echo", agent_name=a, priority=3)["id"] for a in agents * 2]
    high = [created(rota, task_type="echo", priority=0)["id"] for _ in range(3)]
    rota.post("/v1/scheduler/resume")
    for task_id in (*low, *high):
        when(rota, task_id, "completed")
    order = [e["task"] for e in rota.events(kind="task_assigned") if e["task"] in (*low, *high)]
    assert order == [*high, *low]


# -- 8. Dead Letter Queue -------------------------------------------------------------------------


def test_dead_tasks_are_shown_with_error_agent_type_payload_and_attempts(quick: Rota) -> None:
    payload = {"message": "no such part"}
    dead = created(quick, task_type="fail", payload=payload)["id"]
    other = created(quick, task_type="fail", agent_name="PriceAgent")["id"]
    for task_id in (dead, other):
        when(quick, task_id, "dead")
    created(quick)
    (row,) = quick.get("/automechanica/dead?agent_name=FitmentAgent").json["tasks"]
    assert (row["id"], row["status"], row["attempts"]) == (dead, "dead", 3)
    assert (row["agent_name"], row["task_type"]) == ("FitmentAgent", "fail")
    assert row["payload"] == payload
    assert row["error_info"]["message"] == "no such part"
    assert set(rows(quick, "?status=dead")) == {dead, other}
    assert rows(quick, "?status=dead&agent_name=PriceAgent&task_type=fail") == [other]


def test_dead_tasks_are_shown_after_they_have_left_memory(serve: Servers) -> None:
    rota = serve(preset(scheduler={"maxEndedTasks": 1}))
    ids = [created(rota, task_type="fail", max_attempts=1)["id"] for _ in range(3)]
    for task_id in ids:
        when(rota, task_id, "dead")
    shown = [row["id"] for row in rota.get("/automechanica/dead").json["tasks"]]
    assert sorted(shown) == sorted(ids)


# -- 9. Orchestrator → Queue Interaction ----------------------------------------------------------


def test_tasks_are_found_by_status_agent_and_type(rota: Rota) -> None:
    waits = created(rota)["id"]
    done = created(rota, task_type="echo", agent_name="SeoAgent")["id"]
    when(rota, done, "completed")
    assert rows(rota, "?status=pending&agent_name=FitmentAgent") == [waits]
    assert rows(rota, "?status=completed&agent_name=SeoAgent") == [done]
    assert rows(rota, "?task_type=generate_fitment") == [waits]
    assert rows(rota, "?status=failed") == []
    refused = rota.get("/automechanica/tasks?status=queued")
    assert (refused.status, refused.json["details"]) == (400, {"field": "status"})
    assert rota.get("/automechanica/tasks/tsk_nobody").status == 404


def test_the_orchestrator_hears_of_the_end_in_its_own_words(serve: Servers, hooks: Target) -> None:
    rota = serve(preset(webhooks={"allowHosts": ["127.0.0.1"]}))
    row = created(rota, task_type="echo", callback_url=f"{hooks.url}/ended")
    (request,) = until(lambda: hooks.requests, what="the callback")
    body = request.body
    assert list(body) == COLUMNS
    assert (body["id"], body["status"]) == (row["id"], "completed")
    assert request.headers["x-automechanica-event"] == "task.completed"


def test_a_repeat_under_a_key_gives_the_same_task(rota: Rota) -> None:
    body = {**FITMENT, "idempotency_key": "once"}
    first, second = (rota.post("/automechanica/tasks", body) for _ in range(2))
    assert (first.status, second.status) == (201, 200)
    assert first.json["id"] == second.json["id"]


# -- 11. Queue Metrics & Instrumentation ----------------------------------------------------------


def test_the_six_figures_can_be_read_by_day(quick: Rota) -> None:
    when(quick, created(quick, task_type="echo")["id"], "completed")
    when(quick, created(quick, task_type="fail")["id"], "dead")
    today = quick.get("/v1/stats/daily").json["days"][-1]
    assert [today[f"tasks_{fate}"] for fate in ("created", "completed", "failed")] == [3, 1, 1]
    assert today["average_latency"] > 0
    assert "worker_heartbeat_delay" in today
    assert today["error_rates_per_agent"] == {"FitmentAgent": 0.75, "EmbeddingAgent": None}
    figures = quick.get("/v1/stats").json["figures"]
    assert {name: figures[name] for name in today if name != "day"} == {
        name: value for name, value in today.items() if name != "day"
    }


# -- 12. Embedding Integration --------------------------------------------------------------------


def test_what_happens_to_a_task_is_an_agent_event(rota: Rota) -> None:
    row = when(rota, created(rota, task_type="echo")["id"], "completed")
    events = rota.get("/v1/events?view=automechanica").json["events"]
    assert all(list(event) == EVENT for event in events)
    mine = [event for event in events if event["task_id"] == row["id"]]
    kinds = ["task_submitted", "task_assigned", "task_started", "task_succeeded"]
    assert [event["event_type"] for event in mine] == kinds
    assert {event["agent_name"] for event in mine} == {"FitmentAgent"}
    assert mine[-1]["payload"]["result"] == {"echo": FITMENT["payload"]}
    assert mine[-1]["created_at"] == row["updated_at"]


def test_every_agent_event_of_a_task_names_its_workflow(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxEndedTasks": 1}})
    body = {"agentId": "ann", "tasks": [{"action": "echo"}]}
    flow = rota.post("/v1/workflows", body).json["workflowId"]
    until(lambda: rota.get(f"/v1/workflows/{flow}").json["state"] == "completed")
    (task,) = rota.get(f"/v1/workflows/{flow}").json["tasks"]
    last = None
    for _ in range(3):  # the task leaves memory
        last = rota.submit_native("ann", "echo")
        when_ended(rota, last)
    events = rota.get("/v1/events?view=automechanica").json["events"]
    mine = [each for each in events if each["task_id"] == task["taskId"]]
    assert {each["event_type"] for each in mine} >= {"task_submitted", "task_succeeded"}
    assert {each["workflow_id"] for each in mine} == {flow}
    assert {each["workflow_id"] for each in events if each["task_id"] == last} == {None}
    with rota.stream("/v1/events/stream?view=automechanica&after=0") as stream:
        frames = stream.take(len(mine))
    assert {frame.event["workflow_id"] for frame in frames} == {flow}


def test_agent_events_are_streamed_as_they_happen(rota: Rota) -> None:
    with rota.stream("/v1/events/stream?view=automechanica&after=0") as stream:
        row = created(rota)
        (frame,) = stream.take(1)
    assert list(frame.event) == EVENT
    assert (frame.event["event_type"], frame.event["task_id"]) == ("task_submitted", row["id"])
    assert frame.id == frame.event["id"]


def test_an_unknown_view_is_refused(rota: Rota) -> None:
    answer = rota.get("/v1/events?view=nobody")
    assert (answer.status, answer.json["details"]) == (400, {"field": "view"})

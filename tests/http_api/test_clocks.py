"""timeoutMs, queueTimeoutMs and deadline end a task; notBefore and delayMs hold it back.

The clocks run apart, the earliest wins, and the event says which it was.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.http_server import Rota, Servers, Target, ended, look, until, with_tab

from rota.clock import parse_rfc3339, rfc3339
from rota.domain.plan import DEADLINE_S_MAX


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server with a browser, whose `waits` tasks nobody runs."""
    return serve(with_tab(tab))


def soon(ms: float) -> str:
    return (datetime.now(UTC) + timedelta(milliseconds=ms)).isoformat()


def end_of(rota: Rota, task_id: str) -> dict[str, Any]:
    """The event that ended the task."""
    ended(rota, task_id)
    return rota.events(task=task_id)[-1]


def held(rota: Rota, name: str, **fields: Any) -> str:
    return rota.submit_native(action="click", tabId="t", params={"hold": name}, **fields)


# -- timeoutMs -----------------------------------------------------------------------------------


def test_a_timeout_ends_an_attempt_and_hangs_up(rota: Rota, tab: Target) -> None:
    task_id = held(rota, "for ever", timeoutMs=400)
    tab.wait_for(1)
    event = end_of(rota, task_id)
    assert (event["kind"], event["data"]["code"]) == ("task_failed", "timeout")
    assert look(rota, task_id)["error"]["message"] == "attempt timed out after 400 ms"
    assigned = rota.events(task=task_id, kind="task_assigned")[0]["at"]
    assert event["at"] >= assigned + 400_000
    until(lambda: tab.left, what="the browser sees the connection close")


def test_each_attempt_has_the_whole_timeout(rota: Rota) -> None:
    policy = {"kind": "fixed", "baseMs": 0, "maxAttempts": 3, "retryOn": ["timeout"]}
    task_id = rota.submit_native(action="sleep", params={"ms": 60_000}, timeoutMs=30, retry=policy)
    assert ended(rota, task_id)["attempt"] == 3
    events = rota.events(task=task_id)
    began = [e["at"] for e in events if e["kind"] == "task_assigned"]
    over = [e["at"] for e in events if e["kind"] in ("attempt_failed", "task_failed")]
    assert all(end >= start + 30_000 for start, end in zip(began, over, strict=True))


def test_a_timeout_does_not_run_while_a_task_waits(rota: Rota) -> None:
    rota.post("/v1/agents/ann/pause")
    task_id = rota.submit_native("ann", timeoutMs=5000)
    short = rota.submit_native("ann", timeoutMs=1)
    ended(rota, rota.submit_native("bob", "waits", queueTimeoutMs=20))
    assert [look(rota, t)["state"] for t in (task_id, short)] == ["ready", "ready"]
    rota.post("/v1/agents/ann/resume")
    assert ended(rota, task_id)["state"] == "succeeded"


# -- queueTimeoutMs ------------------------------------------------------------------------------


def test_a_task_that_is_not_dispatched_in_time_fails(rota: Rota) -> None:
    task_id = rota.submit_native(action="waits", queueTimeoutMs=30)
    event = end_of(rota, task_id)
    assert (event["kind"], event["data"]["clock"]) == ("task_expired", "queue_timeout")
    task = look(rota, task_id)
    assert (task["state"], task["error"]["code"]) == ("failed", "queue_timeout_exceeded")
    assert task["error"]["message"] == "waited longer than 30 ms to be dispatched"
    assert task["queueTimeoutMs"] == 30
    assert event["at"] >= rota.events(task=task_id)[0]["at"] + 30_000


def test_a_pause_does_not_stop_the_clock_of_the_queue(rota: Rota) -> None:
    rota.post("/v1/agents/ann/pause")
    rota.post("/v1/types/sleep/pause")
    for task_id in (
        rota.submit_native("ann", queueTimeoutMs=20),
        rota.submit_native("bob", "sleep", queueTimeoutMs=20),
    ):
        assert end_of(rota, task_id)["data"]["clock"] == "queue_timeout"


def test_only_the_time_a_task_is_ready_counts_against_its_queue_timeout(
    rota: Rota, tab: Target
) -> None:
    parent = held(rota, "parent")
    blocked = rota.submit_native(dependsOn=[parent], queueTimeoutMs=5000)
    soonest = rota.submit_native(action="waits", dependsOn=[parent], queueTimeoutMs=30)
    running = held(rota, "running", queueTimeoutMs=5000)
    delayed = rota.submit_native(action="waits", delayMs=80, queueTimeoutMs=30)
    ended(rota, rota.submit_native(action="waits", queueTimeoutMs=60))
    assert look(rota, soonest)["state"] == "blocked"
    event = end_of(rota, delayed)
    assert event["data"]["clock"] == "queue_timeout"
    assert event["at"] >= parse_rfc3339(look(rota, delayed)["notBefore"]) + 30_000
    tab.release("parent")
    assert end_of(rota, soonest)["data"]["clock"] == "queue_timeout"
    assert ended(rota, blocked)["state"] == "succeeded"
    assert look(rota, running)["state"] == "running"


def test_each_wait_after_a_backoff_has_the_whole_queue_timeout(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    rota.post("/v1/agents/ann/pause")
    policy = {"kind": "fixed", "baseMs": 100}
    task_id = rota.submit_native("ann", "fail", retry=policy, queueTimeoutMs=500, priority=0)
    held(rota, "busy", priority=3)
    rota.post("/v1/agents/ann/resume")
    event = end_of(rota, task_id)
    assert (event["kind"], event["data"]["clock"]) == ("task_expired", "queue_timeout")
    (released,) = rota.events(task=task_id, kind="task_released")
    assert event["at"] >= released["at"] + 500_000


# -- deadline ------------------------------------------------------------------------------------


def test_a_deadline_reaches_a_task_wherever_it_is(rota: Rota, tab: Target) -> None:
    moment = soon(700)
    later = {"kind": "fixed", "baseMs": 60_000}
    waiting = {
        "ready": rota.submit_native(action="waits", deadline=moment),
        "blocked": rota.submit_native(dependsOn=["later"], deadline=moment),
        "delayed": rota.submit_native(delayMs=60_000, deadline=moment),
        "backs off": rota.submit_native(action="fail", retry=later, deadline=moment),
    }
    running = held(rota, "for ever", deadline=moment)
    for task_id in waiting.values():
        event = end_of(rota, task_id)
        assert (event["kind"], event["data"]["clock"]) == ("task_expired", "deadline")
        assert event["at"] >= parse_rfc3339(moment)
        assert look(rota, task_id)["error"]["code"] == "deadline_exceeded"
    event = end_of(rota, running)
    assert (event["kind"], event["data"]["code"]) == ("task_failed", "deadline_exceeded")
    assert event["data"]["error"] == "deadline exceeded while running"
    assert event["at"] >= parse_rfc3339(moment)


def test_a_deadline_is_not_retried(rota: Rota) -> None:
    policy = {"kind": "fixed", "baseMs": 0, "maxAttempts": 5}
    task_id = rota.submit_native(
        action="sleep", params={"ms": 60_000}, retry=policy, deadline=soon(250)
    )
    assert (ended(rota, task_id)["attempt"], rota.kinds(task_id)[-1]) == (1, "task_failed")


# -- the earliest wins ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline_ms", "queue_ms", "clock"),
    [(250, 60_000, "deadline"), (60_000, 60, "queue_timeout")],
)
def test_the_earliest_clock_of_a_waiting_task_wins(
    rota: Rota, deadline_ms: int, queue_ms: int, clock: str
) -> None:
    task_id = rota.submit_native(
        action="waits", deadline=soon(deadline_ms), queueTimeoutMs=queue_ms, timeoutMs=1
    )
    assert end_of(rota, task_id)["data"]["clock"] == clock


@pytest.mark.parametrize(
    ("deadline_ms", "timeout_ms", "code"),
    [(250, 60_000, "deadline_exceeded"), (60_000, 80, "timeout")],
)
def test_the_earliest_clock_of_a_running_task_wins(
    rota: Rota, deadline_ms: int, timeout_ms: int, code: str
) -> None:
    task_id = rota.submit_native(
        action="sleep",
        params={"ms": 3_600_000},
        deadline=soon(deadline_ms),
        timeoutMs=timeout_ms,
        queueTimeoutMs=60_000,
    )
    assert end_of(rota, task_id)["data"]["code"] == code


# -- notBefore, delayMs --------------------------------------------------------------------------


def test_a_task_does_not_start_before_its_moment(rota: Rota) -> None:
    moment = soon(400)
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", "notBefore": moment})
    assert (answer.status, answer.json["state"]) == (202, "scheduled")
    task_id = answer.json["taskId"]
    at = parse_rfc3339(moment)
    assert look(rota, task_id)["notBefore"] == rfc3339(at)
    assert ended(rota, task_id)["state"] == "succeeded"
    assert rota.kinds(task_id)[:3] == ["task_submitted", "task_released", "task_assigned"]
    (released,) = rota.events(task=task_id, kind="task_released")
    assert released["data"] == {"after": "delay"}
    assert released["at"] >= at


def test_a_delay_counts_from_the_submission(rota: Rota) -> None:
    task_id = rota.submit_native(delayMs=60_000)
    task = look(rota, task_id)
    assert task["state"] == "scheduled"
    assert task["nextAttemptAt"] == task["notBefore"]
    assert parse_rfc3339(task["notBefore"]) <= parse_rfc3339(task["createdAt"]) + 60_000_000
    assert rota.get("/v1/stats").json["queue"]["waiting"] == 1
    assert rota.post(f"/v1/tasks/{task_id}/cancel").status == 200
    assert "nextAttemptAt" not in look(rota, task_id)


def test_a_moment_that_has_passed_delays_nothing(rota: Rota) -> None:
    for fields in ({"notBefore": "2020-01-01T00:00:00Z"}, {"delayMs": 0}):
        answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", **fields})
        assert answer.json["state"] == "ready"
        assert "notBefore" not in ended(rota, answer.json["taskId"])


def test_a_delayed_task_lets_later_ones_pass(rota: Rota) -> None:
    first = rota.submit_native(delayMs=60_000, priority=0)
    assert ended(rota, rota.submit_native(priority=3))["state"] == "succeeded"
    assert look(rota, first)["state"] == "scheduled"


def test_a_delay_goes_on_after_the_dependencies_are_met(rota: Rota) -> None:
    moment = soon(500)
    child = rota.submit_native(dependsOn=["parent"], notBefore=moment)
    assert look(rota, child)["state"] == "blocked"
    rota.submit_native(taskId="parent")
    assert ended(rota, child)["state"] == "succeeded"
    kinds = rota.kinds(child)
    assert kinds[:4] == ["task_submitted", "task_delayed", "task_released", "task_assigned"]
    delayed, released = rota.events(task=child)[1:3]
    assert delayed["data"]["until"] == parse_rfc3339(moment)
    assert released["data"]["after"] == "delay"
    assert released["at"] >= parse_rfc3339(moment)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"notBefore": "2099-01-01T00:00:00Z"}, "notBefore"),
        ({"delayMs": DEADLINE_S_MAX * 1000 + 1}, "delayMs"),
        ({"deadline": "2099-01-01T00:00:00Z"}, "deadline"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"notBefore": "2030-01-01T00:00:00Z", "delayMs": 5}, "delayMs"),
        ({"notBefore": "2030-01-01T00:00:00Z", "delayMs": 0}, "delayMs"),
        ({"notBefore": "2030-01-01T00:00:00"}, "notBefore"),
        ({"timeoutMs": 0}, "timeoutMs"),
        ({"queueTimeoutMs": 0}, "queueTimeoutMs"),
    ],
)
def test_moments_out_of_reason_are_refused(rota: Rota, fields: dict[str, Any], field: str) -> None:
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", **fields})
    assert (answer.status, answer.json["details"]) == (400, {"field": field})
    body = {"agentId": "ann", "tasks": [{"action": "echo", **fields}]}
    assert rota.post("/v1/batches", body).status == 400
    assert rota.get("/v1/tasks").json["count"] == 0


# -- over a restart ------------------------------------------------------------------------------


def test_every_clock_goes_on_over_a_restart(rota: Rota) -> None:
    moment = soon(700)
    waits = rota.submit_native(action="waits", queueTimeoutMs=400)
    dated = rota.submit_native(action="waits", deadline=moment)
    blocked = rota.submit_native(dependsOn=["later"], deadline=moment)
    delayed = rota.submit_native(notBefore=moment)
    timed = rota.submit_native(action="sleep", params={"ms": 60_000}, timeoutMs=400)
    rota.restart()
    assert end_of(rota, waits)["data"]["clock"] == "queue_timeout"
    assert end_of(rota, waits)["at"] >= rota.events(task=waits)[0]["at"] + 400_000
    assert end_of(rota, dated)["data"]["clock"] == "deadline"
    assert end_of(rota, blocked)["data"]["clock"] == "deadline"
    assert ended(rota, delayed)["state"] == "succeeded"
    (released,) = rota.events(task=delayed, kind="task_released")
    assert released["at"] >= parse_rfc3339(moment)
    event = end_of(rota, timed)
    assert event["data"]["code"] == "timeout"
    assert event["at"] >= rota.events(task=timed, kind="task_assigned")[-1]["at"] + 400_000


def test_moments_that_come_while_the_server_is_down_count_at_its_start(rota: Rota) -> None:
    moment = soon(400)
    expired = {
        rota.submit_native(action="waits", queueTimeoutMs=400): "queue_timeout",
        rota.submit_native(action="waits", deadline=moment): "deadline",
        rota.submit_native(delayMs=60_000, deadline=moment): "deadline",
    }
    delayed = rota.submit_native(notBefore=moment)
    running = rota.submit_native(action="sleep", params={"ms": 3_600_000}, deadline=moment)
    until(lambda: look(rota, running)["state"] in ("running", "failed"))
    rota.stop()
    past = parse_rfc3339(moment) + 100_000
    until(lambda: parse_rfc3339(soon(0)) > past, what="the moment has passed")
    rota.start()
    for task_id, clock in expired.items():
        assert end_of(rota, task_id)["data"]["clock"] == clock
    assert ended(rota, delayed)["state"] == "succeeded"
    assert ended(rota, running)["error"]["code"] == "deadline_exceeded"

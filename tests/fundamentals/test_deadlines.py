"""A deadline ends a task that was not done in time; a timeout ends one attempt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from support.http_server import Rota, Target, until


def in_a_moment() -> str:
    return (datetime.now(UTC) + timedelta(seconds=0.2)).isoformat()


def test_a_task_that_waits_too_long_fails(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "paint-the-house", deadline=in_a_moment())

    task = rota.ended(task_id)

    assert task["state"] == "failed"
    assert task["error"] == "deadline exceeded while queued"
    assert task["completedAt"] >= task["deadline"]


def test_a_task_that_runs_too_long_is_stopped(rota: Rota, browser: Target) -> None:
    task_id = rota.submit("ann", tabId="t", params={"hold": "ever"}, deadline=in_a_moment())

    assert rota.ended(task_id)["error"] == "deadline exceeded while running"
    until(lambda: browser.left, what="the browser sees the connection close")


def test_an_attempt_has_a_timeout_of_its_own(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "sleep", params={"ms": 60_000}, timeoutMs=50)

    assert rota.ended(task_id)["error"] == "attempt timed out after 50 ms"


def test_a_deadline_in_the_past_is_refused(rota: Rota) -> None:
    body = {"agentId": "ann", "action": "echo", "deadline": "2020-01-01T00:00:00Z"}

    assert rota.post("/v1/tasks", body).status == 400

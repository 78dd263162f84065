"""What was acknowledged is on disk: a restart keeps everything."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from support.http_server import Rota, RotaProcess, Target, until, with_tab

if TYPE_CHECKING:
    from pathlib import Path


def test_results_are_still_there(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "echo", params={"n": 1})
    task = rota.ended(task_id)

    rota.restart()

    assert rota.task(task_id) == task


def test_waiting_tasks_still_wait_in_their_order(rota: Rota, browser: Target) -> None:
    rota.post("/v1/agents/ann/pause")
    for tag in ("first", "second"):
        rota.submit("ann", tabId="t", params={"tag": tag})

    rota.restart()
    rota.post("/v1/agents/ann/resume")

    browser.wait_for(2)
    assert browser.tags() == ["first", "second"]


def test_a_running_task_runs_again(rota: Rota, browser: Target) -> None:
    task_id = rota.submit("ann", tabId="t", params={"hold": "a while"})
    browser.wait_for(1)

    rota.restart()
    browser.wait_for(2)
    browser.release("a while")

    assert rota.ended(task_id)["state"] == "done"
    assert "attempt_interrupted" in rota.kinds(task_id)
    assert rota.events(task=task_id)[-1]["data"]["attempt"] == 1


def test_a_task_that_must_not_run_twice_fails_instead(rota: Rota, browser: Target) -> None:
    task_id = rota.submit_native("ann", "sleep", params={"ms": 60_000}, onInterrupt="fail")
    rota.when(task_id, "running")

    rota.restart()

    task = rota.task(task_id)
    assert task["state"] == "failed"
    assert task["error"] == "the attempt was interrupted and the task must not run twice"


def test_a_callback_that_is_owed_is_still_delivered(rota: Rota, receiver: Target) -> None:
    receiver.respond = lambda _: (500, b"")
    task_id = rota.submit_native("ann", "echo", callbackUrl=receiver.url)
    until(lambda: "delivery_failed" in rota.kinds(task_id))

    rota.restart()
    receiver.respond = None

    until(lambda: "delivery_succeeded" in rota.kinds(task_id))
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


def test_even_a_killed_server_loses_nothing(tmp_path: Path, browser: Target) -> None:
    rota = RotaProcess(tmp_path, with_tab(browser))
    rota.start()
    done = rota.submit("ann", tabId="t")
    result = rota.ended(done)
    waiting = rota.submit_native("ann", "paint-the-house")
    rota.end(signal.SIGKILL)

    rota.start()

    assert rota.task(done) == result
    assert rota.task(waiting)["state"] == "queued"
    assert rota.end() == 0

"""Cancel a task, wherever it is."""

from __future__ import annotations

from support.http_server import Rota, Target, until


def test_a_waiting_task_never_starts(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "paint-the-house")

    assert rota.post(f"/v1/tasks/{task_id}/cancel", {"reason": "sold it"}).status == 200

    assert rota.task(task_id)["state"] == "cancelled"
    assert rota.kinds(task_id) == ["task_submitted", "task_cancelled"]


def test_a_running_task_is_interrupted(rota: Rota, browser: Target) -> None:
    task_id = rota.submit("ann", tabId="t", params={"hold": "for ever"})
    browser.wait_for(1)

    rota.post(f"/tasks/{task_id}/cancel")

    until(lambda: browser.left, what="the browser sees the connection close")
    assert rota.task(task_id)["state"] == "cancelled"


def test_once_cancelled_always_cancelled(rota: Rota, browser: Target) -> None:
    task_id = rota.submit("ann", tabId="t", params={"hold": "a while"})
    browser.wait_for(1)
    rota.post(f"/tasks/{task_id}/cancel")

    browser.release("a while")
    rota.ended(rota.submit("ann", tabId="t"))

    assert rota.task(task_id)["state"] == "cancelled"
    assert rota.post(f"/tasks/{task_id}/cancel").status == 409

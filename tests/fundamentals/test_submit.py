"""Submit a task and see its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.http_server import Rota, Target


def test_a_task_is_accepted_at_once_and_done_a_little_later(rota: Rota) -> None:
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", "params": {"n": 1}})

    assert answer.status == 202
    assert answer.json["state"] == "ready"

    task = rota.ended(answer.json["taskId"])
    assert task["state"] == "done"
    assert task["result"] == {"echo": {"n": 1}}


def test_a_task_that_fails_says_why(rota: Rota) -> None:
    task = rota.ended(rota.submit_native("ann", "fail", params={"message": "out of luck"}))

    assert task["state"] == "failed"
    assert task["error"] == "out of luck"


def test_a_browser_action_goes_to_its_tab(rota: Rota, browser: Target) -> None:
    task_id = rota.submit("ann", "click", tabId="tab-1", ref="e14")

    assert rota.ended(task_id)["result"] == {"success": True}
    (request,) = browser.requests
    assert request.path == "/tabs/tab-1/action"
    assert request.body == {"kind": "click", "ref": "e14"}


def test_a_task_that_nobody_runs_waits(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "paint-the-house")

    assert rota.get(f"/v1/tasks/{task_id}").json["state"] == "ready"


def test_a_mistake_is_answered_with_a_sentence(rota: Rota) -> None:
    answer = rota.post("/v1/tasks", {"agentId": "ann"})

    assert answer.status == 400
    assert answer.json["error"] == "missing required field 'action'"

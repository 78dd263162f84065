"""A callback URL that may not be called is refused by the name of its field, on every route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.http_server import Servers

BAD = "http://169.254.169.254/latest"
TASK = {"agentId": "ann", "action": "echo"}
TASKS = [TASK, {**TASK, "callbackUrl": BAD}]
ROW = {"agent_name": "a", "task_type": "t"}
ESCALATES = {"tasks": [TASK], "onFailure": "escalate", "escalate": {"callback": BAD}}
DAILY = {"name": "s", "cron": "0 3 * * *"}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/tasks", {**TASK, "callbackUrl": BAD}, "callbackUrl"),
    ("/v1/batches", {"tasks": [TASK], "callbackUrl": BAD}, "callbackUrl"),
    ("/v1/batches", {"tasks": TASKS}, "tasks.1.callbackUrl"),
    ("/v1/workflows", {"tasks": TASKS}, "tasks.1.callbackUrl"),
    ("/v1/workflows", ESCALATES, "escalate.callback"),
    ("/v1/schedules", {**DAILY, "task": TASKS[1]}, "task.callbackUrl"),
    ("/v1/schedules", {**DAILY, "workflow": {"tasks": TASKS}}, "workflow.tasks.1.callbackUrl"),
    ("/v1/schedules", {**DAILY, "workflow": ESCALATES}, "workflow.escalate.callback"),
    ("/v1/projects/p/tasks", {"action": "echo", "callbackUrl": BAD}, "callbackUrl"),
    ("/v1/projects/p/tasks", {"tasks": TASKS}, "tasks.1.callbackUrl"),
    ("/tasks", {**TASK, "callbackUrl": BAD}, "callbackUrl"),
    ("/tasks", {"instruction": "go", "webhookUrl": BAD}, "webhookUrl"),
    ("/tasks/batch", {"agentId": "a", "tasks": [{"action": "x"}], "callbackUrl": BAD},
     "callbackUrl"),
    ("/tasks/batch", {"tasks": [{"instruction": "go", "webhookUrl": BAD}]}, "tasks.0.webhookUrl"),
    ("/api/jobs", {"jobType": "scan", "payload": {}, "webhookUrl": BAD}, "webhookUrl"),
    ("/automechanica/tasks", {**ROW, "callback_url": BAD}, "callback_url"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "field"), CASES)
def test_a_refused_callback_names_its_field_and_the_setting(
    serve: Servers, path: str, body: dict[str, Any], field: str
) -> None:
    rota = serve({"types": {"scan": {"executor": "pull"}}})
    answer = rota.post(path, body)
    assert answer.status == 400, answer.body
    said = answer.json.get("details") or answer.json.get("data")
    assert said["field"] == field
    assert "webhooks.allowHosts" in answer.body.decode()
    assert rota.get("/v1/tasks").json["count"] == 0

"""/v1/tasks: submit, list, look, cancel, and a task's own history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import Refused
from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX
from rota.domain.task import TaskState
from rota.errors import NotFound
from rota.http import views
from rota.http.dialects.pinchtab import queue_full
from rota.http.models import ReasonBody, SubmitBody
from rota.http.submissions import command_from
from rota.http.tables import list_tasks

if TYPE_CHECKING:
    from rota.http.call import Call

STATES = {state.value: frozenset({state}) for state in TaskState}


async def submit(call: Call) -> Any:
    """POST /v1/tasks."""
    body = await call.body(SubmitBody)
    await call.check_callback(body.callbackUrl)
    command = command_from(call, body, body.agentId, "native", body.callbackUrl, call.now())
    (answer,) = await call.bridge.submit((command,))
    if isinstance(answer, Refused):
        raise queue_full(answer)
    return call.json(
        {
            "taskId": answer.task,
            "state": "ready",
            "position": answer.position,
            "createdAt": rfc3339(answer.created_at),
        },
        status=202,
    )


async def list_all(call: Call) -> Any:
    """GET /v1/tasks."""
    tasks, cursor = await list_tasks(call, STATES, rows=PAGE_ROWS, rows_max=PAGE_ROWS_MAX)

    def page() -> dict[str, Any]:
        body: dict[str, Any] = {"tasks": [call.view(task, views.native) for task in tasks]}
        body["count"] = len(tasks)
        if cursor is not None:
            body["nextCursor"] = cursor
        return body

    return call.json(await call.bridge.durable(page))


async def get_one(call: Call) -> Any:
    """GET /v1/tasks/{id}."""
    task_id = call.params["id"]
    found = await call.bridge.durable(lambda: call.view(call.bridge.task(task_id), views.native))
    return call.json(found)


async def cancel(call: Call) -> Any:
    """POST /v1/tasks/{id}/cancel."""
    body = await call.body(ReasonBody, optional=True)
    task_id = await call.bridge.cancel(call.params["id"], body.reason, call.by)
    return call.json({"taskId": task_id, "state": "cancelled"})


async def events(call: Call) -> Any:
    """GET /v1/tasks/{id}/events."""
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    records = call.bridge.shard.log.read_task(call.params["id"], limit)
    if not records:
        raise NotFound("task not found")
    return call.raw(b'{"events":[' + b",".join(r.body for r in records) + b"]}")

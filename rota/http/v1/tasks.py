"""/v1/tasks: submit, list, look, cancel, and a task's own history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import PAGE_ROWS, PAGE_ROWS_MAX
from rota.domain.task import TaskState
from rota.errors import NotFound
from rota.http import views
from rota.http.models import ReasonBody, SubmitBody
from rota.http.submissions import command_from, submit_one
from rota.http.tables import answer_list

if TYPE_CHECKING:
    from rota.http.call import Call

STATES = {state.value: frozenset({state}) for state in TaskState}


async def submit(call: Call) -> Any:
    """POST /v1/tasks."""
    body = await call.body(SubmitBody)
    await call.check_callback(body.callbackUrl)
    command = command_from(call, body, body.agentId, "native", body.callbackUrl, call.now())
    return await submit_one(call, command, "ready")


async def list_all(call: Call) -> Any:
    """GET /v1/tasks."""
    return await answer_list(call, STATES, views.native, rows=PAGE_ROWS, rows_max=PAGE_ROWS_MAX)


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

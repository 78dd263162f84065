"""Bare /tasks, which two documents own: says who is meant.

A body with `instruction` is BrowserOS's, one with `agentId` or `action` is PinchTab's, both is an
error. What is there already speaks the dialect it came in by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import LIST_ROWS_MAX
from rota.errors import InvalidRequest
from rota.http.dialects import browseros, pinchtab
from rota.http.tables import answer_list

if TYPE_CHECKING:
    from rota.domain.task import Task
    from rota.http.call import Call

STATES = {**browseros.NATIVE, **pinchtab.NATIVE}


def view(task: Task) -> dict[str, Any]:
    """Show a task as the dialect it came in by does."""
    return browseros.view(task) if task.dialect == browseros.NAME else pinchtab.view(task)


def _is_browseros(raw: Any) -> bool:
    """Tell whose body it is. Raises InvalidRequest if it is both's."""
    if not isinstance(raw, dict):
        return False
    items = raw.get("tasks")
    parts = [raw, *items] if isinstance(items, list) else [raw]
    parts = [part for part in parts if isinstance(part, dict)]
    instructed = any("instruction" in part for part in parts)
    if instructed and any("agentId" in part or "action" in part for part in parts):
        msg = "a body has either 'instruction' (BrowserOS) or 'agentId' and 'action' (PinchTab)"
        raise InvalidRequest(msg, code="ambiguous_dialect")
    return instructed


async def submit(call: Call) -> Any:
    """POST /tasks."""
    raw = await call.parsed()
    return await (browseros if _is_browseros(raw) else pinchtab).submit(call, raw)


async def submit_batch(call: Call) -> Any:
    """POST /tasks/batch."""
    raw = await call.parsed()
    return await (browseros if _is_browseros(raw) else pinchtab).submit_batch(call, raw)


async def list_all(call: Call) -> Any:
    """GET /tasks."""
    words = browseros.NATIVE if call.query("view") == browseros.NAME else STATES
    return await answer_list(
        call,
        words,
        view,
        rows=LIST_ROWS_MAX,
        rows_max=LIST_ROWS_MAX,
        hide_rejected=frozenset({browseros.NAME}),
    )


async def get_one(call: Call) -> Any:
    """GET /tasks/{id}."""
    task_id = call.params["id"]
    found = await call.bridge.durable(lambda: call.view(call.bridge.task(task_id), view))
    return call.json(found)


async def cancel(call: Call) -> Any:
    """POST /tasks/{id}/cancel, DELETE /tasks/{id}."""
    task = call.bridge.task(call.params["id"])
    if task.dialect == browseros.NAME:
        return await browseros.cancel(call, task.id)
    return await pinchtab.cancel(call)


async def retry(call: Call) -> Any:
    """POST /tasks/{id}/retry."""
    task_id = await call.bridge.retry(call.params["id"], call.by)
    word = view(call.bridge.task(task_id))["state"]
    return call.json({"taskId": task_id, "state": word}, status=202)

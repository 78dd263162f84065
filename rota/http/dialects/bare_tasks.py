"""Bare /tasks, which two documents own: says who is meant.

A body with `instruction` is BrowserOS's, one with `agentId` or `action` is PinchTab's, both is an
error. What is there already speaks the dialect it came in by. With `scheduler.enabled = false`
there is no PinchTab here: only BrowserOS's tasks are taken and shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import LIST_ROWS_MAX
from rota.errors import InvalidRequest
from rota.http.dialects import browseros, pinchtab
from rota.http.problems import HttpProblem
from rota.http.tables import answer_list

if TYPE_CHECKING:
    from rota.domain.task import Task
    from rota.http.call import Call

OWN = {browseros.NAME: browseros.NATIVE}


def view(task: Task) -> dict[str, Any]:
    """Show a task as the dialect it came in by does."""
    return browseros.view(task) if task.dialect == browseros.NAME else pinchtab.view(task)


def _is_browseros(raw: Any) -> bool:
    """Tell whose body it is. Raises InvalidRequest if it is both's."""
    if not isinstance(raw, dict):
        return False
    items = raw.get("tasks")
    if items == [] and "agentId" not in raw:
        return True  # nobody's, and the better complaint
    parts = [raw, *items] if isinstance(items, list) else [raw]
    parts = [part for part in parts if isinstance(part, dict)]
    instructed = any("instruction" in part for part in parts)
    if instructed and any("agentId" in part or "action" in part for part in parts):
        msg = "a body has either 'instruction' (BrowserOS) or 'agentId' and 'action' (PinchTab)"
        raise InvalidRequest(msg, code="ambiguous_dialect")
    return instructed


def _speaker(call: Call, *, is_browseros: bool) -> Any:
    """Give who answers; errors, too, are in their words. Raises HttpProblem."""
    found = browseros if is_browseros else pinchtab
    call.dialect = found.NAME
    if not is_browseros and _is_disabled(call):
        msg = "PinchTab's scheduler is disabled here (scheduler.enabled = false)"
        raise HttpProblem(404, "scheduler_disabled", msg)
    return found


def _is_disabled(call: Call) -> bool:
    return not call.app.settings.scheduler.enabled


async def submit(call: Call) -> Any:
    """POST /tasks."""
    raw = await call.parsed()
    return await _speaker(call, is_browseros=_is_browseros(raw)).submit(call, raw)


async def submit_batch(call: Call) -> Any:
    """POST /tasks/batch."""
    raw = await call.parsed()
    return await _speaker(call, is_browseros=_is_browseros(raw)).submit_batch(call, raw)


async def list_all(call: Call) -> Any:
    """GET /tasks."""
    is_one_view = call.query("view") == browseros.NAME or _is_disabled(call)
    return await answer_list(
        call,
        browseros.NATIVE if is_one_view else pinchtab.NATIVE,
        view,
        own={} if is_one_view else OWN,
        rows=LIST_ROWS_MAX,
        rows_max=LIST_ROWS_MAX,
        hide_rejected=frozenset({browseros.NAME}),
        dialect=browseros.NAME if _is_disabled(call) else None,
    )


async def get_one(call: Call) -> Any:
    """GET /tasks/{id}."""

    def show(task: Task) -> dict[str, Any]:
        _speaker(call, is_browseros=task.dialect == browseros.NAME)
        return call.view(task, view)

    return call.json(await call.sight.show_task(call.params["id"], show))


async def cancel(call: Call) -> Any:
    """POST /tasks/{id}/cancel, DELETE /tasks/{id}."""
    task = await call.sight.task(call.params["id"])
    return await _speaker(call, is_browseros=task.dialect == browseros.NAME).cancel(call, task.id)


async def retry(call: Call) -> Any:
    """POST /tasks/{id}/retry."""
    task = await call.sight.task(call.params["id"])
    _speaker(call, is_browseros=task.dialect == browseros.NAME)
    task_id = await call.bridge.retry(task.id, call.by)
    word = await call.sight.show_task(task_id, lambda task: view(task)["state"])
    return call.json({"taskId": task_id, "state": word}, status=202)

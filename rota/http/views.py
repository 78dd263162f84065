"""Tasks as the native API shows them.

Absent values are left out, never shown as a zero date. `latencyMs` is from start to completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339

if TYPE_CHECKING:
    from rota.domain.task import Task


def native(task: Task) -> dict[str, Any]:
    """Show a task natively."""
    view: dict[str, Any] = {
        "taskId": task.id,
        "agentId": task.agent,
        "action": task.action,
        "state": task.state.value,
        "priority": task.priority,
        "executor": task.executor,
        "dialect": task.dialect,
        "attempt": task.attempt,
    }
    add_common(view, task)
    if task.timeout_ms is not None:
        view["timeoutMs"] = task.timeout_ms
    if task.assigned_at:
        view["assignedAt"] = rfc3339(task.assigned_at)
    if task.interruptions:
        view["interruptions"] = task.interruptions
    if task.error is not None:
        view["error"] = {"code": task.error_code, "message": task.error}
        if task.error_details:
            view["error"]["details"] = task.error_details
    return view


_PLAIN = (
    ("tab", "tabId"),
    ("ref", "ref"),
    ("params", "params"),
    ("callback", "callbackUrl"),
    ("result", "result"),
)


def add_common(view: dict[str, Any], task: Task) -> None:
    """Add what every dialect shows under the same name."""
    if task.position:
        view["position"] = task.position
    for field, name in _PLAIN:
        value = getattr(task, field)
        if value is not None:
            view[name] = value
    if task.deadline is not None:
        view["deadline"] = rfc3339(task.deadline)
    view["createdAt"] = rfc3339(task.created_at)
    if task.started_at:
        view["startedAt"] = rfc3339(task.started_at)
    if task.finished_at:
        view["completedAt"] = rfc3339(task.finished_at)
        if task.started_at:
            view["latencyMs"] = (task.finished_at - task.started_at) // 1000

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


def add_common(view: dict[str, Any], task: Task) -> None:
    """Add what every dialect shows under the same name."""
    if task.position:
        view["position"] = task.position
    if task.tab is not None:
        view["tabId"] = task.tab
    if task.ref is not None:
        view["ref"] = task.ref
    if task.params is not None:
        view["params"] = task.params
    if task.deadline is not None:
        view["deadline"] = rfc3339(task.deadline)
    if task.callback is not None:
        view["callbackUrl"] = task.callback
    view["createdAt"] = rfc3339(task.created_at)
    if task.started_at:
        view["startedAt"] = rfc3339(task.started_at)
    if task.finished_at:
        view["completedAt"] = rfc3339(task.finished_at)
        if task.started_at:
            view["latencyMs"] = (task.finished_at - task.started_at) // 1000
    if task.result is not None:
        view["result"] = task.result

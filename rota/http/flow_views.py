"""Workflows as the native API shows them: how far they have come, their tasks and the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.http.views import state_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.domain.task import Task
    from rota.domain.workflow import Workflow

EDGES_SHOWN_MAX = 50_000


def flow_row(flow: Workflow) -> dict[str, Any]:
    """Show a workflow without its tasks."""
    total = len(flow.tasks)
    view: dict[str, Any] = {
        "workflowId": flow.id,
        "state": flow.state,
        "open": flow.is_open,
        "total": total,
        "counts": dict(flow.fates),
        "progress": round((total - flow.left) / total, 4) if total else 0.0,
        "failure": flow.failure,
        "createdAt": rfc3339(flow.created_at),
    }
    more = {
        "name": flow.name,
        "onFailure": flow.on_failure,
        "escalate": escalation_shown(flow.escalate),
        "escalationTaskId": flow.escalation_task,
        "callbackUrl": flow.callback,
        "pauseReason": flow.paused or None,
        "completedAt": rfc3339(flow.finished_at) if flow.finished_at else None,
    }
    return view | {name: value for name, value in more.items() if value is not None}


def escalation_shown(escalate: dict[str, Any] | None) -> dict[str, Any] | None:
    """Show an escalation in the words of its request."""
    task = (escalate or {}).get("task")
    if task is None:
        return escalate
    rest = {name: value for name, value in task.items() if name != "agent"}
    return {"task": {"agentId": task["agent"], **rest}}


def flow_view(flow: Workflow, tasks: Sequence[Task | None]) -> dict[str, Any]:
    """Show a workflow with its tasks, and which of them leads to which."""
    view = flow_row(flow)
    view["counts"] = state_counts(flow, tasks)
    found = [task for task in tasks if task is not None]
    view["tasks"] = [_task(task) for task in found]
    edges = [
        {"from": parent, "to": task.id}
        for task in found
        if task.plan is not None and task.plan.depends
        for parent in dict.fromkeys(task.plan.depends.values())
    ]
    view["edges"] = edges[:EDGES_SHOWN_MAX]
    if len(edges) > EDGES_SHOWN_MAX:
        view["edgesRest"] = len(edges) - EDGES_SHOWN_MAX
    return view


def _task(task: Task) -> dict[str, Any]:
    view = {
        "taskId": task.id,
        "agentId": task.agent,
        "action": task.action,
        "state": task.state.value,
    }
    if task.ref is not None:
        view["ref"] = task.ref
    if task.plan is not None and task.plan.follows is not None:
        view["followsTaskId"] = task.plan.follows
    return view

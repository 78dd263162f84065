"""Tasks as the native API shows them.

Absent values are left out, never shown as a zero date. `latencyMs` is from start to completion.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

from rota.clock import rfc3339
from rota.domain.commands import PULL
from rota.domain.packed import spliced
from rota.domain.plan import NO_PLAN, Plan, shown_in
from rota.domain.retry import RetryPolicy, policy_of
from rota.domain.task import BLOCKED, READY, SCHEDULED, TERMINAL
from rota.wording import NO_EXECUTOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.domain.batch import Batch
    from rota.domain.task import Task


def native(task: Task) -> dict[str, Any]:
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
    if task.on_interrupt is not None:
        view["onInterrupt"] = task.on_interrupt
    if task.assigned_at:
        view["assignedAt"] = rfc3339(task.assigned_at)
    if task.is_leased:
        view["workerId"] = task.worker
        view |= {"leaseExpiresAt": rfc3339(task.expires_at)} if task.expires_at else {}
    if task.interruptions:
        view["interruptions"] = task.interruptions
    if task.edited:
        view["edited"] = True
    if task.plan is not None or task.retries:
        _add_plan(view, task, task.plan or NO_PLAN)
    if task.notes is not None and task.notes.progress is not None:
        view["progress"] = task.notes.progress
    if task.error is not None:
        view["error" if task.state in TERMINAL else "lastError"] = _error(task)
    return view


def _error(task: Task) -> dict[str, Any]:
    error: dict[str, Any] = {"code": task.error_code, "message": task.error}
    if task.error_details:
        error["details"] = task.error_details
    return error


def _add_plan(view: dict[str, Any], task: Task, plan: Plan) -> None:
    """Add what a task asked for beyond the plain, and what it waits for."""
    view |= {
        name: value for name, value in zip(SHOWN, _shown(plan), strict=True) if value is not None
    }
    if plan.depends:
        view["dependsOn"] = list(dict.fromkeys(plan.depends.values()))
    if task.state is BLOCKED:
        view["waitingFor"] = sorted(task.waits or ())
    if plan.not_before is not None:
        view["notBefore"] = rfc3339(plan.not_before)
    if task.state is SCHEDULED:
        view["nextAttemptAt"] = rfc3339(task.next_at)
    if (policy := policy_of(task)) is not None:
        view["retry"] = retry(policy)
        view["maxAttempts"] = policy.max_attempts


def retry(policy: RetryPolicy) -> dict[str, Any]:
    """Show a whole policy."""
    return {to_camel(name): value for name, value in policy._asdict().items() if value is not None}


def dead(task: Task) -> dict[str, Any]:
    """Show what a person wants to know of a task that failed for good."""
    view: dict[str, Any] = {
        "taskId": task.id,
        "agentId": task.agent,
        "type": task.action,
        "error": {"code": task.error_code, "message": task.error},
        "params": spliced(task.params_json) if task.params_json is not None else {},
        "attempts": task.attempt,
        "failedAt": rfc3339(task.finished_at),
        "createdAt": rfc3339(task.created_at),
        "revivals": task.revivals,
    }
    if task.error_details:
        view["error"]["details"] = task.error_details
    if task.edited:
        view["edited"] = True
    plan = task.plan
    if plan is not None:
        belongs = {"workflowId": plan.workflow, "batchId": plan.batch}
        view |= {name: value for name, value in belongs.items() if value is not None}
    return view


SHOWN = tuple(shown_in(Plan).values())
"""The names of the wishes that are shown as they are; `_shown` gives their values."""
_shown = attrgetter(*shown_in(Plan))


def batch_view(batch: Batch, tasks: Sequence[Task | None]) -> dict[str, Any]:
    """Show a batch natively: how many of its tasks are where, and how far it has come."""
    ended = len(batch.tasks) - batch.left
    view: dict[str, Any] = {
        "batchId": batch.id,
        "state": "finished" if batch.finished_at else "running",
        "total": len(batch.tasks),
        "counts": state_counts(batch, tasks),
        "progress": round(ended / len(batch.tasks), 4) if batch.tasks else 1.0,
        "tasks": [{"taskId": t.id, "state": t.state.value} for t in tasks if t is not None],
        "createdAt": rfc3339(batch.created_at),
    }
    if batch.parallelism is not None:
        view["parallelism"] = batch.parallelism
    if batch.callback is not None:
        view["callbackUrl"] = batch.callback
    if batch.finished_at:
        view["completedAt"] = rfc3339(batch.finished_at)
    return view


def state_counts(batch: Batch, tasks: Sequence[Task | None]) -> dict[str, int]:
    """Count a batch's tasks by state, the live ones only where there are any."""
    live = Counter(t.state.value for t in tasks if t is not None and t.state not in TERMINAL)
    return {**live, **batch.fates}


def add_wait(view: dict[str, Any], task: Task) -> None:
    """Say of a task that nothing here can run what it waits for."""
    if task.state is READY and task.executor == PULL:
        view["waitReason"] = NO_EXECUTOR


_PLAIN = (
    ("tab", "tabId"),
    ("ref", "ref"),
    ("params_json", "params"),
    ("callback", "callbackUrl"),
    ("result_json", "result"),
)


def add_common(view: dict[str, Any], task: Task) -> None:
    """Add what every dialect shows under the same name."""
    add_wait(view, task)
    if task.position:
        view["position"] = task.position
    for field, name in _PLAIN:
        value = getattr(task, field)
        if value is not None:
            view[name] = spliced(value) if type(value) is bytes else value
    if task.deadline is not None:
        view["deadline"] = rfc3339(task.deadline)
    view["createdAt"] = rfc3339(task.created_at)
    if task.started_at:
        view["startedAt"] = rfc3339(task.started_at)
    if task.finished_at:
        view["completedAt"] = rfc3339(task.finished_at)
        if task.started_at:
            view["latencyMs"] = (task.finished_at - task.started_at) // 1000

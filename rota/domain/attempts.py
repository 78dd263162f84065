"""Decide: what an attempt's end means for its task.

Three rules live here. A result counts only if it comes from the attempt that holds the task's
fencing token; any other is refused and recorded. Cancel wins: a terminal task takes no result.
An interruption (the server went away) costs no attempt, but the fifth fails the task, so that one
which brings the server down cannot do it for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain import events as e
from rota.domain.task import ASSIGNED, BLAMELESS, IN_FLIGHT, ORDERLY, READY, TERMINAL, WAITING, Task
from rota.errors import Conflict

if TYPE_CHECKING:
    from rota.domain.commands import Outcome

INTERRUPTIONS_MAX = 5
QUEUED_TOO_LONG = "deadline exceeded while queued"
RAN_TOO_LONG = "deadline exceeded while running"


def decide_assignment(task: Task) -> e.TaskAssigned:
    """Give the task its next attempt."""
    assert task.state is READY, task.state
    return e.TaskAssigned(task.id, task.agent, task.attempt + 1)


def decide_start(task: Task | None, token: int) -> e.TaskStarted | None:
    """Begin the attempt that was assigned under `token`, if it is still the valid one."""
    if task is None or task.token != token or task.state is not ASSIGNED:
        return None
    return e.TaskStarted(task.id, task.agent, task.attempt)


def decide_result(
    task: Task, attempt: int, token: int, outcome: Outcome
) -> e.TaskSucceeded | e.TaskFailed | e.ResultRefused:
    """Accept the result of a valid attempt; refuse any other."""
    if task.token != token or task.state not in IN_FLIGHT:
        verdict = "succeeded" if outcome.ok else "failed"
        return e.ResultRefused(task.id, task.agent, attempt, verdict)
    if outcome.ok:
        return e.TaskSucceeded(task.id, task.agent, attempt, outcome.result)
    return e.TaskFailed(task.id, task.agent, attempt, outcome.code, outcome.error, outcome.details)


def decide_interruption(
    task: Task, reason: str
) -> tuple[e.AttemptInterrupted] | tuple[e.AttemptInterrupted, e.TaskFailed]:
    """Put a task whose attempt was cut off back into its queue, or end it."""
    interrupted = e.AttemptInterrupted(task.id, task.agent, task.attempt, reason)
    never_ran = reason == ORDERLY and task.state is ASSIGNED
    if task.on_interrupt == "fail" and not never_ran:
        error = "the attempt was interrupted and the task must not run twice"
        failed = e.TaskFailed(task.id, task.agent, task.attempt, "interrupted", error)
        return (interrupted, failed)
    if reason not in BLAMELESS and task.interruptions + 1 >= INTERRUPTIONS_MAX:
        error = f"interrupted {INTERRUPTIONS_MAX} times"
        failed = e.TaskFailed(task.id, task.agent, task.attempt, "interrupted", error)
        return (interrupted, failed)
    return (interrupted,)


def decide_cancel(task: Task, reason: str) -> e.TaskCancelled:
    """Cancel a task that has not ended. Raises Conflict."""
    if task.state in TERMINAL:
        raise Conflict(
            f"task is already {task.state.value}",
            details={"taskId": task.id, "state": task.state.value},
        )
    return e.TaskCancelled(task.id, task.agent, task.state.value, reason)


def decide_expiry(task: Task | None, now: int) -> e.TaskExpired | e.TaskFailed | None:
    """Fail a task whose deadline has passed; None if it has not, or the task has ended."""
    if task is None or task.deadline is None or now < task.deadline:
        return None
    if task.state in WAITING:
        return e.TaskExpired(task.id, task.agent, "deadline", QUEUED_TOO_LONG)
    if task.state in IN_FLIGHT:
        return e.TaskFailed(task.id, task.agent, task.attempt, "deadline_exceeded", RAN_TOO_LONG)
    return None


def decide_timeout(task: Task | None, token: int, now: int) -> e.TaskFailed | None:
    """Fail the attempt that has run past its own timeout; None if it is not the valid one."""
    if task is None or task.timeout_ms is None or task.state not in IN_FLIGHT:
        return None
    if task.token != token or now < task.assigned_at + task.timeout_ms * 1000:
        return None
    error = f"attempt timed out after {task.timeout_ms} ms"
    return e.TaskFailed(task.id, task.agent, task.attempt, "timeout", error)

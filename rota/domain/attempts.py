"""Decide: what an attempt's end means for its task.

Three rules live here. A result counts only if it comes from the attempt that holds the task's
fencing token; any other is refused and recorded. Cancel wins: a terminal task takes no result.
An interruption (the server went away) costs no attempt, but the fifth fails the task, so that one
which brings the server down cannot do it for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.commands import AGENT_LIMIT, INFLIGHT_LIMIT, Outcome
from rota.domain.retry import decide_failure
from rota.domain.task import (
    ASSIGNED,
    BLAMELESS,
    BLOCKED,
    FAILED,
    FAULTED,
    IN_FLIGHT,
    LEASE_EXPIRED,
    ORDERLY,
    PREEMPTED,
    READY,
    RELEASED,
    SCHEDULED,
    TERMINAL,
    UNREAD,
    WAITING,
    limits_of,
)
from rota.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.domain.task import Task

INTERRUPTIONS_MAX = 5
REVIVALS_MAX = 50
"""How often one task can be retried by hand: its history is read as a whole."""
INTERNAL_FAULT = "internal_fault"
QUEUED_TOO_LONG = "deadline exceeded while queued"
RAN_TOO_LONG = "deadline exceeded while running"


def decide_assignment(
    task: Task, worker: str | None = None, lease_ms: int | None = None
) -> e.TaskAssigned:
    """Give a task its slot, to be run here or lent to a worker."""
    assert task.state is READY, task.state
    return e.TaskAssigned(task.id, task.agent, task.attempt + 1, worker, lease_ms)


def decide_start(task: Task | None, token: int) -> e.TaskStarted | None:
    """Begin the attempt that was assigned under `token`, if it is still the valid one."""
    if task is None or task.token != token or task.state is not ASSIGNED:
        return None
    return e.TaskStarted(task.id, task.agent, task.attempt)


def decide_result(
    task: Task, attempt: int, token: int, outcome: Outcome, now: int, draw: float
) -> e.TaskSucceeded | e.TaskFailed | e.AttemptFailed | e.ResultRefused:
    """Accept the result of a valid attempt; refuse any other.

    `draw`, from 0 to 1, is the luck that a retry's jitter is made of.
    """
    if task.token != token or task.state not in IN_FLIGHT:
        verdict = "succeeded" if outcome.ok else "failed"
        return e.ResultRefused(task.id, task.agent, attempt, verdict)
    if outcome.ok:
        return e.TaskSucceeded(task.id, task.agent, attempt, outcome.result)
    return decide_failure(task, outcome, now, draw)


def decide_interruption(
    task: Task, reason: str
) -> tuple[e.AttemptInterrupted] | tuple[e.AttemptInterrupted, e.TaskFailed]:
    """Put a task whose attempt was cut off back into its queue, or end it."""
    error = None
    if reason == LEASE_EXPIRED:
        error = f"worker {task.worker} was silent until its lease expired"
    interrupted = e.AttemptInterrupted(task.id, task.agent, task.attempt, reason, error=error)
    if task.on_interrupt == "fail" and not has_not_begun(task, reason):
        error = "the attempt was interrupted and the task must not run twice"
        failed = e.TaskFailed(task.id, task.agent, task.attempt, "interrupted", error)
        return (interrupted, failed)
    if reason not in BLAMELESS and task.interruptions + 1 >= INTERRUPTIONS_MAX:
        error = f"interrupted {INTERRUPTIONS_MAX} times"
        failed = e.TaskFailed(task.id, task.agent, task.attempt, "interrupted", error)
        return (interrupted, failed)
    return (interrupted,)


def has_not_begun(task: Task, reason: str) -> bool:
    """Whether an attempt that is interrupted for a reason has done nothing for sure."""
    return reason == RELEASED or (reason in (ORDERLY, UNREAD) and task.state is ASSIGNED)


def decide_giving_up(task: Task) -> tuple[e.Event, ...]:
    """Do something visible about a task that rota itself has failed on twice.

    An attempt is interrupted, and the fifth interruption is the last. A task that waits for others
    or for its moment is cancelled: a revival could not make up for what it has missed.
    """
    if task.state in IN_FLIGHT:
        return decide_interruption(task, FAULTED)
    error = "rota failed on this task twice; its log and /v1/events say how"
    if task.state is READY:
        return (e.TaskFailed(task.id, task.agent, task.attempt, INTERNAL_FAULT, error),)
    return (decide_cancel(task, error, INTERNAL_FAULT),) if task.state in WAITING else ()


def decide_cancel(task: Task, reason: str, code: str | None = None) -> e.TaskCancelled:
    """Cancel a task that has not ended. Raises Conflict."""
    if task.state in TERMINAL:
        raise Conflict(
            f"task is already {task.state.value}",
            details={"taskId": task.id, "state": task.state.value},
        )
    return e.TaskCancelled(task.id, task.agent, task.state.value, reason, code)


def decide_expiry(task: Task | None, now: int) -> e.TaskExpired | e.TaskFailed | None:
    """Fail a task whose deadline has passed; None if it has not, or the task has ended."""
    if task is None or task.deadline is None or now < task.deadline:
        return None
    if task.state in WAITING:
        return e.TaskExpired(task.id, task.agent, "deadline", QUEUED_TOO_LONG)
    if task.state in IN_FLIGHT:
        return e.TaskFailed(task.id, task.agent, task.attempt, "deadline_exceeded", RAN_TOO_LONG)
    return None


def decide_timeout(
    task: Task | None, token: int, now: int, draw: float
) -> e.TaskFailed | e.AttemptFailed | None:
    """Fail the attempt that has run past its own timeout; None if it is not the valid one."""
    if task is None or task.timeout_ms is None or task.state not in IN_FLIGHT:
        return None
    if task.token != token or now < task.assigned_at + task.timeout_ms * 1000:
        return None
    error = f"attempt timed out after {task.timeout_ms} ms"
    return decide_failure(task, Outcome(ok=False, code="timeout", error=error), now, draw)


def decide_release(task: Task | None, now: int) -> e.TaskReleased | e.TaskDelayed | None:
    """Make a task ready whose dependencies are met or whose moment has come; None if neither."""
    if task is None:
        return None
    if task.state is BLOCKED and not task.waits:
        return decide_freeing(task, now)
    if task.state is SCHEDULED and now >= task.next_at:
        after = "backoff" if task.attempt > task.spent_before else "delay"
        return e.TaskReleased(task.id, task.agent, after)
    return None


def decide_next_try(failed: e.AttemptFailed, now: int) -> tuple[e.TaskReleased, ...]:
    """Release a task at once whose next attempt has nothing to wait for."""
    if failed.next_at > now:
        return ()
    return (e.TaskReleased(failed.task, failed.agent, "backoff"),)


def decide_freeing(task: Task, now: int) -> e.TaskReleased | e.TaskDelayed:
    """Let a blocked task go whose last dependency is met, or have it wait for its moment.

    One that was put back on its project's list may have a backoff before it.
    """
    not_before = task.plan.not_before if task.plan is not None else None
    until = max(not_before or 0, task.next_at)
    if now < until:
        return e.TaskDelayed(task.id, task.agent, until)
    return e.TaskReleased(task.id, task.agent, "dependencies")


def decide_queue_timeout(task: Task | None, entry: int, now: int) -> e.TaskExpired | None:
    """Fail a task that has been ready for too long since it entered its queue at `entry`."""
    if task is None or task.plan is None or task.state is not READY or task.entry != entry:
        return None
    limit_ms = task.plan.queue_timeout_ms
    if limit_ms is None or now < task.ready_at + limit_ms * 1000:
        return None
    error = f"waited longer than {limit_ms} ms to be dispatched"
    return e.TaskExpired(task.id, task.agent, "queue_timeout", error)


def decide_revival(task: Task, now: int, params: dict[str, Any] | None = None) -> e.TaskRevived:
    """Give a failed task a new life, unless it had many or its deadline is over. Raises Conflict.

    It goes on with other `params` if they are given.

    Whoever failed before its dependencies were met or its moment had come did so by its deadline:
    all others have nothing more to wait for. (A deadline that has passed once may lie ahead again,
    when the clock was set back; what it has ended stays ended.)
    """
    details = {"taskId": task.id, "state": task.state.value}
    if task.state is not FAILED:
        msg = f"only a failed task can be retried; this one is {task.state.value}"
        raise Conflict(msg, details=details)
    check_revivable(task, now)
    if params is None:
        return e.TaskRevived(task.id, task.agent)
    return e.TaskRevived(task.id, task.agent, params=params, edited=True)


def check_revivable(task: Task, now: int) -> None:
    """Refuse a new life after too many of them, or after the deadline. Raises Conflict."""
    details = {"taskId": task.id, "state": task.state.value}
    if task.revivals >= REVIVALS_MAX:
        msg = f"the task was retried {task.revivals} times already, which is the most there is"
        raise Conflict(msg, code="too_many_retries", details=details, hint="submit it again")
    deadline = task.deadline
    has_met_it = task.error_code == "deadline_exceeded"
    if deadline is not None and (deadline <= now or has_met_it):
        msg = "the task's deadline has passed"
        raise Conflict(msg, code="deadline_passed", details=details, hint="submit it again")


def decide_preemption(
    task: Task, held_by: tuple[str, ...], running: Iterable[Task]
) -> tuple[e.AttemptInterrupted, e.TaskAssigned] | None:
    """Let a ready task take the place of a less urgent one of its own agent, if that frees a way.

    `held_by` are the limits that hold it back; a victim must free every one of them. The least
    urgent goes, among equals the one that has run shortest. What must not run twice is no victim.
    """
    own = (INFLIGHT_LIMIT, AGENT_LIMIT)
    needed = {limit for limit in held_by if not limit.startswith(own)}
    victims = [
        other
        for other in running
        if other.priority > task.priority
        and other.on_interrupt != "fail"
        and needed.issubset(limits_of(other.lane))
    ]
    if not victims:
        return None
    victim = max(victims, key=lambda other: (other.priority, other.token))
    return (
        e.AttemptInterrupted(victim.id, victim.agent, victim.attempt, PREEMPTED, task.id),
        decide_assignment(task),
    )

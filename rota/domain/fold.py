"""The fold: what each event does to its task.

`evolve` is total and deterministic: it accepts every event that was ever written and never looks
at a clock. It changes the task in place, because a million of them are folded at every start;
nobody but a projection may call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.commands import PULL
from rota.domain.packed import packed
from rota.domain.task import (
    ASSIGNED,
    BLAMELESS,
    BLOCKED,
    CANCELLED,
    FAILED,
    NO_PLAN,
    READY,
    REJECTED,
    RUNNING,
    SCHEDULED,
    SUCCEEDED,
    Notes,
    Plan,
    Task,
    lane_for,
    lane_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAN_FROM = e.TaskSubmitted._fields.index("key")
assert e.TaskSubmitted._fields[_PLAN_FROM:] == Plan._fields


def born(record: e.Record) -> Task:
    """Make the task that a `TaskSubmitted` or `TaskRejected` tells of."""
    event: e.TaskSubmitted | e.TaskRejected = record.event  # type: ignore[assignment]
    task = Task.__new__(Task)
    task.id = event.task
    task.agent = event.agent
    task.action = event.action
    task.params_json = packed(event.params)
    task.priority = event.priority
    task.dialect = event.dialect
    task.tab = event.tab
    task.ref = event.ref
    task.callback = event.callback
    task.deadline = event.deadline
    task.by = record.by
    task.created_at = task.ready_at = record.at
    task.created_seq = record.seq
    task.rank = event.priority
    task.entry = task.attempt = task.token = task.assigned_at = task.started_at = 0
    task.interruptions = task.next_at = task.spent_before = task.weight = task.begun_at = 0
    task.revivals = 0
    task.holds = False
    task.result_json = task.error_details = task.notes = task.plan = task.waits = None
    if type(event) is e.TaskSubmitted:
        task.executor = event.executor
        task.position = event.position
        task.timeout_ms = event.timeout_ms
        task.on_interrupt = event.on_interrupt
        task.state = READY
        task.error = task.error_code = None
        task.finished_at = task.ended_seq = 0
        if event.waits is not None or event[_PLAN_FROM:] != NO_PLAN:
            _plan(record, event, task)
            return task
    else:
        rejected: e.TaskRejected = event  # type: ignore[assignment]
        task.executor = PULL
        task.position = 0
        task.timeout_ms = task.on_interrupt = None
        task.state = REJECTED
        task.error, task.error_code = rejected.error, rejected.code
        task.finished_at, task.ended_seq = record.at, record.seq
    task.lane = lane_of(task.executor, task.action)
    return task


def _plan(record: e.Record, event: e.TaskSubmitted, task: Task) -> None:
    """Give a task what it asked for beyond the plain."""
    task.plan = Plan(*event[_PLAN_FROM:])  # type: ignore[arg-type]  # the same fields, in order
    if event.waits:
        task.state = BLOCKED
        task.waits = set(event.waits)
    elif event.not_before is not None and event.not_before > record.at:
        task.state = SCHEDULED
        task.next_at = event.not_before
    task.lane = lane_for(task)


def _released(record: e.Record, task: Task) -> None:
    task.state = READY
    task.ready_at = record.at
    task.next_at = 0


def _delayed(record: e.Record, task: Task) -> None:
    event: e.TaskDelayed = record.event  # type: ignore[assignment]
    task.state = SCHEDULED
    task.next_at = event.until


def _revived(record: e.Record, task: Task) -> None:
    task.state = READY
    task.ready_at = record.at
    task.finished_at = task.ended_seq = task.next_at = task.interruptions = 0
    task.spent_before = task.attempt
    task.revivals += 1
    task.error = task.error_code = task.error_details = None


def _assigned(record: e.Record, task: Task) -> None:
    event: e.TaskAssigned = record.event  # type: ignore[assignment]
    task.state = ASSIGNED
    task.attempt = event.attempt
    task.token = record.seq
    task.assigned_at = record.at
    task.started_at = 0


def _started(record: e.Record, task: Task) -> None:
    task.state = RUNNING
    task.started_at = record.at
    task.begun_at = task.begun_at or record.at


def _succeeded(record: e.Record, task: Task) -> None:
    event: e.TaskSucceeded = record.event  # type: ignore[assignment]
    task.state = SUCCEEDED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.result_json = packed(event.result)
    task.error = task.error_code = task.error_details = None


def _failed(record: e.Record, task: Task) -> None:
    event: e.TaskFailed = record.event  # type: ignore[assignment]
    task.state = FAILED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.error, task.error_code, task.error_details = event.error, event.code, event.details


def _attempt_failed(record: e.Record, task: Task) -> None:
    event: e.AttemptFailed = record.event  # type: ignore[assignment]
    task.state = SCHEDULED
    task.next_at = event.next_at
    task.error, task.error_code, task.error_details = event.error, event.code, event.details


def _expired(record: e.Record, task: Task) -> None:
    event: e.TaskExpired = record.event  # type: ignore[assignment]
    task.state = FAILED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.error, task.error_code = event.error, f"{event.clock}_exceeded"
    task.error_details = None


def _cancelled(record: e.Record, task: Task) -> None:
    event: e.TaskCancelled = record.event  # type: ignore[assignment]
    task.state = CANCELLED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.error = task.error_code = task.error_details = None
    if event.reason:
        task.error, task.error_code = event.reason, event.code or "cancelled"


def _interrupted(record: e.Record, task: Task) -> None:
    event: e.AttemptInterrupted = record.event  # type: ignore[assignment]
    task.state = READY
    task.ready_at = record.at
    task.attempt -= 1
    if event.reason not in BLAMELESS:
        task.interruptions += 1


def _logged(record: e.Record, task: Task) -> None:
    event: e.TaskLogged = record.event  # type: ignore[assignment]
    notes = task.notes or Notes()
    task.notes = notes._replace(lines=notes.lines + len(event.lines))


def _progressed(record: e.Record, task: Task) -> None:
    event: e.TaskProgressed = record.event  # type: ignore[assignment]
    notes = task.notes or Notes()
    task.notes = notes._replace(reports=notes.reports + 1, progress=event.progress)


FOLDS: dict[type[Any], Callable[[e.Record, Task], None]] = {
    e.TaskReleased: _released,
    e.TaskDelayed: _delayed,
    e.TaskRevived: _revived,
    e.TaskAssigned: _assigned,
    e.TaskStarted: _started,
    e.TaskSucceeded: _succeeded,
    e.TaskFailed: _failed,
    e.AttemptFailed: _attempt_failed,
    e.TaskLogged: _logged,
    e.TaskProgressed: _progressed,
    e.TaskExpired: _expired,
    e.TaskCancelled: _cancelled,
    e.AttemptInterrupted: _interrupted,
}
"""What each event does to its task."""

NOTES = (e.TaskLogged, e.TaskProgressed)
TASK_EVENTS: tuple[type[Any], ...] = (
    e.TaskSubmitted,
    e.TaskRejected,
    *(kind for kind in FOLDS if kind not in NOTES),
)
"""The events that make a task or move it from one state to another."""


def carry_over(task: Task, by_us: int) -> None:
    """Tell a task's moments by a clock that was set by so much.

    What is counted from something that happened moves with it; a moment that the client named (a
    deadline, a `not_before`) stays where it is.
    """
    task.created_at += by_us
    task.ready_at += by_us
    if task.assigned_at:
        task.assigned_at += by_us
    if task.started_at:
        task.started_at += by_us
    if task.begun_at:
        task.begun_at += by_us
    if task.finished_at:
        task.finished_at += by_us
    plan = task.plan
    is_delay = plan is not None and plan.delay_ms is not None
    if task.next_at and (is_delay or task.attempt > task.spent_before):
        task.next_at += by_us
    if plan is not None:
        if is_delay and plan.not_before is not None:
            plan = plan._replace(not_before=plan.not_before + by_us)
        if plan.dedup_until is not None:
            plan = plan._replace(dedup_until=plan.dedup_until + by_us)
        task.plan = plan


def evolve(task: Task, record: e.Record) -> None:
    """Fold one event into the task; events that say nothing of its state leave it as it is."""
    fold = FOLDS.get(type(record.event))
    if fold is not None:
        fold(record, task)

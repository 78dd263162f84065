"""The fold: what each event does to its task.

`evolve` is total and deterministic: it accepts every event that was ever written and never looks
at a clock. It changes the task in place, because a million of them are folded at every start: only
who owns a task may call it, a projection or whoever rebuilds one from its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.commands import PULL
from rota.domain.packed import packed
from rota.domain.plan import NO_PLAN
from rota.domain.task import (
    ASSIGNED,
    BLAMELESS,
    BLOCKED,
    CANCELLED,
    FAILED,
    READY,
    REJECTED,
    RUNNING,
    SCHEDULED,
    SUCCEEDED,
    Notes,
    Task,
    begin,
    lane_for,
    lane_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

AWAITED_PROJECT = "project/"
"""What a project is awaited by, with its id: no task's id has a slash, so no task can end that."""


def born(record: e.Record[e.TaskSubmitted | e.TaskRejected]) -> Task:
    event = record.event
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
    begin(task)
    if isinstance(event, e.TaskSubmitted):
        task.executor = event.executor
        task.position = event.position
        task.timeout_ms = event.timeout_ms
        task.on_interrupt = event.on_interrupt
        task.state = READY
        if event.plan is not None or event.waits is not None:
            _plan(event, task, record.at)
            return task
    else:
        task.executor = PULL
        task.position = 0
        task.timeout_ms = task.on_interrupt = None
        task.state = REJECTED
        task.error, task.error_code = event.error, event.code
        task.finished_at, task.ended_seq = record.at, record.seq
    task.lane = lane_of(task.executor, task.action)
    return task


def _plan(event: e.TaskSubmitted, task: Task, at: int) -> None:
    """Give a task what it asked for beyond the plain."""
    task.plan = plan = event.plan or NO_PLAN
    if event.waits:
        task.state = BLOCKED
        task.waits = set(event.waits)
    elif plan.not_before is not None and plan.not_before > at:
        task.state = SCHEDULED
        task.next_at = plan.not_before
    task.lane = lane_for(task)


def _released(record: e.Record[e.TaskReleased], task: Task) -> None:
    task.state = READY
    task.ready_at = record.at
    task.next_at = 0
    _selected(record.event.run, task)


def _selected(run: str | None, task: Task) -> None:
    if run is not None and task.plan is not None:
        task.plan = task.plan._replace(run=run)


def _delayed(record: e.Record[e.TaskDelayed], task: Task) -> None:
    event = record.event
    task.state = SCHEDULED
    task.next_at = event.until
    task.touched_at = record.at
    _selected(event.run, task)


def _held(record: e.Record[e.TaskHeld], task: Task) -> None:
    task.state, task.waits = BLOCKED, {AWAITED_PROJECT + record.event.project}
    if task.attempt == task.spent_before:  # else its next attempt waits for its moment still
        task.next_at = 0
    task.touched_at = record.at


def _revived(record: e.Record[e.TaskRevived], task: Task) -> None:
    event = record.event
    if task.state is CANCELLED:
        task.state, task.waits = BLOCKED, set(event.waits or ())
    else:
        task.state, task.waits = READY, None
    if event.edited:
        task.params_json = packed(event.params)
        task.edited = True
    task.ready_at = record.at
    task.finished_at = task.ended_seq = task.next_at = task.interruptions = 0
    task.spent_before = task.attempt
    task.revivals += 1
    task.error = task.error_code = task.error_details = None


def _assigned(record: e.Record[e.TaskAssigned], task: Task) -> None:
    event = record.event
    task.state = ASSIGNED
    task.attempt = event.attempt
    task.token = record.seq
    task.assigned_at = record.at
    task.started_at = 0
    task.worker = event.worker
    task.lease_ms = event.lease_ms or 0


def _started(record: e.Record[e.TaskStarted], task: Task) -> None:
    task.state = RUNNING
    task.started_at = record.at
    task.begun_at = task.begun_at or record.at


def _succeeded(record: e.Record[e.TaskSucceeded], task: Task) -> None:
    event = record.event
    task.state = SUCCEEDED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.result_json = packed(event.result)
    task.error = task.error_code = task.error_details = None


def _failed(record: e.Record[e.TaskFailed], task: Task) -> None:
    event = record.event
    task.state = FAILED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.error, task.error_code, task.error_details = event.error, event.code, event.details


def _attempt_failed(record: e.Record[e.AttemptFailed], task: Task) -> None:
    event = record.event
    task.state = SCHEDULED
    task.next_at = event.next_at
    task.touched_at = record.at
    task.error, task.error_code, task.error_details = event.error, event.code, event.details


def _expired(record: e.Record[e.TaskExpired], task: Task) -> None:
    event = record.event
    task.state = FAILED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.error, task.error_code = event.error, f"{event.clock}_exceeded"
    task.error_details = None


def _cancelled(record: e.Record[e.TaskCancelled], task: Task) -> None:
    event = record.event
    task.state = CANCELLED
    task.finished_at, task.ended_seq = record.at, record.seq
    task.error = task.error_code = task.error_details = None
    if event.reason:
        task.error, task.error_code = event.reason, event.code or "cancelled"


def _reprioritised(record: e.Record[e.TaskReprioritised], task: Task) -> None:
    event = record.event
    task.priority = task.rank = event.priority
    task.lane = lane_for(task)
    task.touched_at = record.at


def _interrupted(record: e.Record[e.AttemptInterrupted], task: Task) -> None:
    event = record.event
    task.state = READY
    task.ready_at = record.at
    task.attempt -= 1
    if event.reason not in BLAMELESS:
        task.interruptions += 1
    if event.error is not None:
        task.error, task.error_code = event.error, event.reason.replace(" ", "_")
        task.error_details = None


def _logged(record: e.Record[e.TaskLogged], task: Task) -> None:
    event = record.event
    notes = task.notes or Notes()
    task.touched_at = record.at
    task.notes = notes._replace(lines=notes.lines + len(event.lines))


def _progressed(record: e.Record[e.TaskProgressed], task: Task) -> None:
    event = record.event
    notes = task.notes or Notes()
    task.touched_at = record.at
    task.notes = notes._replace(reports=notes.reports + 1, progress=event.progress)


FOLDS: dict[type[Any], Callable[[e.Record[Any], Task], None]] = {
    e.TaskReleased: _released,
    e.TaskDelayed: _delayed,
    e.TaskHeld: _held,
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
    e.TaskReprioritised: _reprioritised,
    e.AttemptInterrupted: _interrupted,
}
"""What each event does to its task."""

NOTES = (e.TaskLogged, e.TaskProgressed)
TASK_EVENTS: tuple[type[Any], ...] = (
    e.TaskSubmitted,
    e.TaskRejected,
    *(kind for kind in FOLDS if kind not in NOTES),
)
"""The events that make a task or move it; one only moves it within its queue."""


_MOMENTS = (
    "created_at", "ready_at", "assigned_at", "started_at", "begun_at", "finished_at", "touched_at",
)  # fmt: skip


def carry_over(task: Task, by_us: int, kept_until: int = 0) -> None:
    """Tell a task's moments by a clock that was set by so much.

    What is counted from something that happened moves with it, unless that was at `kept_until` or
    before; a moment that the client named (a deadline, a `not_before`) stays where it is.
    """
    is_new, is_tried = task.created_at > kept_until, task.assigned_at > kept_until
    for name in _MOMENTS:
        if (at := getattr(task, name)) > kept_until:
            setattr(task, name, at + by_us)
    plan = task.plan
    is_delay = plan is not None and plan.delay_ms is not None
    if task.next_at and (is_new if is_delay else is_tried and task.attempt > task.spent_before):
        task.next_at += by_us
    if plan is not None and is_new:
        if is_delay and plan.not_before is not None:
            plan = plan._replace(not_before=plan.not_before + by_us)
        if plan.dedup_until is not None:
            plan = plan._replace(dedup_until=plan.dedup_until + by_us)
        task.plan = plan


def evolve(task: Task, record: e.Record[e.Event]) -> None:
    """Fold one event into the task; events that say nothing of its state leave it as it is."""
    fold = FOLDS.get(type(record.event))
    if fold is not None:
        fold(record, task)

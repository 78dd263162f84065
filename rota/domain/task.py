"""The task: its states, the table of legal moves, and the fold.

`evolve` is total and deterministic: it accepts every event that was ever written and never looks
at a clock. It changes the task in place, because a million of them are folded at every start;
nobody but a projection may call it. Deciding (which may refuse) is left to admission, dispatch
and attempts. docs/state_machine.md draws `MOVES`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.commands import PULL, PUSH_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable


class TaskState(StrEnum):
    """Where a task is."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    READY = "ready"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


BLOCKED, SCHEDULED, READY = TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY
ASSIGNED, RUNNING = TaskState.ASSIGNED, TaskState.RUNNING
SUCCEEDED, FAILED = TaskState.SUCCEEDED, TaskState.FAILED
CANCELLED, REJECTED = TaskState.CANCELLED, TaskState.REJECTED

TERMINAL = frozenset({SUCCEEDED, FAILED, CANCELLED, REJECTED})
WAITING = frozenset({BLOCKED, SCHEDULED, READY})
IN_FLIGHT = frozenset({ASSIGNED, RUNNING})

MOVES: dict[TaskState | None, dict[str, TaskState]] = {
    None: {"task_submitted": READY, "task_rejected": REJECTED},
    BLOCKED: {"task_cancelled": CANCELLED, "task_expired": FAILED},
    SCHEDULED: {"task_cancelled": CANCELLED, "task_expired": FAILED},
    READY: {
        "task_assigned": ASSIGNED,
        "task_cancelled": CANCELLED,
        "task_expired": FAILED,
        "task_failed": FAILED,  # right after an interruption that must not be repeated
    },
    ASSIGNED: {
        "task_started": RUNNING,
        "task_succeeded": SUCCEEDED,
        "task_failed": FAILED,
        "task_cancelled": CANCELLED,
        "attempt_interrupted": READY,
    },
    RUNNING: {
        "task_succeeded": SUCCEEDED,
        "task_failed": FAILED,
        "task_cancelled": CANCELLED,
        "attempt_interrupted": READY,
    },
    SUCCEEDED: {},
    FAILED: {},
    CANCELLED: {},
    REJECTED: {},
}
"""The legal moves: from a state, by an event, to a state."""

ORDERLY = "shutdown"
LOG_FAILED = "log failed"
BLAMELESS = frozenset({ORDERLY, LOG_FAILED})
"""The reasons of an interruption that the task cannot have caused."""

Lane = tuple[str, str]
"""Tasks of one agent that are held back by the same limits: (executor, action)."""


class Task:
    """One task as the log tells it.

    `entry` is the backlog's mark (the seq of its entry in the queue, 0 when it does not wait)
    and `holds` the slots' (it holds a slot); they make leaving a queue and freeing a slot
    happen exactly once.
    """

    __slots__ = (
        "action",
        "agent",
        "assigned_at",
        "attempt",
        "by",
        "callback",
        "created_at",
        "created_seq",
        "deadline",
        "dialect",
        "entry",
        "error",
        "error_code",
        "error_details",
        "executor",
        "finished_at",
        "holds",
        "id",
        "interruptions",
        "lane",
        "on_interrupt",
        "params",
        "position",
        "priority",
        "ready_at",
        "ref",
        "result",
        "started_at",
        "state",
        "tab",
        "timeout_ms",
        "token",
    )

    id: str
    agent: str
    action: str
    executor: str
    params: dict[str, Any] | None
    priority: int
    dialect: str
    tab: str | None
    ref: str | None
    callback: str | None
    deadline: int | None
    timeout_ms: int | None
    on_interrupt: str | None
    position: int
    by: str
    state: TaskState
    created_at: int
    created_seq: int
    ready_at: int
    entry: int
    holds: bool
    attempt: int
    token: int
    assigned_at: int
    started_at: int
    finished_at: int
    result: Any
    error: str | None
    error_code: str | None
    error_details: dict[str, Any] | None
    interruptions: int
    lane: Lane

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can change it any more."""
        return self.state in TERMINAL

    def to_row(self) -> list[Any]:
        """Give all fields in the order of `ROW`, for a snapshot."""
        return [
            self.action,
            self.agent,
            self.assigned_at,
            self.attempt,
            self.by,
            self.callback,
            self.created_at,
            self.created_seq,
            self.deadline,
            self.dialect,
            self.entry,
            self.error,
            self.error_code,
            self.error_details,
            self.executor,
            self.finished_at,
            self.holds,
            self.id,
            self.interruptions,
            self.on_interrupt,
            self.params,
            self.position,
            self.priority,
            self.ready_at,
            self.ref,
            self.result,
            self.started_at,
            self.state,
            self.tab,
            self.timeout_ms,
            self.token,
        ]

    @classmethod
    def from_row(cls, row: list[Any]) -> Task:
        """Build the task that `to_row` wrote."""
        task = cls.__new__(cls)
        (
            task.action,
            task.agent,
            task.assigned_at,
            task.attempt,
            task.by,
            task.callback,
            task.created_at,
            task.created_seq,
            task.deadline,
            task.dialect,
            task.entry,
            task.error,
            task.error_code,
            task.error_details,
            task.executor,
            task.finished_at,
            task.holds,
            task.id,
            task.interruptions,
            task.on_interrupt,
            task.params,
            task.position,
            task.priority,
            task.ready_at,
            task.ref,
            task.result,
            task.started_at,
            task.state,
            task.tab,
            task.timeout_ms,
            task.token,
        ) = row
        task.state = TaskState(task.state)
        task.lane = lane_of(task.executor, task.action)
        return task


ROW = tuple(name for name in Task.__slots__ if name != "lane")
"""The fields of a task in a snapshot; its lane follows from them."""


@lru_cache(maxsize=4096)
def lane_of(executor: str, action: str) -> Lane:
    """Name the lane of such tasks; one tuple for all of them."""
    return (executor, action)


@lru_cache(maxsize=4096)
def limits_of(lane: Lane) -> tuple[str, ...]:
    """Name the limits, besides the global one and the agent's, that hold a lane back."""
    executor, action = lane
    if executor == PULL:
        return (f"type:{action}",)
    return (PUSH_LIMIT, f"type:{action}")


def is_legal(state: TaskState | None, kind: str) -> bool:
    """Whether an event of this kind may follow in this state."""
    return kind in MOVES[state]


def born(record: e.Record) -> Task:
    """Make the task that a `TaskSubmitted` or `TaskRejected` tells of."""
    event: e.TaskSubmitted | e.TaskRejected = record.event  # type: ignore[assignment]
    task = Task.__new__(Task)
    task.id = event.task
    task.agent = event.agent
    task.action = event.action
    task.params = event.params
    task.priority = event.priority
    task.dialect = event.dialect
    task.tab = event.tab
    task.ref = event.ref
    task.callback = event.callback
    task.deadline = event.deadline
    task.by = record.by
    task.created_at = task.ready_at = record.at
    task.created_seq = record.seq
    task.entry = task.attempt = task.token = task.assigned_at = task.started_at = 0
    task.interruptions = 0
    task.holds = False
    task.result = task.error_details = None
    if type(event) is e.TaskSubmitted:
        task.executor = event.executor
        task.position = event.position
        task.timeout_ms = event.timeout_ms
        task.on_interrupt = event.on_interrupt
        task.state = READY
        task.error = task.error_code = None
        task.finished_at = 0
    else:
        rejected: e.TaskRejected = event  # type: ignore[assignment]
        task.executor = PULL
        task.position = 0
        task.timeout_ms = task.on_interrupt = None
        task.state = REJECTED
        task.error, task.error_code = rejected.error, rejected.code
        task.finished_at = record.at
    task.lane = lane_of(task.executor, task.action)
    return task


def _assigned(record: e.Record, task: Task) -> None:
    event: e.TaskAssigned = record.event  # type: ignore[assignment]
    task.state = ASSIGNED
    task.attempt = event.attempt
    task.token = record.seq
    task.assigned_at = record.at


def _started(record: e.Record, task: Task) -> None:
    task.state = RUNNING
    task.started_at = task.started_at or record.at


def _succeeded(record: e.Record, task: Task) -> None:
    event: e.TaskSucceeded = record.event  # type: ignore[assignment]
    task.state = SUCCEEDED
    task.finished_at = record.at
    task.result = event.result


def _failed(record: e.Record, task: Task) -> None:
    event: e.TaskFailed = record.event  # type: ignore[assignment]
    task.state = FAILED
    task.finished_at = record.at
    task.error, task.error_code, task.error_details = event.error, event.code, event.details


def _expired(record: e.Record, task: Task) -> None:
    event: e.TaskExpired = record.event  # type: ignore[assignment]
    task.state = FAILED
    task.finished_at = record.at
    task.error, task.error_code = event.error, f"{event.clock}_exceeded"


def _cancelled(record: e.Record, task: Task) -> None:
    event: e.TaskCancelled = record.event  # type: ignore[assignment]
    task.state = CANCELLED
    task.finished_at = record.at
    if event.reason:
        task.error, task.error_code = event.reason, "cancelled"


def _interrupted(record: e.Record, task: Task) -> None:
    event: e.AttemptInterrupted = record.event  # type: ignore[assignment]
    task.state = READY
    task.ready_at = record.at
    task.attempt -= 1
    if event.reason not in BLAMELESS:
        task.interruptions += 1


FOLDS: dict[type[Any], Callable[[e.Record, Task], None]] = {
    e.TaskAssigned: _assigned,
    e.TaskStarted: _started,
    e.TaskSucceeded: _succeeded,
    e.TaskFailed: _failed,
    e.TaskExpired: _expired,
    e.TaskCancelled: _cancelled,
    e.AttemptInterrupted: _interrupted,
}
"""What each event does to its task."""

TASK_EVENTS: tuple[type[Any], ...] = (e.TaskSubmitted, e.TaskRejected, *FOLDS)
"""The events that make or change a task."""


def evolve(task: Task, record: e.Record) -> None:
    """Fold one event into the task; events that say nothing of its state leave it as it is."""
    fold = FOLDS.get(type(record.event))
    if fold is not None:
        fold(record, task)

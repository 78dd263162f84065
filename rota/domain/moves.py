"""The table of legal moves: by which fact a task comes from which state into which.

`MOVES` is what docs/reference/state_machine.md draws. Whoever folds keeps to it: a fact that is no
move from the state that its task is in is refused. Live it is not written then; a log that has one
is not folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.task import (
    ASSIGNED,
    BLOCKED,
    CANCELLED,
    FAILED,
    READY,
    REJECTED,
    RUNNING,
    SCHEDULED,
    SUCCEEDED,
    TaskState,
)
from rota.errors import IllegalMove

if TYPE_CHECKING:
    from rota.domain.events import Record
    from rota.domain.task import Task

BIRTHS: dict[type[Any], frozenset[TaskState]] = {
    e.TaskSubmitted: frozenset({READY, BLOCKED, SCHEDULED}),
    e.TaskRejected: frozenset({REJECTED}),
}
"""The facts that make a task, and the states that it may begin in."""

MOVES: dict[TaskState, dict[type[Any], TaskState]] = {
    BLOCKED: {
        e.TaskReleased: READY,
        e.TaskDelayed: SCHEDULED,
        e.TaskCancelled: CANCELLED,
        e.TaskExpired: FAILED,
        e.TaskFailed: FAILED,  # by a force-stop of its run
        e.TaskReprioritised: BLOCKED,
    },
    SCHEDULED: {
        e.TaskReleased: READY,
        e.TaskHeld: BLOCKED,
        e.TaskCancelled: CANCELLED,
        e.TaskExpired: FAILED,
        e.TaskFailed: FAILED,  # by a force-stop of its run
        e.TaskReprioritised: SCHEDULED,
    },
    READY: {
        e.TaskAssigned: ASSIGNED,
        e.TaskHeld: BLOCKED,
        e.TaskCancelled: CANCELLED,
        e.TaskExpired: FAILED,
        # right after an interruption that must not be repeated, when all browsers run, or by a
        # force-stop of its run
        e.TaskFailed: FAILED,
        e.TaskReprioritised: READY,
    },
    ASSIGNED: {
        e.TaskStarted: RUNNING,
        e.TaskSucceeded: SUCCEEDED,
        e.TaskFailed: FAILED,
        e.AttemptFailed: SCHEDULED,
        e.TaskCancelled: CANCELLED,
        e.AttemptInterrupted: READY,
        e.TaskReprioritised: ASSIGNED,
    },
    RUNNING: {
        e.TaskSucceeded: SUCCEEDED,
        e.TaskFailed: FAILED,
        e.AttemptFailed: SCHEDULED,
        e.TaskCancelled: CANCELLED,
        e.AttemptInterrupted: READY,
        e.TaskReprioritised: RUNNING,
    },
    SUCCEEDED: {},
    FAILED: {e.TaskRevived: READY},
    # only what was cancelled because a dependency of it had failed: then it waits for that again
    CANCELLED: {e.TaskRevived: BLOCKED},
    REJECTED: {},
}
"""The legal moves: from a state, by a fact, to a state."""


def ways_of(fact: type[Any]) -> dict[TaskState, TaskState]:
    """Give the states in which a fact may find a task, each with the state that it leaves it in.

    A birth finds its task as it was born; a fact that moves nothing may come at any time.
    """
    if fact in BIRTHS:
        return {state: state for state in BIRTHS[fact]}
    ways = {state: moves[fact] for state, moves in MOVES.items() if fact in moves}
    return ways or {state: state for state in TaskState}


def refusal(record: Record[Any], task: Task | None) -> IllegalMove:
    """Say that a fact is no move from where its task is; None is a task that is not there."""
    fact, task_id = type(record.event).__name__, record.event.task
    where = task.state.value if task is not None else "not there"
    return IllegalMove(record.seq, f"{fact} is no legal move of task {task_id}, which is {where}")


def wrong_end(record: Record[Any], task: Task, right: TaskState) -> IllegalMove:
    """Say that a fact was folded into another state than the table says."""
    fact = type(record.event).__name__
    msg = f"{fact} left task {task.id} {task.state}, and the table of moves says {right}"
    return IllegalMove(record.seq, msg)

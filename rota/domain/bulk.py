"""Decide: which of many tasks are meant, and what to do with each of them.

A `Filter` says by what tasks are chosen, a `Change` what is to become of them. What is asked of
many is decided one by one, by the same rules as for one. A task that has it already is not meant:
so an operation that was cut short is repeated, and goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.domain.attempts import decide_cancel
from rota.domain.events import TaskReprioritised
from rota.domain.task import IN_FLIGHT, TERMINAL, WAITING
from rota.errors import Conflict

if TYPE_CHECKING:
    from rota.domain.events import TaskCancelled
    from rota.domain.task import Task, TaskState

LIVE = WAITING | IN_FLIGHT
CANCEL = "cancel"
REPRIORITISE = "reprioritise"


class Filter(NamedTuple):
    """Which tasks are meant: all that fit whatever is said. `states` are never left out."""

    states: frozenset[TaskState] = LIVE
    agent: str | None = None
    action: str | None = None
    batch: str | None = None
    workflow: str | None = None
    key: str | None = None
    created_before: int | None = None

    def matches(self, task: Task) -> bool:
        """Whether a task fits."""
        if (
            task.state not in self.states
            or (self.agent is not None and task.agent != self.agent)
            or (self.action is not None and task.action != self.action)
            or (self.created_before is not None and task.created_at >= self.created_before)
        ):
            return False
        if self.batch is None and self.workflow is None and self.key is None:
            return True
        plan = task.plan
        return (
            plan is not None
            and (self.batch is None or plan.batch == self.batch)
            and (self.workflow is None or plan.workflow == self.workflow)
            and (self.key is None or plan.key == self.key)
        )


class Change(NamedTuple):
    """What is to become of them: cancelled for a `reason`, or of another `priority`."""

    how: str
    reason: str = ""
    priority: int = 0


def is_meant(task: Task, meant: Filter, change: Change) -> bool:
    """Whether a task fits the filter, and is not yet as it is to become."""
    if change.how == REPRIORITISE and task.priority == change.priority:
        return False
    return meant.matches(task)


def decide_change(task: Task, change: Change) -> TaskCancelled | TaskReprioritised | None:
    """Do what is asked with one task; None if it is so already. Raises Conflict."""
    if change.how == CANCEL:
        return decide_cancel(task, change.reason)
    return decide_priority(task, change.priority)


def decide_priority(task: Task, priority: int) -> TaskReprioritised | None:
    """Give a task that has not ended another priority; None if it has it. Raises Conflict.

    An attempt under way goes on; the priority counts for the next one, and for who may take its
    slot.
    """
    if task.state in TERMINAL:
        raise Conflict(
            f"task is already {task.state.value}",
            details={"taskId": task.id, "state": task.state.value},
        )
    if task.priority == priority:
        return None
    return TaskReprioritised(task.id, task.agent, priority, task.priority)

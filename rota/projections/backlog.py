"""The backlog: which tasks wait, in which order, agent by agent.

Owns each task's `entry` mark, so that a task enters and leaves its queue exactly once whatever
events come. Ready tasks are in their agent's order; those that wait for something else (their
dependencies, a moment) are only counted: they fill the queue like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.events import TaskReprioritised
from rota.domain.fold import FOLDS
from rota.domain.ordering import AgentOrder
from rota.domain.packed import size_of
from rota.domain.shares import Shares, share_of
from rota.domain.task import READY

if TYPE_CHECKING:
    from rota.domain.events import Record, TaskFact
    from rota.domain.task import Task
    from rota.projections.slots import Slots
    from rota.projections.tasks import Tasks

ASIDE = -1
"""The `entry` of a task that waits outside of the order."""


class Backlog:
    """The waiting tasks."""

    def __init__(self, tasks: Tasks, slots: Slots) -> None:
        """Start empty; `tasks` is folded before this."""
        self._tasks = tasks
        self._slots = slots
        self.orders: dict[str, AgentOrder] = {}
        self.aside: dict[str, int] = {}
        self.required: dict[str, int] = {}
        """How many wait for a worker with such labels (`lane[5]`); none that ask for nothing."""
        self._requiring: dict[str, dict[str, int]] = {}  # the same, caller by caller
        self.waiting = Shares(0)
        self.waiting_bytes = Shares(0)
        self._aging_us = 0
        self.shift = 0  # the clock's in all, set by whoever folds its steps

    @property
    def total(self) -> int:
        return self.waiting.held

    def of_owner(self, owner: str) -> int:
        """Count a caller's tasks that wait."""
        return self.waiting.own(owner)

    def of_agent(self, agent: str) -> int:
        order = self.orders.get(agent)
        return (order.waiting if order is not None else 0) + self.aside.get(agent, 0)

    @property
    def bytes(self) -> int:
        """Count the bytes of all that has not ended: what waits, and what is in flight."""
        return self.waiting_bytes.held + self._slots.bytes.held

    def bytes_of(self, owner: str) -> int:
        """Count the bytes of all that has not ended of a caller's tasks."""
        return self.waiting_bytes.own(owner) + self._slots.bytes.own(owner)

    def sets_of(self, owner: str) -> int:
        """Count the sets of labels that a caller's waiting tasks require."""
        return len(self._requiring.get(owner, ()))

    def counts(self) -> dict[str, int]:
        counts = {agent: order.waiting for agent, order in self.orders.items()}
        for agent, count in self.aside.items():
            counts[agent] = counts.get(agent, 0) + count
        return counts

    def on_submitted(self, record: Record[TaskFact], task: Task) -> None:
        if task.state is READY:
            self._enter(task, record.seq)
        else:
            self._set_aside(task)

    def on_ready(self, record: Record[TaskFact], task: Task) -> None:
        if task.entry > 0:
            return
        if task.entry == ASIDE:
            self._take_back(task)
        self._enter(task, record.seq)

    def on_scheduled(self, record: Record[TaskFact], task: Task) -> None:
        del record
        if not task.entry:
            self._set_aside(task)

    def on_held(self, record: Record[TaskFact], task: Task) -> None:
        """Take a task out of its queue that waits on a project's list again."""
        if task.entry != ASIDE:
            self.on_left(record, task)
            self._set_aside(task)

    def on_left(self, record: Record[TaskFact], task: Task) -> None:
        """Take a task out that was assigned or ended."""
        del record
        entry = task.entry
        if not entry:
            return
        if entry == ASIDE:
            self._take_back(task)
            return
        task.entry = 0
        order = self.orders[task.agent]
        order.left(task)
        self._count(task, -1)
        if not order.waiting:
            del self.orders[task.agent]

    def on_assigned(self, record: Record[TaskFact], task: Task) -> None:
        """Take an assigned task out; its agent now waits for its next turn from here."""
        self.on_left(record, task)
        order = self.orders.get(task.agent)
        if order is not None:
            order.since = record.seq

    def on_reprioritised(self, record: Record[TaskReprioritised], task: Task) -> None:
        """Fold another priority of a task; one that is ready stands elsewhere then.

        It is a new `entry`, so that the old place in the order counts no more. Its agent has
        waited no less for that.
        """
        order = self.orders[task.agent] if task.entry > 0 else None
        if order is not None:
            task.entry = 0
            order.left(task)
        FOLDS[TaskReprioritised](record, task)
        if order is not None:
            task.entry = record.seq
            task.rank = self.rank_of(task)
            order.push(task)

    def age_by(self, aging_ms: int) -> None:
        """Let a task gain one priority for each `aging_ms` since its submission; 0 for never.

        All age alike, so their order never changes by it: it is that of the moments at which they
        would come to priority 0.
        """
        if aging_ms * 1000 == self._aging_us:
            return
        self._aging_us = aging_ms * 1000
        for agent, old in self.orders.items():
            fresh = self.orders[agent] = AgentOrder(old.since)
            for lane in old.lanes.values():
                for task in lane:
                    task.rank = self.rank_of(task)
                    fresh.push(task)

    def rank_of(self, task: Task) -> int:
        """Give the rank that a task has, or will have when it is ready."""
        aging = self._aging_us
        created = task.created_at - self.shift  # a step of the clock changes nobody's rank
        return task.priority * aging + created if aging else task.priority

    def _enter(self, task: Task, seq: int) -> None:
        task.entry = seq
        task.rank = self.rank_of(task)
        order = self.orders.get(task.agent)
        if order is None:
            order = self.orders[task.agent] = AgentOrder(seq)
        order.push(task)
        self._count(task, 1)

    def _count(self, task: Task, step: int) -> None:
        owner = share_of(task.by, task.agent)
        self.waiting.add(owner, step)
        self.waiting_bytes.add(owner, step * size_of(task))
        requires = task.lane[5]
        if requires:
            own = self._requiring.setdefault(owner, {})
            for counts in (self.required, own):
                left = counts[requires] = counts.get(requires, 0) + step
                if not left:
                    del counts[requires]
            if not own:
                del self._requiring[owner]

    def _set_aside(self, task: Task) -> None:
        task.entry = ASIDE
        self.aside[task.agent] = self.aside.get(task.agent, 0) + 1
        self._count(task, 1)

    def _take_back(self, task: Task) -> None:
        task.entry = 0
        self._count(task, -1)
        left = self.aside[task.agent] - 1
        if left:
            self.aside[task.agent] = left
        else:
            del self.aside[task.agent]

    def dump(self) -> dict[str, int]:
        """Give what cannot be derived from the tasks: since when each agent waits."""
        return {agent: order.since for agent, order in self.orders.items()}

    def load(self, since: dict[str, int], aging_ms: int) -> None:
        """Rebuild the orders from the tasks of a snapshot."""
        self._aging_us = aging_ms * 1000
        for task in self._tasks:
            if task.entry > 0:
                self._enter(task, task.entry)
            elif task.entry == ASIDE:
                self._set_aside(task)
        for agent, seq in since.items():
            self.orders[agent].since = seq

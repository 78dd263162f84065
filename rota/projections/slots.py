"""The slots: how many tasks are in flight, in all, per agent and per named limit.

Owns each task's `holds` mark: a slot is taken once and freed once, whatever events come and in
whatever order.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from rota.domain.packed import size_of
from rota.domain.shares import Shares, share_of
from rota.domain.task import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.domain.events import Record, TaskFact
    from rota.domain.task import Task
    from rota.projections.tasks import Tasks


class Slots:
    """The slots that are taken."""

    def __init__(self, tasks: Tasks) -> None:
        """Start with none taken; `tasks` is folded before this."""
        self._tasks = tasks
        self.total = 0
        self.bytes = Shares(0)
        self._agents: dict[str, dict[str, Task]] = {}
        self._limits: dict[str, int] = {}

    def of_agent(self, agent: str) -> int:
        held = self._agents.get(agent)
        return len(held) if held is not None else 0

    def held_by(self, agent: str) -> Iterable[Task]:
        return self._agents.get(agent, {}).values()

    def held(self) -> Iterable[Task]:
        return chain.from_iterable(held.values() for held in self._agents.values())

    def of_limit(self, limit: str) -> int:
        return self._limits.get(limit, 0)

    def by_agent(self) -> dict[str, int]:
        return {agent: len(held) for agent, held in self._agents.items()}

    def on_taken(self, record: Record[TaskFact], task: Task) -> None:
        del record
        if not task.holds:
            self._take(task)

    def on_freed(self, record: Record[TaskFact], task: Task) -> None:
        """Free the slot of a task that ended, or went back to its queue."""
        del record
        if not task.holds:
            return
        task.holds = False
        self.total -= 1
        self.bytes.give_back(share_of(task.by, task.agent), size_of(task))
        held = self._agents[task.agent]
        del held[task.id]
        if not held:
            del self._agents[task.agent]
        for limit in limits_of(task.lane):
            _lower(self._limits, limit)

    def _take(self, task: Task) -> None:
        task.holds = True
        self.total += 1
        self.bytes.add(share_of(task.by, task.agent), size_of(task))
        held = self._agents.get(task.agent)
        if held is None:
            held = self._agents[task.agent] = {}
        held[task.id] = task
        for limit in limits_of(task.lane):
            self._limits[limit] = self._limits.get(limit, 0) + 1

    def load(self) -> None:
        """Count anew from the tasks of a snapshot."""
        for task in self._tasks:
            if task.holds:
                self._take(task)


def _lower(counts: dict[str, int], key: str) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]

"""The backlog: which tasks wait, in which order, agent by agent.

Owns each task's `entry` mark, so that a task enters and leaves its queue exactly once whatever
events come. Ready tasks are in their agent's order; the counts are of all waiting ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.ordering import AgentOrder

if TYPE_CHECKING:
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.projections.tasks import Tasks


class Backlog:
    """The waiting tasks."""

    def __init__(self, tasks: Tasks) -> None:
        """Start empty; `tasks` is folded before this."""
        self._tasks = tasks
        self.orders: dict[str, AgentOrder] = {}
        self.total = 0

    def of_agent(self, agent: str) -> int:
        """Count the agent's waiting tasks."""
        order = self.orders.get(agent)
        return order.waiting if order is not None else 0

    def counts(self) -> dict[str, int]:
        """Count the waiting tasks of every agent that has any."""
        return {agent: order.waiting for agent, order in self.orders.items()}

    def on_ready(self, record: Record, task: Task) -> None:
        """Queue a task that became ready."""
        if not task.entry:
            self._enter(task, record.seq)

    def on_left(self, record: Record, task: Task) -> None:
        """Take a task out that was assigned or ended."""
        del record
        if not task.entry:
            return
        task.entry = 0
        order = self.orders[task.agent]
        order.left(task)
        self.total -= 1
        if not order.waiting:
            del self.orders[task.agent]

    def on_assigned(self, record: Record, task: Task) -> None:
        """Take an assigned task out; its agent now waits for its next turn from here."""
        self.on_left(record, task)
        order = self.orders.get(task.agent)
        if order is not None:
            order.since = record.seq

    def _enter(self, task: Task, seq: int) -> None:
        task.entry = seq
        order = self.orders.get(task.agent)
        if order is None:
            order = self.orders[task.agent] = AgentOrder(seq)
        order.push(task)
        self.total += 1

    def dump(self) -> dict[str, int]:
        """Give what cannot be derived from the tasks: since when each agent waits."""
        return {agent: order.since for agent, order in self.orders.items()}

    def load(self, since: dict[str, int]) -> None:
        """Rebuild the orders from the tasks of a snapshot."""
        for task in self._tasks:
            if task.entry:
                self._enter(task, task.entry)
        for agent, seq in since.items():
            self.orders[agent].since = seq

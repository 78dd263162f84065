"""The callbacks that are owed, and how many were delivered or given up.

A delivery comes into being with the terminal event of a task, or the finish of a batch, that has a
callback, so none can be lost between the two. It is kept under the id of that task or batch; its
own id is made from that event's seq: the same in every replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.delivery import ESCALATED, Delivery, seq_of
from rota.domain.task import TERMINAL
from rota.domain.workflow import ESCALATE, callback_of

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.batch import Batch
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.domain.workflow import Workflow


class Deliveries:
    """The callbacks in the making, by task or batch."""

    def __init__(self) -> None:
        self.pending: dict[str, Delivery] = {}
        self.delivered = 0
        self.abandoned = 0
        self.failed_tries = 0

    def on_ended(self, record: Record[e.TaskFact], task: Task) -> None:
        if not task.callback or task.state not in TERMINAL:
            return
        if task.finished_at == record.at and task.id not in self.pending:
            self._owe(record, task.id, task.agent, task.callback)

    def on_batch_finished(
        self, record: Record[e.BatchFinished | e.WorkflowEnded], batch: Batch
    ) -> None:
        if batch.callback and batch.id not in self.pending:
            self._owe(record, batch.id, "", batch.callback)

    def on_flow_tripped(self, record: Record[e.WorkflowTripped], flow: Workflow) -> None:
        callback = callback_of(flow) if record.event.action == ESCALATE else None
        if callback:
            self._owe(record, flow.id + ESCALATED, "", callback)

    def _owe(self, record: Record[e.Event], subject: str, agent: str, callback: str) -> None:
        self.pending[subject] = Delivery(record.seq, subject, agent, callback, record.at)

    def on_revived(self, record: Record[e.TaskRevived], task: Task) -> None:
        """Owe nothing for an end that was none; the next one is told of instead."""
        del record
        self.pending.pop(task.id, None)
        if task.plan is not None:
            for name in filter(None, (task.plan.batch, task.plan.joined)):
                self.pending.pop(name, None)

    def on_succeeded(self, record: Record[e.DeliverySucceeded]) -> None:
        self.pending.pop(record.event.task, None)
        self.delivered += 1

    def on_abandoned(self, record: Record[e.DeliveryAbandoned]) -> None:
        self.pending.pop(record.event.task, None)
        self.abandoned += 1

    def on_failed(self, record: Record[e.DeliveryFailed]) -> None:
        event = record.event
        self.failed_tries += 1
        delivery = self.pending.get(event.task)
        if delivery is not None:
            delivery.tries = event.number
            delivery.due_at = event.next_at

    def carry_over(self, by_us: int, kept_until: int = 0) -> None:
        """Tell when what is owed is due by a clock that was set by so much."""
        for delivery in self.pending.values():
            if delivery.since > kept_until:
                delivery.since += by_us
            if delivery.due_at > kept_until:
                delivery.due_at += by_us

    def dump(self) -> dict[str, Any]:
        owed = self.pending.values()
        return {
            "pending": [[d.id, d.task, d.agent, d.due_at, d.tries] for d in owed],
            "callbacks": [[d.callback, d.since] for d in owed],
            "delivered": self.delivered,
            "abandoned": self.abandoned,
            "failedTries": self.failed_tries,
        }

    def load(self, data: dict[str, Any]) -> None:
        rows = zip(data["pending"], data["callbacks"], strict=True)
        for (name, task, agent, *tried), owed in rows:
            self.pending[task] = Delivery(seq_of(name), task, agent, *owed, *tried)
        self.delivered = data["delivered"]
        self.abandoned = data["abandoned"]
        self.failed_tries = data["failedTries"]

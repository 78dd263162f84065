"""The batches: which tasks belong together, and how many of them have ended in which way.

A batch leaves memory as its tasks do, some time after all of them have ended, or earlier when the
finished ones have more tasks in all than ended tasks may be in memory. It owes one callback,
if it has an address for it, from its `batch_finished` on.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from rota.domain.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.task import Task


class Batches:
    """The batches in memory."""

    def __init__(self) -> None:
        self.by_id: dict[str, Batch] = {}
        self.ended: deque[tuple[int, str]] = deque()
        self.ended_tasks = 0
        self.ended_tasks_max = sys.maxsize
        self.on_forgotten: Callable[[Batch], None] | None = None

    def get(self, batch_id: str) -> Batch | None:
        return self.by_id.get(batch_id)

    def unfinished(self) -> list[str]:
        """Name those whose tasks have all ended but which are not finished."""
        return [b.id for b in self.by_id.values() if not b.finished_at and not b.left]

    def on_submitted(self, record: Record[e.BatchSubmitted]) -> None:
        batch = Batch(record)
        self.by_id[batch.id] = batch

    def on_task_ended(self, task: Task) -> None:
        batch = self._of(task)
        if batch is not None:
            batch.fates[task.state.value] += 1

    def on_task_revived(self, record: Record[e.TaskRevived], task: Task) -> Batch | None:
        """Take back a task that lives again; give its batch."""
        del record
        batch = self._of(task)
        if batch is not None:
            batch.fates["failed"] -= 1
            self._reopen(batch)
        return batch

    def bring_back(self, batch: Batch) -> None:
        """Add a finished batch that had left memory, as the last; in a replay it may be there."""
        same = self.by_id.pop(batch.id, None)
        if same is None:
            self.ended_tasks += len(batch.tasks)
        self.by_id[batch.id] = same or batch

    def _reopen(self, batch: Batch) -> None:
        if batch.finished_at:
            self.ended_tasks -= len(batch.tasks)
            self.ended = deque(item for item in self.ended if item[1] != batch.id)
        batch.finished_at = batch.finished_seq = 0

    def on_finished(self, record: Record[e.BatchFinished]) -> Batch | None:
        event = record.event
        batch = self.by_id.get(event.batch)
        if batch is not None:
            self._reopen(batch)
            batch.finished_at, batch.finished_seq = record.at, record.seq
            self.ended_tasks += len(batch.tasks)
            self.ended.append((record.at, batch.id))
        return batch

    def is_crowded(self) -> bool:
        return len(self.ended) > 1 and self.ended_tasks > self.ended_tasks_max

    def forget(self, oldest: int) -> None:
        """Drop what finished at `oldest` or before, and the oldest of what is too much."""
        while self.ended and (self.ended[0][0] <= oldest or self.is_crowded()):
            batch = self.by_id.pop(self.ended.popleft()[1], None)
            if batch is not None:
                self.ended_tasks -= len(batch.tasks)
                if self.on_forgotten is not None:
                    self.on_forgotten(batch)

    def carry_over(self, by_us: int, now: int) -> None:
        """Tell all moments by a clock that was set by so much; nothing has ended later than now."""
        for batch in self.by_id.values():
            batch.carry_over(by_us)
            batch.finished_at = min(batch.finished_at, now)
        self.ended = deque((min(at + by_us, now), batch_id) for at, batch_id in self.ended)

    def _of(self, task: Task) -> Batch | None:
        plan = task.plan
        return self.by_id.get(plan.batch) if plan is not None and plan.batch is not None else None

    def dump(self) -> list[list[Any]]:
        return [batch.to_row() for batch in self.by_id.values()]

    def load(self, rows: list[list[Any]]) -> None:
        self.by_id = {batch.id: batch for batch in map(Batch.from_row, rows)}
        ended = [batch for batch in self.by_id.values() if batch.finished_at]
        ended.sort(key=lambda batch: batch.finished_seq)
        self.ended = deque((batch.finished_at, batch.id) for batch in ended)
        self.ended_tasks = sum(len(batch.tasks) for batch in ended)

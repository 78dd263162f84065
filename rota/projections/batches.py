"""The batches: which tasks belong together, and how many of them have ended in which way.

A batch leaves memory as its tasks do, some time after all of them have ended. It owes one callback,
if it has an address for it, from its `batch_finished` on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from rota.domain.batch import Batch
from rota.domain.task import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.task import Task


class Batches:
    """The batches in memory."""

    def __init__(self) -> None:
        """Start empty."""
        self.by_id: dict[str, Batch] = {}
        self.ended: deque[tuple[int, str]] = deque()
        self.on_forgotten: Callable[[Batch], None] | None = None

    def get(self, batch_id: str) -> Batch | None:
        """Give the batch, if it is in memory."""
        return self.by_id.get(batch_id)

    def unfinished(self) -> list[str]:
        """Name those whose tasks have all ended but which are not finished."""
        return [b.id for b in self.by_id.values() if not b.finished_at and not b.left]

    def on_submitted(self, record: Record) -> None:
        """Add a batch."""
        batch = Batch(record)
        self.by_id[batch.id] = batch

    def on_task_ended(self, was_terminal: bool, task: Task) -> None:  # noqa: FBT001
        """Count a task that ended now."""
        batch = self._of(task)
        if batch is not None and not was_terminal and task.state in TERMINAL:
            batch.fates[task.state.value] += 1

    def on_task_revived(self, record: Record, task: Task) -> Batch | None:
        """Take back a task that lives again; give its batch."""
        del record
        batch = self._of(task)
        if batch is not None:
            batch.fates["failed"] -= 1
            batch.finished_at = 0
        return batch

    def on_finished(self, record: Record) -> Batch | None:
        """Note that all of a batch has ended."""
        event: e.BatchFinished = record.event  # type: ignore[assignment]
        batch = self.by_id.get(event.batch)
        if batch is not None:
            batch.finished_at = record.at
            self.ended.append((record.at, batch.id))
        return batch

    def forget(self, oldest: int) -> None:
        """Drop what finished at `oldest` or before."""
        while self.ended and self.ended[0][0] <= oldest:
            finished_at, batch_id = self.ended.popleft()
            batch = self.by_id.get(batch_id)
            if batch is not None and batch.finished_at == finished_at:
                del self.by_id[batch_id]
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
        """Give everything for a snapshot."""
        return [batch.to_row() for batch in self.by_id.values()]

    def load(self, rows: list[list[Any]]) -> None:
        """Take over what `dump` gave."""
        self.by_id = {batch.id: batch for batch in map(Batch.from_row, rows)}
        ended = [(b.finished_at, b.id) for b in self.by_id.values() if b.finished_at]
        self.ended = deque(sorted(ended))

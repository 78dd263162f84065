"""Tasks and batches by id: from memory, or from the log if they have left memory.

What leaves memory before its last record is durable is kept in the attic until then: the log would
tell of an earlier time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.actors.recovery import batch_from_log, task_from_log
from rota.domain.batch import Batch
from rota.domain.task import Task

if TYPE_CHECKING:
    from rota.actors.journal import Journal
    from rota.eventlog.port import EventLog


READ_KEPT = 16


class Archive:
    """Finds what there is and what there was."""

    def __init__(self, journal: Journal, log: EventLog) -> None:
        """Look into the journal's state first, then into `log`."""
        self._journal = journal
        self._tasks = journal.state.tasks
        self._batches = journal.state.batches
        self._log = log
        self._attic: dict[str, tuple[int, Task | Batch]] = {}
        self._read: dict[str, Task] = {}
        self._read_at = 0
        self._tasks.on_forgotten = self._batches.on_forgotten = self._put_away

    def task(self, task_id: str) -> Task | None:
        """Give a task."""
        task = self._tasks.get(task_id)
        if task is not None:
            return task
        kept = self._kept(task_id)
        if kept is not None:
            return kept if isinstance(kept, Task) else None
        return self._from_log(task_id)

    def _from_log(self, task_id: str) -> Task | None:
        """Read a task from the log; what was read last is kept, for it cannot change any more."""
        steps = self._journal.state.steps
        if self._read_at != steps.shift:  # they are told by another clock
            self._read_at = steps.shift
            self._read.clear()
        task = self._read.pop(task_id, None) or task_from_log(self._log, task_id, steps)
        if task is not None and task.is_terminal:
            self._read[task_id] = task
            if len(self._read) > READ_KEPT:
                del self._read[next(iter(self._read))]
        return task

    def batch(self, batch_id: str) -> Batch | None:
        """Give a batch."""
        batch = self._batches.get(batch_id)
        if batch is not None:
            return batch
        kept = self._kept(batch_id)
        if kept is not None:
            return kept if isinstance(kept, Batch) else None
        return batch_from_log(self._log, batch_id, self._journal.state.steps)

    def knows(self, subject: str) -> bool:
        """Whether an id is a task's or a batch's."""
        if subject in self._tasks.by_id or subject in self._batches.by_id:
            return True
        return self._kept(subject) is not None or self._log.has_task(subject)

    def either(self, subject: str) -> Task | Batch | None:
        """Give the task or the batch of an id."""
        task = self.task(subject)
        return task if task is not None else self.batch(subject)

    def _put_away(self, subject: Task | Batch) -> None:
        """Keep what is leaving memory until the log can tell of it."""
        durable, attic = self._journal.durable_seq, self._attic
        while attic and attic[oldest := next(iter(attic))][0] <= durable:
            del attic[oldest]
        seq = self._journal.state.seq
        if seq > durable:
            attic[subject.id] = (seq, subject)

    def _kept(self, subject: str) -> Task | Batch | None:
        seq, kept = self._attic.get(subject, (0, None))
        return kept if seq > self._journal.durable_seq else None

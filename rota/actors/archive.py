"""Tasks and batches by id: from memory, or from the log if they have left memory.

What leaves memory before its last record is durable is kept in the attic until then: the log would
tell of an earlier time. What was read from the log last is kept, up to a count and a size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.actors.recovery import batch_from_log, task_from_log
from rota.domain.batch import Batch
from rota.domain.fold import carry_over
from rota.domain.packed import weight_of
from rota.domain.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rota.actors.journal import Journal
    from rota.eventlog.port import EventLog


READ_KEPT = 16
READ_BYTES_MAX = 8 << 20


class Foreseen(NamedTuple):
    """What was found of tasks that are not in memory: by whom, and how many had left it then."""

    found: dict[str, Task | None]
    by: Archive
    departures: int


class Archive:
    """Finds what there is and what there was."""

    def __init__(self, journal: Journal, log: EventLog) -> None:
        """Look into the journal's state first, then into `log`."""
        self._journal = journal
        self._tasks = journal.state.tasks
        self._batches = journal.state.batches
        self._log = log
        self._attic: dict[str, tuple[int, int, Task | Batch]] = {}  # seq, shift, what left
        self._read: dict[str, Task] = {}
        self._read_at = 0
        self._departures = 0
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

    def lately(self, task_id: str) -> Task | None:
        """Give a task that is in memory, or was when the last records were made."""
        task = self._tasks.get(task_id) or self._kept(task_id)
        return task if isinstance(task, Task) else None

    def whole_task(self, task_id: str) -> Task | None:
        """Give a task that is to live again, with the counts of what it said."""
        task = self.lately(task_id)
        if task is None:
            steps = self._journal.state.steps
            task = task_from_log(self._log, task_id, steps, is_whole=True)
        return task

    def _from_log(self, task_id: str) -> Task | None:
        """Read a task from the log; one that has ended changes only if it comes back to memory."""
        steps = self._journal.state.steps
        if self._read_at != steps.shift:  # they are told by another clock
            self._read_at = steps.shift
            self._read.clear()
        task = self._read.pop(task_id, None) or task_from_log(self._log, task_id, steps)
        if task is not None and task.is_terminal:
            self._read[task_id] = task
            while len(self._read) > READ_KEPT or self._read_bytes() > READ_BYTES_MAX:
                del self._read[next(iter(self._read))]
        return task

    def _read_bytes(self) -> int:
        return sum(map(weight_of, self._read.values()))

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

    # -- many at once

    def outside(self, task_ids: Iterable[str]) -> list[str]:
        """Give those that memory knows nothing of."""
        here = self._tasks.by_id
        return [each for each in task_ids if each not in here and self._kept(each) is None]

    def look_up(self, task_ids: Sequence[str], foreseen: Foreseen) -> None:
        """Add what the log knows of some that are not in memory; it is read on the spot."""
        known = self._log.known_of(task_ids)
        for task_id in task_ids:
            foreseen.found[task_id] = self._from_log(task_id) if task_id in known else None

    def foresee(self) -> Foreseen:
        """Begin to look things up."""
        return Foreseen({}, self, self._departures)

    def seer(self, foreseen: Foreseen) -> Callable[[str], Task | None]:
        """Give a `task` that knows what was foreseen; memory goes before it."""
        found = foreseen.found
        if foreseen.by is not self or foreseen.departures != self._departures:
            # what was not there then may have come and gone
            came = self._log.known_of([each for each, task in found.items() if task is None])
            found = {each: task for each, task in found.items() if each not in came}

        def find(task_id: str) -> Task | None:
            if task_id not in found or task_id in self._tasks.by_id or task_id in self._attic:
                return self.task(task_id)
            return found[task_id]

        return find

    # -- what leaves memory

    def release(self) -> None:
        """Let go of what the log can tell of by now."""
        durable, attic = self._journal.durable_seq, self._attic
        while attic and attic[oldest := next(iter(attic))][0] <= durable:
            del attic[oldest]

    def _put_away(self, subject: Task | Batch) -> None:
        """Keep what is leaving memory until the log can tell of it."""
        self._departures += 1
        self._read.pop(subject.id, None)  # as it was before it came back
        seq = self._journal.state.seq
        if seq > self._journal.durable_seq:
            self._attic.pop(subject.id, None)
            self._attic[subject.id] = (seq, self._journal.state.steps.shift, subject)

    def _kept(self, subject: str) -> Task | Batch | None:
        seq, told_at, kept = self._attic.get(subject, (0, 0, None))
        if kept is None or seq <= self._journal.durable_seq:
            return None
        shift = self._journal.state.steps.shift
        if shift != told_at:  # its moments are told by another clock
            by_us = shift - told_at
            carry_over(kept, by_us) if isinstance(kept, Task) else kept.carry_over(by_us)
            self._attic[subject] = (seq, shift, kept)
        return kept

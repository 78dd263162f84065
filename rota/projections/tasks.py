"""Tasks by id: everything that has not ended, and what ended within the retention.

Retention is part of the fold: each record's own time decides which ended tasks leave memory, and so
do the bounds on their number and bytes, so a replay forgets exactly what the live server forgot.
The newest of them always stays until the next record: whoever hears of its end may look at it. Of
those that were rejected the newest `REJECTED_MAX` stay. What has left is still in the log.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

from rota.domain.fold import born, carry_over
from rota.domain.packed import weight_of
from rota.domain.task import REJECTED, TERMINAL, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.commands import Limits
    from rota.domain.events import Record, TaskRejected, TaskSubmitted

US_PER_S = 1_000_000
REJECTED_MAX = 1000
VOID_MAX = 1000


class Tasks:
    """The tasks in memory, in order of submission."""

    def __init__(self) -> None:
        """Start empty, with the document's five minutes of retention."""
        self.by_id: dict[str, Task] = {}
        self.ttl_us = 300 * US_PER_S
        self.ended: deque[tuple[int, Task]] = deque()
        self.ended_bytes = 0
        self.rejected: deque[Task] = deque()
        # A snapshot in the making writes a task out before it becomes another.
        self.before_change: Callable[[Task], None] | None = None
        self.on_forgotten: Callable[[Task], None] | None = None
        self._ended_max = self._ended_bytes_max = sys.maxsize
        self._void: dict[str, int] = {}  # how many of a task's first entries in `ended` are void
        self._void_total = 0
        self._is_unsorted = False
        self.crowded = False  # whether `is_crowded` is worth a look

    def keep(self, limits: Limits) -> None:
        """Keep what ended for so long, so many of them, and so many bytes."""
        self.ttl_us = limits.result_ttl_s * US_PER_S
        self._ended_max = limits.ended or sys.maxsize
        self._ended_bytes_max = limits.ended_bytes or sys.maxsize
        self.crowded = self.is_crowded()

    def get(self, task_id: str) -> Task | None:
        return self.by_id.get(task_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.by_id.values())

    def is_kept(self, task: Task, now: int) -> bool:
        return task.state not in TERMINAL or task.finished_at + self.ttl_us > now

    def in_order(self) -> list[Task]:
        """Give them in order of submission, also after some were brought back."""
        if self._is_unsorted:
            self.by_id = dict(sorted(self.by_id.items(), key=lambda item: item[1].created_seq))
            self._is_unsorted = False
        return list(self.by_id.values())

    def add(self, record: Record[TaskSubmitted | TaskRejected]) -> Task:
        task = born(record)
        self.by_id[task.id] = task
        if task.finished_at:
            self.ends(record.at, task)
            self.rejected.append(task)
            if len(self.rejected) > REJECTED_MAX:
                self._drop_rejected(self.rejected.popleft())
        return task

    def _drop_rejected(self, task: Task) -> None:
        """Drop the oldest of too many; its entry among the ended ones means nothing then."""
        if self.by_id.get(task.id) is task:
            self._drop(task)
            self._void[task.id] = self._void.get(task.id, 0) + 1
            self._void_total += 1

    def bring_back(self, task: Task) -> None:
        """Add a task that had left memory; in a replay it may still be there."""
        same = self.by_id.get(task.id)
        if same is not None:
            if self.before_change is not None:
                self.before_change(same)
            self.lives_again(same)
        self.by_id[task.id] = task
        self._is_unsorted = True

    def ends(self, at: int, task: Task) -> None:
        """Count a task among the ended ones; to be called when its end is folded."""
        task.weight = weight_of(task)
        self.ended_bytes += task.weight
        self.ended.append((at, task))
        self.crowded = self.is_crowded()
        if self._void_total > len(self.ended) // 2 + VOID_MAX:
            self._sweep()

    def lives_again(self, task: Task) -> None:
        if task.weight:
            self.ended_bytes -= task.weight
            task.weight = 0
            self._void[task.id] = self._void.get(task.id, 0) + 1
            self._void_total += 1

    def _is_void(self, task: Task) -> bool:
        """Whether the entry that was taken out is of an end that was none."""
        left = self._void.pop(task.id, 0)
        if left > 1:
            self._void[task.id] = left - 1
        self._void_total -= left > 0
        return left > 0

    def _sweep(self) -> None:
        """Take out the entries of those that were revived."""
        self.ended = deque(item for item in self.ended if not self._is_void(item[1]))

    def is_crowded(self) -> bool:
        count = len(self.ended) - self._void_total
        return count > 1 and (self.ended_bytes > self._ended_bytes_max or count > self._ended_max)

    def forget(self, now: int) -> None:
        """Drop what ended longer ago than the retention, and the oldest of what is too much."""
        oldest = now - self.ttl_us
        while self.ended and (self.ended[0][0] <= oldest or self.is_crowded()):
            task = self.ended.popleft()[1]
            if not self._is_void(task):
                self._drop(task)
        self.crowded = False

    def _drop(self, task: Task) -> None:
        if self.before_change is not None:
            self.before_change(task)
        if self.by_id.get(task.id) is task:
            del self.by_id[task.id]
            self.ended_bytes -= task.weight
            if self.rejected and self.rejected[0] is task:
                self.rejected.popleft()
            if self.on_forgotten is not None:
                self.on_forgotten(task)

    def carry_over(self, by_us: int, now: int, kept_until: int = 0) -> None:
        """Tell all moments by a clock that was set by so much; nothing has ended later than now.

        (A clock that was a little ahead before the step may have said so.)
        """
        for task in self.by_id.values():
            if self.before_change is not None:
                self.before_change(task)
            carry_over(task, by_us, kept_until)
            task.finished_at = min(task.finished_at, now)
        self.ended = deque(
            (min(at + by_us, now) if at > kept_until else at, task) for at, task in self.ended
        )

    def load(self, tasks: list[Task]) -> None:
        self.by_id = {task.id: task for task in tasks}
        over = sorted((task for task in tasks if task.weight), key=_ended_seq)
        self.ended = deque((task.finished_at, task) for task in over)
        self.rejected = deque(task for task in over if task.state is REJECTED)
        self.ended_bytes = sum(task.weight for task in over)


def _ended_seq(task: Task) -> int:
    return task.ended_seq

"""Tasks by id: everything that has not ended, and what ended within the retention.

Retention is part of the fold: each record's own time decides which ended tasks leave memory, so
a replay forgets exactly what the live server forgot. What has left is still in the log.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rota.domain.fold import born, carry_over
from rota.domain.task import TERMINAL, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.events import Record

US_PER_S = 1_000_000


class Tasks:
    """The tasks in memory, in order of submission."""

    def __init__(self) -> None:
        """Start empty, with the document's five minutes of retention."""
        self.by_id: dict[str, Task] = {}
        self.ttl_us = 300 * US_PER_S
        self.ended: deque[tuple[int, Task]] = deque()
        self.before_change: Callable[[Task], None] | None = None
        self.on_forgotten: Callable[[Task], None] | None = None

    def get(self, task_id: str) -> Task | None:
        """Give the task, if it is in memory."""
        return self.by_id.get(task_id)

    def __len__(self) -> int:
        """Count the tasks in memory."""
        return len(self.by_id)

    def __iter__(self) -> Iterator[Task]:
        """Go through them in order of submission."""
        return iter(self.by_id.values())

    def is_kept(self, task: Task, now: int) -> bool:
        """Whether a task is still within its retention."""
        return task.state not in TERMINAL or task.finished_at + self.ttl_us > now

    def add(self, record: Record) -> Task:
        """Add a submitted or rejected task."""
        task = born(record)
        self.by_id[task.id] = task
        if task.finished_at:
            self.ended.append((record.at, task))
        return task

    def forget(self, now: int) -> None:
        """Drop what ended longer ago than the retention."""
        ended = self.ended
        oldest = now - self.ttl_us
        while ended and ended[0][0] <= oldest:
            finished_at, task = ended.popleft()
            if task.finished_at != finished_at:
                continue  # it was revived
            if self.before_change is not None:
                self.before_change(task)
            if self.by_id.get(task.id) is task:
                del self.by_id[task.id]
                if self.on_forgotten is not None:
                    self.on_forgotten(task)

    def carry_over(self, by_us: int, now: int) -> None:
        """Tell all moments by a clock that was set by so much; nothing has ended later than now.

        (A clock that was a little ahead before the step may have said so.)
        """
        for task in self.by_id.values():
            if self.before_change is not None:
                self.before_change(task)
            carry_over(task, by_us)
            task.finished_at = min(task.finished_at, now)
        self.ended = deque((min(at + by_us, now), task) for at, task in self.ended)

    def load(self, tasks: list[Task]) -> None:
        """Take over the tasks of a snapshot, in their order."""
        self.by_id = {task.id: task for task in tasks}
        ended = [(task.finished_at, task) for task in tasks if task.state in TERMINAL]
        self.ended = deque(sorted(ended, key=lambda item: item[0]))

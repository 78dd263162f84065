"""The browsers that jobs have started and not stopped, and those being started.

A `browser_start` that succeeded holds one under the name of its profile, until a `browser_stop` of
that profile or a `browser_stop_all` succeeds, over restarts. One without a profile could never be
named by a stop: it holds a place only while it runs. New ones are held only while there is
a bound on browsers, so there are never more of them than the largest bound that was in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.browsers import START, STOP, STOP_ALL, browser_of, has_profile

if TYPE_CHECKING:
    from rota.domain.events import Record, TaskFact
    from rota.domain.task import Task
    from rota.projections.tasks import Tasks


class Browsers:
    """Who has a browser."""

    def __init__(self, tasks: Tasks) -> None:
        """Start with none; `tasks` is folded before this, the slots after it."""
        self._tasks = tasks
        self.most = 0
        self.held: dict[str, int] = {}
        self._starting: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self.held) + sum(1 for each in self._starting if each not in self.held)

    def has(self, browser: str) -> bool:
        return browser in self.held or browser in self._starting

    def on_taken(self, record: Record[TaskFact], task: Task) -> None:
        del record
        if task.action == START and not task.holds:
            self._reserve(task)

    def _reserve(self, task: Task) -> None:
        name = browser_of(task)
        self._starting[name] = self._starting.get(name, 0) + 1

    def on_freed(self, record: Record[TaskFact], task: Task) -> None:
        """Give the place of a start back that ended, or went back to its queue."""
        del record
        if task.action != START or not task.holds:
            return
        name = browser_of(task)
        left = self._starting[name] - 1
        if left:
            self._starting[name] = left
        else:
            del self._starting[name]

    def on_succeeded(self, record: Record[TaskFact], task: Task) -> None:
        """Hold a browser that was started; let go of what was stopped."""
        if not task.holds:
            return
        if task.action == START:
            if self.most and has_profile(task):
                self.held.setdefault(browser_of(task), record.seq)
        elif task.action == STOP:
            self.held.pop(browser_of(task), None)
        elif task.action == STOP_ALL:
            self.held.clear()

    def dump(self) -> dict[str, int]:
        """Give everything for a snapshot: the browsers, and the seq since when they run."""
        return self.held

    def load(self, held: dict[str, int], most: int) -> None:
        """Take over what `dump` gave; starts under way are counted from the tasks."""
        self.held = dict(held)
        self.most = most
        for task in self._tasks:
            if task.holds and task.action == START:
                self._reserve(task)

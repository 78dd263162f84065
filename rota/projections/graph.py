"""Who waits for whom.

`children` maps a task's id, known or not, to the blocked tasks that wait for it. When a parent
succeeds it is struck off each child's `waits`; children with nothing left to wait for are `due`,
and so are all children of a parent that failed or was cancelled, with the reason (`due` maps to
it, or to nothing). What is due is settled, event by event, by the DependentsActor; until then it
stays here, also over a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.dependencies import doom_reason
from rota.domain.task import SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.domain.events import Record, TaskFact
    from rota.domain.task import Task
    from rota.projections.tasks import Tasks


def _nothing(task_id: str) -> Iterable[str]:
    del task_id
    return ()


class Graph:
    """The edges between tasks that have not been settled."""

    def __init__(self, tasks: Tasks) -> None:
        """Start without any; `tasks` is folded before this."""
        self._tasks = tasks
        self.children: dict[str, dict[str, Task]] = {}
        self.due: dict[str, str] = {}

    def waits_for(
        self, ids: Iterable[str], parents: Iterable[str]
    ) -> Callable[[str], Iterable[str]]:
        """Give the way to follow existing edges, if they can lead from `parents` to the new `ids`.

        A cycle leads through a task that waits for one of `ids` already, down to one of `parents`;
        if they do not meet there is nothing to follow, and most submissions cost no walk.
        """
        return self._waits_of if self._meet(ids, parents) else _nothing

    def _meet(self, ids: Iterable[str], parents: Iterable[str]) -> bool:
        """Walk down from `ids` and up from `parents` in turns; the shorter walk decides."""
        below = {each for each in ids if each in self.children}
        above = set(parents)
        down, up = list(below), list(above)
        if not below.isdisjoint(above):
            return True
        while down and up:
            for child in self.children.get(down.pop(), ()):
                if child in above:
                    return True
                if child not in below:
                    below.add(child)
                    down.append(child)
            for parent in self._waits_of(up.pop()):
                if parent in below:
                    return True
                if parent not in above:
                    above.add(parent)
                    up.append(parent)
        return False

    def _waits_of(self, task_id: str) -> Iterable[str]:
        task = self._tasks.get(task_id)
        return task.waits or () if task is not None else ()

    def on_submitted(self, record: Record[TaskFact], task: Task) -> None:
        """Learn whom a new or revived task waits for; a revived one that waits for none is due."""
        del record
        if task.waits is not None and not task.waits:
            self.due[task.id] = ""
        for parent in task.waits or ():
            self.children.setdefault(parent, {})[task.id] = task

    def on_ended(self, record: Record[TaskFact], task: Task) -> None:
        """Strike off a parent that succeeded; doom the children of one that did not."""
        children = self.children.pop(task.id, None)
        if children is not None:
            watch = self._tasks.before_change
            for child in children.values():
                if task.state is not SUCCEEDED:
                    self.due[child.id] = doom_reason(task)
                    self._unlink(child)
                elif child.waits is not None:
                    if watch is not None:
                        watch(child)
                    child.waits.discard(task.id)
                    if not child.waits:
                        self.due[child.id] = ""
        if task.waits is not None:
            self.on_settled(record, task)

    def on_settled(self, record: Record[TaskFact], task: Task) -> None:
        """Forget the edges of a task that is blocked no longer."""
        del record
        self.due.pop(task.id, None)
        self._unlink(task)
        task.waits = None

    def _unlink(self, task: Task) -> None:
        for parent in task.waits or ():
            siblings = self.children.get(parent)
            if siblings is not None:
                siblings.pop(task.id, None)
                if not siblings:
                    del self.children[parent]

    def dump(self) -> dict[str, str]:
        """Give what cannot be derived from the tasks: what is due, and why."""
        return self.due

    def load(self, due: dict[str, str]) -> None:
        """Rebuild the edges from the tasks of a snapshot."""
        self.due.update(due)
        for task in self._tasks:
            for parent in task.waits or () if task.id not in due else ():
                self.children.setdefault(parent, {})[task.id] = task

"""Who waits for whom.

`children` maps a task's id, known or not, to the blocked tasks that wait for it. When a parent
succeeds it is struck off each child's `waits`; children with nothing left to wait for are `due`,
and so are all children of a parent that failed or was cancelled. What is due is settled, event by
event, by the DependencyActor; until then it stays here, also over a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.task import SUCCEEDED

if TYPE_CHECKING:
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.projections.tasks import Tasks


class Dependencies:
    """The edges between tasks that have not been settled."""

    def __init__(self, tasks: Tasks) -> None:
        """Start without any; `tasks` is folded before this."""
        self._tasks = tasks
        self.children: dict[str, dict[str, Task]] = {}
        self.due: dict[str, str] = {}

    def waits_of(self, task_id: str) -> set[str] | tuple[()]:
        """Give what a task still waits for."""
        task = self._tasks.get(task_id)
        return task.waits or () if task is not None else ()

    def on_submitted(self, record: Record, task: Task) -> None:
        """Remember what a blocked task waits for."""
        del record
        for parent in task.waits or ():
            self.children.setdefault(parent, {})[task.id] = task

    def on_ended(self, record: Record, task: Task) -> None:
        """Strike off a parent that succeeded; doom the children of one that did not."""
        children = self.children.pop(task.id, None)
        if children is not None:
            watch = self._tasks.before_change
            for child in children.values():
                if task.state is not SUCCEEDED:
                    self.due.setdefault(child.id, task.id)
                elif child.waits is not None:
                    if watch is not None:
                        watch(child)
                    child.waits.discard(task.id)
                    if not child.waits:
                        self.due.setdefault(child.id, "")
        if task.waits is not None:
            self.on_settled(record, task)

    def on_settled(self, record: Record, task: Task) -> None:
        """Forget the edges of a task that is blocked no longer."""
        del record
        self.due.pop(task.id, None)
        for parent in task.waits or ():
            siblings = self.children.get(parent)
            if siblings is not None:
                siblings.pop(task.id, None)
                if not siblings:
                    del self.children[parent]
        task.waits = None

    def dump(self) -> dict[str, str]:
        """Give what cannot be derived from the tasks: what is due, and by whom."""
        return self.due

    def load(self, due: dict[str, str]) -> None:
        """Rebuild the edges from the tasks of a snapshot."""
        self.due.update(due)
        for task in self._tasks:
            for parent in task.waits or ():
                if due.get(task.id) != parent:
                    self.children.setdefault(parent, {})[task.id] = task

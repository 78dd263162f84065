"""The ids of a shard's new tasks and batches: those that clients want, or drawn ones; none twice.

Drawn ids have the form that the dialect's document says. They begin with their time
(`rota/ids.py`), by the journal's clock, so one can only be taken by a task of about the same time.
Such a task is in memory, unless the clock was set back, ids were drawn ahead of the clock, or the
server has just started: for as long as that may be so, the log is asked, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota import ids
from rota.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.domain.commands import SubmitTask

APART_US = 10_000_000
"""Ids are drawn at most this far ahead of the clock."""
UUID_DIALECTS = frozenset({"browseros"})
"""The dialects whose documents say that ids are UUIDs."""


class NewIds:
    """Gives the ids of one shard."""

    _journal: Journal
    _archive: Archive

    def __init__(self, drawn: Callable[[], str] | None = None) -> None:
        """Give nothing before `join`; take those that are `drawn` elsewhere, if so told."""
        self._drawn = drawn
        self._clear_at = 0

    def join(self, journal: Journal, archive: Archive) -> None:
        """Draw by the time of a journal, and know what its log knows."""
        self._journal, self._archive = journal, archive

    def begin(self) -> None:
        """Ask the log for a while: nobody knows what was drawn just before a start."""
        self._clear_at = self._journal.state.at + APART_US

    def of_task(
        self, command: SubmitTask, fetched: Fetched | None, taken: Container[str] = ()
    ) -> str:
        """Give the id that was asked for, or a new one; none of `taken`. Raises Conflict."""
        wanted = command.wanted_id
        if wanted is None:
            while (task_id := self.draw(command.dialect)) in taken:
                pass
            return task_id
        details = {"taskId": wanted}
        is_on_a_list = wanted in self._journal.state.projects.names
        if is_on_a_list or self._archive.is_known(wanted, fetched):
            raise Conflict(f"there is a task '{wanted}' already", code="id_taken", details=details)
        if wanted in taken:
            msg = f"two tasks of this batch want the id '{wanted}'"
            raise Conflict(msg, code="id_taken", details=details)
        return wanted

    def of_workflow(self) -> str:
        return self.of_batch("native", ids.WORKFLOW)

    def of_run(self) -> str:
        return self.of_batch("native", ids.RUN)

    def of_batch(self, dialect: str, prefix: str = ids.BATCH) -> str:
        """Draw an id that no batch has: that no task has it says nothing about batches."""
        while True:
            batch_id = self.draw(dialect)
            if dialect not in UUID_DIALECTS:
                batch_id = prefix + batch_id.removeprefix(ids.TASK)
            if not self.is_taken(batch_id):
                return batch_id

    def draw(self, dialect: str) -> str:
        """Draw an id of the form that a dialect's document gives."""
        if self._drawn is not None:
            return self._drawn()
        now = self._journal.now()
        if dialect in UUID_DIALECTS:
            return ids.uuid(now)
        task_id, is_ahead = ids.task_id(now, self.is_taken)
        if is_ahead:  # when its time comes, whoever has it may have left memory
            self._clear_at = now + APART_US
        return task_id

    def is_taken(self, task_id: str) -> bool:
        """Look in memory; and in the log, while an id's time may have been drawn from before."""
        state = self._journal.state
        if task_id in state.tasks.by_id or task_id in state.batches.by_id:
            return True
        if task_id in state.projects.names:
            return True
        clear_at = max(self._clear_at, state.steps.latest + APART_US)
        return state.at < clear_at and self._archive.knows(task_id)

"""The ids of a shard's new tasks and batches: those that clients want, or drawn ones; none twice.

Drawn ids have the form that the dialect's document says. They begin with their time, which never
goes back (`rota/ids.py`), and clients cannot want such ids. So no id is given twice by one process,
and a start looks up the newest id in the log to draw later ones only. Nothing is read after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota import ids
from rota.domain.dependencies import BATCH
from rota.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.domain.commands import SubmitTask
    from rota.eventlog.port import LogReader
    from rota.projections.state import State

AHEAD_US = 86_400_000_000
"""Drawn ids are looked for in the log up to so long after its latest time."""
UUID_DIALECTS = frozenset({"browseros"})
"""The dialects whose documents say that ids are UUIDs."""


class NewIds:
    """Gives the ids of one shard."""

    _journal: Journal
    _archive: Archive

    def __init__(self, drawn: Callable[[], str] | None = None) -> None:
        """Give nothing before `join`; take those that are `drawn` elsewhere, if so told."""
        self._ids = ids.TaskIds()
        self._drawn = drawn

    def join(self, journal: Journal, archive: Archive) -> None:
        """Draw by the time of a journal, and know what its log knows."""
        self._journal, self._archive = journal, archive

    def go_on_after(self, log: LogReader, state: State) -> None:
        """Draw later ids than those in a log. Reads it: for a start."""
        end = ids.beginning_at(max(state.at, state.steps.latest) + AHEAD_US)
        for prefix in ids.DRAWN:
            self._ids.go_beyond(log.last_subject(prefix, prefix + end).removeprefix(prefix))

    def of_task(
        self, command: SubmitTask, fetched: Fetched | None, taken: Container[str] = ()
    ) -> str:
        """Give the id that was asked for, or a new one; none of `taken`. Raises Conflict."""
        wanted = command.wanted_id
        if wanted is None:
            return self.draw(command.dialect)
        self._check_free(wanted, fetched, "task")
        if wanted in taken:
            msg = f"two tasks of this batch want the id '{wanted}'"
            raise Conflict(msg, code="id_taken", details={"taskId": wanted})
        return wanted

    def of_workflow(self, wanted: str | None = None, fetched: Fetched | None = None) -> str:
        """Give the id that was asked for, or a new one. Raises Conflict."""
        if wanted is None:
            return self.of_batch("native", ids.WORKFLOW)
        self._check_free(wanted, fetched, "workflow")
        return wanted

    def _check_free(self, wanted: str, fetched: Fetched | None, kind: str) -> None:
        """Refuse an id that a task or a workflow has: they share one index. Raises Conflict."""
        is_on_a_list = wanted in self._journal.state.projects.names
        if is_on_a_list or self._archive.is_known(wanted, fetched):
            what = kind if kind == "task" else "task or a workflow"
            msg = f"there is a {what} '{wanted}' already"
            raise Conflict(msg, code="id_taken", details={f"{kind}Id": wanted})

    def of_run(self) -> str:
        return self.of_batch("native", ids.RUN)

    def of_batch(self, dialect: str, prefix: str = BATCH) -> str:
        drawn = self.draw(dialect)
        return drawn if dialect in UUID_DIALECTS else prefix + drawn.removeprefix(ids.TASK)

    def draw(self, dialect: str) -> str:
        """Draw an id of the form that a dialect's document gives."""
        if self._drawn is not None:
            return self._drawn()
        now = self._journal.now()
        return ids.uuid(now) if dialect in UUID_DIALECTS else self._ids.draw(now)

"""How an attempt ends: what is recorded of it, together with what it lets go.

For attempts that rota runs itself and for those that it lends alike. Whatever follows from the end
of an attempt and takes part in who is next goes into the same step: the next try, the dependents,
the task that follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.actors.derived import follow_ups
from rota.domain.attempts import decide_next_try, decide_result
from rota.domain.commands import Outcome
from rota.domain.dependencies import decide_dependents
from rota.domain.events import AttemptFailed, TaskSucceeded
from rota.domain.project import decide_stopped
from rota.domain.tokens import ROTA
from rota.errors import NotWritable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.domain.events import Event
    from rota.domain.task import Task


class Settling:
    """Records the ends of attempts."""

    def __init__(self, journal: Journal, ids: NewIds, draw: Callable[[], float]) -> None:
        """Name what follows by `ids`; draw the luck of a retry's jitter from `draw`."""
        self._journal = journal
        self._ids = ids
        self.draw = draw

    def take(
        self, task: Task, attempt: int, token: int, outcome: Outcome, *, by: str = ROTA
    ) -> Event:
        """Record what came of an attempt, or that it came too late; give that fact."""
        now, draw = self._journal.now(), self.draw()
        settle = (task, attempt, token)
        event = decide_result(*settle, outcome, now, draw)
        try:
            self.end(task, event, token, now, by=by)
        except NotWritable as error:  # nothing was recorded
            text = f"the result cannot be kept: {error}"
            bad = Outcome(ok=False, code="bad_result", error=text)
            event = decide_result(*settle, bad, now, draw)
            self.end(task, event, token, now, by=by)
        return event

    def end(
        self,
        task: Task,
        event: Event,
        token: int,
        now: int,
        *,
        before: tuple[Event, ...] = (),
        by: str = ROTA,
    ) -> None:
        """Record the end of an attempt with what it lets go: that takes part in who is next."""
        more: list[Event] = []
        state = self._journal.state
        if type(event) is AttemptFailed:
            stopped = decide_stopped(task, *state.projects.stop_of(task))
            more += stopped or decide_next_try(event, now)
        elif type(event) is TaskSucceeded:
            children = state.graph.children.get(task.id)
            if children:
                more += decide_dependents(task.id, children.values(), state.backlog.rank_of, now)
            more += follow_ups(task, event, state, self._ids, now)
        self._journal.record(*before, event, *more, cause=token, at=now, by=by)

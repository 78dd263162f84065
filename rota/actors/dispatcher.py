"""The dispatcher: gives slots away.

In: news of heads, freed slots, pauses, limits. Out: `task_assigned`. Keeps that no cap is ever
exceeded: it asks `Turns` for one task at a time and records each assignment, which the slots
count, before it asks for the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import (
    AgentReleased,
    Drain,
    HeadChanged,
    SlotFreed,
)
from rota.actors.runtime import CooperativeActor
from rota.domain.attempts import decide_assignment
from rota.domain.dispatch import Turns

if TYPE_CHECKING:
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime


class DispatcherActor(CooperativeActor):
    """Decides whose turn it is."""

    def __init__(self, runtime: Runtime, journal: Journal) -> None:
        """Derive the turns from the projections."""
        super().__init__(runtime)
        self._journal = journal
        self._draining = False
        self._turns = self._derive()

    def _derive(self) -> Turns:
        state = self._journal.state
        return Turns(state.backlog.orders, state.slots, state.control.paused, state.control.limits)

    def reset(self) -> None:
        """Derive the turns again."""
        self._turns = self._derive()

    def on_receive(self, message: Any) -> None:
        """Take note, then give away what can be given."""
        kind = type(message)
        if kind is HeadChanged:
            self._turns.head_changed(message.agent, message.lane)
        elif kind is SlotFreed:
            self._turns.freed(message.agent, message.lane)
        elif kind is AgentReleased:
            self._turns.resumed(message.agent)
        elif kind is Drain:
            self._draining = True
        self._dispatch()

    def _dispatch(self) -> None:
        if self._turns.limits is not self._journal.state.control.limits:
            self.reset()
        turns = self._turns
        while not self._draining and (task := turns.next()) is not None:
            self._journal.record(decide_assignment(task), cause=task.created_seq)
            turns.taken(task)

"""The queue actors of a shard: one for each agent that has something to be told.

Whoever has nothing to do is retired when there are many: the order of its tasks is in the backlog
projection, so it has nothing to lose, and it is started again when somebody asks for it. So the
number of agents is no number of actors. Ask for a queue, tell it, and do not keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykka import ActorRef

from rota.actors.runtime import retire_for_good

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE_ACTORS_IDLE_MAX = 2048


class Queues(dict[str, ActorRef[Any]]):
    """The queues that are started, by agent."""

    def __init__(self, start: Callable[[str], ActorRef[Any]]) -> None:
        super().__init__()
        self._start = start
        self._many = QUEUE_ACTORS_IDLE_MAX

    def of(self, agent: str) -> ActorRef[Any]:
        """Give the agent's queue, starting it if need be and retiring idle ones."""
        ref = self.get(agent)
        if ref is None:
            if len(self) >= self._many:
                self.retire_idle()
            ref = self[agent] = self._start(agent)
        return ref

    def retire_idle(self) -> None:
        """Retire whoever has nothing to do, if there are many."""
        if len(self) < QUEUE_ACTORS_IDLE_MAX:
            return
        idle = [agent for agent, ref in self.items() if ref.actor_inbox.empty()]
        retire_for_good([self.pop(agent) for agent in idle])
        self._many = 2 * len(self) + QUEUE_ACTORS_IDLE_MAX

"""How agents stand to each other, and lines of agents in which the fairest is first.

The strategy says who that is. With `fair-fifo` the agent with the fewest tasks in flight goes
first, and between equals the one that has waited longest for a turn (`Standings.of`). With
`priority-fifo` it is the agent that has the best task there, by rank and age (`Gate` says which).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.domain.caps import SlotCounts
    from rota.domain.ordering import AgentOrder

Standing = tuple[int, int, str]
"""(tasks in flight, waiting since, agent): the smallest is the fairest.

By priority it is (rank, created seq, agent) of the agent's best task.
"""

BY_PRIORITY = "priority-fifo"
"""The strategy by priority and age over all agents; any other is fair between agents."""
NEWS_KEPT = 1024
_SLACK = 64


class News:
    """Names that something happened to, for whoever asks later what it has missed.

    To tell costs nothing for each who might care, and who never asks pays nothing. Only the newest
    are kept: whoever comes later than that must look at everything of its own.
    """

    __slots__ = ("_dropped", "_names")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._dropped = 0

    @property
    def told(self) -> int:
        """Count all that was told so far."""
        return self._dropped + len(self._names)

    def tell(self, name: str) -> None:
        self._names.append(name)
        if len(self._names) >= 2 * NEWS_KEPT:
            del self._names[:NEWS_KEPT]
            self._dropped += NEWS_KEPT

    def since(self, heard: int) -> list[str] | None:
        """Give what was told after the first `heard`; None if it is not kept any more."""
        missed = heard - self._dropped
        return self._names[missed:] if missed >= 0 else None


class Standings:
    """Who stands where, and the news of whoever stands better than before, or is held no more."""

    __slots__ = ("_orders", "_slots", "better")

    def __init__(self, orders: Mapping[str, AgentOrder], slots: SlotCounts) -> None:
        self._orders = orders
        self._slots = slots
        self.better = News()

    def of(self, agent: str) -> Standing | None:
        """Say where an agent stands; None if nothing of it waits."""
        order = self._orders.get(agent)
        return (self._slots.of_agent(agent), order.since, agent) if order is not None else None


class Line:
    """Agents, fairest first.

    A place in the heap is where its agent stood when it was put there. Whoever stands worse by now
    comes to the top too early, where that is seen and mended. Whoever stands better would come too
    late: these are in the news, which the line hears before it says who is first. So nobody has to
    know in which lines an agent is, and an agent may be in ten thousand.
    """

    __slots__ = ("_better", "_heap", "_heard", "_of", "agents")

    def __init__(self, better: News, of: Callable[[str], Standing | None]) -> None:
        """Begin empty; `of` says where an agent stands, `better` names who stands better now."""
        self._better = better
        self._of = of
        self._heard = better.told
        self._heap: list[Standing] = []
        self.agents: set[str] = set()

    def join(self, agent: str) -> None:
        if agent not in self.agents:
            self.agents.add(agent)
            self.put(agent)

    def leave(self, agent: str) -> None:
        """Take an agent out; its place is cleared when it comes to the top."""
        self.agents.discard(agent)

    def first(self) -> Standing | None:
        if self._heard != self._better.told:
            self._hear()
        heap = self._heap
        while heap:
            place = heap[0]
            agent = place[2]
            now = self._of(agent) if agent in self.agents else None
            if now == place:
                return place
            if now is not None:
                heapreplace(heap, now)
            else:
                heappop(heap)
                self.agents.discard(agent)
        return None

    def rest(self) -> None:
        """Pass over the first, who stays in line, until there is news of it."""
        heappop(self._heap)

    def _hear(self) -> None:
        missed = self._better.since(self._heard)
        self._heard = self._better.told
        if missed is None or len(missed) > len(self.agents):
            self._rebuild()
            return
        for agent in missed:
            if agent in self.agents:
                self.put(agent)

    def put(self, agent: str) -> None:
        """Let an agent that is in line have the place where it stands now."""
        place = self._of(agent)
        if place is not None:
            heappush(self._heap, place)
        if len(self._heap) > 2 * len(self.agents) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        places = map(self._of, self.agents)
        self._heap = [place for place in places if place is not None]
        heapify(self._heap)

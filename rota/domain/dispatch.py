"""Whose turn it is: which agent, which of its lanes, which task gets the next slot.

The strategy is fair-fifo: the agent with the fewest tasks in flight goes first; between equals
the one that has waited longest for a turn (the smaller `since`, so the choice is stable); inside
an agent priority, then age. A lane whose limit is reached is parked under that limit and costs
nothing until a slot of it is freed; then the fairest parked lane comes back. `Turns` is derived
state: it can be rebuilt at any time from the backlog and the slots, and decides nothing that
those two do not say. One decision costs O(log n) in agents, lanes and tasks.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

from rota.domain.commands import PULL, PUSH_LIMIT, Limits
from rota.domain.task import limits_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.domain.ordering import AgentOrder
    from rota.domain.task import Lane, Task

_SLACK = 64
_Parked = tuple[int, int, int, int, str, "Lane"]
"""(in flight, since, priority, age, agent, lane): the smallest comes back first."""


class SlotCounts(Protocol):
    """How many slots are taken."""

    total: int

    def of_agent(self, agent: str) -> int:
        """Count the agent's tasks in flight."""
        ...

    def of_limit(self, limit: str) -> int:
        """Count the tasks in flight under a named limit."""
        ...


class _AgentTurn:
    """What `Turns` knows of one agent: its open lanes by their heads, and the parked ones."""

    __slots__ = ("heads", "parked")

    def __init__(self) -> None:
        self.heads: list[tuple[int, int, Lane]] = []
        self.parked: dict[Lane, str] = {}


class Turns:
    """The agents that could be served, fairest first."""

    def __init__(
        self,
        orders: Mapping[str, AgentOrder],
        slots: SlotCounts,
        paused: Mapping[str, str],
        limits: Limits,
    ) -> None:
        """Build the order of turns from what waits and what runs."""
        self._orders = orders
        self._slots = slots
        self._paused = paused
        self.limits = limits
        self._caps = {PUSH_LIMIT: limits.push, **{f"type:{n}": m for n, m in limits.types}}
        self._agents: dict[str, _AgentTurn] = {}
        self._ready: list[tuple[int, int, str]] = []
        self._parked: dict[str, list[_Parked]] = {}
        self._loosened: set[str] = set()
        for agent, order in orders.items():
            for lane in order.lanes:
                self.head_changed(agent, lane)

    def head_changed(self, agent: str, lane: Lane) -> None:
        """Take note that another task is now first in a lane."""
        if lane[0] == PULL:
            return
        order = self._orders.get(agent)
        head = order.head(lane) if order is not None else None
        if order is None or head is None:
            if order is None:
                self._agents.pop(agent, None)
            return
        turn = self._agents.get(agent)
        if turn is None:
            turn = self._agents[agent] = _AgentTurn()
        if lane in turn.parked:
            self._push_parked(turn.parked[lane], agent, lane)
            return
        full = self._full_limit(lane)
        if full is not None:
            self._park(agent, turn, lane, full)
            return
        heappush(turn.heads, (head.priority, head.created_seq, lane))
        if len(turn.heads) > 2 * len(order.lanes) + _SLACK:
            turn.heads = list(set(turn.heads))
            heapify(turn.heads)
        self.offer(agent)

    def offer(self, agent: str) -> None:
        """Put the agent (back) among those that could be served, under its current key."""
        order = self._orders.get(agent)
        if order is None:
            self._agents.pop(agent, None)
            return
        if self._held(agent):
            return
        heappush(self._ready, (self._slots.of_agent(agent), order.since, agent))
        if len(self._ready) > 2 * len(self._agents) + _SLACK:
            self._ready = [item for item in set(self._ready) if self._is_current(item)]
            heapify(self._ready)

    def freed(self, agent: str, lane: Lane) -> None:
        """Take note that a task of this lane gave its slot back."""
        self._loosened.update(limit for limit in limits_of(lane) if limit in self._parked)
        self.resumed(agent)

    def resumed(self, agent: str) -> None:
        """Take note that the agent may be served again, or stands better than before."""
        turn = self._agents.get(agent)
        if turn is not None:
            for lane, limit in turn.parked.items():
                self._push_parked(limit, agent, lane)
                self._loosened.add(limit)
        self.offer(agent)

    def next(self) -> Task | None:
        """Say which task gets the next slot; None if no slot or nobody to give it to."""
        if self._slots.total >= self.limits.inflight:
            return None
        if self._loosened:
            self._unpark()
        ready = self._ready
        while ready:
            item = ready[0]
            agent = item[2]
            if self._is_current(item) and not self._held(agent):
                task = self._best(agent)
                if task is not None:
                    return task
            heappop(self._ready)
            ready = self._ready
        return None

    def taken(self, task: Task) -> None:
        """Take note that the task was given its slot (projections already show it)."""
        self.head_changed(task.agent, task.lane)
        self.offer(task.agent)

    def _best(self, agent: str) -> Task | None:
        """Find the agent's best task whose lane is open, parking lanes found full."""
        order, turn = self._orders[agent], self._agents[agent]
        heads = turn.heads
        while heads:
            priority, created_seq, lane = heads[0]
            head = order.head(lane)
            current = head is not None and (head.priority, head.created_seq) == (
                priority,
                created_seq,
            )
            if current and lane not in turn.parked:
                full = self._full_limit(lane)
                if full is None:
                    return head
                self._park(agent, turn, lane, full)
            heappop(heads)
        return None

    def _held(self, agent: str) -> bool:
        return (
            agent in self._paused or self._slots.of_agent(agent) >= self.limits.inflight_per_agent
        )

    def _is_current(self, item: tuple[int, int, str]) -> bool:
        order = self._orders.get(item[2])
        return (
            order is not None
            and item[1] == order.since
            and item[0] == self._slots.of_agent(item[2])
            and item[2] in self._agents
        )

    def _has_room(self, limit: str) -> bool:
        cap = self._caps.get(limit)
        return cap is None or self._slots.of_limit(limit) < cap

    def _full_limit(self, lane: Lane) -> str | None:
        for limit in limits_of(lane):
            if not self._has_room(limit):
                return limit
        return None

    def _park(self, agent: str, turn: _AgentTurn, lane: Lane, limit: str) -> None:
        turn.parked[lane] = limit
        self._push_parked(limit, agent, lane)

    def _push_parked(self, limit: str, agent: str, lane: Lane) -> None:
        entry = self._parked_entry(agent, lane)
        if entry is None:
            return
        heap = self._parked.setdefault(limit, [])
        heappush(heap, entry)
        if len(heap) > 2 * len(self._agents) + _SLACK:
            lanes = {(item[4], item[5]) for item in heap if self._is_parked(limit, item)}
            fresh = (self._parked_entry(*each) for each in lanes)
            heap[:] = [item for item in fresh if item is not None]
            heapify(heap)

    def _parked_entry(self, agent: str, lane: Lane) -> _Parked | None:
        """Give a parked lane's place among those of its limit: fairest agent, then best head."""
        order = self._orders.get(agent)
        head = order.head(lane) if order is not None else None
        if order is None or head is None:
            return None
        inflight = self._slots.of_agent(agent)
        return (inflight, order.since, head.priority, head.created_seq, agent, lane)

    def _is_parked(self, limit: str, item: _Parked) -> bool:
        turn = self._agents.get(item[4])
        return turn is not None and turn.parked.get(item[5]) == limit

    def _unpark(self) -> None:
        """Bring back the fairest parked lane of each limit that has room.

        So whoever is chosen next is fairer than all that stay parked under a limit with room.
        """
        for limit in sorted(self._loosened):
            heap = self._parked.get(limit)
            while heap and self._has_room(limit):
                if self._unpark_one(limit, heap):
                    break
            else:
                self._loosened.discard(limit)
                if not heap:
                    self._parked.pop(limit, None)

    def _unpark_one(self, limit: str, heap: list[_Parked]) -> bool:
        """Look at the fairest parked lane of a limit; True if it was brought back."""
        item = heappop(heap)
        agent, lane = item[4], item[5]
        if not self._is_parked(limit, item):
            return False
        turn = self._agents[agent]
        entry = self._parked_entry(agent, lane)
        if entry is None:
            del turn.parked[lane]
        elif self._held(agent):
            pass  # `freed` or `resumed` brings the agent's lanes back
        elif entry != item:
            heappush(heap, entry)
        else:
            del turn.parked[lane]
            self.head_changed(agent, lane)
            return lane not in turn.parked
        return False

"""A gate: lanes that the same shared limits hold back, agent by agent, fairest first.

Who is fairest is a matter of the strategy (domain/standing.py): by priority, an agent stands at a
gate where the best of the lanes stands that it has there to look at, and in the line for a limit
where the best stands of those set aside for it.

Shared limits (push attempts, a type, browsers) are few; keys and batches are as many as clients
like. So a full shared limit shuts its gates, which costs nothing until they are looked at again;
and inside a gate a lane whose key or batch is found full as its turn comes is set aside, and its
agent put into a line for that limit. A freed slot of it lets the best lane of the fairest agent of
that line back in. One agent may have ten thousand full keys and one key be wanted by ten thousand
agents: neither is ever gone through.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from rota.domain.standing import Line
from rota.domain.task import Lane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.domain.caps import Caps
    from rota.domain.ordering import AgentOrder
    from rota.domain.standing import News, Standing, Standings
    from rota.domain.task import Task

Place = tuple[int, int, Lane]
"""(rank, created seq, lane): how the first task of a lane stood when the place was taken."""

_SLACK = 64


class Turn(NamedTuple):
    """Whose turn it is; of several the smallest, and no two have the same rank and seq."""

    standing: Standing
    rank: int
    created_seq: int
    task: Task


class Hall(NamedTuple):
    """What all gates go by: the order of each agent, the limits, who stands where.

    `freed` tells of keys and batches that a slot was given back of. `by_priority` is the strategy.
    """

    orders: Mapping[str, AgentOrder]
    caps: Caps
    standings: Standings
    freed: News
    by_priority: bool = False


class AgentLanes:
    """The lanes of one agent at one gate: those to look at, best first, and those set aside.

    A place counts as long as the task that it was taken for is first in its lane. Whatever changes
    that also takes a new place, so places that do not count are just dropped when they come up.
    """

    __slots__ = ("aside", "heap")

    def __init__(self) -> None:
        self.heap: list[Place] = []
        self.aside: dict[str, list[Place]] = {}


class Gate:
    """The lanes behind one combination of shared limits."""

    __slots__ = ("_blocked", "_hall", "_heard", "_is_lent", "_lanes", "_open", "_roomy", "limits")

    def __init__(self, hall: Hall, limits: tuple[str, ...], *, is_lent: bool) -> None:
        self.limits = limits
        self._is_lent = is_lent
        self._hall = hall
        self._heard = hall.freed.told
        self._lanes: dict[str, AgentLanes] = {}
        self._open = self._line("")  # agents with lanes to look at
        self._blocked: dict[str, Line] = {}  # agents with lanes set aside, by what is full
        self._roomy: dict[str, None] = {}  # the limits of these that had a slot freed

    def _line(self, limit: str) -> Line:
        """Make the line of agents with lanes to look at, or with lanes aside for a limit."""
        standings = self._hall.standings
        of = partial(self._standing, limit) if self._hall.by_priority else standings.of
        return Line(standings.better, of)

    def _standing(self, limit: str, agent: str) -> Standing | None:
        """Say where an agent stands in such a line by priority: where its best place is."""
        lanes = self._lanes.get(agent)
        places = lanes.aside.get(limit) if lanes is not None and limit else lanes and lanes.heap
        if not places or not self._trim(agent, places):
            return None
        return places[0][0], places[0][1], agent

    def _join(self, line: Line, agent: str) -> None:
        """Let an agent stand in a line; by priority, where its best place is by now."""
        if self._hall.by_priority and agent in line.agents:
            line.put(agent)
        else:
            line.join(agent)

    @property
    def is_empty(self) -> bool:
        return not self._lanes

    def waits_for(self, *limits: str) -> bool:
        """Whether one of these limits can hold it shut, or anything back behind it."""
        return any(limit in self._blocked or limit in self.limits for limit in limits)

    def head_changed(self, agent: str, lane: Lane, head: Task | None) -> None:
        if head is None:
            self._lane_emptied(agent, lane)
            return
        lanes = self._lanes.get(agent)
        if lanes is None:
            lanes = self._lanes[agent] = AgentLanes()
        # Also if the lane was set aside: whether its limit is still full shows when it comes up.
        self._push(agent, lanes.heap, (head.rank, head.created_seq, lane))
        self._join(self._open, agent)

    def first(self) -> Turn | None:
        """Find the best task of the fairest agent; that the gate is open was looked at before.

        First every key and batch with room lets the fairest of its line in. Whoever stays in
        a line stands behind somebody who was let in, and so would not be first anyway.
        """
        self._hear()
        for limit in list(self._roomy):
            self._let_in(limit)
        while (standing := self._open.first()) is not None:
            agent = standing[2]
            if self._hall.caps.holds_agent(agent):
                self._open.rest()  # the end of a task of it, or its resumption, is news
            elif (task := self._best_of(agent)) is None:
                self._open.leave(agent)
            elif not self._hall.by_priority or task.created_seq == standing[1]:
                return Turn(standing, task.rank, task.created_seq, task)
        return None

    def first_of(self, agent: str) -> Turn | None:
        """Find the best task of this agent, who is not held."""
        lanes = self._lanes.get(agent)
        if lanes is None:
            return None
        self._hear()
        if len(self._roomy) < len(lanes.aside):
            back = [limit for limit in self._roomy if limit in lanes.aside]
        else:
            back = [limit for limit in lanes.aside if limit in self._roomy]
        for limit in back:
            if self._has_room(limit):
                for place in lanes.aside[limit]:
                    heappush(lanes.heap, place)
                self._clear_aside(agent, lanes, limit)
                self._join(self._open, agent)
        task = self._best_of(agent)
        if task is None:
            return None
        best = (task.rank, task.created_seq, agent)
        standing = best if self._hall.by_priority else self._hall.standings.of(agent)
        return Turn(standing, task.rank, task.created_seq, task) if standing is not None else None

    def _best_of(self, agent: str) -> Task | None:
        """Find the agent's best task, setting lanes aside whose key or batch is full."""
        lanes = self._lanes.get(agent)
        while lanes is not None and lanes.heap:
            place = lanes.heap[0]
            task = self._task_of(agent, place)
            full = self._full_own(place[2]) if task is not None else None
            if task is not None and full is None:
                return task
            heappop(lanes.heap)
            if full is not None:
                self._set_aside(agent, lanes, full, place)
        return None

    def _task_of(self, agent: str, place: Place) -> Task | None:
        """Give the task that a place was taken for, if it is still the first of its lane."""
        order = self._hall.orders.get(agent)
        task = order.head(place[2]) if order is not None else None
        is_current = task is not None and (task.rank, task.created_seq) == place[:2]
        return task if is_current else None

    def _push(self, agent: str, places: list[Place], place: Place) -> None:
        """Add a place; if most cannot count any more (one for each lane does), drop those."""
        heappush(places, place)
        order = self._hall.orders.get(agent)
        if len(places) > 2 * (len(order.lanes) if order is not None else 0) + _SLACK:
            places[:] = {each for each in places if self._task_of(agent, each) is not None}
            heapify(places)

    def _full_own(self, lane: Lane) -> str | None:
        for limit in self._hall.caps.of_lane(lane).own:
            if not self._has_room(limit):
                return limit
        return None

    def _has_room(self, limit: str) -> bool:
        caps = self._hall.caps
        return caps.has_room(limit) and not (self._is_lent and limit in caps.kept)

    # -- what waits for a key or a batch

    def _set_aside(self, agent: str, lanes: AgentLanes, limit: str, place: Place) -> None:
        self._push(agent, lanes.aside.setdefault(limit, []), place)
        if limit not in self._blocked:
            self._blocked[limit] = self._line(limit)
        self._join(self._blocked[limit], agent)

    def _hear(self) -> None:
        """Take note of the limits that a slot was given back of."""
        freed = self._hall.freed
        if self._heard == freed.told:
            return
        names = freed.since(self._heard)
        self._heard = freed.told
        if names is None:
            names = list(self._blocked)
        self._roomy.update((name, None) for name in names if name in self._blocked)

    def _let_in(self, limit: str) -> None:
        """Let lanes back in, fairest agent first, until one is let in that can be served now.

        Those who are let in on the way are held by something else, and need not wait here. While
        the limit has room this is done each time that somebody looks: the one that was let in may
        have been given another task meanwhile, and stand behind the next of the line.
        """
        line = self._blocked.get(limit)
        while line is not None and self._has_room(limit):
            standing = line.first()
            if standing is None:
                self._blocked.pop(limit, None)
                break
            if self._let_in_best(standing[2], limit):
                return
        del self._roomy[limit]

    def _let_in_best(self, agent: str, limit: str) -> bool:
        """Let the best lane in that an agent has aside for a limit; True if it can be served."""
        lanes = self._lanes[agent]
        place = heappop(lanes.aside[limit])
        if not lanes.aside[limit]:
            self._clear_aside(agent, lanes, limit)
        if self._task_of(agent, place) is None:
            return False
        heappush(lanes.heap, place)
        self._join(self._open, agent)
        return self._full_own(place[2]) is None and not self._hall.caps.holds_agent(agent)

    def _clear_aside(self, agent: str, lanes: AgentLanes, limit: str) -> None:
        del lanes.aside[limit]
        line = self._blocked.get(limit)
        if line is not None:
            line.leave(agent)
            if not line.agents:
                del self._blocked[limit]

    def _lane_emptied(self, agent: str, lane: Lane) -> None:
        """Drop what is left of a lane, so that nothing stays here longer than its tasks wait."""
        lanes = self._lanes.get(agent)
        if lanes is None:
            return
        for limit in self._hall.caps.of_lane(lane).own:
            places = lanes.aside.get(limit)
            if places is not None and not self._trim(agent, places):
                self._clear_aside(agent, lanes, limit)
        if not self._trim(agent, lanes.heap) and not lanes.aside:
            del self._lanes[agent]
            self._open.leave(agent)

    def _trim(self, agent: str, places: list[Place]) -> bool:
        """Drop places from the top that do not count; whether one that does is left."""
        while places and self._task_of(agent, places[0]) is None:
            heappop(places)
        return bool(places)

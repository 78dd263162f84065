"""Whose turn it is: which agent, which of its lanes, which task gets the next slot.

The strategy is fair-fifo: the agent with the fewest tasks in flight goes first; between equals
the one that has waited longest for a turn (the smaller `since`, so the choice is stable); inside
an agent rank (priority, aged if priorities age), then age. Lanes that are held back by the same
capped limits form a group; a group whose limit is reached is parked under that limit and costs
nothing until a slot of it is freed; then the best group of the fairest agent comes back. `Turns` is
derived state: it can be rebuilt at any time from the backlog and the slots, and decides nothing
that those two do not say. One decision costs O(log n) in agents, lanes and tasks; a freed slot of a
key or a batch costs a look at those that wait for it and for many others (`OWN_FEW`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from rota.domain.caps import Caps
from rota.domain.commands import AGENT_LIMIT, INFLIGHT_LIMIT, PULL
from rota.domain.parking import OWN, OWN_FEW, AgentTurn, Line, Park
from rota.domain.preemption import UrgentLanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.domain.caps import SlotCounts
    from rota.domain.commands import Limits
    from rota.domain.ordering import AgentOrder
    from rota.domain.parking import Group, Standing
    from rota.domain.task import Lane, Task

_SLACK = 64


class Turns:
    """The agents that could be served, fairest first."""

    def __init__(
        self,
        orders: Mapping[str, AgentOrder],
        slots: SlotCounts,
        paused: Mapping[str, str],
        limits: Limits,
        paused_types: Iterable[str] = (),
    ) -> None:
        """Build the order of turns from what waits and what runs."""
        self._orders = orders
        self._slots = slots
        self.limits = limits
        self._caps = Caps(limits, slots, paused, paused_types)
        self._agents: dict[str, AgentTurn] = {}
        self._ready: list[tuple[int, int, str]] = []
        self._lines: dict[str, Line] = {}
        self._crowded: set[str] = set()
        self._loosened: set[str] = set()
        self._urgent = UrgentLanes()
        self._eased: dict[str, None] = {}
        for agent, order in orders.items():
            for lane in order.lanes:
                self.head_changed(agent, lane)

    def head_changed(self, agent: str, lane: Lane) -> None:
        """Take note that another task is now first in a lane, or none."""
        if lane[0] == PULL:
            return
        order = self._orders.get(agent)
        if order is None:
            self._forget(agent)
            return
        turn = self._agents.get(agent)
        if turn is None:
            turn = self._agents[agent] = AgentTurn()
        group = self._caps.group_of(lane)
        head = order.head(lane)
        if head is not None:
            lanes = turn.groups.setdefault(group, [])
            heappush(lanes, (head.rank, head.created_seq, lane))
            if len(lanes) > 2 * len(order.lanes) + _SLACK:
                lanes[:] = set(lanes)
                heapify(lanes)
        if head is not None and head.plan is not None and head.plan.preempt:
            self._urgent.add(agent, lane, head.priority)
        elif self._urgent:
            self._urgent.drop(agent, (lane,))
        self._group_changed(agent, turn, group)

    def _group_changed(self, agent: str, turn: AgentTurn, group: Group) -> None:
        """Put a group where it belongs: parked, or among the agent's heads."""
        head = self._head_of(agent, turn, group)
        limit = turn.parked.get(group)
        if head is None:
            if limit is not None:
                self._leave_park(agent, turn, group, limit)
            return
        if limit is not None:
            self._push_parked(agent, turn, group, limit, head)
            return
        full = self._caps.full_one(group)
        if full is not None:
            self._park(agent, turn, group, full, head)
            return
        heappush(turn.heads, (head.rank, head.created_seq, group))
        if len(turn.heads) > 2 * len(turn.groups) + _SLACK:
            turn.heads = list(set(turn.heads))
            heapify(turn.heads)
        self.offer(agent)

    def offer(self, agent: str) -> None:
        """Put the agent (back) among those that could be served, under its current key."""
        order = self._orders.get(agent)
        if order is None:
            self._forget(agent)
            return
        if self._caps.holds_agent(agent):
            return
        heappush(self._ready, (self._slots.of_agent(agent), order.since, agent))
        if len(self._ready) > 2 * len(self._agents) + _SLACK:
            self._ready = [item for item in set(self._ready) if self._is_current(item)]
            heapify(self._ready)

    def freed(self, agent: str, lane: Lane) -> None:
        """Take note that a task of this lane gave its slot back."""
        group = self._caps.group_of(lane)
        self._loosened.update(limit for limit in group if limit in self._lines)
        if self._urgent:
            self._eased.update(dict.fromkeys((*group, INFLIGHT_LIMIT, AGENT_LIMIT + agent)))
        self._stands_better(agent)

    def resumed(self, agent: str) -> None:
        """Take note that the agent may be served again."""
        self._urgent.look_at(agent)
        self._stands_better(agent)

    def _stands_better(self, agent: str) -> None:
        turn = self._agents.get(agent)
        if turn is not None:
            self._line_up_all(agent, turn.shared)
            if agent not in self._crowded:
                self._line_up_all(agent, turn.own)
        self.offer(agent)

    def next(self) -> Task | None:
        """Say which task gets the next slot; None if no slot or nobody to give it to."""
        if self._slots.total >= self.limits.inflight:
            return None
        if self._loosened:
            self._unpark()
        while self._ready:
            item = self._ready[0]
            agent = item[2]
            if self._is_current(item) and not self._caps.holds_agent(agent):
                task = self._best(agent)
                if task is not None:
                    return task
            heappop(self._ready)
        return None

    def taken(self, task: Task) -> None:
        """Take note that the task was given its slot (projections already show it)."""
        self.head_changed(task.agent, task.lane)
        if self._urgent:
            self._urgent.look_at(task.agent, than=task.priority)
        self.offer(task.agent)

    def next_urgent(self) -> tuple[Task, tuple[str, ...]] | None:
        """Give a task that may pre-empt and the limits that hold it back, if one slot would do.

        To be asked after `next` has said None: what can run without a victim does.
        """
        urgent = self._urgent
        for limit in self._eased:
            taken, cap = self._caps.taken(limit)
            if taken < cap:
                urgent.let_go((limit, False))
            if taken <= cap:
                urgent.let_go((limit, True))
        self._eased.clear()
        soon: dict[tuple[str, Lane], None] = {}
        while urgent.look:
            agent, lane = next(iter(urgent.look))
            del urgent.look[agent, lane]
            order = self._orders.get(agent)
            task = order.head(lane) if order is not None else None
            if task is None or task.plan is None or not task.plan.preempt:
                continue  # another head, which is not known here yet
            full, over = self._caps.held_by(task)
            holds = [(limit, False) for limit in full] + [(limit, True) for limit in over]
            urgent.hold(agent, lane, tuple(holds))
            if full and not over:
                urgent.look.update(soon)
                return task, full
            if not full and not over:
                soon[agent, lane] = None  # it has room, and will be served when that is heard here
        urgent.look.update(soon)
        return None

    def _best(self, agent: str) -> Task | None:
        """Find the agent's best task whose group is open, parking groups found full."""
        turn = self._agents[agent]
        heads = turn.heads
        while heads:
            rank, created_seq, group = heads[0]
            head = self._head_of(agent, turn, group) if group not in turn.parked else None
            if head is not None and (head.rank, head.created_seq) == (rank, created_seq):
                full = self._caps.full_one(group)
                if full is None:
                    return head
                self._park(agent, turn, group, full, head)
            heappop(heads)
        return None

    def _head_of(self, agent: str, turn: AgentTurn, group: Group) -> Task | None:
        """Find the best task of a group, dropping heads that are none any more."""
        order = self._orders.get(agent)
        lanes = turn.groups.get(group)
        while lanes and order is not None:
            rank, created_seq, lane = lanes[0]
            head = order.head(lane)
            if head is not None and (head.rank, head.created_seq) == (rank, created_seq):
                return head
            heappop(lanes)
        turn.groups.pop(group, None)
        return None

    def _forget(self, agent: str) -> None:
        turn = self._agents.pop(agent, None)
        for limit in (*turn.shared, *turn.own) if turn is not None else ():
            self._lines[limit].agents.discard(agent)
        self._crowded.discard(agent)
        if self._urgent:
            self._urgent.drop(agent)

    def _is_current(self, item: tuple[int, int, str]) -> bool:
        order = self._orders.get(item[2])
        return (
            order is not None
            and item[1] == order.since
            and item[0] == self._slots.of_agent(item[2])
            and item[2] in self._agents
        )

    # -- parks: groups that wait for a limit

    def _park(self, agent: str, turn: AgentTurn, group: Group, limit: str, head: Task) -> None:
        turn.parked[group] = limit
        parks = turn.parks(limit)
        if limit not in parks:
            parks[limit] = Park()
            self._lines.setdefault(limit, Line()).agents.add(agent)
            if len(turn.own) > OWN_FEW:
                self._crowded.add(agent)
        parks[limit].groups.add(group)
        self._push_parked(agent, turn, group, limit, head)

    def _leave_park(self, agent: str, turn: AgentTurn, group: Group, limit: str) -> None:
        del turn.parked[group]
        parks = turn.parks(limit)
        parks[limit].groups.discard(group)
        if not parks[limit].groups:
            del parks[limit]
            self._lines[limit].agents.discard(agent)
            if agent in self._crowded and len(turn.own) <= OWN_FEW:
                self._crowded.discard(agent)
                self._line_up_all(agent, turn.own)

    def _push_parked(
        self, agent: str, turn: AgentTurn, group: Group, limit: str, head: Task
    ) -> None:
        """Note a parked group under its present head, and its agent in the limit's line."""
        park = turn.parks(limit)[limit]
        heappush(park.heap, (head.rank, head.created_seq, group))
        if len(park.heap) > 2 * len(park.groups) + _SLACK:
            park.heap = [item for item in set(park.heap) if self._parked_head(agent, turn, item)]
            heapify(park.heap)
        self._line_up(agent, limit)

    def _parked_head(
        self, agent: str, turn: AgentTurn, item: tuple[int, int, Group]
    ) -> Task | None:
        """Give the head that an item of a park stands for, if it is the group's present one."""
        head = self._head_of(agent, turn, item[2])
        return head if head is not None and (head.rank, head.created_seq) == item[:2] else None

    def _line_up_all(self, agent: str, limits: Iterable[str]) -> None:
        for limit in limits:
            self._line_up(agent, limit)

    def _line_up(self, agent: str, limit: str) -> None:
        """Put the agent into a limit's line where it stands now."""
        line = self._lines[limit]
        self._push_standing(line, agent)
        if self._caps.has_room(limit):
            self._loosened.add(limit)

    def _push_standing(self, line: Line, agent: str) -> None:
        heappush(line.heap, self._standing(agent))
        if len(line.heap) > 2 * len(line.agents) + _SLACK:
            line.heap = [self._standing(each) for each in line.agents]
            heapify(line.heap)

    def _standing(self, agent: str) -> Standing:
        order = self._orders.get(agent)
        return (self._slots.of_agent(agent), order.since if order is not None else 0, agent)

    def _unpark(self) -> None:
        """Bring back the best group of the fairest agent of each limit that has room.

        So whoever is chosen next is fairer than all that stay parked under a limit with room.
        """
        for limit in sorted(self._loosened):
            line = self._lines.get(limit)
            if line is not None and self._crowded and limit.startswith(OWN):
                self._look_round(limit, line)
            while line is not None and line.heap and self._caps.has_room(limit):
                if self._unpark_one(limit, line):
                    break
            else:
                self._loosened.discard(limit)
            if line is not None and not line.agents:
                self._lines.pop(limit, None)

    def _look_round(self, limit: str, line: Line) -> None:
        """Bring those of a key's or batch's line up to date who cannot do that themselves.

        Who is held back goes on by itself.
        """
        for agent in sorted(line.agents & self._crowded):
            if not self._caps.holds_agent(agent):
                self._push_standing(line, agent)
                continue
            turn = self._agents[agent]
            for group in sorted(turn.own[limit].groups):
                self._leave_park(agent, turn, group, limit)
                self._group_changed(agent, turn, group)

    def _unpark_one(self, limit: str, line: Line) -> bool:
        """Look at the fairest agent of a line; True if a group of it was brought back."""
        item = line.heap[0]
        agent = item[2]
        if agent not in line.agents or self._caps.holds_agent(agent):
            heappop(line.heap)  # `freed` or `resumed` brings a held agent back
            return False
        standing = self._standing(agent)
        if standing != item:
            heapreplace(line.heap, standing)
            return False
        turn = self._agents[agent]
        park = turn.parks(limit)[limit]
        while park.heap:
            found = heappop(park.heap)
            group = found[2]
            if group in park.groups and self._parked_head(agent, turn, found) is not None:
                self._leave_park(agent, turn, group, limit)
                self._group_changed(agent, turn, group)
                return group not in turn.parked
        for group in list(park.groups):  # none of them has a head any more
            self._leave_park(agent, turn, group, limit)
        return False

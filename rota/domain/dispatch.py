"""Whose turn it is: which agent, which of its lanes, which task gets the next slot.

Fair between agents (domain/standing.py), by rank (priority, aged if priorities age) and age inside
one; or, with the strategy `priority-fifo`, by rank and age over all agents. Always under every cap.
Lanes stand at gates (domain/gates.py), one for each combination of shared limits; whoever asks for
a task names what it takes, and the fairest of the gates that are open to it is first. `Turns` is
derived state: it can be rebuilt at any time from the backlog and the slots, and decides nothing
that those two do not say. A decision costs O(gates + log n), however much waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.domain.caps import KEY, Caps
from rota.domain.commands import PULL, PUSH_LIMIT
from rota.domain.gates import Gate, Hall, Turn
from rota.domain.preemption import Urgent
from rota.domain.standing import BY_PRIORITY, News, Standings

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from rota.domain.caps import SlotCounts
    from rota.domain.commands import Limits
    from rota.domain.ordering import AgentOrder
    from rota.domain.task import Lane, Task

PUSH = "push"


class Consumer(NamedTuple):
    """Who takes tasks: those that rota runs itself (`push`), or those that workers come for.

    If it names types or agents, it takes only those; and of these what `requires` just the labels
    that it says, one a line (`lane[5]`).
    """

    side: str
    types: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    requires: str = ""


PUSHER = Consumer(PUSH)
"""The dispatcher: takes whatever rota runs itself."""


class Turns:
    """The lanes that wait, in the order of their turns, for every kind of consumer.

    What only workers come for is laid out when the first of them comes, and kept up to date from
    then on: a server without workers does not pay for it.
    """

    def __init__(
        self,
        orders: Mapping[str, AgentOrder],
        slots: SlotCounts,
        paused: Mapping[str, str],
        limits: Limits,
        paused_types: Iterable[str] = (),
        paused_flows: Container[str] = (),
        declared: Mapping[str, int] | None = None,
    ) -> None:
        self.limits = limits
        self._orders = orders
        self._caps = Caps(limits, slots, paused, paused_types, paused_flows, declared)
        standings, by_priority = Standings(orders, slots), limits.strategy == BY_PRIORITY
        self._hall = Hall(orders, self._caps, standings, News(), by_priority)
        self._views = {(PUSH, False): View(self._hall, by_type=False)}
        self.urgent = Urgent(orders, self._caps)
        for agent, order in orders.items():
            for lane in order.lanes:
                self.head_changed(agent, lane)

    # -- what is heard

    def head_changed(self, agent: str, lane: Lane) -> None:
        """Take note that another task is now first in a lane, or none."""
        order = self._orders.get(agent)
        head = order.head(lane) if order is not None else None
        side = side_of(lane)
        for by_type in (False, True):
            view = self._views.get((side, by_type))
            if view is not None:
                view.head_changed(agent, lane, head)
        if side == PUSH:  # nobody is interrupted for a task that waits for a worker
            self.urgent.head_changed(agent, lane, head)

    def freed(self, agent: str, lane: Lane) -> None:
        """Take note that a task of this lane gave its slot back.

        Shared limits are looked at with every decision. A key or batch is looked at when it is
        heard of here, and its agent, which stands better now, is put where it belongs.
        """
        for limit in self._caps.of_lane(lane).own:
            self._hall.freed.tell(limit)
        self._hall.standings.better.tell(agent)
        self.urgent.freed(agent, lane)

    def resumed(self, agent: str) -> None:
        self._hall.standings.better.tell(agent)
        self.urgent.resumed(agent)

    def eased(self, limit: str) -> None:
        """Take note that a lane's own limit has another cap: what was set aside is looked at."""
        self._hall.freed.tell(limit)
        self.urgent.eased(limit)

    def given(self, task: Task) -> None:
        """Take note that the task was given its slot (projections already show it)."""
        self.head_changed(task.agent, task.lane)
        self.urgent.given(task)

    def reprioritised(self, task: Task) -> None:
        """Take note that a task in flight has another priority: it may be a victim now."""
        self.urgent.given(task)

    # -- what is asked

    @property
    def is_full(self) -> bool:
        """Whether everybody's slots are taken."""
        return self._caps.is_full

    def next(self, consumer: Consumer = PUSHER) -> Task | None:
        """Say which task gets the next slot; None if no slot or nobody to give it to."""
        turn = self.first(consumer)
        return turn.task if turn is not None else None

    def first(self, consumer: Consumer = PUSHER) -> Turn | None:
        """Say whose turn it is; of several consumers the one with the smallest goes first."""
        if self._caps.is_full:
            return None
        gates = self._view_for(consumer).open_to(consumer)
        if consumer.agents is not None:
            return self._first_of(consumer.agents, list(gates))
        return min((turn for gate in gates if (turn := gate.first()) is not None), default=None)

    def _first_of(self, agents: Iterable[str], gates: list[Gate]) -> Turn | None:
        """Ask these agents alone."""
        free = [agent for agent in agents if not self._caps.holds_agent(agent)]
        turns = (gate.first_of(agent) for agent in free for gate in gates)
        return min((turn for turn in turns if turn is not None), default=None)

    def why_held(self, agent: str, lane: Lane) -> str | None:
        """Say which limit, or pause of a workflow, keeps tasks from a slot; None if none does."""
        return self._caps.why_held(agent, lane)

    def requirements(self) -> Iterable[str]:
        """Give what is required of workers by anything that waits."""
        return self._view_for(Consumer(PULL)).requirements()

    def has_any(self, consumer: Consumer) -> bool:
        """Whether anything waits that a consumer might take, once nothing holds it back."""
        if consumer.agents is not None and not any(a in self._orders for a in consumer.agents):
            return False
        return self._view_for(consumer).has_any(consumer)

    def keep(self, key: str) -> None:
        """Give nothing of this key to anybody, until it is let go."""
        self._caps.kept.add(KEY + key)

    def let_go(self, key: str) -> list[str]:
        """Keep a key no longer; name its limit, if anything waits for that."""
        limit = KEY + key
        if limit not in self._caps.kept:
            return []
        self._caps.kept.remove(limit)
        self._hall.freed.tell(limit)
        return self._waited_for((limit,))

    def wanted(self, lane: Lane) -> list[str]:
        """Name the limits of a lane that anything which workers come for may wait for."""
        shared, own = self._caps.of_lane(lane)
        return self._waited_for(limit for limit in (*shared, *own) if limit != PUSH_LIMIT)

    def _waited_for(self, limits: Iterable[str]) -> list[str]:
        return [limit for limit in limits if any(gate.waits_for(limit) for gate in self._lent())]

    def lends(self, limits: Iterable[str]) -> bool:
        """Whether one of these limits lets anything be lent."""
        return any(self._caps.has_room(each) and each not in self._caps.kept for each in limits)

    def lanes_of(self, agent: str) -> Collection[Lane]:
        """Give the lanes in which an agent's tasks wait."""
        order = self._orders.get(agent)
        return order.lanes if order is not None else ()

    def _lent(self) -> Iterator[Gate]:
        for (side, _), view in self._views.items():
            if side == PULL:
                yield from view.gates()

    def _view_for(self, consumer: Consumer) -> View:
        kind = (consumer.side, consumer.types is not None)
        view = self._views.get(kind)
        if view is None:
            view = self._views[kind] = View(self._hall, by_type=kind[1])
            for agent, order in self._orders.items():
                for lane in order.lanes:
                    if side_of(lane) == consumer.side:
                        view.head_changed(agent, lane, order.head(lane))
        return view


class View:
    """The gates of one side: one for each combination of shared limits, which are few.

    Types may be many. Only for consumers that name theirs there is a gate for each.
    """

    def __init__(self, hall: Hall, *, by_type: bool) -> None:
        self._hall = hall
        self._by_type = by_type
        self._gates: dict[str, dict[tuple[str, ...], Gate]] = {}  # by what they require

    def head_changed(self, agent: str, lane: Lane, head: Task | None) -> None:
        """Tell the gate of a lane, which is there as long as anything stands at it."""
        shared, requires = self._hall.caps.of_lane(lane).shared, lane[5]
        name = (lane[1],) if self._by_type else shared
        gates = self._gates.get(requires)
        if gates is None:
            gates = self._gates[requires] = {}
        gate = gates.get(name)
        if gate is None:
            gate = gates[name] = Gate(self._hall, shared, is_lent=side_of(lane) == PULL)
        gate.head_changed(agent, lane, head)
        if gate.is_empty:
            del gates[name]
            if not gates:
                del self._gates[requires]

    def open_to(self, consumer: Consumer) -> Iterator[Gate]:
        """Go through the gates that a consumer takes from and whose limits all have room."""
        for gate in self._of(consumer):
            if self._hall.caps.full_one(gate.limits) is None:
                yield gate

    def requirements(self) -> Iterable[str]:
        return list(self._gates)

    def gates(self) -> Iterator[Gate]:
        for gates in self._gates.values():
            yield from gates.values()

    def has_any(self, consumer: Consumer) -> bool:
        return any(True for _ in self._of(consumer))

    def _of(self, consumer: Consumer) -> Iterator[Gate]:
        gates = self._gates.get(consumer.requires)
        if gates is None:
            return
        if consumer.types is None:
            yield from gates.values()
            return
        for name in consumer.types:
            gate = gates.get((name,))
            if gate is not None:
                yield gate


def side_of(lane: Lane) -> str:
    """Say who takes the tasks of a lane."""
    return PULL if lane[0] == PULL else PUSH

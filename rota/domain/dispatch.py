"""Whose turn it is: which agent, which of its lanes, which task gets the next slot.

Fair between agents (domain/standing.py), by rank (priority, aged if priorities age) and age inside
one, under every cap. Lanes stand at gates (domain/gates.py), one for each combination of shared
limits; whoever asks for a task names what it takes, and the fairest of the gates that are open to
it is first. `Turns` is derived state: it can be rebuilt at any time from the backlog and the slots,
and decides nothing that those two do not say. A decision costs O(gates + log n), however much
waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.domain.caps import FLOW, Caps
from rota.domain.commands import PULL
from rota.domain.gates import Gate, Hall
from rota.domain.preemption import Urgent
from rota.domain.standing import News, Standings

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from rota.domain.caps import SlotCounts
    from rota.domain.commands import Limits
    from rota.domain.ordering import AgentOrder
    from rota.domain.task import Lane, Task

PUSH = "push"


class Consumer(NamedTuple):
    """Who takes tasks: those that rota runs itself (`push`), or those that workers come for.

    If it names types or agents, it takes only those.
    """

    side: str
    types: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None


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
    ) -> None:
        self.limits = limits
        self._orders = orders
        self._caps = Caps(limits, slots, paused, paused_types, paused_flows)
        self._hall = Hall(orders, self._caps, Standings(orders, slots), News())
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

    def flow_resumed(self, workflow: str) -> None:
        """Take note that a workflow is paused no more: what was set aside for that is let in."""
        self._hall.freed.tell(FLOW + workflow)
        self.urgent.eased(FLOW + workflow)

    def given(self, task: Task) -> None:
        """Take note that the task was given its slot (projections already show it)."""
        self.head_changed(task.agent, task.lane)
        self.urgent.given(task)

    # -- what is asked

    def next(self, consumer: Consumer = PUSHER) -> Task | None:
        """Say which task gets the next slot; None if no slot or nobody to give it to."""
        if self._caps.is_full:
            return None
        gates = self._view_for(consumer).open_to(consumer)
        if consumer.agents is not None:
            return self._next_of(consumer.agents, list(gates))
        found = [turn for gate in gates if (turn := gate.first()) is not None]
        return min(found).task if found else None

    def _next_of(self, agents: Iterable[str], gates: list[Gate]) -> Task | None:
        """Ask these agents alone, fairest first."""
        places = map(self._hall.standings.of, agents)
        for _, _, agent in sorted(place for place in places if place is not None):
            if not self._caps.holds_agent(agent):
                found = [turn for gate in gates if (turn := gate.first_of(agent)) is not None]
                if found:
                    return min(found).task
        return None

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
        self._gates: dict[tuple[str, ...], Gate] = {}

    def head_changed(self, agent: str, lane: Lane, head: Task | None) -> None:
        """Tell the gate of a lane, which is there as long as anything stands at it."""
        shared = self._hall.caps.of_lane(lane).shared
        name = (lane[1],) if self._by_type else shared
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = Gate(self._hall, shared)
        gate.head_changed(agent, lane, head)
        if gate.is_empty:
            del self._gates[name]

    def open_to(self, consumer: Consumer) -> Iterator[Gate]:
        """Go through the gates that a consumer takes from and whose limits all have room."""
        names = consumer.types
        wanted = self._gates if names is None else ((name,) for name in names)
        for name in wanted:
            gate = self._gates.get(name)
            if gate is not None and self._hall.caps.full_one(gate.limits) is None:
                yield gate


def side_of(lane: Lane) -> str:
    """Say who takes the tasks of a lane."""
    return PULL if lane[0] == PULL else PUSH

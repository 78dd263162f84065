"""The limits, and how full they are.

A limit has a name: everybody's, one agent's, that of all push attempts, of a type, of the browsers,
of a key, of a batch, of a workflow, and what a worker declared for a type. A task is held back by
those of its lane that have a cap. Some are shared (push, types, browsers): set in the
configuration, and few. Others are a lane's own (its key, batch, workflow, what is declared):
clients make them, as many as they like. What is paused has a cap of none; a workflow has no other
cap, so that only a pause of it is ever felt. What is declared gives way to the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from rota.domain.commands import AGENT_LIMIT, BROWSERS_LIMIT, INFLIGHT_LIMIT, PUSH_LIMIT
from rota.domain.task import limits_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from rota.domain.commands import Limits
    from rota.domain.task import Lane, Task

KEY, BATCH, FLOW, DECLARED = "key:", "batch:", "flow:", "declared:"
"""How the limits begin that are a lane's own."""
UNBOUND = 1 << 62
LANES_KEPT = 10_000


class SlotCounts(Protocol):
    """How many slots are taken."""

    total: int

    def of_agent(self, agent: str) -> int: ...

    def of_limit(self, limit: str) -> int: ...


class LaneLimits(NamedTuple):
    """The limits of a lane that have a cap."""

    shared: tuple[str, ...]
    own: tuple[str, ...]


class Caps:
    """What is taken of each limit, and what there is."""

    def __init__(
        self,
        limits: Limits,
        slots: SlotCounts,
        paused: Mapping[str, str],
        paused_types: Iterable[str],
        paused_flows: Container[str] = (),
        declared: Mapping[str, int] | None = None,
    ) -> None:
        self._limits = limits
        self._declared = {} if declared is None else declared
        self._configured = dict(limits.types)
        self._paused_flows = paused_flows
        self._slots = slots
        self._paused = paused
        self._of_lanes: dict[Lane, LaneLimits] = {}
        self.kept: set[str] = set()
        """The keys of which nothing is lent for a moment: kept for the worker that had them."""
        self._named = {
            PUSH_LIMIT: limits.push,
            **({BROWSERS_LIMIT: limits.browsers} if limits.browsers else {}),
            **{f"type:{name}": cap for name, cap in limits.types},
            **{f"type:{name}": 0 for name in paused_types},
        }

    def of_lane(self, lane: Lane) -> LaneLimits:
        found = self._of_lanes.get(lane)
        if found is None:
            if len(self._of_lanes) >= LANES_KEPT:
                self._of_lanes.clear()
            capped = [limit for limit in limits_of(lane) if self._cap_of(limit) is not None]
            own = tuple(limit for limit in capped if limit.startswith((KEY, BATCH, FLOW, DECLARED)))
            shared = tuple(limit for limit in capped if limit not in own)
            found = self._of_lanes[lane] = LaneLimits(shared, own)
        return found

    def _cap_of(self, limit: str) -> int | None:
        """Give a limit's cap: set for a type, the same for every key, a batch's own."""
        cap = self._named.get(limit)
        if cap is None:
            if limit.startswith(KEY):
                return self._limits.per_key
            if limit.startswith(BATCH):
                return int(limit.split(":", 2)[1])
            if limit.startswith(FLOW):
                return 0 if limit.removeprefix(FLOW) in self._paused_flows else UNBOUND
            if limit.startswith(DECLARED):
                is_set = limit.partition("\n")[2] in self._configured
                return UNBOUND if is_set else self._declared.get(limit, UNBOUND)
        return cap

    def has_room(self, limit: str) -> bool:
        return self._slots.of_limit(limit) < (self._cap_of(limit) or 0)

    def full_one(self, limits: Iterable[str]) -> str | None:
        for limit in limits:
            if not self.has_room(limit):
                return limit
        return None

    @property
    def is_full(self) -> bool:
        """Whether everybody's slots are taken."""
        return self._slots.total >= self._limits.inflight

    def holds_agent(self, agent: str) -> bool:
        """Whether an agent is paused or has all its slots."""
        return agent in self._paused or (
            self._slots.of_agent(agent) >= self._limits.inflight_per_agent
        )

    def usage(self, limit: str) -> tuple[int, int]:
        """Count the slots taken under any limit, and say how many there are."""
        if limit == INFLIGHT_LIMIT:
            return self._slots.total, self._limits.inflight
        if limit.startswith(AGENT_LIMIT):
            agent = limit.removeprefix(AGENT_LIMIT)
            cap = 0 if agent in self._paused else self._limits.inflight_per_agent
            return self._slots.of_agent(agent), cap
        return self._slots.of_limit(limit), self._cap_of(limit) or 0

    def all_of(self, agent: str, lane: Lane) -> tuple[str, ...]:
        """Name every limit with a cap that such a task is under."""
        shared, own = self.of_lane(lane)
        return (*shared, *own, INFLIGHT_LIMIT, AGENT_LIMIT + agent)

    def why_held(self, agent: str, lane: Lane) -> str | None:
        """Say which limit, or pause of a workflow, keeps tasks from a slot; None if none does."""
        for limit in self.all_of(agent, lane):
            taken, cap = self.usage(limit)
            if taken >= cap:
                return _told(limit, cap)
        return None

    def held_by(self, task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Name the limits of a task that are full, and those that are over their cap."""
        full, over = [], []
        for limit in self.all_of(task.agent, task.lane):
            taken, cap = self.usage(limit)
            if taken > cap or not cap:
                over.append(limit)
            elif taken == cap:
                full.append(limit)
        return tuple(full), tuple(over)


def _told(limit: str, cap: int) -> str:
    """Say that a limit is full, by the name of its setting."""
    kind, _, name = limit.partition(":")
    if limit.startswith(FLOW):
        return "its workflow is paused"
    what = {
        INFLIGHT_LIMIT: "maxInflight",
        "agent": f"maxPerAgentInflight of agent '{name}'",
        PUSH_LIMIT: "workerCount",
        BROWSERS_LIMIT: "maxConcurrentBrowsers",
        "type": f"maxConcurrent of type '{name}'",
        "declared": f"what its worker declared for type '{name.partition(chr(10))[2]}'",
        "key": f"maxPerKey of key '{name}'",
        "batch": "the parallelism of its batch",
    }[kind]
    return f"{what} is reached: {cap} in flight"

"""The limits, and how full they are.

A limit has a name: everybody's, one agent's, that of all push attempts, of a type, of a key, of a
batch. A task is held back by those of its lane that have a cap, its `group`. What is paused has a
cap of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rota.domain.commands import AGENT_LIMIT, BROWSERS_LIMIT, INFLIGHT_LIMIT, PUSH_LIMIT
from rota.domain.task import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.domain.commands import Limits
    from rota.domain.parking import Group
    from rota.domain.task import Lane, Task

GROUPS_KEPT = 10_000


class SlotCounts(Protocol):
    """How many slots are taken."""

    total: int

    def of_agent(self, agent: str) -> int:
        """Count the agent's tasks in flight."""
        ...

    def of_limit(self, limit: str) -> int:
        """Count the tasks in flight under a named limit."""
        ...


class Caps:
    """What is taken of each limit, and what there is."""

    def __init__(
        self,
        limits: Limits,
        slots: SlotCounts,
        paused: Mapping[str, str],
        paused_types: Iterable[str],
    ) -> None:
        """Read what is taken from `slots`."""
        self._limits = limits
        self._slots = slots
        self._paused = paused
        self._groups: dict[Lane, Group] = {}
        self._named = {
            PUSH_LIMIT: limits.push,
            **({BROWSERS_LIMIT: limits.browsers} if limits.browsers else {}),
            **{f"type:{name}": cap for name, cap in limits.types},
            **{f"type:{name}": 0 for name in paused_types},
        }

    def group_of(self, lane: Lane) -> Group:
        """Name the limits of a lane that have a cap."""
        group = self._groups.get(lane)
        if group is None:
            if len(self._groups) >= GROUPS_KEPT:
                self._groups.clear()
            capped = (limit for limit in limits_of(lane) if self._of(limit) is not None)
            group = self._groups[lane] = tuple(capped)
        return group

    def _of(self, limit: str) -> int | None:
        """Give a limit's cap: set for a type, the same for every key, a batch's own."""
        cap = self._named.get(limit)
        if cap is None:
            if limit.startswith("key:"):
                return self._limits.per_key
            if limit.startswith("batch:"):
                return int(limit.split(":", 2)[1])
        return cap

    def has_room(self, limit: str) -> bool:
        """Whether a slot of a limit is free."""
        return self._slots.of_limit(limit) < (self._of(limit) or 0)

    def full_one(self, group: Group) -> str | None:
        """Name the first limit of a group that is full."""
        for limit in group:
            if not self.has_room(limit):
                return limit
        return None

    def holds_agent(self, agent: str) -> bool:
        """Whether an agent is paused or has all its slots."""
        return agent in self._paused or (
            self._slots.of_agent(agent) >= self._limits.inflight_per_agent
        )

    def taken(self, limit: str) -> tuple[int, int]:
        """Count the slots taken under any limit, and say how many there are."""
        if limit == INFLIGHT_LIMIT:
            return self._slots.total, self._limits.inflight
        if limit.startswith(AGENT_LIMIT):
            agent = limit.removeprefix(AGENT_LIMIT)
            cap = 0 if agent in self._paused else self._limits.inflight_per_agent
            return self._slots.of_agent(agent), cap
        return self._slots.of_limit(limit), self._of(limit) or 0

    def held_by(self, task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Name the limits of a task that are full, and those that are over their cap."""
        full, over = [], []
        own = (INFLIGHT_LIMIT, AGENT_LIMIT + task.agent)
        for limit in (*self.group_of(task.lane), *own):
            taken, cap = self.taken(limit)
            if taken > cap or not cap:
                over.append(limit)
            elif taken == cap:
                full.append(limit)
        return tuple(full), tuple(over)

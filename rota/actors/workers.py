"""The workers that were heard of: when, with which labels, what they came for.

Nothing of it is a fact: whoever comes again after a restart is known again. What a worker holds is
in the projections. At most `WORKERS_KEPT` are known, with `WORKERS_BYTES_MAX` of what they came
for, those heard of last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.wants import Wants

WORKERS_KEPT = 10_000
WORKERS_BYTES_MAX = 32 << 20
LIVE_US = 300 * 1_000_000
"""A worker that was not heard of for so long is not counted on."""
LOOKED_AT_MAX = 64
NAME_BYTES = 100
"""About what a name takes in memory beyond its characters, of which each may take four."""


class Seen:
    """One worker."""

    __slots__ = ("seen_at", "size", "wants")

    def __init__(self, now: int) -> None:
        self.seen_at = now
        self.wants: Wants | None = None
        self.size = 0


class Workers:
    """Those that are known, the one heard of longest ago first."""

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, Seen] = OrderedDict()
        self.bytes = 0
        self.told: dict[str, list[Callable[[str, str], None]]] = {}
        """What to call with a lease that a worker is to stop working on, and its agent."""

    def came(self, wants: Wants, now: int) -> None:
        """Take note that one asked for work."""
        one = self._one(wants.worker, now)
        if one.wants != wants:
            one.wants = wants
            self.bytes -= one.size
            one.size = _size(wants)
            self.bytes += one.size
            while self.bytes > WORKERS_BYTES_MAX and len(self.by_name) > 1:
                self._forget_one()

    def stop(self, worker: str, lease: str, agent: str) -> None:
        """Tell whoever waits on behalf of a worker that it is to stop working on a lease."""
        for hear in list(self.told.get(worker, ())):
            hear(lease, agent)

    def seen(self, worker: str | None, now: int) -> None:
        if worker:
            self._one(worker, now)

    def _one(self, worker: str, now: int) -> Seen:
        one = self.by_name.get(worker)
        if one is None:
            one = self.by_name[worker] = Seen(now)
            if len(self.by_name) > WORKERS_KEPT:
                self._forget_one()
        else:
            self.by_name.move_to_end(worker)
        one.seen_at = now
        return one

    def _forget_one(self) -> None:
        _, one = self.by_name.popitem(last=False)
        self.bytes -= one.size

    def may_serve(self, agent: str, action: str, requires: str, now: int) -> bool:
        """Whether a worker that was heard of lately takes tasks of this kind.

        Of many only those heard of last are looked at; another may take them, so it is not denied.
        """
        for looked, one in enumerate(reversed(self.by_name.values())):
            if one.seen_at < now - LIVE_US:
                return False
            if looked >= LOOKED_AT_MAX:
                return True
            if one.wants is not None and one.wants.serves(agent, action, requires):
                return True
        return False

    def carry_over(self, by_us: int) -> None:
        """Tell their moments by a clock that was set by so much."""
        for one in self.by_name.values():
            one.seen_at += by_us


def _size(wants: Wants) -> int:
    names = [*wants.labels]
    for each in wants.filters:
        names += [*(each.agents or ()), *(each.types or ())]
    return NAME_BYTES * (1 + len(wants.filters) + len(names)) + 4 * sum(map(len, names))

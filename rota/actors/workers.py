"""The workers that were heard of: when, with which labels, what they came for.

Nothing of it is a fact: whoever comes again after a restart is known again. What a worker holds is
in the projections. At most `WORKERS_KEPT` are known, those heard of last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.domain.leases import Lease
    from rota.domain.lending import Wants

WORKERS_KEPT = 10_000


class Seen:
    """One worker."""

    __slots__ = ("delay_us", "seen_at", "wants")

    def __init__(self, now: int) -> None:
        self.seen_at = now
        self.delay_us = 0
        """The silence before it was last heard of by a heartbeat."""
        self.wants: Wants | None = None


class Workers:
    """Those that are known, the one heard of longest ago first."""

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, Seen] = OrderedDict()

    def came(self, wants: Wants, now: int) -> None:
        """Take note that one asked for work."""
        self._one(wants.worker, now).wants = wants

    def seen(self, worker: str | None, now: int) -> None:
        if worker:
            self._one(worker, now)

    def heard(self, worker: str | None, now: int, lease: Lease) -> None:
        """Take note of a heartbeat."""
        if worker:
            one = self._one(worker, now)
            one.delay_us = lease.gap_us

    def _one(self, worker: str, now: int) -> Seen:
        one = self.by_name.get(worker)
        if one is None:
            one = self.by_name[worker] = Seen(now)
            if len(self.by_name) > WORKERS_KEPT:
                self.by_name.popitem(last=False)
        else:
            self.by_name.move_to_end(worker)
        one.seen_at = now
        return one

    def carry_over(self, by_us: int) -> None:
        """Tell their moments by a clock that was set by so much."""
        for one in self.by_name.values():
            one.seen_at += by_us

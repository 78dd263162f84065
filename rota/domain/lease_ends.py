"""When leases end: the moments at which somebody has to look.

A lease that lives is in the heap at its end, or before it if it was extended: then it is looked at,
and comes again. One that is over stays until it is met, or until most of the heap is such.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rota.domain.leases import Lease

ENDS_SLACK = 1000
"""So many moments may be left of leases that are over, and as many again as leases live."""


class LeaseEnds:
    """The moments of the leases that live, each under its token."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def derive(self, live: Mapping[int, Lease]) -> None:
        self._heap = [(lease.expires_at, token) for token, lease in live.items()]
        heapify(self._heap)

    def add(self, token: int, live: Mapping[int, Lease]) -> None:
        """Take in a lease that has begun, or that ends earlier than it did."""
        heappush(self._heap, (live[token].expires_at, token))
        if len(self._heap) > 2 * len(live) + ENDS_SLACK:
            self.derive(live)

    def due(self, now: int, live: Mapping[int, Lease]) -> Iterator[tuple[int, Lease]]:
        """Take out the leases that have ended by now, one after the other."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, token = heappop(heap)
            lease = live.get(token)
            if lease is None:
                continue
            if lease.expires_at > now:
                heappush(heap, (lease.expires_at, token))
            else:
                yield token, lease

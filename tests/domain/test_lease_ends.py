"""When leases end: who is due, and that what is over does not pile up."""

from __future__ import annotations

from support.builders import assigned, given, submitted

from rota.domain.lease_ends import ENDS_SLACK, LeaseEnds
from rota.domain.leases import Lease

S = 1_000_000
TAKEN = given(submitted(), assigned()._replace(worker="ada", lease_ms=10_000)).task


def begin(ends: LeaseEnds, live: dict[int, Lease], token: int, now: int = 0) -> Lease:
    lease = live[token] = Lease(TAKEN, now)
    ends.add(token, live)
    return lease


def due(ends: LeaseEnds, live: dict[int, Lease], now: int) -> list[int]:
    return [token for token, _ in ends.due(now, live)]


def test_a_lease_is_due_at_its_end_however_often_that_was_moved() -> None:
    ends, live = LeaseEnds(), dict[int, Lease]()
    longer, shorter = begin(ends, live, 1), begin(ends, live, 2)
    longer.extend(5 * S, None)
    shorter.extend(5 * S, 1000)
    ends.add(2, live)
    assert ends.first == 6 * S
    assert due(ends, live, 6 * S) == [2]
    del live[2]
    assert due(ends, live, 14 * S) == []
    assert due(ends, live, 15 * S) == [1]


def test_leases_that_are_over_do_not_pile_up_until_they_would_have_ended() -> None:
    ends, live = LeaseEnds(), dict[int, Lease]()
    begin(ends, live, 0)
    for token in range(1, 5 * ENDS_SLACK):
        begin(ends, live, token)
        del live[token]
        assert len(ends) <= 2 * 2 + ENDS_SLACK
    assert due(ends, live, 10 * S) == [0]
    assert len(ends) == 0

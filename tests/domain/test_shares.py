"""The share that one caller has of a bound that all callers have together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.shares import MINUTE_US, PerMinute, Shares, share_of


def test_a_caller_alone_takes_half_and_leaves_half() -> None:
    shares = Shares(100)
    assert sum(shares.take("greedy") for _ in range(1000)) == 50
    assert shares.take("newcomer")


def test_two_greedy_callers_take_a_third_each() -> None:
    shares = Shares(99)
    for _ in range(1000):
        shares.take("a")
        shares.take("b")
    assert (shares.own("a"), shares.own("b")) == (33, 33)
    assert shares.take("newcomer", 33)


def test_a_caller_that_holds_nothing_gets_whatever_fits() -> None:
    shares = Shares(100)
    assert not shares.take("a", 101)
    assert shares.take("a", 100)
    assert not shares.take("b", 1)


def test_what_is_given_back_is_free_again() -> None:
    shares = Shares(10)
    assert shares.take("a", 5)
    assert not shares.take("a", 1)
    shares.give_back("a", 5)
    assert shares.held == 0
    assert shares.largest() is None
    with pytest.raises(AssertionError):
        shares.give_back("a", 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 9)), max_size=60))
def test_no_bound_is_passed_and_the_sum_of_shares_is_what_is_held(
    steps: list[tuple[str, int]],
) -> None:
    shares = Shares(20)
    for owner, amount in steps:
        if amount > 0:
            shares.take(owner, amount)
        elif amount < 0 and shares.own(owner) >= -amount:
            shares.give_back(owner, -amount)
        assert 0 <= shares.held <= 20
        assert shares.held == sum(shares.own(each) for each in "abc")


def test_what_takes_the_place_of_something_needs_room_only_for_what_is_more() -> None:
    shares = Shares(100)
    shares.add("a", 60)  # more than a share, as an older log may have it
    assert shares.may_replace("a", 10, "a", 10)
    assert not shares.may_replace("a", 11, "a", 10)
    assert shares.may_replace("b", 50, "a", 10)
    assert not shares.may_replace("b", 51, "a", 10)


def test_a_share_of_a_minute_is_there_again_with_the_next() -> None:
    written, now = PerMinute(), 7 * MINUTE_US + 20
    written.add("a", 60, now)
    assert written.wait_us("a", 100, now) == MINUTE_US - 20
    assert written.wait_us("b", 100, now) == 0
    written.add("b", 40, now)
    assert written.wait_us("c", 100, now) > 0
    assert written.wait_us("a", 100, now + MINUTE_US) == 0


def test_a_tokens_workers_have_one_share() -> None:
    assert share_of("crawler#3/w1", "ann") == share_of("crawler#3", "bob") == "token crawler#3"
    assert share_of("local", "ann") == "agent ann"

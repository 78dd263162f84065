"""Deliver again, back off, or give up."""

from __future__ import annotations

import pytest
from support.builders import SECOND_US, START_US

from rota.domain import events as e
from rota.domain.delivery import (
    DELAY_MAX_S,
    Delivery,
    DeliveryReport,
    decide_delivery,
    delay_s,
)

NOW = START_US


def owed(tries: int = 0) -> Delivery:
    """A delivery after so many failed tries."""
    delivery = Delivery(3, "t1", "a1", "https://one.example/", NOW)
    delivery.tries = tries
    return delivery


def pause_s(tries: int, retry_after_s: float | None = None) -> float:
    """Decide on one more failed try; give the pause until the next."""
    report = DeliveryReport(False, 500, "x", retry_after_s)
    decided = decide_delivery(owed(tries), report, 99, NOW)
    assert isinstance(decided, e.DeliveryFailed)
    assert decided.number == tries + 1
    return (decided.next_at - NOW) / SECOND_US


def test_a_good_answer_ends_it() -> None:
    decided = decide_delivery(owed(2), DeliveryReport(True, 204), 6, NOW)
    assert decided == e.DeliverySucceeded("t1", "a1", "dlv_3_t1", 3, 204)


def test_a_good_answer_at_the_last_try_is_a_good_answer() -> None:
    decided = decide_delivery(owed(5), DeliveryReport(True, 200), 6, NOW)
    assert type(decided) is e.DeliverySucceeded


def test_the_pauses_are_four_times_as_long_each_time_up_to_an_hour() -> None:
    assert [pause_s(tries) for tries in range(8)] == [1, 4, 16, 64, 256, 1024, 3600, 3600]


def test_the_pause_has_a_limit_however_many_tries_there_were() -> None:
    assert delay_s(10**6) == DELAY_MAX_S


def test_the_receiver_may_ask_for_more_time_but_not_for_less() -> None:
    assert pause_s(0, retry_after_s=30.0) == 30
    assert pause_s(3, retry_after_s=30.0) == 64
    assert pause_s(0, retry_after_s=0.0) == 1
    assert pause_s(0, retry_after_s=-5.0) == 1


def test_the_receiver_cannot_ask_for_more_than_an_hour() -> None:
    assert pause_s(0, retry_after_s=10.0**9) == DELAY_MAX_S


def test_a_failed_try_records_what_came_back() -> None:
    decided = decide_delivery(owed(), DeliveryReport(False, 503, "HTTP 503"), 6, NOW)
    assert decided == e.DeliveryFailed("t1", "a1", "dlv_3_t1", 1, 503, "HTTP 503", NOW + SECOND_US)


@pytest.mark.parametrize("tries_max", [1, 2, 6])
def test_the_last_try_gives_up(tries_max: int) -> None:
    report = DeliveryReport(False, 500, "HTTP 500")
    for tries in range(tries_max - 1):
        assert type(decide_delivery(owed(tries), report, tries_max, NOW)) is e.DeliveryFailed
    assert decide_delivery(owed(tries_max - 1), report, tries_max, NOW) == e.DeliveryAbandoned(
        "t1", "a1", "dlv_3_t1", tries_max, 500, "HTTP 500"
    )


def test_a_final_refusal_gives_up_at_once() -> None:
    decided = decide_delivery(owed(), DeliveryReport(False, 410, "gone", final=True), 6, NOW)
    assert decided == e.DeliveryAbandoned("t1", "a1", "dlv_3_t1", 1, 410, "gone")

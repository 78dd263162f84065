"""A callback is owed from the task's end on, once, until it is delivered or given up."""

from __future__ import annotations

import pytest
from support.builders import (
    START_US,
    assigned,
    cancelled,
    expired,
    failed,
    fold,
    interrupted,
    records_of,
    refuses,
    rejected,
    submitted,
    succeeded,
)

from rota.domain import events as e

HOOK = "https://example.com/hook"
ASKED = submitted(callback=HOOK)
ENDS = [
    (assigned(), succeeded()),
    (assigned(), failed()),
    (assigned(), cancelled()),
    (e.TaskProgressed("t1", "a1", 0), expired()),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end[-1]).__name__)
def test_every_end_of_a_task_with_a_callback_owes_one(end: tuple[e.Event, ...]) -> None:
    state = fold(records_of([ASKED, *end]))
    [delivery] = state.deliveries.pending.values()
    assert (delivery.id, delivery.task, delivery.agent) == ("dlv_3_t1", "t1", "a1")
    assert (delivery.due_at, delivery.tries) == (state.at, 0)


def test_nothing_is_owed_without_a_callback_or_before_the_end() -> None:
    assert not fold(records_of([submitted(), assigned(), succeeded()])).deliveries.pending
    assert not fold(records_of([ASKED, assigned(), interrupted()])).deliveries.pending


def test_a_rejected_task_owes_nothing_since_its_sender_was_told() -> None:
    assert not fold(records_of([rejected(callback=HOOK)])).deliveries.pending


def test_an_end_that_comes_twice_owes_one_callback() -> None:
    state = fold(records_of([ASKED, assigned(), succeeded()], step=0))
    refuses(state, succeeded(), failed())
    assert [d.id for d in state.deliveries.pending.values()] == ["dlv_3_t1"]


def test_a_failed_try_is_counted_and_sets_the_next() -> None:
    events: list[e.Event] = [ASKED, assigned(), succeeded()]
    events.append(e.DeliveryFailed("t1", "a1", "dlv_3_t1", 1, 500, "x", START_US + 99))
    state = fold(records_of(events))
    delivery = state.deliveries.pending["t1"]
    assert (delivery.tries, delivery.due_at, state.deliveries.failed_tries) == (1, START_US + 99, 1)


def test_a_delivered_callback_is_owed_no_more() -> None:
    done = e.DeliverySucceeded("t1", "a1", "dlv_3_t1", 1, 200)
    state = fold(records_of([ASKED, assigned(), succeeded(), done]))
    assert (state.deliveries.pending, state.deliveries.delivered) == ({}, 1)


def test_a_callback_that_was_given_up_is_owed_no_more() -> None:
    gone = e.DeliveryAbandoned("t1", "a1", "dlv_3_t1", 6, 500, "x")
    state = fold(records_of([ASKED, assigned(), succeeded(), gone]))
    assert (state.deliveries.pending, state.deliveries.abandoned) == ({}, 1)


def test_a_callback_is_owed_even_after_its_task_has_left_memory() -> None:
    state = fold(records_of([ASKED, assigned(), succeeded()]))
    state.apply(e.Record(4, START_US + 10**12, e.AgentPaused("x")))
    assert state.tasks.get("t1") is None
    assert list(state.deliveries.pending) == ["t1"]

"""Which refusals are recorded, and how the others are counted."""

from __future__ import annotations

from rota.domain.events import RefusalsCounted
from rota.domain.refusals import AGENTS_NAMED_MAX, RECORDS_PER_S, WINDOW_US, Refusals


def test_so_many_a_second_are_recorded_and_no_more() -> None:
    refusals, now = Refusals(), 10 * WINDOW_US
    assert [refusals.take_room(now) for _ in range(RECORDS_PER_S + 2)].count(True) == RECORDS_PER_S
    assert not refusals.take_room(now + WINDOW_US - 1)
    assert refusals.take_room(now + WINDOW_US)


def test_a_clock_that_was_set_back_begins_another_second() -> None:
    refusals = Refusals()
    while refusals.take_room(10 * WINDOW_US):
        pass
    assert refusals.take_room(3 * WINDOW_US)


def test_counts_name_so_many_agents_and_sum_up_the_others() -> None:
    refusals = Refusals()
    for n in range(AGENTS_NAMED_MAX + 3):
        refusals.count_task(f"agent-{n}")
        refusals.count_task("agent-0")
    event = refusals.fact()
    assert event is not None
    assert event.tasks == 2 * (AGENTS_NAMED_MAX + 3)
    assert len(event.agents) == AGENTS_NAMED_MAX
    assert event.agents["agent-0"] == AGENTS_NAMED_MAX + 4
    assert event.others == 3


def test_what_was_counted_is_a_fact_until_it_is_cleared() -> None:
    refusals = Refusals()
    assert refusals.fact() is None
    refusals.count_batch()
    assert refusals.fact() == RefusalsCounted(0, {}, 0, 1)
    refusals.clear()
    assert refusals.fact() is None

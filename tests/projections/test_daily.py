"""The figures of each day: what is counted, on which day, for whom, and how much of it is kept."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest
from support.builders import (
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    expired,
    failed,
    fold,
    history,
    released,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.projections import daily as d
from rota.projections.state import State

if TYPE_CHECKING:
    from rota.projections.daily import Cell

DAY = START_US // d.DAY_US
DAY_S = 86_400


def at(*times: tuple[float, e.Event]) -> State:
    """Fold events that happen so many seconds after the day began."""
    begin = DAY * d.DAY_US
    return fold(
        e.Record(seq, begin + round(s * 1_000_000), event)
        for seq, (s, event) in enumerate(times, start=1)
    )


def life(n: int, second: float, agent: str = "a1") -> list[tuple[float, e.Event]]:
    """A task that waits for a second and runs for two."""
    task = f"t{n}"
    return [
        (second, submitted(task, agent)),
        (second + 1, assigned(task, agent)),
        (second + 1, started(task, agent)),
        (second + 3, succeeded(task, agent)),
    ]


def figures(cell: Cell) -> list[int]:
    return cell[: d.KEPT]


def test_a_completed_task_counts_with_the_time_since_its_creation() -> None:
    daily = at(*life(1, 10)).daily
    assert figures(daily.of_day(DAY).agents["a1"]) == [1, 1, 0, 3_000_000, 1, 0, 0, 0]
    cell = daily.total()
    assert (cell[d.WAIT_US], cell[d.RUN_US]) == (1_000_000, 2_000_000)
    assert cell[d.WAITS + d.BOUNDS_S.index(1.0)] == 1
    assert cell[d.RUNS + d.BOUNDS_S.index(5.0)] == 1


def test_failed_attempts_count_among_those_that_ended() -> None:
    daily = at(
        (0, submitted()), (1, assigned()), (1, started()), (2, attempt_failed()),
        (3, released(after="backoff")), (4, assigned(attempt=2)), (5, failed(attempt=2)),
    ).daily  # fmt: skip
    cell = daily.total()
    assert (cell[d.FAILED], cell[d.ENDED], cell[d.ENDED_BADLY]) == (1, 2, 2)


def test_a_task_that_expired_has_failed_and_no_attempt_has() -> None:
    cell = at((0, submitted()), (1, expired())).daily.total()
    assert (cell[d.FAILED], cell[d.ENDED]) == (1, 0)


def test_a_cancelled_task_is_neither_completed_nor_failed() -> None:
    cell = at((0, submitted()), (1, cancelled())).daily.total()
    assert figures(cell) == [1, 0, 0, 0, 0, 0, 0, 0]


def test_the_end_of_a_lease_tells_the_longest_silence() -> None:
    state = at((0, submitted()), (1, assigned()))
    for seq, event in enumerate(
        (
            e.LeaseExpired("t1", "a1", 1, "w1", START_US, 30_000, 0),
            e.LeaseEnded("t1", "a1", 1, "w1", "completed", START_US, 10_000, 3),
        ),
        start=3,
    ):
        state.apply(e.Record(seq, state.at, event))  # type: ignore[type-var]
    cell = state.daily.total()
    assert (cell[d.LEASES], cell[d.SILENCE_MS]) == (2, 40_000)


def test_each_fact_counts_on_the_utc_day_of_its_own_record() -> None:
    daily = at(*life(1, DAY_S - 2)).daily
    assert figures(daily.of_day(DAY).total()) == [1, 0, 0, 0, 0, 0, 0, 0]
    assert figures(daily.of_day(DAY + 1).total()) == [0, 1, 0, 3_000_000, 1, 0, 0, 0]
    assert figures(daily.of_day(DAY + 2).total()) == [0] * d.KEPT
    assert daily.total()[d.CREATED] == 1


def test_a_clock_that_is_set_back_goes_on_with_the_earlier_day() -> None:
    before, after = DAY_S + 100, DAY_S - 100
    step = e.ClockStepped((DAY * DAY_S + before) * 1_000_000, (DAY * DAY_S + after) * 1_000_000)
    daily = at(*life(1, 10), *life(2, DAY_S + 1), (after, step), *life(3, after)).daily
    assert daily.of_day(DAY).total()[d.CREATED] == 2
    assert daily.of_day(DAY + 1).total()[d.CREATED] == 1
    assert daily.total()[d.CREATED] == 3


def test_a_snapshot_keeps_the_series() -> None:
    state = at(*life(1, 10), *life(2, DAY_S + 10, "a2"), *life(3, 2 * DAY_S))
    again = State.load(state.dump())
    assert again.digest() == state.digest()
    assert again.daily.of_day(DAY) == state.daily.of_day(DAY)
    for each in (state, again):
        for s, event in life(4, 3 * DAY_S):
            each.apply(e.Record(each.seq + 1, round((DAY * DAY_S + s) * 1_000_000), event))
    assert again.digest() == state.digest()


@pytest.mark.parametrize("seed", range(5))
def test_the_days_of_any_history_add_up(seed: int) -> None:
    state = fold(history(seed, 400))
    daily, totals = state.daily, state.stats.totals
    cell = daily.total()
    assert cell[d.CREATED] == totals["submitted"]
    assert cell[d.COMPLETED] == totals["completed"]
    assert cell[d.FAILED] == totals["failed"]
    assert sum(cell[d.WAITS : d.RUNS]) == totals["dispatched"]
    days = {*daily.days, daily.day}
    assert figures(cell) == d.summed((daily.of_day(n).total() for n in days), [0] * d.KEPT)


def test_agents_beyond_those_kept_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "AGENTS_TODAY", 4)
    monkeypatch.setattr(d, "AGENTS_A_DAY", 2)
    monkeypatch.setattr(d, "AGENTS_KEPT", 3)
    monkeypatch.setattr(d, "NAMED_MAX", 2)
    lives = [life(n, n, f"a{n % 6}") for n in range(1, 9)]
    daily = at(*chain(*lives)).daily
    today = daily.of_day(DAY)
    assert sorted(today.agents) == ["a1", "a2", "a3", "a4"]
    assert (today.other[d.CREATED], today.total()[d.CREATED]) == (2, 8)
    assert list(daily.by_name()) == ["a1", "a2"]
    daily.turn(START_US + d.DAY_US)
    kept = daily.of_day(DAY)
    assert sorted(kept.agents) == ["a1", "a2"]  # the busiest
    assert kept.total() == figures(today.total())
    assert len(daily.agents) == 3
    assert daily.total()[d.CREATED] == 8


def test_agents_get_a_name_by_what_they_did_on_the_last_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(d, "NAMED_MAX", 2)
    first = [life(n, n, f"a{n}") for n in range(3)]
    second = [life(n, DAY_S + n, "new") for n in range(3, 6)]
    third = [life(9, 2 * DAY_S, "a0")]
    daily = at(*chain(*first, *second, *third)).daily
    assert list(daily.named) == ["new", "a0"]
    assert daily.by_name()["a0"][d.CREATED] == 2


def test_old_days_keep_their_sum_and_very_old_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(d, "DAYS_BY_AGENT", 2)
    monkeypatch.setattr(d, "DAYS_KEPT", 4)
    daily = at(*chain(*(life(n, n * DAY_S) for n in range(7)))).daily
    daily.turn(START_US + 7 * d.DAY_US)
    shown = [daily.of_day(DAY + n) for n in range(7)]
    assert [day.total()[d.CREATED] for day in shown] == [0, 0, 0, 1, 1, 1, 1]
    assert [list(day.agents) for day in shown[3:]] == [[], [], ["a1"], ["a1"]]

"""Time enters once, at the edge; freezegun holds it there."""

from __future__ import annotations

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

from rota.clock import STEP_US, ManualClock, Step, SystemClock, parse_rfc3339, rfc3339

MOMENT = "2026-03-08T12:00:01Z"
MOMENT_US = 1_772_971_201_000_000


def test_the_system_clock_tells_wall_time_in_microseconds() -> None:
    with freeze_time(MOMENT) as frozen:
        clock = SystemClock()
        assert clock.now_us() == MOMENT_US
        frozen.tick(1.5)
        assert clock.wall_us() == MOMENT_US + 1_500_000


def test_a_manual_clock_stands_still_and_never_goes_back() -> None:
    clock = ManualClock(100)
    assert clock.now_us() == 100
    clock.advance_us(5)
    clock.move_to(50)
    assert clock.now_us() == 105


@pytest.mark.parametrize("by_us", [3_600_000_000, -3_600_000_000, STEP_US + 1, -STEP_US - 1])
def test_a_clock_that_is_set_goes_on_steadily_until_the_step_is_taken_over(by_us: int) -> None:
    clock = ManualClock(MOMENT_US)
    clock.step_us(by_us)
    assert clock.now_us() == MOMENT_US
    clock.advance_us(5)
    assert clock.now_us() == MOMENT_US + 5
    assert clock.take_over() == Step(MOMENT_US + 5, MOMENT_US + 5 + by_us)
    assert (clock.now_us(), clock.shift_us) == (MOMENT_US + 5 + by_us, by_us)
    assert clock.take_over() is None
    clock.step_us(-by_us)
    assert clock.take_over() == Step(MOMENT_US + 5 + by_us, MOMENT_US + 5)
    assert clock.shift_us == 0


def test_a_clock_follows_small_steps_and_never_goes_back_for_one() -> None:
    clock = ManualClock(MOMENT_US)
    clock.step_us(STEP_US)
    assert clock.now_us() == MOMENT_US + STEP_US
    clock.step_us(-2 * STEP_US)
    assert clock.now_us() == MOMENT_US + STEP_US
    assert clock.take_over() is None
    clock.advance_us(2 * STEP_US + 1)
    assert clock.now_us() == MOMENT_US + STEP_US + 1


@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**7)), max_size=30))
def test_a_length_of_time_is_told_to_within_a_second_whatever_is_set(
    story: list[tuple[int, int]],
) -> None:
    clock = ManualClock(MOMENT_US)
    told = []
    for by_us, passed_us in story:
        clock.step_us(by_us)
        now = clock.now_us()
        told.append(now - clock.shift_us - clock.steady_us())
        if clock.take_over() is not None:
            assert clock.now_us() == clock.wall_us()
        assert abs(clock.now_us() - clock.wall_us()) <= 2 * STEP_US
        clock.advance_us(passed_us)
    assert not told or max(told) - min(told) <= 2 * STEP_US


def test_a_process_that_was_held_up_between_two_readings_sees_no_step() -> None:
    class Held(ManualClock):
        def wall_us(self) -> int:
            self.advance_us(2 * STEP_US)
            return super().wall_us()

    clock = Held(MOMENT_US)
    assert clock.take_over() is None


def test_a_moment_is_written_as_the_documents_write_it() -> None:
    assert rfc3339(MOMENT_US) == MOMENT
    assert rfc3339(MOMENT_US + 120_000) == "2026-03-08T12:00:01.12Z"
    assert rfc3339(MOMENT_US + 1) == "2026-03-08T12:00:01.000001Z"


@given(st.integers(min_value=0, max_value=4_102_444_800_000_000))
def test_what_is_written_is_read_back_to_the_microsecond(at_us: int) -> None:
    assert parse_rfc3339(rfc3339(at_us)) == at_us


def test_an_offset_is_taken_into_account() -> None:
    assert parse_rfc3339("2026-03-08T13:00:01+01:00") == MOMENT_US


@pytest.mark.parametrize(
    "text",
    ["2026-03-08", "2026-03-08T12:00:01", "yesterday", "9999-12-31T23:59:59-01:00", ""],
)
def test_a_timestamp_without_its_offset_or_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rfc3339(text)

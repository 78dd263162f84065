"""Time enters once, at the edge; freezegun holds it there."""

from __future__ import annotations

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

from rota.clock import ManualClock, SystemClock, parse_rfc3339, rfc3339

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

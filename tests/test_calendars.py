"""The calendar: moments of cron expressions in zones, and what is refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rota import calendars
from rota.clock import parse_rfc3339, rfc3339
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE_US = 60_000_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
CRONS = ("* * * * *", "*/15 * * * *", "30 2 * * *", "0 */2 * * *", "5 1,2,3 * * *", "0 0 29 2 *",
         "59 23 L * *", "0 12 * * 1#2", "@daily", "@yearly")  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    calendars._NEXT.clear()
    yield
    calendars._NEXT.clear()


def us(text: str) -> int:
    return parse_rfc3339(text)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", CRONS)
def test_moments_come_in_order_and_are_the_same_from_wherever_they_are_asked(
    cron: str, zone: str
) -> None:
    dice = random.Random(f"{cron} {zone}")
    for begin in ("2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-04-04T12:00:00Z"):
        moments = calendars.several(cron, zone, us(begin), 40)
        assert moments == sorted(set(moments))
        assert all(moment % MINUTE_US == 0 for moment in moments)
        for before, moment in zip((us(begin), *moments), moments, strict=False):
            at = dice.randrange(before, moment)
            calendars._NEXT.clear()
            assert calendars.after(cron, zone, at) == moment, rfc3339(at)


def test_an_answer_is_remembered_until_the_moment_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, noon = us("2026-03-02T10:00:00Z"), us("2026-03-02T12:00:00Z")
    assert calendars.after("0 12 * * *", "UTC", begin) == noon
    monkeypatch.setattr(calendars, "_after", lambda *_: iter((7,)))
    assert calendars.after("0 12 * * *", "UTC", begin) == noon
    assert calendars.after("0 12 * * *", "UTC", noon - 1) == noon
    assert calendars.after("0 12 * * *", "UTC", begin - 1) == 7
    assert calendars.after("0 12 * * *", "Europe/Berlin", begin) == 7


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendars, "_NEXT_MAX", 3)
    for minute in range(20):
        calendars.after(f"{minute} * * * *", "UTC", us("2026-03-02T10:00:00Z"))
    assert len(calendars._NEXT) <= 3


@pytest.mark.parametrize("keep", [1, 2, 101])
def test_of_what_has_passed_the_newest_are_given_and_all_are_counted(keep: int) -> None:
    first, until = us("2026-03-02T00:00:00Z"), us("2026-03-02T10:30:00Z")
    every = [first, *calendars.several("0 * * * *", "UTC", first, 10)]
    assert calendars.passed("0 * * * *", "UTC", first, until, keep) == (
        tuple(every[-keep:]), 11, False,
    )  # fmt: skip


def test_a_year_of_minutes_is_counted_so_far_and_no_further() -> None:
    first, until = us("2026-03-02T00:00:00Z"), us("2027-03-02T00:00:00Z")
    newest, total, is_more = calendars.passed("* * * * *", "Europe/Berlin", first, until, 101)
    assert (total, is_more) == (calendars.COUNTED_MAX, True)
    assert newest == tuple(until - n * MINUTE_US for n in range(100, -1, -1))


def test_rare_ones_that_passed_are_found_too() -> None:
    first, until = us("2000-02-29T00:00:00Z"), us("2026-03-02T00:00:00Z")
    newest, total, _ = calendars.passed("0 0 29 2 *", "UTC", first, until, 2)
    assert [rfc3339(moment)[:10] for moment in newest] == ["2020-02-29", "2024-02-29"]
    assert total == 7


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("0 0 */30 2 1#5", "never comes"),
        ("60 * * * *", "no cron expression"),
        ("a b c d e", "no cron expression"),
        ("* * * *", "has 4 fields"),
        ("@often", "is not known"),
    ],
)
def test_what_is_no_calendar_is_refused(cron: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        calendars.check(cron, "UTC")


@pytest.mark.parametrize("zone", ["", "Mars/Sea", "/etc/passwd", "../UTC", "utc\x00", "Europe"])
def test_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(InvalidRequest, match="there is no time zone"):
        calendars.check("@daily", zone)


def test_a_zone_that_is_known_no_more_has_no_moments() -> None:
    now = round(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1e6)
    assert calendars.after("@daily", "Gone/Away", now) is None
    assert calendars.passed("@daily", "Gone/Away", now, now + MINUTE_US, 5) == ((now,), 1, False)

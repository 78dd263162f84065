"""Moments of the calendar: when a cron expression comes due in a time zone.

The one home of cronsim and zoneinfo. Moments come in and go out as microseconds UTC, like all
times; the core never computes one, it is told. An expression that names its minute and hour follows
the wall clock: once a day it names, at the first of two equal times, and as soon as a time that
is left out has passed. One with a star there goes by what passes: it comes as often as the clock
shows such a time. cronsim knows both rules, but asked inside the repeated hour it can answer with
what has passed, and where clocks change by half an hour it steps over some of what a star means. So
what is not after the moment asked for is dropped, and stars are followed here from one change of
the clocks to the next.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

CRON_CHARS_MAX = 200
ZONE_CHARS_MAX = 64
COUNTED_MAX = 500
"""So many missed moments are counted one by one; then it is said that there were more."""

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, as all that is naive here
_SECOND, _WEEK = timedelta(seconds=1), timedelta(days=7)
_FIRST_WINDOW_US = 60_000_000
_NEXT_MAX = 20_000


def check(cron: str, timezone: str) -> None:
    """Refuse what is no cron expression, what never comes, and unknown zones.

    Raises InvalidRequest. To see that something never comes takes tens of milliseconds.
    """
    zone = _zone(timezone)
    fields = _fields(cron)
    try:
        CronSim(fields, _EPOCH)
    except CronSimError as error:
        if _is_never(fields):
            raise _never(cron) from None
        raise _bad("cron", f"'{cron}' is no cron expression: {_said(error)}") from None
    if next(_moments(fields, zone, datetime(2000, 1, 1)), None) is None:  # noqa: DTZ001
        raise _never(cron)


_NEXT: dict[tuple[str, str], tuple[int, int | None]] = {}
"""For an expression in a zone, a moment that was asked for and the answer: it is the same for all
moments between the two. So whoever has it computed beside the loop spares the loop that."""


def after(cron: str, timezone: str, at: int) -> int | None:
    """Give the first moment after `at`, if one comes within fifty years."""
    asked, found = _NEXT.get((cron, timezone), (at + 1, None))
    if asked <= at and (found is None or at < found):
        return found
    found = next(_after(cron, timezone, at), None)
    if len(_NEXT) >= _NEXT_MAX:
        _NEXT.clear()
    _NEXT[cron, timezone] = (at, found)
    return found


def several(cron: str, timezone: str, at: int, most: int) -> list[int]:
    """Give the first few moments after `at`."""
    return list(islice(_after(cron, timezone, at), most))


@lru_cache(maxsize=1024)
def passed(
    cron: str, timezone: str, first: int, until: int, keep: int
) -> tuple[tuple[int, ...], int, bool]:
    """Give the newest `keep` of the moments from `first`, which is one, to `until`.

    And how many there are, up to a bound, and whether there are more. This takes milliseconds: it
    is for a thread beside the loop.
    """
    newest: deque[int] = deque((first,), maxlen=keep)
    count = 1
    for moment in takewhile(lambda each: each <= until, _after(cron, timezone, first)):
        if count == COUNTED_MAX:
            return tuple(_newest(cron, timezone, first, until, keep)), count, True
        newest.append(moment)
        count += 1
    return tuple(newest), count, False


def _newest(cron: str, timezone: str, first: int, now: int, keep: int) -> list[int]:
    """Look back from `now`, twice as far each time, until there are enough."""
    window, found = _FIRST_WINDOW_US, deque[int](maxlen=keep)
    while len(found) < keep:
        begin = max(first - 1, now - window)
        found = deque(takewhile(lambda m: m <= now, _after(cron, timezone, begin)), maxlen=keep)
        if begin < first:
            break
        window *= 2
    return list(found)


def _after(cron: str, timezone: str, at: int) -> Iterator[int]:
    try:
        start = _EPOCH + timedelta(seconds=at // 1_000_000)  # moments are at whole minutes
        for moment in _moments(_fields(cron), _zone(timezone), start):
            since = moment - _EPOCH
            yield (since.days * 86_400 + since.seconds) * 1_000_000
    except (OverflowError, ValueError):  # beyond the year 9999
        return
    except InvalidRequest:  # the system knows the zone no more: nothing comes until it does
        return


def _moments(fields: str, zone: ZoneInfo, at: datetime) -> Iterator[datetime]:
    """Give the moments after `at`, in UTC like it."""
    minute, hour, *_ = fields.split()
    if minute.startswith("*") or hour.startswith("*"):
        return _by_what_passes(fields, zone, at)
    return _by_the_wall(fields, zone, at)


def _by_the_wall(fields: str, zone: ZoneInfo, at: datetime) -> Iterator[datetime]:
    last = at
    for found in CronSim(fields, at.replace(tzinfo=UTC).astimezone(zone)):
        moment = found.astimezone(UTC).replace(tzinfo=None)
        if moment > last:
            last = moment
            yield moment


def _by_what_passes(fields: str, zone: ZoneInfo, at: datetime) -> Iterator[datetime]:
    while True:
        begin = at + _SECOND
        offset = _offset(zone, begin)
        change = None
        for local in CronSim(fields, at + offset):
            moment = local - offset
            change = _change(zone, begin, moment, offset)
            if change is not None:
                break
            yield moment
            begin = moment
        if change is None:
            return
        at = change - _SECOND


def _change(zone: ZoneInfo, begin: datetime, end: datetime, offset: timedelta) -> datetime | None:
    """Find the first second up to `end` at which the zone has another offset than at `begin`."""
    while begin < end:
        ahead = min(begin + _WEEK, end)
        if _offset(zone, ahead) != offset:
            while ahead - begin > _SECOND:
                middle = begin + timedelta(seconds=(ahead - begin) // _SECOND // 2)
                if _offset(zone, middle) == offset:
                    begin = middle
                else:
                    ahead = middle
            return ahead
        begin = ahead
    return None


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    offset = at.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return offset


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        msg = f"there is no time zone '{name}'; names are such as Europe/Berlin or UTC"
        raise _bad("timezone", msg) from None


def _fields(cron: str) -> str:
    """Give the five fields of an expression or a nickname. Raises InvalidRequest."""
    if cron.startswith("@"):
        known = NICKNAMES.get(cron.lower())
        if known is None:
            raise _bad("cron", f"'{cron}' is not known; use five fields, or {', '.join(NICKNAMES)}")
        return known
    fields = cron.split()
    if len(fields) != _FIELDS or not cron.isascii():
        msg = "has five fields: minute, hour, day of month, month and day of week"
        raise _bad("cron", f"'{cron}' has {len(fields)} fields; a cron expression {msg}")
    return " ".join(fields)


def _is_never(fields: str) -> bool:
    """Whether an expression is refused for its day of month alone, which others have."""
    minute, hour, _, month, weekday = fields.split()
    _, _, day, *_ = fields.split()
    try:
        CronSim(f"{minute} {hour} * {month} {weekday}", _EPOCH)
        CronSim(f"{minute} {hour} {day} * {weekday}", _EPOCH)
    except CronSimError:
        return False
    return True


def _said(error: CronSimError) -> str:
    return str(error).replace("Bad", "look at its").lower()


def _never(cron: str) -> InvalidRequest:
    return _bad("cron", f"'{cron}' never comes: no date is such a day")


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

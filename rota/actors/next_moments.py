"""Which moment of a schedule comes next, by the calendar and by what has fired already.

A moment that has fired does not come again, also when the clock is set back to before it. Here the
calendar is asked; facts say what it answered (rota.domain.schedule_events).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota import calendars
from rota.actors.log_rate import LogRate
from rota.actors.schedule_messages import Late
from rota.clock import rfc3339
from rota.domain import events as e
from rota.domain import firings
from rota.domain import schedule as domain
from rota.domain.firings import Passed
from rota.domain.schedule import Due
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.schedule import Definition, Schedule

    Draw = Callable[[], float]

logger = logging.getLogger("rota.schedules")
_LINES = LogRate(10, 60.0)


def after(wanted: Schedule | Definition, moment: int, now: int, draw: Draw) -> Due:
    """Give the next moment after one that has not fired, and when it is acted on."""
    next_at = calendars.after(wanted.cron, wanted.timezone, moment)
    if isinstance(wanted, domain.Schedule):
        while next_at is not None and (last := domain.fired_with(wanted, next_at)) is not None:
            next_at = calendars.after(wanted.cron, wanted.timezone, last)
    if next_at is None or (wanted.end_at is not None and next_at > wanted.end_at):
        return Due()
    jitter_us = int(draw() * wanted.jitter_ms) * 1000 if wanted.jitter_ms else 0
    return Due(next_at, max(next_at + jitter_us, now))


def first(wanted: Schedule | Definition, now: int, draw: Draw) -> Due:
    """Give the first moment that is after now, within its time, and has not fired."""
    return after(wanted, max(now, (wanted.start_at or 0) - 1), now, draw)


def coming(wanted: Definition, now: int, draw: Draw) -> Due:
    """Give the first moment of what somebody wants. Raises InvalidRequest if none comes."""
    due = first(wanted, now, draw)
    if due.next_at is None:
        msg = f"field 'cron': '{wanted.cron}' does not come between startAt and endAt"
        raise InvalidRequest(msg, details={"field": "cron"})
    return due


def realigned(schedule: Schedule, now: int, draw: Draw) -> e.ScheduleRealigned | None:
    """Say what comes next of a schedule since the clock was set back; None if that is known.

    A moment that has come and waits to be acted on is kept.
    """
    known = schedule.next_at
    if known is not None and known <= now:
        latest = max(now, known + (schedule.jitter_ms or 0) * 1000)
        is_soon = schedule.due_at is None or schedule.due_at <= latest
        return None if is_soon else e.ScheduleRealigned(schedule.name, known, now)
    due = first(schedule, now, draw)
    by_calendar = calendars.after(
        schedule.cron, schedule.timezone, max(now, (schedule.start_at or 0) - 1)
    )
    fired_until = domain.fired_with(schedule, by_calendar) if by_calendar is not None else None
    if due.next_at == known:
        due = Due(known, schedule.due_at)
        if fired_until == schedule.fired_until:
            return None
    return e.ScheduleRealigned(schedule.name, due.next_at, due.due_at, fired_until)


def tell_realigned(event: e.ScheduleRealigned) -> None:
    """Write into the server's log that a schedule waits for what has fired already."""
    if event.fired_until is not None:
        _LINES.warn(
            logger,
            "the clock was set back: schedule %s has fired up to %s, and fires next at %s",
            event.schedule,
            rfc3339(event.fired_until),
            rfc3339(event.next_at) if event.next_at is not None else "no moment",
        )


def is_due(schedule: Schedule, now: int) -> bool:
    return schedule.due_at is not None and schedule.due_at <= now


def lateness(schedule: Schedule, now: int) -> Late:
    """Say what is to be looked up of a schedule that is late; by whole minutes, as moments are."""
    first = schedule.next_at
    assert first is not None
    until = now if schedule.end_at is None else min(now, schedule.end_at)
    until -= until % firings.MINUTE_US
    fired = tuple((each[0], each[1]) for each in schedule.spans if first < each[0] <= until)
    keep = firings.keep_for(schedule.catch_up)
    return Late(schedule.name, schedule.cron, schedule.timezone, first, until, keep, fired)


def passed(late: Late) -> Passed:
    """Look up which moments have passed that have not fired; takes milliseconds, for a thread."""
    first: int | None = late.first
    newest: list[int] = []
    total, is_more = 0, False
    for begin, end in (*late.fired, (late.until + 1, late.until + 1)):
        if first is not None and first < begin:
            asked = (late.cron, late.timezone, first, begin - 1, late.keep)
            found, count, more = calendars.passed(*asked)
            newest += found
            total, is_more = total + count, is_more or more
        first = calendars.after(late.cron, late.timezone, end)
    return Passed(tuple(newest[-late.keep :]), total, is_more)

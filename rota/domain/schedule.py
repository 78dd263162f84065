"""A schedule: what is made again and again, at moments of the calendar.

The core knows no calendar. Which moment comes next is computed outside (rota.calendars) and comes
in as a value; here is what becomes of a moment that has come: it starts what the schedule makes, or
waits for what it made before, or takes its place, or is skipped. A firing and what it makes are one
record call, so there is exactly one of it for each moment, whatever crashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain import events as e
from rota.domain.packed import packed, unpacked
from rota.errors import Conflict, InvalidRequest, NotFound, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.domain.events import Record

NONE, LAST, ALL = CATCH_UPS = ("none", "last", "all")
SKIP, QUEUE, CANCEL = OVERLAPS = ("skip", "queue", "cancel")
TASK, WORKFLOW, PROJECT = KINDS = ("task", "workflow", "project")
STARTED, SKIPPED, QUEUED = "started", "skipped", "queued"
ACTIVE, PAUSED, OVER = STATES = ("active", "paused", "over")

SCHEDULES_MAX = 10_000
BYTES_MAX = 64 << 20
"""How many bytes the bodies of all schedules may have together."""
CAUGHT_UP_MAX = 100
"""How many missed moments are made up for at most; older ones are let go."""
WAITING_MAX = 100
"""How many moments of one schedule wait for what it made before."""
LATE_US = 60_000_000
"""A moment that is acted on this much later, at most, is on time."""
OVERLAPPED = "schedule_overlap"
"""The code of what is cancelled because the next firing takes its place."""
SCHEDULE_BYTES = 1000
"""About what a schedule takes in memory beyond its body."""


class Definition(NamedTuple):
    """What somebody says of a schedule; the rest comes about."""

    cron: str
    timezone: str
    target: dict[str, Any]
    catch_up: str = NONE
    overlap: str = SKIP
    jitter_ms: int | None = None
    start_at: int | None = None
    end_at: int | None = None


class Due(NamedTuple):
    """The next moment, and when it is acted on; None if none comes."""

    next_at: int | None = None
    due_at: int | None = None


class Schedule:
    """One schedule.

    `last_moment` is the newest moment of the calendar that was dealt with, `last_subject` what the
    last firing made. `waiting` are moments that wait for its end, and whether each was asked for by
    somebody. `fired`, `skipped` and `missed` count what became of its moments.
    """

    __slots__ = (
        "by",
        "catch_up",
        "created_at",
        "cron",
        "due_at",
        "end_at",
        "fired",
        "jitter_ms",
        "last_fired_at",
        "last_moment",
        "last_outcome",
        "last_subject",
        "missed",
        "name",
        "next_at",
        "overlap",
        "paused",
        "seq",
        "skipped",
        "start_at",
        "target_json",
        "timezone",
        "waiting",
    )

    def __init__(self, record: Record[e.ScheduleCreated]) -> None:
        event = record.event
        self.name = event.schedule
        self.by = record.by
        self.seq = record.seq
        self.created_at = record.at
        self.paused: str | None = "" if event.paused else None
        self.last_moment = self.last_fired_at = 0
        self.last_outcome = ""
        self.last_subject: str | None = None
        self.waiting: list[list[Any]] = []
        self.fired = self.skipped = self.missed = 0
        self.define(event)

    def define(self, event: e.ScheduleCreated | e.ScheduleChanged) -> None:
        self.cron = event.cron
        self.timezone = event.timezone
        self.target_json: bytes = packed(event.target) or b""
        self.catch_up = event.catch_up
        self.overlap = event.overlap
        self.jitter_ms = event.jitter_ms
        self.start_at = event.start_at
        self.end_at = event.end_at
        self.next_at = event.next_at
        self.due_at = event.due_at

    @property
    def target(self) -> dict[str, Any]:
        """Give what each firing makes, by its kind: {task: ...}, {workflow: ...}."""
        target: dict[str, Any] = unpacked(self.target_json)
        return target

    @property
    def definition(self) -> Definition:
        return Definition(
            self.cron,
            self.timezone,
            self.target,
            self.catch_up,
            self.overlap,
            self.jitter_ms,
            self.start_at,
            self.end_at,
        )

    @property
    def state(self) -> str:
        if self.paused is not None:
            return PAUSED
        return ACTIVE if self.next_at is not None or self.waiting else OVER

    @property
    def weight(self) -> int:
        return SCHEDULE_BYTES + len(self.target_json)

    # -- its records

    def on_fired(self, record: Record[e.ScheduleFired]) -> None:
        event = record.event
        if event.from_queue and self.waiting:
            del self.waiting[0]
        if event.outcome == QUEUED:
            self.waiting.append([event.moment, bool(event.manual)])
        elif event.outcome == STARTED:
            self.fired += 1
            self.last_subject, self.last_fired_at = event.subject, record.at
        else:
            self.skipped += 1
        self.last_outcome = event.outcome
        if not (event.manual or event.from_queue):
            self._goes_on(event.moment, event.next_at, event.due_at)

    def on_missed(self, event: e.ScheduleMissed) -> None:
        self.missed += event.missed
        self._goes_on(event.last, event.next_at, event.due_at)

    def _goes_on(self, moment: int, next_at: int | None, due_at: int | None) -> None:
        self.last_moment = max(self.last_moment, moment)
        self.next_at, self.due_at = next_at, due_at

    def to_row(self) -> list[Any]:
        row = [getattr(self, name) for name in self.__slots__]
        row[_TARGET] = self.target
        return row

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Schedule:
        schedule = cls.__new__(cls)
        for name, value in zip(cls.__slots__, row, strict=True):
            setattr(schedule, name, value)
        schedule.target_json = packed(schedule.target_json) or b""
        return schedule


_TARGET = Schedule.__slots__.index("target_json")


# -- what somebody wants -------------------------------------------------------------------------


def check_definition(wanted: Definition, now: int) -> None:
    """Refuse times that contradict each other, or have passed. Raises InvalidRequest."""
    start, end = wanted.start_at, wanted.end_at
    if end is not None and end <= now:
        raise _bad("endAt", "is in the past")
    if end is not None and start is not None and end <= start:
        raise _bad("endAt", "is not after startAt")
    if PROJECT in wanted.target and wanted.overlap == CANCEL:
        raise _bad("overlap", "'cancel' is not for projects; use skip or queue, or stop its run")


def check_room(count: int, held: int, wanted: Definition, instead_of: int = 0) -> None:
    """Refuse one schedule, or body, more than there may be. Raises QueueFull."""
    if not instead_of and count >= SCHEDULES_MAX:
        msg = f"there are {SCHEDULES_MAX} schedules already; delete some"
        raise QueueFull(msg, code="too_many_schedules", details={"max": SCHEDULES_MAX})
    if held - instead_of + SCHEDULE_BYTES + len(packed(wanted.target) or b"") > BYTES_MAX:
        msg = f"the bodies of all schedules would have more than {BYTES_MAX} bytes"
        raise QueueFull(msg, code="schedules_too_large", details={"maxBytes": BYTES_MAX})


def found(schedules: Mapping[str, Schedule], name: str) -> Schedule:
    """Give a schedule. Raises NotFound."""
    schedule = schedules.get(name)
    if schedule is None:
        raise NotFound("schedule not found", details={"name": name})
    return schedule


def is_known(known: Schedule | None, wanted: Definition) -> bool:
    """Whether a schedule is there and is just what is wanted. Raises Conflict if it is another."""
    if known is None:
        return False
    if known.definition != wanted:
        msg = f"there is another schedule '{known.name}' already"
        hint = "change it with PATCH, or choose another name"
        details = {"field": "name", "name": known.name}
        raise Conflict(msg, code="schedule_exists", details=details, hint=hint)
    return True


def created(name: str, wanted: Definition, due: Due, *, paused: bool) -> e.ScheduleCreated:
    w = wanted
    return e.ScheduleCreated(
        name, w.cron, w.timezone, w.target, w.catch_up, w.overlap, due.next_at, due.due_at,
        paused or None, w.jitter_ms, w.start_at, w.end_at,
    )  # fmt: skip


def changed(name: str, wanted: Definition, due: Due) -> e.ScheduleChanged:
    w = wanted
    return e.ScheduleChanged(
        name, w.cron, w.timezone, w.target, w.catch_up, w.overlap, due.next_at, due.due_at,
        w.jitter_ms, w.start_at, w.end_at,
    )  # fmt: skip


# -- a moment has come ---------------------------------------------------------------------------


class Passed(NamedTuple):
    """The moments from the one that is due to now: how many, and the newest of them, in order."""

    newest: tuple[int, ...]
    total: int
    is_more: bool = False


class Reckoning(NamedTuple):
    """What becomes of moments that have passed: which fire, and how many are let go before."""

    fire: tuple[int, ...]
    let_go: int = 0
    first: int = 0
    last: int = 0
    is_more: bool = False


def is_on_time(schedule: Schedule, now: int) -> bool:
    return schedule.due_at is not None and now - schedule.due_at <= LATE_US


def decide_catch_up(schedule: Schedule, passed: Passed, now: int) -> Reckoning:
    """Say which of the moments that have passed are made up for.

    What is late by a minute at most is on time, and fires whatever the schedule says.
    """
    if schedule.catch_up == ALL:
        fire = passed.newest[-CAUGHT_UP_MAX:]
    elif schedule.catch_up == LAST:
        fire = passed.newest[-1:]
    else:
        fire = tuple([moment for moment in passed.newest if now - moment <= LATE_US])
    let_go = passed.total - len(fire)
    if not let_go:
        return Reckoning(fire)
    first = schedule.next_at or 0
    before = [moment for moment in passed.newest if not fire or moment < fire[0]]
    last = before[-1] if before else max(first, (fire[0] if fire else now) - 1)
    return Reckoning(fire, let_go, first, last, passed.is_more)


def missed(schedule: Schedule, reckoning: Reckoning, due: Due) -> e.ScheduleMissed:
    r = reckoning
    return e.ScheduleMissed(
        schedule.name, r.let_go, r.first, r.last, due.next_at, due.due_at, r.is_more or None
    )


class Firing(NamedTuple):
    """One moment that fires: when it is due next, and where it comes from."""

    moment: int
    due: Due = Due()
    manual: bool = False
    late: bool = False
    from_queue: bool = False


def fired(
    schedule: Schedule, firing: Firing, outcome: str, subject: str | None = None, reason: str = ""
) -> e.ScheduleFired:
    f = firing
    return e.ScheduleFired(
        schedule.name, f.moment, outcome, subject, reason or None, f.due.next_at, f.due.due_at,
        f.manual or None, f.late or None, f.from_queue or None,
    )  # fmt: skip


def decide_overlap(schedule: Schedule, firing: Firing, *, is_busy: bool) -> e.ScheduleFired | None:
    """Say what becomes of a moment that may not fire now; None if it may.

    `is_busy`: what the schedule made last has not ended.
    """
    if firing.from_queue or schedule.overlap == CANCEL:
        return None
    if schedule.overlap == QUEUE and (is_busy or schedule.waiting):
        if len(schedule.waiting) < WAITING_MAX:
            return fired(schedule, firing, QUEUED)
        reason = f"{WAITING_MAX} moments are waiting already"
        return fired(schedule, firing, SKIPPED, reason=reason)
    if is_busy:
        reason = f"{schedule.last_subject} has not ended"
        return fired(schedule, firing, SKIPPED, reason=reason)
    return None


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

"""A schedule: what is made again and again, at moments of the calendar.

Here is what a schedule is, and what may be asked for; what becomes of its moments is in firings.py,
what they make in schedule_targets.py. The core knows no calendar: which moment comes next is
computed outside (rota.calendars) and comes in as a value.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain import events as e
from rota.domain.admission import check_can_fit
from rota.domain.fold import AWAITED_PROJECT
from rota.domain.packed import packed, unpacked
from rota.domain.shares import Shares, share_of
from rota.errors import Conflict, InvalidRequest, NotFound, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.domain.commands import Limits
    from rota.domain.events import Record

NONE, LAST, ALL = CATCH_UPS = ("none", "last", "all")
SKIP, QUEUE, CANCEL = OVERLAPS = ("skip", "queue", "cancel")
TASK, WORKFLOW, PROJECT = KINDS = ("task", "workflow", "project")
STARTED, SKIPPED, QUEUED = OUTCOMES = ("started", "skipped", "queued")
ACTIVE, PAUSED, OVER, AHEAD = STATES = ("active", "paused", "over", "ahead")

SCHEDULES_MAX = 10_000
"""How many schedules there may be; callers have shares (domain/shares.py)."""
BYTES_MAX = 64 << 20
"""How many bytes the bodies of all schedules may have together; callers have shares, too."""
SPANS_MAX = 32
"""So many spans of moments that have fired are known apart."""
TIMING = ("cron", "timezone", "jitter_ms", "start_at", "end_at")
"""The fields of a definition that say when its moments come."""
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

    `by` said last what it is; what it makes is in that name. `last_moment` is the newest moment of
    the calendar that was dealt with, `last_subject` what the last firing made. `spans` are the
    first and last of moments that have fired one after the other: a clock that is set back makes
    none of them fire again. Until `is_set_back` is taken away, the next moment may be another.
    Those up to `fired_until` fired while the clock was ahead, so it waits longer. `waiting` are
    moments that wait for its end, and whether each was asked for by somebody. `fired`, `skipped`
    and `missed` count what became of its moments. What it `makes` is of one kind, and for `agents`,
    so many tasks for each at once; `project` is the one that it starts, if it starts one.
    """

    __slots__ = (
        "agents",
        "by",
        "catch_up",
        "created_at",
        "cron",
        "due_at",
        "end_at",
        "fired",
        "fired_until",
        "follows",
        "is_set_back",
        "jitter_ms",
        "last_fired_at",
        "last_moment",
        "last_outcome",
        "last_subject",
        "makes",
        "missed",
        "name",
        "next_at",
        "overlap",
        "paused",
        "project",
        "seq",
        "skipped",
        "spans",
        "start_at",
        "target_json",
        "timezone",
        "waiting",
    )

    def __init__(self, record: Record[e.ScheduleCreated]) -> None:
        event = record.event
        self.name = event.schedule
        self.seq = record.seq
        self.created_at = record.at
        self.paused: str | None = "" if event.paused else None
        self.last_moment = self.last_fired_at = 0
        self.last_outcome = ""
        self.last_subject: str | None = None
        self.waiting: list[list[Any]] = []
        self.fired = self.skipped = self.missed = 0
        self.count_anew()
        self.by = record.by
        self._define({name: getattr(event, name) for name in Definition._fields})
        self.next_at, self.due_at = event.next_at, event.due_at

    cron: str
    timezone: str
    catch_up: str
    overlap: str
    jitter_ms: int | None
    start_at: int | None
    end_at: int | None

    def _define(self, fields: dict[str, Any]) -> None:
        for name in Definition._fields:
            if name == "target" and name in fields:
                self.aim(fields[name])
            elif name in fields:
                setattr(self, name, fields[name])

    def change(self, record: Record[e.ScheduleChanged]) -> None:
        event = record.event
        changes = event.changes
        if any(name in changes and changes[name] != getattr(self, name) for name in TIMING):
            self.count_anew()
        self.by = record.by
        self._define(changes)
        self.next_at, self.due_at = event.next_at, event.due_at

    def count_anew(self) -> None:
        """Know of no moment that has fired."""
        self.spans: list[list[int]] = []
        self.follows = False  # whether the moment that is due comes right after the last one
        self.is_set_back = False
        self.fired_until: int | None = None

    def aim(self, target: dict[str, Any]) -> None:
        self.target_json: bytes = packed(target) or b""
        self.makes = next(iter(target))
        self.agents = agents_of(target)
        self.project: str | None = target[PROJECT]["id"] if PROJECT in target else None

    @property
    def target(self) -> dict[str, Any]:
        """Give what a firing makes: {task: ...}, {workflow: ...} or {project: ...}."""
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
        if self.fired_until is not None:
            return AHEAD
        return ACTIVE if self.next_at is not None or self.waiting else OVER

    @property
    def weight(self) -> int:
        return SCHEDULE_BYTES + len(self.target_json)

    @property
    def owner(self) -> str:
        """Name the caller whose shares it takes of what there is room for."""
        return owner_of(self.by, self.agents)

    @property
    def awaits(self) -> str | None:
        """Name what its moments wait for: a task or workflow, or any run of its project."""
        return AWAITED_PROJECT + self.project if self.project is not None else self.last_subject

    def carry_over(self, by_us: int, now: int) -> None:
        """Tell what has happened by a clock that was set; its moments are the calendar's."""
        self.created_at = min(self.created_at + by_us, now)
        if self.last_fired_at:
            self.last_fired_at = min(self.last_fired_at + by_us, now)

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
            add_fired(self.spans, event.moment, self.last_moment if self.follows else None)
            self._goes_on(event.moment, event.next_at, event.due_at)
            self.follows = True

    def on_missed(self, event: e.ScheduleMissed) -> None:
        self.missed += event.missed
        self._goes_on(event.last, event.next_at, event.due_at)

    def on_realigned(self, event: e.ScheduleRealigned) -> None:
        self._goes_on(self.last_moment, event.next_at, event.due_at)
        self.fired_until = event.fired_until

    def _goes_on(self, moment: int, next_at: int | None, due_at: int | None) -> None:
        self.last_moment, self.next_at, self.due_at = moment, next_at, due_at
        self.follows = self.is_set_back = False
        self.fired_until = None

    def to_row(self) -> list[Any]:
        return [self.target, *(getattr(self, name) for name in _KEPT)]

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Schedule:
        schedule = cls.__new__(cls)
        target, *values = row
        schedule.aim(target)
        for name, value in zip(_KEPT, values, strict=True):
            setattr(schedule, name, value)
        return schedule


_KEPT = [n for n in Schedule.__slots__ if n not in ("agents", "makes", "project", "target_json")]


def agents_of(target: dict[str, Any]) -> dict[str, int]:
    """Count, for each agent that it is for, the tasks that a firing submits; a project is its own.

    A run of a project takes its tasks from a list, and an escalation comes later if at all.
    """
    if TASK in target:
        return {target[TASK]["agent"]: 1}
    if PROJECT in target:
        return {target[PROJECT]["id"]: 0}
    flow = target[WORKFLOW]
    agents: dict[str, int] = dict(Counter(each["agent"] for each in flow["tasks"]))
    escalation = (flow["flow"].get("escalate") or {}).get("task")
    if escalation is not None:
        agents.setdefault(escalation["agent"], 0)
    return agents


def owner_of(by: str, agents: Iterable[str]) -> str:
    return share_of(by, min(agents, default=""))


def add_fired(spans: list[list[int]], moment: int, after: int | None) -> None:
    """Note that a moment has fired, right `after` another if that is given."""
    for span in spans:
        if span[1] == after:
            span[1] = moment
            break
    else:
        spans.append([moment, moment])
    spans.sort()
    merged: list[list[int]] = []
    for span in spans:
        if merged and span[0] <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], span[1])
        else:
            merged.append(span)
    if len(merged) > SPANS_MAX:
        merged[0][1] = merged.pop(1)[1]
    spans[:] = merged


def fired_with(schedule: Schedule, moment: int) -> int | None:
    """Give the last of the moments that fired with this one, if it has fired."""
    return next((last for first, last in schedule.spans if first <= moment <= last), None)


# -- what somebody wants -------------------------------------------------------------------------


def check_definition(wanted: Definition, now: int, was: Definition | None = None) -> None:
    """Refuse times that contradict each other, and new ones that have passed.

    `was` is what it was before, if it is changed. Raises InvalidRequest.
    """
    start, end = wanted.start_at, wanted.end_at
    if end is not None and end <= now and (was is None or was.end_at != end):
        raise _bad("endAt", "is in the past")
    if start is not None and start <= now and (was is None or was.start_at != start):
        raise _bad("startAt", "is in the past; leave it out to begin now")
    if end is not None and start is not None and end <= start:
        raise _bad("endAt", "is not after startAt")


class Room:
    """What all schedules take together: their number, their bytes, and the tasks that they make."""

    def __init__(self) -> None:
        self.count = Shares(SCHEDULES_MAX)
        self.bytes = Shares(BYTES_MAX)
        self.tasks = Shares(0)
        self.of_agent: dict[str, int] = {}

    def add(self, schedule: Schedule, sign: int = 1) -> None:
        """Count a schedule; with -1 it was there, and is no more."""
        owner, tasks = schedule.owner, sum(schedule.agents.values())
        for shares, amount in ((self.count, 1), (self.bytes, schedule.weight), (self.tasks, tasks)):
            shares.add(owner, sign * amount)
        for agent, count in schedule.agents.items():
            left = self.of_agent[agent] = self.of_agent.get(agent, 0) + sign * count
            if not left:
                del self.of_agent[agent]

    def check(self, wanted: Definition, by: str, limits: Limits, was: Schedule | None) -> None:
        """Refuse a schedule for which there is no room. Raises QueueFull or Unprocessable.

        What all schedules make at once is bounded as what waits is: the calendar asks no queue.
        """
        agents = agents_of(wanted.target)
        old = was.agents if was is not None else {}
        check_can_fit(limits, list(Counter(agents).elements()), "native")
        for agent, count in agents.items():
            made = self.of_agent.get(agent, 0) - old.get(agent, 0) + count
            if count > old.get(agent, 0) and made > limits.queued_per_agent:
                most = limits.queued_per_agent
                msg = f"the schedules of agent '{agent}' would make {made} tasks at once"
                raise _no_room(f"{msg}; at most {most} may wait (maxPerAgent)", _TASKS, most)
        owner, was_of = owner_of(by, agents), was.owner if was is not None else ""
        self.tasks.most = limits.queued
        if not self.tasks.may_replace(owner, sum(agents.values()), was_of, sum(old.values())):
            msg = f"all schedules make as many tasks at once as may wait: {limits.queued}"
            raise _no_room(f"{msg} (maxQueueSize), or yours as many as may", _TASKS, limits.queued)
        if not self.count.may_replace(owner, 1, was_of, int(was is not None)):
            msg = f"there are {SCHEDULES_MAX} schedules already, or as many of yours as may be"
            raise _no_room(f"{msg}; delete some", "too_many_schedules", SCHEDULES_MAX)
        weight = SCHEDULE_BYTES + len(packed(wanted.target) or b"")
        if not self.bytes.may_replace(owner, weight, was_of, was.weight if was is not None else 0):
            msg = f"the bodies of all schedules would have more than {BYTES_MAX} bytes"
            msg += ", or yours more than may be"
            raise QueueFull(msg, code="schedules_too_large", details={"maxBytes": BYTES_MAX})


_TASKS = "too_many_scheduled_tasks"


def _no_room(msg: str, code: str, most: int) -> QueueFull:
    return QueueFull(msg, code=code, details={"max": most})


def found(schedules: Mapping[str, Schedule], name: str) -> Schedule:
    """Give a schedule. Raises NotFound."""
    schedule = schedules.get(name)
    if schedule is None:
        raise no_such(name)
    return schedule


def no_such(name: str) -> NotFound:
    details = {"name": name[:200]}
    return NotFound("schedule not found", code="schedule_not_found", details=details)


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


def changed(name: str, was: Definition, wanted: Definition, due: Due) -> e.ScheduleChanged:
    """Write down what is changed: the rest of a schedule may be large."""
    pairs = zip(Definition._fields, was, wanted, strict=True)
    changes = {field: new for field, old, new in pairs if new != old}
    return e.ScheduleChanged(name, changes, due.next_at, due.due_at)


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

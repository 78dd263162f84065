"""Schedules in the simulation: moments, catching up, overlaps, and those who plan.

`Schedules` is the rule, worked out from the records alone: the moments of a schedule are dealt with
one after the other, each fires once at most, wherever the clock is set, none early and none while
the clock has jumped over it only just now, and the next is the first that has not fired; what fires has what it makes in the same commit; what
has not ended is left alone, awaited or cut off, as the schedule says; what passed is made up for, as
it says. The calendar is one that can be checked: a schedule of `5s` comes whenever the clock shows
a multiple of five seconds. `Planners` are the clients that make, change, pause and run them.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from support.sim_outside import SimReply
from support.sim_projects import NAMES as PROJECTS
from support.sim_rules import FINAL, Rule
from support.sim_work import AGENTS

from rota import calendars, clock
from rota.actors import schedule_messages as sm
from rota.actors import schedules as actor
from rota.actors import timekeeper
from rota.domain import firings
from rota.domain.schedule import Definition

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.sim_model import Model
    from support.simulation import World

    from rota.domain.events import Record
    from rota.errors import RotaError

S = 1_000_000
NAMES = ("dawn", "noon", "dusk")
STEPS = ("2s", "5s", "20s", "60s")
COUNTED_MAX, CAUGHT_UP_MAX, WAITING_MAX = 20, 3, 2
BELIEVED_US = 2 * S
PASSES = 20
SLACK_US = 5 * S
"""For so long something may be overdue: a calendar that could not be asked is asked again."""


def _step(cron: str) -> int:
    return int(cron[:-1]) * S


def after(cron: str, timezone: str, at: int) -> int:
    """Give the first moment after `at`."""
    del timezone
    return at - at % _step(cron) + _step(cron)


def passed(
    cron: str, timezone: str, first: int, until: int, keep: int
) -> tuple[tuple[int, ...], int, bool]:
    """Give the newest of the moments from `first` to `until`, and how many there are."""
    del timezone
    step = _step(cron)
    total = max(0, until - first) // step + 1
    newest = tuple(first + n * step for n in range(max(0, total - keep), total))
    return newest, min(total, COUNTED_MAX), total > COUNTED_MAX


SMALL = (
    (calendars, "after", after),
    (calendars, "passed", passed),
    (clock, "BELIEVED_US", BELIEVED_US),
    (timekeeper, "SETTLES_US", 0),
    (firings, "MINUTE_US", S),
    (firings, "LATE_US", 3 * S),
    (firings, "CAUGHT_UP_MAX", CAUGHT_UP_MAX),
    (firings, "WAITING_MAX", WAITING_MAX),
    (actor, "SLICE", 2),
)


class ModelSchedule:
    """One schedule, as the model sees it."""

    def __init__(self, event: Any) -> None:
        self.fired = self.overdue_since = self.silent_since = 0
        self.done: set[int] = set()  # the moments that have fired
        self.skips = False  # whether the moment at hand is skipped if something goes on
        self.subject: str | None = None
        self.waiting: list[list[Any]] = []
        self.is_paused = bool(event.paused)
        self.define(Definition(*(getattr(event, name) for name in Definition._fields)), event)

    def define(self, said: Definition, event: Any) -> None:
        self.said = said
        self.next_at, self.due_at = event.next_at, event.due_at

    @property
    def project(self) -> str | None:
        target = self.said.target.get("project")
        return target["id"] if target is not None else None

    def after(self, moment: int) -> int | None:
        """Give the moment that comes after one, if it is not over by then."""
        found = after(self.said.cron, "", moment)
        while found in self.done:
            found = after(self.said.cron, "", found)
        return found if self.said.end_at is None or found <= self.said.end_at else None

    def first(self, now: int) -> int | None:
        """Give the first moment after now that has not fired."""
        return self.after(max(now, (self.said.start_at or 0) - 1))


class Schedules(Rule):
    """Moments and what becomes of them."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.known: dict[str, ModelSchedule] = {}
        self.jump = (0, 0)  # the last step forward: from where, and where it went

    def on_server_started(self, record: Record) -> None:
        event: Any = record.event
        if event.resumed:
            self.jump = (0, 0)  # it was told late: the log took no records

    def on_clock_stepped(self, record: Record) -> None:
        event: Any = record.event
        by_us = event.now - event.was
        self.jump = (event.was, event.now) if by_us > 0 else (self.jump[0], self.jump[1] + by_us)

    def _of(self, record: Record) -> ModelSchedule:
        event: Any = record.event
        found = self.known.get(event.schedule)
        if found is None:
            self.violated(f"{event} tells of a schedule that is not there")
            found = ModelSchedule(event)
        return found

    def _comes(self, schedule: ModelSchedule, event: Any, expected: int | None) -> None:
        if event.next_at != expected:
            self.violated(f"{event} says that {event.next_at} comes next, and it is {expected}")
        if event.next_at is not None and event.due_at < event.next_at:
            self.violated(f"{event} is to be acted on too early")
        schedule.next_at, schedule.due_at = event.next_at, event.due_at

    # -- what people do

    def on_schedule_created(self, record: Record) -> None:
        event: Any = record.event
        if event.schedule in self.known:
            self.violated(f"{event} was made twice")
        schedule = self.known[event.schedule] = ModelSchedule(event)
        self._comes(schedule, event, None if event.paused else schedule.first(record.at))

    def on_schedule_changed(self, record: Record) -> None:
        event: Any = record.event
        schedule = self._of(record)
        was, next_at = schedule.said, schedule.next_at
        schedule.define(was._replace(**event.changes), event)
        if not all(getattr(was, each) != new for each, new in event.changes.items()):
            self.violated(f"{event} says again what it was")
        timing = ("cron", "timezone", "jitter_ms", "start_at", "end_at")
        is_kept = event.changes.keys().isdisjoint(timing)
        if not is_kept:
            schedule.done.clear()
        first = None if schedule.is_paused else schedule.first(record.at)
        self._comes(schedule, event, next_at if is_kept else first)

    def on_schedule_paused(self, record: Record) -> None:
        schedule = self._of(record)
        schedule.is_paused = True
        schedule.next_at = schedule.due_at = None

    def on_schedule_resumed(self, record: Record) -> None:
        schedule = self._of(record)
        schedule.is_paused = False
        schedule.done.clear()
        self._comes(schedule, record.event, schedule.first(record.at))

    def on_schedule_deleted(self, record: Record) -> None:
        self._of(record)
        self.known.pop(record.event.schedule, None)  # type: ignore[union-attr]

    # -- moments

    def on_schedule_missed(self, record: Record) -> None:
        event: Any = record.event
        schedule = self._of(record)
        step, catch_up = _step(schedule.said.cron), schedule.said.catch_up
        between = range(event.first, event.last + 1, step)
        count = len(between) - len(schedule.done & set(between))
        if event.first != schedule.next_at or event.last > record.at:
            self.violated(f"{event} lets go what has not come: {schedule.next_at}")
        if event.missed > count or (event.missed < count and not event.more):
            self.violated(f"{event} says otherwise how many there were: {count}")
        self._comes(schedule, event, schedule.after(event.last))
        to_come = range(event.next_at or record.at + 1, record.at + 1, step)
        left = len(to_come) - len(schedule.done & set(to_come))
        if left < {"all": CAUGHT_UP_MAX, "last": 1}.get(catch_up, 0):
            self.violated(f"{event} leaves {left} to make up for, under {catch_up}")
        self.model.seen[f"caught up {catch_up}"] += 1

    def on_schedule_realigned(self, record: Record) -> None:
        event: Any = record.event
        schedule = self._of(record)
        if schedule.next_at is not None and schedule.next_at <= record.at:
            self._comes(schedule, event, schedule.next_at)
            return
        self._comes(schedule, event, schedule.first(record.at))
        plain = after(schedule.said.cron, "", max(record.at, (schedule.said.start_at or 0) - 1))
        if (event.fired_until is not None) != (plain in schedule.done):
            self.violated(f"{event} does not say what has fired: {sorted(schedule.done)}")
        self.model.seen["realigned"] += 1

    def on_schedule_fired(self, record: Record) -> None:
        event: Any = record.event
        schedule = self._of(record)
        if schedule.is_paused and not event.manual:
            self.violated(f"{event}, and it is paused")
        said, is_manual = schedule.said, event.manual or event.from_queue
        latest = event.moment + (said.jitter_ms or 0) * 1000
        is_put_off = not is_manual and (event.late or (schedule.due_at or 0) > latest)
        schedule.skips = said.overlap == "skip" and not (said.catch_up == "all" and is_put_off)
        if event.from_queue:
            if schedule.waiting[:1] != [[event.moment, bool(event.manual)]]:
                self.violated(f"{event} did not wait first: {schedule.waiting}")
            del schedule.waiting[:1]
        elif not event.manual:
            self._moment(schedule, event, record.at)
        busy = self._busy(schedule)
        getattr(self, f"_{event.outcome}")(schedule, event, busy)
        self.model.seen[f"fired {event.outcome}"] += 1

    def _moment(self, schedule: ModelSchedule, event: Any, now: int) -> None:
        if event.moment in schedule.done:
            self.violated(f"{event} is the second for that moment")
        if event.moment != schedule.next_at:
            self.violated(f"{event} is not the moment that comes next: {schedule.next_at}")
        if schedule.due_at is None or now < schedule.due_at:
            self.violated(f"{event} was acted on early")
        was, stepped = self.jump
        if was < event.moment and now < stepped + BELIEVED_US - S:
            self.violated(f"{event}: the clock has just jumped over it, and may be set back")
        schedule.done.add(event.moment)
        self._comes(schedule, event, schedule.after(event.moment))

    def _busy(self, schedule: ModelSchedule) -> str | None:
        """Name what goes on, which the next firing has to mind."""
        if schedule.project is not None:
            project = self.model.projects.known.get(schedule.project)
            run = project.run if project is not None else None
            goes_on = run is not None and run.state in ("pending", "in_progress")
            return run.event.run if run is not None and goes_on else None
        subject = schedule.subject or ""
        return subject if self.model.state_of(subject) not in (*FINAL, "") else None

    def _started(self, schedule: ModelSchedule, event: Any, busy: str | None) -> None:
        if busy is not None:
            if schedule.said.overlap != "cancel" or schedule.project is not None:
                self.violated(f"{event} starts while {busy} goes on")
            self.model.then.append(("task_cancelled", busy))
            self.model.seen["overlap cancelled"] += 1
        kind = "run_queued" if schedule.project is not None else "task_submitted"
        self.model.then.append((kind, None if kind == "run_queued" else event.subject))
        schedule.subject = event.subject
        schedule.fired += 1

    def _queued(self, schedule: ModelSchedule, event: Any, busy: str | None) -> None:
        if schedule.skips or (busy is None and not schedule.waiting):
            self.violated(f"{event} waits for nothing")
        schedule.waiting.append([event.moment, bool(event.manual)])
        if len(schedule.waiting) > (1 if schedule.project is not None else WAITING_MAX):
            self.violated(f"{event}: too many wait")
        if schedule.project is not None and schedule.said.overlap == "cancel":
            run = self.model.projects.known[schedule.project].run
            if run is not None and run.stop != "force":
                self.model.then.append(("run_stop_requested", None))

    def _skipped(self, schedule: ModelSchedule, event: Any, busy: str | None) -> None:
        if event.from_queue and event.manual and event.reason.startswith("rejected: "):
            self.model.seen["run refused by a full queue"] += 1
            return
        is_gone = event.reason == "project not found"
        if busy is None and not schedule.waiting and not is_gone:
            self.violated(f"{event} is skipped although nothing goes on")
        is_free = not schedule.waiting and not is_gone
        if schedule.said.overlap == "skip" and not schedule.skips and is_free:
            self.violated(f"{event} is skipped although all were to be made up for")
        if is_gone and schedule.project in self.model.projects.known:
            self.violated(f"{event} does not find a project that is there")

    def at_rest(self) -> None:
        for name, schedule in self.known.items():
            if schedule.waiting and not schedule.is_paused and self._busy(schedule) is None:
                self.violated(f"a moment of {name} waits for something that has ended")

    def overdue(self, now: int) -> None:
        """Judge a moment at which all that was due should have happened."""
        for name, schedule in self.known.items():
            is_due = schedule.due_at is not None and schedule.due_at < now
            schedule.overdue_since = schedule.overdue_since or now if is_due else 0
            first = schedule.first(now) or now
            is_silent = not schedule.is_paused and (schedule.next_at or 2 * first) > first > now
            schedule.silent_since = schedule.silent_since or now if is_silent else 0
            if is_silent and schedule.silent_since < now - SLACK_US:
                self.violated(f"{name} is to fire at {first}, and waits for {schedule.next_at}")
            if is_due and schedule.overdue_since < now - SLACK_US:
                self.violated(f"{name} was to fire at {schedule.due_at}, and it is {now}")

    def settled(self) -> None:
        for name, schedule in self.known.items():
            if schedule.next_at is not None:
                self.violated(f"{name} goes on for ever")


class Planners:
    """Those who have schedules."""

    def __init__(self, world: World) -> None:
        """Belong to a world; what they do is drawn apart from all the rest."""
        self._world = world
        self._rng = rng = Random(f"schedules {world.seed}")
        self._odds = rng.choice((0.0, 0.0, 0.02, 0.06))

    def act(self) -> None:
        """Now and then do something with a schedule."""
        world, rng = self._world, self._rng
        if world.calm or world.draining or not self._odds or rng.random() >= self._odds:
            return
        name = rng.choice(NAMES)
        what = rng.random()
        if name not in world.model.schedules.known:
            what = 0.0
        if what < 0.3:
            paused = rng.random() < 0.1
            self._tell("schedule_created", sm.CreateSchedule, name, self._definition(), paused)
        elif what < 0.45:
            self._tell("", sm.ChangeSchedule, name, self._changes())
        elif what < 0.6:
            how = rng.choice(("pause", "resume", "resume", "delete"))
            self._tell("", sm.SteerSchedule, name, how, "")
        else:
            self._tell("schedule_fired", sm.RunSchedule, name)

    def _definition(self) -> Definition:
        rng = self._rng
        task = {"agent": rng.choice(AGENTS), "action": rng.choice(("echo", "sleep"))}
        target: dict[str, Any] = {"task": task}
        if rng.random() < 0.3:
            mode = rng.choice(("single", "loop"))
            target = {"project": {"id": rng.choice(PROJECTS), "mode": mode}}
        return Definition(
            rng.choice(STEPS),
            "UTC",
            target,
            rng.choice(("none", "last", "all")),
            rng.choice(("skip", "queue", "cancel")),
            rng.choice((None, None, 3000)),
        )

    def _changes(self) -> dict[str, Any]:
        rng, wanted = self._rng, self._definition()
        names = rng.sample(("cron", "target", "catch_up", "overlap", "jitter_ms"), 2)
        ends = {"end_at": self._world.clock.wall_us() + rng.choice((-1, 3, 30)) * S}
        return {n: getattr(wanted, n) for n in names} | (ends if rng.random() < 0.2 else {})

    def wind_down(self, pass_time: Callable[[], bool]) -> None:
        """See that all that is due fires; have every schedule fire a few times more, and be over."""
        world = self._world
        for _ in range(PASSES):
            known = world.model.schedules.known.values()
            if any(s.due_at is not None and s.due_at < world.clock.now_us() for s in known):
                pass_time()
        now = world.clock.now_us()
        for name, schedule in list(self._world.model.schedules.known.items()):
            step = _step(schedule.said.cron)
            if schedule.first(now) is None:
                self._tell("", sm.SteerSchedule, name, "delete", "")
                continue
            self._tell("", sm.SteerSchedule, name, "resume", "")
            self._tell("", sm.ChangeSchedule, name, {"end_at": now + 3 * step})

    def _tell(self, subject: str, message: Any, name: str, *values: Any) -> None:
        world = self._world
        kind = message.__name__
        world.trace("%s %s %s", kind, name, values)

        def check(answer: Any) -> None:
            world.counts[kind] += 1
            if subject and answer is not True:
                world.acknowledged(f"schedule/{name}", subject)

        def check_refusal(code: str, error: RotaError) -> None:
            del error
            world.counts[f"schedule {code}"] += 1

        reply = SimReply(world, kind, check, check_refusal)
        world.shard.schedules.tell(message(name, *values, "sim", reply))

    def compare(self, record: Any) -> None:
        """Hold what is in memory of a schedule against the model, after a record about it."""
        name = getattr(record.event, "schedule", None)
        if name is None or not type(record.event).__name__.startswith("Schedule"):
            return
        found = self._world.shard.state.schedules.get(name)
        known = self._world.model.schedules.known.get(name)
        if (found is None) != (known is None):
            self._world.violated(f"schedule {name} is not where it should be")
        if found is None or known is None:
            return
        told = (found.next_at, found.due_at, found.waiting, found.fired, found.last_subject)
        if told != (known.next_at, known.due_at, known.waiting, known.fired, known.subject):
            self._world.violated(f"schedule {name} is not what its records say: {told}")

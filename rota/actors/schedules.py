"""The schedules: what is made at moments of the calendar.

In: moments that have come, news that what a schedule made has ended, and what people ask of one.
Out: `schedule_created`, `schedule_changed`, `schedule_paused`, `schedule_resumed`,
`schedule_deleted`, `schedule_missed`, and `schedule_fired` together with what it makes, and cancels
for that. The calendar is asked here, and only here, so that facts say which moment comes next.
When many are due at once they are taken a few at a time, with the loop's turns in between; what
passed while the server was away is looked up beside the loop. A moment that the clock has jumped
over is acted on when the clock has been believed for a while: it may be set back at once. It holds
only whom to look at next, which follows from the projections.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rota import calendars
from rota.actors import next_moments
from rota.actors import schedule_messages as sm
from rota.actors.messages import LookAgain
from rota.actors.next_moments import is_due
from rota.actors.runtime import CooperativeActor
from rota.clock import rfc3339
from rota.domain import events as e
from rota.domain import firings
from rota.domain import schedule as domain
from rota.domain.firings import Firing
from rota.domain.schedule import Due
from rota.domain.schedule_targets import Around, decide_target
from rota.domain.task import TERMINAL, WAITING
from rota.errors import QueueFull, RequestError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.host import Host
    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.domain.firings import Passed
    from rota.domain.project_parts import Run
    from rota.domain.schedule import Schedule
    from rota.domain.task import Task
    from rota.domain.workflow import Workflow

SLICE = 16
"""So many schedules are looked at in one turn of the loop: a firing takes some 0.1 ms."""
AGAIN_US = 1_000_000
"""If the calendar cannot be asked, it is asked again after so long."""


class SchedulesActor(CooperativeActor):
    """Decides about schedules."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        ids: NewIds,
        draw: Callable[[], float],
        host: Host,
        look: Callable[[], object],
    ) -> None:
        """Submit under `ids`, with jitter by `draw`; take turns with the loop of `host`.

        `look` looks whether the clock was set: a schedule begins by the time that it tells now.
        """
        super().__init__(runtime)
        self._journal = journal
        self._ids = ids
        self._draw = draw
        self._host = host
        self._look_at_clock = look
        self._due: dict[str, None] = {}
        self._late: dict[str, sm.Late] = {}
        self._doubted: dict[str, None] = {}
        self._is_resting = False  # whether the next turn is under way
        self._is_asking = False  # whether the calendar is being asked
        self._asked: dict[type[Any], Callable[[Any], Any]] = {
            sm.CreateSchedule: self._create,
            sm.ChangeSchedule: self._change,
            sm.SteerSchedule: self._steer,
            sm.RunSchedule: self._run,
        }

    def reset(self) -> None:
        self._due.clear()
        self._late.clear()
        self._doubted.clear()
        self._is_asking = False
        self._is_resting = False

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is sm.FireSchedule or kind is sm.LookAtSchedule:
            self._note(message.schedule)
        elif kind is sm.FireSome:
            self._fire_some()
        elif kind is sm.Reckoned:
            self._reckon(message)
        elif kind is LookAgain:
            self._look_again()
        else:
            self._journal.answer_with(message.reply, lambda: self._asked[kind](message))

    # -- turns

    def _look_again(self) -> None:
        """See what is due, as at a start; a fault may have lost an answer of the calendar."""
        self._is_asking = False
        now = self._journal.now()
        for schedule in self._journal.state.schedules.by_name.values():
            if schedule.waiting or schedule.is_set_back or is_due(schedule, now):
                self._note(schedule.name)

    def _note(self, name: str) -> None:
        """Look at a schedule in the next turn of the loop."""
        self._due[name] = None
        self._rest()

    def _rest(self) -> None:
        """Let the loop have its turn, and go on after that."""
        if not self._is_resting:
            self._is_resting = True
            self._host.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self.stopped:
            self.actor_ref.tell(sm.FireSome())

    def _fire_some(self) -> None:
        """Look at a few; what one of them fails with is raised when the others have had theirs."""
        self._is_resting = False
        failure: Exception | None = None
        for name in list(islice(self._due, SLICE)):
            del self._due[name]
            try:
                self._look(name)
            except StorageUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - raised below; the others go on
                failure = failure or error
        self._ask_calendar()
        if self._due:
            self._rest()
        if failure is not None:
            raise failure

    def _look(self, name: str) -> None:
        """Do the next thing about a schedule: let a waiting moment go, or one that has come."""
        schedule = self._journal.state.schedules.get(name)
        if schedule is None or schedule.paused is not None:
            return
        now = self._journal.now()
        if schedule.is_set_back:
            self._realign(schedule, now)
        if schedule.waiting and self._busy(schedule) is None:
            moment, manual = schedule.waiting[0]
            firing = Firing(moment, manual=manual, from_queue=True)
            self._fire(schedule, firing, schedule.by, now)
        elif not is_due(schedule, now) or self._is_doubted(schedule, now):
            return
        elif firings.is_on_time(schedule, now):
            self._come(schedule, now)
        else:
            self._late[name] = next_moments.lateness(schedule, now)
            return
        if is_due(schedule, now) or (schedule.waiting and self._busy(schedule) is None):
            self._note(name)

    # -- the clock

    def _is_doubted(self, schedule: Schedule, now: int) -> bool:
        """Whether the clock may not have come so far; then look again when it is believed."""
        is_on_time = firings.is_on_time(schedule, now)
        wait_us = self._host.clock.doubts((schedule.due_at or now) if is_on_time else now)
        if wait_us <= 0:
            return False
        if not self._doubted:
            self._host.call_at(self._host.clock.now_us() + wait_us, self._believe)
        self._doubted[schedule.name] = None
        return True

    def _believe(self) -> None:
        doubted, self._doubted = self._doubted, {}
        for name in doubted:
            self._note(name)

    def _realign(self, schedule: Schedule, now: int) -> None:
        """Say which moment comes next since the clock was set back."""
        event = next_moments.realigned(schedule, now, self._draw)
        if event is None:
            return
        self._journal.record(event, at=now)
        next_moments.tell_realigned(event)

    # -- moments

    def _come(self, schedule: Schedule, now: int) -> None:
        """Have the moment fire that is due."""
        moment = schedule.next_at
        assert moment is not None
        latest = moment + (schedule.jitter_ms or 0) * 1000
        is_late = now > latest + firings.LATE_US
        made_up = is_late or (schedule.due_at or 0) > latest
        firing = Firing(
            moment,
            next_moments.after(schedule, moment, now, self._draw),
            late=is_late,
            made_up=made_up,
        )
        self._fire(schedule, firing, schedule.by, now)

    def _ask_calendar(self) -> None:
        """Have it looked up beside the loop what passed while nobody could act on it.

        A few at a time, one read after the other: whoever else has to read comes between.
        """
        if self._is_asking or not self._late:
            return
        self._is_asking = True
        late = tuple([self._late.pop(name) for name in list(islice(self._late, SLICE))])

        def read() -> tuple[Passed, ...]:
            for each in late:
                calendars.after(each.cron, each.timezone, each.until)  # it will be wanted
            return tuple([next_moments.passed(each) for each in late])

        def done(found: tuple[Passed, ...]) -> None:
            if not self.stopped:
                self.actor_ref.tell(sm.Reckoned(late, found))

        def again() -> None:
            self._is_asking = False
            for each in late:
                self._note(each.schedule)

        def failed(_: BaseException) -> None:
            self._host.call_at(self._host.clock.now_us() + AGAIN_US, again)

        self._host.fetch(read, done, failed)

    def _reckon(self, message: sm.Reckoned) -> None:
        self._is_asking = False
        for late, passed in zip(*message, strict=True):
            self._make_up(late, passed)
        self._ask_calendar()

    def _make_up(self, late: sm.Late, passed: Passed) -> None:
        """Let go what is not made up for; have the first fire of what is."""
        schedule, now = self._journal.state.schedules.get(late.schedule), self._journal.now()
        if schedule is None or schedule.paused is not None or not is_due(schedule, now):
            return
        asked = next_moments.lateness(schedule, now)
        if late._replace(until=0) != asked._replace(until=0) or late.until > now:
            self._note(schedule.name)  # it is another by now, or the clock was set back
            return
        if asked.until - late.until > firings.LATE_US:
            self._note(schedule.name)  # more has passed since
            return
        reckoning = firings.decide_catch_up(schedule, passed, now)
        if not reckoning.let_go:
            self._come(schedule, now)
        else:
            fire = reckoning.fire
            due = (
                Due(fire[0], now)
                if fire
                else next_moments.after(schedule, late.until, now, self._draw)
            )
            self._journal.record(firings.missed(schedule, reckoning, due), at=now)
        if is_due(schedule, now):
            self._note(schedule.name)

    # -- firing

    def _busy(self, schedule: Schedule) -> str | None:
        """Name what has not ended: what the schedule made last, or the run of its project."""
        before = self._before(schedule)
        return before.id if before is not None else None

    def _before(self, schedule: Schedule) -> Task | Workflow | Run | None:
        state, subject = self._journal.state, schedule.last_subject or ""
        if schedule.project is not None:
            project = state.projects.get(schedule.project)
            return project.run if project is not None else None
        task = state.tasks.get(subject)
        if task is not None:
            return task if task.state not in TERMINAL else None
        flow = state.batches.flow(subject)
        return flow if flow is not None and not flow.finished_at else None

    def _fire(self, schedule: Schedule, firing: Firing, by: str, now: int) -> e.ScheduleFired:
        """Record a firing and what it makes, in one step; give the fact.

        Raises QueueFull, and nothing is recorded, if somebody asked for what has no room now.
        """
        before = self._before(schedule)
        event = firings.decide_overlap(schedule, firing, before.id if before is not None else None)
        more: tuple[e.Event, ...] = ()
        if event is None or schedule.overlap == domain.CANCEL:
            project = self._journal.state.projects.get(schedule.project or "")
            more = firings.decide_replaced(schedule, before, project)
        if event is None:
            said = {"name": schedule.name, "moment": rfc3339(firing.moment)}
            around = self._around(now, more, minds_limits=firing.manual)
            try:
                made = decide_target(schedule.target, said, by, around)
            except RequestError as error:
                if isinstance(error, QueueFull) and firing.manual and not firing.from_queue:
                    raise
                event = firings.fired(schedule, firing, domain.SKIPPED, reason=error.message)
                more = ()
            else:
                event = firings.fired(schedule, firing, domain.STARTED, made.subject, made.reason)
                more += made.events
        self._journal.record(event, *more, by=by, at=now)
        return event

    def _around(self, now: int, ended: tuple[e.Event, ...], *, minds_limits: bool) -> Around:
        state, ids = self._journal.state, self._ids
        freed = sum(type(each) is e.TaskCancelled and each.was in WAITING for each in ended)
        return Around(
            lambda: ids.draw("native"),
            ids.of_workflow,
            ids.of_run,
            state.projects.get,
            state.control.rules,
            state.control.limits,
            state.backlog,
            state.backlog.total - freed,
            state.batches.live_flows,
            state.batches.flow_tasks,
            now,
            minds_limits,
        )

    # -- what people ask for

    def _create(self, message: sm.CreateSchedule) -> bool:
        """Make a schedule; True if it is there already. Raises a RequestError."""
        self._look_at_clock()
        self._journal.check_room(
            message.by, min(domain.agents_of(message.wanted.target), default="")
        )
        now, wanted = self._journal.now(), message.wanted
        schedules = self._journal.state.schedules
        if domain.is_known(schedules.get(message.name), wanted):
            return True
        domain.check_definition(wanted, now)
        schedules.room.check(wanted, message.by, self._journal.state.control.limits, None)
        due = next_moments.coming(wanted, now, self._draw)
        due = Due() if message.paused else due
        event = domain.created(message.name, wanted, due, paused=message.paused)
        self._journal.record(event, by=message.by, at=now)
        return False

    def _change(self, message: sm.ChangeSchedule) -> str:
        """Change a schedule. Raises a RequestError."""
        self._look_at_clock()
        self._journal.check_room(message.by, self._agent_of(message.name))
        now, schedules = self._journal.now(), self._journal.state.schedules
        schedule = domain.found(schedules.by_name, message.name)
        was = schedule.definition
        wanted = was._replace(**message.changes)
        if wanted == was:
            return schedule.name
        domain.check_definition(wanted, now, was)
        schedules.room.check(wanted, message.by, self._journal.state.control.limits, schedule)
        due = Due(schedule.next_at, schedule.due_at)
        if any(getattr(wanted, each) != getattr(was, each) for each in domain.TIMING):
            due = next_moments.coming(wanted, now, self._draw)
            due = due if schedule.paused is None else Due()
        event = domain.changed(schedule.name, was, wanted, due)
        self._journal.record(event, by=message.by, at=now)
        if schedule.waiting:
            self._note(schedule.name)
        return schedule.name

    def _steer(self, message: sm.SteerSchedule) -> str:
        """Pause, resume or delete a schedule, unless it is so already. Raises NotFound."""
        self._look_at_clock()
        journal, now = self._journal, self._journal.now()
        schedule = domain.found(journal.state.schedules.by_name, message.name)
        event: e.Event | None = None
        if message.how == "delete":
            event = e.ScheduleDeleted(schedule.name, message.reason)
        elif message.how == "pause" and schedule.paused is None:
            event = e.SchedulePaused(schedule.name, message.reason)
        elif message.how == "resume" and schedule.paused is not None:
            due = next_moments.first(schedule.definition, now, self._draw)
            event = e.ScheduleResumed(schedule.name, due.next_at, due.due_at)
        if event is not None:
            journal.record(event, by=message.by, at=now)
        if schedule.waiting:
            self._note(schedule.name)
        return schedule.name

    def _run(self, message: sm.RunSchedule) -> e.ScheduleFired:
        self._journal.check_room(message.by, self._agent_of(message.name))
        schedule = domain.found(self._journal.state.schedules.by_name, message.name)
        now = self._journal.now()
        return self._fire(schedule, Firing(now, manual=True), message.by, now)

    def _agent_of(self, name: str) -> str:
        """Name the agent whose shares a schedule takes, where there are no tokens."""
        schedule = self._journal.state.schedules.get(name)
        return min(schedule.agents, default="") if schedule is not None else ""

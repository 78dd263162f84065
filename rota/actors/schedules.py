"""The schedules: what is made at moments of the calendar.

In: moments that have come, news that what a schedule made has ended, and what people ask of one.
Out: `schedule_created`, `schedule_changed`, `schedule_paused`, `schedule_resumed`,
`schedule_deleted`, `schedule_missed`, and `schedule_fired` together with what it makes, and cancels
for that. The calendar is asked here, and only here, so that facts say which moment comes next.
When many are due at once they are taken a few at a time, with the loop's turns in between. It holds
only whom to look at next, which follows from the projections.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rota import calendars
from rota.actors import schedule_messages as sm
from rota.actors.messages import LookAgain
from rota.actors.runtime import CooperativeActor
from rota.clock import rfc3339
from rota.domain import events as e
from rota.domain import schedule as decide
from rota.domain.attempts import decide_cancel
from rota.domain.schedule import Definition, Due, Firing, Passed, Schedule
from rota.domain.schedule_targets import Around, decide_target
from rota.domain.task import TERMINAL, WAITING
from rota.errors import InvalidRequest, RequestError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.domain.task import Task
    from rota.domain.workflow import Workflow

SLICE = 16
"""So many schedules are looked at in one turn of the loop: a firing takes some 0.1 ms."""
_TIMING = ("cron", "timezone", "jitter_ms", "start_at", "end_at")


class SchedulesActor(CooperativeActor):
    """Decides about schedules."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        ids: NewIds,
        draw: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], Any],
        look: Callable[[], object],
    ) -> None:
        """Submit under `ids`, with jitter by `draw`; take turns with the loop by `call_soon`.

        `look` looks whether the clock was set: a schedule begins by the time that it tells now.
        """
        super().__init__(runtime)
        self._journal = journal
        self._ids = ids
        self._draw = draw
        self._call_soon = call_soon
        self._look_at_clock = look
        self._due: dict[str, None] = {}
        self._is_resting = False  # whether the next turn is under way

    def reset(self) -> None:
        self._due.clear()
        self._is_resting = False

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is sm.FireSchedule or kind is sm.LookAtSchedule:
            self._note(message.schedule)
        elif kind is sm.FireSome:
            self._fire_some()
        elif kind is sm.CreateSchedule:
            self._journal.answer_with(message.reply, lambda: self._create(message))
        elif kind is sm.ChangeSchedule:
            self._journal.answer_with(message.reply, lambda: self._change(message))
        elif kind is sm.SteerSchedule:
            self._journal.answer_with(message.reply, lambda: self._steer(message))
        elif kind is sm.RunSchedule:
            self._journal.answer_with(message.reply, lambda: self._run(message))
        elif kind is LookAgain:
            now = self._journal.now()
            for schedule in self._journal.state.schedules.by_name.values():
                if schedule.waiting or (schedule.due_at is not None and schedule.due_at <= now):
                    self._note(schedule.name)

    # -- turns

    def _note(self, name: str) -> None:
        """Look at a schedule in the next turn of the loop."""
        self._due[name] = None
        if not self._is_resting:
            self._is_resting = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self.stopped:
            self.actor_ref.tell(sm.FireSome())

    def _fire_some(self) -> None:
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
        left, self._due = self._due, {}
        for name in left:
            self._note(name)
        if failure is not None:
            raise failure

    def _look(self, name: str) -> None:
        """Do what is due about a schedule: let a waiting moment go, or one that has come."""
        schedule = self._journal.state.schedules.get(name)
        if schedule is None or schedule.paused is not None:
            return
        while schedule.waiting and not self._is_busy(schedule):
            moment, manual = schedule.waiting[0]
            firing = Firing(moment, manual=manual, from_queue=True)
            self._fire(schedule, firing, schedule.by, self._journal.now())
        now = self._journal.now()
        if schedule.due_at is not None and schedule.due_at <= now:
            self._come(schedule, now)
            self._note_if_due(schedule, now)

    def _note_if_due(self, schedule: Schedule, now: int) -> None:
        if schedule.due_at is not None and schedule.due_at <= now:
            self._note(schedule.name)

    # -- moments

    def _come(self, schedule: Schedule, now: int) -> None:
        """Deal with the moment that is due; with all that have passed, if it is late."""
        moment = schedule.next_at
        assert moment is not None
        if not decide.is_on_time(schedule, now):
            until = now if schedule.end_at is None else min(now, schedule.end_at)
            keep = decide.CAUGHT_UP_MAX
            found = calendars.passed(schedule.cron, schedule.timezone, moment, until, keep)
            reckoning = decide.decide_catch_up(schedule, Passed(*found), now)
            if reckoning.let_go:
                first = reckoning.fire[0] if reckoning.fire else None
                due = Due(first, now) if first is not None else self._after(schedule, until, now)
                self._journal.record(decide.missed(schedule, reckoning, due), at=now)
                return
        is_late = now - moment > decide.LATE_US + (schedule.jitter_ms or 0) * 1000
        firing = Firing(moment, self._after(schedule, moment, now), late=is_late)
        self._fire(schedule, firing, schedule.by, now)

    def _after(self, wanted: Schedule | Definition, moment: int, now: int) -> Due:
        """Give the next moment after one, and when it is acted on."""
        next_at = calendars.after(wanted.cron, wanted.timezone, moment)
        if next_at is None or (wanted.end_at is not None and next_at > wanted.end_at):
            return Due()
        jitter_us = int(self._draw() * wanted.jitter_ms) * 1000 if wanted.jitter_ms else 0
        return Due(next_at, max(next_at + jitter_us, now))

    def _first(self, wanted: Definition, now: int, last: int = 0) -> Due:
        """Give the first moment that is after now, after the last one, and within its time."""
        return self._after(wanted, max(now, last, (wanted.start_at or 0) - 1), now)

    # -- firing

    def _made_last(self, schedule: Schedule) -> Task | Workflow | None:
        """Give what the schedule made last, if it has not ended."""
        subject = schedule.last_subject or ""
        task = self._journal.state.tasks.get(subject)
        if task is not None:
            return task if task.state not in TERMINAL else None
        flow = self._journal.state.batches.flow(subject)
        return flow if flow is not None and not flow.finished_at else None

    def _is_busy(self, schedule: Schedule) -> bool:
        return self._made_last(schedule) is not None

    def _fire(self, schedule: Schedule, firing: Firing, by: str, now: int) -> e.ScheduleFired:
        """Record a firing and what it makes, in one step; give the fact."""
        before = self._made_last(schedule)
        event = decide.decide_overlap(schedule, firing, is_busy=before is not None)
        more: tuple[e.Event, ...] = ()
        if event is None:
            said = {"name": schedule.name, "moment": rfc3339(firing.moment)}
            ended = _ended_for(before, schedule)
            try:
                around = self._around(now, ended)
                made = decide_target(schedule.target, said, by, around)
            except RequestError as error:
                event = decide.fired(schedule, firing, decide.SKIPPED, reason=error.message)
            else:
                event = decide.fired(schedule, firing, decide.STARTED, made.subject)
                more = (*ended, *made.events)
        self._journal.record(event, *more, by=by, at=now)
        return event

    def _around(self, now: int, ended: tuple[e.Event, ...]) -> Around:
        state, ids = self._journal.state, self._ids
        freed = sum(type(each) is e.TaskCancelled and each.was in WAITING for each in ended)
        return Around(
            lambda: ids.draw("native"),
            ids.of_workflow,
            state.control.rules,
            state.backlog,
            state.backlog.total - freed,
            state.batches.live_flows,
            state.batches.flow_tasks,
            now,
        )

    # -- what people ask for

    def _create(self, message: sm.CreateSchedule) -> bool:
        """Make a schedule; True if it is there already. Raises a RequestError."""
        self._look_at_clock()
        self._journal.check_open()
        now, wanted = self._journal.now(), message.wanted
        schedules = self._journal.state.schedules
        if decide.is_known(schedules.get(message.name), wanted):
            return True
        decide.check_definition(wanted, now)
        decide.check_room(len(schedules.by_name), schedules.bytes, wanted)
        due = self._coming(wanted, now)
        due = Due() if message.paused else due
        event = decide.created(message.name, wanted, due, paused=message.paused)
        self._journal.record(event, by=message.by, at=now)
        return False

    def _coming(self, wanted: Definition, now: int, last: int = 0) -> Due:
        """Give the first moment of what somebody wants. Raises InvalidRequest if none comes."""
        due = self._first(wanted, now, last)
        if due.next_at is None:
            msg = f"field 'cron': '{wanted.cron}' does not come between startAt and endAt"
            raise InvalidRequest(msg, details={"field": "cron"})
        return due

    def _change(self, message: sm.ChangeSchedule) -> str:
        """Change a schedule. Raises a RequestError."""
        self._look_at_clock()
        self._journal.check_open()
        now, schedules = self._journal.now(), self._journal.state.schedules
        schedule = decide.found(schedules.by_name, message.name)
        was = schedule.definition
        wanted = was._replace(**message.changes)
        if wanted == was:
            return schedule.name
        decide.check_definition(wanted, now)
        decide.check_room(0, schedules.bytes, wanted, schedule.weight)
        due = Due(schedule.next_at, schedule.due_at)
        if any(getattr(wanted, each) != getattr(was, each) for each in _TIMING):
            due = self._coming(wanted, now, schedule.last_moment)
            due = due if schedule.paused is None else Due()
        event = decide.changed(schedule.name, wanted, due)
        self._journal.record(event, by=message.by, at=now)
        return schedule.name

    def _steer(self, message: sm.SteerSchedule) -> str:
        """Pause, resume or delete a schedule, unless it is so already. Raises NotFound."""
        self._look_at_clock()
        journal, now = self._journal, self._journal.now()
        schedule = decide.found(journal.state.schedules.by_name, message.name)
        event: e.Event | None = None
        if message.how == "delete":
            event = e.ScheduleDeleted(schedule.name, message.reason)
        elif message.how == "pause" and schedule.paused is None:
            event = e.SchedulePaused(schedule.name, message.reason)
        elif message.how == "resume" and schedule.paused is not None:
            due = self._first(schedule.definition, now, schedule.last_moment)
            event = e.ScheduleResumed(schedule.name, due.next_at, due.due_at)
        if event is not None:
            journal.record(event, by=message.by, at=now)
        if schedule.waiting:
            self._note(schedule.name)
        return schedule.name

    def _run(self, message: sm.RunSchedule) -> e.ScheduleFired:
        self._journal.check_open()
        schedule = decide.found(self._journal.state.schedules.by_name, message.name)
        now = self._journal.now()
        return self._fire(schedule, Firing(now, manual=True), message.by, now)


def _ended_for(before: Task | Workflow | None, schedule: Schedule) -> tuple[e.Event, ...]:
    """Cancel what was made before: the next firing takes its place."""
    if before is None:
        return ()
    reason = f"schedule {schedule.name} has fired again"
    if hasattr(before, "stopping"):
        return (e.WorkflowCancelled(before.id, reason),) if before.stopping is None else ()
    return (decide_cancel(before, reason, decide.OVERLAPPED),)

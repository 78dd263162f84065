"""Bugs planted in schedules, each of which the simulator must find.

Each function breaks one of their promises, in the way a hurried change could: each moment once, none
early, none lost, what is made in the same commit, what goes on minded, what passed made up for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import next_moments
from rota.actors import schedules as actor
from rota.actors.consequences import Consequences
from rota.actors.moments import Moments
from rota.actors.schedule_messages import FireSchedule
from rota.domain import firings
from rota.domain import schedule as domain
from rota.domain.schedule import Due, Schedule
from rota.projections.schedules import Schedules

if TYPE_CHECKING:
    import pytest

Actor = actor.SchedulesActor


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


def a_moment_fires_again_after_it_was_dealt_with(patch: pytest.MonkeyPatch) -> None:
    goes_on = Schedule._goes_on

    def stays(self: Schedule, moment: int, next_at: Any, due_at: Any) -> None:
        if self.fired % 3:
            goes_on(self, moment, next_at, due_at)

    patch.setattr(Schedule, "_goes_on", stays)


def a_firing_and_its_task_are_two_commits(patch: pytest.MonkeyPatch) -> None:
    fire = Actor._fire

    def torn(self: Any, schedule: Any, *args: Any) -> Any:
        journal, record = self._journal, self._journal.record

        def each(event: Any, *more: Any, **named: Any) -> None:
            record(event, **named)
            if more:
                self._host.call_soon(lambda: record(*more, **named))

        journal.record = each
        try:
            return fire(self, schedule, *args)
        finally:
            del journal.record

    patch.setattr(Actor, "_fire", torn)


def what_goes_on_is_not_minded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Actor, "_before", nothing)


def what_goes_on_is_not_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(firings, "decide_replaced", lambda *_: ())


def nobody_hears_that_what_was_made_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_made_ended", nothing)


def what_waits_is_forgotten_when_it_is_changed(patch: pytest.MonkeyPatch) -> None:
    on_changed = Schedules.on_changed

    def forgets(self: Schedules, record: Any) -> None:
        on_changed(self, record)
        self.by_name[record.event.schedule].waiting = []

    patch.setattr(Schedules, "on_changed", forgets)


def a_moment_that_waited_fires_twice(patch: pytest.MonkeyPatch) -> None:
    on_fired = Schedule.on_fired

    def keeps(self: Schedule, record: Any) -> None:
        waiting = list(self.waiting)
        on_fired(self, record)
        if record.event.from_queue:
            self.waiting = waiting

    patch.setattr(Schedule, "on_fired", keeps)


def a_paused_one_fires(patch: pytest.MonkeyPatch) -> None:
    def lax(self: Schedules, record: Any) -> None:
        self.by_name[record.event.schedule].paused = None

    patch.setattr(Schedules, "on_paused", lax)


def all_that_passed_is_made_up_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(firings, "is_on_time", lambda *_: True)


def nothing_that_passed_is_made_up_for(patch: pytest.MonkeyPatch) -> None:
    decide = firings.decide_catch_up

    def none(schedule: Schedule, passed: Any, now: int) -> Any:
        was, schedule.catch_up = schedule.catch_up, "none"
        found = decide(schedule, passed, now)
        schedule.catch_up = was
        return found

    patch.setattr(firings, "decide_catch_up", none)


def what_has_passed_is_forgotten_while_it_is_looked_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Actor, "_make_up", nothing)


def a_change_begins_at_a_moment_that_was(patch: pytest.MonkeyPatch) -> None:
    def from_before(wanted: Any, now: int, draw: Any) -> Due:
        return next_moments.after(wanted, now - 60_000_000, now, draw)

    patch.setattr(next_moments, "first", from_before)


def a_clock_set_back_brings_moments_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(domain, "fired_with", nothing)


def a_timer_is_not_armed_for_the_next_moment(patch: pytest.MonkeyPatch) -> None:
    arm = Moments.arm

    def forgets(self: Moments, subject: Any, kind: Any) -> None:
        if kind is not FireSchedule or subject.fired < 2:
            arm(self, subject, kind)

    patch.setattr(Moments, "arm", forgets)


def too_many_moments_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(firings, "RUNS_WAITING_MAX", 3)


def a_snapshot_forgets_what_waits(patch: pytest.MonkeyPatch) -> None:
    to_row = Schedule.to_row

    def forgets(self: Schedule) -> list[Any]:
        waiting, self.waiting = self.waiting, []
        row = to_row(self)
        self.waiting = waiting
        return row

    patch.setattr(Schedule, "to_row", forgets)


PLANTED: list[Plant] = [
    a_moment_fires_again_after_it_was_dealt_with,
    a_firing_and_its_task_are_two_commits,
    what_goes_on_is_not_minded,
    what_goes_on_is_not_cut_off,
    nobody_hears_that_what_was_made_has_ended,
    what_waits_is_forgotten_when_it_is_changed,
    a_moment_that_waited_fires_twice,
    a_paused_one_fires,
    all_that_passed_is_made_up_for,
    nothing_that_passed_is_made_up_for,
    what_has_passed_is_forgotten_while_it_is_looked_up,
    a_change_begins_at_a_moment_that_was,
    a_clock_set_back_brings_moments_again,
    a_timer_is_not_armed_for_the_next_moment,
    too_many_moments_wait,
    a_snapshot_forgets_what_waits,
]

test_the_simulator_finds_the_bug = finds(PLANTED)

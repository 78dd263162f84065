"""Bugs about a clock that is set, planted one at a time: the simulator must find each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors.admission import AdmissionActor
from rota.actors.journal import Journal
from rota.actors.moments import Moments
from rota.actors.system import Shard
from rota.actors.timekeeper import Timekeeper
from rota.actors.timer import TimerActor
from rota.clock import Timeline
from rota.domain.fold import carry_over
from rota.projections import tasks
from rota.projections.backlog import Backlog
from rota.projections.deliveries import Deliveries
from rota.projections.keys import Keys
from rota.projections.state import State
from rota.projections.tasks import Tasks

if TYPE_CHECKING:
    import pytest

    from rota.domain.task import Task


def a_step_carries_nothing_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tasks, "carry_over", lambda _self, _by_us, _now: None)


def a_step_carries_over_what_a_client_named(patch: pytest.MonkeyPatch) -> None:
    def eager(task: Task, by_us: int) -> None:
        was = task.next_at
        carry_over(task, by_us)
        if was == task.next_at and was:
            task.next_at += by_us

    patch.setattr(tasks, "carry_over", eager)


def a_delay_is_taken_for_a_moment(patch: pytest.MonkeyPatch) -> None:
    def blind(task: Task, by_us: int) -> None:
        plan, next_at = task.plan, task.next_at
        carry_over(task, by_us)
        if plan is not None and plan.delay_ms is not None and task.attempt == task.spent_before:
            task.plan, task.next_at = plan, next_at

    patch.setattr(tasks, "carry_over", blind)


def retention_is_not_carried_over(patch: pytest.MonkeyPatch) -> None:
    carry = Tasks.carry_over

    def partly(self: Tasks, by_us: int, now: int) -> None:
        ended = self.ended
        carry(self, by_us, now)
        self.ended = ended

    patch.setattr(Tasks, "carry_over", partly)


def deliveries_are_not_carried_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deliveries, "carry_over", lambda _self, _by_us: None)


def keys_go_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Keys, "shift", property(lambda _self: 0, lambda _self, _value: None), raising=False
    )


def ranks_go_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    silent = property(lambda _self: 0, lambda _self, _value: None)
    patch.setattr(Backlog, "shift", silent, raising=False)


def the_timer_is_not_armed_anew(patch: pytest.MonkeyPatch) -> None:
    def deaf(self: TimerActor) -> None:
        self._shift_us = self._clock.shift_us

    patch.setattr(TimerActor, "reset", deaf)
    start = Shard._go_on

    def arm(self: Shard, **more: Any) -> None:
        start(self, **more)
        for task in self.state.tasks:
            Moments(self.journal, self.cast).arm_all(task)

    patch.setattr(Shard, "_go_on", arm)


def time_never_goes_back(patch: pytest.MonkeyPatch) -> None:
    def now(self: Journal) -> int:
        latest = getattr(self.state, "latest", 0)
        self.state.latest = max(self._clock.now_us(), self.state.at, latest)  # type: ignore[attr-defined]
        return self.state.latest  # type: ignore[attr-defined,no-any-return]

    patch.setattr(Journal, "now", now)
    patch.setattr(Timekeeper, "look", lambda _self: None)
    patch.setattr(Timeline, "now_us", lambda self: self.wall_us())


def a_step_at_a_start_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Timekeeper, journal: Journal) -> None:
        self._journal = journal
        self._base = journal.state.steps.shift - self._clock.shift_us

    patch.setattr(Timekeeper, "begin", begin)


def a_step_that_was_lost_with_the_disk_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    begin = Timekeeper.begin

    def forgetful(self: Timekeeper, journal: Journal) -> None:
        self._base = None
        begin(self, journal)

    patch.setattr(Timekeeper, "begin", forgetful)


def a_step_is_followed_and_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "now_us", lambda self: self.wall_us())
    patch.setattr(Timeline, "take_over", lambda _self: None)


def a_deadline_is_judged_by_a_clock_that_was_set(patch: pytest.MonkeyPatch) -> None:
    init = AdmissionActor.__init__

    def blind(self: AdmissionActor, *args: Any, **more: Any) -> None:
        init(self, *args, **{**more, "look": lambda: None})

    patch.setattr(AdmissionActor, "__init__", blind)


def a_snapshot_forgets_the_steps(patch: pytest.MonkeyPatch) -> None:
    load = State.load.__func__  # type: ignore[attr-defined]

    def forgetful(cls: type[State], blob: bytes) -> State:
        state: State = load(cls, blob)
        state.steps.shift = state.keys.shift = state.backlog.shift = 0
        return state

    patch.setattr(State, "load", classmethod(forgetful))


BUGS: list[Plant] = [
    a_step_carries_nothing_over,
    a_step_carries_over_what_a_client_named,
    a_delay_is_taken_for_a_moment,
    retention_is_not_carried_over,
    deliveries_are_not_carried_over,
    keys_go_by_the_wall_clock,
    ranks_go_by_the_wall_clock,
    the_timer_is_not_armed_anew,
    time_never_goes_back,
    a_step_at_a_start_is_not_noticed,
    a_step_that_was_lost_with_the_disk_is_forgotten,
    a_step_is_followed_and_not_told,
    a_deadline_is_judged_by_a_clock_that_was_set,
    a_snapshot_forgets_the_steps,
]

test_the_simulator_finds_the_bug = finds(BUGS)

"""Bugs planted into what goes on after a fault, and into what an end lets go; each must be found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import settling
from rota.actors.dependents import DependentsActor
from rota.actors.dispatcher import DispatcherActor
from rota.actors.mending import Mending
from rota.actors.messages import DeliverCallback, LookAgain, StartAttempt
from rota.actors.moments import Moments
from rota.actors.runtime import Ref, body_of
from rota.actors.worker_pool import WorkerPool
from rota.domain import fold, task
from rota.domain.task import IN_FLIGHT, lane_of

if TYPE_CHECKING:
    import pytest


def nothing(*_args: Any) -> None:
    """Do nothing."""


def deafen(patch: pytest.MonkeyPatch, actor: Any) -> None:
    """Let an actor hear nothing of a look, but for the one at the start."""
    receive = actor.on_receive

    def deaf(self: Any, message: Any) -> None:
        if type(message) is not LookAgain or self._journal.durable_seq == 0:
            receive(self, message)

    patch.setattr(actor, "on_receive", deaf)


def nobody_looks_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mending, "look_soon", nothing)


def the_dispatcher_waits_for_the_next_message(patch: pytest.MonkeyPatch) -> None:
    deafen(patch, DispatcherActor)


def the_pool_does_not_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerPool, "_look_again", nothing)


def the_pool_does_not_start_what_is_assigned(patch: pytest.MonkeyPatch) -> None:
    tell = Ref.tell

    def mute(self: Ref, message: Any) -> None:
        actor = self.actor_inbox.actor
        if type(message) is not StartAttempt or not getattr(actor, "is_looking", False):
            tell(self, message)

    look = WorkerPool._look_again

    def blind(self: Any) -> None:
        self.is_looking = True
        try:
            look(self)
        finally:
            self.is_looking = False

    patch.setattr(Ref, "tell", mute)
    patch.setattr(WorkerPool, "_look_again", blind)


def timers_are_not_armed_again(patch: pytest.MonkeyPatch) -> None:
    look = Mending._look

    def forgetful(self: Mending) -> None:
        look(self)
        body_of(self._timer)._heap.clear()

    patch.setattr(Mending, "_look", forgetful)


def timeouts_are_not_armed_again(patch: pytest.MonkeyPatch) -> None:
    moments = Moments.of

    def careless(self: Moments, each: Any) -> Any:
        return iter(()) if each.state in IN_FLIGHT else moments(self, each)

    patch.setattr(Moments, "of", careless)


def callbacks_are_not_owed_again(patch: pytest.MonkeyPatch) -> None:
    def fewer(self: Moments) -> Any:
        for each in self._tasks:
            yield from self.of(each)

    patch.setattr(Moments, "all", fewer)


def batches_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    look = Mending._look

    def fewer(self: Mending) -> None:
        self._dropped = set(self._journal.state.batches.unfinished())
        look(self)

    patch.setattr(Mending, "_look", fewer)


def dependents_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    deafen(patch, DependentsActor)


def what_hung_on_a_fact_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mending, "fact_failed", nothing)


def an_outcome_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mending, "_deal_with", lambda *_args, **_more: None)


def a_callback_goes_out_before_its_end_is_durable(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(self: Moments) -> Any:
        for each in self._tasks:
            yield from self.of(each)
        for delivery in self._pending.values():
            yield delivery.due_at, DeliverCallback(delivery.task, delivery.id)

    patch.setattr(Moments, "all", all_of_them)


def a_slot_goes_before_the_dependents_are_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "decide_dependents", lambda *_: [])


def who_may_preempt_queues_behind_who_may_not(patch: pytest.MonkeyPatch) -> None:
    def together(each: Any) -> Any:
        return lane_of(*lane_for(each)[:4])

    lane_for = task.lane_for
    patch.setattr(task, "lane_for", together)
    patch.setattr(fold, "lane_for", together)


BUGS: list[Plant] = [
    nobody_looks_again,
    the_dispatcher_waits_for_the_next_message,
    the_pool_does_not_look,
    the_pool_does_not_start_what_is_assigned,
    timers_are_not_armed_again,
    timeouts_are_not_armed_again,
    callbacks_are_not_owed_again,
    batches_are_not_looked_at,
    dependents_are_not_looked_at,
    what_hung_on_a_fact_is_lost,
    an_outcome_is_lost,
    a_callback_goes_out_before_its_end_is_durable,
    a_slot_goes_before_the_dependents_are_released,
    who_may_preempt_queues_behind_who_may_not,
]

test_the_simulator_finds_the_bug = finds(BUGS)

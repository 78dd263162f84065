"""Bugs planted in other priorities and in what is done to many tasks; the simulator finds each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import messages as m
from rota.actors.bulk import BulkActor
from rota.actors.bulk_messages import Changed
from rota.actors.consequences import Consequences
from rota.projections.backlog import Backlog

if TYPE_CHECKING:
    import pytest

    from rota.domain import events as e


class Nobody:
    """Hears of nothing."""

    def ok(self, value: Any) -> None: ...

    def fail(self, error: Any) -> None: ...


def a_task_with_another_priority_stays_where_it_was(patch: pytest.MonkeyPatch) -> None:
    real = Backlog.on_reprioritised

    def lazy(self: Backlog, record: e.Record, task: Any) -> None:
        if task.plan is not None and task.plan.preempt:
            real(self, record, task)
        else:
            task.priority = record.event.priority

    patch.setattr(Backlog, "on_reprioritised", lazy)


def the_dispatcher_does_not_hear_of_another_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_reprioritised", lambda *_: None)


def only_the_lane_that_a_task_comes_to_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    def half(self: Consequences, record: e.Record) -> None:
        task = self._of(record)
        if task is not None and task.entry > 0:
            self._cast.dispatcher.tell(m.HeadChanged(task.agent, task.lane))

    patch.setattr(Consequences, "_reprioritised", half)


def a_slice_counts_what_had_ended(patch: pytest.MonkeyPatch) -> None:
    change = BulkActor._change

    def boastful(self: BulkActor, message: Any) -> None:
        change(self, message._replace(reply=Nobody()))
        self._journal.answer(message.reply, Changed(len(message.tasks), {}))

    patch.setattr(BulkActor, "_change", boastful)


def a_slice_is_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    change = BulkActor._change

    def hasty(self: BulkActor, message: Any) -> None:
        change(self, message._replace(reply=Nobody()))
        message.reply.ok(Changed(len(message.tasks), {}))

    patch.setattr(BulkActor, "_change", hasty)


BUGS: list[Plant] = [
    a_task_with_another_priority_stays_where_it_was,
    the_dispatcher_does_not_hear_of_another_priority,
    only_the_lane_that_a_task_comes_to_is_looked_at,
    a_slice_counts_what_had_ended,
    a_slice_is_answered_before_it_is_durable,
]

test_the_simulator_finds_the_bug = finds(BUGS)

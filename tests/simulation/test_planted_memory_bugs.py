"""More of the simulator's own test: bugs in what is forgotten, counted and brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors.archive import Archive
from rota.actors.retention import Retention
from rota.actors.revival import Revivals
from rota.domain.refusals import Refusals
from rota.projections.stats import Stats
from rota.projections.tasks import Tasks

if TYPE_CHECKING:
    import pytest

    from rota.domain.task import Task


def nothing_is_forgotten_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retention, "_set", lambda _self: None)


def what_is_forgotten_stays_in_the_attic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Archive, "release", lambda _self: None)


def the_budget_is_never_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tasks, "is_crowded", lambda _self: False)


def a_revived_task_counts_among_the_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tasks, "lives_again", lambda _self, _task: None)


def a_revival_does_not_carry_what_was_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Revivals, "_with_all", lambda _self, event, _task, _fetched: event)


def a_task_comes_back_without_its_batch(patch: pytest.MonkeyPatch) -> None:
    whole = Revivals._with_all

    def alone(self: Any, event: Any, task: Task, fetched: Any) -> Any:
        return whole(self, event, task, fetched)._replace(restored_batch=None)

    patch.setattr(Revivals, "_with_all", alone)


def every_refusal_is_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "take_room", lambda _self, _now: True)


def a_count_of_refusals_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "fact", lambda self: self.clear())


def a_snapshot_forgets_who_came_last(patch: pytest.MonkeyPatch) -> None:
    dump = Stats.dump

    def sorted_by_name(self: Stats) -> dict[str, Any]:
        given = dump(self)
        return {**given, "agents": dict(sorted(given["agents"].items()))}

    patch.setattr(Stats, "dump", sorted_by_name)


BUGS: list[Plant] = [
    nothing_is_forgotten_by_the_clock,
    what_is_forgotten_stays_in_the_attic,
    the_budget_is_never_looked_at,
    a_revived_task_counts_among_the_ended,
    a_revival_does_not_carry_what_was_forgotten,
    a_task_comes_back_without_its_batch,
    every_refusal_is_recorded,
    a_count_of_refusals_is_lost,
    a_snapshot_forgets_who_came_last,
]

test_the_simulator_finds_the_bug = finds(BUGS)

"""A task takes its slot once and frees it once, enters its queue once and leaves it once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from support.builders import (
    START_US,
    assigned,
    cancelled,
    expired,
    failed,
    fold,
    interrupted,
    records_of,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.task import lane_of, limits_of

if TYPE_CHECKING:
    from rota.domain.events import Event
    from rota.projections.state import State

ECHO = lane_of("builtin", "echo")
RUNNING = (submitted(), assigned(), started())
ENDS: dict[str, Event] = {
    "succeeded": succeeded(),
    "failed": failed(),
    "cancelled": cancelled(was="running"),
    "expired": expired(),
}


def taken(state: State) -> tuple[int, int, int, int]:
    """Count the slots in all, of the agent, of the executors and of the type."""
    slots = state.slots
    return (
        slots.total,
        slots.of_agent("a1"),
        slots.of_limit("push"),
        slots.of_limit("type:echo"),
    )


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_end_frees_the_slot(end: Event) -> None:
    assert taken(fold(records_of(RUNNING))) == (1, 1, 1, 1)
    assert taken(fold(records_of([*RUNNING, end]))) == (0, 0, 0, 0)


@pytest.mark.parametrize("second", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("first", ENDS.values(), ids=ENDS)
def test_a_second_end_frees_nothing_of_anybody(first: Event, second: Event) -> None:
    other = (submitted("t2"), assigned("t2"))
    state = fold(records_of([*other, *RUNNING, first, second, first, second]))
    assert taken(state) == (1, 1, 1, 1), "the slot of t2 is still taken"
    assert state.backlog.total == 0


def test_an_assignment_that_comes_twice_takes_one_slot() -> None:
    state = fold(records_of([*RUNNING, assigned(), assigned()]))
    assert taken(state) == (1, 1, 1, 1)
    state.apply(e.Record(9, START_US, succeeded()))
    assert taken(state) == (0, 0, 0, 0)


def test_an_interruption_frees_the_slot_and_queues_the_task_once() -> None:
    state = fold(records_of([*RUNNING, interrupted(), interrupted()]))
    assert taken(state) == (0, 0, 0, 0)
    assert (state.backlog.total, state.backlog.of_agent("a1")) == (1, 1)
    order = state.backlog.orders["a1"]
    assert [task.id for task in order.lanes[ECHO]] == ["t1"]


def test_an_interruption_that_ends_the_task_leaves_it_nowhere() -> None:
    state = fold(records_of([*RUNNING, interrupted(), failed(code="interrupted")]))
    assert taken(state) == (0, 0, 0, 0)
    assert (state.backlog.total, state.backlog.orders) == (0, {})


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_waiting_task_that_ends_leaves_its_queue_once(end: Event) -> None:
    state = fold(records_of([submitted(), submitted("t2"), end, end]))
    assert (state.backlog.total, state.backlog.of_agent("a1")) == (1, 1)
    head = state.backlog.orders["a1"].head(ECHO)
    assert head is not None
    assert head.id == "t2"


def test_a_task_that_waits_for_a_worker_takes_no_push_slot() -> None:
    state = fold(records_of([submitted(executor="pull"), assigned()]))
    assert taken(state) == (1, 1, 0, 1)


def test_an_agent_without_waiting_tasks_has_no_order() -> None:
    state = fold(records_of([submitted(), submitted("t2", "a2"), cancelled()]))
    assert state.backlog.counts() == {"a2": 1}


def test_an_interrupted_task_is_as_old_as_it_was() -> None:
    """It goes before those that were submitted after it."""
    state = fold(records_of([submitted(), assigned(), submitted("t2"), interrupted()]))
    assert [t.id for t in state.backlog.orders["a1"].lanes[ECHO]] == ["t1", "t2"]


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_events_whatever_makes_a_slot_or_a_place_leak(seed: int) -> None:
    """Any events in any order, legal or not: the counts stay those of the marks."""
    dice = random.Random(seed)
    state = fold(records_of([submitted(f"t{n}", f"a{n % 2}") for n in range(4)]))
    for seq in range(5, 200):
        n = dice.randrange(4)
        make = dice.choice([assigned, started, succeeded, failed, cancelled, expired, interrupted])
        state.apply(e.Record(seq, START_US + seq, make(f"t{n}", f"a{n % 2}")))
        holding = [task for task in state.tasks if task.holds]
        assert state.slots.total == len(holding) == sum(state.slots.by_agent().values())
        limits = [limit for task in holding for limit in limits_of(task.lane)]
        assert state.slots.of_limit("push") == limits.count("push")
        queued = [task for task in state.tasks if task.entry]
        assert state.backlog.total == len(queued) == sum(state.backlog.counts().values())

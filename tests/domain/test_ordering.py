"""An agent's order: lanes by priority and age, with leaving that is lazy and still exact."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain import events as e
from rota.domain.fold import born
from rota.domain.ordering import AgentOrder, LaneOrder
from rota.domain.task import lane_of

if TYPE_CHECKING:
    from rota.domain.task import Task

ECHO, SCAN = lane_of("builtin", "echo"), lane_of("builtin", "scan")


def waiting_task(seq: int, priority: int = 2, action: str = "echo") -> Task:
    """Build a task that was submitted at `seq` and waits since."""
    event = e.TaskSubmitted(f"t{seq}", "ann", action, "builtin", 1, priority)
    task = born(e.Record(seq, 0, event))
    task.entry = seq
    return task


def leave(order: LaneOrder | AgentOrder, task: Task) -> None:
    """Take a task out, as the backlog does."""
    task.entry = 0
    if isinstance(order, AgentOrder):
        order.left(task)
    else:
        order.left()


def test_the_better_priority_goes_first() -> None:
    lane = LaneOrder()
    low, high = waiting_task(1, 3), waiting_task(2, 0)
    lane.push(low)
    lane.push(high)
    assert lane.head() is high
    assert list(lane) == [high, low]


def test_the_older_goes_first_among_equals() -> None:
    lane = LaneOrder()
    young, old = waiting_task(9), waiting_task(4)
    lane.push(young)
    lane.push(old)
    assert lane.head() is old


def test_a_task_that_comes_back_takes_its_old_place() -> None:
    lane = LaneOrder()
    first, second = waiting_task(1), waiting_task(2)
    lane.push(first)
    lane.push(second)
    leave(lane, first)
    assert lane.head() is second
    first.entry = 7
    lane.push(first)
    assert list(lane) == [first, second]


def test_an_entry_that_was_left_behind_does_not_count_when_the_task_is_back() -> None:
    lane = LaneOrder()
    task = waiting_task(1)
    lane.push(task)
    leave(lane, task)
    task.entry = 5
    lane.push(task)
    assert list(lane) == [task]
    leave(lane, task)
    assert lane.head() is None


def test_an_empty_lane_has_no_head() -> None:
    assert LaneOrder().head() is None
    assert AgentOrder(1).head(ECHO) is None


def test_a_lane_that_is_mostly_dead_is_rebuilt() -> None:
    lane = LaneOrder()
    tasks = [waiting_task(seq) for seq in range(1, 1001)]
    for task in tasks:
        lane.push(task)
    for task in tasks[1:]:
        leave(lane, task)
    assert lane.head() is tasks[0]
    assert len(lane._heap) < 50


def test_an_agent_drops_a_lane_with_its_last_task() -> None:
    order = AgentOrder(1)
    echo, scan = waiting_task(1), waiting_task(2, action="scan")
    order.push(echo)
    order.push(scan)
    leave(order, echo)
    assert list(order.lanes) == [SCAN]
    assert order.waiting == 1
    leave(order, scan)
    assert not order.lanes
    assert order.waiting == 0


def play(pick: Random, moves: int) -> None:
    """Push, leave and come back at random; hold each head against a sorted list."""
    order, away, seq = AgentOrder(1), [], 0
    present: list[Task] = []
    for _ in range(moves):
        roll = pick.randrange(10)
        if roll < 5 or not present:
            seq += 1
            task = waiting_task(seq, pick.randrange(4), pick.choice(("echo", "scan")))
            order.push(task)
            present.append(task)
        elif roll < 9:
            task = present.pop(pick.randrange(len(present)))
            leave(order, task)
            away.append(task)
        elif away:
            seq += 1
            task = away.pop(pick.randrange(len(away)))
            task.entry = seq
            order.push(task)
            present.append(task)
        assert order.waiting == len(present)
        for lane in (ECHO, SCAN):
            expected = sorted(
                (task for task in present if task.lane == lane),
                key=lambda task: (task.priority, task.created_seq),
            )
            assert order.head(lane) is (expected[0] if expected else None)
            if lane in order.lanes:
                assert list(order.lanes[lane]) == expected


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_the_order_is_that_of_a_sorted_list(pick: Random, moves: int) -> None:
    play(pick, moves)


@pytest.mark.parametrize("seed", range(10))
def test_the_order_holds_over_long_histories(seed: int) -> None:
    play(Random(seed), 300)

"""Which of many tasks are meant, what becomes of each, and where another priority puts it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from support.builders import START_US, assigned, cancelled, fold, submitted

from rota.domain import events as e
from rota.domain.bulk import (
    CANCEL,
    REPRIORITISE,
    Change,
    Filter,
    decide_change,
    decide_priority,
    is_meant,
)
from rota.domain.plan import Plan
from rota.domain.task import READY, RUNNING
from rota.errors import Conflict

if TYPE_CHECKING:
    from rota.projections.state import State


def given(*events: Any) -> State:
    return fold([e.Record(seq, START_US + seq, event) for seq, event in enumerate(events, start=1)])


def task(name: str, priority: int = 2, **plan: Any) -> e.TaskSubmitted:
    wishes = Plan(**plan) if plan else None
    return e.TaskSubmitted(name, "a1", "echo", "builtin", 1, priority=priority, plan=wishes)


def in_order(state: State) -> list[list[str]]:
    """Name the tasks of each lane, in order."""
    order = state.backlog.orders["a1"]
    return [[each.id for each in lane] for lane in order.lanes.values()]


@pytest.mark.parametrize(
    ("meant", "fits"),
    [
        (Filter(), True),
        (Filter(frozenset({READY})), True),
        (Filter(frozenset({RUNNING})), False),
        (Filter(agent="a1", action="echo"), True),
        (Filter(agent="a2"), False),
        (Filter(action="click"), False),
        (Filter(batch="b", workflow="w", key="k"), True),
        (Filter(batch="x"), False),
        (Filter(workflow="x"), False),
        (Filter(key="x"), False),
        (Filter(created_before=START_US + 1), False),
        (Filter(created_before=START_US + 2), True),
    ],
)
def test_a_task_is_meant_if_it_fits_all_that_is_said(meant: Filter, *, fits: bool) -> None:
    state = given(task("t1", batch="b", workflow="w", key="k"))
    assert meant.matches(state.tasks.by_id["t1"]) is fits


def test_a_task_without_a_plan_has_no_batch_and_no_key() -> None:
    found = given(task("t1")).tasks.by_id["t1"]
    assert not Filter(key="k").matches(found)
    assert not Filter(batch="b").matches(found)


def test_who_has_the_priority_already_is_not_meant() -> None:
    found = given(task("t1", 5)).tasks.by_id["t1"]
    assert not is_meant(found, Filter(), Change(REPRIORITISE, priority=5))
    assert is_meant(found, Filter(), Change(REPRIORITISE, priority=4))
    assert is_meant(found, Filter(), Change(CANCEL))
    assert decide_priority(found, 5) is None


def test_each_is_decided_as_if_it_were_alone() -> None:
    found = given(task("t1")).tasks.by_id["t1"]
    event = decide_change(found, Change(CANCEL, reason="over"))
    assert event == e.TaskCancelled("t1", "a1", "ready", "over")
    event = decide_change(found, Change(REPRIORITISE, priority=0))
    assert event == e.TaskReprioritised("t1", "a1", 0, 2)


def test_what_has_ended_keeps_its_priority() -> None:
    found = given(submitted(), cancelled()).tasks.by_id["t1"]
    with pytest.raises(Conflict, match="already cancelled"):
        decide_priority(found, 0)


# -- the order afterwards


def test_a_task_stands_by_its_new_priority_and_its_old_age() -> None:
    state = given(task("t1"), task("t2"), task("t3"), e.TaskReprioritised("t3", "a1", 1, 2))
    assert in_order(state) == [["t3", "t1", "t2"]]
    state = given(task("t1"), task("t2"), task("t3", 1), e.TaskReprioritised("t1", "a1", 1, 2))
    assert in_order(state) == [["t1", "t3", "t2"]]


def test_a_task_is_in_the_order_once_however_often_it_moves() -> None:
    moves = [e.TaskReprioritised("t1", "a1", n % 2, (n + 1) % 2) for n in range(2, 60)]
    state = given(task("t1", 1), task("t2", 1), *moves)
    assert sorted(itertools.chain(*in_order(state))) == ["t1", "t2"]
    assert state.backlog.of_agent("a1") == 2
    assert state.backlog.total == 2


def test_what_may_pre_empt_changes_its_lane() -> None:
    state = given(task("t1", preempt=True), task("t2"), e.TaskReprioritised("t1", "a1", 0, 2))
    found = state.tasks.by_id["t1"]
    assert found.lane[4] == "0"
    assert sorted(in_order(state)) == [["t1"], ["t2"]]


def test_its_agent_has_waited_no_less() -> None:
    state = given(task("t1"), e.TaskReprioritised("t1", "a1", 0, 2))
    assert state.backlog.orders["a1"].since == 1


def test_in_flight_the_priority_is_that_of_the_next_attempt() -> None:
    state = given(
        task("t1"), task("t2"), assigned(), e.TaskReprioritised("t1", "a1", 9, 2),
        e.AttemptInterrupted("t1", "a1", 1, "shutdown"),
    )  # fmt: skip
    assert in_order(state) == [["t2", "t1"]]
    assert state.slots.total == 0

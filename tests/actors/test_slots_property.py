"""Slots are taken once and freed once, whatever comes in whatever order.

The projections fold any sequence of events, also ones that no decision would make (a repeated
cancel, a result after an expiry, an assignment of a task in flight): the counts must equal a
plain count of the tasks that hold a slot, never fall below zero, and come out the same from a
snapshot.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain import events as e
from rota.domain.task import IN_FLIGHT, MOVES, limits_of
from rota.eventlog.codec import KINDS as NAMES
from rota.projections.state import State

AGENTS = ("ann", "bob")
TASKS = ("t1", "t2", "t3", "t4")
LIMITS = ("push", "type:echo", "type:scan")

KINDS: tuple[Any, ...] = (
    lambda task, agent: e.TaskAssigned(task, agent, 1),
    lambda task, agent: e.TaskStarted(task, agent, 1),
    lambda task, agent: e.TaskSucceeded(task, agent, 1),
    lambda task, agent: e.TaskFailed(task, agent, 1, "task_failed", "no"),
    lambda task, agent: e.TaskExpired(task, agent, "deadline", "late"),
    lambda task, agent: e.TaskCancelled(task, agent, "ready"),
    lambda task, agent: e.AttemptInterrupted(task, agent, 1, "server restarted"),
    lambda task, agent: e.ResultRefused(task, agent, 1, "succeeded"),
)

histories = st.lists(st.tuples(st.sampled_from(TASKS), st.sampled_from(KINDS)), max_size=60)
settled = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def agent_of(task: str) -> str:
    """Give each task its agent."""
    return AGENTS[TASKS.index(task) % 2]


def fold(history: list[tuple[str, Any]]) -> State:
    """Submit the tasks, then let the history happen, counting after every event."""
    state = State()
    for n, task in enumerate(TASKS):
        action = ("echo", "scan")[n // 2]
        executor = "pull" if task == "t4" else "builtin"
        event = e.TaskSubmitted(task, agent_of(task), action, executor, n + 1)
        state.apply(e.Record(state.seq + 1, state.seq, event))
    for task, kind in history:
        state.apply(e.Record(state.seq + 1, state.seq, kind(task, agent_of(task))))
        check(state)
    return state


def check(state: State) -> None:
    """Count by hand, and compare."""
    holding = [task for task in state.tasks if task.holds]
    assert state.slots.total == len(holding)
    for agent in AGENTS:
        assert state.slots.of_agent(agent) == sum(task.agent == agent for task in holding)
        waiting = sum(task.agent == agent and task.entry != 0 for task in state.tasks)
        assert state.backlog.of_agent(agent) == waiting
    for limit in LIMITS:
        held = sum(limit in limits_of(task.lane) for task in holding)
        assert state.slots.of_limit(limit) == held
    assert state.backlog.total == sum(task.entry != 0 for task in state.tasks)


@settled
@given(histories)
def test_slots_are_counted_right_after_any_events(history: list[tuple[str, Any]]) -> None:
    fold(history)


@settled
@given(histories)
def test_any_history_can_be_folded_twice_with_the_same_outcome(
    history: list[tuple[str, Any]],
) -> None:
    assert fold(history).digest() == fold(history).digest()


@settled
@given(histories, histories)
def test_a_snapshot_in_the_middle_changes_nothing(
    before: list[tuple[str, Any]], after: list[tuple[str, Any]]
) -> None:
    whole, cut = fold(before), State.load(fold(before).dump())
    for task, kind in after:
        for state in (whole, cut):
            state.apply(e.Record(state.seq + 1, state.seq, kind(task, agent_of(task))))
    check(cut)
    assert cut.digest() == whole.digest()


@settled
@given(histories)
def test_nobody_holds_a_slot_and_waits_at_once_in_a_legal_history(
    history: list[tuple[str, Any]],
) -> None:
    legal = []
    for task, kind in history:
        legal.append((task, kind))
        state = fold(legal[:-1]).tasks.by_id[task].state
        name = NAMES[type(kind(task, agent_of(task)))]
        if name not in MOVES[state] and name != "result_refused":
            legal.pop()
    for task in fold(legal).tasks:
        assert not (task.holds and task.entry)
        assert task.holds == (task.state in IN_FLIGHT)
        assert bool(task.entry) == (task.state == "ready")

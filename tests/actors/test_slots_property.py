"""Slots are taken once and freed once, whatever comes in whatever order.

Events that no decision would make (a repeated cancel, a result after an expiry, an assignment of a
task in flight) are refused, and change nothing. Whatever else happens, the counts must equal a
plain count of the tasks that hold a slot, never fall below zero, and come out the same from a
snapshot.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.wishes import made

from rota.domain import events as e
from rota.domain.moves import MOVES
from rota.domain.task import IN_FLIGHT, WAITING, limits_of
from rota.errors import IllegalMove
from rota.projections.state import State

AGENTS = ("ann", "bob")
TASKS = ("t1", "t2", "t3", "t4")
LIMITS = ("push", "type:echo", "type:scan", "key:shop", "batch:1:b1")

KINDS: tuple[Any, ...] = (
    lambda task, agent: e.TaskAssigned(task, agent, 1),
    lambda task, agent: e.TaskStarted(task, agent, 1),
    lambda task, agent: e.TaskSucceeded(task, agent, 1),
    lambda task, agent: e.TaskFailed(task, agent, 1, "task_failed", "no"),
    lambda task, agent: e.TaskExpired(task, agent, "deadline", "late"),
    lambda task, agent: e.TaskCancelled(task, agent, "ready"),
    lambda task, agent: e.AttemptInterrupted(task, agent, 1, "server restarted"),
    lambda task, agent: e.ResultRefused(task, agent, 1, "succeeded"),
    lambda task, agent: e.AttemptFailed(task, agent, 1, "task_failed", "no", 9),
    lambda task, agent: e.TaskReleased(task, agent, "backoff"),
    lambda task, agent: e.TaskDelayed(task, agent, 9),
    e.TaskRevived,
    lambda task, agent: e.TaskLogged(task, agent, ["a line"]),
    lambda task, agent: e.TaskProgressed(task, agent, 0.5),
)

PLANS: tuple[dict[str, Any], ...] = (
    {"key": "shop", "idempotency": "i", "dedup": "d"},
    {"key": "shop", "not_before": 5},
    {"waits": ["t1", "t2"], "depends": {"one": "t1", "two": "t2"}},
    {"batch": "b1", "parallelism": 1, "waits": ["t3"], "depends": {"t3": "t3"}},
)

histories = st.lists(st.tuples(st.sampled_from(TASKS), st.sampled_from(KINDS)), max_size=60)
settled = settings(max_examples=300, deadline=None, derandomize=True, database=None)


NO_MOVE = (e.ResultRefused, e.TaskLogged, e.TaskProgressed)


def agent_of(task: str) -> str:
    """Give each task its agent."""
    return AGENTS[TASKS.index(task) % 2]


def fold(history: list[tuple[str, Any]]) -> State:
    """Submit the tasks, then let the history happen, counting after every event."""
    state = State()
    state.apply(e.Record(1, 0, e.BatchSubmitted("b1", ["t4"], parallelism=1)))
    for n, task in enumerate(TASKS):
        action = ("echo", "scan")[n // 2]
        executor = "pull" if task == "t4" else "builtin"
        event = made(e.TaskSubmitted, task, agent_of(task), action, executor, n + 1, **PLANS[n])
        state.apply(e.Record(state.seq + 1, state.seq, event))
    for task, kind in history:
        happen(state, kind(task, agent_of(task)))
        check(state)
    return state


def happen(state: State, event: Any) -> None:
    """Fold an event if it is a legal move, or none; else see it refused, and nothing changed."""
    is_legal = (
        isinstance(event, NO_MOVE) or type(event) in MOVES[state.tasks.by_id[event.task].state]
    )
    before = state.digest()
    try:
        state.apply(e.Record(state.seq + 1, state.seq, event))
    except IllegalMove:
        assert not is_legal
        assert state.digest() == before
    else:
        assert is_legal


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
            happen(state, kind(task, agent_of(task)))
    check(cut)
    assert cut.digest() == whole.digest()


@settled
@given(histories)
def test_nobody_holds_a_slot_and_waits_at_once(history: list[tuple[str, Any]]) -> None:
    for each in fold(history).tasks:
        assert not (each.holds and each.entry)
        assert each.holds == (each.state in IN_FLIGHT)
        assert bool(each.entry) == (each.state in WAITING)
        assert (each.entry > 0) == (each.state == "ready")

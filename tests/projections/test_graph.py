"""Who waits for whom, and what is due: struck off as parents succeed, doomed as they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import (
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    expired,
    failed,
    fold,
    history,
    interrupted,
    records_of,
    released,
    revived,
    server_started,
    submitted,
    succeeded,
)

from rota.actors.snapshotter import Snapshotter
from rota.domain.dependencies import check_cycles
from rota.domain.task import BLOCKED, SUCCEEDED
from rota.errors import InvalidRequest
from rota.eventlog.chain import GENESIS
from rota.projections.state import State

if TYPE_CHECKING:
    from rota.domain import events as e

PARENTS = (submitted("p"), submitted("q"), assigned("p"), assigned("q"))


def child(name: str = "c", *parents: str) -> e.TaskSubmitted:
    """A task that waits for these."""
    waits = list(parents or ("p", "q"))
    return submitted(name, waits=waits, depends={each: each for each in waits})


def edges(state: State) -> dict[str, set[str]]:
    """Who waits for each, as the projection has it."""
    return {name: set(waiting) for name, waiting in state.graph.children.items()}


def told(*events: e.Event) -> State:
    """Fold a story that begins with two parents in flight."""
    return fold(records_of([*PARENTS, *events]))


def then(state: State, *events: e.Event) -> State:
    """Let more happen."""
    return fold(records_of(events, after=state.seq, at=state.at), state)


# -- parents that succeed


def test_a_child_is_due_when_the_last_of_its_parents_has_succeeded() -> None:
    state = told(child())
    assert (edges(state), state.graph.due) == ({"p": {"c"}, "q": {"c"}}, {})
    then(state, succeeded("p"))
    assert state.tasks.by_id["c"].waits == {"q"}
    assert (edges(state), state.graph.due) == ({"q": {"c"}}, {})
    then(state, succeeded("q"))
    assert (edges(state), state.graph.due) == ({}, {"c": ""})
    assert state.tasks.by_id["c"].state is BLOCKED
    then(state, released("c"))
    assert state.graph.due == {}
    assert state.tasks.by_id["c"].waits is None


def test_a_parent_that_comes_after_its_child_counts_too() -> None:
    state = fold(records_of([child("c", "later"), submitted("later"), assigned("later")]))
    assert edges(state) == {"later": {"c"}}
    assert then(state, succeeded("later")).graph.due == {"c": ""}


def test_only_success_counts_and_not_another_attempt() -> None:
    state = told(child("c", "p"), attempt_failed("p", next_at=START_US))
    then(state, released("p", after="backoff"), assigned("p", attempt=2), interrupted("p"))
    assert (edges(state), state.graph.due) == ({"p": {"c"}}, {})


def test_many_children_of_one_parent_are_due_in_the_order_they_came() -> None:
    state = told(*(child(f"c{n}", "p") for n in range(50)), succeeded("p"))
    assert list(state.graph.due) == [f"c{n}" for n in range(50)]


# -- parents that do not

ENDS = [
    ((failed("p"),), "dependency p failed"),
    ((cancelled("p", was="assigned"),), "dependency p was cancelled"),
    ((interrupted("p"), expired("p")), "dependency p failed"),
]


@pytest.mark.parametrize(("end", "reason"), ENDS, ids=["failed", "cancelled", "expired"])
def test_a_parent_that_did_not_succeed_dooms_its_children(
    end: tuple[e.Event, ...], reason: str
) -> None:
    state = told(child(), child("d", "p"), child("other", "q"), *end)
    assert state.graph.due == {"c": reason, "d": reason}
    then(state, cancelled("c", was="blocked"), cancelled("d", was="blocked"))
    assert (edges(state), state.graph.due) == ({"q": {"other"}}, {})


def test_a_doomed_child_dooms_its_own_children_when_it_is_cancelled() -> None:
    state = told(child("c", "p"), child("grandchild", "c"), failed("p"))
    assert state.graph.due == {"c": "dependency p failed"}
    then(state, cancelled("c", was="blocked"))
    assert (edges(state), state.graph.due) == (
        {},
        {"grandchild": "dependency c was cancelled"},
    )


def test_the_first_parent_that_failed_is_the_one_that_is_named() -> None:
    state = told(child(), failed("q"), failed("p"))
    assert state.graph.due == {"c": "dependency q failed"}


def test_a_child_that_is_doomed_stays_so_when_the_others_succeed() -> None:
    state = told(child(), failed("p"), succeeded("q"))
    assert state.graph.due == {"c": "dependency p failed"}


@pytest.mark.parametrize(
    "end", [cancelled("c", was="blocked"), expired("c")], ids=["cancelled", "expired"]
)
def test_a_child_that_ends_by_itself_waits_for_nobody(end: e.Event) -> None:
    state = told(child(), end)
    assert (edges(state), state.graph.due) == ({}, {})
    then(state, succeeded("p"), failed("q"))
    assert state.graph.due == {}


def test_a_revived_parent_has_the_children_that_came_after_its_failure() -> None:
    state = told(child("early", "p"), failed("p"), cancelled("early", was="blocked"))
    then(state, revived("p"), child("late", "p"))
    assert (edges(state), state.graph.due) == ({"p": {"late"}}, {})
    then(state, assigned("p", attempt=2), succeeded("p", attempt=2))
    assert state.graph.due == {"late": ""}


# -- following the edges


def test_existing_edges_are_followed_only_if_they_lead_to_what_is_new() -> None:
    state = told(child("c", "new"), child("d", "c"), child("e", "p"))
    follow = state.graph.waits_for(["new"], ["d"])
    assert (set(follow("d")), set(follow("c")), set(follow("p"))) == ({"c"}, {"new"}, set())
    assert set(state.graph.waits_for(["nobody waits for me"], ["d"])("d")) == set()
    assert set(state.graph.waits_for(["new"], ["e"])("e")) == set()


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    edges=st.lists(st.sets(st.integers(0, 8), max_size=3), max_size=9),
    wanted=st.sets(st.integers(0, 9), min_size=1, max_size=3),
)
def test_a_cycle_is_found_exactly_if_there_is_one(edges: list[set[int]], wanted: set[int]) -> None:
    """Task n waits for tasks before it and maybe for 8, which comes last and waits for some."""
    graph = {n: {p for p in each if p < n or p == 8} for n, each in enumerate(edges[:8])}
    waiting = [child(f"t{n}", *(f"t{p}" for p in each)) for n, each in graph.items() if each]
    state = told(*waiting)
    seen, ahead = set(), list(wanted)
    while ahead:
        at = ahead.pop()
        if at not in seen:
            seen.add(at)
            ahead += graph.get(at, ())
    parents = [f"t{n}" for n in sorted(wanted)]
    new = {"t8": parents}
    if 8 in seen:
        with pytest.raises(InvalidRequest, match="closes a cycle"):
            check_cycles(new, state.graph.waits_for(new, parents))
    else:
        check_cycles(new, state.graph.waits_for(new, parents))


# -- snapshots


def same(state: State, other: State) -> None:
    """Two states have the same edges, waits and dues, and the same digest."""
    assert edges(other) == edges(state)
    assert list(other.graph.due.items()) == list(state.graph.due.items())
    assert other.digest() == state.digest()
    for name, waiting in other.graph.children.items():
        for task_id, task in waiting.items():
            assert other.tasks.by_id[task_id] is task, name


@pytest.mark.parametrize("seed", range(6))
def test_the_edges_come_back_from_a_snapshot_at_every_seq(seed: int) -> None:
    state = State()
    due = 0
    for record in history(seed, 250):
        state.apply(record)
        same(state, State.load(state.dump()))
        due += bool(state.graph.due)
    assert due, "something was due at some time"


def test_a_snapshot_between_two_failures_and_a_new_life_changes_nothing() -> None:
    """Both parents failed; one is revived and succeeds before the child is settled."""
    whole = told(child(), failed("p"), failed("q"))
    loaded = State.load(whole.dump())
    same(whole, loaded)
    more = records_of(
        [revived("q"), assigned("q", attempt=2), succeeded("q", attempt=2)],
        after=whole.seq,
        at=whole.at,
    )
    assert fold(more, loaded).digest() == fold(more, whole).digest()


def test_a_snapshot_in_the_making_does_not_see_a_parent_struck_off() -> None:
    """The child's row is written out before its parent's success changes it."""
    state = told(child())
    instant = state.digest()
    snapshotter = Snapshotter(state, GENESIS)
    then(state, succeeded("p"), succeeded("q"), released("c"))
    snapshot = snapshotter.slice()
    assert snapshot is not None
    assert State.load(snapshot.blob).digest() == instant
    assert state.digest() != instant


@pytest.mark.parametrize("seed", range(6))
def test_what_is_due_is_what_the_tasks_themselves_say(seed: int) -> None:
    """Count by hand after every event of a legal history."""
    state = State()
    for record in history(seed + 50, 400):
        state.apply(record)
        blocked = {task.id: task for task in state.tasks if task.state is BLOCKED}
        assert state.graph.due.keys() <= blocked.keys()
        for task_id, task in blocked.items():
            assert task.plan is not None
            assert task.waits is not None
            own = {f"project/{task.plan.project}"} if task.plan.project is not None else set()
            assert task.waits <= set((task.plan.depends or {}).values()) | own
            if not task.waits:
                assert state.graph.due[task_id] == ""
            if task_id in state.graph.due:
                continue
            for parent in task.waits:
                known = state.tasks.get(parent)
                assert known is None or known.state is not SUCCEEDED
                assert task_id in state.graph.children[parent]
        for parent, waiting in state.graph.children.items():
            assert waiting
            for task_id in waiting:
                waits: Any = blocked[task_id].waits
                assert parent in waits


def test_what_waits_is_only_counted_and_not_queued() -> None:
    state = fold(records_of([server_started(), child("c", "p"), submitted("r")]))
    assert (state.backlog.total, state.backlog.of_agent("a1")) == (2, 2)
    assert state.backlog.orders["a1"].waiting == 1
    assert state.backlog.aside == {"a1": 1}

"""The task: the table of legal moves is total, and the fold takes everything."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest
from support.builders import (
    START_US,
    assigned,
    cancelled,
    expired,
    failed,
    history,
    interrupted,
    rejected,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.attempts import (
    decide_assignment,
    decide_cancel,
    decide_expiry,
    decide_interruption,
    decide_result,
    decide_start,
    decide_timeout,
)
from rota.domain.commands import Outcome
from rota.domain.task import (
    IN_FLIGHT,
    MOVES,
    ROW,
    TASK_EVENTS,
    TERMINAL,
    WAITING,
    Task,
    TaskState,
    born,
    evolve,
    is_legal,
    limits_of,
)
from rota.errors import RotaError
from rota.eventlog.codec import kind_of

KINDS = {kind_of(cls) for cls in TASK_EVENTS}
SAMPLES: dict[str, Any] = {
    "task_assigned": assigned(),
    "task_started": started(),
    "task_succeeded": succeeded(),
    "task_failed": failed(),
    "task_expired": expired(),
    "task_cancelled": cancelled(reason="x"),
    "attempt_interrupted": interrupted(),
    "result_refused": e.ResultRefused("t1", "a1", 1, "failed"),
    "delivery_succeeded": e.DeliverySucceeded("t1", "a1", "d", 1, 200),
    "delivery_failed": e.DeliveryFailed("t1", "a1", "d", 1, 500, "x", START_US),
    "delivery_abandoned": e.DeliveryAbandoned("t1", "a1", "d", 1, 500, "x"),
}
BIRTHS = {"task_submitted", "task_rejected"}


def in_state(state: TaskState) -> Task:
    """A task that is in this state, however it came there."""
    task = born(e.Record(1, START_US, submitted(deadline=START_US, timeout_ms=1)))
    if state not in WAITING:
        evolve(task, e.Record(2, START_US, assigned()))
    task.state = state
    return task


def decisions(state: TaskState) -> list[Any]:
    """Everything that the decide functions grant to a task in this state."""
    late = START_US + 10**9
    good, bad = Outcome(ok=True), Outcome(ok=False, code="x", error="y")
    asked: list[tuple[Any, ...]] = [
        (decide_start, 2),
        (decide_result, 1, 2, good),
        (decide_result, 1, 2, bad),
        (decide_cancel, ""),
        (decide_expiry, late),
        (decide_timeout, 2, late),
    ]
    if state is TaskState.READY:
        asked.append((decide_assignment,))
    if state in IN_FLIGHT:
        asked.append((decide_interruption, "server restarted"))
    found: list[Any] = []
    if state is TaskState.READY:  # where an interruption leaves a task that it then ends
        running = in_state(TaskState.RUNNING)
        running.on_interrupt = "fail"
        found.append(decide_interruption(running, "server restarted")[-1])
    for decide, *args in asked:
        try:
            event = decide(in_state(state), *args)
        except RotaError:
            continue
        if event is not None and not isinstance(event, e.ResultRefused):
            found.append(event[0] if decide is decide_interruption else event)
    return found


# -- the table


def test_every_state_is_in_the_table_and_every_state_has_a_kind() -> None:
    assert set(MOVES) == {None, *TaskState}
    assert set(TaskState) == TERMINAL | WAITING | IN_FLIGHT
    assert len(TaskState) == len(TERMINAL) + len(WAITING) + len(IN_FLIGHT)


def test_the_table_names_only_kinds_that_exist() -> None:
    assert {kind for moves in MOVES.values() for kind in moves} <= KINDS


def test_what_has_ended_stays_as_it_is() -> None:
    for state in TERMINAL:
        assert MOVES[state] == {}


@pytest.mark.parametrize(("state", "kind"), list(product(TaskState, sorted(KINDS))))
def test_every_move_is_legal_or_decided_by_nobody(state: TaskState, kind: str) -> None:
    granted = {kind_of(type(event)) for event in decisions(state)}
    if not is_legal(state, kind):
        assert kind not in granted, f"{kind} is granted in {state} and not in the table"
    elif state not in (TaskState.BLOCKED, TaskState.SCHEDULED):
        assert kind in granted, f"{kind} is in the table for {state} and nobody grants it"


@pytest.mark.parametrize("state", TaskState)
def test_a_legal_move_leads_where_the_table_says(state: TaskState) -> None:
    for kind, target in MOVES[state].items():
        task = in_state(state)
        evolve(task, e.Record(9, START_US, SAMPLES[kind]))
        assert task.state is target


def test_the_births_lead_where_the_table_says() -> None:
    assert born(e.Record(1, START_US, submitted())).state is MOVES[None]["task_submitted"]
    assert born(e.Record(1, START_US, rejected())).state is MOVES[None]["task_rejected"]


@pytest.mark.parametrize("seed", range(5))
def test_every_step_of_a_legal_history_is_in_the_table(seed: int) -> None:
    tasks: dict[str, Task] = {}
    for record in history(seed, 800):
        kind = kind_of(type(record.event))
        if kind not in KINDS:
            continue
        name = record.event.task  # type: ignore[union-attr]
        before = tasks[name].state if name in tasks else None
        assert is_legal(before, kind), f"{kind} in {before}"
        if before is None:
            tasks[name] = born(record)
        else:
            evolve(tasks[name], record)


# -- the fold is total


@pytest.mark.parametrize(("state", "kind"), list(product(TaskState, SAMPLES)))
def test_the_fold_takes_every_event_in_every_state(state: TaskState, kind: str) -> None:
    task = in_state(state)
    evolve(task, e.Record(9, START_US + 5, SAMPLES[kind]))
    assert isinstance(task.state, TaskState)


def test_the_samples_are_of_every_kind_that_is_about_a_task() -> None:
    about = {kind_of(cls) for cls in get_args(e.Event) if "task" in cls._fields}
    assert about == set(SAMPLES) | BIRTHS


def test_events_that_say_nothing_of_its_state_leave_a_task_as_it_is() -> None:
    for kind in ("result_refused", "delivery_succeeded", "delivery_failed"):
        task = in_state(TaskState.RUNNING)
        before = task.to_row()
        evolve(task, e.Record(9, START_US + 5, SAMPLES[kind]))
        assert task.to_row() == before


# -- what a task knows


def test_a_submitted_task_knows_what_was_asked() -> None:
    event = submitted(
        params={"x": 1},
        priority=0,
        tab="tab",
        ref="r",
        callback="http://x",
        deadline=7,
        timeout_ms=8,
        on_interrupt="fail",
        dialect="pinchtab",
        position=4,
    )
    task = born(e.Record(3, START_US, event, "ann"))
    for name in set(event._fields) - {"task"}:
        assert getattr(task, name) == getattr(event, name), name
    assert (task.id, task.by, task.created_at, task.created_seq) == ("t1", "ann", START_US, 3)
    assert (task.attempt, task.holds, task.is_terminal) == (0, False, False)


def test_a_rejected_task_is_over_when_it_begins() -> None:
    task = born(e.Record(3, START_US, rejected(code="queue_full", error="full")))
    assert (task.state, task.finished_at, task.is_terminal) == ("rejected", START_US, True)
    assert (task.error_code, task.error) == ("queue_full", "full")


def test_the_token_of_an_attempt_is_the_seq_of_its_assignment() -> None:
    task = born(e.Record(1, START_US, submitted()))
    evolve(task, e.Record(42, START_US + 1, assigned()))
    assert (task.token, task.attempt, task.assigned_at) == (42, 1, START_US + 1)


def test_the_first_start_is_when_the_task_started() -> None:
    task = in_state(TaskState.ASSIGNED)
    evolve(task, e.Record(3, START_US + 3, started()))
    evolve(task, e.Record(4, START_US + 4, interrupted()))
    evolve(task, e.Record(5, START_US + 5, assigned()))
    evolve(task, e.Record(6, START_US + 6, started()))
    assert task.started_at == START_US + 3


def test_an_expired_task_says_which_clock_ran_out() -> None:
    task = in_state(TaskState.READY)
    evolve(task, e.Record(2, START_US, expired()))
    assert (task.state, task.error_code) == ("failed", "deadline_exceeded")


def test_a_task_comes_back_from_its_row() -> None:
    task = in_state(TaskState.RUNNING)
    again = Task.from_row(task.to_row())
    assert again.to_row() == task.to_row()
    assert again.state is TaskState.RUNNING
    with pytest.raises(ValueError, match=r"shorter|not enough"):
        Task.from_row(task.to_row()[:-1])
    assert len(ROW) == len(task.to_row())


def test_only_pushed_tasks_count_toward_the_push_limit() -> None:
    assert limits_of(("builtin", "echo")) == ("push", "type:echo")
    assert limits_of(("pull", "echo")) == ("type:echo",)

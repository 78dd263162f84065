"""The task: the table of legal moves is total, and the fold takes everything."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import orjson
import pytest
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
    rejected,
    released,
    revived,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.attempts import (
    REVIVALS_MAX,
    decide_assignment,
    decide_cancel,
    decide_expiry,
    decide_interruption,
    decide_queue_timeout,
    decide_release,
    decide_result,
    decide_revival,
    decide_start,
    decide_timeout,
)
from rota.domain.bulk import decide_priority
from rota.domain.commands import Outcome
from rota.domain.dead import decide_return
from rota.domain.fold import FOLDS, NOTES, TASK_EVENTS, born, evolve
from rota.domain.moves import BIRTHS, MOVES, ways_of
from rota.domain.plan import Plan
from rota.domain.project import decide_cut, decide_hold
from rota.domain.project_parts import Project
from rota.domain.restoring import fields_of_task, restored_task
from rota.domain.task import (
    IN_FLIGHT,
    ROW,
    TERMINAL,
    WAITING,
    Notes,
    Task,
    TaskState,
    lane_of,
    limits_of,
)
from rota.errors import Conflict, RotaError
from rota.eventlog.codec import kind_of

SAMPLES: dict[str, Any] = {
    "task_assigned": assigned(),
    "task_started": started(),
    "task_succeeded": succeeded(),
    "task_failed": failed(),
    "task_expired": expired(),
    "task_cancelled": cancelled(reason="x"),
    "task_reprioritised": e.TaskReprioritised("t1", "a1", 7, 2),
    "attempt_failed": attempt_failed(next_at=START_US + 7),
    "attempt_interrupted": interrupted(),
    "task_released": released(),
    "task_delayed": e.TaskDelayed("t1", "a1", START_US + 7),
    "task_held": e.TaskHeld("t1", "a1", "p"),
    "task_revived": revived(),
    "task_logged": e.TaskLogged("t1", "a1", ["one", "two"]),
    "task_progressed": e.TaskProgressed("t1", "a1", {"percent": 50}),
    "lease_expired": e.LeaseExpired("t1", "a1", 1, "w", START_US, 9, 0),
    "lease_ended": e.LeaseEnded("t1", "a1", 1, "w", "released", START_US, 9, 2),
    "result_refused": e.ResultRefused("t1", "a1", 1, "failed"),
    "delivery_succeeded": e.DeliverySucceeded("t1", "a1", "d", 1, 200),
    "delivery_failed": e.DeliveryFailed("t1", "a1", "d", 1, 500, "x", START_US),
    "delivery_abandoned": e.DeliveryAbandoned("t1", "a1", "d", 1, 500, "x"),
}


def in_state(state: TaskState, **plan: Any) -> Task:
    """A task that is in this state, however it came there."""
    task = born(e.Record(1, START_US, submitted(deadline=START_US, timeout_ms=1, **plan)))
    if state not in WAITING:
        evolve(task, e.Record(2, START_US, assigned()))
    task.state = state
    if state is TaskState.CANCELLED:
        task.error_code = "dependency_failed"
    return task


def decisions(state: TaskState) -> list[Any]:
    """Everything that the decide functions grant to a task in this state."""
    late = START_US + 10**9
    good, bad = Outcome(ok=True), Outcome(ok=False, code="x", error="y")
    asked: list[tuple[Any, ...]] = [
        (decide_start, 2),
        (decide_result, 1, 2, good, late, 0.0),
        (decide_result, 1, 2, bad, late, 0.0),
        (decide_cancel, ""),
        (decide_priority, 7),
        (decide_expiry, late),
        (decide_timeout, 2, late, 0.0),
        (decide_release, late),
        (decide_queue_timeout, 0, late),
        (decide_revival, START_US - 1),
        (decide_return, lambda _: None, START_US - 1),
    ]
    if state is TaskState.READY:
        asked.append((decide_assignment,))
    if state in WAITING:
        asked.append((decide_cut, "its run was force-stopped"))
    if state in (TaskState.READY, TaskState.SCHEDULED):
        asked.append((lambda task: decide_hold(Project("p", 0), task, {})[0],))
    if state in IN_FLIGHT:
        asked.append((decide_interruption, "server restarted"))
    found: list[Any] = []
    if state is TaskState.READY:  # where an interruption leaves a task that it then ends
        running = in_state(TaskState.RUNNING)
        running.on_interrupt = "fail"
        found.append(decide_interruption(running, "server restarted")[-1])
    plans: list[dict[str, Any]] = [
        {},
        {"retry": {"max_attempts": 2}, "queue_timeout_ms": 1},
        {"not_before": late + 1},
    ]
    for (decide, *args), plan in product(asked, plans):
        try:
            event = decide(in_state(state, **plan), *args)
        except RotaError:
            continue
        if event is not None and not isinstance(event, e.ResultRefused):
            found.append(event[0] if decide in (decide_interruption, decide_return) else event)
    return found


# -- the table


def test_every_state_is_in_the_table_and_every_state_has_a_kind() -> None:
    assert set(MOVES) == set(TaskState)
    assert set(TaskState) == TERMINAL | WAITING | IN_FLIGHT
    assert len(TaskState) == len(TERMINAL) + len(WAITING) + len(IN_FLIGHT)


def test_what_has_ended_stays_as_it_is_unless_it_is_revived() -> None:
    for state in TERMINAL - {TaskState.FAILED, TaskState.CANCELLED}:
        assert MOVES[state] == {}
    assert MOVES[TaskState.FAILED] == {e.TaskRevived: TaskState.READY}
    assert MOVES[TaskState.CANCELLED] == {e.TaskRevived: TaskState.BLOCKED}


def test_the_folds_are_those_of_the_moves_and_of_the_notes() -> None:
    assert {*BIRTHS, *(fact for moves in MOVES.values() for fact in moves)} == set(TASK_EVENTS)
    assert set(FOLDS) == {*TASK_EVENTS, *NOTES} - {e.TaskSubmitted, e.TaskRejected}


@pytest.mark.parametrize(("state", "fact"), list(product(TaskState, TASK_EVENTS)))
def test_every_move_is_legal_or_decided_by_nobody(state: TaskState, fact: type[Any]) -> None:
    granted = {type(event) for event in decisions(state)}
    if fact not in MOVES[state]:
        assert fact not in granted, f"{fact} is granted in {state} and not in the table"
    else:
        assert fact in granted, f"{fact} is in the table for {state} and nobody grants it"


@pytest.mark.parametrize("state", TaskState)
def test_a_legal_move_leads_where_the_table_says(state: TaskState) -> None:
    for fact, target in MOVES[state].items():
        task = in_state(state)
        evolve(task, e.Record(9, START_US, SAMPLES[kind_of(fact)]))
        assert task.state is target


def test_the_births_lead_where_the_table_says() -> None:
    assert born(e.Record(1, START_US, submitted())).state in BIRTHS[e.TaskSubmitted]
    assert born(e.Record(1, START_US, rejected())).state in BIRTHS[e.TaskRejected]


def test_a_fact_that_moves_nothing_may_come_in_any_state() -> None:
    assert ways_of(e.TaskLogged) == {state: state for state in TaskState}
    assert ways_of(e.TaskRevived) == {
        TaskState.FAILED: TaskState.READY, TaskState.CANCELLED: TaskState.BLOCKED,
    }  # fmt: skip
    assert ways_of(e.TaskRejected) == {TaskState.REJECTED: TaskState.REJECTED}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "ready"),
        ({"waits": []}, "ready"),
        ({"waits": ["p"]}, "blocked"),
        ({"waits": ["p"], "not_before": START_US + 1}, "blocked"),
        ({"not_before": START_US + 1}, "scheduled"),
        ({"not_before": START_US}, "ready"),
        ({"not_before": 0}, "ready"),
    ],
)
def test_what_a_task_asks_for_says_where_it_begins(fields: dict[str, Any], state: str) -> None:
    event = submitted(**fields)
    task = born(e.Record(1, START_US, event))
    assert task.state == state
    assert task.state in BIRTHS[e.TaskSubmitted]
    assert task.waits == ({"p"} if state == "blocked" else None)
    assert task.next_at == (START_US + 1 if state == "scheduled" else 0)


@pytest.mark.parametrize("seed", range(5))
def test_every_step_of_a_legal_history_is_in_the_table(seed: int) -> None:
    tasks: dict[str, Task] = {}
    for record in history(seed, 800):
        fact = type(record.event)
        if fact not in TASK_EVENTS:
            continue
        name = record.event.task  # type: ignore[union-attr]
        before = tasks[name].state if name in tasks else None
        assert fact in (BIRTHS if before is None else MOVES[before]), f"{fact} in {before}"
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
    assert about == {*SAMPLES, *map(kind_of, BIRTHS)}


def test_events_that_say_nothing_of_its_state_leave_a_task_as_it_is() -> None:
    for kind in (
        "lease_expired",
        "lease_ended",
        "result_refused",
        "delivery_succeeded",
        "delivery_failed",
    ):
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
    for name in set(event._fields) - {"task", "waits", "plan"}:
        assert getattr(task, name) == getattr(event, name), name
    assert (task.plan, task.waits) == (None, None)
    assert (task.id, task.by, task.created_at, task.created_seq) == ("t1", "ann", START_US, 3)
    assert (task.attempt, task.holds, task.state in TERMINAL) == (0, False, False)


def test_a_rejected_task_is_over_when_it_begins() -> None:
    task = born(e.Record(3, START_US, rejected(code="queue_full", error="full")))
    assert (task.state, task.finished_at, task.state in TERMINAL) == ("rejected", START_US, True)
    assert (task.error_code, task.error) == ("queue_full", "full")


def test_the_token_of_an_attempt_is_the_seq_of_its_assignment() -> None:
    task = born(e.Record(1, START_US, submitted()))
    evolve(task, e.Record(42, START_US + 1, assigned()))
    assert (task.token, task.attempt, task.assigned_at) == (42, 1, START_US + 1)


def test_a_task_keeps_its_plan_as_it_was_given() -> None:
    plan = Plan(
        key="k",
        batch="b",
        parallelism=2,
        depends={"one": "t0"},
        retry={"max_attempts": 3},
        queue_timeout_ms=5,
        not_before=START_US + 9,
        preempt=True,
        idempotency="i",
        digest="d",
        dedup="x",
        dedup_until=START_US + 8,
        delay_ms=1,
        requires=["gpu", "ssd"],
        workflow="w",
        follows="t00",
        follow_depth=1,
        project="p",
        run="run-1",
        schedule="nightly",
        uncounted=True,
        declared_for="*",
    )
    assert None not in plan, "every field is given"
    task = born(e.Record(3, START_US, submitted(waits=["t0"], **plan._asdict())))
    assert (task.plan, task.waits) == (plan, {"t0"})
    assert task.lane == ("builtin", "echo", "k", "2:b", "2", "gpu\nssd", "", "declared:*\necho")


def test_the_latest_start_is_when_the_task_started() -> None:
    task = in_state(TaskState.ASSIGNED)
    evolve(task, e.Record(3, START_US + 3, started()))
    evolve(task, e.Record(4, START_US + 4, interrupted()))
    evolve(task, e.Record(5, START_US + 5, assigned()))
    assert task.started_at == 0
    evolve(task, e.Record(6, START_US + 6, started()))
    assert task.started_at == START_US + 6
    assert task.begun_at == START_US + 3


def test_a_failed_attempt_says_why_until_another_succeeds() -> None:
    task = in_state(TaskState.RUNNING)
    evolve(task, e.Record(3, START_US + 3, attempt_failed(next_at=START_US + 9, code="x")))
    assert (task.state, task.next_at, task.error_code) == ("scheduled", START_US + 9, "x")
    evolve(task, e.Record(4, START_US + 9, released(after="backoff")))
    assert (task.state, task.next_at, task.ready_at) == ("ready", 0, START_US + 9)
    evolve(task, e.Record(5, START_US + 9, assigned(attempt=2)))
    evolve(task, e.Record(6, START_US + 9, succeeded(attempt=2)))
    assert (task.state, task.error_code, task.error) == ("succeeded", None, None)


def test_a_revived_task_begins_anew_and_keeps_counting_its_attempts() -> None:
    task = in_state(TaskState.RUNNING)
    task.interruptions = 3
    evolve(task, e.Record(3, START_US + 3, failed(details={"n": 1})))
    evolve(task, e.Record(4, START_US + 4, revived()))
    assert (task.state, task.ready_at, task.finished_at) == ("ready", START_US + 4, 0)
    assert (task.error, task.error_code, task.error_details) == (None, None, None)
    assert (task.attempt, task.spent_before, task.interruptions) == (1, 1, 0)


def test_notes_are_counted_and_the_last_report_is_kept() -> None:
    task = in_state(TaskState.RUNNING)
    assert task.notes is None
    evolve(task, e.Record(3, START_US, SAMPLES["task_logged"]))
    evolve(task, e.Record(4, START_US, SAMPLES["task_progressed"]))
    evolve(task, e.Record(5, START_US, e.TaskProgressed("t1", "a1", 0)))
    assert task.notes == Notes(lines=2, reports=2, progress=0)


def test_a_cancelled_task_says_what_for() -> None:
    for event, code in (
        (cancelled(reason="enough"), "cancelled"),
        (cancelled(reason="dependency x failed", code="dependency_failed"), "dependency_failed"),
        (cancelled(), None),
    ):
        task = in_state(TaskState.READY)
        evolve(task, e.Record(2, START_US, event))
        assert (task.state, task.error_code, task.error) == (
            "cancelled",
            code,
            event.reason or None,
        )


def test_an_expired_task_says_which_clock_ran_out() -> None:
    task = in_state(TaskState.READY)
    evolve(task, e.Record(2, START_US, expired()))
    assert (task.state, task.error_code) == ("failed", "deadline_exceeded")
    task = in_state(TaskState.READY)
    evolve(task, e.Record(2, START_US, e.TaskExpired("t1", "a1", "queue_timeout", "too long")))
    assert (task.state, task.error_code) == ("failed", "queue_timeout_exceeded")


def test_a_task_comes_back_from_its_row() -> None:
    task = in_state(TaskState.RUNNING)
    again = Task.from_row(task.to_row())
    assert again.to_row() == task.to_row()
    assert again.state is TaskState.RUNNING
    with pytest.raises(ValueError, match=r"shorter|not enough"):
        Task.from_row(task.to_row()[:-1])
    assert len(ROW) == len(task.to_row())


def test_a_task_with_a_plan_and_notes_comes_back_from_a_snapshot() -> None:
    plan: dict[str, Any] = {"key": "k", "batch": "b", "parallelism": 2, "retry": {"base_ms": 3}}
    task = born(e.Record(1, START_US, submitted(waits=["y", "x"], depends={"y": "y"}, **plan)))
    evolve(task, e.Record(2, START_US, SAMPLES["task_logged"]))
    again = Task.from_row(orjson.loads(orjson.dumps(task.to_row())))
    assert (again.plan, again.notes, again.waits) == (task.plan, task.notes, task.waits)
    assert (type(again.plan), type(again.notes)) == (Plan, Notes)
    assert again.lane is task.lane


def test_only_pushed_tasks_count_toward_the_push_limit() -> None:
    assert limits_of(lane_of("builtin", "echo")) == ("push", "type:echo")
    assert limits_of(lane_of("pull", "echo")) == ("type:echo",)


def test_keys_and_bounded_batches_are_limits_too() -> None:
    lane = lane_of("builtin", "echo", "shop", "2:b1")
    assert limits_of(lane) == ("push", "type:echo", "key:shop", "batch:2:b1")
    unbounded = born(e.Record(1, START_US, submitted(batch="b1", key="shop")))
    assert limits_of(unbounded.lane) == ("push", "type:echo", "key:shop")


def test_a_task_is_revived_only_so_often() -> None:
    events: list[Any] = [submitted("t1")]
    for _ in range(REVIVALS_MAX):
        events += [assigned("t1"), failed("t1"), revived("t1")]
    events += [assigned("t1"), failed("t1")]
    state = fold(records_of(events))
    task = state.tasks.by_id["t1"]
    assert task.revivals == REVIVALS_MAX
    for each in (task, restored_task(fields_of_task(task)), Task.from_row(task.to_row())):
        with pytest.raises(Conflict, match=f"retried {REVIVALS_MAX} times") as caught:
            decide_revival(each, START_US)
        assert caught.value.code == "too_many_retries"
    task.revivals -= 1
    assert decide_revival(task, START_US)

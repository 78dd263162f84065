"""Which task a key stands for, and until when: while it lives, and for a time after."""

from __future__ import annotations

import pytest
from support.builders import (
    SECOND_US,
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    expired,
    failed,
    fold,
    history,
    in_batch,
    records_of,
    rejected,
    revived,
    server_started,
    submitted,
    succeeded,
)
from support.wishes import changed

from rota.domain import events as e
from rota.domain.task import TERMINAL
from rota.projections.keys import IDEMPOTENCY_US, Keys, dedup, idempotency
from rota.projections.state import State

ONCE = submitted(idempotency="i", digest="d")
ALONE = submitted(dedup="x")
ENDS = {
    "succeeded": (assigned(), succeeded()),
    "failed": (failed(),),
    "cancelled": (cancelled(),),
    "expired": (expired(),),
}


def told(*events: e.Event, by: str = "") -> State:
    """Fold a story that one principal caused."""
    return fold(record._replace(by=by) for record in records_of(events, step=0))


def holder(keys: Keys, name: tuple[str, str, str], now: int) -> str | None:
    """Which task holds a key at a moment."""
    held = keys.find(name, now)
    return held.subject if held is not None else None


# -- idempotency


def test_a_key_stands_for_its_task_and_its_request() -> None:
    held = told(ONCE).keys.find(idempotency("", "i"), START_US)
    assert held is not None
    assert (held.subject, held.digest) == ("t1", "d")


def test_a_key_belongs_to_who_used_it() -> None:
    keys = told(ONCE, by="ann").keys
    assert holder(keys, idempotency("ann", "i"), START_US) == "t1"
    assert holder(keys, idempotency("bob", "i"), START_US) is None
    assert holder(keys, idempotency("", "i"), START_US) is None


def test_the_two_kinds_of_keys_are_apart() -> None:
    assert holder(told(ONCE).keys, dedup("", "i"), START_US) is None
    assert holder(told(ALONE).keys, idempotency("", "x"), START_US) is None


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_key_is_held_for_a_day_after_its_tasks_end(end: tuple[e.Event, ...]) -> None:
    keys = told(ONCE, *end).keys
    name = idempotency("", "i")
    assert holder(keys, name, START_US + IDEMPOTENCY_US - 1) == "t1"
    assert holder(keys, name, START_US + IDEMPOTENCY_US) is None


def test_a_key_is_held_for_as_long_as_its_task_lives() -> None:
    keys = told(ONCE, assigned(), attempt_failed(next_at=START_US)).keys
    assert holder(keys, idempotency("", "i"), START_US + 365 * IDEMPOTENCY_US) == "t1"


def test_a_key_outlives_its_task_in_memory() -> None:
    state = told(server_started(result_ttl_s=1), ONCE, cancelled())
    state.apply(e.Record(9, START_US + 60 * SECOND_US, e.AgentPaused("x")))
    assert state.tasks.get("t1") is None
    assert holder(state.keys, idempotency("", "i"), state.at) == "t1"


def test_a_key_is_forgotten_by_the_time_of_the_records() -> None:
    state = told(ONCE, cancelled())
    state.apply(e.Record(9, START_US + IDEMPOTENCY_US, e.AgentPaused("x")))
    assert (state.keys.held, list(state.keys.ending)) == ({}, [])


def test_a_key_that_is_free_again_stands_for_its_next_task() -> None:
    state = told(ONCE, cancelled())
    later = START_US + IDEMPOTENCY_US
    state.apply(e.Record(9, later, ONCE._replace(task="t2")))
    assert holder(state.keys, idempotency("", "i"), later + IDEMPOTENCY_US) == "t2"


def test_a_rejected_task_holds_no_key() -> None:
    assert told(rejected()).keys.held == {}


def test_a_batch_holds_its_key_until_a_day_after_it_finished() -> None:
    story = in_batch("b1", submitted(), idempotency="i", digest="d")
    keys = told(*story, cancelled(), e.BatchFinished("b1", 0, 0, 1)).keys
    name = idempotency("", "i")
    assert holder(keys, name, START_US + IDEMPOTENCY_US - 1) == "b1"
    assert holder(keys, name, START_US + IDEMPOTENCY_US) is None
    unfinished = told(*story, cancelled()).keys
    assert holder(unfinished, name, START_US + 9 * IDEMPOTENCY_US) == "b1"


# -- dedup


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_dedup_key_is_free_when_its_task_has_ended(end: tuple[e.Event, ...]) -> None:
    assert holder(told(ALONE).keys, dedup("", "x"), START_US * 2) == "t1"
    assert holder(told(ALONE, *end).keys, dedup("", "x"), START_US) is None


def test_a_dedup_key_with_a_time_is_held_until_then_also_after_the_end() -> None:
    timed = changed(ALONE, dedup_until=START_US + 500)
    name = dedup("", "x")
    early = told(timed, cancelled()).keys
    assert holder(early, name, START_US + 499) == "t1"
    assert holder(early, name, START_US + 500) is None
    assert holder(told(timed).keys, name, START_US + 10**12) == "t1", "it is still active"


def test_a_replaced_task_gives_its_key_to_the_one_that_replaced_it() -> None:
    replaced = cancelled(reason="replaced by t2", code="replaced")
    state = told(ALONE, replaced, ALONE._replace(task="t2"))
    name = dedup("", "x")
    assert holder(state.keys, name, START_US) == "t2"
    state.apply(e.Record(9, START_US + 5, e.AgentPaused("x")))
    assert holder(state.keys, name, state.at) == "t2"
    state.apply(e.Record(10, START_US + 6, cancelled("t2")))
    assert holder(state.keys, name, state.at) is None


def test_the_end_of_a_task_frees_no_key_that_another_holds_now() -> None:
    state = told(changed(ALONE, dedup_until=START_US + 5), ALONE._replace(task="t2"), cancelled())
    assert holder(state.keys, dedup("", "x"), START_US + 10**12) == "t2"


# -- a new life


def test_a_revived_task_holds_its_idempotency_key_for_as_long_as_it_lives() -> None:
    state = told(ONCE, failed(), revived())
    name = idempotency("", "i")
    assert holder(state.keys, name, START_US + 9 * IDEMPOTENCY_US) == "t1"
    state.apply(e.Record(9, START_US + 7, cancelled()))
    assert holder(state.keys, name, START_US + 7 + IDEMPOTENCY_US - 1) == "t1"
    assert holder(state.keys, name, START_US + 7 + IDEMPOTENCY_US) is None


def test_a_revived_task_holds_its_dedup_key_again() -> None:
    """While it is active nobody else may have it, as if it had never failed."""
    state = told(ALONE, failed(), revived())
    assert holder(state.keys, dedup("", "x"), START_US) == "t1"
    state.apply(e.Record(9, START_US + 7, cancelled()))
    assert holder(state.keys, dedup("", "x"), START_US + 7) is None


def test_a_revived_task_takes_no_key_that_another_holds_now() -> None:
    state = told(ALONE, failed(), ALONE._replace(task="t2"), revived())
    assert holder(state.keys, dedup("", "x"), START_US) == "t2"


# -- always


@pytest.mark.parametrize("seed", range(6))
def test_no_two_active_tasks_have_one_key_in_a_legal_history(seed: int) -> None:
    """But for those that were given a new life while another had their key."""
    state = State()
    held, lives = 0, set()
    for record in history(seed + 90, 500):
        state.apply(record)
        if isinstance(record.event, e.TaskRevived):
            lives.add(record.event.task)
        names = []
        for task in state.tasks:
            if task.state in TERMINAL or task.plan is None or task.id in lives:
                continue
            if task.plan.idempotency is not None:
                names.append((idempotency(task.by, task.plan.idempotency), task.id))
            if task.plan.dedup is not None:
                names.append((dedup(task.by, task.plan.dedup), task.id))
        assert len({name for name, _ in names}) == len(names)
        for name, task_id in names:
            assert holder(state.keys, name, state.at) == task_id
        held += len(names)
    assert held


@pytest.mark.parametrize("seed", range(6))
def test_keys_come_back_from_a_snapshot_at_every_seq(seed: int) -> None:
    state = State()
    for record in history(seed + 90, 250):
        state.apply(record)
        again = State.load(state.dump())
        assert again.keys.held == state.keys.held
        for name in state.keys.held:
            for now in (state.at, state.at + IDEMPOTENCY_US):
                assert holder(again.keys, name, now) == holder(state.keys, name, now)

"""What belongs together: counted as it ends, finished once, forgotten like its tasks."""

from __future__ import annotations

import pytest
from support.builders import (
    SECOND_US,
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    chained,
    expired,
    failed,
    fold,
    history,
    in_batch,
    interrupted,
    records_of,
    refuses,
    revived,
    server_started,
    submitted,
    succeeded,
)

from rota.actors.recovery import batch_from_log, task_from_log
from rota.domain import events as e
from rota.domain.batch import Batch
from rota.domain.task import TERMINAL
from rota.eventlog.memory_store import MemoryLog
from rota.projections.batches import Batches
from rota.projections.state import State

HOOK = "https://example.com/hook"
THREE = in_batch("b1", submitted("t1"), submitted("t2"), submitted("t3"), callback=HOOK)
FINISHED = e.BatchFinished("b1", 1, 1, 1)
ALL_ENDED = [*THREE, assigned("t1"), succeeded("t1"), failed("t2"), cancelled("t3")]


def batch_of(*events: e.Event) -> Batch:
    """The batch after a story."""
    return fold(records_of(events)).batches.by_id["b1"]


def test_a_batch_knows_what_was_asked() -> None:
    records = records_of(in_batch("b1", submitted(), parallelism=2, idempotency="i", callback=HOOK))
    batch = fold([records[0]._replace(by="ann"), *records[1:]]).batches.by_id["b1"]
    assert (batch.id, batch.tasks, batch.by, batch.dialect) == ("b1", ["t1"], "ann", "native")
    assert (batch.parallelism, batch.idempotency, batch.callback) == (2, "i", HOOK)
    assert (batch.created_at, batch.finished_at, batch.left) == (START_US + 1000, 0, 1)


def test_each_end_of_a_task_is_counted_once_in_its_own_way() -> None:
    state = fold(records_of([*THREE, assigned("t1"), succeeded("t1"), expired("t2")]))
    refuses(state, succeeded("t1"), failed("t2"))
    batch = state.batches.by_id["b1"]
    assert (batch.fates, batch.left) == ({"succeeded": 1, "failed": 1, "cancelled": 0}, 1)


def test_a_task_that_waits_again_has_not_ended() -> None:
    batch = batch_of(
        *THREE,
        assigned("t1"),
        interrupted("t1"),
        assigned("t2"),
        attempt_failed("t2", next_at=START_US),
    )
    assert batch.left == 3


def test_a_batch_is_to_be_finished_when_all_have_ended_and_only_then() -> None:
    state = fold(records_of(ALL_ENDED[:-1]))
    assert state.batches.unfinished() == []
    state = fold(records_of(ALL_ENDED))
    assert state.batches.unfinished() == ["b1"]
    state.apply(e.Record(9, START_US + 9, FINISHED))
    assert state.batches.unfinished() == []
    assert state.batches.by_id["b1"].finished_at == START_US + 9


def test_a_finished_batch_owes_its_callback_once() -> None:
    state = fold(records_of([*ALL_ENDED, FINISHED, FINISHED]))
    [delivery] = state.deliveries.pending.values()
    assert (delivery.id, delivery.task, delivery.agent) == ("dlv_9_b1", "b1", "")
    silent = in_batch("b1", submitted())
    assert not fold(records_of([*silent, cancelled(), FINISHED])).deliveries.pending


def test_a_task_that_lives_again_reopens_its_batch() -> None:
    state = fold(records_of([*ALL_ENDED, FINISHED, revived("t2")]))
    batch = state.batches.by_id["b1"]
    assert (batch.finished_at, batch.left, batch.fates["failed"]) == (0, 1, 0)
    again: list[e.Event] = [assigned("t2", attempt=2), succeeded("t2", attempt=2)]
    fold(records_of(again, after=state.seq, at=state.at), state)
    assert state.batches.unfinished() == ["b1"]
    assert batch.fates == {"succeeded": 2, "failed": 0, "cancelled": 1}


def test_a_batch_stays_for_the_retention_after_it_finished() -> None:
    begin = server_started(result_ttl_s=10)
    state = fold(records_of([begin, *ALL_ENDED, FINISHED]))
    end = state.at
    state.apply(e.Record(100, end + 10 * SECOND_US - 1, e.AgentPaused("x")))
    assert state.batches.get("b1") is not None
    state.apply(e.Record(101, end + 10 * SECOND_US, e.AgentPaused("x")))
    assert state.batches.get("b1") is None


def test_a_batch_that_goes_on_is_not_forgotten() -> None:
    state = fold(records_of([server_started(result_ttl_s=1), *ALL_ENDED[:-1]]))
    state.apply(e.Record(100, state.at + 100 * SECOND_US, e.AgentPaused("x")))
    assert state.batches.by_id["b1"].left == 1
    assert state.tasks.get("t1") is None, "its ended tasks have left memory"
    state.apply(e.Record(101, state.at, cancelled("t3")))
    assert state.batches.unfinished() == ["b1"]


def test_a_batch_that_was_reopened_is_not_forgotten_by_its_first_finish() -> None:
    state = fold(records_of([server_started(result_ttl_s=1), *ALL_ENDED, FINISHED, revived("t2")]))
    state.apply(e.Record(100, state.at + 100 * SECOND_US, e.AgentPaused("x")))
    assert state.batches.get("b1") is not None


def test_a_forgotten_batch_is_rebuilt_from_its_own_records() -> None:
    log = MemoryLog()
    log.append(chained(records_of([*ALL_ENDED, FINISHED])), 0, 0)
    batch = batch_from_log(log, "b1")
    assert batch is not None
    kept = fold(records_of([*ALL_ENDED, FINISHED])).batches.by_id["b1"]
    assert batch.to_row() == kept.to_row()
    assert batch_from_log(log, "t1") is None
    assert batch_from_log(log, "nobody") is None
    assert task_from_log(log, "b1") is None


def test_a_rejected_batch_leaves_nothing_but_its_record() -> None:
    state = fold(records_of([e.BatchRejected("b1", 3, "queue_full", "full")]))
    assert (state.batches.get("b1"), len(state.tasks), state.backlog.total) == (None, 0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_counts_are_those_of_the_tasks_after_every_event(seed: int) -> None:
    state = State()
    fates: dict[str, str] = {}
    finished = 0
    for record in history(seed + 70, 500):
        state.apply(record)
        name = getattr(record.event, "task", None)
        if name is not None and (task := state.tasks.get(name)) is not None:
            fates[name] = task.state.value
        for batch in state.batches.by_id.values():
            ended = [fates.get(task, "") for task in batch.tasks]
            known = [fate for fate in ended if fate in TERMINAL]
            assert batch.left == len(batch.tasks) - len(known)
            assert {fate: known.count(fate) for fate in batch.fates} == batch.fates
            finished += bool(batch.finished_at)
    assert finished


def test_a_batch_comes_back_as_the_last_whether_or_not_it_had_left() -> None:
    live, told = Batches(), Batches()
    for batches in (live, told):
        for seq, name in enumerate(("one", "two"), 1):
            event = e.BatchSubmitted(name, [f"task of {name}"], "native")
            batches.on_submitted(e.Record(seq, seq, event))
        batches.on_finished(e.Record(3, 3, e.BatchFinished("one", 0, 1, 0)))
    row = live.by_id["one"].to_row()
    live.forget(3)
    assert list(live.by_id) == ["two"]
    for batches in (live, told):
        batches.bring_back(Batch.from_row(row))
        assert list(batches.by_id) == ["two", "one"]
        assert batches.ended_tasks == 1
    assert live.dump() == told.dump()

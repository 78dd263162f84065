"""After a fault inside, everything goes on from the projections; what fails twice is given up."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import BAD, GOOD, Bench
from support.builders import chained, records_of, submitted, succeeded
from support.wishes import made

from rota.actors import agent_queue, dependents, dispatcher, mending, recovery
from rota.actors import messages as m
from rota.actors.dispatcher import DispatcherActor
from rota.actors.mending import Gap
from rota.actors.recovery import rebuild
from rota.actors.runtime import body_of
from rota.actors.worker_pool import WorkerPool
from rota.domain import events as e
from rota.domain.commands import Limits, Outcome
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import Request
from rota.errors import InternalFault, LogCorrupt, NotWritable, StorageUnavailable, Unfolded
from rota.eventlog.memory_store import MemoryLog
from rota.projections.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RETRY = {"kind": "fixed", "base_ms": 0, "max_attempts": 3}


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def build(limits: Limits | None = None, **options: Any) -> Bench:
        made.append(Bench(limits, **options))
        return made[-1]

    yield build
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make(Limits(inflight=1))


def task(agent: str = "ann", **fields: Any) -> Request:
    return made(Request, agent, "echo", "builtin", **fields)


class Broken:
    """Has a method raise a number of times, before or after it does what it does."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str, times: int = 1) -> None:
        self.left = times
        self.calls = 0
        self.after = False
        self.only: Callable[..., bool] = lambda *_: True
        original = getattr(owner, name)

        def broken(*args: Any, **more: Any) -> Any:
            if not (self.left and self.only(*args)):
                return original(*args, **more)
            self.left -= 1
            self.calls += 1
            if self.after:
                original(*args, **more)
            msg = "a bug"
            raise ValueError(msg)

        patch.setattr(owner, name, broken)


def failures(bench: Bench) -> list[e.ActorFailed]:
    return [r.event for r in bench.records() if type(r.event) is e.ActorFailed]


# -- each actor


@pytest.mark.parametrize("after", [False, True])
def test_a_fault_in_the_dispatcher_leaves_no_lane_behind(
    make: Any, monkeypatch: pytest.MonkeyPatch, after: Any
) -> None:
    bench = make(Limits(inflight=3))
    broken = Broken(monkeypatch, DispatcherActor, "on_receive")
    broken.after = after
    names = [bench.submit(task()) for _ in range(21)]
    for _ in range(7):
        for name in bench.running:
            bench.end(name)
    assert broken.calls == 1
    assert {bench.state(name) for name in names} == {"succeeded"}
    assert len(failures(bench)) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("message", [m.StartAttempt, m.AttemptEnded])
def test_a_fault_in_the_pool_loses_no_slot_and_no_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, message: Any, after: Any
) -> None:
    broken = Broken(monkeypatch, WorkerPool, "on_receive")
    broken.only, broken.after = (lambda _self, got: type(got) is message), after
    first = bench.submit(task())
    bench.end(first, Outcome(ok=True, result=7))
    assert (bench.state(first), bench.task(first).result) == ("succeeded", 7)
    assert bench.shard.state.slots.total == 0
    bench.end(bench.submit(task()))


def test_an_attempt_that_nobody_runs_is_interrupted_and_runs_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broken(monkeypatch, WorkerPool, "_execute")
    name = bench.submit(task())
    assert bench.kinds(name)[-4:] == [
        "TaskStarted", "AttemptInterrupted", "TaskAssigned", "TaskStarted",
    ]  # fmt: skip
    bench.end(name)
    assert bench.state(name) == "succeeded"


@pytest.mark.parametrize("kind", ["timer", "queue"])
def test_a_moment_that_was_used_up_comes_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    now = bench.host.clock.now_us()
    name = bench.submit(task(not_before=now + 1_000_000, deadline=now + 9_000_000))
    late = bench.submit(task(timeout_ms=2000))
    broken = (
        Broken(monkeypatch, body_of(bench.shard.timer), "_send")
        if kind == "timer"
        else Broken(monkeypatch, agent_queue, "decide_release")
    )
    bench.wait(1)
    assert broken.calls == 1
    bench.wait(2)
    assert bench.task(late).error_code == "timeout"
    assert bench.state(name) == "running"
    bench.wait(10)
    assert bench.task(name).error_code == "deadline_exceeded"


def test_a_fault_in_the_webhook_loses_no_callback_and_waits_for_its_moment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [bench.submit(task(callback="https://one.example/")) for _ in range(2)]
    bench.end(names[0], BAD)
    bench.courier.sent[0][2](DeliveryReport(ok=False, status=500, error="no"))
    bench.host.run()
    Broken(monkeypatch, body_of(bench.shard.webhook), "_enqueue")
    bench.end(names[1])
    bench.wait(0)
    assert [sent[0] for sent in bench.courier.sent] == names
    bench.wait(1.5)
    assert [sent[0] for sent in bench.courier.sent] == [*names, names[0]]


def test_a_batch_is_finished_although_its_finish_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broken(monkeypatch, body_of(bench.shard.admission), "_finish")
    batch = bench.submit_batch(task())
    bench.end(batch.tasks[0].task)
    assert bench.kinds(batch.batch)[-1] == "BatchFinished"


@pytest.mark.parametrize("table", ["on_record", "on_durable"])
@pytest.mark.parametrize("event", [e.TaskAssigned, e.TaskSucceeded, e.TaskCancelled])
def test_what_hung_on_a_fact_follows_although_its_route_or_effect_failed(
    bench: Bench, table: str, event: Any
) -> None:
    def fails(record: Any) -> None:
        getattr(bench.shard.journal, table)[event] = original
        raise ValueError(record)

    original = getattr(bench.shard.journal, table)[event]
    getattr(bench.shard.journal, table)[event] = fails
    parent = bench.submit(task(callback="https://one.example/"))
    child = bench.submit(task(depends=(parent,), callback="https://one.example/"))
    other = bench.submit(task())
    bench.end(parent)
    bench.cancel(child)
    bench.wait(0)
    assert bench.running == [other]
    assert sorted(name for name, _, _ in bench.courier.sent) == [parent, child]
    assert [name for name, _ in bench.runner.aborted] == [child]
    assert len(failures(bench)) == 1


def test_who_asked_is_told_of_the_fault_unless_it_was_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = body_of(bench.shard.admission)
    Broken(monkeypatch, admission, "on_receive")
    with pytest.raises(InternalFault):
        bench.submit(task())
    broken = Broken(monkeypatch, admission, "on_receive")
    broken.after = True
    assert bench.state(bench.submit(task())) == "running"


# -- what fails every time


def test_an_attempt_that_never_starts_fails_its_task_and_holds_up_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = bench.submit(task("bad"))
    bench.end(poison)
    broken = Broken(monkeypatch, WorkerPool, "_start_attempt", 1 << 30)
    broken.only = lambda _self, message: message.task == "tsk_2"
    poison, good = bench.submit(task("bad")), bench.submit(task("good"))
    for _ in range(100):
        bench.wait(10)
        if good in bench.running:
            bench.end(good)
    assert bench.task(poison).error_code == "interrupted"
    assert bench.state(good) == "succeeded"
    assert len(failures(bench)) <= 10


@pytest.mark.parametrize("state", ["scheduled", "blocked", "ready"])
def test_a_task_that_rota_fails_on_twice_ends_where_it_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    now = bench.host.clock.now_us()
    running = bench.submit(task("bob"))
    if state == "scheduled":
        Broken(monkeypatch, agent_queue, "decide_release", 1 << 30)
        name = bench.submit(task(not_before=now + 1_000_000))
    elif state == "blocked":
        Broken(monkeypatch, dependents, "decide_cancel", 1 << 30)
        name = bench.submit(task(depends=(running,)))
        bench.end(running, BAD)
    else:
        Broken(monkeypatch, dispatcher, "decide_assignment", 1 << 30)
        name = bench.submit(task())
        bench.end(running)
    bench.wait(1000)
    assert bench.task(name).error_code == "internal_fault"
    assert bench.state(name) == ("failed" if state == "ready" else "cancelled")
    assert 1 <= len(failures(bench)) <= 2


def test_a_callback_that_rota_fails_on_twice_is_abandoned(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broken(monkeypatch, body_of(bench.shard.webhook), "_enqueue", 1 << 30)
    name = bench.submit(task(callback="https://one.example/"))
    bench.end(name)
    bench.wait(100)
    assert bench.kinds(name)[-1] == "DeliveryAbandoned"
    assert bench.shard.state.deliveries.pending == {}


def test_a_handler_that_always_fails_floods_neither_the_log_nor_the_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(monkeypatch, DispatcherActor, "on_receive", 1 << 30)
    for n in range(200):
        bench.submit(task(f"agent-{n}"))
        bench.wait(0.5)
    assert broken.calls > 200
    assert len(failures(bench)) < 20
    assert sum(failed.missed or 0 for failed in failures(bench)) > 100
    broken.left = 0
    bench.wait(200)
    assert len(bench.running) == 1


def test_a_gap_doubles_while_faults_go_on_and_is_short_again_after_them() -> None:
    gap, now = Gap(), 0
    waits = []
    for _ in range(9):
        wait = gap.wait_us(now)
        waits.append(wait // 1_000_000)
        now += wait
        gap.pass_by(now)
    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 64]
    assert gap.wait_us(now + 10 * mending.GAP_US_MAX) == 0


# -- the journal


def test_of_events_that_are_recorded_together_all_can_be_written_or_none_is_a_fact(
    bench: Bench,
) -> None:
    journal, before = bench.shard.journal, bench.shard.state.digest()
    with pytest.raises(NotWritable):
        journal.record(e.AgentPaused("ann"), e.AgentPaused("bob", {1}))  # type: ignore[arg-type]
    assert bench.shard.state.digest() == before
    assert journal.failure is None
    bench.pause_agent("ann")
    bench.check_replay()


def test_a_result_that_cannot_be_written_fails_its_task(bench: Bench) -> None:
    name = bench.submit(task())
    bench.end(name, Outcome(ok=True, result={1, 2}))
    assert bench.task(name).error_code == "bad_result"


def break_fold(bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: Any, times: int) -> Broken:
    """Have a fact not be folded, live; a replay folds it."""
    broken = Broken(monkeypatch, State, "apply", times)
    broken.only = lambda _state, record: type(record.event) is kind and record.seq > bench.durable
    return broken


@pytest.mark.parametrize("caught", [False, True])
def test_a_fact_that_cannot_be_folded_degrades_the_shard_until_it_is_rebuilt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caught: Any
) -> None:
    bench.durable = 1 << 60  # type: ignore[attr-defined]
    name = bench.submit(task())
    broken = break_fold(bench, monkeypatch, e.TaskSucceeded, 1)
    bench.durable = bench.shard.journal.durable_seq  # type: ignore[attr-defined]
    if caught:
        receive = WorkerPool.on_receive

        def deaf(self: WorkerPool, message: Any) -> None:
            with suppress(ValueError):
                receive(self, message)

        monkeypatch.setattr(WorkerPool, "on_receive", deaf)
    bench.end(name)
    assert broken.calls == 1
    assert "could not be recorded" in bench.shard.degraded
    with pytest.raises(StorageUnavailable):
        bench.submit(task())
    bench.wait(5)
    assert bench.shard.degraded == ""
    bench.end(name)
    assert bench.state(name) == "succeeded"


def test_a_fold_that_fails_after_every_recovery_ends_the_server(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal: list[Any] = []
    bench = make(Limits(), on_fatal=fatal.append)
    bench.durable = 1 << 60
    name = bench.submit(task())
    bench.durable = bench.shard.journal.durable_seq
    broken = break_fold(bench, monkeypatch, e.AttemptInterrupted, 1 << 30)
    bench.shard.journal.stop(ValueError("the first"))
    for _ in range(100):
        bench.wait(1)
    assert len(fatal) == 1
    assert isinstance(fatal[0], Unfolded)
    assert bench.shard.degraded
    assert broken.calls == mending.STOPS_MAX - 1
    assert name


def test_an_illegal_move_is_not_written_and_the_shard_is_rebuilt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, waiting = bench.submit(task()), bench.submit(task())
    bench.end(ended)
    end = bench.log.head()

    def lenient(task: Any, reason: str, *_more: Any) -> e.TaskCancelled:
        return e.TaskCancelled(task.id, task.agent, task.state.value, reason)

    with monkeypatch.context() as patch:
        patch.setattr(agent_queue, "decide_cancel", lenient)
        with pytest.raises((InternalFault, StorageUnavailable)):
            bench.cancel(ended)
    assert "TaskCancelled is no legal move" in bench.shard.degraded
    assert bench.log.head() == end
    bench.wait(5)
    assert bench.shard.degraded == ""
    assert bench.state(ended) == "succeeded"
    bench.end(waiting)
    assert bench.state(waiting) == "succeeded"


@pytest.mark.parametrize("use_snapshots", [False, True])
def test_a_log_with_an_illegal_move_is_not_folded(*, use_snapshots: bool) -> None:
    log = MemoryLog()
    log.append(chained(records_of([submitted(), succeeded()])), 0, 0)
    with pytest.raises(LogCorrupt, match="record 2 does not fold: TaskSucceeded") as caught:
        rebuild(log, use_snapshots=use_snapshots)
    assert caught.value.seq == 2
    assert rebuild(log, until_seq=1).tasks.by_id["t1"].state == "ready"


def test_a_record_that_comes_in_while_the_state_is_rebuilt_is_no_contradiction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committer may write what it was handed before it hears that the journal has stopped."""
    bench.submit(task())
    held: list[Any] = []
    bench.shard.journal._hand_over = held.append
    bench.shard.journal.record(e.AgentPaused("ann"))
    bench.host.run()

    def late(log: Any, **options: Any) -> State:
        state = rebuild(log, **options)
        while held:
            records = held.pop(0)
            log.append(records, records[0].seq - 1, log.epoch())
        return state

    monkeypatch.setattr(recovery, "rebuild", late)
    bench.shard.journal.stop(ValueError("a bug"))
    bench.wait(5)
    assert bench.shard.degraded == ""
    assert "ann" in bench.shard.state.control.paused


# -- who gets the slot of what has ended


def test_what_an_end_releases_takes_part_in_who_gets_its_slot(bench: Bench) -> None:
    first = bench.submit(task())
    critical = bench.submit(task(depends=(first,), priority=0))
    bench.submit(task(priority=3))
    bench.end(first)
    assert bench.running == [critical]


def test_of_many_dependents_the_best_take_part(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=5000, queued_per_agent=5000))
    first = bench.submit(task())
    low = bench.submit(task(priority=2))
    for _ in range(500):
        bench.submit(task(depends=(first,), priority=3))
    best = bench.submit(task(depends=(first,), priority=0))
    bench.end(first)
    assert bench.running == [best]
    bench.end(best)
    assert bench.running == [low]


def test_an_attempt_without_a_backoff_takes_part_at_once(bench: Bench) -> None:
    urgent = bench.submit(task(priority=0, retry=RETRY))
    bench.submit(task(priority=3))
    bench.end(urgent, BAD)
    assert bench.running == [urgent]
    assert bench.task(urgent).attempt == 2


def test_the_rest_of_a_bounded_batch_takes_part(bench: Bench) -> None:
    batch = bench.submit_batch(task(priority=0), task(priority=0), parallelism=1)
    bench.submit(task(priority=3))
    bench.end(batch.tasks[0].task)
    assert bench.running == [batch.tasks[1].task]


def test_a_preempting_task_behind_a_polite_one_takes_its_place(bench: Bench) -> None:
    low = bench.submit(task(priority=3))
    polite = bench.submit(task(priority=0))
    urgent = bench.submit(task(priority=0, preempt=True))
    assert bench.running == [urgent]
    assert bench.kinds(low)[-1] == "AttemptInterrupted"
    bench.end(urgent, GOOD)
    assert bench.running == [polite]

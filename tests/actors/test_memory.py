"""What is kept in memory, by bytes and by count, and what becomes of the rest."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import BAD, Bench
from support.wishes import changed

from rota.actors import messages as m
from rota.actors.queues import QUEUE_ACTORS_IDLE_MAX
from rota.actors.recovery import rebuild
from rota.actors.runtime import body_of
from rota.domain import admission
from rota.domain.commands import Limits, Outcome
from rota.domain.intake import Request
from rota.domain.refusals import RECORDS_PER_S
from rota.domain.tokens import LOCAL
from rota.errors import QueueFull
from rota.projections import stats
from rota.projections.tasks import REJECTED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

ECHO = Request("ann", "echo", "builtin")
WAITS = Request("ann", "waits", "pull")
LONG = {"long": "x" * 5000}


@pytest.fixture
def make() -> Iterator[Any]:
    """Make benches that are closed after the test."""
    made: list[Bench] = []

    def new(**limits: Any) -> Bench:
        given = {
            "queued": 100_000,
            "queued_per_agent": 100_000,
            "inflight_per_agent": 20,
            "push": 20,
        }
        made.append(Bench(Limits(**{**given, **limits})))
        return made[-1]

    yield new
    for bench in made:
        bench.close()


def run(bench: Bench, command: Request = ECHO, outcome: Outcome | None = None) -> str:
    """Submit a task and end it."""
    task = bench.submit(command)
    bench.end(task, outcome or Outcome(ok=True))
    return task


def test_refusals_beyond_a_rate_become_one_record_a_second(make: Any) -> None:
    bench = make(queued=1)
    bench.submit(WAITS)
    long = WAITS._replace(params=LONG, ref="r" * 200, callback="https://example.com/" + "c" * 1000)
    before = bench.shard.state.seq
    answers = bench.offer(*[long] * 16_000)
    assert {type(answer) for answer in answers} == {m.Refused}
    assert sum(answer.counted for answer in answers) == 16_000 - RECORDS_PER_S
    assert bench.shard.state.seq == before + RECORDS_PER_S
    assert bench.shard.state.stats.all_time()["rejected"] == 16_000
    assert bench.shard.state.stats.agents_since_start()["ann"]["rejected"] == 16_000
    bench.wait(1)
    assert bench.shard.state.seq == before + RECORDS_PER_S + 1
    assert bench.shard.state.stats.totals["rejected"] == 16_000
    assert sum(len(item.body) for item in bench.log.read(before, 1000)) < 50_000
    bench.wait(10)
    assert bench.shard.state.seq == before + RECORDS_PER_S + 1  # nothing goes on counting
    bench.check_replay()


def test_few_rejected_tasks_are_in_memory_and_all_that_are_recorded_are_found(make: Any) -> None:
    bench = make(queued=1)
    bench.submit(WAITS)
    seen = []
    for _ in range(REJECTED_MAX // RECORDS_PER_S + 2):
        seen += bench.offer(*[WAITS] * RECORDS_PER_S)
        bench.wait(1)
    state = bench.shard.state
    assert len(state.tasks) == len(state.tasks.rejected) + 1 == REJECTED_MAX + 1
    assert bench.state(seen[0].task) == bench.state(seen[-1].task) == "rejected"
    bench.wait(301)
    assert len(state.tasks) == 1
    assert len(state.tasks.rejected) == 0
    bench.check_replay()


def test_a_refused_batch_is_counted_alike(make: Any) -> None:
    bench = make(queued=1)
    bench.submit(WAITS)
    named = 0
    for _ in range(RECORDS_PER_S + 5):
        with pytest.raises(QueueFull) as refused:
            bench.submit_batch(WAITS)
        named += "batchId" in refused.value.details
    assert named == RECORDS_PER_S
    bench.wait(1)
    assert bench.records()[-1].event.batches == 5
    bench.check_replay()


def test_ended_tasks_leave_memory_when_they_have_too_many_bytes(make: Any) -> None:
    bench = make(ended_bytes=50_000)
    tasks = [run(bench, outcome=Outcome(ok=True, result=LONG)) for _ in range(30)]
    state = bench.shard.state
    assert len(state.tasks) == 8
    assert state.tasks.ended_bytes <= 50_000
    assert bench.task(tasks[0]).result == LONG
    bench.check_replay()
    bench.crash()
    bench.check_replay()


def test_one_task_that_is_more_than_all_may_be_stays_until_the_next(make: Any) -> None:
    bench = make(ended_bytes=1000, ended=1)
    large = run(bench, outcome=Outcome(ok=True, result=LONG))
    assert list(bench.shard.state.tasks.by_id) == [large]
    after = run(bench)
    assert list(bench.shard.state.tasks.by_id) == [after]
    bench.check_replay()


def test_ended_tasks_leave_memory_by_the_clock_while_nothing_happens(make: Any) -> None:
    bench = make(result_ttl_s=10)
    tasks = [run(bench, changed(ECHO, idempotency=f"k{n}", digest="d")) for n in range(5)]
    seq = bench.shard.state.seq
    bench.wait(10)
    assert len(bench.shard.state.tasks) == 0
    assert len(bench.shard.state.keys.held) == 5
    bench.wait(24 * 3600)
    assert len(bench.shard.state.keys.held) == 0
    assert bench.shard.state.seq == seq
    assert bench.state(tasks[0]) == "succeeded"
    assert bench.host.later == [] or all(handle.cancelled for _, _, handle in bench.host.later)
    bench.check_replay()


def test_what_left_memory_is_let_go_of_when_it_is_durable(make: Any) -> None:
    bench = make(ended=1)
    for _ in range(5):
        run(bench)
    assert bench.shard.archive._attic == {}


def test_what_is_read_from_the_log_to_decide_is_read_without_its_texts(make: Any) -> None:
    bench = make(ended=1)
    large = Outcome(ok=True, result="x" * (1 << 20))
    tasks = [run(bench, outcome=large) for _ in range(5)][:-1]
    seen: list[Any] = []
    bench.shard.archive.fetch(tasks, None, seen.append, seen.append)
    bench.host.run()
    [fetched] = seen
    found = [fetched.found[task].value for task in tasks]
    assert [(each.state, each.result_json) for each in found] == [("succeeded", None)] * 4


def test_what_waits_is_bounded_in_bytes(make: Any) -> None:
    bench = make(queued_bytes=20_000)
    large = WAITS._replace(params=LONG)
    answers = bench.offer(*[large] * 10)
    assert sum(type(answer) is m.Admitted for answer in answers) == 2
    assert answers[-1].code == "queue_full"
    assert answers[-1].error == admission.BYTES_SHARE_FULL
    with pytest.raises(QueueFull, match="maxQueueBytes"):
        bench.submit_batch(WAITS)
    for agent in ("b", "c"):
        other = large._replace(agent=agent, by=LOCAL)
        assert type(bench.offer(other)[0]) is m.Admitted, "agents without tokens have shares"
    assert bench.offer(large._replace(by="crawler#3"))[0].error == admission.BYTES_FULL
    bench.cancel(answers[0].task)
    assert type(bench.offer(large._replace(by="crawler#3"))[0]) is m.Admitted
    bench.check_replay()


def test_agents_that_come_and_go_leave_no_actors_and_few_counters(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "AGENTS_KEPT", 50)
    bench = make()
    many = QUEUE_ACTORS_IDLE_MAX * 3
    answers = bench.offer(*[WAITS._replace(agent=f"agent-{n}") for n in range(many)])
    assert len(bench.shard.cast.queues) <= QUEUE_ACTORS_IDLE_MAX
    assert len(bench.shard.state.stats.agents) == many
    for answer in answers:
        bench.cancel(answer.task)
    state = bench.shard.state
    assert len(bench.shard.cast.queues) <= QUEUE_ACTORS_IDLE_MAX
    assert len(state.stats.agents) == 50
    assert state.stats.rest["cancelled"] == many - 50
    assert (state.backlog.orders, state.backlog.bytes) == ({}, 0)
    bench.check_replay()


def test_an_agent_that_only_submits_and_runs_tasks_has_no_queue_started(make: Any) -> None:
    bench = make()
    task = run(bench)
    bench.submit(WAITS)
    assert bench.state(task) == "succeeded"
    assert bench.shard.cast.queues == {}
    bench.pause_agent("ann")
    assert list(bench.shard.cast.queues) == ["ann"]


def test_pauses_are_bounded_in_number(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PAUSES_MAX", 2)
    monkeypatch.setattr(admission, "TYPE_PAUSES_MAX", 2)
    bench = make()
    for pause in (bench.pause_agent, bench.pause_type):
        pause("one")
        pause("two")
        pause("two")
        with pytest.raises(QueueFull) as refused:
            pause("three")
        assert refused.value.code == "too_many_pauses"
        pause("one", paused=False)
        pause("three")


def test_a_forgotten_task_lives_again_with_all_it_had(make: Any) -> None:
    bench = make(ended=1)
    said = changed(
        ECHO, params=LONG, idempotency="i", digest="0" * 32, key="k", ref="r", priority=1
    )
    task = run(bench, said, BAD)
    before = bench.task(task)
    run(bench)
    assert bench.shard.state.tasks.get(task) is None
    bench.revive(task)
    again = bench.shard.state.tasks.get(task)
    assert (again.params, again.plan, again.created_seq) == (LONG, before.plan, before.created_seq)
    bench.check_replay()
    bench.crash()
    bench.check_replay()
    assert bench.running == [task]
    bench.end(task)
    assert bench.state(task) == "succeeded"
    assert bench.offer(said)[0].known == "idempotent"


def test_a_forgotten_batch_comes_back_with_its_task_and_finishes_again(make: Any) -> None:
    bench = make(result_ttl_s=1)
    answer = bench.submit_batch(ECHO, ECHO)
    first, second = (each.task for each in answer.tasks)
    bench.end(first, BAD)
    bench.end(second)
    bench.wait(2)
    assert bench.shard.state.batches.by_id == {}
    bench.revive(first)
    batch = bench.shard.state.batches.get(answer.batch)
    assert batch.fates == {"succeeded": 1, "failed": 0, "cancelled": 0}
    bench.end(first)
    assert bench.kinds(answer.batch).count("BatchFinished") == 2
    found = bench.batch(answer.batch)
    assert found.fates == {"succeeded": 2, "failed": 0, "cancelled": 0}
    bench.check_replay()


def test_a_snapshot_has_what_was_brought_back(make: Any) -> None:
    bench = make(ended=1)
    task = run(bench, outcome=BAD)
    run(bench)
    bench.revive(task)
    state = rebuild(bench.log, use_snapshots=False)
    assert type(state).load(state.dump()).digest() == state.digest() == bench.shard.state.digest()
    assert [t.id for t in state.tasks.in_order()] == sorted(state.tasks.by_id, key=len)


def test_longer_retention_does_not_bring_back_what_was_forgotten(make: Any) -> None:
    bench = make(result_ttl_s=1)
    run(bench)
    bench.wait(2)
    assert len(bench.shard.state.tasks) == 0
    longer = bench.limits._replace(result_ttl_s=300)
    bench.ask(bench.shard.admission, lambda reply: m.ChangeLimits(longer, "test", "", reply))
    bench.check_replay()


def test_a_queue_that_is_retired_is_freed_at_once(make: Any) -> None:
    bench = make()
    gone = weakref.ref(body_of(bench.shard.queue("ann")))
    gc.disable()
    try:
        for n in range(QUEUE_ACTORS_IDLE_MAX):
            bench.shard.queue(f"agent-{n}")
        assert gone() is None
    finally:
        gc.enable()
    bench.submit(WAITS)

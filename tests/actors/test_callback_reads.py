"""What a callback tells of and has left memory is read beside the loop, when its turn has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import GOOD, SlowBench

from rota.actors import messages as m
from rota.actors.runtime import body_of
from rota.domain.commands import Limits
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import Request
from rota.errors import LogUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.actors.webhook import WebhookActor

LIMITS = Limits(queued=500, queued_per_agent=500, inflight=500, inflight_per_agent=500, push=500)
HOOK = "https://one.example/hook"
OK = DeliveryReport(ok=True, status=200, duration_ms=5)
LATER = DeliveryReport(ok=False, status=503, error="later", retry_after_s=60, duration_ms=5)


@pytest.fixture
def bench() -> Iterator[SlowBench]:
    made = SlowBench(LIMITS._replace(result_ttl_s=5), deliveries_per_host=4, deliveries_max=16)
    yield made
    made.check_replay()
    made.close()


def webhook(bench: SlowBench) -> WebhookActor:
    actor: WebhookActor = body_of(bench.shard.webhook)
    return actor


def sent(bench: SlowBench) -> list[str]:
    return [each.task for each in bench.courier.sent]


def end_task(bench: SlowBench, **fields: Any) -> str:
    held, bench.reads = bench.reads, []
    task = bench.submit(Request("ann", "work", "http", callback=HOOK, **fields))
    bench.end(task, GOOD)
    bench.reads += held
    return task


def put_off(bench: SlowBench) -> None:
    """Have what is being sent be wanted later, and leave memory; then its time comes."""
    bench.deliver(LATER)
    bench.wait(30)
    bench.submit(Request("bob", "work", "http"))  # news: what is old is forgotten
    bench.wait(31)


def gone(bench: SlowBench) -> str:
    """Have a task whose callback is due, and that is being read for it."""
    task = end_task(bench)
    put_off(bench)
    assert task not in bench.shard.state.tasks.by_id
    assert (len(bench.reads), sent(bench)) == (1, [])
    return task


def owe_again(bench: SlowBench) -> None:
    bench.shard.timer.tell(m.DeriveMoments())
    bench.wait(1)


def tries(bench: SlowBench, task: str) -> int:
    return bench.shard.state.deliveries.pending[task].tries


def test_a_read_that_hangs_holds_up_no_other_callback(bench: SlowBench) -> None:
    task = gone(bench)
    others = [end_task(bench) for _ in range(3)]
    assert sent(bench) == others, "the same host, and its own place"
    assert bench.deliver(OK) == others
    bench.let_read()
    assert [(each.task, each.state) for each in bench.courier.sent] == [(task, "succeeded")]
    bench.deliver(OK)
    assert bench.shard.state.deliveries.pending == {}
    assert webhook(bench).receivers.active == 0


def test_what_is_in_memory_is_not_read(bench: SlowBench) -> None:
    task = end_task(bench)
    assert sent(bench) == [task]
    assert bench.fetched == 0


def test_a_batch_is_told_of_with_its_tasks(
    bench: SlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    deliver = bench.courier.deliver

    def look(subject: Any, tasks: Any, *rest: Any) -> None:
        told.append((subject.id, [(task.id, task.state.value, task.result) for task in tasks]))
        deliver(subject, tasks, *rest)

    monkeypatch.setattr(bench.courier, "deliver", look)
    answer = bench.submit_batch(*[Request("ann", "work", "http")] * 3, callback=HOOK)
    tasks = [each.task for each in answer.tasks]
    for n, task in enumerate(tasks):
        bench.succeed(task, {"n": n})
    put_off(bench)
    assert len(bench.reads) == 1
    bench.let_read()
    assert bench.fetched == 2, "the batch, then all of its tasks at once"
    first, second = told
    assert (
        first == second == (answer.batch, [(t, "succeeded", {"n": n}) for n, t in enumerate(tasks)])
    )


def test_a_reset_holds_no_place_and_what_is_read_then_starts_no_try(bench: SlowBench) -> None:
    task = gone(bench)
    actor = webhook(bench)
    actor.reset()
    assert (actor.receivers.active, actor.receivers.waiting) == (0, 0)
    bench.let_read()
    assert sent(bench) == []
    owe_again(bench)
    bench.let_read()
    assert sent(bench) == [task]
    assert bench.deliver(OK) == [task]


def test_the_answer_to_the_read_before_a_reset_counts_for_nothing(bench: SlowBench) -> None:
    task = gone(bench)
    webhook(bench).reset()
    owe_again(bench)
    before, after = bench.reads
    bench.reads = []
    before()
    bench.run()
    assert sent(bench) == []
    after()
    bench.run()
    assert sent(bench) == [task]
    assert webhook(bench).receivers.active == 1


def test_a_read_that_is_answered_twice_starts_one_try(bench: SlowBench) -> None:
    task = gone(bench)
    bench.reads *= 2
    bench.let_read()
    assert sent(bench) == [task]
    assert webhook(bench).receivers.active == 1


def test_who_drains_meanwhile_sends_nothing_and_owes_it_still(bench: SlowBench) -> None:
    task = gone(bench)
    bench.shard.cast.drain()
    bench.run()
    assert webhook(bench).receivers.active == 0
    bench.let_read()
    assert sent(bench) == []
    bench.crash()
    bench.wait(1)
    bench.let_read()
    assert sent(bench) == [task]


def test_who_was_revived_meanwhile_is_told_of_when_it_ends_again(bench: SlowBench) -> None:
    task = bench.submit(Request("ann", "work", "http", callback=HOOK))
    bench.fail(task)
    put_off(bench)
    reviving = bench.asked(bench.shard.queue("ann"), lambda reply: m.ReviveTask(task, "", reply))
    bench.reads.reverse()  # it is alive again when the callback's read is answered
    bench.let_read()
    assert ([each.task for each in reviving.answers], sent(bench)) == ([task], [])
    bench.succeed(task)
    assert [(each.task, each.state) for each in bench.courier.sent] == [(task, "succeeded")]


def test_what_the_log_cannot_give_yet_is_owed_again_and_no_try_is_spent(
    bench: SlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Any:
        raise LogUnusable("it is being opened anew")

    task = gone(bench)
    with monkeypatch.context() as patch:
        patch.setattr(bench.log, "known_of", broken)
        bench.let_read()
        other = end_task(bench)
        assert (bench.deliver(), tries(bench, task)) == ([other], 1)
    bench.wait(2)
    bench.let_read()
    assert (sent(bench), tries(bench, task)) == ([task], 1)


def test_a_record_that_cannot_be_read_is_a_failed_try(
    bench: SlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Any:
        raise ValueError("what is this?")

    task = gone(bench)
    monkeypatch.setattr(bench.log, "known_of", broken)
    bench.let_read()
    assert (sent(bench), tries(bench, task)) == ([], 2)
    assert webhook(bench).receivers.active == 0


def test_the_age_of_what_is_owed_is_known_without_a_read(bench: SlowBench) -> None:
    gone(bench)
    before = bench.fetched
    assert webhook(bench).oldest_s(bench.clock.now_us()) == 61
    assert bench.fetched == before
    bench.crash(away_s=9)
    assert webhook(bench).oldest_s(bench.clock.now_us()) == 70

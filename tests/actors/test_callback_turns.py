"""The webhook actor keeps its bounds, loses no place to a fault, and knows what is owed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import GOOD, Bench

from rota.actors.messages import CallbackReported
from rota.actors.runtime import body_of
from rota.actors.webhook import WebhookActor
from rota.domain.commands import Limits
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

OK = DeliveryReport(ok=True, status=200, duration_ms=5)
SILENCE = DeliveryReport(ok=False, error="no answer within 10 s", duration_ms=10_000)


@pytest.fixture
def bench() -> Iterator[Bench]:
    limits = Limits(
        queued=500, queued_per_agent=500, inflight=500, inflight_per_agent=500, push=500
    )
    made = Bench(limits, deliveries_per_host=4, deliveries_max=16)
    yield made
    made.close()


def end_tasks(bench: Bench, host: str, count: int) -> list[str]:
    """Have so many tasks end whose callbacks go to a host."""
    command = Request("ann", "work", "http", callback=f"https://{host}/hook")
    tasks = [bench.submit(command) for _ in range(count)]
    for task in tasks:
        bench.runner.running[task][1](GOOD)
    bench.host.run()
    return tasks


def report(bench: Bench, said: DeliveryReport, *tasks: str) -> None:
    for task, _, done in list(bench.courier.sent):
        if task in tasks:
            done(said)
    bench.host.run()


def sent(bench: Bench) -> list[str]:
    return [task for task, _, _ in bench.courier.sent]


def test_a_host_gets_as_many_at_once_as_is_set(bench: Bench) -> None:
    tasks = end_tasks(bench, "one.example", 9)
    assert sent(bench) == tasks[:4]
    report(bench, OK, tasks[0], tasks[1])
    assert sent(bench) == tasks[:6]


def test_hosts_that_hang_do_not_hold_up_one_that_answers(bench: Bench) -> None:
    report(bench, OK, *end_tasks(bench, "good.example", 1))
    for n in range(50):
        end_tasks(bench, f"hangs{n}.example", 4)
    later = end_tasks(bench, "good.example", 2)
    assert sent(bench)[-2:] == later


def test_a_host_that_does_not_answer_is_tried_one_at_a_time(bench: Bench) -> None:
    tasks = end_tasks(bench, "down.example", 9)
    report(bench, SILENCE, *tasks[:4])
    assert sent(bench) == tasks[:5]


def test_a_fault_costs_no_place_and_no_callback(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = WebhookActor.on_receive
    faults = iter([True] * 3)

    def faulty(self: Any, message: Any) -> None:
        if type(message) is CallbackReported and next(faults, False):
            raise ValueError("a fault")
        receive(self, message)

    monkeypatch.setattr(WebhookActor, "on_receive", faulty)
    tasks = end_tasks(bench, "one.example", 9)
    for _ in range(20):
        report(bench, OK, *tasks)
        bench.wait(5)
    actor = body_of(bench.shard.webhook)
    assert bench.shard.state.deliveries.pending == {}
    assert (actor.receivers.active, actor.receivers.waiting) == (0, 0)


def test_a_try_that_reports_twice_gives_one_place_back(bench: Bench) -> None:
    tasks = end_tasks(bench, "one.example", 6)
    report(bench, OK, tasks[0])
    report(bench, OK, tasks[0])
    assert body_of(bench.shard.webhook).receivers.active == 4


def test_the_oldest_callback_is_known_by_when_its_task_ended(bench: Bench) -> None:
    actor = body_of(bench.shard.webhook)
    assert actor.oldest_s(bench.shard.journal.now()) == 0
    tasks = end_tasks(bench, "one.example", 1)
    report(bench, SILENCE, *tasks)
    bench.host.run_until(bench.host.clock.now_us() + 900_000)
    end_tasks(bench, "two.example", 1)
    bench.host.run_until(bench.host.clock.now_us() + 700_000)
    assert actor.oldest_s(bench.host.clock.now_us()) == 1
    report(bench, OK, tasks[0])
    assert actor.oldest_s(bench.host.clock.now_us()) == 0

"""The timer: a clock that is set, and a fault in the middle of a tick, lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import BAD, Bench
from support.builders import submitted
from support.wishes import changed

from rota.actors import messages as m
from rota.actors.archive import Archive
from rota.actors.failover import Phase
from rota.actors.moments import Moments
from rota.actors.new_ids import NewIds
from rota.clock import ManualClock
from rota.domain import events as e
from rota.domain.commands import SubmitTask
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import Request
from rota.errors import LogUnusable
from rota.eventlog.committer import CommitFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

ECHO = Request("ann", "echo", "builtin")
RETRY = {"kind": "fixed", "base_ms": 10_000, "max_attempts": 2}
HOUR_US = 3_600_000_000


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def set_clock(bench: Bench, by_us: int) -> None:
    """Set the clock, and have the server look at it."""
    assert isinstance(bench.host.clock, ManualClock)
    bench.host.clock.step_us(by_us)
    bench.shard.timekeeper.look()
    bench.host.run()


@pytest.mark.parametrize("by_us", [HOUR_US, -HOUR_US])
def test_everything_that_waits_for_a_moment_is_armed_anew(bench: Bench, by_us: int) -> None:
    wall = bench.host.clock.now_us()
    delayed = bench.submit(changed(ECHO, delay_ms=10_000))
    slow = bench.submit(ECHO._replace(timeout_ms=10_000))
    failed = bench.submit(changed(ECHO, retry=RETRY))
    bench.end(failed, BAD)
    told = bench.submit(ECHO._replace(callback="http://one.test/"))
    bench.end(told)
    bench.courier.sent.pop()[2](DeliveryReport(ok=False, error="later", retry_after_s=10.0))
    bench.host.run()
    waits = bench.submit(changed(ECHO, executor="pull", queue_timeout_ms=10_000))
    dated = bench.submit(ECHO._replace(executor="pull", deadline=wall + 2 * HOUR_US))
    set_clock(bench, by_us)
    bench.wait(9.9)
    assert [bench.state(each) for each in (delayed, failed, slow, waits, dated)] == [
        "scheduled",
        "scheduled",
        "running",
        "ready",
        "ready",
    ]
    assert bench.courier.sent == []
    bench.wait(0.1)
    assert bench.state(delayed) == bench.state(failed) == "running"
    assert bench.state(slow) == bench.state(waits) == "failed"
    assert [sent[0] for sent in bench.courier.sent] == [told]
    left_s = (2 * HOUR_US - by_us) / 1e6 - 10
    bench.wait(left_s - 1)
    assert bench.state(dated) == "ready"
    bench.wait(1)
    assert bench.task(dated).error_code == "deadline_exceeded"
    bench.check_replay()


def test_a_clock_that_is_set_while_the_server_is_down_is_told_at_its_start(bench: Bench) -> None:
    set_clock(bench, HOUR_US)
    delayed = bench.submit(changed(ECHO, delay_ms=10_000))
    assert isinstance(bench.host.clock, ManualClock)
    bench.host.clock.step_us(-HOUR_US)
    bench.close()
    bench.host.clock.begin_anew()
    bench.start()
    kinds = [type(record.event) for record in bench.records()[-2:]]
    assert kinds == [e.ClockStepped, e.ServerStarted]
    bench.wait(10)
    assert bench.state(delayed) == "running"
    bench.check_replay()


@pytest.mark.parametrize("by_us", [HOUR_US, -HOUR_US])
def test_a_step_that_was_lost_with_the_disk_ages_nothing_that_is_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by_us: int
) -> None:
    task = bench.submit(ECHO)
    bench.end(task)
    before, shard = bench.host.clock.now_us(), bench.shard

    def fails() -> None:
        raise LogUnusable("No space left on device")

    def lost(_: Any) -> None:
        bench.host.soon.append(lambda: shard.on_report(CommitFailed(LogUnusable("disk full"))))

    monkeypatch.setattr(shard.journal, "_hand_over", lost)
    monkeypatch.setattr(bench.log, "reopen", fails)
    set_clock(bench, by_us)
    bench.wait(0.2)
    assert shard.failover.phase is Phase.READ_ONLY
    assert shard.state.steps.shift == 0, "the log has not heard of it"
    assert shard.journal.now() == before + 200_000
    assert shard.state.tasks.is_kept(shard.state.tasks.by_id[task], shard.journal.now())


class Unread:
    """A log that nobody may read any more."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_ids_of_a_time_that_comes_again_are_not_given_twice_and_no_log_is_read_for_them(
    bench: Bench,
) -> None:
    def begun() -> NewIds:
        """Begin as a process does, over what is in the log."""
        ids = NewIds()
        ids.join(bench.shard.journal, Archive(bench.shard.journal, Unread(), bench.host))  # type: ignore[arg-type]
        ids.go_on_after(bench.log, bench.shard.state)
        return ids

    given: list[str] = []

    def give(ids: NewIds) -> None:
        task = ids.of_task(SubmitTask("ann", "echo", "pull"), None)
        for each in (task, ids.of_batch("native"), ids.of_workflow(), ids.of_run()):
            given.append(each[4:])
            bench.shard.journal.record(submitted(each, executor="pull"))
        bench.host.run()

    ids = begun()
    give(ids)
    set_clock(bench, HOUR_US)
    for _ in range(500):
        give(ids)
    set_clock(bench, -2 * HOUR_US)
    give(ids)
    give(begun())
    assert sorted(set(given)) == sorted(given)
    assert min(given[-4:]) > max(given[:-4]), "a start goes on after what was given before it"


def test_a_fault_in_the_middle_of_a_tick_loses_no_moment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, faults = Moments.send, [RuntimeError("once")]

    def faulty(self: Moments, message: Any) -> None:
        if faults:
            raise faults.pop()
        send(self, message)

    tasks = [bench.submit(changed(ECHO, delay_ms=1000)) for _ in range(3)]
    monkeypatch.setattr(Moments, "send", faulty)
    body = bench.shard.timer.actor_inbox.actor  # type: ignore[attr-defined]
    body._send = lambda message: faulty(body._moments.__self__, message)
    bench.wait(2)
    assert [bench.state(each) for each in tasks] == ["running"] * 3
    failed = [r.event for r in bench.records() if type(r.event) is e.ActorFailed]
    assert [(event.actor, event.message) for event in failed] == [("TimerActor", "Tick")]


def test_moments_that_cannot_be_derived_are_derived_later(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, delay_ms=5000))
    body = bench.shard.timer.actor_inbox.actor  # type: ignore[attr-defined]
    moments, faults = body._moments, [RuntimeError("once")]

    def faulty() -> Any:
        if faults:
            raise faults.pop()
        return moments()

    body._moments = faulty
    body.actor_ref.tell(m.DeriveMoments())
    bench.wait(5)
    assert bench.state(task) == "running"

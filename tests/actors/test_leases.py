"""Leases in a shard: restarts, steps of the clock, workers that leave, parents, faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import SlowBench
from pykka import ActorRegistry

from rota.actors import lease_messages as lm
from rota.actors import messages as m
from rota.actors.leases import UNREAD_PAUSE_US, LeasesActor
from rota.actors.runtime import body_of
from rota.domain.commands import PULL, Limits, Outcome
from rota.domain.intake import Request
from rota.domain.leases import lease_id
from rota.domain.plan import Plan
from rota.domain.tokens import LOCAL
from rota.domain.wants import Filter, Wants
from rota.errors import Conflict, StorageUnavailable
from rota.testing.in_memory import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.actors.lent import Lent

FIT = Request("ann", "fit", PULL)
DONE = Outcome(ok=True, result={"fits": True})


class Asking(Reply):
    """A worker that waits, and may leave."""

    has_left = False

    def is_awaited(self) -> bool:
        return not (self.answers or self.has_left)


class LeaseBench(SlowBench):
    """A bench with workers; reads of the log are let through by the test."""

    def ask_for(self, worker: str = "ada", wait_s: int = 0, **wants: Any) -> Asking:
        asked = Wants(
            worker,
            (Filter(),),
            frozenset(),
            wants.get("most", 1),
            wants.get("lease_ms", 10_000),
            wants.get("start", False),
        )
        reply = Asking()
        self.shard.dispatcher.tell(lm.LendTasks(asked, wait_s * 1_000_000, reply))
        self.host.run()
        return reply

    def take(self, worker: str = "ada", **wants: Any) -> Lent:
        reply = self.ask_for(worker, **wants)
        self.let_read()
        [[lent]] = reply.answers
        found: Lent = lent
        return found

    def settle(self, lent: Lent, outcome: Outcome | None = DONE) -> Any:
        task = lent.task
        name = lease_id(task.id, lent.token)
        said = lm.LeaseOutcome(name, task.id, task.agent, lent.token, outcome)
        [answer] = self.ask(
            self.shard.leases, lambda reply: lm.SettleLeases((said,), None, LOCAL, reply)
        )
        return answer

    def beat(self, lent: Lent, lease_ms: int | None = None) -> Any:
        name = lease_id(lent.task.id, lent.token)
        return self.ask(
            self.shard.leases,
            lambda reply: lm.ExtendLease(
                name, lent.task.id, lent.token, None, (), "info", None, lease_ms, LOCAL, reply
            ),
        )


@pytest.fixture
def bench() -> Iterator[LeaseBench]:
    made = LeaseBench(Limits(result_ttl_s=1, sticky_ms=0))
    yield made
    made.close()
    made.check_replay()
    assert ActorRegistry.get_all() == []


def test_a_lease_expires_when_its_worker_was_silent_for_its_whole_length(bench: LeaseBench) -> None:
    task = bench.submit(FIT)
    lent = bench.take()
    bench.wait(9.9)
    assert bench.state(task) == "assigned"
    bench.wait(0.1)
    assert bench.state(task) == "ready"
    assert bench.kinds(task)[-2:] == ["LeaseExpired", "AttemptInterrupted"]
    assert isinstance(bench.settle(lent), Conflict)
    assert bench.kinds(task)[-1] == "ResultRefused"


@pytest.mark.parametrize(("per_key", "waits_s"), [(2, 0), (1, 1.5)])
def test_a_key_with_a_free_slot_is_kept_from_when_the_task_was_ready(
    per_key: int, waits_s: float
) -> None:
    bench = LeaseBench(Limits(sticky_ms=1500, per_key=per_key))
    bench.submit(FIT._replace(plan=Plan(key="shop")))
    lent = bench.take("ada")
    bench.submit(FIT._replace(plan=Plan(key="shop")))
    bench.wait(3)
    bench.settle(lent)
    waiting = bench.ask_for("ben", wait_s=5)
    if waits_s:
        assert not waiting.answers
        bench.wait(waits_s)
    bench.let_read()
    assert len(waiting.answers) == 1
    bench.close()


def test_a_heartbeat_lets_it_live_for_its_full_length_again(bench: LeaseBench) -> None:
    task = bench.submit(FIT)
    lent = bench.take()
    for _ in range(5):
        bench.wait(9)
        bench.beat(lent)
    bench.beat(lent, lease_ms=60_000)
    bench.wait(59)
    assert bench.state(task) == "running"
    assert bench.settle(lent).state == "succeeded"
    ended = next(r.event for r in bench.events(task) if type(r.event).__name__ == "LeaseEnded")
    assert (ended.extended, ended.gap_ms, ended.how) == (6, 59_000, "completed")  # type: ignore[union-attr]


def test_a_heartbeat_may_make_a_lease_shorter(bench: LeaseBench) -> None:
    task = bench.submit(FIT)
    lent = bench.take(lease_ms=3_600_000)
    assert bench.beat(lent, lease_ms=1000).expires_at == bench.clock.now_us() + 1_000_000
    bench.wait(0.9)
    assert bench.state(task) == "running"
    bench.wait(0.1)
    assert bench.state(task) == "ready"
    assert isinstance(bench.settle(lent), Conflict)


def test_every_lease_lives_for_its_full_length_from_a_restart(bench: LeaseBench) -> None:
    tasks = [bench.submit(FIT) for _ in range(2)]
    first, second = bench.take(), bench.take("ben")
    bench.wait(9)
    bench.crash(away_s=3600)
    bench.wait(9.9)
    assert [bench.state(task) for task in tasks] == ["assigned", "assigned"]
    assert bench.settle(first).state == "succeeded"
    bench.wait(0.2)
    assert bench.state(second.task.id) == "ready"
    assert "AttemptInterrupted" not in bench.kinds(first.task.id)


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_clock_that_is_set_makes_no_lease_shorter_or_longer(
    bench: LeaseBench, step_s: int
) -> None:
    task = bench.submit(FIT)
    bench.take()
    bench.wait(5)
    bench.clock.step_us(step_s * 1_000_000)
    bench.wait(4.5)
    assert bench.state(task) == "assigned"
    bench.wait(3)
    assert bench.state(task) == "ready"


def test_a_worker_that_left_before_its_grant_was_durable_loses_no_task(bench: LeaseBench) -> None:
    task = bench.submit(FIT)
    gone = Asking()
    wants = Wants("eve", (Filter(),), frozenset(), 1, 3_600_000)
    bench.shard.dispatcher.tell(lm.LendTasks(wants, 0, gone))
    gone_at_commit = bench.shard.journal.answer

    def leave(reply: Any, value: Any) -> None:
        gone.has_left = True
        gone_at_commit(reply, value)

    bench.shard.journal.answer = leave  # type: ignore[method-assign]
    bench.host.run()
    bench.shard.journal.answer = gone_at_commit  # type: ignore[method-assign]
    assert (gone.answers, bench.state(task), bench.task(task).attempt) == ([], "ready", 0)
    assert bench.take("ben").attempt == 1


def test_a_worker_that_leaves_while_it_waits_is_given_nothing(bench: LeaseBench) -> None:
    waiting = bench.ask_for(wait_s=60)
    waiting.has_left = True
    bench.shard.dispatcher.tell(lm.LeaveLine(waiting))
    task = bench.submit(FIT)
    assert (waiting.answers, bench.kinds(task)) == ([], ["TaskSubmitted"])


def test_a_worker_is_answered_when_its_wait_is_over(bench: LeaseBench) -> None:
    waiting = bench.ask_for(wait_s=5)
    bench.wait(4.9)
    assert waiting.answers == []
    bench.wait(0.2)
    assert waiting.answers == [[]]


def test_parents_that_have_left_memory_are_read_before_a_worker_hears(bench: LeaseBench) -> None:
    parent = bench.submit(FIT)
    bench.settle(bench.take())
    bench.wait(60)
    bench.submit(FIT._replace(agent="zoe"))
    assert bench.shard.state.tasks.get(parent) is None
    bench.settle(bench.take())
    params = {"x": "{{" + parent + ".fits}}"}
    reply = bench.offered(FIT._replace(depends=(parent,), params=params))
    bench.let_read()
    [[child]] = reply.answers
    asking = bench.ask_for()
    assert asking.answers == []
    bench.let_read()
    [[lent]] = asking.answers
    assert (lent.task.id, lent.params) == (child.task, b'{"x":true}')


def test_a_task_whose_parents_cannot_be_read_goes_back_after_a_moment(bench: LeaseBench) -> None:
    parent = bench.submit(FIT)
    bench.settle(bench.take())
    bench.wait(60)
    bench.submit(FIT._replace(agent="zoe"))
    bench.settle(bench.take())
    params = {"x": "{{" + parent + "}}"}
    reply = bench.offered(FIT._replace(depends=(parent,), params=params))
    bench.let_read()
    [[child]] = reply.answers
    asking = bench.ask_for()
    bench.reads.clear()
    bench.failing[-1](StorageUnavailable("the disk is away"))
    bench.host.run()
    assert (asking.answers, bench.state(child.task)) == ([[]], "assigned")
    bench.wait(UNREAD_PAUSE_US / 1_000_000)
    assert bench.state(child.task) == "ready"
    interrupted = bench.events(child.task)[-1].event
    assert interrupted.reason == "results not read"  # type: ignore[union-attr]
    bench.reads.clear()


def test_an_actor_that_fails_keeps_its_leases_and_their_moments(
    bench: LeaseBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = bench.submit(FIT)
    lent = bench.take()
    bench.wait(6)
    extend = LeasesActor._extend

    def broken(self: LeasesActor, message: Any) -> None:
        monkeypatch.setattr(LeasesActor, "_extend", extend)
        raise RuntimeError

    monkeypatch.setattr(LeasesActor, "_extend", broken)
    reply = bench.asked(
        bench.shard.leases,
        lambda reply: lm.ExtendLease(
            "x", task, lent.token, None, (), "info", None, None, LOCAL, reply
        ),
    )
    assert len(reply.answers) <= 1
    assert len(body_of(bench.shard.leases).live) == 1
    bench.wait(3)
    assert bench.state(task) == "assigned"
    bench.wait(2)
    assert bench.state(task) == "ready"
    bench.log = type(bench.log)()  # the fault is in the log, as it must be; judge nothing more
    bench.crash()


def test_a_retired_server_tells_whoever_waits(bench: LeaseBench) -> None:
    waiting = bench.ask_for(wait_s=60)
    bench.shard.cast.retire("the log is away")
    assert isinstance(waiting.answers[0], StorageUnavailable)
    bench.start()


def test_a_fault_right_after_the_clock_was_set_makes_no_lease_shorter(bench: LeaseBench) -> None:
    """A lease that begins anew by the new clock is not moved along by the step once more."""
    task = bench.submit(FIT)
    bench.take()
    bench.clock.step_us(-3600 * 1_000_000)
    leases = body_of(bench.shard.leases)
    bench.shard.timekeeper.look()
    leases.live.clear()
    leases.reset()
    bench.shard.leases.tell(m.LookAgain())
    bench.wait(9.5)
    assert bench.state(task) == "assigned"
    bench.wait(3)
    assert bench.state(task) == "ready"

"""A fault stays where it happens: in a courier, a runner, an actor, a timer."""

from __future__ import annotations

from typing import Any

import pytest
from pykka import ActorRegistry

from rota.actors import messages as m
from rota.actors.runtime import CooperativeActor, Runtime, body_of, retire
from rota.actors.system import Shard
from rota.actors.timer import TimerActor
from rota.clock import ManualClock
from rota.domain.commands import Limits, Outcome, SubmitTask
from rota.domain.delivery import DeliveryReport
from rota.domain.dispatch import Turns
from rota.eventlog.codec import KINDS, decode
from rota.eventlog.committer import Committed
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.replay import stored_of


class Host:
    """A loop that runs when told to."""

    def __init__(self) -> None:
        self.clock: Any = ManualClock()
        self.soon: list[Any] = []
        self.handles: list[Handle] = []

    def call_soon(self, what: Any) -> None:
        self.soon.append(what)

    def hurry(self, run: Any) -> None:
        run()

    def call_at(self, at_us: int, what: Any) -> Handle:
        self.handles.append(Handle(at_us, what))
        return self.handles[-1]

    def call_threadsafe(self, what: Any, *args: Any) -> None:
        self.soon.append(lambda: what(*args))

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Handle:
    """A moment that can be called off."""

    def __init__(self, at_us: int, what: Any) -> None:
        self.at_us, self.what, self.live = at_us, what, True

    def cancel(self) -> None:
        self.live = False


class Line:
    """Writes at once."""

    def __init__(self, log: MemoryLog, epoch: int, report: Any) -> None:
        self.log, self.epoch, self.report = log, epoch, report

    def hand_over(self, records: list[Any]) -> None:
        self.log.append(records, records[0].seq - 1, self.epoch)
        self.report(Committed(records[-1].seq, len(records)))

    def run(self, what: Any) -> None:
        what()


class Reply:
    """Keeps its answer."""

    def __init__(self) -> None:
        self.value: Any = None

    def ok(self, value: Any) -> None:
        self.value = value

    def fail(self, error: Any) -> None:
        self.value = error


class EchoRunner:
    """Succeeds at once, or cannot even start."""

    broken = False

    def start(self, attempt: Any, ended: Any, tell: Any) -> Any:
        if self.broken:
            msg = "no more threads"
            raise RuntimeError(msg)
        ended(Outcome(ok=True, result=attempt.params))
        return lambda _: None


class Courier:
    """Delivers, but raises for one task."""

    def __init__(self) -> None:
        self.raises_for = ""
        self.sent: list[str] = []

    def deliver(self, task: Any, delivery_id: str, done: Any) -> None:
        del delivery_id
        if task.id == self.raises_for:
            msg = "cannot render"
            raise ValueError(msg)
        self.sent.append(task.id)
        done(DeliveryReport(ok=True, status=200))


class World:
    def __init__(self) -> None:
        self.host, self.runner, self.courier, self.log = (
            Host(),
            EchoRunner(),
            Courier(),
            MemoryLog(),
        )
        self.shard = Shard(
            self.log,
            self.host,
            limits=Limits(),
            line=Line,  # type: ignore[arg-type]  # nothing here saves or reopens
            runner=self.runner,
            courier=self.courier,
        )
        self.shard.start()
        self.host.run()

    def submit(self, count: int = 1, callback: str | None = None) -> list[str]:
        reply = Reply()
        command = SubmitTask("ann", "echo", "builtin", callback=callback)
        self.shard.admission.tell(m.SubmitTasks((command,) * count, reply))
        self.host.run()
        return [answer.task for answer in reply.value]

    def kinds(self, task: str) -> list[str]:
        return [KINDS[type(decode(item.body).event)] for item in stored_of(self.log, task)]

    def close(self) -> None:
        self.shard._drop_actors("the test is over")


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.close()
    assert ActorRegistry.get_all() == []


def test_a_callback_that_cannot_be_sent_is_a_failed_try_and_holds_up_no_other(
    world: World,
) -> None:
    drawn = iter(["tsk_broken00", *[f"tsk_good000{n}" for n in range(5)]])
    body_of(world.shard.admission)._new_id = drawn.__next__
    world.courier.raises_for = "tsk_broken00"
    tasks = world.submit(6, callback="https://one.example/hook")
    assert "delivery_failed" in world.kinds(tasks[0])
    assert world.courier.sent == tasks[1:]
    assert world.shard.state.deliveries.delivered == 5


def test_an_attempt_that_cannot_be_started_fails_its_task_and_frees_its_slot(world: World) -> None:
    world.runner.broken = True
    (task,) = world.submit()
    failed = world.shard.state.tasks.get(task)
    assert failed is not None
    assert (failed.state.value, failed.error_code) == ("failed", "executor_fault")
    assert world.shard.state.slots.total == 0
    world.runner.broken = False
    (next_one,) = world.submit()
    assert world.kinds(next_one)[-1] == "task_succeeded"


def test_an_actor_whose_failure_cannot_be_dealt_with_goes_on() -> None:
    heard: list[Any] = []

    class Touchy(CooperativeActor):
        def on_receive(self, message: Any) -> None:
            if message == "bad":
                raise ValueError(message)
            heard.append(message)

    def on_failure(actor: Any, message: Any, error: Exception) -> None:
        raise RuntimeError from error

    soon: list[Any] = []
    runtime = Runtime(soon.append, on_failure)
    ref = Touchy.start(runtime)
    for message in ("one", "bad", "two"):
        ref.tell(message)
    while soon:
        soon.pop(0)()
    ref.tell("three")
    while soon:
        soon.pop(0)()
    assert heard == ["one", "two", "three"]
    retire([ref])


def test_a_timer_waits_for_one_moment_at_a_time() -> None:
    host = Host()
    due: list[Any] = []
    runtime = Runtime(host.call_soon, lambda *_: None)
    timer = TimerActor.start(runtime, host.clock, host.call_at, due.append, lambda _: True)
    now = host.clock.now_us()
    for n in range(2000):
        timer.tell(m.Arm(now + 10_000_000 - n, m.ExpireTask(f"tsk_{n}")))
    host.run()
    assert sum(handle.live for handle in host.handles) == 1
    host.clock.advance_us(10_000_000)
    host.handles[-1].what()
    host.run()
    assert [message.task for message in due[:2]] == ["tsk_1999", "tsk_1998"]
    assert len(due) == 2000
    retire([timer])


def test_many_actions_cost_a_dispatch_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that only the workers hold back are parked as one, however many there are."""
    looks = 0
    look = Turns._standing

    def counted(self: Turns, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return look(self, *args)

    monkeypatch.setattr(Turns, "_standing", counted)
    world = World()
    try:
        ended: list[Any] = []

        def start(_: Any, __: Any, end: Any, ___: Any) -> Any:
            ended.append(end)
            return lambda _: None

        monkeypatch.setattr(EchoRunner, "start", start)
        for n in range(20):
            commands = tuple(SubmitTask(f"agent-{n}", f"action-{n}-{k}", "tab") for k in range(50))
            world.shard.admission.tell(m.SubmitTasks(commands, Reply()))
            world.host.run()
        looks = 0
        for _ in range(100):
            ended.pop(0)(Outcome(ok=True))
            world.host.run()
        assert world.shard.state.stats.totals["completed"] == 100
        assert looks < 100 * 10
    finally:
        world.close()

"""A fault stays where it happens: in a courier, a runner, an actor, a timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pykka import ActorRegistry

from rota.actors import messages as m
from rota.actors.runtime import CooperativeActor, Runtime, retire
from rota.actors.timer import TimerActor
from rota.domain.intake import Request
from rota.domain.standing import Standings
from rota.testing import InMemoryRota, ManualClock, ManualHost, succeeded

if TYPE_CHECKING:
    from rota.testing import Attempt, Outcome


class World(InMemoryRota):
    """Echoes at once, unless it is broken."""

    def __init__(self) -> None:
        self.is_broken = False
        super().__init__({"echo": self.echo})

    def echo(self, attempt: Attempt) -> Outcome:
        if self.is_broken:
            msg = "no more threads"
            raise RuntimeError(msg)
        return succeeded(attempt.params)

    def submit_all(self, count: int = 1, callback: str | None = None) -> list[str]:
        command = Request("ann", "echo", "builtin", callback=callback)
        return [answer.task for answer in self.offer(*(command,) * count)]


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.close()
    assert ActorRegistry.get_all() == []


def test_a_callback_that_cannot_be_sent_is_a_failed_try_and_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = world.courier.deliver

    def render(subject: Any, *args: Any) -> None:
        if subject.id == "tsk_1":
            msg = "cannot render"
            raise ValueError(msg)
        deliver(subject, *args)

    monkeypatch.setattr(world.courier, "deliver", render)
    tasks = world.submit_all(6, callback="https://one.example/hook")
    assert "delivery_failed" in world.history(tasks[0])
    assert [task for _ in range(5) for task in world.deliver()] == tasks[1:]
    assert world.shard.state.deliveries.delivered == 5


def test_an_attempt_that_cannot_be_started_fails_its_task_and_frees_its_slot(world: World) -> None:
    world.is_broken = True
    (task,) = world.submit_all()
    failed = world.task(task)
    assert (failed.state.value, failed.error_code) == ("failed", "executor_fault")
    assert world.shard.state.slots.total == 0
    world.is_broken = False
    (next_one,) = world.submit_all()
    assert world.history(next_one)[-1] == "task_succeeded"


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
    host = ManualHost(ManualClock())
    due: list[Any] = []
    runtime = Runtime(host.call_soon, lambda *_: None)
    timer = TimerActor.start(runtime, host.clock, host.call_at, due.append, lambda _: True)
    now = host.clock.now_us()
    for n in range(2000):
        timer.tell(m.Arm(now + 10_000_000 - n, m.ExpireTask(f"tsk_{n}")))
    host.run()
    assert sum(handle.live for _, _, handle in host.later) == 1
    host.run_until(now + 10_000_000)
    assert [message.task for message in due[:2]] == ["tsk_1999", "tsk_1998"]
    assert len(due) == 2000
    retire([timer])


def test_many_actions_cost_a_dispatch_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that only the workers hold back stand at one gate, however many there are."""
    looks = 0
    look = Standings.of

    def counted(self: Standings, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return look(self, *args)

    monkeypatch.setattr(Standings, "of", counted)
    with InMemoryRota() as world:
        for n in range(20):
            world.offer(*(Request(f"agent-{n}", f"action-{n}-{k}", "tab") for k in range(50)))
        looks = 0
        for _ in range(100):
            world.succeed(world.running[0])
        assert world.shard.state.stats.totals["completed"] == 100
        assert looks < 100 * 10

"""What the seeds have shown, each as the shortest story that shows it.

The same shard, log and committer as in the simulation, but told by hand: everything runs in the
order in which production would run it, until nothing is left to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.sim_parts import SimHost, SimLine, SimLog, actors_of
from support.wishes import made

from rota.actors import lease_messages as lm
from rota.actors import messages as m
from rota.actors import snapshotter
from rota.actors.runtime import retire
from rota.actors.system import Shard
from rota.clock import ManualClock
from rota.domain import events as e
from rota.domain.commands import Limits, Outcome
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import BatchRequest, Request
from rota.domain.restoring import fields_of_task
from rota.domain.wants import Filter, Wants
from rota.eventlog.codec import decode
from rota.projections.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.executors.port import Attempt

S = 1_000_000


class Answer:
    """Keeps what was answered."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: Any = None

    def ok(self, value: Any) -> None:
        self.value = value

    def fail(self, error: Exception) -> None:
        self.error = error

    def is_awaited(self) -> bool:
        return self.value is None and self.error is None


class Story:
    """A shard whose outside is in the hands of the test."""

    def __init__(self, limits: Limits) -> None:
        self.clock, self.log = ManualClock(), SimLog()
        self.started: dict[str, Callable[[Outcome], None]] = {}
        self.sent: list[tuple[str, int, Callable[[DeliveryReport], None]]] = []
        self.count = 0
        self.boot(limits)

    def boot(self, limits: Limits) -> None:
        """Start a server on the log, leaving what an earlier one held behind."""
        self.host = SimHost(self.clock)
        self.shard = Shard(
            self.log,
            self.host,
            limits=limits,
            line=self._line,
            runner=self,
            courier=self,
            new_id=self._id,
        )
        self.shard.start()

    def _line(self, *args: Any) -> SimLine:
        self.line = SimLine(*args)
        return self.line

    def _id(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def start(
        self, attempt: Attempt, ended: Callable[[Outcome], None], _tell: Any
    ) -> Callable[[str], None]:
        """Run an attempt: keep how to end it."""
        self.started[attempt.task] = ended
        return lambda _reason: None

    leaves_nothing = staticmethod(lambda _: True)

    def deliver(
        self, task: Any, _tasks: Any, _id: str, done: Callable[[DeliveryReport], None]
    ) -> None:
        """Take a callback: keep how to report it, and up to where the log was durable."""
        self.sent.append((task.id, self.log.seq(), done))

    def run(self, *, commit: bool = True) -> None:
        """Go on until nothing is left to do at this moment."""
        host = self.host
        while True:
            if host.running:
                host.running.pop().run()
            elif host.reading:
                host.reading.popleft()()
            elif host.soon or host.posted:
                (host.soon or host.posted).popleft()()
            elif host.due():
                host.fire()
            elif commit and self.line.waiting:
                self.line.work(1000)
            else:
                return

    def submit(self, agent: str = "ann", **more: Any) -> Answer:
        """Submit a task, without running anything."""
        answer = Answer()
        command = made(Request, agent, "echo", "builtin", **more)
        self.shard.admission.tell(m.SubmitTasks((command,), answer))
        return answer

    def kill(self) -> None:
        """End the server as a power cut does."""
        shard = self.shard
        retire([*actors_of(shard), *shard.cast.queues.values()])

    def events(self, kind: type[Any]) -> list[e.Record]:
        """Give the durable records of one kind."""
        records = [decode(item.body) for item in self.log.read(0, 1 << 30)]
        return [record for record in records if type(record.event) is kind]


@pytest.fixture
def tell() -> Iterator[Callable[[Limits], Story]]:
    """Begin stories, and end them all."""
    told: list[Story] = []

    def begin(limits: Limits) -> Story:
        told.append(Story(limits))
        return told[-1]

    yield begin
    for story in told:
        story.kill()


Tell = "Callable[[Limits], Story]"


def test_a_callback_is_delivered_without_any_actor_failing(tell: Tell) -> None:
    story = tell(Limits())
    story.submit(callback="http://one.test/")
    story.run()
    story.started["t1"](Outcome(ok=True))
    story.run()
    story.sent[0][2](DeliveryReport(ok=True, status=200))
    story.run()
    assert len(story.events(e.DeliverySucceeded)) == 1
    assert story.events(e.ActorFailed) == []


def test_a_lower_limit_holds_from_its_record_on(tell: Tell) -> None:
    story = tell(Limits(inflight=2))
    for _ in range(3):
        story.submit()
    story.run()
    story.started["t1"](Outcome(ok=True))
    change = m.ChangeLimits(Limits(inflight=1), "test", "", Answer())
    story.shard.admission.tell(change)
    story.run()
    assert story.shard.state.slots.total == 1


def test_a_lower_limit_holds_from_the_start_on(tell: Tell) -> None:
    story = tell(Limits(inflight=2))
    for agent in ("ann", "ann", "bob", "cyd"):
        story.submit(agent)
    story.run()
    story.kill()
    story.boot(Limits(inflight=1))
    story.run()
    assert story.shard.state.slots.total == 1


def test_a_request_that_waits_in_an_inbox_when_the_log_fails_is_answered(tell: Tell) -> None:
    story = tell(Limits())
    story.run()
    story.submit()
    story.run(commit=False)
    story.log.broken = True
    story.line.work(1)
    late = story.submit()
    while story.host.posted:
        story.host.posted.popleft()()
    story.run()
    assert late.value is None
    assert late.error is not None


def test_no_callback_goes_out_before_the_restart_that_ended_its_task_is_durable(
    tell: Tell,
) -> None:
    story = tell(Limits())
    story.submit(callback="http://one.test/", on_interrupt="fail")
    story.run()
    story.kill()
    story.boot(Limits())
    story.run(commit=False)
    assert story.sent == []
    story.run()
    assert [task for task, _, _ in story.sent] == ["t1"]


def test_a_callback_is_sent_for_a_task_that_left_memory_while_its_end_was_written(
    tell: Tell,
) -> None:
    story = tell(Limits(result_ttl_s=1))
    story.submit(callback="http://one.test/")
    story.run()
    story.started["t1"](Outcome(ok=True))
    story.run(commit=False)
    story.clock.advance_us(2 * S)
    story.submit()
    story.run()
    assert [task for task, _, _ in story.sent] == ["t1"]


def test_the_report_of_a_callback_may_come_after_the_log_failed(tell: Tell) -> None:
    story = tell(Limits())
    story.submit(callback="http://one.test/")
    story.run()
    story.started["t1"](Outcome(ok=True))
    story.run()
    story.log.broken = True
    story.submit()
    story.run()
    assert story.shard.degraded
    story.sent[0][2](DeliveryReport(ok=True, status=200))


def test_nothing_is_assigned_after_the_server_stopped(tell: Tell) -> None:
    story = tell(Limits(inflight=1))
    story.submit()
    story.submit()
    story.run()
    story.started["t1"](Outcome(ok=True))
    story.shard.runtime.step(lambda _n: 0)
    story.shard.drain()
    story.shard.finish(lambda: None)
    story.run()
    assert story.shard.state.slots.total == 0


def test_a_server_that_is_stopping_starts_nothing_when_its_log_is_back(tell: Tell) -> None:
    story = tell(Limits(inflight=1))
    story.submit()
    story.submit()
    story.run()
    story.shard.drain()
    story.run()
    story.log.broken = True
    story.started["t1"](Outcome(ok=True))
    story.run()
    story.log.broken = False
    story.clock.advance_us(S)
    story.run()
    assert not story.shard.degraded
    assert story.shard.state.slots.total == 0


def test_a_stop_that_meets_a_fact_which_cannot_be_folded_ends_all_the_same(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = tell(Limits())
    story.run()
    late = story.submit()
    fold = story.shard.state.apply

    def fails(record: e.Record) -> None:
        if type(record.event) is e.TaskSubmitted:
            raise ArithmeticError
        fold(record)

    monkeypatch.setattr(story.shard.state, "apply", fails)
    ended: list[bool] = []
    story.shard.drain()
    story.shard.finish(lambda: ended.append(True))
    story.run()
    assert ended == [True]
    assert late.error is not None
    assert story.events(e.ServerStopped) == []


def test_a_batch_that_left_memory_before_its_tasks_comes_back_with_one(tell: Tell) -> None:
    story = tell(Limits())
    for _ in range(2):
        batch = BatchRequest((made(Request, "ann", "echo", "builtin"),))
        story.shard.admission.tell(m.SubmitTogether(batch, Answer()))
        story.run()
    first, second = story.shard.state.tasks.by_id
    story.shard.state.batches.ended_tasks_max = 1
    for task in (first, second):
        story.started[task](Outcome(ok=False, code="no", error="no"))
        story.run()
    assert first in story.shard.state.tasks.by_id
    assert len(story.shard.state.batches.by_id) == 1
    story.shard.queue("ann").tell(m.ReviveTask(first, "me", Answer()))
    story.run()
    story.started[first](Outcome(ok=True))
    story.run()
    told = [record.event for record in story.events(e.BatchFinished)]
    assert [(each.succeeded, each.failed) for each in told] == [(0, 1), (0, 1), (1, 0)]
    assert told[2].batch == told[0].batch


def test_a_worker_whose_grant_was_lost_with_the_next_ones_is_told(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = tell(Limits())
    asked = [Answer(), Answer()]
    for name, reply in zip(("ada", "ben"), asked, strict=True):
        wants = Wants(name, (Filter(),), frozenset(), 1, 1000)
        story.shard.dispatcher.tell(lm.LendTasks(wants, 10 * S, reply))
    story.run()
    fold = story.shard.state.apply

    def fails(record: e.Record) -> None:
        if getattr(record.event, "worker", None) == "ben":
            raise ArithmeticError
        fold(record)

    monkeypatch.setattr(story.shard.state, "apply", fails)
    tasks = tuple(made(Request, agent, "fit") for agent in ("ann", "bob"))
    story.shard.admission.tell(m.SubmitTasks(tasks, Answer()))
    story.run()
    assert [reply.value for reply in asked] == [None, None]
    assert all(reply.error is not None for reply in asked)


def test_a_snapshot_that_was_stopped_is_never_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshotter, "SLICE_TASKS", 1)
    state, soon, made = State(), [], []
    for seq in (1, 2, 3):
        state.apply(e.Record(seq, 0, e.TaskSubmitted(f"t{seq}", "ann", "echo", "pull", seq)))
    snapshot = snapshotter.Snapshotter(state, bytes(32))
    snapshot.run(soon.append, made.append)
    snapshot.stop()
    while soon:
        soon.pop()()
    assert made == []


def test_a_snapshot_in_the_making_has_a_task_as_it_was_before_a_revival_that_carries_it() -> None:
    state = State()
    failed = e.TaskFailed("t1", "ann", 0, "bad", "broken")
    for seq, event in enumerate((e.TaskSubmitted("t1", "ann", "echo", "pull", 1), failed), 1):
        state.apply(e.Record(seq, S, event))
    then, task = state.digest(), state.tasks.by_id["t1"]
    making = snapshotter.Snapshotter(state, bytes(32))
    state.apply(e.Record(3, S, e.TaskRevived("t1", "ann", restored=fields_of_task(task))))
    made = making.slice()
    assert made is not None
    assert State.load(made.blob).digest() == then

"""The simulated outside of a shard: its loop, its disk, its executors, its receivers.

Nothing here runs by itself. Each part keeps what it was given until the simulator, by its seed,
decides that now is the moment; each part also looks, when it is called, whether it may be called
yet: an effect whose cause is not in the log is a violation.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from rota.actors.runtime import Runtime, retire
from rota.actors.system import Shard
from rota.domain.commands import Outcome
from rota.domain.delivery import DeliveryReport
from rota.domain.events import TaskAssigned
from rota.errors import LogUnusable
from rota.eventlog.codec import decode
from rota.eventlog.committer import Committer, Resume, Run, SaveSnapshot, Wake
from rota.eventlog.memory_store import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.simulation import World

    from rota.actors.host import Report
    from rota.clock import ManualClock
    from rota.domain.task import Task
    from rota.eventlog.port import EventLog, Head, Snapshot, Stored
    from rota.executors.port import Abort, Attempt
    from rota.projections.state import State

PER_HOST_MAX = 2
DELIVERIES_MAX = 3


class SimHost:
    """A loop that runs what the simulator picks."""

    def __init__(self, clock: ManualClock) -> None:
        """Start with nothing to do."""
        self.clock = clock
        self.soon: deque[Callable[[], Any]] = deque()
        self.posted: deque[Callable[[], Any]] = deque()
        self.later: list[tuple[int, int, Callable[[], Any]]] = []
        self.running: set[Runtime] = set()
        self._count = 0

    def call_soon(self, what: Callable[[], None]) -> None:
        """Keep for soon; a runtime that wants to run is stepped by the simulator instead."""
        owner = getattr(what, "__self__", None)
        if type(owner) is Runtime and what == owner.run:
            owner._scheduled = False
            self.running.add(owner)
        else:
            self.soon.append(what)

    def hurry(self, run: Callable[[], None]) -> None:
        """Leave it at soon: the simulator decides the order."""

    def call_at(self, at_us: int, what: Callable[[], None]) -> None:
        """Keep for a moment of the clock."""
        self._count += 1
        heappush(self.later, (at_us, self._count, what))

    def call_threadsafe(self, what: Callable[..., None], *args: Any) -> None:
        """Keep for soon, in a row of its own: other threads are not in step with the loop."""
        self.posted.append(lambda: what(*args))

    def due(self) -> bool:
        """Whether a moment has come."""
        return bool(self.later) and self.later[0][0] <= self.clock.now_us()

    def fire(self) -> None:
        """Run the first of what is due."""
        heappop(self.later)[2]()


class SimLog(MemoryLog):
    """A log whose disk can fail."""

    def __init__(self) -> None:
        """Start empty and whole."""
        super().__init__()
        self.broken = False
        self.torn = False
        self.failures = 0

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        """Append; a torn failure has written, and cannot say so."""
        if self.broken:
            self.failures += 1
            if self.torn:
                self.torn = False
                super().append(records, expected_seq, epoch)
            msg = "the simulated disk failed"
            raise LogUnusable(msg)
        super().append(records, expected_seq, epoch)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        if self.broken:
            msg = "the simulated disk failed"
            raise LogUnusable(msg)
        super().save_snapshot(snapshot)

    def reopen(self) -> Head:
        """Open anew, once the disk is whole again."""
        if self.broken:
            msg = "the simulated disk still fails"
            raise LogUnusable(msg)
        return super().reopen()

    def seq(self) -> int:
        """Give the last durable seq."""
        return len(self._records)


class SimLine:
    """The production committer, without its thread: the simulator says when it works."""

    def __init__(self, log: EventLog, epoch: int, report: Report) -> None:
        """Have nothing to write."""
        self._handed: deque[list[Stored]] = deque()
        self._outbox: deque[list[Stored]] = deque()
        self._committer = Committer(log, epoch, self._outbox, report)
        self.waiting: deque[Any] = deque()

    def hand_over(self, records: list[Stored]) -> None:
        """Have the records written, some time."""
        self._handed.append(records)
        self.waiting.append(Wake())

    def save(self, snapshot: Snapshot) -> None:
        """Have a snapshot kept, some time."""
        self.waiting.append(SaveSnapshot(snapshot))

    def run(self, what: Callable[[], None]) -> None:
        """Call a function, some time."""
        self.waiting.append(Run(what))

    def resume(self, epoch: int) -> None:
        """Go on after a failure."""
        self._handed.clear()
        self.waiting.append(Resume(epoch))

    def work(self, batches_max: int) -> None:
        """Do the next thing; writing takes up to `batches_max` batches in one commit."""
        message = self.waiting.popleft()
        if type(message) is Wake:
            while self._handed and batches_max > 0:
                batches_max -= 1
                self._outbox.append(self._handed.popleft())
        self._committer.on_receive(message)

    def close(self) -> None:
        """Do everything that is left."""
        while self.waiting:
            self.work(1 << 30)


class SimRunner:
    """Executors that succeed, fail, hang, come late and repeat themselves."""

    def __init__(self, world: World) -> None:
        """Belong to a world."""
        self._world = world
        self.running: dict[str, int] = {}
        self.started = 0
        self.late = 0

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None]) -> Abort:
        """Start an attempt, and settle by the seed how it will end."""
        world, rng = self._world, self._world.rng
        self._judge(attempt)
        self.started += 1
        self.running[attempt.task] = attempt.token
        live = [True]

        def end() -> None:
            if live[0]:
                live[0] = False
                self._gone(attempt)
                ended(outcome)
                if not world.calm and rng.random() < world.odds["repeat"]:
                    self._late(ended, outcome)

        def abort(reason: str) -> None:
            del reason
            if live[0]:
                live[0] = False
                self._gone(attempt)
                if not world.calm and rng.random() < world.odds["late"]:
                    self._late(ended, outcome)

        ok = rng.random() < 0.7
        outcome = (
            Outcome(ok=True, result={"n": attempt.token})
            if ok
            else Outcome(ok=False, code="task_failed", error="it did not work")
        )
        roll = rng.random()
        event = world.model.tasks[attempt.task].event
        bounded = event.deadline is not None or event.timeout_ms is not None
        if roll < 0.15:
            end()
        elif roll > 0.85 and bounded and not world.calm:
            world.trace("attempt %s of %s hangs", attempt.number, attempt.task)
        else:
            world.after(rng.randrange(1, 4_000_000), end)
        return abort

    def _judge(self, attempt: Attempt) -> None:
        """Look whether this attempt may start at all."""
        world = self._world
        if attempt.token > world.log.seq():
            world.violated(f"{attempt.task} was started before its assignment was durable")
            return
        record = decode(world.log.read(attempt.token - 1, 1)[0].body)
        event: Any = record.event
        if (type(event).__name__, getattr(event, "task", "")) != ("TaskAssigned", attempt.task):
            world.violated(f"{attempt.task} was started under a token that is not its own")
        elif event.attempt != attempt.number:
            world.violated(f"attempt {event.attempt} of {attempt.task} was started as another")
        if attempt.task in self.running:
            world.violated(f"{attempt.task} was started while an attempt of it runs")
        task = world.model.tasks[attempt.task]
        if task.state not in ("assigned", "running") or task.token != attempt.token:
            world.violated(f"{attempt.task} was started although it is {task.state}")

    def _gone(self, attempt: Attempt) -> None:
        if self.running.get(attempt.task) == attempt.token:
            del self.running[attempt.task]

    def _late(self, ended: Callable[[Outcome], None], outcome: Outcome) -> None:
        def again() -> None:
            self.late += 1
            with suppress(ActorDeadError):  # its server is gone; a runner may not be that late
                ended(outcome)

        self._world.after(self._world.rng.randrange(0, 2_000_000), again)


class SimCourier:
    """Receivers of callbacks, good and bad."""

    def __init__(self, world: World) -> None:
        """Belong to a world."""
        self._world = world
        self.sent = 0
        self.active: dict[str, int] = {}

    def deliver(self, task: Task, delivery_id: str, done: Callable[[DeliveryReport], None]) -> None:
        """Take a callback, and settle by the seed what comes of it."""
        world, rng = self._world, self._world.rng
        self.sent += 1
        self._judge(task, delivery_id)
        host = str(task.callback).split("/")[2]
        self.active[host] = self.active.get(host, 0) + 1
        if self.active[host] > PER_HOST_MAX or sum(self.active.values()) > DELIVERIES_MAX:
            world.violated(f"too many callbacks at once: {self.active}")
        roll = 0.0 if world.calm else rng.random()
        if roll < 0.5:
            report = DeliveryReport(ok=True, status=200)
        elif roll < 0.7:
            report = DeliveryReport(ok=False, status=500, error="it is broken")
        elif roll < 0.8:
            report = DeliveryReport(ok=False, status=503, error="later", retry_after_s=7.5)
        elif roll < 0.9:
            report = DeliveryReport(ok=False, status=410, error="gone", final=True)
        else:
            report = DeliveryReport(ok=False, error="timed out")
        delay = rng.randrange(1, 2_000_000) if roll < 0.9 else 30_000_000
        active = self.active

        def end() -> None:
            active[host] -= 1
            try:
                done(report)
            except ActorDeadError:
                world.violated("the report of a callback found nobody: its actor was replaced")

        world.after(delay, end)

    def _judge(self, task: Task, delivery_id: str) -> None:
        """Look whether the end that is told is durable, and an end."""
        world = self._world
        seq = int(delivery_id.split("_")[1])
        if seq > world.log.seq():
            world.violated(f"the callback of {task.id} was sent before its end was durable")
            return
        kind = [decode(item.body).event for item in world.log.read_task(task.id) if item.seq == seq]
        if not kind or not task.is_terminal:
            world.violated(f"the callback of {task.id} tells of an end that is not in the log")


class SimReply:
    """Somebody who waits for an answer, and checks that it is true."""

    def __init__(self, world: World, kind: str, what: Any) -> None:
        """Wait."""
        self._world = world
        self.kind = kind
        self.what = what
        self.answered = ""
        world.waiting.append(self)

    def ok(self, value: Any) -> None:
        """Take the answer that it was done; it must be in the log by now."""
        self._once("ok")
        world = self._world
        world.trace("answer: %s %s ok", self.kind, self.what)
        if self.kind == "submit":
            for answer in value:
                name = type(answer).__name__
                kind = "task_submitted" if name == "Admitted" else "task_rejected"
                world.acknowledged(answer.task, kind)
        elif self.kind == "cancel":
            world.acknowledged(value, "task_cancelled")
        elif self.kind in ("pause", "resume"):
            needed = f'"agent_{self.kind}d"'.encode()
            agent = f'"agent":"{value}"'.encode()
            found = any(needed in r.body and agent in r.body for r in world.log.read(0, 1 << 30))
            if not found and self.kind == "pause":
                world.violated(f"the pause of {value} was acknowledged and is not in the log")

    def fail(self, error: Exception) -> None:
        """Take the answer that it was not done."""
        self._once(f"fail: {error}")
        self._world.trace("answer: %s %s: %s", self.kind, self.what, error)
        if getattr(error, "code", "") == "internal":
            self._world.violated(f"a {self.kind} was answered with an internal fault")

    def _once(self, answer: str) -> None:
        if self.answered:
            self._world.violated(f"a {self.kind} was answered twice: {self.answered}, {answer}")
        self.answered = answer
        self._world.waiting.remove(self)


class SimShard(Shard):
    """The production shard, with a model that watches every record it makes."""

    world: World

    def _wire(self, state: State) -> None:
        world = self.world
        apply = state.apply
        world.refold()
        world.courier.active = {}  # tries of replaced actors are out of its hands

        def watched(record: Any) -> None:
            exact = type(record.event) is TaskAssigned and self._all_heard()
            world.model.observe(record, exact=exact)
            apply(record)
            world.compare_counts(self, record)

        state.apply = watched  # type: ignore[method-assign]
        super()._wire(state)

    def _all_heard(self) -> bool:
        """Whether the dispatcher has heard of everything that was recorded."""
        if self.dispatcher.actor_inbox.queue:
            return False
        return all(not ref.actor_inbox.queue for ref in self._queues.values())

    def vanish(self) -> None:
        """Be gone, as a killed process is: nothing is told to anybody."""
        retire([self.dispatcher, self.pool, self.webhook, self.timer, self.admission])
        retire(list(self._queues.values()))

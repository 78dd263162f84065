"""The simulated outside of a shard: its executors, its receivers, its clients.

Each part looks, when it is called, whether it may be called yet: an effect whose cause is not in
the log is a violation. How an attempt ends and what a receiver answers is settled by the seed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from rota.domain.commands import PULL
from rota.domain.delivery import DeliveryReport
from rota.eventlog.codec import decode
from rota.eventlog.replay import stored_of
from rota.executors.port import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.simulation import World

    from rota.domain.commands import Outcome
    from rota.domain.task import Task
    from rota.executors.port import Abort, Attempt, Gone, Tell
    from rota.projections.batches import Batch

PER_HOST_MAX = 2
DELIVERIES_MAX = 5
S = 1_000_000


class SimRunner:
    """Executors that succeed, fail, hang, come late and repeat themselves."""

    def __init__(self, world: World) -> None:
        """Belong to a world."""
        self._world = world
        self.running: dict[str, int] = {}

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> Abort:
        """Start an attempt, and settle by the seed how it will end."""
        world, rng, work = self._world, self._world.rng, self._world.work
        self._judge(attempt)
        self.running[attempt.task] = attempt.token
        outcome = work.outcome(attempt.token)
        live = [True]

        def end() -> None:
            if live[0]:
                live[0] = False
                self._gone(attempt)
                ended(outcome)
                if not world.calm and work.is_drawn("repeat"):
                    self._late(lambda: ended(outcome))

        def abort(reason: str, gone: Gone | None = None) -> None:
            del reason
            if gone is not None:
                is_sure = attempt.token % 2 == 0
                world.after(rng.randrange(1, S), lambda: gone(is_sure=is_sure))
            if live[0]:
                live[0] = False
                self._gone(attempt)
                if not world.calm and work.is_drawn("late"):
                    self._late(lambda: ended(outcome))

        if work.is_drawn("notes"):
            self._note(tell)
        roll = rng.random()
        event = world.model.tasks[attempt.task].event
        bounded = event.deadline is not None or event.timeout_ms is not None
        if roll < 0.15:
            end()
        elif roll > 0.85 and bounded and not world.calm:
            world.trace("attempt %s of %s hangs", attempt.number, attempt.task)
        else:
            world.after(rng.randrange(1, 4 * S), end)
        return abort

    def leaves_nothing(self, executor: str) -> bool:
        """Say it of leases alone."""
        return executor == PULL

    def _note(self, tell: Tell) -> None:
        """Have something to say, now or later, perhaps after the end."""
        rng = self._world.rng
        note = Note(rng.choice(("", "a line", "x" * 100)), "info", rng.choice((None, 1, {"of": 3})))
        if rng.random() < 0.6:
            tell(note)
        else:
            self._late(lambda: tell(note))

    def _judge(self, attempt: Attempt) -> None:
        """Look whether this attempt may start at all, and whether it has what it asked for."""
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
        asked = (task.event.params or {}).get("from", "").strip("{}")
        if asked:
            parent = world.model.tasks[task.event.depends[asked]]
            if attempt.params["from"] != parent.result:
                world.violated(f"{attempt.task} did not get what {parent.id} came to")

    def _gone(self, attempt: Attempt) -> None:
        if self.running.get(attempt.task) == attempt.token:
            del self.running[attempt.task]

    def _late(self, what: Callable[[], None]) -> None:
        def again() -> None:
            with suppress(ActorDeadError):  # its server is gone; a runner may not be that late
                what()

        self._world.after(self._world.rng.randrange(0, 2 * S), again)


class SimCourier:
    """Receivers of callbacks, good and bad."""

    def __init__(self, world: World) -> None:
        """Belong to a world."""
        self._world = world
        self.sent = 0
        self.active: dict[str, int] = {}

    def deliver(
        self,
        subject: Task | Batch,
        tasks: Sequence[Task],
        delivery_id: str,
        done: Callable[[DeliveryReport], None],
    ) -> None:
        """Take a callback, and settle by the seed what comes of it."""
        world, rng = self._world, self._world.rng
        self.sent += 1
        name = delivery_id.split("_", 2)[2]
        self._judge(name, subject, delivery_id)
        flow = getattr(subject, "workflow", subject)
        if [task.id for task in tasks] != list(getattr(flow, "tasks", ())):
            world.violated(f"the callback of {subject.id} does not tell of its tasks")
        if flow is subject and not all(task.finished_at for task in tasks):
            world.violated(f"the callback of {subject.id} tells of a task that has not ended")
        host = str(subject.callback).split("/")[2]
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
        delay = rng.randrange(1, 2 * S) if roll < 0.9 else 30 * S
        report = report._replace(duration_ms=delay // 1000)
        active, told = self.active, world.model.callbacks.ends.get(name, 0)

        def end() -> None:
            active[host] -= 1
            if report.ok:
                is_late = active is not self.active  # a try of actors that were replaced
                known = world.told.get(name, 0) if is_late else 0
                world.told[name] = max(known, told)
            try:
                done(report)
            except ActorDeadError:
                world.violated("the report of a callback found nobody: its actor was replaced")

        world.after(delay, end)

    def _judge(self, name: str, subject: Task | Batch, delivery_id: str) -> None:
        """Look whether the end that is told is durable, and an end."""
        world = self._world
        seq = int(delivery_id.split("_")[1])
        if seq > world.log.seq():
            world.violated(f"the callback of {subject.id} was sent before its end was durable")
            return
        early_us = world.model.callbacks.early_us(name, world.clock.now_us())
        if early_us > S:
            world.violated(f"the callback of {subject.id} was sent {early_us} us too early")
        found = [item for item in stored_of(world.log, subject.id) if item.seq == seq]
        has_ended = name != subject.id or subject.finished_at
        if not found or not has_ended:
            world.violated(f"the callback of {subject.id} tells of an end that is not in the log")


class SimReply:
    """Somebody who waits for an answer, and checks that it is true."""

    def __init__(
        self,
        world: World,
        kind: str,
        on_ok: Callable[[Any], None],
        on_fail: Callable[[str, Any], None] | None = None,
    ) -> None:
        """Wait; `on_ok` gets the answer, `on_fail` the code and the error."""
        self._world = world
        self.kind = kind
        self._on_ok = on_ok
        self._on_fail = on_fail
        self.answered = ""
        self.latest = world.clock.wall_us()
        world.waiting.append(self)

    def ok(self, value: Any) -> None:
        """Take the answer that it was done; it must be in the log by now."""
        self._once("ok")
        self._world.trace("answer: %s: %s", self.kind, value)
        self._on_ok(value)

    def fail(self, error: Any) -> None:
        """Take the answer that it was not done."""
        if self.answered and self._is_meant(error):
            return  # its handler raised when all was done
        self._once(f"fail: {error}")
        world = self._world
        world.trace("answer: %s: %s", self.kind, error)
        code = getattr(error, "code", "")
        if code == "internal" and not self._is_meant(error):
            world.violated(f"a {self.kind} was answered with an internal fault")
        elif (
            code not in ("storage_unavailable", "shutting_down", "internal")
            and self._on_fail is not None
        ):
            self._on_fail(code, error)

    def _is_meant(self, error: Any) -> bool:
        return getattr(error, "code", "") == "internal" and self._world.faults.count > 0

    def _once(self, answer: str) -> None:
        if self.answered:
            self._world.violated(f"a {self.kind} was answered twice: {self.answered}, {answer}")
        self.answered = answer
        self._world.answering = self
        self._world.waiting.remove(self)

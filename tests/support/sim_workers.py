"""The simulated workers: they come for tasks, and are not to be relied on.

They work, say so now and then, stall until their lease is over and answer all the same, answer
twice, crash and forget what they had, leave while they wait, and give tasks back. What they are
told is held against the log: a lease is there before its worker hears of it, an outcome that was
taken is there for ever, and no lease ends before its time.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import orjson
from support.sim_outside import SimReply
from support.sim_rules import Rule
from support.sim_work import ACTIONS

from rota.actors import lease_messages as lm
from rota.actors.runtime import body_of
from rota.domain.leases import lease_id, named_by
from rota.domain.tokens import LOCAL
from rota.domain.wants import Filter, Wants
from rota.eventlog.codec import decode

if TYPE_CHECKING:
    from support.sim_model import ModelTask
    from support.simulation import World

    from rota.actors.lent import Lent
    from rota.domain.events import Record

NAMES = ("ada", "ben", "cox")
LEASES_MS = (1000, 3000, 20_000)
S = 1_000_000


class Asking(SimReply):
    """A worker that waits for tasks, and may leave."""

    has_left = False

    def is_awaited(self) -> bool:
        """Whether it still waits."""
        return not self.answered

    def leave(self) -> None:
        """Wait no longer, and hear of nothing."""
        self.has_left = True
        self.answered = "left"
        self._world.waiting.remove(self)

    def ok(self, value: Any) -> None:
        """Take what it was given; one that has left takes nothing."""
        if not self.has_left:
            super().ok(value)
        elif value:
            self._world.violated("a worker that had left was given tasks")

    def fail(self, error: Any) -> None:
        """Hear that there is nothing to be had; once is enough, whoever else gives up."""
        if not self.has_left and not self.answered.startswith("fail"):
            super().fail(error)


class Workers:
    """All of them."""

    def __init__(self, world: World) -> None:
        """Belong to a world; what they do is drawn apart from all the rest."""
        self._world = world
        self._rng = rng = Random(f"workers {world.seed}")
        self.wants = {name: self._drawn(name) for name in NAMES[: rng.randint(1, 3)]}
        self.held: dict[str, list[tuple[str, str, int]]] = {name: [] for name in NAMES}
        self.asking: dict[str, Asking] = {}
        self._outcome_odds = rng.choice((0.3, 0.8))

    def _drawn(self, name: str) -> Wants:
        rng, agents = self._rng, self._world.work.agents

        def some_filter() -> Filter:
            some = tuple(rng.sample(agents, rng.randint(1, len(agents))))
            types = tuple(rng.sample(ACTIONS, rng.randint(1, len(ACTIONS))))
            named = some if rng.random() < 0.4 else None
            return Filter(named, types if rng.random() < 0.4 else None)

        return Wants(
            name,
            tuple(some_filter() for _ in range(rng.choice((1, 1, 2)))),
            frozenset(("gpu",) if rng.random() < 0.5 else ()),
            rng.choice((1, 1, 3)),
            rng.choice(LEASES_MS),
            rng.random() < 0.3,
        )

    def forget_requests(self) -> None:
        """The server is gone, and with it whoever waited there."""
        self.asking.clear()

    def move(self) -> None:
        """Let one of them do something."""
        rng = self._rng
        name = rng.choice(list(self.wants))
        self._listen(name)
        if name in self.asking and self.asking[name].answered:
            del self.asking[name]
        held = self.held[name]
        roll = rng.random()
        if name in self.asking and roll < 0.1:
            self._leave(name)
        elif name not in self.asking and (not held or roll < 0.4):
            self._ask(name)
        elif held and roll < 0.45:
            held.clear()
            self._world.trace("worker %s forgets all it had", name)
        elif held and roll < 0.65:
            self._heartbeat(name, rng.choice(held))
        elif held:
            self._settle(name, rng.choice(held))

    def _listen(self, name: str) -> None:
        """Hear of leases to stop working on, as a heartbeat that waits does."""
        world = self._world
        told = world.shard.cast.workers.told
        if name in told:
            return

        def hear(lease: str, agent: str) -> None:
            task_id, token = named_by(lease)
            task = world.shard.state.tasks.get(task_id)
            lives = task is not None and task.token == token and task.is_leased
            if lives and task_id not in world.shard.state.projects.killing:
                world.violated(f"{name} is to stop working on {task_id}, which it still has")
            if task is not None and task.agent != agent:
                world.violated(f"{name} is to stop working on {task_id} of {agent}")
            world.model.seen["told to stop"] += 1

        told[name] = [hear]

    # -- coming for tasks

    def _ask(self, name: str) -> None:
        world, rng = self._world, self._rng
        wants = self.wants[name]
        wait_us = rng.choice((0, S, 10 * S))
        world.trace("worker %s wants %s for %s us", name, wants, wait_us)

        def given(lent: list[Lent]) -> None:
            if len(lent) > wants.most:
                world.violated(f"{name} asked for {wants.most} tasks and got {len(lent)}")
            for each in lent:
                self._given(wants, each)

        reply = Asking(world, "lease", given)
        self.asking[name] = reply
        world.shard.dispatcher.tell(lm.LendTasks(wants, wait_us, reply))

    def _given(self, wants: Wants, lent: Lent) -> None:
        world, task = self._world, lent.task
        if lent.token > world.log.seq():
            world.violated(f"{task.id} was lent before that was durable")
            return
        event: Any = decode(world.log.read(lent.token - 1, 1)[0].body).event
        if (event.task, getattr(event, "worker", None)) != (task.id, wants.worker):
            world.violated(f"{task.id} was lent under a token that is not its own")
        if not wants.takes(task):
            world.violated(f"{task.id} was lent to {wants.worker}, who does not take it")
        known = world.model.tasks[task.id]
        asked = (known.event.params or {}).get("from", "").strip("{}")
        if asked:
            parent = world.model.tasks[known.event.depends[asked]]
            if orjson.loads(lent.params)["from"] != parent.result:
                world.violated(f"{task.id} was lent without what {parent.id} came to")
        self.held[wants.worker].append((task.id, task.agent, lent.token))

    def _leave(self, name: str) -> None:
        reply = self.asking.pop(name)
        reply.leave()
        self._world.trace("worker %s leaves", name)
        self._world.shard.dispatcher.tell(lm.LeaveLine(reply))

    # -- what they say

    def _heartbeat(self, name: str, lease: tuple[str, str, int]) -> None:
        world, rng = self._world, self._rng
        task_id, _, token = lease
        lines = ("a line",) if rng.random() < 0.2 else ()
        said_at = world.shard.journal.now() - world.model.shift

        def heard(answer: Any) -> None:
            if answer.expires_at is not None:
                world.model.leases.heard(task_id, token, said_at)
            elif world.model.tasks[task_id].state != "cancelled":
                world.violated(f"{name} was told that {task_id} is cancelled")

        reply = SimReply(world, "heartbeat", heard)
        world.trace("worker %s is heard of %s", name, task_id)
        message = lm.ExtendLease(
            lease_id(task_id, token), task_id, token, None, lines, "info", None, None, LOCAL, reply
        )
        world.shard.leases.tell(message)

    def _settle(self, name: str, lease: tuple[str, str, int]) -> None:
        """Say what became of a task; now and then again, or as somebody else."""
        world, rng = self._world, self._rng
        task_id, agent, token = lease
        outcome = world.work.outcome(token) if rng.random() < self._outcome_odds else None
        says = lm.LeaseOutcome(lease_id(task_id, token), task_id, agent, token, outcome)
        who = name if rng.random() < 0.9 else rng.choice((None, "nobody"))

        def check(answers: list[Any]) -> None:
            (answer,) = answers
            if getattr(answer, "code", ""):
                return
            if who == "nobody":
                world.violated(f"nobody settled the lease of {name}")
            kind = {"succeeded": "task_succeeded", "failed": "task_failed"}.get(answer.state)
            if outcome is not None and kind is not None:
                world.acknowledged(task_id, kind)

        world.trace("worker %s says of %s: %s", name, task_id, outcome)
        reply = SimReply(world, "settle", check)
        world.shard.leases.tell(lm.SettleLeases((says,), who, LOCAL, reply))
        if rng.random() < 0.7:
            self.held[name].remove(lease)

    # -- at rest

    def at_rest(self) -> None:
        """Judge a moment at which no actor has anything to do: nobody waits in vain."""
        world, model = self._world, self._world.model
        if model.stopped or not self.asking or len(model.flying) >= model.limits.inflight:
            return
        taken = model.taken()
        dispatcher = body_of(world.shard.dispatcher)
        for name, reply in self.asking.items():
            if dispatcher.waiter_for(reply) is None:
                continue  # it was given something, which is not durable yet
            wants = self.wants[name]
            for agent, tasks in model.ready.items():
                if agent in model.paused:
                    continue
                for task in tasks.values():
                    if (
                        task.is_pull
                        and _takes(wants, agent, task.action)
                        and wants.labels.issuperset(task.event.requires or ())
                        and not model.full_caps(task, taken)
                        and not (task.event.key and model.limits.sticky_ms)
                    ):
                        world.violated(f"{name} waits for nothing but {task.id}, which waits, too")


def _takes(wants: Wants, agent: str, action: str) -> bool:
    return any(
        (each.agents is None or agent in each.agents)
        and (each.types is None or action in each.types)
        for each in wants.filters
    )


class Leases(Rule):
    """Leases: who has what, and for how long at least."""

    def __init__(self, model: Any) -> None:
        """Start without any."""
        super().__init__(model)
        self.held: dict[str, tuple[int, int, int, str]] = {}  # token, until, how long, whose
        self._started = 0

    def on_server_started(self, record: Record) -> None:
        """Every lease lives for its full length from here on."""
        self._started = self.model.steady

    def on_task_assigned(self, task: ModelTask, record: Record) -> None:
        """Judge who takes it."""
        event: Any = record.event
        if task.is_pull != (event.worker is not None):
            self.violated(f"{task.id} of {task.event.executor} went to {event.worker}")
        self.held.pop(task.id, None)
        if event.worker is not None:
            self.model.seen["lent"] += 1
            lease_us = event.lease_ms * 1000
            until = self.model.steady + lease_us
            self.held[task.id] = (record.seq, until, lease_us, event.worker)

    def heard(self, task_id: str, token: int, said_at: int) -> None:
        """Take note of a heartbeat that was answered: the lease lives for its length from then."""
        known = self.held.get(task_id)
        if known is not None and known[0] == token:
            until = max(known[1], said_at + known[2])
            self.held[task_id] = (token, until, *known[2:])

    def on_lease_expired(self, task: ModelTask, record: Record) -> None:
        """Judge the end of a lease: it has an owner, and was silent for long enough."""
        event: Any = record.event
        token, until, lease_us, worker = self.held.get(task.id, (0, 0, 0, ""))
        if (task.token, event.worker) != (token, worker) or task.state not in (
            "assigned",
            "running",
        ):
            self.violated(f"a lease of {task.id} expired that nobody had")
        if self.model.steady < max(until, self._started + lease_us) - S:
            self.violated(f"the lease of {task.id} expired before its time")
        self.model.then.append(("attempt_interrupted", task.id))

    def on_attempt_interrupted(self, task: ModelTask, record: Record) -> None:
        """Judge that the end of a lease by its time is written down before what comes of it."""
        if record.event.reason == "lease expired":  # type: ignore[union-attr]
            before: Any = self.model.last.event if self.model.last is not None else None
            if (type(before).__name__, getattr(before, "task", "")) != ("LeaseExpired", task.id):
                self.violated(f"the lease of {task.id} expired, and that is not written down")

    def on_lease_ended(self, task: ModelTask, record: Record) -> None:
        """Judge what is written of how a worker was heard of."""
        event: Any = record.event
        if event.extended < 1:
            self.violated(f"the lease of {task.id} was never extended, and that is written down")

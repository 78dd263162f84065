"""A bench for `Turns`: the news as the actors pass it on, and a reference that looks at everything.

The backlog, the slots and the pauses are the production ones, folded from events; only the order
of turns is worked out twice. The rules of the reference are in `fairest`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from support.builders import one_short
from support.wishes import made

from rota.domain import events as e
from rota.domain.attempts import decide_assignment, decide_preemption
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import PUSHER, Consumer, Turns
from rota.domain.task import READY, SCHEDULED, WAITING, Lane, Task, lane_of
from rota.projections.control import limits_to
from rota.projections.state import State

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

AGENTS = ("ann", "bob", "cyd", "dan")
LANES = (
    lane_of("builtin", "echo"),
    lane_of("builtin", "scan"),
    lane_of("tab", "scan"),
    lane_of(PULL, "echo"),
)
ECHO, SCAN, TAB_SCAN, PULLED = LANES
HELD = (
    lane_of("builtin", "echo", "shop"),
    lane_of("builtin", "scan", "shop"),
    lane_of("tab", "scan", "bank"),
    lane_of("tab", "echo", "", "1:b1"),
    lane_of("builtin", "scan", "", "2:b2"),
    lane_of("builtin", "echo", "bank", "2:b2"),
    lane_of(PULL, "scan", "shop"),
    lane_of(PULL, "echo", "bank"),
    lane_of(PULL, "mend", "bank"),
    lane_of(PULL, "mend", "shop", "2:b2"),
)
"""Lanes that keys and bounded batches hold back besides."""
LENT = (*LANES[3:], lane_of(PULL, "scan"), lane_of(PULL, "mend"))
TYPES = ("echo", "scan", "mend", "none")
ANYTHING = Consumer(PULL)


class Bench:
    """State, turns, and the news between them, as the actors pass it on."""

    def __init__(self, limits: Limits) -> None:
        """Start with limits and nothing else."""
        self.state = State()
        self.history: list[e.Event] = []
        self.now = 0
        self.record(e.ServerStarted("0", limits_to(limits)))
        self.turns = self.derive()
        self.count = 0

    def derive(self) -> Turns:
        """Build the turns from the projections."""
        state, control = self.state, self.state.control
        return Turns(
            state.backlog.orders,
            state.slots,
            control.paused,
            control.limits,
            control.paused_types,
        )

    def record(self, event: e.Event) -> None:
        """Make an event a fact."""
        self.history.append(event)
        self.state.apply(e.Record(self.state.seq + 1, self.now, event))

    def queued(self, task: Task) -> None:
        """Tell of a task that entered its queue, as the queue does."""
        head = self.state.backlog.orders[task.agent].head(task.lane)
        if head is task:
            self.turns.head_changed(task.agent, task.lane)

    # -- what may happen

    def submit(
        self, agent: str, lane: Lane, priority: int = 2, *, preempt: bool | None = None
    ) -> str:
        """Submit a task to a lane."""
        self.count += 1
        name = f"t{self.count}"
        executor, action, key, batch, _, requires, *_ = lane
        bound, _, batch_id = batch.partition(":")
        event = made(
            e.TaskSubmitted,
            name,
            agent,
            action,
            executor,
            1,
            priority,
            key=key or None,
            batch=batch_id or None,
            parallelism=int(bound) if bound else None,
            preempt=preempt,
            requires=requires.split("\n") if requires else None,
        )
        self.record(event)
        task = self.state.tasks.by_id[name]
        assert (task.lane[:4], task.lane[5]) == (lane[:4], requires)
        self.queued(task)
        return name

    def assign(self, consumer: Consumer = PUSHER) -> Task | None:
        """Give one slot away, checking the choice against the reference."""
        chosen, expected = self.turns.next(consumer), self.turn_of(consumer)
        assert chosen is expected, (
            f"{chosen and chosen.id} was chosen for {consumer}, but it is the turn of "
            f"{expected and expected.id}, after\n" + "\n".join(map(str, self.history))
        )
        if chosen is not None:
            self.give(chosen)
        return chosen

    def give(self, task: Task) -> bool:
        """Give a slot to a task, without asking the reference."""
        self.record(decide_assignment(task))
        self.turns.given(task)
        return True

    def assign_all(self, consumer: Consumer = PUSHER) -> list[str]:
        """Give away all there is."""
        given_to = []
        while (task := self.assign(consumer)) is not None:
            given_to.append(task.id)
        return given_to

    def complete(self, name: str) -> None:
        """End a task in flight."""
        task = self.state.tasks.by_id[name]
        self.record(e.TaskSucceeded(name, task.agent, task.attempt))
        self.turns.freed(task.agent, task.lane)

    def interrupt(self, name: str) -> None:
        """Put a task in flight back into its queue."""
        task = self.state.tasks.by_id[name]
        self.record(e.AttemptInterrupted(name, task.agent, task.attempt, "shutdown"))
        self.turns.freed(task.agent, task.lane)
        self.queued(task)

    def back_off(self, name: str) -> None:
        """Let an attempt fail that is tried again later."""
        task = self.state.tasks.by_id[name]
        self.record(e.AttemptFailed(name, task.agent, task.attempt, "x", "y", self.now))
        self.turns.freed(task.agent, task.lane)

    def release(self, name: str) -> None:
        """Let a task try again."""
        task = self.state.tasks.by_id[name]
        self.record(e.TaskReleased(name, task.agent, "backoff"))
        self.queued(task)

    def preempt(self, name: str) -> str | None:
        """Let a task take another's place, as the dispatcher does; name the victim."""
        task = self.state.tasks.by_id[name]
        held_by = one_short(self.turns, task)
        assert set(held_by or ()) == self.one_short_of(task)
        if held_by is None:
            return None
        swap = decide_preemption(task, held_by, self.state.slots.held_by(task.agent))
        if swap is None:
            return None
        victim = self.state.tasks.by_id[swap[0].task]
        for event in swap:
            self.record(event)
        self.turns.freed(victim.agent, victim.lane)
        self.turns.given(task)
        self.turns.freed(victim.agent, victim.lane)
        self.queued(victim)
        return victim.id

    def cancel(self, name: str) -> None:
        """Cancel a task that waits or flies."""
        task = self.state.tasks.by_id[name]
        waited = task.state in WAITING
        self.record(e.TaskCancelled(name, task.agent, task.state.value))
        if waited:
            self.turns.head_changed(task.agent, task.lane)
        else:
            self.turns.freed(task.agent, task.lane)

    def pause(self, agent: str) -> None:
        """Hold an agent."""
        self.record(e.AgentPaused(agent))

    def resume(self, agent: str) -> None:
        """Release an agent."""
        self.record(e.AgentResumed(agent))
        self.turns.resumed(agent)

    def change(self, limits: Limits) -> None:
        """Put other limits in force."""
        self.record(e.ConfigChanged(limits_to(limits), [], "test"))
        self.turns = self.derive()

    def pause_type(self, name: str) -> None:
        """Hold a type, or release it."""
        paused = name in self.state.control.paused_types
        self.record(e.TypeResumed(name) if paused else e.TypePaused(name))
        self.turns = self.derive()

    # -- the reference

    def counts_of(self, task: Task) -> dict[str, tuple[int, int]]:
        """Count what is taken of each limit that holds a task back, and give its cap."""
        control = self.state.control
        limits = control.limits
        types = {**dict(limits.types), **dict.fromkeys(control.paused_types, 0)}
        flying = [other for other in self.state.tasks if other.holds]
        plan = task.plan
        counts: dict[str, tuple[int, int]] = {}
        if task.executor != PULL:
            pushed = sum(other.executor != PULL for other in flying)
            counts["push"] = (pushed, limits.push)
        if task.action in types:
            alike = sum(other.action == task.action for other in flying)
            counts[f"type:{task.action}"] = (alike, types[task.action])
        if plan is not None and plan.key:
            alike = sum(o.plan is not None and o.plan.key == plan.key for o in flying)
            counts[f"key:{plan.key}"] = (alike, limits.per_key)
        if plan is not None and plan.parallelism:
            alike = sum(o.plan is not None and o.plan.batch == plan.batch for o in flying)
            counts[f"batch:{plan.parallelism}:{plan.batch}"] = (alike, plan.parallelism)
        return counts

    def one_short_of(self, task: Task) -> set[str]:
        """Name the limits of which a single slot would have to be free, if that is all."""
        limits = self.state.control.limits
        flying = [other for other in self.state.tasks if other.holds]
        mine = sum(other.agent == task.agent for other in flying)
        counts = self.counts_of(task)
        counts["inflight"] = (len(flying), limits.inflight)
        counts[f"agent:{task.agent}"] = (mine, limits.inflight_per_agent)
        if task.agent in self.state.control.paused:
            return set()
        if any(cap == 0 or taken > cap for taken, cap in counts.values()):
            return set()
        return {limit for limit, (taken, cap) in counts.items() if taken == cap}

    def turn_of(self, consumer: Consumer = PUSHER) -> Task | None:
        """Find the fairest of all that the consumer takes."""

        def has_room(task: Task) -> bool:
            return all(taken < cap for taken, cap in self.counts_of(task).values())

        def takes(task: Task) -> bool:
            return (
                (task.executor == PULL) == (consumer.side == PULL)
                and (consumer.types is None or task.action in consumer.types)
                and (consumer.agents is None or task.agent in consumer.agents)
                and task.lane[5] == consumer.requires
            )

        return self.fairest(lambda task: takes(task) and has_room(task))

    def fairest(self, may_have: Callable[[Task], bool]) -> Task | None:
        """Fewest in flight, then longest waiting; inside, best rank, then oldest.

        With `priority-fifo` best rank, then oldest, whoever's it is.
        """
        state, limits = self.state, self.state.control.limits
        flying = Counter(task.agent for task in state.tasks if task.holds)
        if flying.total() >= limits.inflight:
            return None

        def is_free(task: Task) -> bool:
            held = task.agent in state.control.paused
            return (
                task.state is READY and not held and flying[task.agent] < limits.inflight_per_agent
            )

        def turn(task: Task) -> tuple[int, ...]:
            aging = limits.aging_ms * 1000
            rank = task.priority * aging + task.created_at if aging else task.priority
            if limits.strategy == "priority-fifo":
                return (rank, task.created_seq)
            since = state.backlog.orders[task.agent].since
            return (flying[task.agent], since, rank, task.created_seq)

        free = [task for task in state.tasks if is_free(task) and may_have(task)]
        return min(free, key=turn, default=None)

    def names(self, *, flying: bool) -> list[str]:
        """Name the tasks in flight, or those that wait."""
        return [task.id for task in self.state.tasks if (task.holds if flying else task.entry > 0)]


def draw_limits(pick: object) -> Limits:
    """Draw limits that are often reached."""
    choice = pick.choice  # type: ignore[attr-defined]
    return Limits(
        inflight=choice((1, 2, 4, 20)),
        inflight_per_agent=choice((1, 2, 10)),
        push=choice((1, 2, 3, 10)),
        types=choice(((), (("scan", 1),), (("scan", 2), ("echo", 1)))),
        per_key=choice((1, 1, 2)),
        aging_ms=choice((0, 0, 1, 5)),
        strategy=choice(("fair-fifo", "priority-fifo")),
    )


def draw_consumer(pick: Random) -> Consumer:
    """Draw a worker that takes anything, or some types, or of some agents, or both."""
    types = tuple(pick.sample(TYPES, pick.randrange(4)))
    agents = tuple(pick.sample((*AGENTS, "eve"), pick.randrange(4)))
    return Consumer(PULL, pick.choice((None, types)), pick.choice((None, agents)))


def play(
    bench: Bench,
    pick: Random,
    moves: int,
    lanes: tuple[Lane, ...] = (*LANES, *HELD),
    *,
    lends: bool = False,
) -> None:
    """Do random things, asking for turns in between."""
    for _ in range(moves):
        bench.now += pick.choice((0, 300, 2000))
        flying, waiting = bench.names(flying=True), bench.names(flying=False)
        aside = [task.id for task in bench.state.tasks if task.state is SCHEDULED]
        roll = pick.randrange(20)
        if roll < 6:
            agent, lane = pick.choice(AGENTS), pick.choice(lanes)
            bench.submit(agent, lane, pick.choice((2, 2, 0, 3)))
        elif roll < 9:
            bench.assign(draw_consumer(pick) if lends and pick.randrange(2) else PUSHER)
        elif roll < 12 and flying:
            bench.complete(pick.choice(flying))
        elif roll == 12 and flying + waiting + aside:
            bench.cancel(pick.choice(flying + waiting + aside))
        elif roll == 13 and flying:
            bench.interrupt(pick.choice(flying))
        elif roll == 14:
            agent = pick.choice(AGENTS)
            if agent in bench.state.control.paused:
                bench.resume(agent)
            else:
                bench.pause(agent)
        elif roll == 15 and flying:
            bench.back_off(pick.choice(flying))
        elif roll == 16 and aside:
            bench.release(pick.choice(aside))
        elif roll == 17 and waiting:
            name = pick.choice(waiting)
            if bench.state.tasks.by_id[name].executor != PULL and bench.turn_of() is None:
                bench.preempt(name)
        elif roll == 18 and pick.randrange(2):
            bench.pause_type(pick.choice(("echo", "scan")))
        elif pick.randrange(4) == 0:
            bench.change(draw_limits(pick))
        if lends and pick.randrange(3):
            bench.assign_all(draw_consumer(pick))
        if pick.randrange(3):
            bench.assign_all()

"""A bench for `Lending`: workers that come, wait and leave, beside a reference that looks at all.

The news is passed on as the dispatcher does, and no more of it. The rule of the reference is in
`expected`: of all that waits and may be given to anybody who is there, the fairest is next.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from support.turns_bench import AGENTS, HELD, LANES, LENT, TYPES, Bench, draw_limits

from rota.domain.attempts import decide_assignment
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import Turns
from rota.domain.lending import Lending, Waiter
from rota.domain.task import SCHEDULED, Lane, Task, lane_of
from rota.domain.wants import Filter, Wants

if TYPE_CHECKING:
    from random import Random

LABELS = ("gpu", "big", "linux")
WORKERS = ("ada", "ben", "cox", "dot", "eli")
ASKING = tuple(
    lane_of(PULL, kind, key, "", "", requires)
    for kind, key, requires in (
        ("echo", "", "gpu"),
        ("scan", "", "gpu"),
        ("scan", "shop", "gpu"),
        ("echo", "", "big\ngpu"),
        ("mend", "bank", "big\ngpu\nlinux"),
    )
)
"""Lanes that require labels of who takes their tasks."""
EVERY = (*LANES, *HELD, *LENT, *ASKING)


class TellingTurns(Turns):
    """Turns that pass the news on to who waits, as the dispatcher does."""

    lending: Lending | None = None
    bench: LendingBench

    def head_changed(self, agent: str, lane: Lane) -> None:
        """Tell both."""
        super().head_changed(agent, lane)
        if self.lending is not None:
            self.lending.head_changed(agent, lane)
            self.bench.keep_for_first(agent, lane)

    def freed(self, agent: str, lane: Lane) -> None:
        """Tell both."""
        super().freed(agent, lane)
        if self.lending is not None:
            self.lending.freed(agent, lane)

    def resumed(self, agent: str) -> None:
        """Tell both."""
        super().resumed(agent)
        if self.lending is not None:
            self.lending.resumed(agent)

    def given(self, task: Task) -> None:
        """Tell nobody who waits: that a task was given away makes no turn better."""
        lending, self.lending = self.lending, None
        super().given(task)
        self.lending = lending


class LendingBench(Bench):
    """The bench of turns, with workers."""

    def __init__(self, limits: Limits) -> None:
        """Start with limits and nobody."""
        self.lending: Lending | None = None
        super().__init__(limits)
        self.lending = Lending(self.turns)
        self._tell_on()
        self.sticky_us = 0
        self.last: dict[str, str] = {}  # the worker that had a key last
        self.barred: dict[str, tuple[int, bool]] = {}  # until when a key is kept; for a task?
        self._replies = count(1)

    def derive(self) -> Turns:
        """Build the turns anew; who waits goes by them."""
        state, control = self.state, self.state.control
        args = (state.backlog.orders, state.slots, control.paused, control.limits)
        self.turns = TellingTurns(*args, control.paused_types)
        if self.lending is not None:
            self.lending.rebase(self.turns)
            self._tell_on()
        return self.turns

    def _tell_on(self) -> None:
        assert isinstance(self.turns, TellingTurns)
        self.turns.lending, self.turns.bench = self.lending, self

    @property
    def line(self) -> Lending:
        """Those who wait."""
        assert self.lending is not None
        return self.lending

    # -- workers

    def come(self, worker: str = "ada", most: int = 1, **wants: Any) -> Waiter:
        """Let a worker wait."""
        asked = Wants(
            worker,
            wants.get("filters") or (Filter(wants.get("agents"), wants.get("types")),),
            frozenset(wants.get("labels", ())),
            most,
            30_000,
        )
        waiter = Waiter(asked, next(self._replies))
        self.line.join(waiter)
        for key in [key for key in self.barred if self.last[key] == worker]:
            del self.barred[key]
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Let a worker leave."""
        assert self.line.leave(waiter)

    def hand_back(self, name: str, worker: str, sticky_us: int) -> None:
        """End a lent task; its key is kept for the worker that had it."""
        task = self.state.tasks.by_id[name]
        key = task.lane[2]
        if key and sticky_us:
            self.sticky_us = sticky_us
            flying = [self.state.tasks.by_id[each] for each in self.names(flying=True)]
            had_room = (
                sum(each.lane[2] == key for each in flying) < self.state.control.limits.per_key
            )
            order = self.state.backlog.orders.get(task.agent)
            head = order.head(task.lane) if order is not None and had_room else None
            until = (self.now if head is None else head.ready_at) + sticky_us
            self.line.keep(key, worker, until, self.now)
            self.last[key] = worker
            self.barred.pop(key, None)
            if not self.line.waits(worker) and self.now < until:
                self.barred[key] = until, False
        self.complete(name)

    def keep_for_first(self, agent: str, lane: Lane) -> None:
        """Keep the key of a task that came to the front, as long as it is just ready."""
        key, order = lane[2], self.state.backlog.orders.get(agent)
        head = order.head(lane) if order is not None else None
        if head is None or not key or head.executor != PULL:
            return
        until = head.ready_at + self.sticky_us
        if until <= self.now:
            return
        self.line.keep_for(head, until)
        _, is_for_task = self.barred.get(key, (0, False))
        if key in self.last and not self.line.waits(self.last[key]) and not is_for_task:
            self.barred.pop(key, None)
            self.barred[key] = until, True

    def let_keys_go(self, sticky_us: int) -> None:
        """Keep no key that was kept for long enough."""
        self.line.let_go(self.now, sticky_us)
        for key, (until, is_for_task) in list(self.barred.items()):
            if self.now < until <= self.now + sticky_us:
                return
            del self.barred[key]
            if is_for_task:
                del self.last[key]

    def serve(self) -> list[tuple[str, str | None]]:
        """Give away all there is, checking each choice; name the tasks and who has them."""
        served: dict[Waiter, None] = {}
        given_to: list[tuple[str, str | None]] = []
        while True:
            found, expected = self.line.next(), self.expected()
            chosen = found[0] if found is not None else None
            assert chosen is expected, (
                f"{chosen and chosen.id} was chosen, but it is the turn of "
                f"{expected and expected.id}, after\n" + "\n".join(map(str, self.history))
            )
            if found is None or chosen is None:
                break
            given_to.append((chosen.id, self.hand_out(chosen, found[1], served)))
        for waiter in served:
            self.line.leave(waiter)
        return given_to

    def hand_out(self, task: Task, waiter: Waiter | None, served: dict[Waiter, None]) -> str | None:
        """Give a task away; name who has it."""
        if waiter is None:
            assert task.executor != PULL
            self.give(task)
            return None
        assert waiter in self.line.all()
        assert waiter.wants.takes(task)
        whose = self.last.get(task.lane[2])
        if task.lane[2] and whose:
            fond = [w for w in self.line.all() if w.wants.worker == whose and w.wants.takes(task)]
            assert not fond or waiter.wants.worker == whose, "the key's last worker waits"
        self.record(decide_assignment(task, waiter.wants.worker, waiter.wants.lease_ms))
        waiter.given.append((task.id, self.state.seq))
        served[waiter] = None
        if waiter.is_served:
            self.line.leave(waiter)
        self.turns.given(task)
        return waiter.wants.worker

    # -- the reference

    def expected(self) -> Task | None:
        """Find the fairest of all that rota runs or that anybody who is here takes."""
        here = [waiter.wants for waiter in self.line.all()]

        def may_have(task: Task) -> bool:
            return (
                task.executor != PULL
                or (task.lane[2] not in self.barred and any(w.takes(task) for w in here))
            ) and all(taken < cap for taken, cap in self.counts_of(task).values())

        return self.fairest(may_have)


class PatientBench(LendingBench):
    """A bench that looks at a few lines at a time: in the end nothing is left that may be given."""

    def serve(self) -> list[tuple[str, str | None]]:
        """Give away all there is, in whatever order it is found."""
        served: dict[Waiter, None] = {}
        given_to: list[tuple[str, str | None]] = []
        while (found := self.line.next()) is not None or self.line.is_easing:
            if found is not None:
                given_to.append((found[0].id, self.hand_out(*found, served)))
        assert self.expected() is None, "\n".join(map(str, self.history))
        for waiter in served:
            self.line.leave(waiter)
        return given_to


def draw_wants(pick: Random) -> dict[str, Any]:
    """Draw what a worker takes."""
    agents = tuple(pick.sample((*AGENTS, "eve"), pick.randint(1, 3)))
    types = tuple(pick.sample(TYPES, pick.randint(1, 3)))
    return {
        "worker": pick.choice(WORKERS),
        "most": pick.choice((1, 1, 2, 5)),
        "agents": pick.choice((None, agents)),
        "types": pick.choice((None, types)),
        "labels": pick.sample(LABELS, pick.randrange(4)),
    }


def play(bench: LendingBench, pick: Random, moves: int, sticky_us: int = 0) -> None:
    """Do random things, giving away what there is in between."""
    for _ in range(moves):
        bench.now += pick.choice((0, 300, 2000))
        if sticky_us:
            bench.let_keys_go(sticky_us)
        flying, waiting = bench.names(flying=True), bench.names(flying=False)
        aside = [task.id for task in bench.state.tasks if task.state is SCHEDULED]
        roll = pick.randrange(24)
        if roll < 7:
            bench.submit(pick.choice(AGENTS), pick.choice(EVERY), pick.choice((2, 2, 0, 3)))
        elif roll < 12:
            wants = [draw_wants(pick) for _ in range(pick.choice((1, 1, 2)))]
            filters = tuple(Filter(each.get("agents"), each.get("types")) for each in wants)
            bench.come(**wants[0], filters=filters)
        elif roll < 14 and bench.line.all():
            bench.leave(pick.choice(bench.line.all()))
        elif roll < 17 and flying:
            name = pick.choice(flying)
            worker = bench.state.tasks.by_id[name].worker
            if worker is None:
                bench.complete(name)
            else:
                bench.hand_back(name, worker, sticky_us)
        elif roll == 17 and flying:
            bench.interrupt(pick.choice(flying))
        elif roll == 18 and flying + waiting + aside:
            bench.cancel(pick.choice(flying + waiting + aside))
        elif roll == 19:
            agent = pick.choice(AGENTS)
            held = agent in bench.state.control.paused
            (bench.resume if held else bench.pause)(agent)
        elif roll == 20 and flying:
            bench.back_off(pick.choice(flying))
        elif roll == 21 and aside:
            bench.release(pick.choice(aside))
        elif roll == 22 and pick.randrange(2):
            bench.pause_type(pick.choice(("echo", "scan")))
        elif pick.randrange(4) == 0:
            bench.change(draw_limits(pick))
        if pick.randrange(3):
            bench.serve()
    bench.serve()

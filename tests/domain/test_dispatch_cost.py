"""What a turn costs, counted in looks; and that nothing is kept longer than tasks wait."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from support.turns_bench import ANYTHING, ECHO, HELD, LANES, LENT, PULLED, Bench, draw_limits, play

from rota.domain import ordering
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import PUSHER, Consumer
from rota.domain.standing import BY_PRIORITY, Standings
from rota.domain.task import lane_of

STRATEGIES = ("fair-fifo", "priority-fifo")


def test_the_keys_that_an_agent_waits_for_do_not_make_a_dispatch_dearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A finished task costs the same look around with ten keys held back as with a thousand."""
    looks = 0
    look = Standings.of

    def counted(self: Standings, *args: object) -> object:
        nonlocal looks
        looks += 1
        return look(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Standings, "of", counted)
    cost = {}
    for keys in (10, 1000):
        bench = Bench(Limits(inflight=2000, inflight_per_agent=2000, push=2000))
        plain = [bench.submit("ann", ECHO) for _ in range(20)]
        for n in range(keys):
            lane = lane_of("builtin", "echo", f"key-{n}")
            bench.submit("ann", lane)
            bench.submit("ann", lane)
        while (task := bench.turns.next()) is not None:
            bench.give(task)
        looks = 0
        for name in plain:
            bench.complete(name)
            assert bench.turns.next() is None
        cost[keys] = looks / len(plain)
    assert cost[1000] <= cost[10] + 20, cost


def looks_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often anybody asks where an agent stands, or what is first in a lane."""
    count = [0]
    for cls, name in ((Standings, "of"), (ordering.AgentOrder, "head")):

        def counted(self: object, *args: object, look: object = getattr(cls, name)) -> object:
            count[0] += 1
            return look(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(cls, name, counted)
    return count


def roomy(strategy: str = "fair-fifo") -> Bench:
    """Make a bench whose shared limits hold nobody back."""
    most = 10**6
    limits = Limits(inflight=most, inflight_per_agent=most, push=most, strategy=strategy)
    return Bench(limits)


def serve_all(bench: Bench, consumer: Consumer = PUSHER) -> list[str]:
    """Give away all there is, without asking the reference, which looks at everything."""
    given_to = []
    while (task := bench.turns.next(consumer)) is not None and bench.give(task):
        given_to.append(task.id)
    return given_to


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("side", ["builtin", PULL])
def test_a_key_that_many_agents_want_costs_each_turn_the_same(
    side: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, cost = looks_of(monkeypatch), {}
    consumer = ANYTHING if side == PULL else PUSHER
    for agents in (10, 2000):
        bench = roomy(strategy)
        lane = lane_of(side, "echo", "shop")
        names = [bench.submit(f"agent-{n}", lane) for n in range(agents)]
        assert serve_all(bench, consumer) == names[:1]
        looks[0] = 0
        for before, name in pairwise(names[:10]):
            bench.complete(before)
            assert serve_all(bench, consumer) == [name]
        cost[agents] = looks[0]
    assert cost[2000] <= cost[10] + 20, cost


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("side", ["builtin", PULL])
def test_a_freed_key_among_many_full_ones_costs_the_same(
    side: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, cost = looks_of(monkeypatch), {}
    consumer = ANYTHING if side == PULL else PUSHER
    for keys in (10, 2000):
        bench = roomy(strategy)
        lanes = [lane_of(side, "echo", f"key-{n}") for n in range(keys)]
        first = [bench.submit("ann", lane) for lane in lanes]
        second = [bench.submit("ann", lane) for lane in lanes]
        assert serve_all(bench, consumer) == first
        looks[0] = 0
        for n in range(10):
            bench.complete(first[n])
            assert serve_all(bench, consumer) == second[n : n + 1]
        cost[keys] = looks[0]
    assert cost[2000] <= cost[10] + 20, cost


@pytest.mark.parametrize(
    "consumer",
    [
        ANYTHING,
        Consumer(PULL, types=("type-7", "type-3")),
        Consumer(PULL, agents=("agent-7", "agent-3")),
        Consumer(PULL, types=("type-7", "type-3"), agents=("agent-7", "agent-3")),
    ],
    ids=["anything", "types", "agents", "both"],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_worker_does_not_take_costs_it_nothing(
    strategy: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with many types, nor with many agents, nor with full keys among them."""
    looks, cost = looks_of(monkeypatch), {}
    for count in (10, 1000):
        bench = roomy(strategy)
        for n in range(count):
            bench.submit(f"agent-{n}", lane_of(PULL, f"type-{n}"), 3)
            bench.submit(f"agent-{n}", lane_of(PULL, f"type-{n}", "shop"))
        assert bench.turns.next(consumer) is not None  # the first who comes has it laid out
        for _ in range(2):  # by priority the first round sets aside what the key holds back
            looks[0] = 0
            assert len([task for _ in range(2) if (task := bench.turns.next(consumer))]) == 2
            given_to = bench.turns.next(consumer)
            assert given_to is not None
            bench.give(given_to)
            assert bench.turns.next(consumer) is not None
            bench.complete(given_to.id)
            assert bench.turns.next(consumer) is not None
        cost[count] = looks[0]
    assert cost[1000] <= cost[10] + 5, cost


@pytest.mark.parametrize("side", ["builtin", PULL])
def test_a_turn_by_priority_among_many_agents_costs_the_same(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an agent that stands first is held, or one behind it comes to have the best task."""
    looks, cost = looks_of(monkeypatch), {}
    consumer = ANYTHING if side == PULL else PUSHER
    for agents in (10, 2000):
        bench = Bench(
            Limits(inflight=10**6, inflight_per_agent=1, push=10**6, strategy=BY_PRIORITY)
        )
        lane = lane_of(side, "echo")
        first = [bench.submit(f"agent-{n}", lane) for n in range(agents)]
        second = [bench.submit(f"agent-{n}", lane, 1) for n in range(agents)]
        assert serve_all(bench, consumer) == second
        looks[0] = 0
        for n in range(10):
            urgent = bench.submit(f"agent-{n}", lane, 0)
            bench.complete(second[n])
            assert serve_all(bench, consumer) == [urgent]
            bench.complete(urgent)
            assert serve_all(bench, consumer) == [first[n]]
        cost[agents] = looks[0]
    assert cost[2000] <= cost[10] + 20, cost


def test_what_no_worker_has_come_for_is_not_laid_out() -> None:
    bench = roomy()
    for n in range(10):
        bench.submit(f"agent-{n}", PULLED)
    assert bench.turns.next() is None
    assert list(bench.turns._views) == [("push", False)]
    assert bench.turns.next(Consumer(PULL, types=("echo",))) is not None
    assert list(bench.turns._views) == [("push", False), (PULL, True)]


def test_heads_that_come_and_go_under_a_full_key_leave_nothing_behind() -> None:
    bench = roomy()
    held = bench.submit("ann", HELD[0])
    bench.submit("ann", HELD[0], 3)
    assert serve_all(bench) == [held]
    for _ in range(500):
        name = bench.submit("ann", HELD[0], 1)
        assert bench.turns.next() is None
        bench.cancel(name)
        assert bench.turns.next() is None
    (gate,) = bench.turns._views["push", False]._gates[""].values()
    lanes = gate._lanes["ann"]
    assert len(lanes.heap) + len(lanes.aside["key:shop"]) < 200


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_when_nobody_waits(seed: int) -> None:
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    bench.turns.next(ANYTHING)
    play(bench, pick, 150, (*LANES, *HELD, *LENT), lends=True)
    for name in bench.names(flying=False):
        bench.cancel(name)
    for view in bench.turns._views.values():
        assert view._gates == {}
    assert bench.turns.urgent._lanes == {}

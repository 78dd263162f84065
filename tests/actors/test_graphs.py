"""Random graphs of tasks, run by the real actors: whoever depends on another starts after it.

Graphs come in any order, one by one under ids of their own or as batches; attempts end in any order,
well or badly; tasks are cancelled; the server crashes in between. In the end everything has ended,
each task as its parents and its own luck say.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from actors.bench import BAD, Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from pykka import ActorRegistry
from support.wishes import made

from rota.domain import events as e
from rota.domain.attempts import INTERRUPTIONS_MAX
from rota.domain.commands import Limits
from rota.domain.intake import Request
from rota.domain.task import TERMINAL

FATES = ("good", "good", "good", "flaky", "bad", "cancelled")
RETRY = {"kind": "fixed", "base_ms": 10, "max_attempts": 2}
NODES_MAX = 9
CRASHES_MAX = INTERRUPTIONS_MAX - 1


class Graph(NamedTuple):
    """Which task depends on which, and how each of them will end if it gets that far."""

    parents: tuple[frozenset[int], ...]
    fates: tuple[str, ...]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph without cycles: each node depends on some of those before it."""
    size = draw(st.integers(1, NODES_MAX))
    parents = tuple(
        frozenset(draw(st.sets(st.integers(0, node - 1), max_size=3))) if node else frozenset()
        for node in range(size)
    )
    fates = tuple(draw(st.sampled_from(FATES)) for _ in range(size))
    return Graph(parents, fates)


class Run:
    """One graph on one bench, with dice for everything that is left open."""

    def __init__(self, graph: Graph, dice: Random) -> None:
        self.graph, self.dice = graph, dice
        self.bench = Bench(
            Limits(
                inflight=dice.choice((1, 2, 20)),
                inflight_per_agent=dice.choice((1, 10)),
                push=dice.choice((1, 4)),
            )
        )
        self.ids: dict[int, str] = {}
        self.nodes: dict[str, int] = {}
        self.batches: dict[str, list[int]] = {}
        self.was_cancelled: set[int] = set()
        self.crashes = 0

    def command(self, node: int) -> Request:
        """A task of the graph, by itself."""
        dice = self.dice
        return made(
            Request,
            agent=dice.choice(("ann", "bob")),
            action="echo",
            executor="builtin",
            priority=dice.randrange(4),
            ref=f"node-{node}",
            retry=RETRY if self.graph.fates[node] == "flaky" else None,
            key=dice.choice((None, None, "shop")),
        )

    def note(self, node: int, task: str) -> None:
        self.ids[node], self.nodes[task] = task, node

    # -- ways to submit

    def one_by_one(self, order: list[int]) -> None:
        """Each under an id that was chosen before, so that parents may come later."""
        for node in order:
            depends = tuple(f"id-{parent}" for parent in sorted(self.graph.parents[node]))
            command = self.command(node)._replace(wanted_id=f"id-{node}", depends=depends)
            self.note(node, self.bench.submit(command))
            self.something()

    def in_groups(self, order: list[int]) -> None:
        """Some together, under ids that were chosen before."""
        rest = list(order)
        while rest:
            size = self.dice.randint(1, len(rest))
            group, rest = rest[:size], rest[size:]
            tasks = []
            for node in group:
                depends = [self.name(parent, group) for parent in self.graph.parents[node]]
                command = self.command(node)._replace(wanted_id=f"id-{node}")
                tasks.append(command._replace(depends=tuple(depends)))
            self.together(group, tasks)
            self.something()

    def as_a_batch(self, order: list[int]) -> None:
        """All together, by refs and indices alone."""
        tasks = []
        for node in order:
            depends = [self.name(parent, order, ids=False) for parent in self.graph.parents[node]]
            tasks.append(self.command(node)._replace(depends=tuple(depends)))
        self.together(order, tasks)

    def name(self, node: int, group: list[int], *, ids: bool = True) -> str | int:
        """Name a parent in one of the ways that are open."""
        ways: list[str | int] = [f"id-{node}"] if ids else []
        if node in group:
            ways += [f"ref:node-{node}", group.index(node)]
        return self.dice.choice(ways)

    def together(self, group: list[int], tasks: list[Request]) -> None:
        bound = self.dice.choice((None, 1, 2))
        answer = self.bench.submit_batch(*tasks, parallelism=bound)
        self.batches[answer.batch] = group
        for node, admitted in zip(group, answer.tasks, strict=True):
            self.note(node, admitted.task)

    # -- what happens meanwhile

    def something(self) -> None:
        for _ in range(self.dice.randrange(3)):
            self.step()
        self.perhaps_crash(0.05)

    def perhaps_crash(self, odds: float) -> None:
        """Crash now and then, but not so often that a task is blamed for it."""
        if self.crashes < CRASHES_MAX and self.dice.random() < odds:
            self.crashes += 1
            self.bench.crash()

    def step(self) -> bool:
        """End an attempt, cancel a task, or let time pass; False if nothing is left to do."""
        bench, dice = self.bench, self.dice
        doomed = [node for node in self.ids if self.may_be_cancelled(node)]
        if doomed and dice.random() < 0.3:
            self.cancel(dice.choice(doomed))
        elif bench.running:
            self.end(dice.choice(bench.running))
        elif (due := bench.host.due()) is not None:
            bench.host.run_until(due)
        elif doomed:
            self.cancel(dice.choice(doomed))
        else:
            return False
        return True

    def may_be_cancelled(self, node: int) -> bool:
        is_over = self.bench.task(self.ids[node]).state in TERMINAL
        return self.graph.fates[node] == "cancelled" and not is_over

    def cancel(self, node: int) -> None:
        self.was_cancelled.add(node)
        self.bench.cancel(self.ids[node], "by dice")

    def end(self, task: str) -> None:
        node = self.nodes[task]
        fate = self.graph.fates[node]
        if fate == "cancelled":
            self.cancel(node)
        elif fate == "bad" or (fate == "flaky" and self.bench.task(task).attempt == 1):
            self.bench.end(task, BAD)
        else:
            self.bench.end(task)

    def finish(self) -> None:
        for _ in range(100 * NODES_MAX):
            if not self.step():
                return
            self.perhaps_crash(0.02)
        msg = "the graph never comes to rest"
        raise AssertionError(msg)

    # -- what must have come of it

    def judge(self) -> None:
        """Everything has ended as it must, in an order that the graph allows."""
        records = self.bench.records()
        ends = {r.event.task: r.seq for r in records if isinstance(r.event, e.TaskSucceeded)}
        starts: dict[str, int] = {}
        for record in records:
            if isinstance(record.event, e.TaskAssigned):
                starts.setdefault(record.event.task, record.seq)
        expected = self.expected()
        for node, parents in enumerate(self.graph.parents):
            task = self.bench.task(self.ids[node])
            assert (task.state.value, task.error_code) == expected[node], node
            if task.id in starts:
                for parent in parents:
                    assert ends[self.ids[parent]] < starts[task.id], (parent, node)
            if expected[node] == ("cancelled", "dependency_failed"):
                assert task.id not in starts
        self.judge_rest()

    def expected(self) -> list[tuple[str, str | None]]:
        """Say how each task must have ended, parents first."""
        found: list[tuple[str, str | None]] = []
        for node, parents in enumerate(self.graph.parents):
            lost = any(found[parent][0] != "succeeded" for parent in parents)
            if node in self.was_cancelled:
                found.append(("cancelled", "cancelled"))
            elif lost:
                found.append(("cancelled", "dependency_failed"))
            elif self.graph.fates[node] == "bad":
                found.append(("failed", "boom"))
            else:
                found.append(("succeeded", None))
        return found

    def judge_rest(self) -> None:
        """Nothing is left over, and every batch was finished once."""
        state = self.bench.shard.state
        assert (state.graph.children, state.graph.due) == ({}, {})
        assert (state.backlog.total, state.slots.total) == (0, 0)
        expected = self.expected()
        for batch, group in self.batches.items():
            assert self.bench.kinds(batch) == ["BatchSubmitted", "BatchFinished"]
            fates = [expected[node][0] for node in group]
            found = self.bench.batch(batch)
            assert found.fates == {
                fate: fates.count(fate) for fate in ("succeeded", "failed", "cancelled")
            }
        self.bench.check_replay()


WAYS = {"one by one": Run.one_by_one, "in groups": Run.in_groups, "as a batch": Run.as_a_batch}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(graph=graphs(), seed=st.integers(0, 10**6))
def test_a_graph_is_run_in_its_order_whatever_happens(way: str, graph: Graph, seed: int) -> None:
    dice = Random(seed)
    run = Run(graph, dice)
    try:
        order = list(range(len(graph.parents)))
        dice.shuffle(order)
        WAYS[way](run, order)
        run.finish()
        run.judge()
    finally:
        run.bench.close()
    assert ActorRegistry.get_all() == []

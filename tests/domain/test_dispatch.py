"""Whose turn it is: `Turns` against a reference that looks at everything, every time.

The backlog, the slots and the pauses are the production ones, folded from events; only the order
of turns is worked out twice. The rules of the reference are the three lines of `turn_of`.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.domain import events as e
from rota.domain.attempts import decide_assignment
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import Turns
from rota.domain.task import READY, Task, limits_of
from rota.projections.control import limits_to
from rota.projections.state import State

AGENTS = ("ann", "bob", "cyd", "dan")
LANES = (("builtin", "echo"), ("builtin", "scan"), ("tab", "scan"), (PULL, "echo"))


class Bench:
    """State, turns, and the news between them, as the actors pass it on."""

    def __init__(self, limits: Limits) -> None:
        """Start with limits and nothing else."""
        self.state = State()
        self.history: list[e.Event] = []
        self.record(e.ServerStarted("0", limits_to(limits)))
        self.turns = self.derive()
        self.count = 0

    def derive(self) -> Turns:
        """Build the turns from the projections."""
        state = self.state
        return Turns(state.backlog.orders, state.slots, state.control.paused, state.control.limits)

    def record(self, event: e.Event) -> None:
        """Make an event a fact."""
        self.history.append(event)
        self.state.apply(e.Record(self.state.seq + 1, 0, event))

    # -- what may happen

    def submit(self, agent: str, lane: tuple[str, str], priority: int = 2) -> str:
        """Submit a task, and tell of a new head as the queue does."""
        self.count += 1
        name = f"t{self.count}"
        self.record(e.TaskSubmitted(name, agent, lane[1], lane[0], 1, priority))
        head = self.state.backlog.orders[agent].head(lane)
        if head is not None and head.id == name:
            self.turns.head_changed(agent, lane)
        return name

    def assign(self) -> Task | None:
        """Give one slot away, checking the choice against the reference."""
        chosen, expected = self.turns.next(), self.turn_of()
        assert chosen is expected, (
            f"{chosen and chosen.id} was chosen, but it is the turn of "
            f"{expected and expected.id}, after\n" + "\n".join(map(str, self.history))
        )
        if chosen is not None:
            self.record(decide_assignment(chosen))
            self.turns.taken(chosen)
        return chosen

    def assign_all(self) -> list[str]:
        """Give away all there is."""
        given_to = []
        while (task := self.assign()) is not None:
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
        if self.state.backlog.orders[task.agent].head(task.lane) is task:
            self.turns.head_changed(task.agent, task.lane)

    def cancel(self, name: str) -> None:
        """Cancel a task that waits or flies."""
        task = self.state.tasks.by_id[name]
        waited = task.state is READY
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

    # -- the reference

    def turn_of(self) -> Task | None:
        """Fewest in flight, then longest waiting; inside, best priority, then oldest."""
        state, limits = self.state, self.state.control.limits
        caps = {"push": limits.push, **{f"type:{name}": cap for name, cap in limits.types}}
        flying = [task for task in state.tasks if task.holds]
        if len(flying) >= limits.inflight:
            return None

        def has_room(task: Task) -> bool:
            return task.executor != PULL and all(
                limit not in caps or sum(limit in limits_of(f.lane) for f in flying) < caps[limit]
                for limit in limits_of(task.lane)
            )

        turns = []
        for agent, order in state.backlog.orders.items():
            count = sum(task.agent == agent for task in flying)
            tasks = [
                task
                for task in state.tasks
                if task.agent == agent and task.state is READY and has_room(task)
            ]
            held = agent in state.control.paused or count >= limits.inflight_per_agent
            if tasks and not held:
                best = min(tasks, key=lambda task: (task.priority, task.created_seq))
                turns.append(((count, order.since), best))
        return min(turns, key=lambda turn: turn[0])[1] if turns else None

    def names(self, *, flying: bool) -> list[str]:
        """Name the tasks in flight, or those that wait."""
        return [task.id for task in self.state.tasks if (task.holds if flying else task.entry != 0)]


def draw_limits(pick: object) -> Limits:
    """Draw limits that are often reached."""
    choice = pick.choice  # type: ignore[attr-defined]
    return Limits(
        inflight=choice((1, 2, 4, 20)),
        inflight_per_agent=choice((1, 2, 10)),
        push=choice((1, 2, 3, 10)),
        types=choice(((), (("scan", 1),), (("scan", 2), ("echo", 1)))),
    )


def play(bench: Bench, pick: Random, moves: int) -> None:
    """Do random things, asking for turns in between."""
    for _ in range(moves):
        flying, waiting = bench.names(flying=True), bench.names(flying=False)
        roll = pick.randrange(16)
        if roll < 6:
            agent, lane = pick.choice(AGENTS), pick.choice(LANES)
            bench.submit(agent, lane, pick.choice((2, 2, 0, 3)))
        elif roll < 9:
            bench.assign()
        elif roll < 12 and flying:
            bench.complete(pick.choice(flying))
        elif roll == 12 and flying + waiting:
            bench.cancel(pick.choice(flying + waiting))
        elif roll == 13 and flying:
            bench.interrupt(pick.choice(flying))
        elif roll == 14:
            agent = pick.choice(AGENTS)
            if agent in bench.state.control.paused:
                bench.resume(agent)
            else:
                bench.pause(agent)
        elif pick.randrange(4) == 0:
            bench.change(draw_limits(pick))
        if pick.randrange(3):
            bench.assign_all()


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_turns_choose_what_a_look_at_everything_chooses(pick: Random, moves: int) -> None:
    bench = Bench(draw_limits(pick))
    play(bench, pick, moves)
    bench.assign_all()


@pytest.mark.parametrize("seed", range(150))
def test_turns_agree_with_the_reference_over_long_histories(seed: int) -> None:
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    play(bench, pick, 200)
    bench.assign_all()


@pytest.mark.parametrize("seed", range(40))
def test_turns_built_anew_choose_as_those_that_lived_through_it(seed: int) -> None:
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    for _ in range(10):
        play(bench, pick, 10)
        anew = bench.derive()
        assert anew.next() is bench.turns.next()


def test_between_equals_the_one_that_waited_longest_goes_first() -> None:
    bench = Bench(Limits(inflight=2))
    first = bench.submit("zoe", LANES[0])
    second = bench.submit("ann", LANES[0])
    bench.submit("zoe", LANES[0])
    assert bench.assign_all() == [first, second]


def test_an_agent_that_was_served_goes_behind_its_equals() -> None:
    bench = Bench(Limits(inflight=1))
    a1, a2 = bench.submit("ann", LANES[0]), bench.submit("ann", LANES[0])
    b1 = bench.submit("bob", LANES[0])
    order = []
    while (task := bench.assign()) is not None:
        order.append(task.id)
        bench.complete(task.id)
    assert order == [a1, b1, a2]


def test_the_agent_with_fewer_in_flight_goes_first() -> None:
    bench = Bench(Limits(inflight=3))
    tasks = [bench.submit("ann", LANES[0]) for _ in range(3)]
    assert bench.assign() is not None
    assert bench.assign() is not None
    late = bench.submit("bob", LANES[0])
    assert bench.assign_all() == [late]
    assert bench.names(flying=False) == tasks[2:]


def test_a_lane_at_its_limit_does_not_hold_up_the_agents_other_lanes() -> None:
    bench = Bench(Limits(types=(("scan", 1),)))
    first = bench.submit("ann", ("builtin", "scan"), 0)
    held = bench.submit("ann", ("builtin", "scan"), 0)
    other = bench.submit("ann", ("builtin", "echo"), 3)
    assert bench.assign_all() == [first, other]
    bench.complete(first)
    assert bench.assign_all() == [held]


def test_lanes_that_waited_for_one_limit_come_back_by_age_and_not_by_name() -> None:
    bench = Bench(Limits(push=1))
    first = bench.submit("cyd", ("tab", "scan"))
    assert bench.assign_all() == [first]
    older = bench.submit("ann", ("builtin", "scan"))
    younger = bench.submit("ann", ("builtin", "echo"))
    bench.complete(first)
    assert bench.assign_all() == [older]
    bench.complete(older)
    assert bench.assign_all() == [younger]


def test_a_lane_held_by_a_limit_and_then_by_its_agents_cap_comes_back() -> None:
    bench = Bench(Limits(inflight_per_agent=1, types=(("echo", 1),)))
    echo = bench.submit("dan", ("builtin", "echo"))
    scan = bench.submit("ann", ("builtin", "scan"))
    assert bench.assign_all() == [echo, scan]
    held = bench.submit("ann", ("builtin", "echo"))
    assert bench.assign_all() == []
    bench.complete(echo)
    assert bench.assign_all() == []
    bench.complete(scan)
    assert bench.assign_all() == [held]


def test_a_lane_that_moves_on_to_another_limit_does_not_keep_the_first_from_others() -> None:
    bench = Bench(Limits(push=2, types=(("scan", 1),)))
    scan = bench.submit("ann", ("builtin", "scan"))
    echo = bench.submit("bob", ("builtin", "echo"))
    assert bench.assign_all() == [scan, echo]
    bench.submit("cyd", ("builtin", "scan"))
    other = bench.submit("dan", ("builtin", "echo"))
    assert bench.assign_all() == []
    bench.complete(echo)
    assert bench.assign_all() == [other]


def test_a_paused_agent_is_passed_over_and_comes_back_when_resumed() -> None:
    bench = Bench(Limits())
    bench.pause("ann")
    held, other = bench.submit("ann", LANES[0]), bench.submit("bob", LANES[0])
    assert bench.assign_all() == [other]
    bench.resume("ann")
    assert bench.assign_all() == [held]


def test_tasks_that_wait_for_a_worker_get_no_push_slot() -> None:
    bench = Bench(Limits())
    bench.submit("ann", (PULL, "echo"))
    assert bench.assign() is None

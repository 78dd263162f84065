"""Whose turn it is: `Turns` against a reference that looks at everything, every time.

The backlog, the slots and the pauses are the production ones, folded from events; only the order
of turns is worked out twice. The rules of the reference are the three lines of `turn_of`.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.builders import one_short

from rota.domain import caps, dispatch, ordering
from rota.domain import events as e
from rota.domain.attempts import decide_assignment, decide_preemption
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import Turns
from rota.domain.task import READY, SCHEDULED, WAITING, Lane, Task, lane_of
from rota.projections.control import limits_to
from rota.projections.state import State

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
)
"""Lanes that keys and bounded batches hold back besides."""


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
        if head is task and task.executor != PULL:
            self.turns.head_changed(task.agent, task.lane)

    # -- what may happen

    def submit(
        self, agent: str, lane: Lane, priority: int = 2, *, preempt: bool | None = None
    ) -> str:
        """Submit a task to a lane."""
        self.count += 1
        name = f"t{self.count}"
        executor, action, key, batch, _ = lane
        bound, _, batch_id = batch.partition(":")
        event = e.TaskSubmitted(
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
        )
        self.record(event)
        task = self.state.tasks.by_id[name]
        assert task.lane[:4] == lane[:4]
        self.queued(task)
        return name

    def assign(self) -> Task | None:
        """Give one slot away, checking the choice against the reference."""
        chosen, expected = self.turns.next(), self.turn_of()
        assert chosen is expected, (
            f"{chosen and chosen.id} was chosen, but it is the turn of "
            f"{expected and expected.id}, after\n" + "\n".join(map(str, self.history))
        )
        if chosen is not None:
            self.give(chosen)
        return chosen

    def give(self, task: Task) -> bool:
        """Give a slot to a task, without asking the reference."""
        self.record(decide_assignment(task))
        self.turns.taken(task)
        return True

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
        self.turns.taken(task)
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

    def turn_of(self) -> Task | None:
        """Fewest in flight, then longest waiting; inside, best rank, then oldest."""
        state, limits = self.state, self.state.control.limits
        flying = [task for task in state.tasks if task.holds]
        if len(flying) >= limits.inflight:
            return None

        def has_room(task: Task) -> bool:
            counts = self.counts_of(task).values()
            return task.executor != PULL and all(taken < cap for taken, cap in counts)

        def rank(task: Task) -> tuple[int, int]:
            aging = limits.aging_ms * 1000
            aged = task.priority * aging + task.created_at if aging else task.priority
            return (aged, task.created_seq)

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
                best = min(tasks, key=rank)
                turns.append(((count, order.since), best))
        return min(turns, key=lambda turn: turn[0])[1] if turns else None

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
    )


def play(bench: Bench, pick: Random, moves: int, lanes: tuple[Lane, ...] = (*LANES, *HELD)) -> None:
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
            bench.assign()
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
        if pick.randrange(3):
            bench.assign_all()


def could_swap(bench: Bench) -> set[str]:
    """Name the tasks that may pre-empt and could, by looking at every one that waits."""
    found = set()
    for task in bench.state.tasks:
        if task.state is READY and task.plan is not None and task.plan.preempt:
            held_by = tuple(bench.one_short_of(task))
            running = bench.state.slots.held_by(task.agent)
            if task.executor != PULL and held_by and decide_preemption(task, held_by, running):
                found.add(task.id)
    return found


def swap_all(bench: Bench) -> None:
    """Let tasks take each other's places, as the dispatcher does, checking who is looked at."""
    while (found := bench.turns.next_urgent()) is not None:
        task, held_by = found
        could = could_swap(bench)
        swap = decide_preemption(task, held_by, bench.state.slots.held_by(task.agent))
        assert (swap is not None) == (task.id in could)
        if swap is None:
            continue
        ahead = [
            other
            for name in could
            if (other := bench.state.tasks.by_id[name]).lane == task.lane
            and other.agent == task.agent
        ]
        assert task is min(ahead, key=lambda other: (other.rank, other.created_seq))
        victim = bench.state.tasks.by_id[swap[0].task]
        for event in swap:
            bench.record(event)
        bench.turns.freed(task.agent, victim.lane)
        bench.turns.taken(task)
        bench.queued(victim)
        bench.assign_all()
    assert could_swap(bench) == set(), "who could take another's place was not found"


@pytest.mark.parametrize("seed", range(100))
def test_whoever_may_and_could_preempt_is_found_wherever_it_stands(seed: int) -> None:
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    for _ in range(15):
        for _ in range(pick.randrange(6)):
            agent, lane = pick.choice(AGENTS), pick.choice((*LANES, *HELD))
            preempt = True if pick.randrange(3) == 0 else None
            bench.submit(agent, lane, pick.choice((0, 1, 2, 3)), preempt=preempt)
        play(bench, pick, 4)
        bench.assign_all()
        swap_all(bench)


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


@pytest.mark.parametrize("seed", range(30))
def test_turns_that_tidy_up_at_every_chance_choose_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of stale heads and known groups is for speed alone."""
    monkeypatch.setattr(dispatch, "_SLACK", 0)
    monkeypatch.setattr(caps, "GROUPS_KEPT", 1)
    monkeypatch.setattr(ordering, "_SLACK", 0)
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
    first = bench.submit("zoe", ECHO)
    second = bench.submit("ann", ECHO)
    bench.submit("zoe", ECHO)
    assert bench.assign_all() == [first, second]


def test_an_agent_that_was_served_goes_behind_its_equals() -> None:
    bench = Bench(Limits(inflight=1))
    a1, a2 = bench.submit("ann", ECHO), bench.submit("ann", ECHO)
    b1 = bench.submit("bob", ECHO)
    order = []
    while (task := bench.assign()) is not None:
        order.append(task.id)
        bench.complete(task.id)
    assert order == [a1, b1, a2]


def test_the_agent_with_fewer_in_flight_goes_first() -> None:
    bench = Bench(Limits(inflight=3))
    tasks = [bench.submit("ann", ECHO) for _ in range(3)]
    assert bench.assign() is not None
    assert bench.assign() is not None
    late = bench.submit("bob", ECHO)
    assert bench.assign_all() == [late]
    assert bench.names(flying=False) == tasks[2:]


def test_a_lane_at_its_limit_does_not_hold_up_the_agents_other_lanes() -> None:
    bench = Bench(Limits(types=(("scan", 1),)))
    first = bench.submit("ann", SCAN, 0)
    held = bench.submit("ann", SCAN, 0)
    other = bench.submit("ann", ECHO, 3)
    assert bench.assign_all() == [first, other]
    bench.complete(first)
    assert bench.assign_all() == [held]


def test_lanes_that_waited_for_one_limit_come_back_by_age_and_not_by_name() -> None:
    bench = Bench(Limits(push=1))
    first = bench.submit("cyd", TAB_SCAN)
    assert bench.assign_all() == [first]
    older = bench.submit("ann", SCAN)
    younger = bench.submit("ann", ECHO)
    bench.complete(first)
    assert bench.assign_all() == [older]
    bench.complete(older)
    assert bench.assign_all() == [younger]


def test_a_lane_held_by_a_limit_and_then_by_its_agents_cap_comes_back() -> None:
    bench = Bench(Limits(inflight_per_agent=1, types=(("echo", 1),)))
    echo = bench.submit("dan", ECHO)
    scan = bench.submit("ann", SCAN)
    assert bench.assign_all() == [echo, scan]
    held = bench.submit("ann", ECHO)
    assert bench.assign_all() == []
    bench.complete(echo)
    assert bench.assign_all() == []
    bench.complete(scan)
    assert bench.assign_all() == [held]


def test_a_lane_that_moves_on_to_another_limit_does_not_keep_the_first_from_others() -> None:
    bench = Bench(Limits(push=2, types=(("scan", 1),)))
    scan = bench.submit("ann", SCAN)
    echo = bench.submit("bob", ECHO)
    assert bench.assign_all() == [scan, echo]
    bench.submit("cyd", SCAN)
    other = bench.submit("dan", ECHO)
    assert bench.assign_all() == []
    bench.complete(echo)
    assert bench.assign_all() == [other]


def test_a_paused_agent_is_passed_over_and_comes_back_when_resumed() -> None:
    bench = Bench(Limits())
    bench.pause("ann")
    held, other = bench.submit("ann", ECHO), bench.submit("bob", ECHO)
    assert bench.assign_all() == [other]
    bench.resume("ann")
    assert bench.assign_all() == [held]


def test_tasks_that_wait_for_a_worker_get_no_push_slot() -> None:
    bench = Bench(Limits())
    bench.submit("ann", PULLED)
    assert bench.assign() is None


# -- keys, batches, types


def test_tasks_of_one_key_go_one_after_the_other_whoever_sent_them() -> None:
    bench = Bench(Limits(per_key=1))
    first, held = bench.submit("ann", HELD[0]), bench.submit("bob", HELD[1])
    other = bench.submit("bob", HELD[2])
    assert bench.assign_all() == [first, other]
    bench.complete(first)
    assert bench.assign_all() == [held]


def test_a_key_may_be_given_more_than_one_slot() -> None:
    bench = Bench(Limits(per_key=2))
    tasks = [bench.submit("ann", HELD[0]) for _ in range(3)]
    assert bench.assign_all() == tasks[:2]


def test_the_bound_of_a_batch_is_its_own() -> None:
    bench = Bench(Limits(inflight=20, push=20))
    one = [bench.submit("ann", lane_of("tab", "echo", "", "1:b1")) for _ in range(3)]
    two = [bench.submit("ann", lane_of("tab", "echo", "", "2:b2")) for _ in range(3)]
    assert bench.assign_all() == [one[0], *two[:2]]
    bench.complete(two[1])
    assert bench.assign_all() == [two[2]]
    bench.complete(one[0])
    assert bench.assign_all() == [one[1]]


def test_a_key_that_is_held_does_not_hold_up_the_agents_other_tasks() -> None:
    bench = Bench(Limits(per_key=1))
    first, held = bench.submit("ann", HELD[0], 0), bench.submit("ann", HELD[0], 0)
    plain = bench.submit("ann", ECHO, 9)
    assert bench.assign_all() == [first, plain]
    bench.complete(first)
    assert bench.assign_all() == [held]


def test_a_paused_type_is_passed_over_and_comes_back_when_resumed() -> None:
    bench = Bench(Limits(types=(("scan", 3),)))
    bench.pause_type("scan")
    held, other = bench.submit("ann", SCAN, 0), bench.submit("ann", ECHO)
    assert bench.assign_all() == [other]
    bench.pause_type("scan")
    assert bench.assign_all() == [held]


def test_what_runs_of_a_paused_type_goes_on_and_frees_nothing_for_it() -> None:
    bench = Bench(Limits())
    running = bench.submit("ann", SCAN)
    assert bench.assign_all() == [running]
    bench.pause_type("scan")
    held = bench.submit("ann", SCAN)
    bench.complete(running)
    assert bench.assign_all() == []
    bench.pause_type("scan")
    assert bench.assign_all() == [held]


@pytest.mark.parametrize("keys", [3, 300])
def test_many_keys_of_one_agent_each_go_on_when_their_own_is_free(keys: int) -> None:
    bench = Bench(Limits(inflight=1000, inflight_per_agent=1000, push=1000))
    lanes = [lane_of("builtin", "echo", f"key-{n}") for n in range(keys)]
    first = [bench.submit("ann", lane) for lane in lanes]
    second = [bench.submit("ann", lane) for lane in lanes]
    given_to = [task.id for _ in first if (task := bench.turns.next()) and bench.give(task)]
    assert given_to == first
    assert bench.turns.next() is None
    order = list(range(keys))
    Random(keys).shuffle(order)
    for n in order[:30]:
        bench.complete(first[n])
        assert bench.assign_all() == [second[n]]


def test_the_keys_that_an_agent_waits_for_do_not_make_a_dispatch_dearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A finished task costs the same look around with ten keys held back as with a thousand."""
    looks = 0
    look = Turns._standing

    def counted(self: Turns, *args: object) -> object:
        nonlocal looks
        looks += 1
        return look(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Turns, "_standing", counted)
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


def test_a_priority_that_ages_overtakes_what_came_much_later() -> None:
    bench = Bench(Limits(inflight=1, aging_ms=1000))
    blocker = bench.submit("ann", ECHO)
    assert bench.assign_all() == [blocker]
    low = bench.submit("ann", ECHO, 3)
    bench.now += 999_000
    high = bench.submit("ann", ECHO, 2)
    bench.now += 2_000
    late = bench.submit("ann", ECHO, 2)
    order = []
    bench.complete(blocker)
    while (task := bench.assign()) is not None:
        order.append(task.id)
        bench.complete(task.id)
    assert order == [high, low, late]


# -- pre-emption


def test_one_slot_that_is_missing_is_named() -> None:
    bench = Bench(Limits(inflight=1, inflight_per_agent=1, push=1, types=(("echo", 1),)))
    bench.submit("ann", HELD[0])
    bench.assign_all()
    urgent = bench.state.tasks.by_id[bench.submit("ann", HELD[0], 0)]
    assert set(one_short(bench.turns, urgent) or ()) == {
        "inflight",
        "agent:ann",
        "push",
        "type:echo",
        "key:shop",
    }


@pytest.mark.parametrize("what", ["agent", "type", "limits", "nothing"])
def test_no_single_slot_helps_who_is_held_by_more_or_by_nothing(what: str) -> None:
    bench = Bench(Limits(inflight=2))
    for _ in range(2):
        bench.submit("ann", ECHO, 9)
    if what != "nothing":
        bench.assign_all()
    urgent = bench.state.tasks.by_id[bench.submit("ann", ECHO, 0)]
    if what == "agent":
        bench.pause("ann")
    elif what == "type":
        bench.pause_type("echo")
    elif what == "limits":
        bench.change(Limits(inflight=1))
    assert one_short(bench.turns, urgent) is None


def test_a_victim_of_pre_emption_runs_again_when_there_is_room() -> None:
    bench = Bench(Limits(inflight=1))
    victim = bench.submit("ann", ECHO, 9)
    bench.assign_all()
    urgent = bench.submit("ann", SCAN, 0, preempt=True)
    assert bench.assign_all() == []
    assert bench.preempt(urgent) == victim
    assert bench.assign_all() == []
    bench.complete(urgent)
    assert bench.assign_all() == [victim]

"""Whose turn it is: `Turns` against a reference that looks at everything, every time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.turns_bench import (
    ANYTHING,
    ECHO,
    HELD,
    LANES,
    LENT,
    PULLED,
    SCAN,
    TAB_SCAN,
    Bench,
    draw_consumer,
    draw_limits,
    play,
)

from rota.domain import caps, gates, ordering, standing
from rota.domain.commands import Limits
from rota.domain.task import lane_of


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


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.randoms(use_true_random=False), st.integers(1, 80))
def test_every_consumer_gets_what_a_look_at_everything_gives_it(pick: Random, moves: int) -> None:
    bench = Bench(draw_limits(pick))
    play(bench, pick, moves, (*LANES, *HELD, *LENT), lends=True)
    bench.assign_all(draw_consumer(pick))
    bench.assign_all()


@pytest.mark.parametrize("seed", range(150))
def test_every_consumer_agrees_with_the_reference_over_long_histories(seed: int) -> None:
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    play(bench, pick, 200, (*HELD, *LENT), lends=True)
    bench.assign_all(ANYTHING)
    bench.assign_all()


@pytest.mark.parametrize("seed", range(30))
def test_turns_that_tidy_up_at_every_chance_choose_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of stale heads and known groups is for speed alone."""
    monkeypatch.setattr(gates, "_SLACK", 0)
    monkeypatch.setattr(standing, "_SLACK", 0)
    monkeypatch.setattr(standing, "NEWS_KEPT", 1)
    monkeypatch.setattr(caps, "LANES_KEPT", 1)
    monkeypatch.setattr(ordering, "_SLACK", 0)
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    play(bench, pick, 200, (*LANES, *HELD, *LENT), lends=True)
    bench.assign_all()


@pytest.mark.parametrize("seed", range(40))
def test_turns_built_anew_choose_as_those_that_lived_through_it(seed: int) -> None:
    pick = Random(seed)
    bench = Bench(draw_limits(pick))
    for _ in range(10):
        play(bench, pick, 10, lends=True)
        anew = bench.derive()
        consumer = draw_consumer(pick)
        assert anew.next() is bench.turns.next()
        assert anew.next(consumer) is bench.turns.next(consumer)


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


# -- priority over all agents


def test_by_priority_anothers_background_work_does_not_keep_a_critical_task_out() -> None:
    for strategy in ("fair-fifo", "priority-fifo"):
        bench = Bench(Limits(inflight=2, strategy=strategy))
        running = [bench.submit(agent, ECHO, 3) for agent in ("ann", "bob")]
        assert bench.assign_all() == running
        waiting = bench.submit("ann", ECHO, 3)
        mine = bench.submit("cyd", ECHO, 0)
        bench.complete(running[1])
        assert bench.assign_all() == [mine]
        critical = bench.submit("cyd", ECHO, 0)
        bench.complete(running[0])
        assert bench.assign_all() == [critical if strategy == "priority-fifo" else waiting]


def test_by_priority_the_oldest_of_all_agents_goes_first_among_equals_under_the_same_caps() -> None:
    bench = Bench(Limits(inflight=3, inflight_per_agent=2, strategy="priority-fifo"))
    ann = [bench.submit("ann", ECHO) for _ in range(4)]
    bob = bench.submit("bob", ECHO)
    assert bench.assign_all() == [*ann[:2], bob]
    bench.complete(bob)
    late = bench.submit("bob", ECHO)
    assert bench.assign_all() == [late]
    bench.complete(ann[0])
    assert bench.assign_all() == [ann[2]]


def test_another_strategy_holds_from_the_moment_it_is_put_in_force() -> None:
    bench = Bench(Limits(inflight=1))
    first = bench.submit("ann", ECHO)
    assert bench.assign_all() == [first]
    late = bench.submit("ann", ECHO, 0)
    fair = bench.submit("bob", ECHO, 3)
    bench.change(Limits(inflight=1, strategy="priority-fifo"))
    bench.complete(first)
    assert bench.assign_all() == [late]
    bench.submit("ann", ECHO, 0)
    bench.change(Limits(inflight=1))
    bench.complete(late)
    assert bench.assign_all() == [fair]


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

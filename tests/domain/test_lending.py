"""Who is next among workers and the dispatcher: `Lending` against a reference that looks at all."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lending_bench import LendingBench, PatientBench, play
from support.turns_bench import ECHO, PULLED, draw_limits

from rota.domain import lending
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import Turns
from rota.domain.task import lane_of

if TYPE_CHECKING:
    from rota.domain.task import Lane

S = 1_000_000


def roomy() -> LendingBench:
    """Make a bench whose limits hold nobody back."""
    return LendingBench(Limits(inflight=10**6, inflight_per_agent=10**6, push=10**6))


# -- over random histories -----------------------------------------------------------------------


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_lending_chooses_what_a_look_at_everything_chooses(pick: Random, moves: int) -> None:
    play(LendingBench(draw_limits(pick)), pick, moves)


@pytest.mark.parametrize("sticky_us", [0, 1500, 10_000])
@pytest.mark.parametrize("seed", range(40))
def test_lending_agrees_with_the_reference_over_long_histories(seed: int, sticky_us: int) -> None:
    pick = Random(seed)
    play(LendingBench(draw_limits(pick)), pick, 200, sticky_us)


@pytest.mark.parametrize("seed", range(20))
def test_lending_that_tidies_up_at_every_chance_chooses_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "_SLACK", 0)
    monkeypatch.setattr(lending, "KEPT_MAX", 10**6)
    pick = Random(seed)
    play(LendingBench(draw_limits(pick)), pick, 200, 1500)


@pytest.mark.parametrize("sticky_us", [0, 1500])
@pytest.mark.parametrize("seed", range(20))
def test_who_looks_at_few_lines_at_a_time_gives_away_all_there_is(
    seed: int, sticky_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "EASED_AT_ONCE", 1)
    pick = Random(seed)
    play(PatientBench(draw_limits(pick)), pick, 200, sticky_us)


def test_a_freed_key_is_not_offered_to_all_who_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "EASED_AT_ONCE", 10)
    bench = PatientBench(Limits(inflight=10**6, inflight_per_agent=10**6, push=10**6))
    keyed = lane_of(PULL, "scan", "shop", "", "", "")
    for at in range(100):
        bench.submit(f"agent-{at}", keyed, 2)
        bench.come(f"worker-{at}", agents=(f"agent-{at}",))
    looks: list[Any] = []
    first = bench.turns.first
    bench.serve()
    for _ in range(50):
        looks.clear()
        monkeypatch.setattr(bench.turns, "first", lambda who: looks.append(who) or first(who))
        bench.complete(bench.names(flying=True)[0])
        bench.serve()
        assert len(bench.names(flying=True)) == 1
        assert len(looks) <= 30
    assert not bench.line.is_easing


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_when_all_have_left(seed: int) -> None:
    pick = Random(seed)
    bench = LendingBench(draw_limits(pick))
    play(bench, pick, 150, 1500)
    for waiter in bench.line.all():
        bench.leave(waiter)
    bench.now += 10 * S
    bench.let_keys_go(1500)
    line = bench.line
    kept = (line._lines, line._by_worker, line._by_labels, line._by_reply, line._news)
    assert [len(each) for each in (*kept, line._held, line._easing, line._places)] == [0] * 8
    assert (line._kept, line._kept_for, bench.turns._caps.kept) == ({}, {}, set())
    assert len(line._last_worker) <= 2
    assert len(line._heap) <= 64
    assert (line._taken.held, line._requests.held, line.crowded) == (0, 0, {})


# -- in words ------------------------------------------------------------------------------------


def test_workers_and_the_dispatcher_compete_for_the_same_slots() -> None:
    bench = LendingBench(Limits(inflight=2))
    lent, pushed = bench.submit("ann", PULLED), bench.submit("bob", ECHO)
    later = bench.submit("cyd", PULLED)
    bench.come(most=5)
    assert bench.serve() == [(lent, "ada"), (pushed, None)]
    bench.come("ben")
    bench.complete(pushed)
    assert bench.serve() == [(later, "ben")]


def test_order_is_fair_between_agents_and_by_priority_inside_one() -> None:
    bench = roomy()
    slow, quick = bench.submit("ann", PULLED, 3), bench.submit("ann", PULLED, 0)
    other = bench.submit("bob", PULLED, 9)
    bench.come(most=5)
    assert [task for task, _ in bench.serve()] == [quick, other, slow]


def test_what_a_worker_does_not_take_never_holds_up_what_it_does() -> None:
    bench = roomy()
    bench.submit("ann", lane_of(PULL, "weld"), 0)
    bench.submit("ann", lane_of(PULL, "fit", "", "", "", "gpu"), 0)
    mine = bench.submit("bob", lane_of(PULL, "fit"), 9)
    bench.come(types=("fit",))
    assert bench.serve() == [(mine, "ada")]


def test_who_has_waited_longest_in_a_line_goes_first() -> None:
    bench = roomy()
    for worker in ("ada", "ben", "cox"):
        bench.come(worker)
    tasks = [bench.submit("ann", PULLED) for _ in range(4)]
    assert bench.serve() == list(zip(tasks, ("ada", "ben", "cox"), strict=False))


def test_a_worker_with_more_labels_than_are_asked_for_takes_what_asks_for_less() -> None:
    bench = roomy()
    plain = bench.submit("ann", PULLED)
    one = bench.submit("bob", lane_of(PULL, "echo", "", "", "", "gpu"))
    two = bench.submit("cyd", lane_of(PULL, "echo", "", "", "", "big\ngpu"))
    bench.come("ben", 5, labels=("big",))
    assert bench.serve() == [(plain, "ben")]
    bench.come("ada", 5, labels=("gpu", "linux", "big"))
    assert bench.serve() == [(one, "ada"), (two, "ada")]


def test_a_kept_key_goes_to_its_worker_or_after_its_moment_to_anyone() -> None:
    bench = roomy()
    lane = lane_of(PULL, "echo", "shop")
    tasks = [bench.submit("ann", lane) for _ in range(3)]
    bench.come("ada")
    assert bench.serve() == [(tasks[0], "ada")]
    bench.come("ben")
    bench.hand_back(tasks[0], "ada", 1000)
    assert bench.serve() == []
    bench.come("ada")
    assert bench.serve() == [(tasks[1], "ada")]
    bench.hand_back(tasks[1], "ada", 1000)
    assert bench.serve() == []
    bench.now += 1000
    bench.let_keys_go(1000)
    assert bench.serve() == [(tasks[2], "ben")]


def test_a_key_is_kept_from_when_its_next_task_is_ready() -> None:
    bench = roomy()
    lane = lane_of(PULL, "echo", "shop")
    first = bench.submit("ann", lane)
    bench.come("ada")
    bench.serve()
    bench.hand_back(first, "ada", 1000)
    bench.now += 10**9
    bench.let_keys_go(1000)
    bench.come("ben")
    second = bench.submit("ann", lane)
    assert bench.serve() == []
    bench.now += 999
    bench.let_keys_go(1000)
    later = bench.submit("bob", lane)  # which adds nothing to what the first waits
    assert bench.serve() == []
    bench.now += 1
    bench.let_keys_go(1000)
    assert bench.serve() == [(second, "ben")]
    bench.cancel(second)
    bench.come("ben")
    assert bench.serve() == [(later, "ben")]


def test_a_worker_that_lost_a_key_is_forgotten() -> None:
    bench = roomy()
    lane = lane_of(PULL, "echo", "shop")
    first = bench.submit("ann", lane)
    bench.come("ada")
    bench.serve()
    bench.hand_back(first, "ada", 1000)
    second = bench.submit("ann", lane)
    bench.come("ben")
    assert bench.serve() == []
    bench.line.forget("shop")
    assert bench.turns._caps.kept == set() == set(bench.line._kept_for)
    bench.barred.clear()
    bench.last.clear()
    assert bench.serve() == [(second, "ben")]


def test_a_key_that_is_kept_holds_up_nothing_that_rota_runs_itself() -> None:
    bench = roomy()
    lent = bench.submit("ann", lane_of(PULL, "echo", "shop"))
    bench.come("ada")
    bench.serve()
    bench.hand_back(lent, "ada", 1000)
    own = bench.submit("ann", lane_of("builtin", "echo", "shop"))
    assert bench.serve() == [(own, None)]


def test_keys_are_kept_over_other_limits() -> None:
    bench = roomy()
    lane = lane_of(PULL, "echo", "shop")
    first, _ = bench.submit("ann", lane), bench.submit("ann", lane)
    bench.come("ada")
    bench.serve()
    bench.hand_back(first, "ada", 1000)
    bench.come("ben")
    bench.change(Limits(inflight=5))
    assert bench.serve() == []


def test_a_clock_that_was_set_keeps_no_key_for_ever() -> None:
    bench = roomy()
    lane = lane_of(PULL, "echo", "shop")
    first, second = bench.submit("ann", lane), bench.submit("ann", lane)
    bench.come("ada")
    bench.serve()
    bench.now += 10**12
    bench.hand_back(first, "ada", 1000)
    bench.come("ben")
    bench.now -= 10**12
    bench.let_keys_go(1000)
    assert bench.serve() == [(second, "ben")]


def test_only_so_many_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "KEPT_MAX", 3)
    bench = roomy()
    for n in range(10):
        bench.line.keep(f"key-{n}", "ada", 10**9, 0)
    assert list(bench.line._kept) == ["key-7", "key-8", "key-9"] == list(bench.line._last_worker)
    assert bench.turns._caps.kept == {"key:key-7", "key:key-8", "key:key-9"}


# -- what it costs -------------------------------------------------------------------------------


def looks_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep for whom it is looked what is first."""
    looks: list[Any] = []
    first = Turns.first

    def counted(self: Turns, consumer: Any) -> Any:
        looks.append(consumer)
        return first(self, consumer)

    monkeypatch.setattr(Turns, "first", counted)
    return looks


def serve_all(bench: LendingBench) -> list[str | None]:
    """Give away all there is, without asking the reference, which looks at everything."""
    names, served = [], {}
    while (found := bench.line.next()) is not None:
        names.append(bench.hand_out(*found, served))
    for waiter in served:
        bench.line.leave(waiter)
    return names


def filters(n: int, how: str) -> tuple[dict[str, Any], str, Lane]:
    """Give what the n-th worker wants, and whose task of which lane it is."""
    if how == "agents":
        return {"agents": (f"agent-{n}",)}, f"agent-{n}", PULLED
    if how == "types":
        return {"types": (f"type-{n}",)}, "ann", lane_of(PULL, f"type-{n}")
    if how == "labels":
        lane = lane_of(PULL, "echo", "", "", "", f"label-{n}")
        return {"labels": (f"label-{n}",), "types": ("echo",)}, "ann", lane
    both = {"agents": (f"agent-{n}",), "types": (f"type-{n}",)}
    return both, f"agent-{n}", lane_of(PULL, f"type-{n}")


@pytest.mark.parametrize("how", ["agents", "types", "both"])
def test_a_task_costs_no_look_for_a_worker_that_does_not_take_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, cost = looks_of(monkeypatch), {}
    for count in (10, 1000):
        bench = roomy()
        for n in range(count):
            bench.come(f"w{n}", **filters(n, how)[0])
        assert serve_all(bench) == []
        looks.clear()
        for n in range(5):
            _, agent, lane = filters(n, how)
            bench.submit(agent, lane)
            assert serve_all(bench) == [f"w{n}"]
        cost[count] = len(looks)
    assert cost[1000] == cost[10]


@pytest.mark.parametrize("how", ["agents", "both"])
def test_a_freed_slot_costs_the_same_however_many_wait_for_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All slots are taken, and something waits for everybody who waits."""
    looks, cost = looks_of(monkeypatch), {}
    for count in (10, 1000):
        bench = LendingBench(Limits(inflight=1, inflight_per_agent=10**6, push=1))
        names = []
        for n in range(count):
            wants, agent, lane = filters(n, how)
            bench.come(f"w{n}", **wants)
            names.append(bench.submit(agent, lane))
            bench.submit(agent, lane)
        assert serve_all(bench) == ["w0"]
        looks.clear()
        for n in range(1, 6):
            bench.complete(names[n - 1])
            assert serve_all(bench) == [f"w{n}"]
        cost[count] = len(looks)
    assert cost[1000] <= cost[10] + 5, cost


def test_sets_of_labels_that_come_and_go_are_not_kept() -> None:
    bench = roomy()
    bench.come("ada", labels=("gpu",))
    for n in range(1000):
        name = bench.submit("ann", lane_of(PULL, "echo", "", "", "", f"label-{n}"))
        assert bench.serve() == []
        bench.cancel(name)
    assert len(bench.line._required) < 100
    assert len(bench.line._lines) < 100
    mine = bench.submit("ann", lane_of(PULL, "echo", "", "", "", "gpu"))
    assert bench.serve() == [(mine, "ada")]

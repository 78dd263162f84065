"""Pre-emption: whoever may take another's place, and could, is found without a scan."""

from __future__ import annotations

from random import Random

import pytest
from support.builders import one_short
from support.turns_bench import AGENTS, ECHO, HELD, LANES, SCAN, Bench, draw_limits, play

from rota.domain.attempts import decide_preemption
from rota.domain.commands import PULL, Limits
from rota.domain.task import READY


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
    while (found := bench.turns.urgent.next()) is not None:
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
        bench.turns.given(task)
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

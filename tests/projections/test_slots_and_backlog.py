"""A task takes its slot once and frees it once, enters its queue once and leaves it once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from support.builders import (
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    expired,
    failed,
    fold,
    interrupted,
    records_of,
    refuses,
    released,
    revived,
    server_started,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.commands import Limits
from rota.domain.task import lane_of, limits_of
from rota.errors import IllegalMove
from rota.projections.control import limits_to
from rota.projections.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.events import Event

ECHO = lane_of("builtin", "echo")
RUNNING = (submitted(), assigned(), started())
ANYTHING: list[Callable[[str, str], Event]] = [
    assigned,
    started,
    succeeded,
    failed,
    cancelled,
    expired,
    interrupted,
    attempt_failed,
    released,
    revived,
]
ENDS: dict[str, tuple[Event, ...]] = {
    "succeeded": (succeeded(),),
    "failed": (failed(),),
    "cancelled": (cancelled(was="running"),),
    "expired": (interrupted(), expired()),
}
WAITING_ENDS: dict[str, Event] = {
    "failed": failed(),
    "cancelled": cancelled(),
    "expired": expired(),
}


def taken(state: State) -> tuple[int, int, int, int]:
    """Count the slots in all, of the agent, of the executors and of the type."""
    slots = state.slots
    return (
        slots.total,
        slots.of_agent("a1"),
        slots.of_limit("push"),
        slots.of_limit("type:echo"),
    )


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_end_frees_the_slot(end: tuple[Event, ...]) -> None:
    assert taken(fold(records_of(RUNNING))) == (1, 1, 1, 1)
    assert taken(fold(records_of([*RUNNING, *end]))) == (0, 0, 0, 0)


@pytest.mark.parametrize("second", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("first", ENDS.values(), ids=ENDS)
def test_a_second_end_frees_nothing_of_anybody(
    first: tuple[Event, ...], second: tuple[Event, ...]
) -> None:
    other = (submitted("t2"), assigned("t2"))
    state = fold(records_of([*other, *RUNNING, *first]))
    refuses(state, *second, *first)
    assert taken(state) == (1, 1, 1, 1), "the slot of t2 is still taken"
    assert state.backlog.total == 0


def test_an_assignment_that_comes_twice_takes_one_slot() -> None:
    state = fold(records_of(RUNNING))
    refuses(state, assigned())
    assert taken(state) == (1, 1, 1, 1)
    state.apply(e.Record(9, START_US, succeeded()))
    assert taken(state) == (0, 0, 0, 0)


def test_an_interruption_frees_the_slot_and_queues_the_task_once() -> None:
    state = fold(records_of([*RUNNING, interrupted()]))
    refuses(state, interrupted())
    assert taken(state) == (0, 0, 0, 0)
    assert (state.backlog.total, state.backlog.of_agent("a1")) == (1, 1)
    order = state.backlog.orders["a1"]
    assert [task.id for task in order.lanes[ECHO]] == ["t1"]


def test_an_interruption_that_ends_the_task_leaves_it_nowhere() -> None:
    state = fold(records_of([*RUNNING, interrupted(), failed(code="interrupted")]))
    assert taken(state) == (0, 0, 0, 0)
    assert (state.backlog.total, state.backlog.orders) == (0, {})


@pytest.mark.parametrize("end", WAITING_ENDS.values(), ids=WAITING_ENDS)
def test_a_waiting_task_that_ends_leaves_its_queue_once(end: Event) -> None:
    state = fold(records_of([submitted(), submitted("t2"), end]))
    refuses(state, end)
    assert (state.backlog.total, state.backlog.of_agent("a1")) == (1, 1)
    head = state.backlog.orders["a1"].head(ECHO)
    assert head is not None
    assert head.id == "t2"


def test_a_task_that_waits_for_a_worker_takes_no_push_slot() -> None:
    state = fold(records_of([submitted(executor="pull"), assigned()]))
    assert taken(state) == (1, 1, 0, 1)


def test_an_agent_without_waiting_tasks_has_no_order() -> None:
    state = fold(records_of([submitted(), submitted("t2", "a2"), cancelled()]))
    assert state.backlog.counts() == {"a2": 1}


def test_an_interrupted_task_is_as_old_as_it_was() -> None:
    """It goes before those that were submitted after it."""
    state = fold(records_of([submitted(), assigned(), submitted("t2"), interrupted()]))
    assert [t.id for t in state.backlog.orders["a1"].lanes[ECHO]] == ["t1", "t2"]


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_events_whatever_makes_a_slot_or_a_place_leak(seed: int) -> None:
    """Any events in any order, the illegal ones refused: the counts stay those of the marks."""
    dice = random.Random(seed)
    state = fold(records_of([submitted(f"t{n}", f"a{n % 2}") for n in range(4)]))
    refused = 0
    for seq in range(5, 600):
        n = dice.randrange(4)
        make = dice.choice(ANYTHING)
        before = state.digest()
        try:
            state.apply(e.Record(seq, START_US + seq, make(f"t{n}", f"a{n % 2}")))
        except IllegalMove:
            refused += 1
            assert state.digest() == before
            continue
        holding = [task for task in state.tasks if task.holds]
        assert state.slots.total == len(holding) == sum(state.slots.by_agent().values())
        limits = [limit for task in holding for limit in limits_of(task.lane)]
        assert state.slots.of_limit("push") == limits.count("push")
        queued = [task for task in state.tasks if task.entry]
        assert state.backlog.total == len(queued) == sum(state.backlog.counts().values())
    assert refused


# -- what waits outside of the order

BLOCKED = submitted(waits=["p"], depends={"p": "p"})
DELAYED = submitted(not_before=START_US * 2)
BACKING_OFF = (submitted(), assigned(), attempt_failed(next_at=START_US * 2))


@pytest.mark.parametrize(
    "waiting", [(BLOCKED,), (DELAYED,), BACKING_OFF], ids=["blocked", "delayed", "backing off"]
)
def test_a_task_that_is_not_ready_counts_and_is_in_no_order(waiting: tuple[Event, ...]) -> None:
    state = fold(records_of(waiting))
    assert (state.backlog.total, state.backlog.of_agent("a1")) == (1, 1)
    assert (state.backlog.counts(), state.backlog.orders) == ({"a1": 1}, {})
    assert taken(state) == (0, 0, 0, 0)
    for more in ((cancelled(),), (released(), cancelled()), (released(), expired())):
        ended = fold(records_of([*waiting, *more]))
        assert (ended.backlog.total, ended.backlog.counts(), ended.backlog.aside) == (0, {}, {})


def test_a_released_task_enters_the_order_at_its_old_age() -> None:
    state = fold(records_of([DELAYED, submitted("t2"), released(after="delay")]))
    assert [task.id for task in state.backlog.orders["a1"].lanes[ECHO]] == ["t1", "t2"]
    assert (state.backlog.total, state.backlog.aside) == (2, {})


def test_a_delay_after_the_dependencies_leaves_a_task_aside() -> None:
    delayed = e.TaskDelayed("t1", "a1", START_US * 2)
    state = fold(records_of([BLOCKED, delayed]))
    assert (state.backlog.total, state.backlog.aside, state.backlog.orders) == (1, {"a1": 1}, {})


def test_a_revived_task_waits_in_the_order_again() -> None:
    state = fold(records_of([*RUNNING, failed(), revived()]))
    assert [task.id for task in state.backlog.orders["a1"].lanes[ECHO]] == ["t1"]
    assert taken(state) == (0, 0, 0, 0)


def test_a_failed_attempt_frees_its_slot_once() -> None:
    other = (submitted("t2"), assigned("t2"))
    state = fold(records_of([*other, *RUNNING, attempt_failed()]))
    refuses(state, attempt_failed())
    assert taken(state) == (1, 1, 1, 1)
    assert state.backlog.total == 1


def test_an_agents_tasks_in_flight_can_be_named() -> None:
    others = (submitted("t2"), assigned("t2"), submitted("t3", "a2"), assigned("t3", "a2"))
    state = fold(records_of([*RUNNING, *others]))
    assert {task.id for task in state.slots.held_by("a1")} == {"t1", "t2"}
    assert list(state.slots.held_by("nobody")) == []


def test_keys_and_bounded_batches_take_slots_of_their_own_limits() -> None:
    task = submitted(key="shop", batch="b", parallelism=2)
    state = fold(records_of([task, assigned()]))
    limits = ("push", "type:echo", "key:shop", "batch:2:b")
    assert [state.slots.of_limit(limit) for limit in limits] == [1, 1, 1, 1]
    state.apply(e.Record(9, START_US, succeeded()))
    assert [state.slots.of_limit(limit) for limit in limits] == [0, 0, 0, 0]


# -- aging

HOUR_US = 3600 * 1_000_000


def aged(*tasks: tuple[int, int], aging_ms: int = 3_600_000) -> State:
    """Submit tasks of a priority at an hour, under an aging of one priority an hour."""
    state = fold(records_of([server_started(aging_ms=aging_ms, queued=10_000)]))
    for n, (priority, hour) in enumerate(tasks):
        at = START_US + hour * HOUR_US
        state.apply(e.Record(state.seq + 1, at, submitted(f"t{n}", priority=priority)))
    return state


def order(state: State) -> list[str]:
    """Name the tasks of the agent in the order in which they are served."""
    return [task.id for task in state.backlog.orders["a1"].lanes[ECHO]]


def configured(state: State, *, aging_ms: int) -> None:
    """Change the limits."""
    settings = limits_to(Limits(queued=10_000, aging_ms=aging_ms))
    event = e.ConfigChanged(settings, ["agingMs"], "test")
    state.apply(e.Record(state.seq + 1, state.at, event))


def test_without_aging_the_priority_alone_decides() -> None:
    assert order(aged((3, 0), (2, 9), (3, 1), aging_ms=0)) == ["t1", "t0", "t2"]


def test_a_task_gains_a_priority_for_each_time_it_has_waited() -> None:
    """Three hours make three priorities: level with one that comes then, which is younger."""
    assert order(aged((3, 0), (0, 2))) == ["t1", "t0"]
    assert order(aged((3, 0), (0, 3))) == ["t0", "t1"]
    assert order(aged((3, 0), (0, 4))) == ["t0", "t1"]


def test_the_order_is_that_of_the_priorities_at_any_moment_whatever() -> None:
    """All age alike, so what is served first now is served first at any later time."""
    dice = random.Random(7)
    tasks = [(dice.randrange(-2, 6), hour) for hour in sorted(dice.choices(range(40), k=60))]
    found = order(aged(*tasks))
    for now in (40, 41, 1000):
        effective = [(priority - (now - hour), n) for n, (priority, hour) in enumerate(tasks)]
        assert found == [f"t{n}" for _, n in sorted(effective)]


def test_switching_aging_on_and_off_sorts_what_waits_anew() -> None:
    state = aged((3, 0), (0, 4), aging_ms=0)
    assert order(state) == ["t1", "t0"]
    configured(state, aging_ms=3_600_000)
    assert order(state) == ["t0", "t1"]
    configured(state, aging_ms=36_000_000)
    assert order(state) == ["t1", "t0"]
    configured(state, aging_ms=3_600_000)
    configured(state, aging_ms=0)
    assert order(state) == ["t1", "t0"]


@pytest.mark.parametrize(
    ("away", "back"),
    [
        ((assigned("t0"),), (interrupted("t0"),)),
        ((assigned("t0"), attempt_failed("t0")), (released("t0", after="backoff"),)),
        ((assigned("t0"), failed("t0")), (revived("t0"),)),
    ],
    ids=["interrupted", "retried", "revived"],
)
@pytest.mark.parametrize("switched", ["on", "off", "over"])
def test_a_task_that_was_away_when_aging_was_switched_comes_back_by_todays_rule(
    away: tuple[Event, ...], back: tuple[Event, ...], switched: str
) -> None:
    """Its place is where it would be if it had never left, live as from a snapshot."""
    before, after = {"on": (0, 3_600_000), "off": (3_600_000, 0), "over": (60_000, 3_600_000)}[
        switched
    ]
    state = aged((1, 0), (2, 0), (1, 5), (0, 9), aging_ms=before)
    stayed = State.load(state.dump())
    fold(records_of(away, after=state.seq, at=state.at), state)
    for each in (state, stayed):
        configured(each, aging_ms=after)
    loaded = State.load(state.dump())
    for each in (state, loaded):
        fold(records_of(back, after=each.seq, at=each.at), each)
    assert order(state) == order(stayed)
    assert order(loaded) == order(stayed)

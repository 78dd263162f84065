"""The one fold: live, replayed or from a snapshot, it gives the same state."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, get_args

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import (
    SECOND_US,
    START_US,
    assigned,
    cancelled,
    chained,
    failed,
    fold,
    history,
    records_of,
    refuses,
    rejected,
    revived,
    server_started,
    started,
    submitted,
    succeeded,
)

from rota.actors.recovery import rebuild, task_from_log
from rota.actors.snapshotter import SLICE_TASKS, Snapshotter
from rota.domain import events as e
from rota.domain.commands import PULL, Limits
from rota.domain.dispatch import Turns
from rota.domain.fold import FOLDS
from rota.domain.intake import Rules, TypeRules
from rota.domain.restoring import fields_of_task
from rota.domain.task import READY, limits_of
from rota.errors import IllegalMove
from rota.eventlog.chain import GENESIS
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.port import Snapshot
from rota.projections.control import limits_to
from rota.projections.state import SNAPSHOT_VERSION, State

if TYPE_CHECKING:
    from rota.domain.task import Lane, Task

CUTS = 50
LENGTH = 1500


def counted(state: State) -> tuple[dict[str, int], int, dict[str, int], int]:
    """Count from the tasks themselves what the projections keep."""
    waiting: dict[str, int] = {}
    flying: dict[str, int] = {}
    for task in state.tasks:
        if task.state.value in ("ready", "blocked", "scheduled"):
            waiting[task.agent] = waiting.get(task.agent, 0) + 1
        elif task.state.value in ("assigned", "running"):
            flying[task.agent] = flying.get(task.agent, 0) + 1
    return waiting, sum(waiting.values()), flying, sum(flying.values())


def orders(state: State) -> dict[str, dict[Lane, list[str]]]:
    """Give every agent's lanes, in the order in which they will be served."""
    return {
        agent: {lane: [task.id for task in queue] for lane, queue in order.lanes.items()}
        for agent, order in state.backlog.orders.items()
    }


def test_the_generated_histories_hold_every_kind_and_are_repeatable() -> None:
    records = history(seed=1, length=LENGTH)
    kinds = {type(record.event) for record in (*records, *history(seed=6, length=LENGTH))}
    assert kinds == set(get_args(e.Event)) - {e.ActorFailed}
    assert records == history(seed=1, length=LENGTH)
    assert [r.seq for r in records] == list(range(1, len(records) + 1))


def test_a_snapshot_and_its_tail_are_the_full_replay_at_every_cut() -> None:
    dice = random.Random(4)
    for _ in range(CUTS):
        records = history(seed=dice.randrange(1000), length=300)
        cut = dice.randrange(len(records) + 1)
        whole = fold(records)
        loaded = State.load(fold(records[:cut]).dump())
        assert loaded.snapshot_seq == cut
        halves = fold(records[cut:], loaded)
        assert halves.digest() == whole.digest(), f"cut at {cut}"
        assert orders(halves) == orders(whole)
        assert (halves.seq, halves.at) == (whole.seq, whole.at)


def test_the_same_holds_when_it_comes_through_a_log() -> None:
    records = history(seed=99, length=LENGTH)
    log = MemoryLog()
    stored = chained(records)
    log.append(stored, 0, 0)
    digest = rebuild(log, use_snapshots=False).digest()
    dice = random.Random(5)
    for _ in range(CUTS):
        cut = dice.randrange(1, len(records) + 1)
        blob = fold(records[:cut]).dump()
        log.save_snapshot(Snapshot(cut, stored[cut - 1].digest, SNAPSHOT_VERSION, blob))
        state = rebuild(log)
        assert state.snapshot_seq == log.load_snapshots()[0].seq
        assert state.digest() == digest


def test_the_past_is_rebuilt_from_older_snapshots_only() -> None:
    records = history(seed=98, length=400)
    log = MemoryLog()
    stored = chained(records)
    log.append(stored, 0, 0)
    for cut in (100, 300):
        blob = fold(records[:cut]).dump()
        log.save_snapshot(Snapshot(cut, stored[cut - 1].digest, SNAPSHOT_VERSION, blob))
    for seq, snapshot_seq in ((50, 0), (100, 100), (250, 100), (300, 300), (390, 300)):
        state = rebuild(log, until_seq=seq)
        assert (state.seq, state.snapshot_seq) == (seq, snapshot_seq)
        assert state.digest() == fold(records[:seq]).digest()


def test_the_past_is_told_by_the_clock_of_its_records() -> None:
    records = history(seed=98, length=400)
    log = MemoryLog()
    log.append(chained(records), 0, 0)
    steps = [r for r in records if isinstance(r.event, e.ClockStepped)]
    assert steps
    for record in (records[0], records[200], steps[-1], records[-1]):
        last = max(r.seq for r in records if r.at <= record.at)
        state = rebuild(log, until_at=record.at)
        assert state.digest() == fold([r for r in records if r.seq <= last]).digest()
    assert rebuild(log, until_at=min(r.at for r in records) - 1).seq == 0


@pytest.mark.parametrize(
    ("version", "blob", "digest"),
    [
        (SNAPSHOT_VERSION + 1, None, None),
        (SNAPSHOT_VERSION - 1, None, None),
        (SNAPSHOT_VERSION, b"", None),
        (SNAPSHOT_VERSION, b"[]", None),
        (SNAPSHOT_VERSION, b"{}", None),
        (SNAPSHOT_VERSION, b'{"row":[]}', None),
        (SNAPSHOT_VERSION, None, GENESIS),
    ],
)
def test_a_snapshot_that_does_not_fit_is_ignored(
    version: int, blob: bytes | None, digest: bytes | None
) -> None:
    records = history(seed=97, length=100)
    log = MemoryLog()
    stored = chained(records)
    log.append(stored, 0, 0)
    made = fold(records[:60]).dump() if blob is None else blob
    log.save_snapshot(Snapshot(60, digest or stored[59].digest, version, made))
    state = rebuild(log)
    assert (state.snapshot_seq, state.digest()) == (0, fold(records).digest())


@pytest.mark.parametrize("seed", range(10))
def test_what_was_dumped_is_loaded(seed: int) -> None:
    state = fold(history(seed, 400))
    again = State.load(state.dump())
    assert again.digest() == state.digest()
    assert orjson.loads(again.dump()) == orjson.loads(state.dump())
    assert orders(again) == orders(state)
    assert again.control.limits == state.control.limits
    assert again.tasks.ttl_us == state.tasks.ttl_us


def turns(state: State) -> Turns:
    """Derive whose turn it is."""
    control = state.control
    return Turns(
        state.backlog.orders, state.slots, control.paused, control.limits, control.paused_types
    )


@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**9))
def test_at_every_seq_what_is_loaded_is_what_was_dumped(seed: int) -> None:
    """The same digest, the same orders, and the same task is next."""
    state = State()
    for record in history(seed, 200):
        state.apply(record)
        again = State.load(state.dump())
        assert again.digest() == state.digest(), record
        assert orders(again) == orders(state), record
        expected, found = turns(state).next(), turns(again).next()
        assert (found and found.id) == (expected and expected.id), record


@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**9), st.integers(1, 200))
def test_a_state_that_was_loaded_goes_on_as_the_one_that_was_not(seed: int, cut: int) -> None:
    records = history(seed, 200)
    live = fold(records[:cut])
    loaded = State.load(live.dump())
    for record in records[cut:]:
        live.apply(record)
        loaded.apply(record)
        assert loaded.digest() == live.digest(), record
        assert orders(loaded) == orders(live), record


@pytest.mark.parametrize("seed", range(10))
def test_no_push_ever_goes_over_a_limit(seed: int) -> None:
    """Global, per agent, per type, per key and of a batch, whatever came before."""
    state = State()
    pushed = 0
    for record in history(seed + 200, 700):
        state.apply(record)
        if not isinstance(record.event, e.TaskAssigned):
            continue
        task = state.tasks.by_id[record.event.task]
        if task.executor == PULL:
            continue
        limits, plan = state.control.limits, task.plan
        caps = {"push": limits.push, **{f"type:{name}": cap for name, cap in limits.types}}
        if plan is not None and plan.key is not None:
            caps[f"key:{plan.key}"] = limits.per_key
        if plan is not None and plan.parallelism is not None:
            caps[f"batch:{plan.parallelism}:{plan.batch}"] = plan.parallelism
        for limit in limits_of(task.lane):
            held = sum(t.holds and limit in limits_of(t.lane) for t in state.tasks)
            assert state.slots.of_limit(limit) == held
            assert held <= caps.get(limit, held), limit
        assert state.slots.of_agent(task.agent) <= limits.inflight_per_agent
        assert state.slots.total <= limits.inflight
        assert task.agent not in state.control.paused
        assert task.action not in state.control.paused_types
        assert state.control.stopped is None
        pushed += 1
    assert pushed > 20


def test_an_empty_state_is_dumped_and_loaded() -> None:
    assert State.load(State().dump()).digest() == State().digest()


def test_the_digest_tells_states_apart() -> None:
    records = history(seed=2, length=200)
    digests = {fold(records[:cut]).digest() for cut in range(len(records))}
    assert len(digests) == len(records)


@pytest.mark.parametrize("seed", range(5))
def test_the_counts_are_those_of_the_tasks_after_every_event(seed: int) -> None:
    state = State()
    for record in history(seed, 500):
        state.apply(record)
        waiting, total, flying, inflight = counted(state)
        assert (state.backlog.counts(), state.backlog.total) == (waiting, total)
        assert (state.slots.by_agent(), state.slots.total) == (flying, inflight)
        assert inflight <= state.control.limits.inflight


# -- snapshots of a state that moves -------------------------------------------------------------


def test_a_snapshot_taken_slice_by_slice_is_of_the_instant_it_began() -> None:
    """Tasks change, come and go between the slices; the snapshot does not see it."""
    tasks = SLICE_TASKS * 3
    begin: list[e.Event] = [server_started(result_ttl_s=1, queued=10_000)]
    begin += [submitted(f"t{n}", f"a{n % 7}", callback="http://x") for n in range(tasks)]
    begin += [assigned(f"t{n}", f"a{n % 7}") for n in range(0, tasks, 2)]
    state = fold(records_of(begin))
    instant = state.digest()
    snapshotter = Snapshotter(state, GENESIS)
    more: list[e.Event] = [succeeded(f"t{n}", f"a{n % 7}") for n in range(0, tasks, 2)]
    more += [submitted(f"new{n}") for n in range(50)]
    more += [assigned(f"t{n}", f"a{n % 7}") for n in range(1, tasks, 2)]
    moving = iter(records_of(more, after=state.seq, at=state.at, step=SECOND_US // 100))
    while (snapshot := snapshotter.slice()) is None:
        for _ in range(50):
            state.apply(next(moving))
    assert State.load(snapshot.blob).digest() == instant
    assert (snapshot.seq, snapshot.version) == (len(begin), SNAPSHOT_VERSION)
    assert state.tasks.before_change is None
    assert state.digest() != instant


# -- retention -----------------------------------------------------------------------------------


def retained(*, ttl_s: int, after_us: int) -> Task | None:
    """End a task, let time pass, and look whether it is still there."""
    state = fold(
        records_of([server_started(result_ttl_s=ttl_s), submitted(), assigned(), succeeded()])
    )
    end = state.tasks.by_id["t1"].finished_at
    state.apply(e.Record(5, end + after_us, e.AgentPaused("other")))
    return state.tasks.get("t1")


def test_an_ended_task_stays_for_its_retention_and_no_longer() -> None:
    assert retained(ttl_s=10, after_us=10 * SECOND_US - 1) is not None
    assert retained(ttl_s=10, after_us=10 * SECOND_US) is None


def test_only_ended_tasks_are_forgotten() -> None:
    state = fold(records_of([server_started(result_ttl_s=1), submitted(), submitted("t2")]))
    state.apply(e.Record(4, START_US + 10**12, assigned()))
    assert set(state.tasks.by_id) == {"t1", "t2"}
    assert (state.backlog.total, state.slots.total) == (1, 1)


def test_a_rejected_task_is_forgotten_like_any_other_that_ended() -> None:
    state = fold(records_of([server_started(result_ttl_s=1), rejected()]))
    assert state.tasks.get("t1") is not None
    state.apply(e.Record(3, START_US + 10 * SECOND_US, e.AgentPaused("other")))
    assert state.tasks.get("t1") is None


def test_a_shorter_retention_takes_hold_at_once() -> None:
    state = fold(records_of([submitted(), assigned(), succeeded()]))
    state.apply(e.Record(4, START_US + 5 * SECOND_US, server_started(result_ttl_s=2)))
    assert state.tasks.get("t1") is None


def test_a_replay_forgets_what_the_live_server_forgot() -> None:
    records = history(seed=21, length=LENGTH)
    live = State()
    seen: set[str] = set()
    for record in records:
        live.apply(record)
        seen |= set(live.tasks.by_id)
    assert set(fold(records).tasks.by_id) == set(live.tasks.by_id)
    assert len(seen) > len(live.tasks), "something was forgotten"


def test_a_forgotten_task_is_rebuilt_from_its_own_records() -> None:
    records = history(seed=22, length=LENGTH)
    log = MemoryLog()
    log.append(chained(records), 0, 0)
    state = State()
    last: dict[str, tuple[int, list[Any]]] = {}
    for record in records:
        state.apply(record)
        task = state.tasks.get(getattr(record.event, "task", ""))
        if task is not None:
            shown = [task.state, task.result, task.error, task.attempt, task.finished_at]
            last[task.id] = (record.seq, shown)
    gone = set(last) - set(state.tasks.by_id)
    assert gone
    for task_id in gone:
        task = task_from_log(log, task_id, state.steps)
        assert task is not None
        seq, shown = last[task_id]
        assert shown == [
            task.state,
            task.result,
            task.error,
            task.attempt,
            task.finished_at - state.steps.since(seq),
        ]
    assert task_from_log(log, "nobody") is None


def test_events_about_a_forgotten_task_change_nothing_else() -> None:
    state = fold(records_of([server_started(result_ttl_s=1), submitted(), assigned(), succeeded()]))
    later = START_US + 100 * SECOND_US
    state.apply(e.Record(5, later, e.AgentPaused("x")))
    before = (state.backlog.total, state.slots.total, dict(state.deliveries.pending))
    refuses(state, assigned(), succeeded(), e.AttemptInterrupted("t1", "a1", 1, "x"))
    notes: list[e.Event] = [
        e.TaskLogged("t1", "a1", ["late"]),
        e.TaskProgressed("t1", "a1", 1),
        e.ResultRefused("t1", "a1", 1, "succeeded"),
    ]
    for seq, event in enumerate(notes, start=6):
        state.apply(e.Record(seq, later, event))
    assert (state.backlog.total, state.slots.total, state.deliveries.pending) == before


def test_a_snapshot_that_the_records_after_it_do_not_fit_is_not_used() -> None:
    story = records_of([submitted(), assigned(), started(), succeeded()])
    log = MemoryLog()
    chain = chained(story)
    log.append(chain, 0, log.claim())
    early = fold(story[:1])
    early.seq = 2
    log.save_snapshot(Snapshot(2, chain[1].digest, SNAPSHOT_VERSION, early.dump()))
    assert rebuild(log).digest() == fold(story).digest()


def test_a_fact_that_is_folded_into_another_state_than_the_table_says_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FOLDS, e.TaskStarted, lambda _, task: setattr(task, "state", READY))
    with pytest.raises(IllegalMove, match="left task t1 ready, and the table .* says running"):
        fold(records_of([submitted(), assigned(), started()]))


def test_only_what_can_be_revived_is_brought_back() -> None:
    for end, is_legal in (failed(), True), (cancelled(), True), (succeeded(), False):
        state = fold(records_of([submitted(), assigned(), end]))
        again = revived()._replace(restored=fields_of_task(state.tasks.by_id["t1"]))
        with nullcontext() if is_legal else pytest.raises(IllegalMove):
            state.apply(e.Record(9, START_US, again))


def test_a_task_is_made_once() -> None:
    state = fold(records_of([submitted(), rejected("t2")]))
    refuses(state, submitted(), rejected(), submitted("t2"), rejected("t2"))


def test_the_rules_of_intake_are_folded_and_come_back_from_a_snapshot() -> None:
    rules = Rules({"scan": TypeRules("web", 5, retry={"max_attempts": 2})}, tab="tabs")
    started = e.ServerStarted("1", limits_to(Limits()), rules=rules.to_dict())
    state = fold(records_of((started, e.ServerStarted("2", limits_to(Limits())))))
    assert state.control.news_of(rules) is None, "a start that says nothing of them leaves them"
    assert State.load(state.dump()).control.news_of(rules) is None
    data = orjson.loads(state.dump())
    del data["control"]["rules"]
    old = State.load(orjson.dumps(data))
    assert old.control.news_of(Rules()) is None, "of a time before rules"

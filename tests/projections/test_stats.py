"""What is counted, and as what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.builders import (
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    expired,
    failed,
    fold,
    history,
    interrupted,
    records_of,
    rejected,
    released,
    revived,
    server_started,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.refusals import Refusals
from rota.projections import stats as stats_module
from rota.projections.state import State
from rota.projections.stats import PER_AGENT, average_ms

if TYPE_CHECKING:
    import pytest


def totals(*events: e.Event) -> dict[str, int]:
    """Give the counters that are not zero, without the times."""
    counted = fold(records_of(events)).stats.totals
    return {name: n for name, n in counted.items() if n and not name.endswith("_us")}


def at(*times: tuple[int, e.Event]) -> State:
    """Fold events that happen so many milliseconds after the start."""
    return fold(
        e.Record(seq, START_US + ms * 1000, event) for seq, (ms, event) in enumerate(times, start=1)
    )


def test_a_rejected_task_counts_as_rejected_and_not_as_submitted() -> None:
    assert totals(rejected()) == {"rejected": 1}


def test_an_accepted_task_counts_as_submitted() -> None:
    assert totals(submitted()) == {"submitted": 1}


def test_an_expired_task_counts_as_expired_and_as_failed() -> None:
    assert totals(submitted(), expired()) == {"submitted": 1, "expired": 1, "failed": 1}


def test_each_end_counts_under_its_own_name() -> None:
    run = (submitted(), assigned(), started())
    ran = {"submitted": 1, "dispatched": 1, "executed": 1}
    assert totals(*run, succeeded()) == {**ran, "completed": 1}
    assert totals(*run, failed()) == {**ran, "failed": 1}
    assert totals(*run, cancelled(was="running")) == {**ran, "cancelled": 1}


def test_a_task_cancelled_while_it_waited_was_not_executed() -> None:
    assert totals(submitted(), cancelled()) == {"submitted": 1, "cancelled": 1}


def test_interruptions_and_refused_results_are_counted() -> None:
    events = (submitted(), assigned(), interrupted(), e.ResultRefused("t1", "a1", 1, "failed"))
    assert totals(*events) == {"submitted": 1, "dispatched": 1, "interrupted": 1, "refused": 1}


def test_an_attempt_that_is_tried_again_counts_as_retried_and_not_as_failed() -> None:
    run = (assigned(), started(), attempt_failed(), released(after="backoff"))
    counted = totals(submitted(), *run, assigned(attempt=2), started(attempt=2), succeeded())
    assert counted == {
        "submitted": 1,
        "dispatched": 2,
        "executed": 2,
        "retried": 1,
        "completed": 1,
    }


def test_a_task_that_lives_again_counts_each_of_its_ends() -> None:
    again = (revived(), assigned(attempt=2), succeeded(attempt=2))
    counted = totals(submitted(), assigned(), failed(), *again)
    assert counted == {"submitted": 1, "dispatched": 2, "failed": 1, "completed": 1}


def test_a_task_waits_for_its_dispatch_from_the_moment_it_is_ready() -> None:
    """What it spent blocked, delayed or backing off is not the dispatcher's doing."""
    state = at(
        (0, submitted(waits=["p"], depends={"p": "p"})),
        (400, released()),
        (410, assigned()),
        (420, attempt_failed(next_at=START_US + 900_000)),
        (900, released(after="backoff")),
        (903, assigned(attempt=2)),
    )
    assert state.stats.totals["dispatch_wait_us"] == (10 + 3) * 1000


def test_dispatch_latency_runs_from_entering_the_queue_to_dispatch() -> None:
    state = at(
        (0, submitted()),
        (10, submitted("t2")),
        (30, assigned()),
        (70, assigned("t2")),
        (500, started()),
        (900, succeeded()),
    )
    counted = state.stats.totals
    assert counted["dispatch_wait_us"] == (30 + 60) * 1000
    assert average_ms(counted["dispatch_wait_us"], counted["dispatched"]) == 45.0


def test_a_task_that_was_interrupted_waits_anew_from_the_interruption() -> None:
    state = at((0, submitted()), (10, assigned()), (50, interrupted()), (57, assigned()))
    assert state.stats.totals["dispatch_wait_us"] == (10 + 7) * 1000
    assert state.stats.totals["dispatched"] == 2


def test_execution_time_runs_from_the_start_to_the_end() -> None:
    state = at((0, submitted()), (10, assigned()), (12, started()), (42, succeeded()))
    assert (state.stats.totals["executed"], state.stats.totals["execution_us"]) == (1, 30_000)


def test_the_average_of_nothing_is_nothing() -> None:
    assert average_ms(0, 0) == 0.0
    assert average_ms(1, 3) == 0.0
    assert average_ms(1_234_567, 1) == 1234.567


def test_agents_are_counted_apart() -> None:
    state = fold(
        records_of([submitted(), submitted("t2", "a2"), cancelled("t2", "a2"), rejected("t3")])
    )
    none = dict.fromkeys(PER_AGENT, 0)
    assert state.stats.agents == {
        "a1": {**none, "submitted": 1, "rejected": 1},
        "a2": {**none, "submitted": 1, "cancelled": 1},
    }


def test_the_agents_add_up_to_the_totals() -> None:
    records = history(seed=31, length=1500)
    state = fold(records)
    lives = sum(isinstance(record.event, e.TaskRevived) for record in records)
    for name in PER_AGENT:
        of_agents = sum(counts[name] for counts in state.stats.agents.values())
        of_agents += state.stats.rest[name]
        assert of_agents == state.stats.totals[name] > 0
    assert state.stats.totals["submitted"] + lives == (
        state.stats.totals["completed"]
        + state.stats.totals["failed"]
        + state.stats.totals["cancelled"]
        + state.backlog.total
        + state.slots.total
    )


def test_since_the_start_counts_from_the_last_start() -> None:
    state = fold(
        records_of([submitted(), server_started(), submitted("t2"), submitted("t3", "a2")])
    )
    assert state.stats.totals["submitted"] == 3
    assert state.stats.since_start()["submitted"] == 2
    assert {a: c["submitted"] for a, c in state.stats.agents_since_start().items()} == {
        "a1": 1,
        "a2": 1,
    }
    state.apply(e.Record(5, START_US + 10_000, server_started()))
    assert state.stats.agents_since_start() == {}
    assert not any(state.stats.since_start().values())


def test_idle_agents_beyond_the_bound_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "AGENTS_KEPT", 3)
    events = [
        each
        for n in range(6)
        for each in (submitted(f"t{n}", f"a{n}"), cancelled(f"t{n}", f"a{n}"))
    ]
    state = fold(records_of(events))
    assert list(state.stats.agents) == ["a3", "a4", "a5"]
    rest = {"agents": 3, "submitted": 3, "completed": 0, "failed": 0, "cancelled": 3, "rejected": 0}
    assert state.stats.rest == state.stats.rest_since_start() == rest
    assert state.stats.totals["submitted"] == 6
    assert State.load(state.dump()).digest() == state.digest()


def test_busy_agents_are_counted_one_by_one_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "AGENTS_KEPT", 3)
    state = fold(records_of([submitted(f"t{n}", f"a{n}") for n in range(9)]))
    assert len(state.stats.agents) == 9
    for n in range(9):
        record = e.Record(state.seq + 1, state.at, cancelled(f"t{n}", f"a{n}"))
        state.apply(record)
    assert len(state.stats.agents) == 3
    of_agents = sum(counts["cancelled"] for counts in state.stats.agents.values())
    assert of_agents + state.stats.rest["cancelled"] == state.stats.totals["cancelled"] == 9


def test_counted_refusals_are_in_the_totals_and_with_their_agents() -> None:
    state = fold(records_of([server_started(), e.RefusalsCounted(7, {"a1": 4, "a2": 2}, 1, 3)]))
    assert state.stats.since_start()["rejected"] == 7
    rejected = {a: c["rejected"] for a, c in state.stats.agents_since_start().items()}
    assert (rejected, state.stats.rest_since_start()["rejected"]) == ({"a1": 4, "a2": 2}, 1)


def test_refusals_that_are_not_recorded_yet_are_shown() -> None:
    state = fold(records_of([server_started(), submitted()]))
    state.stats.uncounted = refusals = Refusals()
    before = state.digest()
    for agent in ("a1", "a2", "a2"):
        refusals.count_task(agent)
    assert state.stats.all_time()["rejected"] == 3
    assert state.stats.since_start()["rejected"] == 3
    found = {a: c["rejected"] for a, c in state.stats.agents_since_start().items()}
    assert found == {"a1": 1, "a2": 2}
    assert state.digest() == before

"""What becomes of moments: catching up, overlapping, and what may be asked of a schedule."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain import events as e
from rota.domain.firings import (
    CAUGHT_UP_MAX,
    MINUTE_US,
    WAITING_MAX,
    Firing,
    Passed,
    Reckoning,
    decide_catch_up,
    decide_overlap,
    keep_for,
)
from rota.domain.schedule import Definition, Due, Schedule, agents_of, check_definition, created
from rota.errors import InvalidRequest

NOW = 1_795_000_020_000_000
TASK = {"task": {"agent": "ann", "action": "echo"}}
PROJECT = {"project": {"id": "site", "mode": "loop"}}


def schedule(**fields: Any) -> Schedule:
    wanted = Definition("* * * * *", "UTC", **{"target": TASK, **fields})
    event = created("n", wanted, Due(NOW, NOW), paused=False)
    return Schedule(e.Record(1, NOW, event, "me"))


def moments(count: int, last: int) -> tuple[int, ...]:
    return tuple(last - n * MINUTE_US for n in range(count - 1, -1, -1))


@pytest.mark.parametrize(
    ("catch_up", "age_us", "total", "fire"),
    [
        ("none", 10 * MINUTE_US, 7, 0),
        ("none", MINUTE_US // 2, 7, 1),
        ("none", 0, 7, 2),
        ("last", 10 * MINUTE_US, 7, 1),
        ("last", 10 * MINUTE_US, 1, 1),
        ("all", 10 * MINUTE_US, 7, 7),
        ("all", 10 * MINUTE_US, CAUGHT_UP_MAX + 40, CAUGHT_UP_MAX),
    ],
)
def test_what_passed_is_made_up_for_as_it_says(
    catch_up: str, age_us: int, total: int, fire: int
) -> None:
    every = moments(total, NOW - age_us)
    late = schedule(catch_up=catch_up)
    late.next_at = every[0]
    found = decide_catch_up(late, Passed(every[-keep_for(catch_up) :], total), NOW)
    assert found.fire == every[total - fire :]
    if fire == total:
        assert found == Reckoning(every)
    else:
        assert (found.let_go, found.first, found.last) == (
            total - fire, every[0], every[total - fire - 1],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("overlap", "target", "waiting", "busy", "outcome"),
    [
        ("skip", TASK, 0, None, None),
        ("skip", TASK, 0, "tsk_1", "skipped"),
        ("skip", TASK, 1, None, "skipped"),
        ("queue", TASK, 0, "tsk_1", "queued"),
        ("queue", TASK, 1, None, "queued"),
        ("queue", TASK, WAITING_MAX, "tsk_1", "skipped"),
        ("cancel", TASK, 0, "tsk_1", None),
        ("skip", PROJECT, 0, "run-1", "skipped"),
        ("queue", PROJECT, 0, "run-1", "queued"),
        ("queue", PROJECT, 1, "run-1", "skipped"),
        ("cancel", PROJECT, 0, "run-1", "queued"),
        ("cancel", PROJECT, 1, "run-1", "skipped"),
        ("cancel", PROJECT, 0, None, None),
    ],
)
def test_what_goes_on_is_minded(
    overlap: str, target: dict[str, Any], waiting: int, busy: str | None, outcome: str | None
) -> None:
    fires = schedule(overlap=overlap, target=target)
    fires.waiting = [[NOW, False]] * waiting
    event = decide_overlap(fires, Firing(NOW, Due(NOW + MINUTE_US)), busy)
    assert (event.outcome if event is not None else None) == outcome
    assert decide_overlap(fires, Firing(NOW, from_queue=True), busy) is None
    if event is not None:
        assert event.next_at == NOW + MINUTE_US
        assert (event.reason is not None) == (outcome == "skipped")


def test_a_schedule_is_written_as_a_row_and_read_again() -> None:
    one = schedule(target=PROJECT, jitter_ms=5, end_at=NOW + 9)
    one.waiting = [[NOW, True]]
    again = Schedule.from_row(one.to_row())
    assert again.to_row() == one.to_row()
    assert (again.agents, again.project, again.makes) == ({"site": 0}, "site", "project")


def test_the_agents_of_a_workflow_are_those_of_its_tasks_and_of_its_escalation() -> None:
    escalate = {"task": {"agent": "boss", "action": "look"}}
    tasks = [{"agent": "ann", "action": "a"}, {"agent": "bob", "action": "b"}]
    flow = {"tasks": tasks, "flow": {"escalate": escalate}}
    assert agents_of({"workflow": flow}) == {"ann": 1, "bob": 1, "boss": 0}
    assert agents_of({"workflow": {"tasks": tasks[:1], "flow": {}}}) == {"ann": 1}


def test_a_time_that_has_passed_is_refused_when_it_is_new() -> None:
    wanted = Definition("@daily", "UTC", TASK, start_at=NOW - 1, end_at=NOW + 1)
    with pytest.raises(InvalidRequest, match="startAt"):
        check_definition(wanted, NOW)
    check_definition(wanted, NOW, wanted._replace(cron="@hourly"))
    with pytest.raises(InvalidRequest, match="endAt"):
        check_definition(wanted._replace(end_at=NOW), NOW, wanted)

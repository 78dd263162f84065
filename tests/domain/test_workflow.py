"""A workflow is decided purely: when it trips over failures, when it ends and as what, its bounds."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import START_US, assigned, cancelled, failed, fold, records_of, submitted
from support.builders import started as began
from support.builders import succeeded as did

from rota.domain import events as e
from rota.domain import workflow as domain
from rota.domain.derived import Place
from rota.domain.intake import Rules
from rota.domain.workflow import (
    Workflow,
    check_live,
    check_members,
    check_room,
    decide_end,
    decide_trip,
    live_one,
)
from rota.errors import Conflict, NotFound, QueueFull

W = "wfl_1"
PLACE = Place(lambda: "new", 0, START_US)
BOSS = {"task": {"agent": "boss", "action": "echo", "params": {"of": "{{workflow.id}}"}}}


def flow(*more: e.Event, tasks: int = 2, **fields: Any) -> Workflow:
    """A workflow of tasks t1, t2 ..., and what happened to them since."""
    names = [f"t{n + 1}" for n in range(tasks)]
    begun = e.WorkflowSubmitted(W, tasks, **fields)
    events = [begun, *(submitted(name, workflow=W) for name in names), *more]
    found = fold(records_of(events)).batches.flow(W)
    assert found is not None
    return found


def fails(task: str) -> tuple[e.Event, ...]:
    return assigned(task), began(task), failed(task)


def works(task: str) -> tuple[e.Event, ...]:
    return assigned(task), began(task), did(task)


def trip(found: Workflow) -> tuple[e.Event, ...]:
    return decide_trip(found, Rules(), PLACE)


# -- how it ends ---------------------------------------------------------------------------------


def test_it_goes_on_while_a_task_does() -> None:
    assert decide_end(flow(*works("t1"))) is None


@pytest.mark.parametrize(
    ("ends", "state", "counts"),
    [
        ((*works("t1"), *works("t2")), "completed", (2, 0, 0)),
        ((*works("t1"), *fails("t2")), "failed", (1, 1, 0)),
        ((*works("t1"), cancelled("t2")), "completed", (1, 0, 1)),
        ((cancelled("t1"), cancelled("t2")), "cancelled", (0, 0, 2)),
        ((*fails("t1"), cancelled("t2")), "failed", (0, 1, 1)),
    ],
)
def test_it_ends_as_its_tasks_did(
    ends: tuple[e.Event, ...], state: str, counts: tuple[int, int, int]
) -> None:
    assert decide_end(flow(*ends)) == e.WorkflowEnded(W, state, ["t1", "t2"], *counts)


def test_it_ends_once() -> None:
    ends = (*works("t1"), *works("t2"))
    ended = decide_end(flow(*ends))
    assert ended is not None
    over = flow(*ends, ended)
    assert over.state == "completed"
    assert decide_end(over) is None
    assert not over.is_due


def test_an_open_one_ends_only_after_it_was_closed() -> None:
    ends = (*works("t1"), *works("t2"))
    assert decide_end(flow(*ends, open=True)) is None
    assert decide_end(flow(open=True, tasks=0)) is None
    closed = flow(*ends, e.WorkflowClosed(W), open=True)
    assert decide_end(closed) == e.WorkflowEnded(W, "completed", ["t1", "t2"], 2, 0, 0)


def test_failures_under_the_threshold_do_not_make_it_fail() -> None:
    ends = (*works("t1"), *fails("t2"))
    end = decide_end(flow(*ends, failure={"count": 2}))
    assert end is not None
    assert end.state == "completed"


def test_one_that_was_cancelled_ends_so_whatever_its_tasks_did() -> None:
    found = flow(*works("t1"), e.WorkflowCancelled(W, "no"), cancelled("t2"), open=True)
    assert (found.state, found.stopping, found.is_open) == ("cancelled", "no", False)
    end = decide_end(found)
    assert end is not None
    assert end.state == "cancelled"


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "tasks", "count", "is_crossed"),
    [
        (None, 4, 0, False),
        (None, 4, 1, True),
        ({"count": 2}, 4, 1, False),
        ({"count": 2}, 4, 2, True),
        ({"share": 0.5}, 4, 1, False),
        ({"share": 0.5}, 4, 2, True),
        ({"share": 1.0}, 2, 1, False),
        ({"share": 0.001}, 4, 0, False),
        ({"share": 0.001}, 4, 1, True),
    ],
)
def test_a_threshold_is_crossed_by_as_many_as_it_says(
    failure: dict[str, Any] | None, tasks: int, count: int, *, is_crossed: bool
) -> None:
    ends = [event for n in range(count) for event in fails(f"t{n + 1}")]
    assert flow(*ends, tasks=tasks, failure=failure).is_crossed is is_crossed


def test_nothing_is_done_about_failures_without_a_rule() -> None:
    found = flow(*fails("t1"))
    assert trip(found) == ()
    assert not found.is_due


@pytest.mark.parametrize(
    ("action", "state"), [("cancel", "failed"), ("pause", "paused"), ("escalate", "escalated")]
)
def test_the_rule_for_failures_is_followed_once(action: str, state: str) -> None:
    escalate = {"callback": "https://example.com"} if action == "escalate" else None
    fields: dict[str, Any] = {"on_failure": action, "escalate": escalate}
    found = flow(*fails("t1"), **fields)
    assert found.is_due
    assert trip(found) == (e.WorkflowTripped(W, action, 1, 2),)
    after = flow(*fails("t1"), *trip(found), **fields)
    assert after.state == state
    assert trip(after) == ()


def test_a_rule_waits_for_its_threshold() -> None:
    assert trip(flow(*fails("t1"), failure={"count": 2}, on_failure="cancel")) == ()


def test_nothing_is_done_about_failures_of_a_cancelled_one() -> None:
    found = flow(*fails("t1"), e.WorkflowCancelled(W), on_failure="pause")
    assert trip(found) == ()


def test_an_escalation_is_recorded_with_its_task() -> None:
    found = flow(*fails("t1"), on_failure="escalate", escalate=BOSS)
    tripped, task = trip(found)
    assert tripped == e.WorkflowTripped(W, "escalate", 1, 2, "new")
    assert isinstance(task, e.TaskSubmitted)
    assert (task.task, task.agent, task.params) == ("new", "boss", {"of": W})
    assert task.plan is None or task.plan.workflow is None


def test_one_that_was_escalated_ends_so() -> None:
    fields: dict[str, Any] = {"on_failure": "escalate", "escalate": BOSS}
    found = flow(*fails("t1"), **fields)
    over = flow(*fails("t1"), *trip(found), *works("t2"), **fields)
    assert (over.state, over.escalation_task) == ("escalated", "new")
    assert decide_end(over) == e.WorkflowEnded(W, "escalated", ["t1", "t2"], 1, 1, 0, "escalate")


def test_a_pause_names_its_reason_and_a_resume_takes_it_back() -> None:
    found = flow(e.WorkflowPaused(W, "hold on"))
    assert (found.state, found.paused) == ("paused", "hold on")
    assert flow(e.WorkflowPaused(W, "x"), e.WorkflowResumed(W)).state == "running"


# -- revivals ------------------------------------------------------------------------------------


def over(**fields: Any) -> tuple[list[e.Event], Workflow]:
    """A workflow that has ended with a failure."""
    events: list[e.Event] = [*works("t1"), *fails("t2")]
    found = flow(*events, **fields)
    events += trip(found)
    end = decide_end(flow(*events, **fields))
    assert end is not None
    events.append(end)
    return events, flow(*events, **fields)


def test_a_revived_task_opens_it_again_and_it_ends_anew() -> None:
    events, found = over()
    assert found.state == "failed"
    events.append(e.TaskRevived("t2", "a1"))
    again = flow(*events)
    assert (again.state, again.left, again.finished_at) == ("running", 1, 0)
    assert again.fates == {"succeeded": 1, "failed": 0, "cancelled": 0}
    events += [e.TaskAssigned("t2", "a1", 2), began("t2", attempt=2), did("t2", attempt=2)]
    assert decide_end(flow(*events)) == e.WorkflowEnded(W, "completed", ["t1", "t2"], 2, 0, 0)


def test_it_trips_again_after_a_revival_but_escalates_once() -> None:
    failing = (e.TaskAssigned("t2", "a1", 2), began("t2", attempt=2), failed("t2", attempt=2))
    for action, times in (("cancel", 1), ("escalate", 0)):
        fields: dict[str, Any] = {"on_failure": action}
        fields["escalate"] = BOSS if action == "escalate" else None
        events, _ = over(**fields)
        events += [e.TaskRevived("t2", "a1"), *failing]
        assert len([x for x in trip(flow(*events, **fields)) if x]) == times


# -- who may join, and how many ------------------------------------------------------------------


def test_only_one_that_goes_on_is_live() -> None:
    found = flow()
    assert live_one(found, W) is found
    for other in (None, object()):
        with pytest.raises(NotFound):
            live_one(other, W)
    for gone in (over()[1], flow(e.WorkflowCancelled(W))):
        with pytest.raises(Conflict) as caught:
            live_one(gone, W)
        assert caught.value.code == "workflow_ended"


def test_a_workflow_has_only_so_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "JOINED_MAX", 3)
    check_room(flow(), 1, 2)
    with pytest.raises(QueueFull) as caught:
        check_room(flow(), 2, 2)
    assert (caught.value.code, caught.value.details["max"]) == ("workflow_full", 3)


def test_workflows_have_only_so_many_tasks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "MEMBERS_MAX", 5)
    check_members(5)
    check_room(flow(), 2, 3)
    with pytest.raises(QueueFull) as caught:
        check_room(flow(), 2, 4)
    assert caught.value.code == "too_many_workflow_tasks"


def test_only_so_many_workflows_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "LIVE_MAX", 2)
    check_live(1)
    with pytest.raises(QueueFull) as caught:
        check_live(2)
    assert caught.value.code == "too_many_workflows"

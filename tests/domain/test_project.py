"""Projects are decided purely: given what was recorded, when somebody asks, then these facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.builders import START_US, assigned, fold, records_of, started, succeeded

from rota.domain import events as e
from rota.domain.derived import Place
from rota.domain.intake import Request, Rules
from rota.domain.plan import Plan
from rota.domain.project import decide_next, decide_run, decide_stop
from rota.domain.project_lists import (
    Room,
    decide_additions,
    decide_deletion,
    decide_move,
    decide_removal,
)
from rota.domain.shares import Shares
from rota.domain.stored import read_request, write_request
from rota.errors import Conflict, NotFound, QueueFull

if TYPE_CHECKING:
    from rota.projections.state import State

ROOM = Room.empty(1000)
FULL = Shares(0)
PLACE = Place(lambda: "fresh", 0, START_US)
ECHO = {"agent": "agent-1", "action": "echo"}
PLAN = Plan(project="p", run="run-1")


def item(name: str) -> e.ProjectTaskAdded:
    return e.ProjectTaskAdded("agent-1", "p", name, ECHO)


def running(*names: str, mode: str = "loop", first: str | None = None) -> tuple[e.Event, ...]:
    added = tuple(item(name) for name in names)
    return (*added, e.RunQueued("run-1", "p", mode, first), e.RunStarted("run-1", "p"))


def taken(name: str) -> tuple[e.Event, ...]:
    born = e.TaskSubmitted(name, "agent-1", "echo", "builtin", 1, plan=PLAN)
    return e.RunTaskSelected("run-1", "p", name, "agent-1"), born


def done(name: str) -> tuple[e.Event, ...]:
    return (*taken(name), assigned(name), started(name), succeeded(name))


def failed(name: str) -> tuple[e.Event, ...]:
    why = e.TaskFailed(name, "agent-1", 1, "bad", "it broke")
    return (*taken(name), assigned(name), started(name), why)


def given(*events: e.Event) -> State:
    return fold(records_of(list(events)))


def next_of(*events: e.Event) -> tuple[e.Event, ...]:
    """Give what is decided next after these."""
    state = given(*events)
    project = state.projects.by_id["p"]
    run = project.run
    task = state.tasks.get(run.task) if run is not None and run.task is not None else None
    return decide_next(project, task, Rules(), PLACE, state.tasks.get)


def ended(state: str, reason: str, completed: int = 0, error: str | None = None) -> e.RunEnded:
    agent = "agent-1" if error is not None else None
    return e.RunEnded("run-1", "p", state, reason, completed, error, agent)


def test_the_first_of_the_list_becomes_a_task_in_the_step_that_selects_it() -> None:
    selected, born = next_of(*running("a", "b"))
    assert selected == e.RunTaskSelected("run-1", "p", "a", "agent-1")
    assert isinstance(born, e.TaskSubmitted)
    assert (born.task, born.plan) == ("a", PLAN)


def test_a_run_begins_with_the_one_that_it_was_told_to() -> None:
    assert next_of(*running("a", "b", first="b"))[0] == e.RunTaskSelected(
        "run-1", "p", "b", "agent-1"
    )
    gone = (*running("a", "b", first="b"), e.ProjectTaskRemoved("agent-1", "p", "b"))
    [end] = next_of(*gone)
    assert end == ended("failed", "task_gone", 0, "the task to begin with was removed")


@pytest.mark.parametrize(
    ("story", "end"),
    [
        ((*running("a", mode="single"), *done("a")), ended("completed", "single_done", 1)),
        ((*running("a"), *done("a")), ended("completed", "empty", 1)),
        (
            (item("a"), e.ProjectTaskRemoved("agent-1", "p", "a"), *running()),
            ended("completed", "empty"),
        ),
        ((*running("a", "b"), *failed("a")), ended("failed", "task_failed", 0, "it broke")),
        (
            (*running("a", "b"), *taken("a"), e.TaskCancelled("a", "agent-1", "ready", "no")),
            ended("failed", "task_cancelled", 0, "no"),
        ),
        (
            (*running("a", "b"), e.RunStopRequested("run-1", "p"), *done("a")),
            ended("completed", "stopped", 1),
        ),
        (
            (*running("a", "b"), *done("a"), e.RunStopRequested("run-1", "p", "", True)),
            ended("failed", "force_stopped", 1),
        ),
    ],
)
def test_a_run_ends_for_its_reason(story: tuple[e.Event, ...], end: e.RunEnded) -> None:
    assert next_of(*story) == (end,)


def test_a_loop_goes_on_after_a_success() -> None:
    assert next_of(*running("a", "b"), *done("a"))[0] == e.RunTaskSelected(
        "run-1", "p", "b", "agent-1"
    )


def test_nothing_is_decided_while_its_task_goes_on_or_it_is_pending() -> None:
    assert next_of(*running("a", "b"), *taken("a")) == ()
    assert next_of(item("a"), e.RunQueued("run-1", "p", "loop")) == ()


def test_a_stop_takes_back_what_has_not_begun_and_leaves_what_has() -> None:
    stop = e.RunStopRequested("run-1", "p")
    held, back = next_of(*running("a", "b"), *taken("a"), stop)
    assert (held, back) == (
        e.TaskHeld("a", "agent-1", "p"),
        e.ProjectTaskAdded(
            "agent-1", "p", "a", {**ECHO, "priority": 2}, "b", held=True, before_agent="agent-1"
        ),
    )
    assert next_of(*running("a"), *taken("a"), assigned("a"), started("a"), stop) == ()
    over = e.RunEnded("run-1", "p", "completed", "stopped")
    again = (e.RunQueued("run-2", "p", "single"), e.RunStarted("run-2", "p"))
    assert next_of(*running("a", "b"), *taken("a"), stop, held, back, over, *again) == (
        e.RunTaskSelected("run-2", "p", "a", "agent-1"),
        e.TaskReleased("a", "agent-1", "project", "run-2"),
    )


def test_a_task_that_waits_for_its_next_attempt_does_not_hold_a_stop_up() -> None:
    stop = e.RunStopRequested("run-1", "p")
    later = e.AttemptFailed("a", "agent-1", 1, "bad", "it broke", START_US * 2)
    held, back = next_of(*running("a"), *taken("a"), assigned("a"), started("a"), later, stop)
    assert (held.task, back.item, back.held) == ("a", "a", True)
    over = e.RunEnded("run-1", "p", "completed", "stopped")
    again = (e.RunQueued("run-2", "p", "loop"), e.RunStarted("run-2", "p"))
    story = (*running("a"), *taken("a"), assigned("a"), started("a"), later, stop)
    assert next_of(*story, held, back, over, *again) == (
        e.RunTaskSelected("run-2", "p", "a", "agent-1"),
        e.TaskDelayed("a", "agent-1", START_US * 2, "run-2"),
    ), "its backoff goes on"


def test_a_force_stop_waits_for_what_runs_and_cancels_what_does_not() -> None:
    stop = e.RunStopRequested("run-1", "p", "", True, ["a"])
    assert next_of(*running("a"), *taken("a"), assigned("a"), started("a"), stop) == ()
    [failed] = next_of(*running("a"), *taken("a"), stop)
    assert (type(failed), failed.code) == (e.TaskFailed, "force_stopped")


def test_a_run_without_progress_leaves_what_waits_on_its_list_and_cuts_off_what_runs() -> None:
    over = e.RunStopRequested("run-1", "p", "no progress", True, None, "run_timeout")
    held, back = next_of(*running("a"), *taken("a"), over)
    assert (held.task, back.item) == ("a", "a")
    assert next_of(*running("a"), *taken("a"), over, held, back) == (
        ended("failed", "run_timeout", 0, "no progress"),
    )
    flying = next_of(*running("a"), *taken("a"), assigned("a"), over)
    assert [type(each) for each in flying] == [e.TaskFailed]


def test_a_project_is_started_once() -> None:
    state = given(item("a"))
    project = state.projects.get("p")
    assert decide_run(project, "p", "loop", "run-1") == (e.RunQueued("run-1", "p", "loop"),)
    with pytest.raises(Conflict) as caught:
        decide_run(given(*running("a")).projects.get("p"), "p", "single", "run-2")
    assert caught.value.code == "queue_already_running"
    with pytest.raises(NotFound):
        decide_run(None, "p", "loop", "run-1")
    with pytest.raises(NotFound):
        decide_run(project, "p", "loop", "run-1", "nobody")


def test_a_stop_is_asked_for_once_and_ends_what_is_pending() -> None:
    pending = given(item("a"), e.RunQueued("run-1", "p", "loop")).projects.by_id["p"]
    asked, end = decide_stop(pending, "x", force=False)
    assert (asked, end) == (
        e.RunStopRequested("run-1", "p", "x"),
        ended("completed", "stopped"),
    )
    project = given(*running("a"), e.RunStopRequested("run-1", "p")).projects.by_id["p"]
    assert decide_stop(project, "", force=False) == ()
    assert decide_stop(project, "", force=True) == (e.RunStopRequested("run-1", "p", "", True),)
    assert decide_stop(given(item("a")).projects.by_id["p"], "", force=True) == ()


def test_a_move_that_changes_nothing_is_none() -> None:
    project = given(item("a"), item("b"), item("c")).projects.get("p")
    assert decide_move(project, "p", "a", "b") is None
    assert decide_move(project, "p", "c", None) is None
    assert decide_move(project, "p", "a", 0) is None
    moved = e.ProjectTaskMoved("agent-1", "p", "c", "a", "agent-1")
    assert decide_move(project, "p", "c", 0) == moved
    assert decide_move(project, "p", "a", 99) == e.ProjectTaskMoved("agent-1", "p", "a", None)


def test_what_was_selected_is_on_no_list() -> None:
    project = given(*running("a", "b"), *taken("a")).projects.get("p")
    with pytest.raises(Conflict) as caught:
        decide_removal(project, "p", "a", "")
    assert caught.value.code == "task_not_pending"
    with pytest.raises(Conflict):
        decide_deletion(project, "p", "")


@pytest.mark.parametrize(
    ("room", "code"),
    [
        (ROOM._replace(projects=FULL), "too_many_projects"),
        (ROOM._replace(items_max=0), "project_full"),
        (ROOM._replace(items=FULL), "projects_full"),
        (ROOM._replace(bytes=FULL), "projects_full"),
    ],
)
def test_lists_are_bounded(room: Room, code: str) -> None:
    with pytest.raises(QueueFull) as caught:
        decide_additions(None, "p", [("a", Request("p", "echo"))], None, room)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "changes",
    [{}, {"params": {"n": 1}, "priority": 0}, {"plan": Plan(key="k", delay_ms=5, requires=["x"])}],
)
def test_a_request_is_written_and_read_again(changes: dict[str, Any]) -> None:
    request = Request("p", "echo", by="me", **changes)
    assert read_request(write_request(request), "me") == request

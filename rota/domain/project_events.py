"""The facts about projects: what is on a project's list, and how its runs went.

They are named among the others in events.py, which is what everybody imports. An item's facts are
in the history of the task that it becomes, a run's under the run's own id.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ProjectCreated(NamedTuple):
    """A project was made, with nothing on its list; most begin with their first item instead."""

    project: str


class ProjectTaskAdded(NamedTuple):
    """An item was put on a project's list: a task that is submitted when a run selects it.

    It goes before the item `before`, or to the end. `before_agent` is the agent of that item: who
    may not see it is told of neither. `request` is what was asked for. One that is
    `held` is a task already, and is released when a run selects it: its run was stopped before it
    was in flight, or it was revived. (In older logs such an item `replaces` a task of another id.)
    """

    agent: str
    project: str
    item: str
    request: dict[str, Any]
    before: str | None = None
    replaces: str | None = None
    held: bool | None = None
    before_agent: str | None = None


class TaskHeld(NamedTuple):
    """The task is on its project's list again, and waits until a run selects it.

    Its run was stopped before an attempt of it was in flight, or it was revived.
    """

    task: str
    agent: str
    project: str


class ProjectTaskEdited(NamedTuple):
    """An item asks for something else from now on."""

    agent: str
    project: str
    item: str
    request: dict[str, Any]


class ProjectTaskMoved(NamedTuple):
    """An item has another place on its list: before the item `before`, or at the end.

    `before_agent` is the agent of that item.
    """

    agent: str
    project: str
    item: str
    before: str | None = None
    before_agent: str | None = None


class ProjectTaskRemoved(NamedTuple):
    """An item was taken off its list, and never became a task."""

    agent: str
    project: str
    item: str
    reason: str = ""


class ProjectDeleted(NamedTuple):
    """A project is no more; what was on its list went with it."""

    project: str
    reason: str = ""


class RunQueued(NamedTuple):
    """A run of a project was asked for: it is pending. With an `item` it takes that one first.

    `item_agent` is the agent of that item: who may not see it is told of neither.
    """

    run: str
    project: str
    mode: str
    item: str | None = None
    reason: str = ""
    item_agent: str | None = None


class RunStarted(NamedTuple):
    """The run is in progress: few enough others are, as `reason` says."""

    run: str
    project: str
    reason: str = ""


class RunTaskSelected(NamedTuple):
    """It is this item's turn: it left its list, and its `task_submitted` follows this record.

    Of one that was held the `task_released` or `task_delayed` follows. `item_agent` is its agent.
    """

    run: str
    project: str
    item: str
    item_agent: str | None = None


class RunStopRequested(NamedTuple):
    """The run shall end: with its running task, or by `force` without waiting for that.

    `kills` are the tasks whose attempts are cut off; they keep their slots until those are gone.
    A run that has ended is named for a task of it that was given a new life. A `code` says that
    nobody asked: `run_timeout`.
    """

    run: str
    project: str
    reason: str = ""
    force: bool | None = None
    kills: list[str] | None = None
    code: str | None = None


class RunEnded(NamedTuple):
    """The run is completed or failed, for good; `reason` says why it ended.

    So many of its tasks were `completed`. `error` is that of the task that failed it, whose agent
    is `item_agent`.
    """

    run: str
    project: str
    state: str
    reason: str
    completed: int = 0
    error: str | None = None
    item_agent: str | None = None

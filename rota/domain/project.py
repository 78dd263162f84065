"""The runs of a project: started, carried from task to task, stopped, ended.

An item becomes a task when a run selects it: from what is pending then, in the order of then, in
the same record. A project has at most one run that has not ended, so the run itself is the lock: it
is held as long as there is something to do and not a moment longer. A run is pending, in progress,
completed or failed, and never leaves the last two. All that is decided about one follows from its
records and the state of its task, so whoever looks again decides the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.attempts import decide_freeing, decide_interruption, has_not_begun
from rota.domain.derived import decide_born
from rota.domain.project_lists import already_running, known, pending_item, sees_all
from rota.domain.project_parts import (
    COMPLETED,
    EMPTY,
    FAILED,
    FORCE_STOPPED,
    IN_PROGRESS,
    RUN_TIMEOUT,
    SINGLE,
    SINGLE_DONE,
    STOPPED,
    TASK_CANCELLED,
    TASK_FAILED,
    TASK_GONE,
)
from rota.domain.task import RUNNING, TERMINAL, WAITING
from rota.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.domain.dependencies import Find
    from rota.domain.derived import Place
    from rota.domain.intake import Rules
    from rota.domain.project_lists import Sees
    from rota.domain.project_parts import Item, Project, Run
    from rota.domain.task import Task

BEING_KILLED = "being_killed"
UNCONFIRMED = "unconfirmed"


def decide_run(
    project: Project | None,
    project_id: str,
    mode: str,
    run_id: str,
    item: str | None = None,
    reason: str = "",
    sees: Sees = sees_all,
) -> tuple[e.RunQueued]:
    """Start a run: it is pending until there is room for it. Raises NotFound or Conflict.

    Whoever records what this gives has started the run, together with whatever else is recorded.
    """
    if known(project).run is not None:
        raise already_running(project_id)
    agent = pending_item(project, project_id, item, sees).agent if item is not None else None
    return (e.RunQueued(run_id, project_id, mode, item, reason, agent),)


def decide_room(run_id: str, project_id: str, in_progress: int, most: int) -> e.RunStarted | None:
    """Start the first run that is pending, if there is room for it; 0 is room for any number."""
    if most and in_progress >= most:
        return None
    of = f"of {most} that may be" if most else "and any number may be"
    return e.RunStarted(run_id, project_id, f"{in_progress} were in progress {of}")


def decide_next(
    project: Project,
    task: Task | None,
    rules: Rules,
    place: Place,
    find: Find,
    *,
    is_sure: bool = True,
) -> tuple[e.Event, ...]:
    """Do the next thing about a run that is in progress: end it, or select a task; or nothing.

    `task` is the one that it has selected, if that has not ended; `find` gives tasks in memory.
    Unless `is_sure`, something may be left of an attempt of `task` that was interrupted.
    """
    run = project.run
    if run is None or run.state != IN_PROGRESS:
        return ()
    if run.task is not None:
        return _wind_up(project, run, task, is_sure=is_sure)
    end = _why_over(run)
    if end is not None:
        return (end,)
    item = project.find(run.item) if run.item is not None and not run.taken else None
    if item is None and run.item is not None and not run.taken:
        return (_ended(run, FAILED, TASK_GONE, "the task to begin with was removed"),)
    if item is None:
        if not project.items:
            return (_ended(run, COMPLETED, EMPTY),)
        item = project.items[0]
    return _selected(run, item, rules, place, find)


def _why_over(run: Run) -> e.RunEnded | None:
    """End a run that has nothing under way, unless it is to go on."""
    if run.stop == "force":
        return _ended(run, FAILED, run.reason or FORCE_STOPPED, run.error)
    if run.fate == "failed":
        return _ended(run, FAILED, TASK_FAILED, run.error)
    if run.fate == "cancelled" and run.stop is None:
        return _ended(run, FAILED, TASK_CANCELLED, run.error)
    if run.stop is not None:
        return _ended(run, COMPLETED, STOPPED)
    if run.mode == SINGLE and run.taken:
        return _ended(run, COMPLETED, SINGLE_DONE)
    return None


def _ended(run: Run, state: str, reason: str, error: str | None = None) -> e.RunEnded:
    agent = run.agent if error is not None else None
    return e.RunEnded(run.id, run.project, state, reason, run.completed, error, agent)


def _selected(run: Run, item: Item, rules: Rules, place: Place, find: Find) -> tuple[e.Event, ...]:
    """Make a task of an item, in the step that takes it off its list; release one that is held."""
    task = find(item.id) if item.held else None
    if task is not None:
        freed = decide_freeing(task, place.now)._replace(run=run.id)
        if isinstance(freed, e.TaskReleased):
            freed = freed._replace(after="project")
        return (e.RunTaskSelected(run.id, run.project, item.id, item.agent), freed)
    request = item.request
    plan = request.plan._replace(project=run.project, run=run.id, idempotency=None, digest=None)
    wanted = place._replace(new_id=lambda: item.id)
    derived = decide_born(request._replace(plan=plan), rules, wanted)
    return (e.RunTaskSelected(run.id, run.project, item.id, item.agent), *derived)


def _wind_up(
    project: Project, run: Run, task: Task | None, *, is_sure: bool
) -> tuple[e.Event, ...]:
    """Do with the task of a run what a stop asks for."""
    if task is None or task.state in TERMINAL:
        return ()
    if task.state in WAITING:
        return decide_stopped(task, project, is_sure=is_sure)
    if run.stop != "force" or is_under_way(task):
        return ()  # its attempt may end, or is being cut off
    return (decide_cut(task, why_cut(run.id, run)),)


def decide_stopped(
    task: Task, project: Project | None, why: str | None = None, *, is_sure: bool = True
) -> tuple[e.Event, ...]:
    """Do with a task that waits from now on what a stop asks for; nothing if nobody stops it.

    It goes back on the list, or fails if it is cut off; `why` says why, if that has begun.
    """
    if why is not None:
        return (decide_cut(task, why, is_sure=is_sure),)
    run = project.run if project is not None else None
    if project is None or run is None or run.task != task.id or run.stop is None:
        return ()
    if (run.stop != "force" or run.reason == RUN_TIMEOUT) and project.taken is not None:
        return decide_hold(project, task, project.taken.written)
    return (decide_cut(task, why_cut(run.id, run), is_sure=is_sure),)


def decide_hold(
    project: Project, task: Task, written: dict[str, Any]
) -> tuple[e.TaskHeld, e.ProjectTaskAdded]:
    """Put a task that waits at the head of its project's list, where a run selects it again."""
    first = project.items[0] if project.items else None
    before, agent = (first.id, first.agent) if first is not None else (None, None)
    written = {**written, "priority": task.priority}
    back = e.ProjectTaskAdded(
        task.agent, project.id, task.id, written, before, held=True, before_agent=agent
    )
    return (e.TaskHeld(task.id, task.agent, project.id), back)


def is_under_way(task: Task) -> bool:
    """Whether something may work on a task: an executor, or the worker that holds its lease.

    A force-stop has to cut it off. The task keeps its slot, and its run's place, until then.
    """
    return task.state is RUNNING or task.is_leased


def decide_cut(task: Task, why: str, *, is_sure: bool = True) -> e.TaskFailed:
    """Fail a task because its run was force-stopped; somebody may retry it.

    Unless `is_sure`, whatever worked on it may still do so: nobody has said that it has stopped.
    """
    details = None if is_sure else {UNCONFIRMED: True}
    return e.TaskFailed(task.id, task.agent, task.attempt, FORCE_STOPPED, why, details)


def progress_ends_at(run: Run, task: Task | None, timeout_ms: int) -> int | None:
    """Give when a run ends unless something happens before; None if it may take for ever."""
    if run.state != IN_PROGRESS or run.stop == "force" or not timeout_ms:
        return None
    happened_at = max(run.started_at, task.updated_at if task is not None else 0)
    return happened_at + timeout_ms * 1000


def decide_return(
    task: Task, reason: str, project: Project | None, why: str | None, *, is_over: bool = True
) -> tuple[e.Event, ...]:
    """Interrupt an attempt: its task waits again, or a stop has it back on its list, or fail.

    `why` says why it is being cut off, if it is. Unless the attempt `is_over`, something may be
    left of it. All of it is one step, so that nothing of what is stopped begins again.
    """
    events = decide_interruption(task, reason)
    if len(events) > 1:
        return events
    is_sure = is_over or has_not_begun(task, reason)
    return (*events, *decide_stopped(task, project, why, is_sure=is_sure))


def why_cut(run_id: str, run: Run | None) -> str:
    """Say why the tasks of a run are cut off; `run` is None if it is not remembered."""
    if run is not None and run.reason == RUN_TIMEOUT and run.error:
        return run.error
    return f"run {run_id} was force-stopped"


def check_not_killed(task: Task, killing: Mapping[str, str]) -> None:
    """Refuse to cancel what a force-stop cuts off: it keeps its slot until it is gone.

    Raises Conflict.
    """
    run = killing.get(task.id)
    if run is not None:
        msg = f"the task is being cut off: run {run} was force-stopped"
        raise Conflict(msg, code=BEING_KILLED, details={"taskId": task.id, "runId": run})


def decide_stop(
    project: Project,
    reason: str,
    *,
    force: bool,
    kills: Iterable[str] = (),
    code: str | None = None,
) -> tuple[e.Event, ...]:
    """Have the run of a project end; nothing if there is none, or it is told so already.

    `kills` are the tasks of the project that are under way, and are not being cut off yet.
    A `code` says why, if nobody asked for it.
    """
    run = project.run
    if run is None:
        return ()
    found = sorted(kills) if force else []
    is_told = run.stop == "force" or (run.stop is not None and not force)
    if is_told and not found:
        return ()
    asked = e.RunStopRequested(run.id, run.project, reason, force or None, found or None, code)
    if run.state == IN_PROGRESS:
        return (asked,)
    end = (FAILED, FORCE_STOPPED) if force else (COMPLETED, STOPPED)
    return (asked, _ended(run, *end))


def decide_kills(project: str, reason: str, kills: Iterable[Task]) -> list[e.RunStopRequested]:
    """Cut off what was brought back to life after its run had ended: a record for each run."""
    by_run: dict[str, list[str]] = {}
    for task in kills:
        by_run.setdefault(run_of(task), []).append(task.id)
    return [
        e.RunStopRequested(run, project, reason, force=True, kills=sorted(found))
        for run, found in sorted(by_run.items())
    ]


def project_of(task: Task) -> str | None:
    """Name the project on whose list a task was, if on any."""
    return task.plan.project if task.plan is not None else None


def run_of(task: Task) -> str:
    """Name the run that selected a task of a project."""
    return (task.plan.run if task.plan is not None else None) or ""

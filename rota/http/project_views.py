"""Projects as both of their dialects show them: absent values are null, as in the plan's words.

So is what is of a task whose agent the caller may not see: its id and its error.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.domain.packed import Deferred
from rota.domain.project_lists import not_listed
from rota.domain.project_parts import FORCE_STOPPED
from rota.http.stored_views import request_said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.domain.project_parts import Done, Item, Project, Run

    MaySee = Callable[[str | None], bool]


def _moment(at: int) -> str | None:
    return rfc3339(at) if at else None


def _why_stopped(run: Run) -> str | None:
    """Say why a run ended; one that is stopped by force will end so, however long it takes."""
    return run.reason or (FORCE_STOPPED if run.stop == "force" else None)


def status_view(project: Project, may_see: MaySee) -> dict[str, Any]:
    """Show what a project is doing, or how its last run ended."""
    run = project.run
    last = project.runs[-1] if project.runs else None
    ended = last if run is None else None
    is_seen = last is not None and may_see(last.agent)
    return {
        "isRunning": run is not None,
        "mode": run.mode if run is not None else None,
        "currentRunId": run.id if run is not None else None,
        "startedAt": _moment(run.started_at) if run is not None else None,
        "shouldStop": run is not None and run.stop is not None,
        "stoppedAt": _moment(ended.ended_at) if ended is not None else None,
        "lastError": ended.error if ended is not None and is_seen else None,
        "stopReason": _why_stopped(last) if last is not None else None,
        "currentTaskId": run.task if run is not None and is_seen else None,
        "completed": last.completed if last is not None else 0,
        "remaining": len(project.items),
    }


def project_view(project: Project, may_see: MaySee) -> dict[str, Any]:
    """Show a project with its status, its last runs and what they come to."""
    return {**project_row(project, may_see), "runs": runs_view(project, may_see)}


def project_row(project: Project, may_see: MaySee) -> dict[str, Any]:
    figures = project.figures
    ended, total_us = figures.ended
    return {
        "projectId": project.id,
        "createdAt": rfc3339(project.created_at),
        "status": status_view(project, may_see),
        "figures": {
            "starts": figures.starts,
            "completed": figures.completed,
            "failed": figures.failed,
            "totalMs": total_us // 1000,
            "meanMs": total_us // 1000 // ended if ended else None,
            "longestMs": figures.longest_us // 1000,
            "stopReasons": dict(sorted(figures.reasons.items())),
        },
    }


def runs_view(project: Project, may_see: MaySee) -> list[dict[str, Any]]:
    """Show the runs in memory, newest first."""
    return [run_view(run, may_see) for run in reversed(project.runs)]


def run_view(run: Run, may_see: MaySee) -> dict[str, Any]:
    is_seen = may_see(run.agent)
    return {
        "runId": run.id,
        "projectId": run.project,
        "mode": run.mode,
        "state": run.state,
        "taskId": run.item if may_see(run.item_agent) else None,
        "currentTaskId": run.task if is_seen else None,
        "shouldStop": run.stop is not None and not run.is_over,
        "createdAt": rfc3339(run.queued_at),
        "startedAt": _moment(run.started_at),
        "stoppedAt": _moment(run.ended_at),
        "durationMs": run.duration_us // 1000 if run.is_over else None,
        "completed": run.completed,
        "stopReason": _why_stopped(run),
        "error": run.error if run.is_over and is_seen else None,
    }


def listed_view(
    project: Project, task_id: str, may_see: MaySee, words: Mapping[str, str]
) -> dict[str, Any] | Deferred:
    """Show what is on a list, runs, or was done lately. Raises NotFound."""
    for place, item in enumerate(project.items):
        if item.id == task_id and may_see(item.agent):
            return item_view(item, place, project=project.id)
    taken = project.taken
    if taken is not None and taken.id == task_id and may_see(taken.agent):
        return item_view(taken, None, "in_progress", project.id)
    for done in project.done:
        if done.task == task_id and may_see(done.agent):
            return {"projectId": project.id, **done_view(done, words)}
    raise not_listed(project.id, task_id)


def item_view(
    item: Item, position: int | None, state: str = "pending", project: str | None = None
) -> Deferred:
    """Show an item in the words of the body that it came with; what was not said is left out."""
    return Deferred(item.size, partial(_item, item, position, state, project))


def _item(item: Item, position: int | None, state: str, project: str | None) -> dict[str, Any]:
    request = item.request
    head: dict[str, Any] = {"projectId": project} if project is not None else {}
    head |= {"taskId": item.id, "state": state, "position": position, "agentId": request.agent}
    return {**head, **request_said(request), "addedAt": rfc3339(item.added_at)}


def done_view(done: Done, words: Mapping[str, str]) -> dict[str, Any]:
    """Show what was done; `words` are a dialect's for the states of tasks."""
    return {
        "taskId": done.task,
        "state": words.get(done.state, done.state),
        "position": None,
        "action": done.action,
        "runId": done.run or None,
        "stoppedAt": rfc3339(done.ended_at),
        "error": done.error,
    }

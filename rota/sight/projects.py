"""What a caller may see of projects: their lists, their runs, and what was recorded of those.

A limited sight sees the projects that are called like an agent that it may see. A run that has left
memory is rebuilt from its records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from rota.domain import events as e
from rota.domain.project import UNCONFIRMED, project_of, run_of
from rota.domain.project_lists import known
from rota.domain.project_parts import FORCE_STOPPED, IN_PROGRESS, Run
from rota.errors import NotFound
from rota.eventlog.codec import decode
from rota.eventlog.heading import heading_of
from rota.eventlog.replay import replay_task
from rota.sight import history
from rota.sight.feed import read_log
from rota.sight.room import with_room
from rota.sight.turns import my_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rota.actors.system import Shard
    from rota.domain.project_parts import Project
    from rota.eventlog.heading import Heading
    from rota.eventlog.port import LogReader
    from rota.projections.steps import Steps
    from rota.sight.history import MaySee
    from rota.sight.showing import Showing

T = TypeVar("T")

RUN_TASKS_SHOWN = 1000
"""So many tasks are shown with one run; its events name all of them."""


class ProjectSight:
    """The projects' part of a sight."""

    def __init__(self, shard: Shard, showing: Showing, may_see: MaySee | None) -> None:
        self._shard = shard
        self._showing = showing
        self._may_see = may_see

    def _find(self, project_id: str) -> Project:
        """Give a project. Raises NotFound."""
        is_seen = self._may_see is None or self._may_see(project_id)
        project = self._shard.state.projects.get(project_id) if is_seen else None
        return known(project)

    async def show(self, project_id: str, view: Callable[[Project], T]) -> T:
        """Show a project. Raises NotFound."""

        async def here() -> Project:
            return self._find(project_id)

        return await self._showing.shown(here, view)

    async def page(self, at: int, limit: int, view: Callable[[Project], T]) -> tuple[list[T], bool]:
        """Show some projects by name, from the `at`-th on, and say whether there are more."""

        async def here() -> list[Project]:
            await my_turn()
            by_id, may_see = self._shard.state.projects.by_id, self._may_see
            names = sorted(name for name in by_id if may_see is None or may_see(name))
            return [by_id[name] for name in names[at : at + limit + 1]]

        def show(found: list[Project]) -> tuple[list[T], bool]:
            return [view(each) for each in found[:limit]], len(found) > limit

        return await self._showing.shown(here, show)

    async def show_run(self, project_id: str, run_id: str, view: Callable[[Run], T]) -> T:
        """Show a run, from memory or from the log. Raises NotFound."""

        async def found() -> Run:
            self._find(project_id)
            run = self._shard.state.projects.find_run(run_id)
            if run is None:
                steps = self._shard.state.steps.copied()
                run = await read_log(self._shard, lambda log: run_from_log(log, run_id, steps))
            return _of_project(run, project_id, run_id)

        return await self._showing.shown(found, view)

    async def run_tasks(self, run_id: str) -> list[str]:
        """Name the first tasks of a run in order, of those that may be seen."""
        found = await read_log(self._shard, lambda log: _tasks_of(log, run_id, self._may_see))
        return list(found)

    async def show_left(
        self, project_id: str, runs: Collection[str]
    ) -> list[tuple[str, str | None]]:
        """Name the runs and tasks that a force-stop of these runs has not ended yet."""

        async def found() -> list[tuple[str, str | None]]:
            state = self._shard.state
            killing = [task for each in state.projects.killing if (task := state.tasks.get(each))]
            left: dict[str | None, str] = {
                task.id: run_of(task) for task in killing if project_of(task) == project_id
            }
            project = state.projects.get(project_id)
            run = project.run if project is not None else None
            if run is not None and run.id in runs:
                left.setdefault(run.task, run.id)
            return [(run_id, self._named(task_id)) for task_id, run_id in left.items()]

        return await self._showing.shown(found, lambda left: left)

    async def show_unconfirmed(self, tasks: Collection[str]) -> list[tuple[str, str | None]]:
        """Name the runs and tasks that were cut off, but may still be worked on."""

        async def found() -> list[tuple[str, str | None]]:
            known = filter(None, map(self._shard.state.tasks.get, tasks))
            return [
                (run_of(task), self._named(task.id))
                for task in known
                if task.error_code == FORCE_STOPPED and UNCONFIRMED in (task.error_details or ())
            ]

        return await self._showing.shown(found, lambda found: found)

    def _named(self, task_id: str | None) -> str | None:
        """Give the id of a task in memory, if whoever looks may see that."""
        task = self._shard.state.tasks.get(task_id) if task_id is not None else None
        agent = task.agent if task is not None else None
        return task_id if self._may_see is None or self._may_see(agent) else None

    async def run_records(
        self, project_id: str, run_id: str, after: int, limit: int
    ) -> tuple[list[bytes], int | None]:
        """Give the next records of a run, and after which there may be more. Raises NotFound."""
        await self.show_run(project_id, run_id, lambda run: run.id)
        read = partial(history.records_of, task_id=run_id, after=after, limit=limit)
        page = await with_room(partial(read_log, self._shard, read))
        found, may_see = [each.body for each in page.found], self._may_see
        if may_see is not None:
            last = await self.show_run(project_id, run_id, lambda run: run.agent)
            found = await read_log(self._shard, lambda log: _seen(log, found, may_see, last))
        return found, page.next if page.is_cut else None


def _of_project(run: Run | None, project_id: str, run_id: str) -> Run:
    if run is None or run.project != project_id:
        details = {"projectId": project_id[:200], "runId": run_id[:200]}
        raise NotFound("run not found", code="run_not_found", details=details)
    return run


def _seen(log: LogReader, bodies: list[bytes], may_see: MaySee, last: str | None) -> list[bytes]:
    """Leave out of a run's records what is of tasks that may not be seen; in any thread.

    `last` is the agent of the task that the run had last, whose error it ended with.
    """

    def is_seen(task_id: str) -> bool:
        return may_see(_agent_of(log, task_id))

    shown: list[bytes] = []
    for body in bodies:
        event: Any = decode(body).event
        if isinstance(event, e.RunTaskSelected) and not is_seen(event.item):
            continue
        is_hidden = False
        if isinstance(event, e.RunQueued) and event.item is not None:
            is_hidden = not is_seen(event.item)
        elif isinstance(event, e.RunStopRequested) and event.kills:
            is_hidden = not all(map(is_seen, event.kills))
        elif isinstance(event, e.RunEnded):
            is_hidden = not may_see(last)
        shown.append(_without_tasks(body) if is_hidden else body)
    return shown


OF_TASKS = ("item", "item_agent", "kills", "error")
"""What the record of a run may tell of tasks that not everybody may see."""
OF_PLACES = ("before", "before_agent")
"""What the record of an item may tell of the one that it goes before."""
TELLING = {
    **dict.fromkeys(
        ("run_queued", "run_started", "run_task_selected", "run_stop_requested", "run_ended"),
        (OF_TASKS, "item_agent"),
    ),
    **dict.fromkeys(("project_task_added", "project_task_moved"), (OF_PLACES, "before_agent")),
}
"""What records tell of tasks that not everybody may see, and what names those tasks' agent."""


def shown_to(body: bytes, about: Heading, may_see: MaySee | None) -> bytes:
    """Leave out of a record what is of a task whose agent may not be seen, or is not said.

    The record alone says which: which agents' tasks a force-stop cuts off it does not.
    """
    if may_see is None or about.kind not in TELLING:
        return body
    names, agent_name = TELLING[about.kind]
    data = orjson.loads(body)["data"]
    agent = data.get(agent_name)
    is_told = any(name in data for name in names)
    return _without_tasks(body) if is_told and (agent is None or not may_see(agent)) else body


def _without_tasks(body: bytes) -> bytes:
    """Write a record again without what it tells of other tasks."""
    raw = orjson.loads(body)
    for name in TELLING[raw["kind"]][0]:
        raw["data"].pop(name, None)
    return orjson.dumps(raw)


def _agent_of(log: LogReader, task_id: str) -> str | None:
    """Name the agent of a task, or of what was on a list, by its first record."""
    first = log.read_task(task_id, 1)
    return heading_of(first[0].body).agent if first else None


def _tasks_of(log: LogReader, run_id: str, may_see: MaySee | None) -> dict[str, None]:
    """Find the first tasks that a run has selected; in any thread."""
    found: dict[str, None] = {}
    for record in replay_task(log, run_id):
        event: Any = record.event
        if isinstance(event, e.RunTaskSelected) and (
            may_see is None or may_see(_agent_of(log, event.item))
        ):
            found[event.item] = None
            if len(found) == RUN_TASKS_SHOWN:
                break
    return found


def run_from_log(log: LogReader, run_id: str, steps: Steps) -> Run | None:
    """Rebuild a run that has left memory from its own records; in any thread."""
    run: Run | None = None
    before, last = 0, None
    for record in replay_task(log, run_id):
        event: Any = record.event
        if run is None:
            if not isinstance(event, e.RunQueued):
                return None  # a task's id
            run = Run(record, _agent_of(log, event.item) if event.item is not None else None)
        else:
            run.carry_over(steps.since(before, record.seq), record.at)
        before = record.seq
        if isinstance(event, e.RunStarted):
            run.state, run.started_at = IN_PROGRESS, record.at
        elif isinstance(event, e.RunTaskSelected):
            run.task, run.taken = event.item, run.taken + 1
            last = event.item
        elif isinstance(event, e.RunStopRequested):
            run.on_stop_requested(record)
        elif isinstance(event, e.RunEnded):
            run.on_ended(record)
    if last is not None and run is not None:
        run.agent = _agent_of(log, last)
    return run

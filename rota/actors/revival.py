"""Revivals: what has to be known for one, and the facts that it makes.

In: somebody's wish for a new life of a dead task, perhaps with other params, perhaps with the
dependents that its failure cancelled. Out, all at once: `task_revived` for it and each dependent
that can be, and `task_released` for one that has nothing to wait for. Each carries what has left
memory; a batch or workflow of several comes with the first of them. What of
that a decision needs is read from the log before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from rota.actors.messages import Revived, ReviveTask
from rota.domain.admission import check_requirements, duplicate, why_full
from rota.domain.attempts import decide_revival
from rota.domain.batch import Batch
from rota.domain.dead import decide_return, is_doomed
from rota.domain.plan import NO_PLAN
from rota.domain.project import decide_hold, project_of
from rota.domain.project_lists import decide_additions
from rota.domain.project_parts import Project
from rota.domain.restoring import fields_of_batch, fields_of_task
from rota.domain.shares import share_of
from rota.domain.stored import request_of
from rota.errors import Conflict, NotFound, QueueFull, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rota.actors.archive import Archive, Depth, Fetched
    from rota.actors.journal import Journal
    from rota.domain.events import Event, TaskRevived
    from rota.domain.task import Task

RESTORED_BYTES_MAX = 16 << 20
"""So many bytes of what has left memory come back with one task."""
MARGIN_US = 60_000_000
"""What leaves memory within that time is carried, too."""


class _Before(NamedTuple):
    """Those that come back before one, in the same step: agents, tasks, what they belong to."""

    agents: list[str]
    tasks: dict[str, None]
    batches: set[str]


class Revivals:
    """Decides them, over one journal."""

    def __init__(self, journal: Journal, archive: Archive) -> None:
        self._journal = journal
        self._archive = archive

    def lacking(self, message: ReviveTask) -> tuple[list[str], Depth]:
        """Name what has to be read first, and how much of each."""
        archive, fetched = self._archive, message.fetched
        wanted = (message.task, *message.dependents)
        lacking = archive.lacking(wanted, fetched)
        if lacking:
            return lacking, "whole"
        find = archive.finder(fetched)
        tasks = [task for each in wanted if (task := find(each)) is not None]
        return archive.lacking(self._around(tasks), fetched), "bare"

    @staticmethod
    def _around(tasks: Iterable[Task]) -> Iterator[str]:
        """Name what tasks belong to, and what those that were cancelled depend on."""
        for task in tasks:
            plan = task.plan
            if plan is not None:
                yield from filter(None, (plan.batch, plan.joined))
                if is_doomed(task):
                    yield from (plan.depends or {}).values()

    def decide(self, message: ReviveTask) -> tuple[list[Event], Revived]:
        """Give the facts of a revival, and what is answered. Raises a RequestError."""
        find = self._archive.finder(message.fetched)
        task = find(message.task)
        if task is None:
            raise NotFound("task not found", details={"taskId": message.task})
        self._journal.check_room(message.by, task.agent)
        before = _Before([], {}, set())
        events = self._of(task, message, find, before)
        _take_note(before, task, events[0])
        refused: list[tuple[str, RequestError]] = []
        left = RESTORED_BYTES_MAX
        for each in message.dependents:
            dependent = find(each)
            if dependent is None or not is_doomed(dependent):
                continue
            left -= len(dependent.params_json or b"")
            try:
                more = self._of(dependent, message, find, before) if left >= 0 else []
                left -= _size_of(more)
                if left < 0:
                    msg = "too much comes back at once; revive this one by itself"
                    raise QueueFull(msg, code="too_large", details={"taskId": each})
            except RequestError as error:
                refused.append((each, error))
            else:
                events += more
                _take_note(before, dependent, more[0])
        return events, Revived(task.id, tuple(before.tasks)[1:], tuple(refused))

    def _of(self, task: Task, message: ReviveTask, find: Any, before: _Before) -> list[Event]:
        """Give the facts of one of them."""
        state, now = self._journal.state, self._journal.now()
        flow = state.batches.flow(task.plan.joined if task.plan is not None else None)
        if flow is not None and flow.stopping is not None:
            msg = f"workflow {flow.id} is being cancelled; try again when it has ended"
            raise Conflict(msg, details={"taskId": task.id, "workflowId": flow.id})
        event: TaskRevived
        more: list[Event] = []
        revived = before.tasks
        if revived or (message.is_any and is_doomed(task)):
            event, *more = decide_return(task, find, now, revived)
            if not revived and message.params is not None:
                event = event._replace(params=message.params, edited=True)
        else:
            event = decide_revival(task, now, message.params)
        other = state.keys.rival(task, now)
        if other is not None:
            raise duplicate(*other)
        limits = state.control.limits
        owner = share_of(task.by, task.agent)
        check_requirements(state.backlog, (task.plan or NO_PLAN,), owner)
        agents = (*before.agents, task.agent)
        full = why_full(state.backlog, limits, agents, task.dialect, task.by)
        if full is not None:
            raise QueueFull(full, details={"taskId": task.id})
        if not self._is_all_there(task, now):
            event = self._with_all(event, task, message.fetched, before.batches)
        return [event, *more, *self._held(task, event)]

    def _held(self, task: Task, event: TaskRevived) -> tuple[Event, ...]:
        """Put a task of a project back at the head of its list: one run at a time works on it."""
        name = project_of(task)
        if name is None:
            return ()
        state = self._journal.state
        project = state.projects.get(name)
        room = state.projects.room(state.control.limits.project_items)
        request = request_of(task, event.params if event.edited else task.params)
        (back,) = decide_additions(project, name, [(task.id, request)], None, room)
        return decide_hold(project or Project(name, 0), task, back.request)

    def _is_all_there(self, task: Task, now: int) -> bool:
        """Whether memory has, and will have, a task and what it belongs to.

        The first record of several may make the next one's task be forgotten, and a large batch
        goes before the last of its tasks do.
        """
        state = self._journal.state
        if task.id not in state.tasks.by_id or not state.tasks.is_kept(task, now + MARGIN_US):
            return False
        return all(state.batches.get(home) is not None for home in _homes(task) if home is not None)

    def _with_all(
        self, event: TaskRevived, task: Task, fetched: Fetched | None, back: set[str]
    ) -> TaskRevived:
        """Write into a revival what has left memory: the task, and what it belongs to."""
        batch, workflow = _homes(task)
        return event._replace(
            restored=fields_of_task(task),
            restored_batch=self._gone(batch, fetched) if batch not in back else None,
            restored_workflow=self._gone(workflow, fetched) if workflow not in back else None,
        )

    def _gone(self, batch_id: str | None, fetched: Fetched | None) -> dict[str, Any] | None:
        if batch_id is None or self._journal.state.batches.get(batch_id) is not None:
            return None
        found = self._archive.either(batch_id, fetched)
        return fields_of_batch(found) if isinstance(found, Batch) else None


def _homes(task: Task) -> tuple[str | None, str | None]:
    plan = task.plan
    return (plan.batch, plan.joined) if plan is not None else (None, None)


def _take_note(before: _Before, task: Task, event: Event) -> None:
    """Know of one more that comes back; what it brings along is there for all after it."""
    before.agents.append(task.agent)
    before.tasks[task.id] = None
    batch, workflow = _homes(task)
    if batch and getattr(event, "restored_batch", None) is not None:
        before.batches.add(batch)
    if workflow and getattr(event, "restored_workflow", None) is not None:
        before.batches.add(workflow)


def _size_of(events: list[Event]) -> int:
    """Give the bytes of the batches and workflows that come back with a task."""
    brought = (
        getattr(event, name, None)
        for event in events[:1]
        for name in ("restored_batch", "restored_workflow")
    )
    return sum(len(orjson.dumps(each)) for each in brought if each is not None)

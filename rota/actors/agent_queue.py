"""One agent's queue: its pause, and what comes to its tasks while they wait.

In: cancels, revivals, deadlines and other moments that have come, pause and resume. Out:
`task_cancelled`, `task_expired`, `task_released`, `task_revived`, `agent_paused`, `agent_resumed`.
The order of the tasks is in the backlog projection, so there is nothing here to lose, and whoever
only submits and runs tasks needs no queue to be started.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rota.actors.messages import (
    CancelTask,
    EndWait,
    ExpireTask,
    PauseAgent,
    ReleaseTask,
    ResumeAgent,
    ReviveTask,
)
from rota.actors.runtime import CooperativeActor
from rota.domain.admission import check_pauses, check_requirements, duplicate, why_full
from rota.domain.attempts import (
    decide_cancel,
    decide_expiry,
    decide_queue_timeout,
    decide_release,
    decide_revival,
)
from rota.domain.batch import Batch
from rota.domain.events import AgentPaused, AgentResumed
from rota.domain.restoring import fields_of_batch, fields_of_task
from rota.errors import NotFound, QueueFull, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.events import Event, TaskRevived
    from rota.domain.task import Task


class QueueActor(CooperativeActor):
    """Keeps one agent's queue."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        agent: str,
        archive: Archive,
        resend: Callable[[str, Any], None],
    ) -> None:
        """Keep the queue of `agent`; find what is to be revived in `archive`.

        `resend` brings a message that waited for that to the queue that the agent has by then.
        """
        super().__init__(runtime)
        self._archive = archive
        self._resend = resend
        self._journal = journal
        self._agent = agent

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is CancelTask:
            task = self._find(message.task)
            self._decide(message, task, lambda task: decide_cancel(task, message.reason))
        elif kind is ReviveTask:
            self._revive(message)
        elif kind is PauseAgent:
            self._pause(message)
        elif kind is ResumeAgent:
            self._resume(message)
        else:
            self._on_moment(message)

    def _on_moment(self, message: ExpireTask | ReleaseTask | EndWait) -> None:
        """Do what a moment brings that the timer waited for, if it still means anything."""
        task, now = self._find(message.task), self._journal.now()
        event: Event | None = None
        if type(message) is ExpireTask:
            event = decide_expiry(task, now)
        elif type(message) is ReleaseTask:
            event = decide_release(task, now)
        elif type(message) is EndWait:
            event = decide_queue_timeout(task, message.entry, now)
        if event is not None:
            self._journal.record(event)

    def _decide(
        self,
        message: CancelTask | ReviveTask,
        task: Task | None,
        decide: Callable[[Task], Event],
    ) -> None:
        """Record what somebody asked for, or refuse it."""
        try:
            if task is None:
                raise NotFound("task not found", details={"taskId": message.task})
            event = decide(task)
        except RequestError as error:
            self._journal.refuse(message.reply, error)
            return
        self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, task.id)

    def _revive(self, message: ReviveTask) -> None:
        """Give a task a new life, once what has left memory of it has been read."""
        archive, fetched = self._archive, message.fetched
        lacking = archive.lacking((message.task,), fetched)
        task = None if lacking else archive.finder(fetched)(message.task)
        if task is not None and (batch := _batch_of(task)) is not None:
            lacking = archive.lacking((batch,), fetched)
        if lacking:
            resend = partial(self._resend, self._agent)
            archive.fetch_for(message, lacking, resend, depth="whole")
            return
        self._decide(message, task, lambda task: self._revival(task, fetched))

    def _revival(self, task: Task, fetched: Fetched | None) -> Event:
        state, now = self._journal.state, self._journal.now()
        event = decide_revival(task, now)
        other = state.keys.rival(task, now)
        if other is not None:
            raise duplicate(*other)
        check_requirements(state.backlog, (task.plan,) if task.plan is not None else ())
        full = why_full(state.backlog, state.control.limits, (task.agent,), task.dialect)
        if full is not None:
            raise QueueFull(full, details={"taskId": task.id})
        return event if task.id in state.tasks.by_id else self._with_all(event, task, fetched)

    def _with_all(self, event: TaskRevived, task: Task, fetched: Fetched | None) -> TaskRevived:
        """Write into a revival what has left memory: the task, and its batch if that has, too."""
        batch_id, batch = _batch_of(task), None
        if batch_id is not None and self._journal.state.batches.get(batch_id) is None:
            batch = self._archive.either(batch_id, fetched)
        fields = fields_of_batch(batch) if isinstance(batch, Batch) else None
        return event._replace(restored=fields_of_task(task), restored_batch=fields)

    def _find(self, task_id: str) -> Task | None:
        return self._journal.state.tasks.get(task_id)

    def _pause(self, message: PauseAgent) -> None:
        paused = self._journal.state.control.paused
        if self._agent not in paused:
            try:
                check_pauses(len(paused))
            except RequestError as error:
                self._journal.refuse(message.reply, error)
                return
            self._journal.record(AgentPaused(self._agent, message.reason), by=message.by)
        self._journal.answer(message.reply, self._agent)

    def _resume(self, message: ResumeAgent) -> None:
        if self._agent in self._journal.state.control.paused:
            self._journal.record(AgentResumed(self._agent), by=message.by)
        self._journal.answer(message.reply, self._agent)


def _batch_of(task: Task) -> str | None:
    return task.plan.batch if task.plan is not None else None

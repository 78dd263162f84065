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
from rota.actors.revival import Revivals
from rota.actors.runtime import CooperativeActor
from rota.domain.admission import check_pauses
from rota.domain.attempts import (
    decide_cancel,
    decide_expiry,
    decide_queue_timeout,
    decide_release,
)
from rota.domain.events import AgentPaused, AgentResumed
from rota.domain.project import check_not_killed, decide_cut
from rota.errors import NotFound, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.events import Event
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
        self._revivals = Revivals(journal, archive)

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is CancelTask:
            self._decide(message, self._find(message.task), self._cancel(message.reason))
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
        if type(message) is ExpireTask and message.task not in self._killing:
            event = decide_expiry(task, now)
        elif type(message) is ReleaseTask:
            event = decide_release(task, now)
            why = self._journal.state.projects.why_cut(message.task)
            if event is not None and task is not None and why is not None:
                event = decide_cut(task, why)
        elif type(message) is EndWait:
            event = decide_queue_timeout(task, message.entry, now)
        if event is not None:
            self._journal.record(event)

    @property
    def _killing(self) -> dict[str, str]:
        """Give what a force-stop is cutting off: it keeps its slot until it is gone."""
        return self._journal.state.projects.killing

    def _cancel(self, reason: str) -> Callable[[Task], Event]:
        def decide(task: Task) -> Event:
            check_not_killed(task, self._killing)
            return decide_cancel(task, reason)

        return decide

    def _decide(
        self,
        message: CancelTask,
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
        lacking, depth = self._revivals.lacking(message)
        if lacking:
            resend = partial(self._resend, self._agent)
            self._archive.fetch_for(message, lacking, resend, depth=depth)
            return
        try:
            events, answer = self._revivals.decide(message)
        except RequestError as error:
            self._journal.refuse(message.reply, error)
            return
        self._journal.record(*events, by=message.by)
        self._journal.answer(message.reply, answer)

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

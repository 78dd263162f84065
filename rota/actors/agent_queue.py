"""One agent's queue: its order, its pause, the ends that come to its tasks while they wait.

In: news that a task waits or left, cancels, deadlines, pause and resume. Out: `task_cancelled`,
`task_expired`, `agent_paused`, `agent_resumed`; it tells the dispatcher when a lane's head
changes. The order itself is in the backlog projection, so there is nothing here to lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import (
    CancelTask,
    ExpireTask,
    HeadChanged,
    PauseAgent,
    ResumeAgent,
    TaskLeft,
    TaskWaits,
)
from rota.actors.runtime import CooperativeActor
from rota.domain.attempts import decide_cancel, decide_expiry
from rota.domain.commands import PULL
from rota.domain.events import AgentPaused, AgentResumed
from rota.errors import NotFound, RequestError

if TYPE_CHECKING:
    from pykka import ActorRef

    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime


class QueueActor(CooperativeActor):
    """Keeps one agent's queue."""

    def __init__(
        self, runtime: Runtime, journal: Journal, agent: str, dispatcher: ActorRef[Any]
    ) -> None:
        """Keep the queue of `agent`."""
        super().__init__(runtime)
        self._journal = journal
        self._agent = agent
        self._dispatcher = dispatcher

    def on_receive(self, message: Any) -> None:
        """Keep the order, and end what must end."""
        kind = type(message)
        if kind is TaskWaits:
            order = self._journal.state.backlog.orders.get(self._agent)
            head = order.head(message.lane) if order is not None else None
            if head is not None and head.id == message.task and head.executor != PULL:
                self._dispatcher.tell(HeadChanged(self._agent, message.lane))
        elif kind is TaskLeft:
            self._dispatcher.tell(HeadChanged(self._agent, message.lane))
        elif kind is ExpireTask:
            self._expire(message.task)
        elif kind is CancelTask:
            self._cancel(message)
        elif kind is PauseAgent:
            self._pause(message)
        elif kind is ResumeAgent:
            self._resume(message)

    def _cancel(self, message: CancelTask) -> None:
        task = self._journal.state.tasks.get(message.task)
        try:
            if task is None:
                raise NotFound("task not found", details={"taskId": message.task})
            event = decide_cancel(task, message.reason)
        except RequestError as error:
            self._journal.refuse(message.reply, error)
            return
        self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, task.id)

    def _expire(self, task_id: str) -> None:
        event = decide_expiry(self._journal.state.tasks.get(task_id), self._journal.now())
        if event is not None:
            self._journal.record(event)

    def _pause(self, message: PauseAgent) -> None:
        if self._agent not in self._journal.state.control.paused:
            self._journal.record(AgentPaused(self._agent, message.reason), by=message.by)
        self._journal.answer(message.reply, self._agent)

    def _resume(self, message: ResumeAgent) -> None:
        if self._agent in self._journal.state.control.paused:
            self._journal.record(AgentResumed(self._agent), by=message.by)
        self._journal.answer(message.reply, self._agent)

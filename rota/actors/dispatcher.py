"""The dispatcher: gives slots away.

In: news of heads, freed slots, pauses, limits. Out: `task_assigned`, `task_expired` (of whose turn
came too late), `task_failed` (of a start while all browsers run), `attempt_interrupted` (of who
makes room for a task that may pre-empt), `type_paused`, `scheduler_paused` and their likes. Keeps
that no cap is ever exceeded: it asks `Turns` for one task at a time and records each assignment,
which the slots count, before it asks for the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import (
    AgentReleased,
    Drain,
    FlowResumed,
    HeadChanged,
    PauseScheduler,
    PauseType,
    SlotFreed,
)
from rota.actors.runtime import CooperativeActor
from rota.domain import events as e
from rota.domain.admission import check_pauses
from rota.domain.attempts import (
    decide_assignment,
    decide_expiry,
    decide_preemption,
    decide_queue_timeout,
)
from rota.domain.browsers import START, decide_browser
from rota.domain.dispatch import Turns
from rota.errors import RequestError

if TYPE_CHECKING:
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.task import Task


class DispatcherActor(CooperativeActor):
    """Decides whose turn it is."""

    def __init__(self, runtime: Runtime, journal: Journal) -> None:
        super().__init__(runtime)
        self._journal = journal
        self._draining = False
        self._turns = self._derive()

    def _derive(self) -> Turns:
        state = self._journal.state
        control = state.control
        return Turns(
            state.backlog.orders,
            state.slots,
            control.paused,
            control.limits,
            control.paused_types,
            state.batches.paused_flows,
        )

    def reset(self) -> None:
        self.subject = ""
        self._turns = self._derive()

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is HeadChanged:
            self._turns.head_changed(message.agent, message.lane)
        elif kind is SlotFreed:
            self._turns.freed(message.agent, message.lane)
        elif kind is AgentReleased:
            self._turns.resumed(message.agent)
        elif kind is FlowResumed:
            self._turns.flow_resumed(message.workflow)
        elif kind is Drain:
            self._draining = True
        elif kind is PauseType:
            self._pause_type(message)
        elif kind is PauseScheduler:
            self._pause_scheduler(message)
        if not self.actor_inbox.queue:  # whoever decides has heard all the news
            self._dispatch()
            self._preempt()

    def _dispatch(self) -> None:
        if self._turns.limits is not self._journal.state.control.limits:
            self.reset()
        turns = self._turns
        while self._may_dispatch() and (task := turns.next()) is not None:
            self.subject = task.id
            if self._is_over(task):
                continue
            self._journal.record(decide_assignment(task), cause=task.created_seq)
            turns.given(task)
        self.subject = ""

    def _is_over(self, task: Task) -> bool:
        """End a task whose time has run out, or who may not start a browser, as its turn comes."""
        if task.deadline is None and task.plan is None and task.action != START:
            return False
        now, state = self._journal.now(), self._journal.state
        event = (
            decide_expiry(task, now)
            or decide_queue_timeout(task, task.entry, now)
            or decide_browser(task, state.browsers, state.control.limits.browsers)
        )
        if event is not None:
            self._journal.record(event)
            self._turns.head_changed(task.agent, task.lane)
        return event is not None

    def _may_dispatch(self) -> bool:
        journal = self._journal
        is_paused = journal.state.control.stopped is not None
        return not (self._draining or is_paused or journal.failure is not None)

    def _preempt(self) -> None:
        """Let tasks that may, and must, take the places of less urgent ones."""
        state = self._journal.state
        while self._may_dispatch() and (found := self._turns.urgent.next()) is not None:
            task, held_by = found
            self.subject = task.id
            if self._is_over(task):
                continue
            swap = decide_preemption(task, held_by, state.slots.held_by(task.agent))
            if swap is not None:
                victim = state.tasks.by_id[swap[0].task]
                self._journal.record(*swap, cause=task.created_seq)
                self._turns.freed(task.agent, victim.lane)
                self._turns.given(task)
        self.subject = ""

    def _pause_type(self, message: PauseType) -> None:
        name, paused = message.type, self._journal.state.control.paused_types
        if message.paused and name not in paused:
            try:
                check_pauses(len(paused), of_types=True)
            except RequestError as error:
                self._journal.refuse(message.reply, error)
                return
        if message.paused != (name in paused):
            event = e.TypePaused(name, message.reason) if message.paused else e.TypeResumed(name)
            self._journal.record(event, by=message.by)
            self.reset()
        self._journal.answer(message.reply, name)

    def _pause_scheduler(self, message: PauseScheduler) -> None:
        if message.paused != (self._journal.state.control.stopped is not None):
            event = e.SchedulerPaused(message.reason) if message.paused else e.SchedulerResumed()
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, message.paused)

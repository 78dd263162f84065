"""The orchestrator: carries workflows to their ends.

In: news that something may be due about a workflow, and what people ask of one. Out:
`workflow_tripped` with the task of an escalation, `workflow_paused`, `workflow_resumed`,
`workflow_closed`, `workflow_cancelled`, `task_cancelled` for what is left of a cancelled one, and
`workflow_ended`. It holds nothing: what is due follows from the projections, so a look at them
after a start or a fault goes on where it was. What is left of a large one is cancelled a slice at
a time, with the loop's turns in between.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rota.actors.derived import place_in
from rota.actors.messages import LookAgain, LookAtWorkflow, SteerWorkflow
from rota.actors.runtime import CooperativeActor
from rota.domain import events as e
from rota.domain.attempts import decide_cancel
from rota.domain.task import TERMINAL
from rota.domain.workflow import WORKFLOW_CANCELLED, decide_end, decide_trip, live_one
from rota.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.domain.workflow import Workflow

SLICE_TASKS = 100


class OrchestratorActor(CooperativeActor):
    """Decides about workflows."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        ids: NewIds,
        archive: Archive,
        resend: Callable[[SteerWorkflow], None],
        call_soon: Callable[[Callable[[], None]], Any],
    ) -> None:
        """Submit under `ids`; take turns with the rest of the loop by `call_soon`.

        `resend` brings a message again whose workflow had to be read from `archive` first.
        """
        super().__init__(runtime)
        self._journal = journal
        self._ids = ids
        self._archive = archive
        self._resend = resend
        self._call_soon = call_soon
        self._resting: set[str] = set()  # of which the next slice is under way

    def reset(self) -> None:
        self._resting.clear()

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is LookAtWorkflow:
            self._look(message.workflow)
        elif kind is SteerWorkflow:
            self._steer(message)
        elif kind is LookAgain:
            for name in self._journal.state.batches.due_flows():
                self.actor_ref.tell(LookAtWorkflow(name))

    def _look(self, name: str) -> None:
        """Do what is due: follow the rule for failures, cancel what is to be, end it."""
        journal = self._journal
        flow = journal.state.batches.flow(name)
        if flow is None or flow.finished_at:
            return
        if flow.is_tripping:
            now = journal.now()
            place = place_in(journal.state, self._ids, now)
            events = decide_trip(flow, journal.state.control.rules, place)
            journal.record(*events, by=flow.by, at=now)
        if flow.stopping is not None and name not in self._resting:
            self._cancel_some(flow)
        event = decide_end(flow)
        if event is not None:
            journal.record(event)

    def _cancel_some(self, flow: Workflow) -> None:
        """Cancel a slice of what is left; come back for the rest after the loop had its turn."""
        tasks = self._journal.state.tasks
        found = (task for each in flow.tasks if (task := tasks.get(each)) is not None)
        live = list(islice((t for t in found if t.state not in TERMINAL), SLICE_TASKS))
        reason = flow.stopping or ""
        if live:
            events = [decide_cancel(task, reason, WORKFLOW_CANCELLED) for task in live]
            self._journal.record(*events)
        if flow.left:
            self._resting.add(flow.id)
            self._call_soon(lambda: self._go_on(flow.id))

    def _go_on(self, name: str) -> None:
        self._resting.discard(name)
        if not self.stopped:
            self.actor_ref.tell(LookAtWorkflow(name))

    # -- what people ask for

    def _steer(self, message: SteerWorkflow) -> None:
        lacking = self._archive.lacking((message.workflow,), message.fetched)
        if lacking:
            self._archive.fetch_for(message, lacking, self._resend)
            return
        name = message.workflow
        try:
            flow = live_one(self._archive.either(name, message.fetched), name)
        except RequestError as error:
            self._journal.refuse(message.reply, error)
            return
        event = _asked(flow, message)
        if event is not None:
            self._journal.record(event, by=message.by)
            self._look(name)
        self._journal.answer(message.reply, flow.state)


def _asked(flow: Workflow, message: SteerWorkflow) -> e.Event | None:
    """Give the fact that somebody asks for; None if it is so already."""
    how, reason = message.how, message.reason
    if how == "cancel":
        return e.WorkflowCancelled(flow.id, reason)
    if how == "pause":
        return e.WorkflowPaused(flow.id, reason) if flow.paused is None else None
    if how == "resume":
        return e.WorkflowResumed(flow.id) if flow.paused is not None else None
    return e.WorkflowClosed(flow.id) if flow.is_open else None

"""Bugs planted in workflows, follow-ups and revivals, each of which the simulator must find.

Each function breaks one of their promises, in the way a hurried change could: once and not twice,
in the same go and not later, not while it is paused, not after the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import admission, orchestrator, revival, settling
from rota.actors.consequences import Consequences
from rota.actors.orchestrator import OrchestratorActor
from rota.domain import events as e
from rota.domain import workflow
from rota.domain.caps import FLOW, Caps
from rota.domain.dead import decide_return
from rota.domain.workflow import Workflow
from rota.projections.batches import Batches
from rota.projections.deliveries import Deliveries

if TYPE_CHECKING:
    import pytest


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


# -- follow-ups --------------------------------------------------------------------------------


def a_follow_up_is_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    once = settling.follow_ups

    def twice(*args: Any) -> Any:
        return (*once(*args), *once(*args))

    patch.setattr(settling, "follow_ups", twice)


def a_follow_up_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "follow_ups", lambda *_: ())


def a_follow_up_comes_after_its_success_was_written(patch: pytest.MonkeyPatch) -> None:
    """Between the two, whatever crashes leaves a success without what follows it."""
    end, follow_ups = settling.Settling.end, settling.follow_ups
    later: list[Any] = []

    def put_off(*args: Any) -> tuple[Any, ...]:
        later.extend(follow_ups(*args))
        return ()

    def apart(self: settling.Settling, *args: Any, **more: Any) -> None:
        end(self, *args, **more)
        events, later[:] = list(later), []
        if events:
            self._journal.record(*events)

    patch.setattr(settling, "follow_ups", put_off)
    patch.setattr(settling.Settling, "end", apart)


def a_follow_up_leaves_its_workflow(patch: pytest.MonkeyPatch) -> None:
    once = settling.follow_ups

    def outside(*args: Any) -> Any:
        first, *rest = once(*args) or (None,)
        if first is None:
            return ()
        return (first._replace(plan=first.plan._replace(workflow=None)), *rest)

    patch.setattr(settling, "follow_ups", outside)


# -- workflows ---------------------------------------------------------------------------------


def an_ended_workflow_is_joined(patch: pytest.MonkeyPatch) -> None:
    live_one = workflow.live_one

    def lax(found: Any, name: str) -> Any:
        return found if isinstance(found, Workflow) else live_one(found, name)

    patch.setattr(admission, "live_one", lax)


def a_paused_workflow_s_task_is_dispatched(patch: pytest.MonkeyPatch) -> None:
    has_room = Caps.has_room

    def lax(self: Caps, limit: str) -> bool:
        return limit.startswith(FLOW) or has_room(self, limit)

    patch.setattr(Caps, "has_room", lax)


def a_resumed_workflow_is_not_told_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_flow_resumed", nothing)


def a_workflow_ends_before_its_last_task(patch: pytest.MonkeyPatch) -> None:
    def hasty(flow: Workflow) -> e.WorkflowEnded | None:
        if flow.finished_at or flow.is_open or flow.left > 1:
            return None
        counts = (flow.fates[fate] for fate in workflow.FATES)
        return e.WorkflowEnded(flow.id, flow.end_state, list(flow.tasks), *counts, flow.tripped)

    patch.setattr(orchestrator, "decide_end", hasty)


def an_open_workflow_ends(patch: pytest.MonkeyPatch) -> None:
    def hasty(flow: Workflow) -> e.WorkflowEnded | None:
        is_open, flow.is_open = flow.is_open, False
        event = workflow.decide_end(flow)
        flow.is_open = is_open
        return event

    patch.setattr(orchestrator, "decide_end", hasty)


def a_workflow_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orchestrator, "decide_end", nothing)


def a_workflow_ends_as_what_it_is_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Workflow, "end_state", "completed")


def an_escalation_is_made_twice(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Workflow) -> None:
        self.stopping, self.is_cancelled, self.ended_as = None, False, ""
        if not self.is_crossed:
            self.tripped = None  # also an escalation

    patch.setattr(Workflow, "on_task_revived", forgetful)


def an_escalation_is_made_again_at_once(patch: pytest.MonkeyPatch) -> None:
    look = OrchestratorActor._look

    def again(self: OrchestratorActor, name: str) -> None:
        flow = self._journal.state.batches.flow(name)
        if flow is not None and flow.tripped == "escalate" and not flow.finished_at:
            flow.tripped = None
        look(self, name)

    patch.setattr(OrchestratorActor, "_look", again)


def failures_are_let_be(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Workflow, "is_tripping", False)


def what_is_left_of_a_cancelled_one_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OrchestratorActor, "_cancel_some", nothing)


def a_start_does_not_look_at_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batches, "due_flows", lambda _: [])


def a_pause_is_forgotten_by_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    load = Batches.load

    def forgetful(self: Batches, rows: Any) -> None:
        load(self, rows)
        self.paused_flows.clear()

    patch.setattr(Batches, "load", forgetful)


def nobody_is_called_at_the_end(patch: pytest.MonkeyPatch) -> None:
    owe = Deliveries.on_batch_finished

    def silent(self: Deliveries, record: Any, batch: Any) -> None:
        if not isinstance(batch, Workflow):
            owe(self, record, batch)

    patch.setattr(Deliveries, "on_batch_finished", silent)


# -- dead letters ------------------------------------------------------------------------------


def a_revived_dependent_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    def hasty(task: Any, find: Any, now: int, revived: Any = ()) -> Any:
        event, *more = decide_return(task, find, now, revived)
        free = more or [e.TaskReleased(task.id, task.agent, "dependencies")]
        return (event._replace(waits=[]), *free)

    patch.setattr(revival, "decide_return", hasty)


def anything_cancelled_is_revived(patch: pytest.MonkeyPatch) -> None:
    def lax(task: Any, find: Any, now: int, revived: Any = ()) -> Any:
        del find, now, revived
        return (e.TaskRevived(task.id, task.agent, waits=list((task.plan.depends or {}).values())),)

    patch.setattr(revival, "decide_return", lax)


PLANTS: list[Plant] = [
    a_follow_up_is_recorded_twice,
    a_follow_up_is_forgotten,
    a_follow_up_comes_after_its_success_was_written,
    a_follow_up_leaves_its_workflow,
    an_ended_workflow_is_joined,
    a_paused_workflow_s_task_is_dispatched,
    a_resumed_workflow_is_not_told_of,
    a_workflow_ends_before_its_last_task,
    an_open_workflow_ends,
    a_workflow_never_ends,
    a_workflow_ends_as_what_it_is_not,
    an_escalation_is_made_twice,
    an_escalation_is_made_again_at_once,
    failures_are_let_be,
    what_is_left_of_a_cancelled_one_goes_on,
    a_start_does_not_look_at_them,
    a_pause_is_forgotten_by_a_snapshot,
    nobody_is_called_at_the_end,
    a_revived_dependent_does_not_wait,
    anything_cancelled_is_revived,
]

test_the_simulator_finds_the_bug = finds(PLANTS)

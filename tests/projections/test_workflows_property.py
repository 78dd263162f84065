"""A workflow's state is that of its tasks, after every record of any legal history.

The other side of the comparison is told from the records alone: which tasks are of a workflow, how
the newest life of each has ended, and what was done about the workflow itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import history

from rota.domain import events as e
from rota.projections.state import State

if TYPE_CHECKING:
    from rota.domain.workflow import Workflow

FATES: dict[type[Any], str] = {
    e.TaskSucceeded: "succeeded",
    e.TaskFailed: "failed",
    e.TaskExpired: "failed",
    e.TaskCancelled: "cancelled",
}


class Told:
    """What the records tell of workflows."""

    def __init__(self) -> None:
        self.begun: dict[str, e.WorkflowSubmitted] = {}
        self.members: dict[str, list[str]] = {}
        self.home: dict[str, str] = {}
        self.fates: dict[str, str] = {}
        self.ended: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.escalated: set[str] = set()

    def hear(self, event: Any) -> None:
        kind = type(event)
        if kind is e.WorkflowSubmitted:
            self.begun[event.workflow] = event
            self.members[event.workflow] = []
        elif kind is e.TaskSubmitted and event.plan is not None and event.plan.workflow:
            self.home[event.task] = event.plan.workflow
            self.members[event.plan.workflow].append(event.task)
        elif kind in FATES:
            self.fates[event.task] = FATES[kind]
        elif kind is e.TaskRevived:
            self.fates.pop(event.task, None)
            home = self.home.get(event.task, "")
            self.ended.pop(home, None)
            self.cancelled.discard(home)
        elif kind is e.WorkflowCancelled:
            self.cancelled.add(event.workflow)
        elif kind is e.WorkflowTripped and event.action == "escalate":
            self.escalated.add(event.workflow)
        elif kind is e.WorkflowEnded:
            assert event.workflow not in self.ended, "ended twice"
            self.ended[event.workflow] = event.state

    def counts(self, name: str) -> dict[str, int]:
        found = Counter(self.fates[task] for task in self.members[name] if task in self.fates)
        return {fate: found[fate] for fate in ("succeeded", "failed", "cancelled")}

    def end_of(self, name: str) -> str:
        """Say as what a workflow ends whose tasks have all ended."""
        counts, begun = self.counts(name), self.begun[name]
        failure = begun.failure or {"count": 1}
        most = failure.get("count") or failure["share"] * len(self.members[name])
        if name in self.cancelled:
            return "cancelled"
        if name in self.escalated:
            return "escalated"
        if counts["failed"] and counts["failed"] >= most:
            return "failed"
        return "cancelled" if counts["cancelled"] and not counts["succeeded"] else "completed"

    def holds(self, flow: Workflow) -> None:
        """Compare a workflow with what was told of it."""
        name = flow.id
        assert flow.tasks == self.members[name]
        assert flow.fates == self.counts(name)
        assert flow.left == len(flow.tasks) - sum(flow.fates.values())
        assert bool(flow.finished_at) == (name in self.ended)
        if flow.finished_at:
            assert flow.left == 0
            assert flow.state == self.ended[name]
        else:
            assert flow.state != "completed"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1_000_000))
def test_a_workflow_is_what_its_tasks_are(seed: int) -> None:
    state, told = State(), Told()
    for record in history(seed, 250):
        event = record.event
        if type(event) is e.WorkflowEnded:
            assert event.state == told.end_of(event.workflow)
            assert all(task in told.fates for task in told.members[event.workflow])
        state.apply(record)
        told.hear(event)
        if type(event) is e.WorkflowSubmitted:
            continue  # its tasks follow
        flows = list(state.batches.flows())
        for flow in flows:
            told.holds(flow)
        live = [flow for flow in flows if not flow.finished_at]
        assert state.batches.live_flows == len(live)
        assert state.batches.flow_tasks == sum(len(flow.tasks) for flow in live)
        paused = {flow.id for flow in live if flow.paused is not None}
        assert set(state.batches.paused_flows) == paused


def test_the_histories_have_workflows_that_end_in_every_way() -> None:
    found = {
        record.event.state
        for seed in range(30)
        for record in history(seed, 400)
        if type(record.event) is e.WorkflowEnded
    }
    assert found >= {"completed", "failed", "cancelled", "escalated"}

"""The batches and workflows: which tasks belong together, and how many ended in which way.

A workflow is a batch that more tasks may join and that has a rule for failures (domain/workflow).
Either leaves memory as its tasks do, some time after all of them have ended, or earlier when the
finished ones have more tasks in all than ended tasks may be in memory. It owes one callback, if it
has an address for it, from its `batch_finished` or `workflow_ended` on.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from rota.domain.batch import Batch
from rota.domain.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.task import Task


class Batches:
    """The batches and workflows in memory.

    `paused_flows` are the workflows that are paused, `live_flows` counts those that have not ended,
    and `flow_tasks` all tasks of these.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Batch] = {}
        self.ended: deque[tuple[int, str]] = deque()
        self.ended_tasks = 0
        self.ended_tasks_max = sys.maxsize
        self.paused_flows: dict[str, str] = {}
        self.live_flows = 0
        self.flow_tasks = 0
        self.on_forgotten: Callable[[Batch], None] | None = None

    def get(self, batch_id: str) -> Batch | None:
        return self.by_id.get(batch_id)

    def flow(self, workflow_id: str | None) -> Workflow | None:
        """Give a workflow, if that is what this is the id of."""
        found = self.by_id.get(workflow_id) if workflow_id is not None else None
        return found if isinstance(found, Workflow) else None

    def flows(self) -> Iterator[Workflow]:
        return (each for each in self.by_id.values() if isinstance(each, Workflow))

    def unfinished(self) -> list[str]:
        """Name those batches whose tasks have all ended but which are not finished."""
        batches = (each for each in self.by_id.values() if not isinstance(each, Workflow))
        return [b.id for b in batches if not b.finished_at and not b.left]

    def due_flows(self) -> list[str]:
        """Name the workflows that something is to be decided about."""
        return [flow.id for flow in self.flows() if flow.is_due]

    def on_submitted(self, record: Record[e.BatchSubmitted]) -> None:
        batch = Batch(record)
        self.by_id[batch.id] = batch

    def on_flow_submitted(self, record: Record[e.WorkflowSubmitted]) -> None:
        flow = Workflow(record)
        self.by_id[flow.id] = flow
        self.live_flows += 1

    def on_task_submitted(self, task: Task) -> None:
        """Let a task join its workflow."""
        flow = self.flow(task.plan.joined if task.plan is not None else None)
        if flow is not None:
            if flow.finished_at:
                self.ended_tasks += 1
            else:
                self.flow_tasks += 1
            flow.tasks.append(task.id)

    def on_task_ended(self, task: Task) -> None:
        for batch in self._of(task):
            batch.fates[task.state.value] += 1

    def on_task_revived(self, record: Record[e.TaskRevived], task: Task) -> list[Batch]:
        """Take back a task that lives again; give what it belongs to."""
        del record
        found = self._of(task)
        for batch in found:
            batch.fates[task.state.value] -= 1
            self._reopen(batch)
            if isinstance(batch, Workflow):
                batch.on_task_revived()
        return found

    def bring_back(self, batch: Batch) -> None:
        """Add a finished batch that had left memory, as the last; in a replay it may be there."""
        same = self.by_id.pop(batch.id, None)
        if same is None:
            self.ended_tasks += _size(batch)
        self.by_id[batch.id] = same or batch

    def _reopen(self, batch: Batch) -> None:
        if batch.finished_at:
            self.ended_tasks -= _size(batch)
            self.ended = deque(item for item in self.ended if item[1] != batch.id)
            if isinstance(batch, Workflow):
                self.live_flows += 1
                self.flow_tasks += len(batch.tasks)
        batch.finished_at = batch.finished_seq = 0

    def on_finished(self, record: Record[e.BatchFinished]) -> Batch | None:
        batch = self.by_id.get(record.event.batch)
        if batch is not None:
            self._reopen(batch)
            batch.finished_at, batch.finished_seq = record.at, record.seq
            self._add_ended(record.at, batch)
        return batch

    def _add_ended(self, at: int, batch: Batch) -> None:
        self.ended_tasks += _size(batch)
        self.ended.append((at, batch.id))

    def on_flow_ended(self, record: Record[e.WorkflowEnded]) -> Workflow | None:
        flow = self.flow(record.event.workflow)
        if flow is not None:
            self._reopen(flow)
            flow.on_ended(record)
            self.paused_flows.pop(flow.id, None)
            self.live_flows -= 1
            self.flow_tasks -= len(flow.tasks)
            self._add_ended(record.at, flow)
        return flow

    def on_flow_tripped(self, record: Record[e.WorkflowTripped]) -> Workflow | None:
        flow = self.flow(record.event.workflow)
        if flow is not None:
            flow.on_tripped(record.event)
            if flow.paused is not None:
                self.paused_flows[flow.id] = flow.paused
        return flow

    def on_flow_paused(self, record: Record[e.WorkflowPaused]) -> None:
        flow = self.flow(record.event.workflow)
        if flow is not None:
            flow.paused = self.paused_flows[flow.id] = record.event.reason

    def on_flow_resumed(self, record: Record[e.WorkflowResumed]) -> None:
        flow = self.flow(record.event.workflow)
        if flow is not None:
            flow.paused = None
            self.paused_flows.pop(flow.id, None)

    def on_flow_closed(self, record: Record[e.WorkflowClosed]) -> None:
        flow = self.flow(record.event.workflow)
        if flow is not None:
            flow.is_open = False

    def on_flow_cancelled(self, record: Record[e.WorkflowCancelled]) -> None:
        flow = self.flow(record.event.workflow)
        if flow is not None:
            flow.on_cancelled(record.event)

    def is_crowded(self) -> bool:
        return len(self.ended) > 1 and self.ended_tasks > self.ended_tasks_max

    def forget(self, oldest: int) -> None:
        """Drop what finished at `oldest` or before, and the oldest of what is too much."""
        while self.ended and (self.ended[0][0] <= oldest or self.is_crowded()):
            batch = self.by_id.pop(self.ended.popleft()[1], None)
            if batch is not None:
                self.ended_tasks -= _size(batch)
                if self.on_forgotten is not None:
                    self.on_forgotten(batch)

    def carry_over(self, by_us: int, now: int, kept_until: int = 0) -> None:
        """Tell all moments by a clock that was set by so much; nothing has ended later than now."""
        for batch in self.by_id.values():
            batch.carry_over(by_us, kept_until)
            batch.finished_at = min(batch.finished_at, now)
        self.ended = deque(
            (min(at + by_us, now) if at > kept_until else at, name) for at, name in self.ended
        )

    def _of(self, task: Task) -> list[Batch]:
        """Give what a task belongs to: its batch, its workflow, both or neither."""
        plan = task.plan
        if plan is None or (plan.batch is None and plan.joined is None):
            return []
        names = filter(None, (plan.batch, plan.joined))
        return [batch for name in names if (batch := self.by_id.get(name)) is not None]

    def dump(self) -> dict[str, list[list[Any]]]:
        found: dict[str, list[list[Any]]] = {"batches": [], "workflows": []}
        for batch in self.by_id.values():
            kind = "workflows" if isinstance(batch, Workflow) else "batches"
            found[kind].append(batch.to_row())
        return found

    def load(self, rows: dict[str, list[list[Any]]]) -> None:
        flows = list(map(Workflow.from_row, rows["workflows"]))
        batches = [*map(Batch.from_row, rows["batches"]), *flows]
        self.by_id = {batch.id: batch for batch in batches}
        ended = [batch for batch in batches if batch.finished_at]
        ended.sort(key=lambda batch: batch.finished_seq)
        self.ended = deque((batch.finished_at, batch.id) for batch in ended)
        self.ended_tasks = sum(map(_size, ended))
        live = [flow for flow in flows if not flow.finished_at]
        self.live_flows = len(live)
        self.flow_tasks = sum(len(flow.tasks) for flow in live)
        self.paused_flows |= {flow.id: flow.paused for flow in flows if flow.paused is not None}


def _size(batch: Batch) -> int:
    """Say what a finished one counts for: its tasks, and something if it has none."""
    return len(batch.tasks) or 1

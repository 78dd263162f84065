"""Workflows: tasks with one fate, which others may join while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rota.client.calls.batches import graph_call
from rota.client.faces import asks, iterates
from rota.client.fields import WorkflowBody
from rota.client.models import SubmittedWorkflow, Workflow, WorkflowPage, WorkflowState
from rota.client.pages import all_rows
from rota.client.paths import listed, path_of
from rota.client.steps import Call, Json, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.client.fields import FlowControl, FlowState, GraphTask, WorkflowFields


class WorkflowCalls:
    """/v1/workflows."""

    retries: int

    @asks(SubmittedWorkflow)
    def submit_workflow(
        self, tasks: Iterable[GraphTask], /, **fields: Unpack[WorkflowFields]
    ) -> Call:
        """Start a workflow; tasks as in a batch, all of them or none.

        Its own fields are name, agent (for tasks that name none), callback_url, failure,
        on_failure, escalate, open and idempotency_key. A further task joins by
        `submit(..., workflow_id=...)`.
        """
        return graph_call("/v1/workflows", tasks, fields, WorkflowBody, self.retries)

    @asks(Workflow)
    def get_workflow(self, workflow_id: str) -> Call:
        """Give one workflow, with its counts, tasks and edges. Raises NotFound."""
        return Call("GET", path_of("workflows", workflow_id), is_safe=True)

    @asks(WorkflowPage)
    def workflows(
        self,
        *,
        state: FlowState | Sequence[FlowState] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call:
        """Give a page of workflows, newest first; `next_cursor` leads to the next one."""
        query = {"state": listed(state), "name": name, "limit": limit, "cursor": cursor}
        return Call("GET", "/v1/workflows", query, is_safe=True)

    @iterates(Workflow)
    def iter_workflows(
        self, *, state: FlowState | Sequence[FlowState] | None = None, name: str | None = None
    ) -> Rows[Json]:
        """Give all workflows, newest first, asked for a page at a time."""
        return all_rows("workflows", "/v1/workflows", {"state": listed(state), "name": name})

    @asks(WorkflowState)
    def steer_workflow(
        self,
        workflow_id: str,
        how: FlowControl,
        reason: str = "",
    ) -> Call:
        """Do one of the following by its name."""
        return Call("POST", path_of("workflows", workflow_id, how), body={"reason": reason})

    @asks(WorkflowState)
    def cancel_workflow(self, workflow_id: str, reason: str = "") -> Call:
        """Cancel what has not ended of a workflow. Raises NotFound, or Conflict."""
        return Call("POST", path_of("workflows", workflow_id, "cancel"), body={"reason": reason})

    @asks(WorkflowState)
    def pause_workflow(self, workflow_id: str, reason: str = "") -> Call:
        """Dispatch nothing more of a workflow."""
        path = path_of("workflows", workflow_id, "pause")
        return Call("POST", path, body={"reason": reason})

    @asks(WorkflowState)
    def resume_workflow(self, workflow_id: str) -> Call:
        """Dispatch again what `pause_workflow` held back."""
        return Call("POST", path_of("workflows", workflow_id, "resume"))

    @asks(WorkflowState)
    def close_workflow(self, workflow_id: str) -> Call:
        """Let an open workflow end once its tasks have; nobody joins any more."""
        return Call("POST", path_of("workflows", workflow_id, "close"))

"""/v1/workflows: tasks that are one undertaking, which more may join, with a rule for failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX
from rota.domain.commands import Flow
from rota.domain.intake import NATIVE, BatchRequest
from rota.domain.workflow import RUNNING, STATES
from rota.errors import InvalidRequest
from rota.http.flow_models import WorkflowBody
from rota.http.flow_views import flow_row, flow_view
from rota.http.models import ReasonBody
from rota.http.submissions import keyed_batch
from rota.http.v1.batches import native_item, read_items, rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.actors.messages import BatchAdmitted
    from rota.domain.workflow import Workflow
    from rota.http.call import Call
    from rota.http.v1.batches import ReadItem


async def submit(call: Call) -> Any:
    """POST /v1/workflows."""
    raw = await call.parsed()
    admitted, state = await submitted(call, raw, call.validate(WorkflowBody, raw))
    answer: dict[str, Any] = {"workflowId": admitted.batch, "state": state}
    answer |= {"tasks": rows(admitted), "createdAt": rfc3339(admitted.created_at)}
    if admitted.known:
        return call.json({**answer, admitted.known: True})
    return call.json(answer, status=202)


async def submitted(
    call: Call, raw: Any, body: WorkflowBody, read: ReadItem = native_item, dialect: str = NATIVE
) -> tuple[BatchAdmitted, str]:
    """Submit a workflow; give what was admitted, and the workflow's state."""
    if body.escalate is not None:
        await call.check_callback(body.escalate.callback, "escalate.callback")
    requests = await read_items(call, body, read=read)
    for at, request in enumerate(requests):
        if request.plan.workflow is not None:
            field = f"tasks.{at}.workflowId"
            msg = f"field '{field}': the tasks of a new workflow are of this one"
            raise InvalidRequest(msg, details={"field": field})
    batch = BatchRequest(
        requests,
        dialect,
        callback=body.callbackUrl or None,
        by=call.by,
        flow=flow_of(body),
        wanted_id=body.workflowId,
    )
    admitted = await call.bridge.submit_batch(keyed_batch(call, batch, body.idempotencyKey, raw))
    if not admitted.known:
        return admitted, RUNNING
    return admitted, await call.sight.show_workflow(admitted.batch, lambda flow, _: flow.state)


def flow_of(body: WorkflowBody) -> Flow:
    failure = body.failure.model_dump(exclude_none=True) if body.failure is not None else None
    escalate: dict[str, Any] | None = None
    if body.escalate is not None and body.escalate.task is not None:
        task = body.escalate.task
        said = {"params": task.params, "priority": task.priority}
        more = {name: value for name, value in said.items() if value is not None}
        escalate = {"task": {"agent": task.agentId, "action": task.action, **more}}
    elif body.escalate is not None:
        escalate = {"callback": body.escalate.callback}
    return Flow(body.name, body.open, failure, body.onFailure, escalate)


async def list_all(call: Call) -> Any:
    """GET /v1/workflows: those that go on, and those that have ended lately."""
    return await answer_flows(call, flow_row)


async def answer_flows(call: Call, view: Callable[[Workflow], dict[str, Any]]) -> Any:
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    before = call.query_int("cursor", default=0, low=0, high=SEQ_MAX)
    states, name = _states(call.query("state")), call.query("name")

    def is_wanted(flow: Workflow) -> bool:
        return (states is None or flow.state in states) and (name is None or flow.name == name)

    def show(found: tuple[list[Workflow], bool]) -> dict[str, Any]:
        flows, is_more = found
        page: dict[str, Any] = {"workflows": list(map(view, flows)), "count": len(flows)}
        if is_more:
            page["nextCursor"] = str(flows[-1].seq)
        return page

    gather = call.sight.workflows
    return call.json(await call.sight.gathered(lambda: gather(is_wanted, limit, before), show))


def _states(text: str | None) -> frozenset[str] | None:
    if not text:
        return None
    asked = [word.strip() for word in text.split(",")]
    for word in asked:
        if word not in STATES:
            msg = f"unknown state '{word[:50]}'; use {', '.join(STATES)}"
            raise InvalidRequest(msg, details={"field": "state"})
    return frozenset(asked)


async def get_one(call: Call) -> Any:
    """GET /v1/workflows/{id}."""
    return call.json(await call.sight.show_workflow(call.params["id"], flow_view))


def steering(how: str, word: str = "workflowId") -> Callable[[Call], Awaitable[Any]]:
    """Make the handler of a step; `word` is what it calls a workflow's id."""

    async def steer(call: Call) -> Any:
        body = await call.body(ReasonBody, optional=True)
        workflow_id = call.params["id"]
        state = await call.bridge.steer(workflow_id, how, body.reason, call.by)
        return call.json({word: workflow_id, "state": state})

    steer.__doc__ = f"POST /v1/workflows/{{id}}/{how}."
    return steer


STEERING = {how: steering(how) for how in ("cancel", "pause", "resume", "close")}
"""What can be done with a workflow, by the last part of its path."""

"""/v1/batches: tasks that go in together, are looked at together, and cancelled together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.config import BATCH_EDGES_MAX
from rota.domain.intake import BatchRequest
from rota.errors import InvalidRequest
from rota.http import views
from rota.http.models import BatchBody, ReasonBody
from rota.http.submissions import keyed_batch, native_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.messages import BatchAdmitted
    from rota.domain.intake import Request
    from rota.http.call import Call
    from rota.http.flow_models import WorkflowBody

    ReadItem = Callable[[Call, Any, str], Request]


async def submit(call: Call) -> Any:
    """POST /v1/batches."""
    raw = await call.parsed()
    body = call.validate(BatchBody, raw)
    requests = await read_items(call, body)
    batch = BatchRequest(requests, "native", body.parallelism, body.callbackUrl or None, call.by)
    admitted = await call.bridge.submit_batch(keyed_batch(call, batch, body.idempotencyKey, raw))
    answer = {"batchId": admitted.batch, "tasks": rows(admitted)}
    answer["createdAt"] = rfc3339(admitted.created_at)
    if admitted.known:
        return call.json({**answer, admitted.known: True})
    return call.json(answer, status=202)


def native_item(call: Call, item: Any, agent: str) -> Request:
    return native_request(item, agent, call.by)


async def read_items(
    call: Call, body: BatchBody | WorkflowBody, at: str = "", read: ReadItem = native_item
) -> tuple[Request, ...]:
    """Read the tasks of a batch or workflow, which stands in the field `at` and a dot.

    Raises InvalidRequest or CallbackRefused.
    """
    edges = sum(len(item.dependsOn) for item in body.tasks)
    if edges > BATCH_EDGES_MAX:
        msg = f"the batch has {edges} dependencies; at most {BATCH_EDGES_MAX} are allowed"
        details = {"dependencies": edges, "max": BATCH_EDGES_MAX}
        raise InvalidRequest(msg, code="too_many_dependencies", details=details)
    urls = {item.callbackUrl: f"{at}tasks.{n}.callbackUrl" for n, item in enumerate(body.tasks)}
    for url, field in {**urls, body.callbackUrl: f"{at}callbackUrl"}.items():
        await call.check_callback(url, field)
    requests = []
    for n, item in enumerate(body.tasks):
        agent = item.agentId or body.agentId
        if agent is None:
            field = f"{at}tasks.{n}.agentId"
            msg = f"missing required field '{field}', or 'agentId' for the whole batch"
            raise InvalidRequest(msg, details={"field": field})
        requests.append(read(call, item, agent))
    return tuple(requests)


def rows(admitted: BatchAdmitted) -> Any:
    return [{"taskId": t.task, "state": t.state, "position": t.position} for t in admitted.tasks]


async def get_one(call: Call) -> Any:
    """GET /v1/batches/{id}."""
    return call.json(await call.sight.show_batch(call.params["id"], views.batch_view))


async def cancel(call: Call) -> Any:
    """POST /v1/batches/{id}/cancel."""
    body = await call.body(ReasonBody, optional=True)
    batch_id = call.params["id"]
    count = await call.bridge.cancel_batch(batch_id, body.reason, call.by)
    return call.json({"batchId": batch_id, "cancelled": count})

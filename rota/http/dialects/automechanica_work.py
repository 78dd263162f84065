"""AutoMechanica's words for those who work on rows, orchestrate them, and read their figures.

Each is the native call of the same kind: what is said of leases, workflows, dead letters and days
is read under the document's names, and answered under them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.commands import Outcome
from rota.domain.leases import lease_id
from rota.domain.packed import spliced
from rota.http.dialects import automechanica_models as bodies
from rota.http.dialects.automechanica import (
    NAME,
    fields_in_own_words,
    own_words,
    request_of,
    view,
    workflow_row,
    workflow_view,
)
from rota.http.figures import days_of
from rota.http.lease_models import FailFields
from rota.http.v1 import dead, leases, workflows

if TYPE_CHECKING:
    from rota.actors.lent import Lent
    from rota.domain.intake import Request
    from rota.http.call import Call


async def lease(call: Call) -> Any:
    """POST /automechanica/leases."""
    shown, more = await leases.take(call, await call.body(bodies.AutoMechanicaLease), _lease)
    return call.json({"leases": shown, **own_words(more)})


def _lease(_worker: str, lent: Lent) -> dict[str, Any]:
    """Show a lease with its row, in whose payload the results of other tasks are filled in."""
    return {
        "lease_id": lease_id(lent.task.id, lent.token),
        "token": lent.token,
        "lease_ms": lent.lease_ms,
        "task": {**view(lent.task), "payload": spliced(lent.params)},
    }


async def heartbeat(call: Call) -> Any:
    """POST /automechanica/leases/{id}/heartbeat."""
    body = await call.body(bodies.AutoMechanicaHeartbeat)
    return call.json(own_words(await leases.heard(call, body)))


async def complete(call: Call) -> Any:
    """POST /automechanica/leases/{id}/complete."""
    body = await call.body(bodies.AutoMechanicaComplete)
    outcome = Outcome(ok=True, result=body.result)
    return call.json(own_words(await leases.settle_one(call, body, outcome)))


async def fail(call: Call) -> Any:
    """POST /automechanica/leases/{id}/fail."""
    body = await call.body(bodies.AutoMechanicaFail)
    info = body.errorInfo
    fields = FailFields(
        error=info.message,
        code=info.code,
        details=info.details,
        retryable=body.retryable,
        retryAfterMs=body.retryAfterMs,
    )
    return call.json(own_words(await leases.settle_one(call, body, leases.failure(fields))))


async def release(call: Call) -> Any:
    """POST /automechanica/leases/{id}/release."""
    body = await call.body(bodies.AutoMechanicaRelease)
    return call.json(own_words(await leases.settle_one(call, body, None)))


async def revive(call: Call) -> Any:
    """POST /automechanica/dead/{id}/revive."""
    body = await call.body(bodies.AutoMechanicaRevive, optional=True)
    answer = own_words(await dead.revived(call, body))
    if "refused" in answer:
        answer["refused"] = list(map(own_words, answer["refused"]))
    return call.json(answer, status=202)


async def submit_workflow(call: Call) -> Any:
    """POST /automechanica/workflows."""
    raw = await call.parsed()
    body = call.validate(bodies.AutoMechanicaWorkflow, raw)
    with fields_in_own_words():
        admitted, _ = await workflows.submitted(call, raw, body, _item, NAME)
    shown = await call.sight.show_workflow(admitted.batch, workflow_view)
    return call.json(shown, status=200 if admitted.known else 201)


def _item(call: Call, item: bodies.AutoMechanicaItem, agent: str) -> Request:
    request = request_of(call, item, agent)
    return request._replace(ref=item.ref, depends=tuple(item.dependsOn))


async def list_workflows(call: Call) -> Any:
    """GET /automechanica/workflows."""
    return await workflows.answer_flows(call, workflow_row)


async def get_workflow(call: Call) -> Any:
    """GET /automechanica/workflows/{id}."""
    return call.json(await call.sight.show_workflow(call.params["id"], workflow_view))


STEERING = {how: workflows.steering(how, "workflow_id") for how in workflows.STEERING}
"""What can be done with a workflow, by the last part of its path."""


async def metrics(call: Call) -> Any:
    """GET /automechanica/task_queue_metrics: a row for each day."""
    return call.json({"task_queue_metrics": await days_of(call, "agent_name")})

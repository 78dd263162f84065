"""/v1/dead: the tasks that failed for good, also long after; and new lives for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import SEQ_MAX
from rota.errors import InvalidRequest, RequestError
from rota.http import views
from rota.http.bulk import each_of
from rota.http.failures import Asked, answer_failed, failed_page
from rota.http.flow_models import ReviveBody, ReviveManyBody

if TYPE_CHECKING:
    from rota.actors.messages import Revived
    from rota.errors import RotaError
    from rota.http.call import Call

REVIVE_SLICE = 50
"""So many are revived at once; then the rest of the loop has its turn."""


async def list_all(call: Call) -> Any:
    """GET /v1/dead."""
    return await answer_failed(call, views.dead, "dead")


async def revive(call: Call) -> Any:
    """POST /v1/dead/{id}/revive."""
    answer = await revived(call, await call.body(ReviveBody, optional=True))
    return call.json(answer, status=202)


async def revived(call: Call, body: ReviveBody) -> dict[str, Any]:
    """Revive a dead task, and say what became of it and of its dependents."""
    found = await call.bridge.revive(
        call.params["id"], call.by, body.params, dependents=body.dependents
    )
    state = await call.sight.show_task(found.task, lambda task: task.state.value)
    answer: dict[str, Any] = {"taskId": found.task, "state": state}
    if body.params is not None:
        answer["edited"] = True
    if body.dependents:
        answer["dependents"] = list(found.dependents)
        if found.refused:
            answer["refused"] = [_refused(*each) for each in found.refused]
    return answer


async def revive_many(call: Call) -> Any:
    """POST /v1/dead/revive: by filter, each for itself."""
    body = await call.body(ReviveManyBody)
    asked = Asked(body.agentId, body.type, None, body.workflowId, body.code)
    if asked == Asked() and not body.all:
        msg = 'say which are meant: by agentId, type, workflowId or code; or all with "all": true'
        raise InvalidRequest(msg, details={"field": "all"})
    page = await failed_page(
        call.sight, asked, lambda task: task.id, body.limit, _cursor(body.cursor)
    )
    revived: list[str] = []
    failed: list[dict[str, str]] = []
    dependents = 0
    for at in range(0, len(page.rows), REVIVE_SLICE):
        ids = page.rows[at : at + REVIVE_SLICE]
        for task_id, found in zip(ids, await _revived(call, ids, body), strict=True):
            if isinstance(found, RequestError):
                failed.append(_refused(task_id, found))
            else:
                revived.append(task_id)
                dependents += len(found.dependents)
    answer: dict[str, Any] = {
        "revived": revived,
        "failed": failed,
        "count": len(revived),
        "more": page.cursor is not None,
    }
    if body.dependents:
        answer["dependents"] = dependents
    if page.cursor is not None:
        answer["nextCursor"] = str(page.cursor)
    return call.json(answer)


async def _revived(
    call: Call, ids: list[str], body: ReviveManyBody
) -> list[Revived | RequestError]:
    """Revive some; give what became of each. Raises what is not about one of them."""
    return await each_of(
        ids, lambda each: call.bridge.revive(each, call.by, dependents=body.dependents)
    )


def _refused(task_id: str, error: RotaError) -> dict[str, str]:
    return {"taskId": task_id, "code": error.code, "error": error.message}


def _cursor(text: str | None) -> int:
    if text is None:
        return SEQ_MAX
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SEQ_MAX)) and int(text)):
        msg = "field 'cursor': must be the nextCursor of an answer"
        raise InvalidRequest(msg, details={"field": "cursor"})
    return int(text)

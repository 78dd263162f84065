"""From a validated body to a request, and from what became of it to the answer.

A body says what it says: defaults of types and the judging of moments are intake's
(rota.domain.intake). A repeat under an idempotency key must say the same.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from rota.actors.log_rate import LogRate
from rota.actors.messages import Refused
from rota.clock import rfc3339
from rota.domain.commands import PULL, Dedup
from rota.domain.intake import Request
from rota.domain.task import READY
from rota.errors import InvalidRequest, QueueFull, RotaError
from rota.http.dialects.projects import NAME as PROJECTS
from rota.http.models import KEY, moment_us
from rota.wording import NO_EXECUTOR, first_wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.actors.messages import Admitted
    from rota.domain.intake import BatchRequest
    from rota.http.call import Call
    from rota.http.models import BatchItem, DedupBody, SubmitBody
    from rota.http.project_models import ItemBody


logger = logging.getLogger("rota.http")

_WAIT_LINES = LogRate(5, 60.0)
_KEYS = ("idempotencyKey", "idempotency_key")
KEY_HEADERS = ("X-Idempotency-Key", "Idempotency-Key")


def native_request(body: SubmitBody | BatchItem | ItemBody, agent: str, by: str) -> Request:
    return Request(
        agent,
        body.action,
        None,
        body.params,
        int(body.priority),
        "native",
        body.tabId,
        body.ref,
        body.callbackUrl or None,
        deadline_us(body.deadline),
        body.timeoutMs,
        body.onInterrupt,
        by,
        body.taskId,
        tuple(body.dependsOn),
        body.onMissing,
        plan=body.plan(),
    )


def dedup_of(body: DedupBody | None) -> Dedup | None:
    return Dedup(body.key, body.ttlMs * 1000, body.mode) if body is not None else None


def deadline_us(text: str | None) -> int | None:
    """Read a deadline; whether it lies ahead is admission's to say, who knows repeats."""
    return moment_us(text) if text is not None else None


def note_wait(request: Request, answer: Admitted, kind: str) -> None:
    """Log that a dialect's task will wait, since nothing is configured to run it; seldom."""
    if answer.executor == PULL:
        msg = "a task of %s's (action %r) waits for a worker: no executor of kind %r is configured"
        _WAIT_LINES.warn(logger, msg, request.dialect, request.action[:100], kind)


def keyed(call: Call, request: Request, given: str | None, raw: Any) -> Request:
    """Add the idempotency key of the header or the body to a request. Raises InvalidRequest.

    `raw` is the parsed body: a repeat must say the same.
    """
    key = _key(call, given)
    if key is None:
        return request
    digest = _digest(call, raw)
    return request._replace(plan=request.plan._replace(idempotency=key, digest=digest))


def keyed_batch(call: Call, batch: BatchRequest, given: str | None, raw: Any) -> BatchRequest:
    """Add the idempotency key of the header or the body to a batch. Raises InvalidRequest."""
    key = _key(call, given)
    return batch._replace(idempotency=key, digest=_digest(call, raw)) if key is not None else batch


def _key(call: Call, given: str | None) -> str | None:
    keys = {given} if given is not None else set()
    for name in KEY_HEADERS:
        for header in call.request.headers.getall(name, ()):
            try:
                keys.add(KEY.validate_python(header))
            except ValidationError as error:
                raise _bad(name, first_wrong(error)[2], "header") from None
    if len(keys) > 1:
        raise _bad("idempotencyKey", "the body and the headers give different ones")
    return keys.pop() if keys else None


def _digest(call: Call, raw: Any) -> str:
    """Give what a repeat must have in common: the path and the body, but for the key itself.

    /projects is /v1/projects by another name, so the path is the same.
    """
    path = f"/v1{call.path}" if call.dialect == PROJECTS else call.path
    said = {name: value for name, value in raw.items() if name not in _KEYS}
    text = orjson.dumps([path, said], option=orjson.OPT_SORT_KEYS)
    return blake2b(text, digest_size=16).hexdigest()


async def admitted(call: Call, request: Request) -> Admitted:
    """Submit one task. Raises a RequestError if it is not taken."""
    (answer,) = await call.bridge.submit((request,))
    if isinstance(answer, RotaError):
        raise answer
    if isinstance(answer, Refused):
        raise QueueFull(answer.error, code=answer.code, details=answer.details)
    return answer


async def submit_one(call: Call, request: Request) -> Any:
    answer = await admitted(call, request)
    is_ready = answer.state == READY.value
    reason = why_waits(call, request, answer.executor) if is_ready else None
    return submitted(call, answer, answer.state, {"waitReason": reason} if reason else {})


def why_waits(call: Call, request: Request, executor: str) -> str | None:
    """Say why a task that is ready will wait: for a pause to end, or for a worker to come."""
    paused = call.bridge.why_paused(request.agent, request.action)
    if paused is not None or executor != PULL:
        return paused
    requires = "\n".join(sorted(set(request.plan.requires or ())))
    is_served = call.sight.may_serve(request.agent, request.action, requires)
    return None if is_served else NO_EXECUTOR


def submitted(call: Call, answer: Admitted, state: str, more: Mapping[str, str]) -> Any:
    """Answer that a task was taken, natively or in PinchTab's words."""
    body: dict[str, Any] = {
        "taskId": answer.task,
        "state": state,
        "position": answer.position,
        "createdAt": rfc3339(answer.created_at),
        **more,
    }
    if answer.known:
        body[answer.known] = True
        return call.json(body, status=200)
    return call.json(body, status=202)


def _bad(field: str, problem: str, what: str = "field") -> InvalidRequest:
    return InvalidRequest(f"{what} '{field}': {problem}", details={"field": field})

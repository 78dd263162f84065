"""From a validated body to a command, and to the answer.

The one place where defaults of types and executors are filled in and moments are judged, for every
dialect. A body is any object with the fields of `TaskOptions`; what a dialect does not have is
absent.
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
from rota.config import DEADLINE_S_MAX
from rota.domain.commands import PULL, Dedup, SubmitTask
from rota.domain.task import READY, TaskState
from rota.errors import InvalidRequest, QueueFull, RotaError
from rota.http.models import KEY, moment_us
from rota.http.views import NO_EXECUTOR
from rota.wording import first_wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.actors.messages import Admitted
    from rota.config import RetrySettings
    from rota.http.call import Call


logger = logging.getLogger("rota.http")

_WAIT_LINES = LogRate(5, 60.0)


def command_from(
    call: Call, body: Any, agent: str, dialect: str, callback_url: str | None, now: int
) -> SubmitTask:
    """Make the command that a body asks for. Raises InvalidRequest."""
    settings = call.bridge.settings
    kind = settings.types.get(body.action)
    timeout_ms = getattr(body, "timeoutMs", None)
    queue_timeout_ms = getattr(body, "queueTimeoutMs", None)
    on_interrupt = getattr(body, "onInterrupt", None)
    retry: RetrySettings | None = getattr(body, "retry", None)
    if kind is not None:
        timeout_ms = timeout_ms if timeout_ms is not None else kind.timeout_ms
        if timeout_ms is not None and timeout_ms > kind.timeout_ms_max:
            raise _bad("timeoutMs", f"is more than {kind.timeout_ms_max}, the most for this type")
        queue_timeout_ms = queue_timeout_ms or kind.queue_timeout_ms
        on_interrupt = on_interrupt or kind.on_interrupt
        retry = retry or kind.retry
    dedup = getattr(body, "dedup", None)
    needs_tab = dialect == "pinchtab"
    has_tab = bool(body.tabId) if needs_tab else body.tabId is not None
    return SubmitTask(
        agent,
        body.action,
        settings.executor_for(body.action, has_tab=has_tab, needs_tab=needs_tab),
        body.params,
        body.priority,
        dialect,
        body.tabId,
        body.ref,
        callback_url or None,
        deadline_us(body.deadline, now),
        timeout_ms,
        "fail" if on_interrupt == "fail" else None,
        call.by,
        wanted_id=getattr(body, "taskId", None),
        key=getattr(body, "key", None),
        depends=tuple(getattr(body, "dependsOn", ())),
        on_missing=getattr(body, "onMissing", "wait"),
        retry=written(retry),
        queue_timeout_ms=queue_timeout_ms,
        not_before=_not_before(body, now),
        delay_ms=getattr(body, "delayMs", None) or None,
        preempt=getattr(body, "preempt", False),
        dedup=Dedup(dedup.key, dedup.ttlMs * 1000, dedup.mode) if dedup is not None else None,
    )


def note_wait(command: SubmitTask, kind: str) -> None:
    """Log that a dialect's task will wait, since nothing is configured to run it; seldom."""
    if command.executor == PULL:
        msg = "a task of %s's (action %r) waits for a worker: no executor of kind %r is configured"
        _WAIT_LINES.warn(logger, msg, command.dialect, command.action[:100], kind)


def written(retry: RetrySettings | None) -> dict[str, Any] | None:
    """Write a policy as events carry it; None if it is the plain one, which never tries again."""
    return retry.policy().to_dict() or None if retry is not None else None


def keyed(call: Call, command: Any, given: str | None, raw: Any) -> Any:
    """Add the idempotency key of the header or the body to a command. Raises InvalidRequest.

    `raw` is the parsed body: a repeat must say the same.
    """
    keys = {given} if given is not None else set()
    for name in ("X-Idempotency-Key", "Idempotency-Key"):
        for header in call.request.headers.getall(name, ()):
            try:
                keys.add(KEY.validate_python(header))
            except ValidationError as error:
                raise _bad(name, first_wrong(error)[2], "header") from None
    if not keys:
        return command
    if len(keys) > 1:
        raise _bad("idempotencyKey", "the body and the headers give different ones")
    said = {name: value for name, value in raw.items() if name != "idempotencyKey"}
    text = orjson.dumps([call.path, said], option=orjson.OPT_SORT_KEYS)
    digest = blake2b(text, digest_size=16).hexdigest()
    return command._replace(idempotency=keys.pop(), digest=digest)


async def admitted(call: Call, command: SubmitTask) -> Admitted:
    """Submit one task. Raises a RequestError if it is not taken."""
    (answer,) = await call.bridge.submit((command,))
    if isinstance(answer, RotaError):
        raise answer
    if isinstance(answer, Refused):
        raise QueueFull(answer.error, code=answer.code, details=answer.details)
    return answer


async def submit_one(
    call: Call, command: SubmitTask, words: Mapping[TaskState, str] | None = None
) -> Any:
    """Submit one task and answer, with the dialect's own words for states if it has any."""
    answer = await admitted(call, command)
    body: dict[str, Any] = {
        "taskId": answer.task,
        "state": words[TaskState(answer.state)] if words else answer.state,
        "position": answer.position,
        "createdAt": rfc3339(answer.created_at),
    }
    if words is None and command.executor == PULL and answer.state == READY.value:
        body["waitReason"] = NO_EXECUTOR
    if answer.known:
        body[answer.known] = True
        return call.json(body, status=200)
    return call.json(body, status=202)


def deadline_us(text: str | None, now: int) -> int | None:
    """Read a deadline; whether it lies ahead is admission's to say, who knows repeats."""
    if text is None:
        return None
    return _within_reason("deadline", moment_us(text), now)


def _not_before(body: Any, now: int) -> int | None:
    """Read when a task may start at the earliest; a moment that has passed is none."""
    moment, delay_ms = getattr(body, "notBefore", None), getattr(body, "delayMs", None)
    if moment is not None and delay_ms is not None:
        raise _bad("delayMs", "give either notBefore or delayMs, not both")
    at = moment_us(moment) if moment is not None else 0
    return _within_reason("notBefore", at, now) if at > now else None


def _within_reason(field: str, at: int, now: int) -> int:
    if at > now + DEADLINE_S_MAX * 1_000_000:
        raise _bad(field, f"is more than {DEADLINE_S_MAX // 86400} days away")
    return at


def _bad(field: str, problem: str, what: str = "field") -> InvalidRequest:
    return InvalidRequest(f"{what} '{field}': {problem}", details={"field": field})

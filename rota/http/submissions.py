"""From a validated body to a command, and to the answer.

The one place where defaults of types and executors are filled in and deadlines are judged, for
every dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import Refused
from rota.clock import rfc3339
from rota.config import DEADLINE_S_MAX
from rota.domain.commands import SubmitTask
from rota.errors import InvalidRequest, QueueFull
from rota.http.models import moment_us

if TYPE_CHECKING:
    from rota.http.call import Call


def command_from(
    call: Call, body: Any, agent: str, dialect: str, callback_url: str | None, now: int
) -> SubmitTask:
    """Make the command that a body asks for. Raises InvalidRequest."""
    settings = call.bridge.settings
    kind = settings.types.get(body.action)
    timeout_ms = getattr(body, "timeoutMs", None)
    on_interrupt = getattr(body, "onInterrupt", None)
    if kind is not None:
        timeout_ms = timeout_ms if timeout_ms is not None else kind.timeout_ms
        on_interrupt = on_interrupt or kind.on_interrupt
    return SubmitTask(
        agent,
        body.action,
        settings.executor_for(
            body.action, wants_tab=body.tabId is not None or dialect == "pinchtab"
        ),
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
    )


async def submit_one(call: Call, command: SubmitTask, waiting: str) -> Any:
    """Submit one task and answer as every dialect does, with its own word for waiting."""
    (answer,) = await call.bridge.submit((command,))
    if isinstance(answer, Refused):
        raise QueueFull(answer.error, code=answer.code, details=answer.details)
    return call.json(
        {
            "taskId": answer.task,
            "state": waiting,
            "position": answer.position,
            "createdAt": rfc3339(answer.created_at),
        },
        status=202,
    )


def deadline_us(text: str | None, now: int) -> int | None:
    """Read a deadline that must lie ahead, within reason."""
    if text is None:
        return None
    at = moment_us(text)
    if at <= now:
        raise InvalidRequest("field 'deadline': is in the past", details={"field": "deadline"})
    if at > now + DEADLINE_S_MAX * 1_000_000:
        msg = f"field 'deadline': is more than {DEADLINE_S_MAX // 86400} days away"
        raise InvalidRequest(msg, details={"field": "deadline"})
    return at

"""The shapes that come in and go out, as pydantic models.

Request models validate strictly (no coercion) and are the source of /openapi.json. Native bodies
refuse unknown fields by name; a dialect's bodies ignore them, as the program that it stands in for
does. Views are built as plain dicts elsewhere; the response models here describe them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

from rota.clock import parse_rfc3339
from rota.config import (
    ACTION_CHARS_MAX,
    ID_CHARS_MAX,
    PINCHTAB_BATCH_MAX,
    PRIORITY_MAX,
    REASON_CHARS_MAX,
    TIMEOUT_MS_MAX,
    URL_CHARS_MAX,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")

PRIORITY_WORDS = {"critical": 0, "high": 1, "normal": 2, "medium": 2, "low": 3}


def _named(text: str) -> str:
    """Refuse blank names and control characters."""
    if not text.strip():
        msg = "must not be blank"
        raise ValueError(msg)
    return _printable(text)


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        msg = "must not contain control characters"
        raise ValueError(msg)
    return text


def _moment(text: str) -> str:
    """Refuse what is not RFC 3339."""
    if not _RFC3339.fullmatch(text):
        msg = "must be an RFC 3339 timestamp such as 2026-03-08T12:05:00Z"
        raise ValueError(msg)
    parse_rfc3339(_trimmed(text))
    return text


def _trimmed(text: str) -> str:
    """Cut decimals beyond microseconds."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text.upper())


def moment_us(text: str) -> int:
    """Read a validated timestamp."""
    return parse_rfc3339(_trimmed(text))


def _priority(value: int | str) -> int:
    if isinstance(value, str):
        if value not in PRIORITY_WORDS:
            msg = f"must be a number or one of {', '.join(PRIORITY_WORDS)}"
            raise ValueError(msg)
        return PRIORITY_WORDS[value]
    if not 0 <= value <= PRIORITY_MAX:
        msg = f"must be from 0 (first) to {PRIORITY_MAX}"
        raise ValueError(msg)
    return value


AgentId = Annotated[str, StringConstraints(max_length=ID_CHARS_MAX), AfterValidator(_named)]
AGENT_ID: TypeAdapter[str] = TypeAdapter(AgentId)
Action = Annotated[str, StringConstraints(max_length=ACTION_CHARS_MAX), AfterValidator(_named)]
Label = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_printable)]
Reason = Annotated[str, StringConstraints(max_length=REASON_CHARS_MAX), AfterValidator(_printable)]
Url = Annotated[str, StringConstraints(max_length=URL_CHARS_MAX)]
Moment = Annotated[str, StringConstraints(max_length=64), AfterValidator(_moment)]
Priority = Annotated[int | str, AfterValidator(_priority)]


class NativeBody(BaseModel):
    """A body under /v1: strict, and closed to unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class DialectBody(BaseModel):
    """A body in another program's dialect: strict types, unknown fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)


class TaskFields(BaseModel):
    """What a task can say of itself in both APIs."""

    action: Action = Field(description="what to run; becomes the executor's kind")
    tabId: Label | None = Field(None, description="target tab")
    ref: Label | None = Field(None, description="element on the tab")
    params: dict[str, Any] | None = Field(None, description="action-specific fields")
    deadline: Moment | None = Field(None, description="RFC 3339; when it must be done")


class SubmitBody(NativeBody, TaskFields):
    """POST /v1/tasks."""

    agentId: AgentId = Field(description="whose queue it goes to")
    priority: Priority = Field(2, description="lower is sooner; or critical, high, normal, low")
    callbackUrl: Url | None = Field(None, description="told when the task ends")
    timeoutMs: int | None = Field(
        None, ge=1, le=TIMEOUT_MS_MAX, description="how long one attempt may take"
    )
    onInterrupt: Literal["retry", "fail"] | None = Field(
        None, description="what to do when the server goes away under an attempt"
    )


class ReasonBody(NativeBody):
    """A body that may say why."""

    reason: Reason = ""


class ReloadBody(NativeBody):
    """POST /v1/config/reload: scheduler settings to put in force; empty to re-read the file."""

    scheduler: dict[str, Any] | None = None


class PinchTabBody(DialectBody, TaskFields):
    """POST /tasks, PinchTab's."""

    agentId: AgentId
    priority: Priority = 0
    callbackUrl: Url | None = None


class PinchTabItem(DialectBody, TaskFields):
    """One task of a PinchTab batch."""

    priority: Priority = 0


class PinchTabBatch(DialectBody):
    """POST /tasks/batch, PinchTab's; its items are validated one by one."""

    agentId: AgentId
    callbackUrl: Url | None = None
    tasks: list[PinchTabItem] = Field(min_length=1, max_length=PINCHTAB_BATCH_MAX)


class Problem(BaseModel):
    """Every error."""

    code: str
    error: str
    retryable: bool = False
    details: dict[str, Any] = {}
    requestId: str = ""


class Submitted(BaseModel):
    """The task is on disk."""

    taskId: str
    state: str
    position: int = Field(description="place in the queue, over all agents")
    createdAt: str


class TaskError(BaseModel):
    """Why a task failed."""

    code: str
    message: str
    details: dict[str, Any] = {}


class TaskView(BaseModel):
    """A task, natively; absent values are left out."""

    taskId: str
    agentId: str
    action: str
    state: Literal[
        "blocked",
        "scheduled",
        "ready",
        "assigned",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "rejected",
    ]
    priority: int
    executor: str
    dialect: str
    attempt: int
    createdAt: str
    position: int | None = None
    tabId: str | None = None
    ref: str | None = None
    params: dict[str, Any] | None = None
    deadline: str | None = None
    timeoutMs: int | None = None
    callbackUrl: str | None = None
    assignedAt: str | None = None
    startedAt: str | None = None
    completedAt: str | None = None
    latencyMs: int | None = None
    interruptions: int | None = None
    result: Any = None
    error: TaskError | None = None


class TaskPage(BaseModel):
    """Some tasks, newest first."""

    tasks: list[TaskView]
    count: int
    nextCursor: str | None = None


class EventView(BaseModel):
    """A fact, as it lies in the log."""

    seq: int
    at: int = Field(description="microseconds UTC")
    kind: str
    v: int
    task: str | None = None
    agent: str | None = None
    by: str | None = None
    cause: int | None = None
    data: dict[str, Any]


class EventPage(BaseModel):
    """Some events, oldest first; ask again with after=next."""

    events: list[EventView]
    next: int
    head: int


class HeadView(BaseModel):
    """The end of the log; keep it elsewhere to prove the history later."""

    seq: int
    digest: str

"""The shapes that come in natively, as pydantic models.

They validate strictly (no coercion) and are the source of /openapi.json. Native bodies refuse
unknown fields by name; a dialect's bodies (dialects/models.py) ignore them, as the program that it
stands in for does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    create_model,
    model_validator,
)

from rota.clock import parse_rfc3339
from rota.config import (
    ACTION_CHARS_MAX,
    BATCH_MAX,
    DEDUP_MS_MAX,
    DEPENDS_MAX,
    ID_CHARS_MAX,
    KEY_CHARS_MAX,
    PRIORITY_MAX,
    REASON_CHARS_MAX,
    SEQ_MAX,
    TOKEN_MS_MAX,
    URL_CHARS_MAX,
)
from rota.domain.notes import LINE_CHARS_MAX, LINES_MAX, REPORT_BYTES_MAX
from rota.domain.plan import NO_PLAN, TIMEOUT_MS_MAX, Plan, Wish, asked_in, wishes_of
from rota.domain.tokens import NAME_PATTERN, TOKEN_AGENTS_MAX
from rota.ids import PREFIXES
from rota.sections import RetrySettings  # noqa: TC001 - pydantic reads it
from rota.wording import known_only

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")

_TOKEN_NAME = re.compile(NAME_PATTERN)
_OWN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")

PRIORITY_WORDS = {"critical": 0, "high": 1, "normal": 2, "medium": 2, "low": 3}


def _named(text: str) -> str:
    """Refuse blank names and control characters."""
    return _printable(not_blank(text))


def not_blank(text: str) -> str:
    if not text.strip():
        msg = "must not be blank"
        raise ValueError(msg)
    return text


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        msg = "must not contain control characters"
        raise ValueError(msg)
    return text


def _moment(text: str) -> str:
    """Refuse what is not RFC 3339."""
    msg = "must be an RFC 3339 timestamp such as 2026-03-08T12:05:00Z"
    if not _RFC3339.fullmatch(text):
        raise ValueError(msg)
    try:
        moment_us(text)
    except ValueError:
        raise ValueError(msg) from None
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


def not_reserved(text: str, collection: str, info: ValidationInfo) -> str:
    """Refuse an id that is also a path of its own, such as `cancel` in `/v1/tasks/cancel`.

    `Call.validate` brings those words, which follow from the table of routes.
    """
    words = (info.context or {}).get(collection, ())
    if text in words:
        msg = f"must not be {' or '.join(sorted(words))}: those are paths of their own"
        raise ValueError(msg)
    return text


def _own_id(text: str, info: ValidationInfo) -> str:
    """Refuse ids that rota might draw itself, and what does not fit into a path."""
    if not _OWN_ID.fullmatch(text):
        msg = "must be letters, digits and . _ : - only"
        raise ValueError(msg)
    if text.startswith(PREFIXES):
        msg = f"must not begin with {' or '.join(PREFIXES)}, as rota's own ids do"
        raise ValueError(msg)
    return not_reserved(text, "tasks", info)


def short(report: Any) -> Any:
    """Refuse a report that is too large to be kept a thousand times."""
    if len(orjson.dumps(report)) > REPORT_BYTES_MAX:
        msg = f"must not be larger than {REPORT_BYTES_MAX} bytes"
        raise ValueError(msg)
    return report


def _token_name(text: str) -> str:
    if not _TOKEN_NAME.fullmatch(text):
        msg = "must be letters, digits and ._:@-, beginning with a letter or digit"
        raise ValueError(msg)
    return text


AgentId = Annotated[str, StringConstraints(max_length=ID_CHARS_MAX), AfterValidator(_named)]
AGENT_ID: TypeAdapter[str] = TypeAdapter(AgentId)
Action = Annotated[str, StringConstraints(max_length=ACTION_CHARS_MAX), AfterValidator(_named)]
ACTION: TypeAdapter[str] = TypeAdapter(Action)
Label = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_printable)]
Reason = Annotated[str, StringConstraints(max_length=REASON_CHARS_MAX), AfterValidator(_printable)]
Url = Annotated[str, StringConstraints(max_length=URL_CHARS_MAX)]
Moment = Annotated[str, StringConstraints(max_length=64), AfterValidator(_moment)]
Priority = Annotated[int | str, AfterValidator(_priority)]
OwnId = Annotated[str, StringConstraints(max_length=100), AfterValidator(_own_id)]
Key = Annotated[str, StringConstraints(max_length=KEY_CHARS_MAX), AfterValidator(_named)]
KEY: TypeAdapter[str] = TypeAdapter(Key)
TaskId = Annotated[str, StringConstraints(max_length=ID_CHARS_MAX), AfterValidator(_named)]
Dependencies = Annotated[list[TaskId], Field(max_length=DEPENDS_MAX, fail_fast=True)]
TimeoutMs = Annotated[int, Field(ge=1, le=TIMEOUT_MS_MAX)]
Index = Annotated[int, Field(ge=0)]
Line = Annotated[str, StringConstraints(max_length=LINE_CHARS_MAX)]
Level = Literal["debug", "info", "warning", "error"]
Report = Annotated[dict[str, Any] | int | float | str, AfterValidator(short)]


class NativeBody(BaseModel):
    """A body under /v1: strict, and closed to unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _known_only(cls, data: Any) -> Any:
        return known_only(cls, data)


def one_action(body: Any) -> Any:
    """Let `type` stand for `action`; only one of them may be given."""
    if isinstance(body, dict) and body.get("type") is not None:
        if body.get("action") is not None:
            msg = "give either action or type, not both"
            raise ValueError(msg)
        return {**body, "action": body["type"]}
    return body


class DialectBody(BaseModel):
    """A body in another program's dialect: strict types, unknown fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """Drop the nulls of fields that may be absent, as those programs do."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {n: value for n, value in data.items() if value is not None or n not in optional}


class TaskFields(BaseModel):
    """What a task can say of itself in both APIs."""

    action: Action = Field(description="what to run; becomes the executor's kind")
    tabId: Label | None = Field(None, description="target tab")
    ref: Label | None = Field(None, description="element on the tab")
    params: dict[str, Any] | None = Field(None, description="action-specific fields")
    deadline: Moment | None = Field(None, description="RFC 3339; when it must be done")


class DedupBody(NativeBody):
    """How a task treats another of the same key."""

    key: Key
    ttlMs: int = Field(0, ge=0, le=DEDUP_MS_MAX, description="also so long after its submission")
    mode: Literal["reject", "return", "replace"] = "reject"


class PlainOptions(BaseModel):
    """What a task can ask for natively and intake has to read."""

    taskId: OwnId | None = Field(None, description="an id of your own choice")
    type: Action | None = Field(None, description="another name for action")
    priority: Priority = Field(2, description="lower is sooner; or critical, high, normal, low")
    callbackUrl: Url | None = Field(None, description="told when the task ends")
    timeoutMs: TimeoutMs | None = Field(None, description="how long one attempt may take")
    notBefore: Moment | None = Field(None, description="RFC 3339; it does not start earlier")
    retry: RetrySettings | None = Field(None, description="when to try again")
    onInterrupt: Literal["retry", "fail"] | None = Field(
        None, description="what to do when the server goes away under an attempt"
    )
    onMissing: Literal["wait", "fail"] = Field(
        "wait", description="what to do about a dependency that does not exist"
    )


def wishes_model(plan: type[Any]) -> type[BaseModel]:
    """Make the model of what can be asked for by the lines of a plan."""
    fields: dict[str, Any] = {
        wish.name: _wished(get_args(kind)[0], wish)
        for kind, wish in wishes_of(plan).values()
        if wish.says
    }
    return create_model("Wishes", **fields)


def _wished(kind: type[Any], wish: Wish) -> tuple[Any, Any]:
    if kind is bool:
        return bool, Field(False, description=wish.says)
    known: Any = Key
    if kind is int:
        known = Annotated[int, Field(ge=wish.low, le=wish.high)]
    elif kind == list[str]:
        bounds = Field(min_length=wish.low, max_length=wish.high, fail_fast=True)
        known = Annotated[list[Key], bounds]
    return known | None, Field(None, description=wish.says)


ASKED = asked_in(Plan)
if TYPE_CHECKING:

    class Wishes(BaseModel):
        """What is asked for by the lines of the table; read by their names alone."""
else:
    Wishes = wishes_model(Plan)


class TaskOptions(Wishes, PlainOptions):
    """What a task can ask for natively, alone or in a batch."""

    def plan(self) -> Plan:
        said = self.__dict__  # where pydantic keeps the fields, whose names the table gives
        plan: dict[str, Any] = {
            field: value
            for field, name in ASKED.items()
            if (value := said[name]) is not None and value is not False
        }
        if self.notBefore is not None:
            plan["not_before"] = moment_us(self.notBefore)
        if self.retry is not None:
            plan["retry"] = self.retry.written()
        return Plan(**plan) if plan else NO_PLAN


class SubmitBody(NativeBody, TaskOptions, TaskFields):
    """POST /v1/tasks."""

    agentId: AgentId = Field(description="whose queue it goes to")
    dependsOn: Dependencies = Field([], description="ids of tasks that must succeed first")
    idempotencyKey: Key | None = Field(None, description="a repeat answers with the same task")
    dedup: DedupBody | None = Field(None, description="what to do about an active task like it")

    _named = model_validator(mode="before")(one_action)


class BatchItem(NativeBody, TaskOptions, TaskFields):
    """One task of a native batch."""

    agentId: AgentId | None = Field(None, description="unless given for the whole batch")
    ref: Label | None = Field(None, description="a name for dependsOn: ref:name")
    dependsOn: list[TaskId | Index] = Field(
        [],
        max_length=DEPENDS_MAX,
        fail_fast=True,
        description="ids, ref:name, or an index into this batch",
    )

    _named = model_validator(mode="before")(one_action)


class BatchBody(NativeBody):
    """POST /v1/batches: admitted whole or not at all."""

    tasks: list[BatchItem] = Field(min_length=1, max_length=BATCH_MAX, fail_fast=True)
    agentId: AgentId | None = Field(None, description="for the items that name none")
    parallelism: int | None = Field(None, ge=1, le=BATCH_MAX, description="how many at once")
    callbackUrl: Url | None = Field(None, description="told once, when all have ended")
    idempotencyKey: Key | None = None


AttemptToken = Annotated[
    int,
    Field(
        ge=1,
        le=SEQ_MAX,
        description="X-Rota-Token of the attempt that speaks; refused once another one runs",
    ),
]


class LogBody(NativeBody):
    """POST /v1/tasks/{id}/logs."""

    lines: list[Line] = Field(min_length=1, max_length=LINES_MAX, fail_fast=True)
    level: Level = "info"
    token: AttemptToken | None = None


class ProgressBody(NativeBody):
    """POST /v1/tasks/{id}/progress."""

    progress: Report
    token: AttemptToken | None = None


class NoBody(NativeBody):
    """What a request may say whose route takes no body: nothing, or an empty object."""


class ReasonBody(NativeBody):
    """A body that may say why."""

    reason: Reason = ""


class ReloadBody(NativeBody):
    """POST /v1/config/reload: scheduler settings to put in force; empty to re-read the file."""

    scheduler: dict[str, Any] | None = None


class TokenBody(NativeBody):
    """POST /v1/tokens: who gets it, what it may do, for which agents, and for how long."""

    name: Annotated[str, StringConstraints(max_length=100), AfterValidator(_token_name)]
    role: Literal["submit", "work", "orchestrate", "analyse", "audit", "admin"]
    agents: Annotated[
        list[AgentId],
        Field(max_length=TOKEN_AGENTS_MAX, description="for submit and work; `*` is all"),
    ] = []
    expiresInMs: (
        Annotated[int, Field(ge=1000, le=TOKEN_MS_MAX, description="absent: until revoked")] | None
    ) = None

"""AutoMechanica's bodies: the native ones under the names of its document's columns.

A field has its native name in Python and its own name in JSON (`own_word`). All are strict and
closed to unknown fields, as native bodies are.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_snake

from rota.config import BATCH_MAX, DEPENDS_MAX
from rota.domain.wants import FILTERS_MAX
from rota.http import flow_models, lease_models
from rota.http.models import (
    Action,
    AgentId,
    Index,
    Key,
    Label,
    Moment,
    NativeBody,
    OwnId,
    Priority,
    TaskId,
    Url,
    short,
)
from rota.sections import RETRY_ATTEMPTS_MAX

_WORDS = {
    "agentId": "agent_name",
    "agents": "agent_names",
    "action": "task_type",
    "types": "task_types",
    "params": "payload",
    "notBefore": "available_at",
    "nextAttemptAt": "available_at",
    "expiresAt": "lease_expires_at",
    "max": "limit",
    "failure": "failure_threshold",
    "callback": "callback_url",
}


def own_word(name: str) -> str:
    """Give the document's name of a native field."""
    return _WORDS.get(name) or to_snake(name)


class OwnWords(NativeBody):
    """A body under /automechanica."""

    model_config = ConfigDict(alias_generator=own_word)


class RowFields(OwnWords):
    """What every task can say of itself."""

    agentId: AgentId | None = None
    action: Action
    params: dict[str, Any] | None = None
    priority: Priority = Field(2, description="0 is first")
    maxAttempts: int | None = Field(None, ge=1, le=RETRY_ATTEMPTS_MAX, description="default 3")
    taskId: OwnId | None = Field(
        None, alias="id", description="an id of your own choice, such as a UUID"
    )
    notBefore: Moment | None = Field(None, description="RFC 3339; it does not start earlier")
    callbackUrl: Url | None = Field(None, description="told when the task ends")


class AutoMechanicaBody(RowFields):
    """POST /automechanica/tasks: the document's createTask."""

    agentId: AgentId
    workflowId: TaskId | None = Field(None, description="the workflow that it is part of")
    idempotencyKey: Key | None = None


class AutoMechanicaItem(RowFields):
    """One task of a new workflow."""

    agentId: AgentId | None = Field(None, description="unless given for the whole workflow")
    ref: Label | None = Field(None, description="a name for depends_on: ref:name")
    dependsOn: list[TaskId | Index] = Field(
        [],
        max_length=DEPENDS_MAX,
        fail_fast=True,
        description="ids, ref:name, or an index into this list",
    )


class AutoMechanicaEscalationTask(OwnWords, flow_models.EscalationFields):
    """The task that a workflow escalates to."""


class AutoMechanicaEscalate(OwnWords, flow_models.EscalateBody):
    """Whom a workflow escalates to."""

    task: AutoMechanicaEscalationTask | None = None  # type: ignore[assignment]  # in own words


class AutoMechanicaWorkflow(OwnWords, flow_models.WorkflowBody):
    """POST /automechanica/workflows."""

    tasks: list[AutoMechanicaItem] = Field([], max_length=BATCH_MAX, fail_fast=True)  # type: ignore[assignment]  # in own words
    escalate: AutoMechanicaEscalate | None = None


class AutoMechanicaFilter(OwnWords, lease_models.FilterBody):
    """Tasks of these agents that are of these types."""


class AutoMechanicaLease(OwnWords, lease_models.LeaseBody):
    """POST /automechanica/leases."""

    wants: list[AutoMechanicaFilter] | None = Field(  # type: ignore[assignment]  # in own words
        None,
        min_length=1,
        max_length=FILTERS_MAX,
        fail_fast=True,
        description="instead of agent_names and task_types: whatever one of these takes",
    )


class AutoMechanicaHeartbeat(OwnWords, lease_models.HeartbeatBody):
    """POST /automechanica/leases/{id}/heartbeat."""


class AutoMechanicaComplete(OwnWords, lease_models.CompleteBody):
    """POST /automechanica/leases/{id}/complete."""


class AutoMechanicaRelease(OwnWords, lease_models.HeldBody):
    """POST /automechanica/leases/{id}/release."""


class ErrorInfo(NativeBody):
    """The document's error_info."""

    message: lease_models.ErrorText = Field(min_length=1, description="what went wrong")
    code: Action | None = Field(None, description="a name for it, which retryOn can mean")
    details: Annotated[dict[str, Any], AfterValidator(short)] | None = None


class AutoMechanicaFail(AutoMechanicaRelease):
    """POST /automechanica/leases/{id}/fail."""

    errorInfo: ErrorInfo
    retryable: bool | None = Field(None, description="false: trying again cannot help")
    retryAfterMs: int | None = Field(None, ge=0, le=lease_models.RETRY_AFTER_MS_MAX)


class AutoMechanicaRevive(OwnWords, flow_models.ReviveBody):
    """POST /automechanica/dead/{id}/revive."""

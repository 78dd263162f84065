"""The bodies of workflows and dead letters: what comes in natively, checked at the edge."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from rota.config import BATCH_MAX, PAGE_ROWS_MAX
from rota.domain.placeholders import names_in
from rota.domain.workflow import JOINED_MAX
from rota.http.models import (
    Action,
    AgentId,
    BatchItem,
    Key,
    NativeBody,
    OwnId,
    Priority,
    Url,
    one_action,
    short,
)


class FailureBody(NativeBody):
    """How many failed tasks are too many: so many, or such a share of all."""

    count: int | None = Field(None, ge=1, le=JOINED_MAX)
    share: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)

    @model_validator(mode="after")
    def _one_of_them(self) -> FailureBody:
        if (self.count is None) == (self.share is None):
            msg = "give either count or share"
            raise ValueError(msg)
        return self


class EscalationFields(NativeBody):
    """What is said of the task that a workflow escalates to, in every dialect."""

    agentId: AgentId
    action: Action
    params: Annotated[dict[str, Any], AfterValidator(short)] | None = None
    priority: Priority | None = None

    @model_validator(mode="after")
    def _says_what_is_known(self) -> EscalationFields:
        for name in names_in(self.params):
            root, _, rest = name.partition(".")
            if root != "workflow" or rest not in ("", "id", "name", "failed", "total"):
                msg = (
                    f"nothing stands for '{{{{{name[:100]}}}}}'; "
                    "use workflow.id, .name, .failed or .total"
                )
                raise ValueError(msg)
        return self


class EscalationTask(EscalationFields):
    """The task that a workflow escalates to; params may say {{workflow.id}} and the like."""

    type: Action | None = Field(None, description="another name for action")

    _named = model_validator(mode="before")(one_action)


class EscalateBody(NativeBody):
    """Whom a workflow escalates to."""

    task: EscalationTask | None = None
    callback: Url | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> EscalateBody:
        if (self.task is None) == (self.callback is None):
            msg = "give either task or callback"
            raise ValueError(msg)
        return self


class WorkflowBody(NativeBody):
    """POST /v1/workflows: a batch with a name, a rule for failures, and room for more."""

    name: Key | None = None
    workflowId: OwnId | None = Field(None, description="an id of your own choice, such as a UUID")
    tasks: list[BatchItem] = Field([], max_length=BATCH_MAX, fail_fast=True)
    agentId: AgentId | None = Field(None, description="for the items that name none")
    open: bool = Field(False, description="it ends only after it was closed")
    failure: FailureBody | None = Field(None, description="when it counts as failed; one, usually")
    onFailure: Literal["escalate", "cancel", "pause"] | None = Field(
        None, description="what to do as soon as that many have failed"
    )
    escalate: EscalateBody | None = None
    callbackUrl: Url | None = Field(None, description="told once, when it has ended")
    idempotencyKey: Key | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> WorkflowBody:
        if not self.tasks and not self.open:
            msg = "tasks: must not be empty, unless the workflow is open for more"
            raise ValueError(msg)
        if (self.onFailure == "escalate") != (self.escalate is not None):
            msg = "onFailure 'escalate' and the field escalate go together"
            raise ValueError(msg)
        return self


class ReviveBody(NativeBody):
    """POST /v1/dead/{id}/revive."""

    params: dict[str, Any] | None = Field(None, description="to go on with, instead of its own")
    dependents: bool = Field(False, description="also those that its failure cancelled")


class ReviveManyBody(NativeBody):
    """POST /v1/dead/revive: at least one of the filters, or `all`."""

    agentId: AgentId | None = None
    type: Action | None = None
    workflowId: Key | None = None
    code: Key | None = Field(None, description="of the failure, as in its error")
    all: bool = Field(False, description="whatever is dead")
    dependents: bool = False
    limit: int = Field(100, ge=1, le=PAGE_ROWS_MAX, description="how many are tried")
    cursor: Key | None = Field(None, description="the nextCursor of the last answer")

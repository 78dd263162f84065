"""The bodies that come in by a dialect: strict types, unknown fields ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, RootModel, StringConstraints

from rota.config import (
    BROWSEROS_BATCH_MAX,
    BROWSEROS_PARALLELISM_MAX,
    INSTRUCTION_CHARS_MAX,
    PINCHTAB_BATCH_MAX,
)
from rota.domain.plan import TIMEOUT_MS_MAX
from rota.http.models import (
    Action,
    AgentId,
    Dependencies,
    DialectBody,
    Index,
    Key,
    Label,
    OwnId,
    Priority,
    TaskFields,
    TaskId,
    TimeoutMs,
    Url,
    not_blank,
)
from rota.sections import RETRY_ATTEMPTS_MAX, RETRY_MS_MAX

Instruction = Annotated[
    str, StringConstraints(max_length=INSTRUCTION_CHARS_MAX), AfterValidator(not_blank)
]
Word = Literal["critical", "high", "normal", "low"]


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
    tasks: list[PinchTabItem] = Field(min_length=1, max_length=PINCHTAB_BATCH_MAX, fail_fast=True)


class RetryPolicyBody(DialectBody):
    """BrowserOS's `retryPolicy`."""

    maxRetries: int | None = Field(None, ge=0, le=RETRY_ATTEMPTS_MAX - 1)
    backoffMs: int | None = Field(None, ge=0, le=RETRY_MS_MAX)
    backoffMultiplier: float | None = Field(None, ge=1, le=100, allow_inf_nan=False)


class BrowserOSItem(DialectBody):
    """One task of a BrowserOS batch."""

    instruction: Instruction = Field(description="what the agent shall do")
    taskId: OwnId | None = None
    ref: Label | None = Field(None, description="a name for dependsOn: ref:name")
    priority: Word = "normal"
    dependsOn: list[TaskId | Index] = Field([], max_length=1000, fail_fast=True)
    onMissing: Literal["wait", "fail"] = "wait"
    retryPolicy: RetryPolicyBody | None = None
    timeoutMs: TimeoutMs | None = Field(None, description="default 120000, at most 600000")
    timeout: TimeoutMs | None = Field(None, description="another name for timeoutMs")
    webhookUrl: Url | None = None
    llmConfig: dict[str, Any] | None = Field(None, description="merged into the chat request")
    preempt: bool = Field(False, description="may interrupt a less urgent task")


class BrowserOSBody(BrowserOSItem):
    """POST /tasks, BrowserOS's."""

    dependsOn: Dependencies = Field([])  # type: ignore[assignment]  # ids only: a task alone has no neighbours to number
    idempotencyKey: Key | None = None


class BrowserOSBatch(DialectBody):
    """POST /tasks/batch, BrowserOS's: admitted whole or not at all."""

    tasks: list[BrowserOSItem] = Field(min_length=1, max_length=BROWSEROS_BATCH_MAX, fail_fast=True)
    parallelism: int | None = Field(None, ge=1, le=BROWSEROS_PARALLELISM_MAX)
    webhookUrl: Url | None = Field(None, description="told once, when all have ended")
    idempotencyKey: Key | None = None


class BareBody(RootModel[PinchTabBody | BrowserOSBody]):
    """POST /tasks: with `instruction` it is BrowserOS's."""


class BareBatch(RootModel[PinchTabBatch | BrowserOSBatch]):
    """POST /tasks/batch: with `instruction` in its tasks it is BrowserOS's."""


class JobFields(DialectBody):
    """What every BrowserManager job can say of itself, next to its own payload."""

    agentId: AgentId | None = None
    priority: Priority = 2
    idempotencyKey: Key | None = None
    timeoutMs: TimeoutMs | None = None
    timeoutSeconds: Annotated[int | float, Field(gt=0, le=TIMEOUT_MS_MAX / 1000)] | None = Field(
        None, description="the same, in seconds"
    )
    maxRetries: int | None = Field(None, ge=0, le=RETRY_ATTEMPTS_MAX - 1)
    callbackUrl: Url | None = None
    webhookUrl: Url | None = None


class EnvBody(JobFields):
    """POST to a configured path such as /api/env/start; the whole body is the job's payload."""

    id: TaskId | None = Field(None, description="the profile; at most so many jobs of one at once")
    profileId: TaskId | None = None


class JobBody(JobFields):
    """POST /api/jobs: any type of job."""

    jobType: Action | None = Field(
        None, description="a type that is configured; `--preset browsermanager` has the document's"
    )
    type: Action | None = Field(None, description="the same as jobType")
    profileId: TaskId | None = None
    payload: dict[str, Any] | None = None

"""What a worker may say: the bodies of /v1/leases, and what it declares about types.

They are strict, as all native bodies are (`models.py`); what they may be at most is said here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from rota.config import ERROR_CHARS_MAX, ID_CHARS_MAX, WAIT_MS_MAX
from rota.domain.leases import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN
from rota.domain.notes import LINES_MAX
from rota.domain.tokens import RESERVED
from rota.domain.wants import FILTERS_MAX
from rota.http.models import (
    Action,
    AgentId,
    AttemptToken,
    Key,
    Level,
    Line,
    NativeBody,
    Report,
    TimeoutMs,
    short,
)
from rota.sections import LIMIT_MAX, RetrySettings

LeaseMs = Annotated[int, Field(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)]
LeaseId = Annotated[str, StringConstraints(max_length=ID_CHARS_MAX + 30)]
ErrorText = Annotated[str, StringConstraints(max_length=ERROR_CHARS_MAX)]
LEASES_MAX = 1000
DECLARED_ITEMS_MAX = 1000


def _own_name(name: str) -> str:
    """Refuse a name that records have for somebody else."""
    if name in RESERVED:
        msg = f"'{name}' is what rota calls callers itself"
        raise ValueError(msg)
    return name


WorkerId = Annotated[AgentId, AfterValidator(_own_name)]
RETRY_AFTER_MS_MAX = 24 * 3600 * 1000


class FilterBody(NativeBody):
    """Tasks of these agents that are of these types."""

    agents: list[AgentId] | None = Field(None, min_length=1, max_length=100, fail_fast=True)
    types: list[Action] | None = Field(None, min_length=1, max_length=100, fail_fast=True)


class WantsBody(FilterBody):
    """Which tasks a worker wants to take."""

    wants: list[FilterBody] | None = Field(
        None,
        min_length=1,
        max_length=FILTERS_MAX,
        fail_fast=True,
        description="instead of agents and types: whatever one of these takes",
    )
    labels: list[Key] = Field([], max_length=32, fail_fast=True, description="what it has")
    max: int = Field(1, ge=1, le=LEASES_MAX, description="how many tasks at once")
    waitMs: int = Field(0, ge=0, le=WAIT_MS_MAX, description="how long to wait for the first")
    leaseMs: LeaseMs = Field(LEASE_MS, description="how long it may be silent")
    start: bool = Field(False, description="whether it starts them at once")

    @model_validator(mode="after")
    def _said_once(self) -> WantsBody:
        if self.wants is not None and (self.agents is not None or self.types is not None):
            msg = "give either 'wants', or which agents and types, not both"
            raise ValueError(msg)
        return self


class LeaseBody(WantsBody):
    """POST /v1/leases."""

    workerId: WorkerId = Field(description="who asks; the name is yours")


class DeclaredType(NativeBody):
    """What tasks of a type get, unless they or the configuration say otherwise."""

    type: Action
    agents: list[AgentId] | None = Field(
        None, min_length=1, max_length=100, fail_fast=True, description="all, unless given"
    )
    retry: RetrySettings | None = Field(None, description="when to try again")
    timeoutMs: TimeoutMs | None = Field(None, description="how long an attempt may take")
    maxConcurrent: int | None = Field(
        None, ge=1, le=LIMIT_MAX, description="in flight at once: of each agent, or of all"
    )


class DeclareBody(NativeBody):
    """POST /v1/types: what a worker declares beside its functions."""

    types: list[DeclaredType] = Field(max_length=DECLARED_ITEMS_MAX, fail_fast=True)


class HeldBody(NativeBody):
    """What every call about a lease says."""

    token: AttemptToken
    workerId: WorkerId | None = Field(None, description="if given, it must be whose lease it is")


class HeartbeatBody(HeldBody):
    """POST /v1/leases/{id}/heartbeat."""

    leaseMs: LeaseMs | None = Field(None, description="another length from now on")
    waitMs: int = Field(
        0, ge=0, le=WAIT_MS_MAX, description="how long to wait for something to stop"
    )
    holds: list[LeaseId] = Field(
        [], max_length=LEASES_MAX, fail_fast=True, description="other leases that it has"
    )
    progress: Report | None = None
    lines: list[Line] = Field([], max_length=LINES_MAX, fail_fast=True)
    level: Level = "info"


class CompleteBody(HeldBody):
    """POST /v1/leases/{id}/complete."""

    result: Any = None


class FailFields(BaseModel):
    """Why an attempt failed."""

    error: ErrorText = Field("", description="what went wrong")
    code: Action | None = Field(None, description="a name for it, which retryOn can mean")
    retryable: bool | None = Field(None, description="false: trying again cannot help")
    retryAfterMs: int | None = Field(None, ge=0, le=RETRY_AFTER_MS_MAX)
    details: Annotated[dict[str, Any], AfterValidator(short)] | None = None


class FailBody(HeldBody, FailFields):
    """POST /v1/leases/{id}/fail."""

    error: ErrorText = Field(description="what went wrong")


class OutcomeItem(HeldBody, FailFields):
    """What became of one lease."""

    leaseId: LeaseId
    outcome: Literal["complete", "fail", "release"]
    result: Any = None


class SettleBody(NativeBody):
    """POST /v1/leases/settle."""

    workerId: WorkerId
    outcomes: list[OutcomeItem] = Field(max_length=LEASES_MAX, fail_fast=True)
    lease: WantsBody | None = Field(None, description="what to take next, in the same call")

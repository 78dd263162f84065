"""The bodies of what is asked of many tasks, and what is answered: checked at the edge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from rota.domain.task import FAILED, TaskState
from rota.http.models import Action, AgentId, Key, Moment, NativeBody, Priority, Reason

AGE_MS_MAX = 10 * 366 * 86_400_000
CHANGES_MAX = 10_000_000

LiveWord = Literal["blocked", "scheduled", "ready", "assigned", "running"]
LiveStates = Annotated[list[LiveWord], Field(min_length=1, max_length=len(TaskState))]


class BulkBody(NativeBody):
    """Which tasks are meant: those that fit everything that is said; or `all`."""

    agentId: AgentId | None = None
    type: Action | None = None
    batchId: Key | None = None
    workflowId: Key | None = None
    key: Key | None = Field(None, description="the concurrency key")
    olderThanMs: int | None = Field(
        None, ge=0, le=AGE_MS_MAX, description="submitted longer ago than this"
    )
    createdBefore: Moment | None = None
    all: bool = Field(False, description="whatever there is, if nothing else is said")
    dryRun: bool = Field(False, description="only say how many")
    limit: int | None = Field(
        None, ge=1, le=CHANGES_MAX, description="change so many at most; the same again goes on"
    )


class LiveBody(BulkBody):
    """Tasks that have not ended."""

    state: LiveWord | LiveStates | None = Field(None, description="one, or several")

    def states(self) -> frozenset[TaskState] | None:
        """Give the states that are asked for."""
        if self.state is None:
            return None
        words = [self.state] if isinstance(self.state, str) else self.state
        return frozenset(map(TaskState, words))


class CancelManyBody(LiveBody):
    """POST /v1/tasks/cancel."""

    reason: Reason = ""


class ReprioritiseManyBody(LiveBody):
    """POST /v1/tasks/reprioritise."""

    priority: Priority


class RetryManyBody(BulkBody):
    """POST /v1/tasks/retry: only what has failed can be."""

    state: Literal["failed"] | None = None
    code: Key | None = Field(None, description="of the failure, as in its error")

    def states(self) -> frozenset[TaskState]:
        return frozenset({FAILED})


class PriorityBody(NativeBody):
    """POST /v1/tasks/{id}/reprioritise."""

    priority: Priority


class BulkDone(BaseModel):
    """What became of it."""

    matched: int = Field(description="so many fitted, and were not yet as asked for")
    changed: int = Field(description="0 with dryRun")
    refused: dict[str, int] = Field(description="how many were not, by the code that says why")
    more: bool = Field(description="the limit was reached; the same again goes on")
    dryRun: bool


class Reprioritised(BaseModel):
    """A task has another priority."""

    taskId: str
    state: str
    priority: int

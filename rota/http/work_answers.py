"""The shapes that go out to workers and those who orchestrate them, for /openapi.json.

The rest of the native ones are in answers.py.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from rota.http.answers import Problem, TaskError, TaskView  # noqa: TC001 - pydantic reads them


class DeclaredRow(BaseModel):
    """What became of one declaration."""

    type: str
    agentId: str | None = Field(None, description="absent if it is for all agents")
    accepted: bool = Field(description="false: another token declared this type otherwise")


class DeclaredPage(BaseModel):
    """What became of a worker's declarations."""

    types: list[DeclaredRow]
    count: int


class WorkflowSubmitted(BaseModel):
    """The workflow is on disk."""

    workflowId: str
    state: str
    tasks: list[dict[str, Any]]
    createdAt: str
    idempotent: bool | None = None


class WorkflowRow(BaseModel):
    """A workflow in a list."""

    workflowId: str
    name: str | None = None
    state: Literal["running", "paused", "completed", "failed", "cancelled", "escalated"]
    open: bool
    total: int
    counts: dict[str, int]
    progress: float = Field(description="from 0 to 1: how many have ended")
    failure: dict[str, Any]
    onFailure: str | None = None
    escalate: dict[str, Any] | None = None
    escalationTaskId: str | None = None
    pauseReason: str | None = None
    callbackUrl: str | None = None
    createdAt: str
    completedAt: str | None = None


class WorkflowView(WorkflowRow):
    """A workflow, with its tasks and which of them leads to which."""

    tasks: list[dict[str, Any]]
    edges: list[dict[str, str]]
    edgesRest: int | None = Field(None, description="how many more there are")


class WorkflowPage(BaseModel):
    """Some workflows, newest first."""

    workflows: list[WorkflowRow]
    count: int
    nextCursor: str | None = None


class WorkflowState(BaseModel):
    """What became of a workflow."""

    workflowId: str
    state: str


class DeadView(BaseModel):
    """A task that failed for good, until somebody revives it."""

    taskId: str
    agentId: str
    type: str
    error: TaskError
    params: dict[str, Any]
    attempts: int
    failedAt: str
    createdAt: str
    revivals: int = Field(description="how often it was revived already")
    edited: bool | None = None
    workflowId: str | None = None
    batchId: str | None = None


class DeadPage(BaseModel):
    """Some dead tasks, newest failure first."""

    dead: list[DeadView]
    count: int
    nextCursor: str | None = None


class RefusedRevival(BaseModel):
    """A task that was not revived, and why."""

    taskId: str
    code: str
    error: str


class Revived(BaseModel):
    """A task lives again, and with it some that depend on it."""

    taskId: str
    state: str
    edited: bool | None = None
    dependents: list[str] | None = None
    refused: list[RefusedRevival] | None = Field(None, description="dependents that stay cancelled")


class RevivedMany(BaseModel):
    """What became of the dead tasks that were meant."""

    revived: list[str]
    failed: list[RefusedRevival]
    count: int
    dependents: int | None = Field(None, description="how many dependents live again with them")
    more: bool = Field(description="whether there may be more; go on with `nextCursor`")
    nextCursor: str | None = None


class LeaseView(BaseModel):
    """A task that a worker has, until when, and under which token."""

    leaseId: str
    token: int = Field(description="goes with everything that is said of the lease")
    workerId: str
    taskId: str
    attempt: int
    leaseMs: int
    expiresAt: str
    params: dict[str, Any] = Field(description="with the results of parents filled in")
    task: TaskView


class StopView(BaseModel):
    """A lease to stop working on; with `expiresAt` the worker says when it has stopped."""

    leaseId: str
    state: str | None = Field(None, description="of the task, if it is known")
    expiresAt: str | None = None
    code: str | None = Field(None, description="why its attempt has failed, if it has")
    error: str | None = Field(None, description="the same in words")


class LeasePage(BaseModel):
    """The tasks that a worker was given; none when it has waited long enough."""

    leases: list[LeaseView]
    stop: list[StopView] | None = Field(None, description="what it is to stop working on")
    waitReason: str | None = Field(None, description="what holds what it came for, if none")


class HeartbeatView(BaseModel):
    """A lease lives on; or its task was cancelled."""

    leaseId: str
    taskId: str
    state: str
    expiresAt: str | None = None
    cancelRequested: bool
    code: str | None = Field(None, description="why its attempt has failed, if it has")
    error: str | None = Field(None, description="the same in words")
    stop: list[StopView] | None = Field(None, description="other leases to stop working on")


class SettledView(BaseModel):
    """What became of a task."""

    leaseId: str
    taskId: str
    state: str
    nextAttemptAt: str | None = None
    idempotent: bool | None = Field(None, description="the same was said and accepted before")


class SettledItem(BaseModel):
    """What became of one of many; or why it was refused."""

    leaseId: str
    taskId: str | None = None
    state: str | None = None
    nextAttemptAt: str | None = None
    idempotent: bool | None = Field(None, description="the same was said and accepted before")
    code: str | None = None
    error: str | None = None


class SettledPage(BaseModel):
    """What became of many, in their order, and the tasks to work on next."""

    outcomes: list[SettledItem]
    leases: list[LeaseView]
    leaseError: Problem | None = Field(None, description="why none were lent; see the outcomes")
    stop: list[StopView] | None = Field(None, description="what it is to stop working on")
    waitReason: str | None = Field(None, description="what holds what it came for, if none")


class WorkerLease(BaseModel):
    """What a worker holds."""

    leaseId: str
    taskId: str
    agentId: str
    type: str
    expiresAt: str


class WorkerFilter(BaseModel):
    """What a worker takes: tasks of these agents, of these types."""

    agents: list[str] | None = None
    types: list[str] | None = None


class WorkerView(BaseModel):
    """A worker that was heard of."""

    workerId: str
    lastSeen: str
    heartbeatDelayMs: int | None = Field(
        None, description="its longest silence while it held what it holds, if it holds anything"
    )
    waiting: bool
    labels: list[str]
    agents: list[str] | None = None
    types: list[str] | None = None
    wants: list[WorkerFilter] | None = None
    holds: int
    leases: list[WorkerLease]


class WorkerPage(BaseModel):
    """Some workers."""

    workers: list[WorkerView]
    count: int
    nextCursor: str | None = None

"""The shapes that go out natively, for /openapi.json; views.py builds them as plain dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, create_model

from rota.domain.plan import Plan, wishes_of


class Problem(BaseModel):
    """Every error."""

    code: str
    error: str
    retryable: bool = False
    details: dict[str, Any] = {}
    requestId: str = ""


class PlainProblem(BaseModel):
    """Why a request under /projects was not served."""

    error: str = Field(description="what happened, in kebab case")
    message: str


class Envelope(BaseModel):
    """Every answer of BrowserManager's paths, errors too: those have a negative code."""

    code: int
    msg: str
    data: Any
    requestId: str


class Condition(BaseModel):
    """Whether it is well."""

    status: str
    reason: str | None = None


class Submitted(BaseModel):
    """The task is on disk."""

    taskId: str
    state: str
    position: int = Field(description="place in the queue, over all agents")
    createdAt: str
    idempotent: bool | None = Field(None, description="the key stood for this task already")
    deduplicated: bool | None = Field(None, description="an active task of the key stands for it")
    waitReason: str | None = Field(None, description="that nothing here runs tasks of this action")


class BatchSubmitted(BaseModel):
    """The batch is on disk."""

    batchId: str
    tasks: list[dict[str, Any]]
    createdAt: str
    idempotent: bool | None = None


class BatchView(BaseModel):
    """A batch, natively."""

    batchId: str
    state: Literal["running", "finished"]
    total: int
    counts: dict[str, int]
    progress: float = Field(description="from 0 to 1: how many have ended")
    tasks: list[dict[str, Any]]
    createdAt: str
    completedAt: str | None = None
    parallelism: int | None = None
    callbackUrl: str | None = None


class NamespaceView(BaseModel):
    """A namespace, and how it is."""

    name: str
    state: Literal["running", "rebuilding", "read-only", "given up", "stopping"]
    reason: str | None = Field(None, description="why it is not well, if it is not")
    durableSeq: int
    waiting: int | None = None
    inflight: int | None = None


class NamespacePage(BaseModel):
    """The namespaces of this server, the default first."""

    namespaces: list[NamespaceView]
    count: int


class FiguresView(BaseModel):
    """Six figures; an average or a rate of nothing is null, as is all of what is not known."""

    tasks_created: int | None
    tasks_completed: int | None
    tasks_failed: int | None
    average_latency: float | None = Field(description="ms from creation to completion")
    worker_heartbeat_delay: float | None = Field(description="ms of a lease's longest silence")
    error_rate: float | None = Field(description="failed attempts among those that ended")


class DayView(FiguresView):
    """The figures of a day; with `agentId` those of this agent."""

    day: str
    error_rates_per_agent: dict[str, float | None] | None = None
    agents: dict[str, FiguresView] | None = None
    other: FiguresView | None = Field(None, description="of agents that are not named")


class DayPage(BaseModel):
    """Some days, oldest first."""

    days: list[DayView]


class LogLine(BaseModel):
    """A line of a task's log."""

    at: str
    level: str
    message: str
    attempt: int | None = None


class LogPage(BaseModel):
    """A task's log."""

    taskId: str
    lines: list[LogLine]
    count: int
    nextCursor: str | None = None


class TaskError(BaseModel):
    """Why a task failed."""

    code: str
    message: str
    details: dict[str, Any] = {}


class PlainView(BaseModel):
    """A task, natively, but for the wishes that are shown as they are."""

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
    onInterrupt: str | None = None
    callbackUrl: str | None = None
    assignedAt: str | None = None
    startedAt: str | None = None
    completedAt: str | None = None
    latencyMs: int | None = None
    workerId: str | None = Field(None, description="who has it, while a worker does")
    leaseExpiresAt: str | None = None
    interruptions: int | None = None
    result: Any = None
    error: TaskError | None = None
    lastError: TaskError | None = Field(None, description="of the last attempt, while it goes on")
    nextAttemptAt: str | None = Field(None, description="while it is scheduled")
    maxAttempts: int | None = None
    retry: dict[str, Any] | None = None
    dependsOn: list[str] | None = None
    waitingFor: list[str] | None = Field(None, description="the dependencies not yet met")
    waitReason: str | None = Field(
        None, description="the limit or pause that holds it, or that nothing here runs it"
    )
    notBefore: str | None = None
    progress: Any = None
    edited: bool | None = Field(None, description="it was revived with other params")


def wishes_view(plan: type[Any]) -> type[BaseModel]:
    """Make the model of what is shown of the lines of a plan."""
    fields: dict[str, Any] = {
        wish.name: (kind, None) for kind, wish in wishes_of(plan).values() if wish.is_shown
    }
    return create_model("WishesView", **fields)


if TYPE_CHECKING:

    class WishesView(BaseModel):
        """What is shown of the lines of the table."""
else:
    WishesView = wishes_view(Plan)


class TaskView(WishesView, PlainView):
    """A task, natively; absent values are left out."""


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


class HistoryPage(BaseModel):
    """Some events of one thing, oldest first; if there are more, ask again with after=next."""

    events: list[EventView]
    next: int | None = None


class HeadView(BaseModel):
    """The end of the log; keep it elsewhere to prove the history later."""

    seq: int
    digest: str


class TokenView(BaseModel):
    """A token, without its secret."""

    name: str
    principal: str = Field(description="what events say they are `by`: it is this token's alone")
    role: Literal["submit", "work", "orchestrate", "analyse", "audit", "admin"]
    agents: list[str] | None = Field(None, description="those it is for; `*` is all")
    createdAt: str
    createdBy: str
    expiresAt: str | None = None
    expired: bool | None = Field(None, description="true once its time is over")


class TokenMade(BaseModel):
    """A token that was made; its secret is in this answer and nowhere else."""

    name: str
    principal: str = Field(description="what events say they are `by`: it is this token's alone")
    role: Literal["submit", "work", "orchestrate", "analyse", "audit", "admin"]
    agents: list[str] | None = None
    expiresAt: str | None = None
    token: str


class TokenPage(BaseModel):
    """The tokens of a namespace, by name."""

    tokens: list[TokenView]
    count: int
    nextCursor: str | None = None


class TokenGone(BaseModel):
    """A token is revoked."""

    name: str
    revoked: bool

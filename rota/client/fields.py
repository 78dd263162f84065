"""What can be said of a task, a batch, a workflow or a schedule, as types.

The names are the API's in snake_case, and durations are seconds (words.py). A type checker refuses
what is not there; a test compares them with what the server takes.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - whoever reads the hints needs it
from datetime import datetime
from typing import Any, Literal, Required, TypedDict

Moment = str | datetime
"""RFC 3339, or a datetime with its zone."""
Priority = int | Literal["critical", "high", "normal", "low"]
"""Lower is sooner."""
LiveState = Literal["blocked", "scheduled", "ready", "assigned", "running"]
"""Where a task may be that has not ended."""
State = LiveState | Literal["succeeded", "failed", "cancelled", "rejected"]
FlowState = Literal["running", "paused", "completed", "failed", "cancelled", "escalated"]
FlowControl = Literal["cancel", "pause", "resume", "close"]
ScheduleState = Literal["active", "paused", "over", "ahead"]
AgentState = Literal["busy", "waiting", "inflight", "paused"]
Makes = Literal["task", "workflow", "project"]
"""What a schedule makes."""
Level = Literal["debug", "info", "warning", "error"]
View = Literal["native", "browseros", "automechanica"]
"""In whose words an event is told."""
Role = Literal["submit", "work", "orchestrate", "analyse", "audit", "admin"]
"""What a token may do."""


class RetryFields(TypedDict, total=False):
    """When to try a failed attempt again."""

    kind: Literal["exponential", "quadratic", "linear", "fixed"]
    base_s: float
    multiplier: float
    jitter_s: float
    max_s: float
    max_attempts: int
    retry_on: list[str]


class DeclaredType(TypedDict, total=False):
    """What tasks of a type get, of these agents or of all, unless they say otherwise."""

    action: Required[str]
    agents: Sequence[str]
    retry: RetryFields
    timeout_s: float
    max_concurrent: int


class DedupFields(TypedDict, total=False):
    """How a task treats another of the same key."""

    key: Required[str]
    ttl_s: float
    mode: Literal["reject", "return", "replace"]


class CommonFields(TypedDict, total=False):
    """What a task may say wherever it is submitted."""

    params: dict[str, Any] | None
    task_id: str | None
    tab_id: str | None
    ref: str | None
    priority: Priority
    deadline: Moment | None
    not_before: Moment | None
    delay_s: float | None
    timeout_s: float | None
    queue_timeout_s: float | None
    retry: RetryFields | None
    on_interrupt: Literal["retry", "fail"] | None
    on_missing: Literal["wait", "fail"]
    requires: Sequence[str] | None
    key: str | None
    preempt: bool
    workflow_id: str | None
    callback_url: str | None


class TaskFields(CommonFields, total=False):
    """What a task may say beside its action and its agent."""

    depends_on: Sequence[str]
    dedup: DedupFields | None
    idempotency_key: str | None


class TaskBody(TaskFields, total=False):
    """A task among several."""

    action: Required[str]
    agent: str


class GraphTask(CommonFields, total=False):
    """A task of a batch or a workflow.

    `ref` is its name for others, who say `"ref:name"`, or its index, in their depends_on.
    """

    action: Required[str]
    agent: str
    depends_on: Sequence[str | int]


class BatchFields(TypedDict, total=False):
    """What a batch may say beside its tasks."""

    agent: str | None
    parallelism: int | None
    callback_url: str | None
    idempotency_key: str | None


class BatchBody(BatchFields, total=False):
    """A batch with its tasks."""

    tasks: Sequence[GraphTask]


class FailureFields(TypedDict, total=False):
    """How many failed tasks are too many: so many, or such a share of all."""

    count: int
    share: float


class EscalationTask(TypedDict, total=False):
    """The task that a workflow escalates to."""

    agent: Required[str]
    action: Required[str]
    params: dict[str, Any] | None
    priority: Priority | None


class EscalateFields(TypedDict, total=False):
    """Whom a workflow escalates to: a task, or a callback."""

    task: EscalationTask
    callback: str


class WorkflowFields(TypedDict, total=False):
    """What a workflow may say beside its tasks."""

    name: str | None
    workflow_id: str | None
    agent: str | None
    open: bool
    failure: FailureFields | None
    on_failure: Literal["escalate", "cancel", "pause"] | None
    escalate: EscalateFields | None
    callback_url: str | None
    idempotency_key: str | None


class WorkflowBody(WorkflowFields, total=False):
    """A workflow as a schedule makes it."""

    tasks: Sequence[GraphTask]


class ItemFields(TaskFields, total=False):
    """A task on a project's list; `before` is the task that it goes before."""

    agent: str | None
    before: str | None


class ItemBody(TaskFields, total=False):
    """A task among several that are put on a project's list."""

    action: Required[str]
    agent: str | None


class ItemsBody(TypedDict, total=False):
    """Several tasks that are put on a project's list."""

    tasks: Sequence[ItemBody]
    agent: str | None
    before: str | None
    idempotency_key: str | None


class ItemChanges(CommonFields, total=False):
    """What changes of a task that has not started; its place is `before` another, or a number."""

    action: str
    before: str | None
    position: int


class ProjectStart(TypedDict, total=False):
    """A run of a project."""

    id: Required[str]
    mode: Literal["single", "loop"]


class ScheduleChanges(TypedDict, total=False):
    """What a schedule may say; what it makes is one of task, workflow and project."""

    cron: str
    task: TaskBody
    workflow: WorkflowBody
    project: ProjectStart
    timezone: str
    catch_up: Literal["none", "last", "all"]
    overlap: Literal["skip", "queue", "cancel"]
    jitter_s: float | None
    start_at: Moment | None
    end_at: Moment | None


class ScheduleFields(TypedDict, total=False):
    """What a new schedule may say beside its name and its cron expression."""

    task: TaskBody | None
    workflow: WorkflowBody | None
    project: ProjectStart | None
    timezone: str
    catch_up: Literal["none", "last", "all"]
    overlap: Literal["skip", "queue", "cancel"]
    paused: bool
    jitter_s: float | None
    start_at: Moment | None
    end_at: Moment | None


class Want(TypedDict, total=False):
    """Tasks of these agents that are of these actions."""

    agents: Sequence[str]
    actions: Sequence[str]


class Outcome(TypedDict, total=False):
    """What became of a lease."""

    lease_id: Required[str]
    token: Required[int]
    outcome: Required[Literal["complete", "fail", "release"]]
    result: Any
    error: str
    code: str | None
    retryable: bool | None
    retry_after_s: float | None
    details: dict[str, Any] | None


class Filters(TypedDict, total=False):
    """Which tasks are meant: those that fit all that is said; or `everything`.

    `older_than_s` counts since the submission. With `dry_run` nothing is changed.
    """

    agent: str | None
    action: str | None
    batch_id: str | None
    workflow_id: str | None
    key: str | None
    older_than_s: float | None
    created_before: Moment | None
    everything: bool | None
    dry_run: bool | None
    limit: int | None


class Limits(TypedDict, total=False):
    """The scheduler's settings that can be changed while it runs."""

    strategy: Literal["fair-fifo", "priority-fifo"]
    max_queue_size: int
    max_queue_bytes: int
    max_per_agent: int
    max_inflight: int
    max_per_agent_inflight: int
    max_per_key: int
    worker_count: int
    aging_s: float
    sticky_s: float
    result_ttl_s: int
    max_ended_tasks: int
    max_ended_bytes: int
    max_log_bytes_per_minute: int
    start_paused: bool

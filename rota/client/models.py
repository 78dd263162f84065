"""What a server answers, as frozen dataclasses.

The names are the API's in snake_case, durations are seconds, moments are datetimes (words.py makes
all of it). A field that a newer server adds is left out; what a server does not say is at its
default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - words.reader evaluates the hints
from typing import Any, TypeVar, dataclass_transform

from rota.client.fields import (  # noqa: TC001 - likewise
    EscalateFields,
    FailureFields,
    RetryFields,
)
from rota.client.words import reader
from rota.errors import NoResult, TaskCancelled, TaskFailed, TaskRejected

C = TypeVar("C")
Json = dict[str, Any]
ENDED = frozenset({"succeeded", "failed", "cancelled", "rejected"})
NO_RESULT = {
    "failed": ("has failed", TaskFailed),
    "cancelled": ("was cancelled", TaskCancelled),
    "rejected": ("was rejected", TaskRejected),
}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def model(cls: type[C]) -> type[C]:
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


# -- tasks


@model
class TaskError:
    """Why an attempt failed."""

    code: str
    message: str
    details: Json | None = None


@model
class Submitted:
    """A task that is on disk; with `code` and `error`, one among several that was refused."""

    task_id: str = ""
    state: str = ""
    position: int = 0
    created_at: datetime | None = None
    idempotent: bool = False
    deduplicated: bool = False
    wait_reason: str | None = None
    code: str | None = None
    error: str | None = None
    details: Json | None = None


@model
class Task:
    """A task as it is now, or as it was."""

    task_id: str
    agent: str = ""
    action: str = ""
    state: str = ""
    priority: int = 2
    executor: str = ""
    dialect: str = "native"
    attempt: int = 0
    created_at: datetime | None = None
    position: int | None = None
    tab_id: str | None = None
    ref: str | None = None
    params: Json | None = None
    deadline: datetime | None = None
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    on_interrupt: str | None = None
    callback_url: str | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    latency_s: float | None = None
    worker_id: str | None = None
    lease_expires_at: datetime | None = None
    interruptions: int = 0
    result: Any = None
    error: TaskError | None = None
    last_error: TaskError | None = None
    next_attempt_at: datetime | None = None
    max_attempts: int | None = None
    retry: RetryFields | None = None
    depends_on: list[str] | None = None
    waiting_for: list[str] | None = None
    wait_reason: str | None = None
    not_before: datetime | None = None
    progress: Any = None
    edited: bool = False
    key: str | None = None
    preempt: bool = False
    requires: list[str] | None = None
    idempotency_key: str | None = None
    dedup_key: str | None = None
    batch_id: str | None = None
    workflow_id: str | None = None
    follows_task_id: str | None = None
    project: str | None = None
    run_id: str | None = None
    schedule: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def value(self) -> Any:
        """Give the result. Raises NoResult that says what became of it, if it has none."""
        if self.state == "succeeded":
            return self.result
        became, kind = NO_RESULT.get(self.state, (f"is {self.state}", NoResult))
        if self.error is None:
            raise kind(f"{self.task_id} {became}", self)
        error = kind(f"{self.task_id} {became}: {self.error.message}", self, code=self.error.code)
        error.details = self.error.details or {}
        raise error


def read_task(answer: Json) -> Task:
    """Make a task of what a server says of it."""
    read = reader(Task)
    assert read is not None
    task: Task = read(answer)
    return task


@model
class TaskState:
    """What became of a task."""

    task_id: str
    state: str = ""
    priority: int | None = None
    project: str | None = None


@model
class TaskPage:
    """Some tasks, newest first; `next_cursor` leads to the next page."""

    tasks: list[Task]
    next_cursor: str | None = None


@model
class LogLine:
    """A line of a task's log."""

    at: datetime
    level: str
    message: str
    attempt: int | None = None


@model
class LogPage:
    """Some lines of a task's log, oldest first."""

    lines: list[LogLine]
    next_cursor: str | None = None


@model
class Changed:
    """What became of many tasks at once."""

    matched: int
    changed: int
    refused: dict[str, int]
    more: bool = False
    dry_run: bool = False


# -- batches and workflows


@model
class Member:
    """A task of a batch or a workflow."""

    task_id: str
    state: str = ""
    agent: str | None = None
    action: str | None = None
    ref: str | None = None
    follows_task_id: str | None = None


@model
class SubmittedBatch:
    """A batch that is on disk, with its tasks in their order."""

    batch_id: str
    tasks: list[Member]
    created_at: datetime | None = None
    idempotent: bool = False


@model
class Batch:
    """A batch as it is now."""

    batch_id: str
    state: str
    total: int
    counts: dict[str, int]
    progress: float
    tasks: list[Member]
    created_at: datetime
    completed_at: datetime | None = None
    parallelism: int | None = None
    callback_url: str | None = None


@model
class CancelledBatch:
    """How many tasks of a batch were cancelled."""

    batch_id: str
    cancelled: int


@model
class SubmittedWorkflow:
    """A workflow that is on disk, with its tasks in their order."""

    workflow_id: str
    state: str
    tasks: list[Member]
    created_at: datetime | None = None
    idempotent: bool = False


@model
class Workflow:
    """A workflow as it is now; tasks and edges are those of one that was asked for by its id."""

    workflow_id: str
    state: str
    open: bool
    total: int
    counts: dict[str, int]
    progress: float
    created_at: datetime
    name: str | None = None
    failure: FailureFields | None = None
    on_failure: str | None = None
    escalate: EscalateFields | None = None
    escalation_task_id: str | None = None
    pause_reason: str | None = None
    callback_url: str | None = None
    completed_at: datetime | None = None
    tasks: list[Member] | None = None
    edges: list[dict[str, str]] | None = None
    edges_rest: int = 0


@model
class WorkflowPage:
    """Some workflows, newest first."""

    workflows: list[Workflow]
    next_cursor: str | None = None


@model
class WorkflowState:
    """What became of a workflow."""

    workflow_id: str
    state: str


# -- what has happened


@model
class Event:
    """A fact; `data` has the words of the log."""

    seq: int
    at: datetime
    kind: str
    data: Json
    task_id: str | None = None
    agent: str | None = None
    by: str | None = None
    cause: int | None = None
    v: int = 1


@model
class EventPage:
    """Some events, oldest first; ask again with after=next."""

    events: list[Event]
    next: int
    head: int


@model
class Head:
    """The end of the log; keep it elsewhere to prove the history later."""

    seq: int
    digest: str


# -- dead letters


@model
class DeadTask:
    """A task that failed for good, until somebody revives it."""

    task_id: str
    agent: str
    action: str
    error: TaskError
    params: Json
    attempts: int
    failed_at: datetime
    created_at: datetime
    revivals: int = 0
    edited: bool = False
    workflow_id: str | None = None
    batch_id: str | None = None


@model
class DeadPage:
    """Some dead tasks, newest failure first."""

    dead: list[DeadTask]
    next_cursor: str | None = None


@model
class RefusedRevival:
    """A task that was not revived, and why."""

    task_id: str
    code: str
    error: str


@model
class Revived:
    """A task lives again, and with it some that depend on it."""

    task_id: str
    state: str
    edited: bool = False
    dependents: list[str] | None = None
    refused: list[RefusedRevival] | None = None


@model
class RevivedMany:
    """What became of the dead tasks that were meant."""

    revived: list[str]
    failed: list[RefusedRevival]
    count: int
    dependents: int | None = None
    more: bool = False
    next_cursor: str | None = None

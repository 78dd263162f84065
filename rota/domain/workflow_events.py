"""The facts about batches and workflows: how they began, what failures led to, how they ended.

They are named among the others in events.py, which is what everybody imports. Tasks belong to a
workflow by their own records.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class BatchSubmitted(NamedTuple):
    """A batch was admitted whole; its tasks' own records follow this one."""

    batch: str
    tasks: list[str]
    dialect: str = "native"
    parallelism: int | None = None
    callback: str | None = None
    idempotency: str | None = None
    digest: str | None = None


class BatchRejected(NamedTuple):
    """Admission refused a batch whole; none of its tasks exists."""

    batch: str
    size: int
    code: str
    error: str


class BatchFinished(NamedTuple):
    """Every task of the batch has ended; so many in each way."""

    batch: str
    succeeded: int
    failed: int
    cancelled: int


class WorkflowSubmitted(NamedTuple):
    """A workflow began; the records of its first tasks, `size` of them, follow this one.

    `failure` is the threshold of failed tasks ({count} or {share}) and `on_failure` what is done
    when it is crossed; `escalate` is the task, or the callback, of an escalation. Its callbacks are
    in the words of the `dialect`, if it names one.
    """

    workflow: str
    size: int
    name: str | None = None
    open: bool | None = None
    failure: dict[str, Any] | None = None
    on_failure: str | None = None
    escalate: dict[str, Any] | None = None
    callback: str | None = None
    idempotency: str | None = None
    digest: str | None = None
    dialect: str | None = None


class WorkflowTripped(NamedTuple):
    """So many of its tasks had failed that the rule for that was followed: `action`.

    With `cancel` the rest of it is cancelled, with `pause` nothing more of it is dispatched, and
    with `escalate` a task was submitted, the `escalation`, or a callback is owed.
    """

    workflow: str
    action: str
    failed: int
    total: int
    escalation: str | None = None


class WorkflowPaused(NamedTuple):
    """Somebody paused the workflow: none of its tasks is dispatched until it is resumed."""

    workflow: str
    reason: str = ""


class WorkflowResumed(NamedTuple):
    """Its tasks may be dispatched again."""

    workflow: str


class WorkflowClosed(NamedTuple):
    """It stays open no longer: it ends with the last of its tasks."""

    workflow: str


class WorkflowCancelled(NamedTuple):
    """Somebody cancelled the workflow; what has not ended of it is cancelled after this."""

    workflow: str
    reason: str = ""


class WorkflowEnded(NamedTuple):
    """All of its `tasks` have ended, so many in each way, and so has the workflow.

    `tripped` is what was done about failures in it, if anything was.
    """

    workflow: str
    state: str
    tasks: list[str]
    succeeded: int
    failed: int
    cancelled: int
    tripped: str | None = None

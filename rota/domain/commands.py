"""The requests: what somebody wants, in the imperative.

A command is complete: what was not said is filled in (rota.domain.intake), times are microseconds,
the executor is resolved. Whether it is granted is decided by the functions of this room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.domain.plan import NO_PLAN, Plan
from rota.domain.tokens import ROTA

INFLIGHT_LIMIT = "inflight"
AGENT_LIMIT = "agent:"
PUSH_LIMIT = "push"
PULL = "pull"
BROWSERS_LIMIT = "browsers"
"""Bounds the BrowserManager jobs that use a browser while they run; see rota.domain.browsers."""
BROWSER_TYPES = ("script_run",)


class Dedup(NamedTuple):
    """How a task treats another of the same dedup key.

    The other counts while it is active, and for `ttl_us` from its submission.
    """

    key: str
    ttl_us: int = 0
    mode: str = "reject"


class SubmitTask(NamedTuple):
    """Admit one task.

    What each field means is said where it is asked for (rota.domain.intake.Request). A
    `plan.delay_ms` counts from the admission, in place of a `plan.not_before`.
    """

    agent: str
    action: str
    executor: str
    params: dict[str, Any] | None = None
    priority: int = 2
    dialect: str = "native"
    tab: str | None = None
    ref: str | None = None
    callback: str | None = None
    deadline: int | None = None
    timeout_ms: int | None = None
    on_interrupt: str | None = None
    by: str = ROTA
    wanted_id: str | None = None
    depends: tuple[str | int, ...] = ()
    on_missing: str = "wait"
    dedup: Dedup | None = None
    plan: Plan = NO_PLAN


class Flow(NamedTuple):
    """What makes a workflow of a batch: a name, whether more may join, and what failures mean."""

    name: str | None = None
    is_open: bool = False
    failure: dict[str, Any] | None = None
    on_failure: str | None = None
    escalate: dict[str, Any] | None = None


class SubmitBatch(NamedTuple):
    """Admit these tasks together, all or none; with a `flow` as a workflow."""

    tasks: tuple[SubmitTask, ...]
    dialect: str = "native"
    parallelism: int | None = None
    callback: str | None = None
    by: str = ROTA
    idempotency: str | None = None
    digest: str | None = None
    flow: Flow | None = None
    wanted_id: str | None = None


class Outcome(NamedTuple):
    """What became of one attempt, as its executor tells it.

    `retryable` is the executor's own word on whether trying again can help; None leaves it to the
    task's policy. `retry_after_s` is the least pause that it asks for, of a worker the
    pause itself.
    """

    ok: bool
    result: Any = None
    code: str = ""
    error: str = ""
    details: dict[str, Any] | None = None
    retry_after_s: float | None = None
    retryable: bool | None = None


SETTINGS = {
    "queued": "maxQueueSize",
    "queued_per_agent": "maxPerAgent",
    "inflight": "maxInflight",
    "inflight_per_agent": "maxPerAgentInflight",
    "push": "workerCount",
    "result_ttl_s": "resultTTLSec",
    "strategy": "strategy",
    "types": "types",
    "per_key": "maxPerKey",
    "aging_ms": "agingMs",
    "browsers": "maxConcurrentBrowsers",
    "queued_bytes": "maxQueueBytes",
    "ended": "maxEndedTasks",
    "ended_bytes": "maxEndedBytes",
    "sticky_ms": "stickyMs",
    "projects": "maxConcurrentProjects",
    "project_items": "maxItems",
    "run_timeout_ms": "runTimeoutMs",
    "written_per_minute": "maxLogBytesPerMinute",
}
"""The name of each limit in the configuration, which is how people know it."""


class Limits(NamedTuple):
    """The numbers that admission, dispatch and retention go by; changed only by an event.

    `queued_bytes`, `ended` and `ended_bytes` are 0 for no bound, as in logs that were written
    before there were any. For `sticky_ms` a task that is ready waits for the
    worker that had its key last. Runs of so many `projects` are in progress at once, 0 for any
    number; a list has so many `project_items`; a run that makes no progress for `run_timeout_ms`
    ends, 0 for never. All callers may have so many bytes `written_per_minute` to the log, each a
    share of that; 0 for no bound.
    """

    queued: int = 1000
    queued_per_agent: int = 100
    inflight: int = 20
    inflight_per_agent: int = 10
    push: int = 4
    result_ttl_s: int = 300
    strategy: str = "fair-fifo"
    types: tuple[tuple[str, int], ...] = ()
    per_key: int = 1
    aging_ms: int = 0
    browsers: int = 0
    queued_bytes: int = 0
    ended: int = 0
    ended_bytes: int = 0
    sticky_ms: int = 0
    projects: int = 0
    project_items: int = 1000
    run_timeout_ms: int = 0
    written_per_minute: int = 0

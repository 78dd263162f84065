"""The requests: what somebody wants, in the imperative.

A command is complete and validated in shape when it gets here: defaults of its dialect are
filled in, times are microseconds, the executor is resolved. Whether it is granted is decided by
the functions of this room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

PUSH_LIMIT = "push"
PULL = "pull"


class SubmitTask(NamedTuple):
    """Admit one task."""

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
    by: str = ""


class Outcome(NamedTuple):
    """What became of one attempt, as its executor tells it."""

    ok: bool
    result: Any = None
    code: str = ""
    error: str = ""
    details: dict[str, Any] | None = None


SETTINGS = {
    "queued": "maxQueueSize",
    "queued_per_agent": "maxPerAgent",
    "inflight": "maxInflight",
    "inflight_per_agent": "maxPerAgentInflight",
    "push": "workerCount",
    "result_ttl_s": "resultTTLSec",
    "strategy": "strategy",
    "types": "types",
}
"""The name of each limit in the configuration, which is how people know it."""


class Limits(NamedTuple):
    """The numbers that admission and dispatch go by; changed only by an event."""

    queued: int = 1000
    queued_per_agent: int = 100
    inflight: int = 20
    inflight_per_agent: int = 10
    push: int = 4
    result_ttl_s: int = 300
    strategy: str = "fair-fifo"
    types: tuple[tuple[str, int], ...] = ()

"""Decide: what becomes of a task that a worker has come for.

A lease is an attempt that is lent: it is named after the fencing token and the task, so whoever
holds its name can be told what became of it for ever. It lives as long as the worker is heard of in
time. Being heard of is no fact; what an auditor wants of it is written when the lease ends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.notes import STALE
from rota.domain.project import decide_return
from rota.domain.task import CANCELLED, IN_FLIGHT, LEASE_EXPIRED
from rota.domain.tokens import ROTA
from rota.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.domain.commands import Outcome
    from rota.domain.project_parts import Project
    from rota.domain.task import Task

LEASE_MS = 30_000
LEASE_MS_MIN = 1000
LEASE_MS_MAX = 3_600_000

_ENDS = (e.TaskSucceeded, e.TaskFailed, e.AttemptFailed, e.AttemptInterrupted)
LEASE = "lse_"
_ID = re.compile(LEASE + r"([1-9][0-9]{0,18})_(.+)", re.DOTALL)


def lease_id(task_id: str, token: int) -> str:
    return f"{LEASE}{token}_{task_id}"


def named_by(name: str) -> tuple[str, int]:
    """Give the task and the token of a lease. Raises NotFound if it can be no lease's name."""
    found = _ID.fullmatch(name)
    if found is None:
        raise no_lease(name)
    return found[2], int(found[1])


def no_lease(name: str) -> NotFound:
    return NotFound("lease not found", details={"leaseId": name[:200]})


class Lease:
    """A lease that lives: until when, and how its worker was heard of."""

    __slots__ = (
        "agent",
        "expires_at",
        "extended",
        "gap_us",
        "is_told",
        "lease_ms",
        "seen_at",
        "task",
        "type",
        "worker",
    )

    def __init__(self, task: Task, now: int) -> None:
        """Let it live for its full length from now on."""
        self.task = task.id
        self.agent = task.agent
        self.type = task.action
        self.worker = task.worker or ""
        self.lease_ms = task.lease_ms
        self.seen_at = now
        self.expires_at = now + task.lease_ms * 1000
        self.gap_us = 0
        self.extended = 0
        self.is_told = False

    def extend(self, now: int, lease_ms: int | None) -> None:
        """Take note that the worker was heard of."""
        self.gap_us = max(self.gap_us, now - self.seen_at)
        self.seen_at = now
        self.extended += 1
        if lease_ms is not None:
            self.lease_ms = lease_ms
        self.expires_at = now + self.lease_ms * 1000

    def carry_over(self, by_us: int) -> None:
        """Tell its moments by a clock that was set by so much."""
        self.seen_at += by_us
        self.expires_at += by_us

    def ended(self, attempt: int, how: str, now: int) -> tuple[e.LeaseEnded, ...]:
        """Say how the worker was heard of, if there is anything to say."""
        if not self.extended:
            return ()
        gap_ms = max(self.gap_us, now - self.seen_at) // 1000
        head = (self.task, self.agent, attempt, self.worker)
        return (e.LeaseEnded(*head, how, self.seen_at, gap_ms, self.extended),)


def check_held(task: Task, name: str, token: int, worker: str | None = None) -> None:
    """Refuse whoever does not hold this lease. Raises NotFound or Conflict.

    A token that is ahead of the task's, or an attempt that was lent to nobody, is no lease.
    """
    if token > task.token or (token == task.token and task.worker is None):
        raise no_lease(name)
    if token != task.token or task.state not in IN_FLIGHT:
        raise stale(task, "the lease is over: it has expired, or the task has ended")
    if worker is not None and worker != task.worker:
        raise stale(task, "the lease is another worker's")


def stale(task: Task, msg: str) -> Conflict:
    details = {"taskId": task.id, "state": task.state.value, "attempt": task.attempt}
    return Conflict(msg, code=STALE, details=details, hint="stop working on it")


def over_and_gone(task_id: str) -> Conflict:
    details = {"taskId": task_id}
    msg = "the lease is over: the task has ended"
    return Conflict(msg, code=STALE, details=details, hint="stop working on it")


def was_accepted(
    records: Iterable[e.Record[Any]], token: int, said: Outcome | None, by: str | None
) -> bool:
    """Whether a lease ended by this very outcome: said again, it is no late one.

    `records` are the task's after `token`. `by` is who says it; None if it does not say.
    """
    for record in records:
        event = record.event
        if record.cause == token and isinstance(event, _ENDS):
            is_theirs = record.by != ROTA and by in (None, record.by)
            return is_theirs and _says(event, said)
        if isinstance(event, e.TaskAssigned):
            break  # the next attempt
    return False


def _says(event: e.Event, said: Outcome | None) -> bool:
    if said is None:
        return isinstance(event, e.AttemptInterrupted)
    if said.ok:
        return isinstance(event, e.TaskSucceeded) and event.result == said.result
    if not isinstance(event, e.TaskFailed | e.AttemptFailed):
        return False
    return (event.code, event.error, event.details) == (said.code, said.error, said.details)


def is_cancelled(task: Task, token: int) -> bool:
    """Whether the task was cancelled under this very lease."""
    return task.state is CANCELLED and task.token == token and task.worker is not None


def decide_lease_expiry(
    task: Task, lease: Lease, now: int, project: Project | None = None, why: str | None = None
) -> tuple[e.Event, ...]:
    """End a lease whose worker was silent for too long; the task waits again, or fails.

    A stop of its `project` takes it back; `why` says why it is being cut off, if it is.
    """
    gap_ms = max(lease.gap_us, now - lease.seen_at) // 1000
    head = (task.id, task.agent, task.attempt, lease.worker)
    expired = e.LeaseExpired(*head, lease.seen_at, gap_ms, lease.extended)
    return (expired, *decide_return(task, LEASE_EXPIRED, project, why))

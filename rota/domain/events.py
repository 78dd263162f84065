"""The facts: everything that ever happened, in the past tense.

An event is an immutable tuple with a `kind` (its name on disk) and a version `v`. Fields with a
default may be absent on disk; a new optional field needs no new version, any other change does
(docs/log_format.md). Facts about a task carry `task` and `agent` first. A `Record` is an event
with its place in the log. Nothing here decides or does anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ServerStarted(NamedTuple):
    """A server opened the log; `settings` are the limits in force from here on.

    `resumed` marks one that had it open already and went on after the log had failed.
    """

    version: str
    settings: dict[str, Any]
    replayed_to: int = 0
    resumed: bool | None = None


class ServerStopped(NamedTuple):
    """A server closed the log in good order."""

    reason: str


class ConfigChanged(NamedTuple):
    """Limits changed at run time; `settings` is the whole set in force from here on."""

    settings: dict[str, Any]
    changed: list[str]
    source: str


class ActorFailed(NamedTuple):
    """A handler raised; its actor was restarted from the projections."""

    actor: str
    message: str
    error: str


class AgentPaused(NamedTuple):
    """No task of this agent is dispatched until it is resumed."""

    agent: str
    reason: str = ""


class AgentResumed(NamedTuple):
    """The agent's tasks may be dispatched again."""

    agent: str


class TaskSubmitted(NamedTuple):
    """A task was admitted to its agent's queue."""

    task: str
    agent: str
    action: str
    executor: str
    position: int
    priority: int = 2
    params: dict[str, Any] | None = None
    dialect: str = "native"
    tab: str | None = None
    ref: str | None = None
    callback: str | None = None
    deadline: int | None = None
    timeout_ms: int | None = None
    on_interrupt: str | None = None


class TaskRejected(NamedTuple):
    """Admission refused a task; it never enters a queue."""

    task: str
    agent: str
    action: str
    code: str
    error: str
    priority: int = 2
    params: dict[str, Any] | None = None
    dialect: str = "native"
    tab: str | None = None
    ref: str | None = None
    callback: str | None = None
    deadline: int | None = None


class TaskAssigned(NamedTuple):
    """A slot was taken for the task; this record's seq is the attempt's fencing token."""

    task: str
    agent: str
    attempt: int


class TaskStarted(NamedTuple):
    """The attempt began to execute."""

    task: str
    agent: str
    attempt: int


class TaskSucceeded(NamedTuple):
    """The attempt ended well."""

    task: str
    agent: str
    attempt: int
    result: Any = None


class TaskFailed(NamedTuple):
    """The task ended in failure, and will not be tried again by itself."""

    task: str
    agent: str
    attempt: int
    code: str
    error: str
    details: dict[str, Any] | None = None


class TaskExpired(NamedTuple):
    """The task failed because a clock ran out while it waited; `clock` says which."""

    task: str
    agent: str
    clock: str
    error: str


class TaskCancelled(NamedTuple):
    """Somebody cancelled the task; `was` is the state it was in."""

    task: str
    agent: str
    was: str
    reason: str = ""


class AttemptInterrupted(NamedTuple):
    """The server went away under the attempt; the task waits again and no attempt is spent."""

    task: str
    agent: str
    attempt: int
    reason: str


class ResultRefused(NamedTuple):
    """A result came for an attempt that is no longer the valid one."""

    task: str
    agent: str
    attempt: int
    outcome: str


class DeliverySucceeded(NamedTuple):
    """The callback was delivered."""

    task: str
    agent: str
    delivery: str
    number: int
    status: int


class DeliveryFailed(NamedTuple):
    """A try to deliver the callback failed; the next is due at `next_at`."""

    task: str
    agent: str
    delivery: str
    number: int
    status: int
    error: str
    next_at: int


class DeliveryAbandoned(NamedTuple):
    """The callback was given up."""

    task: str
    agent: str
    delivery: str
    number: int
    status: int
    error: str


Event = (
    ServerStarted
    | ServerStopped
    | ConfigChanged
    | ActorFailed
    | AgentPaused
    | AgentResumed
    | TaskSubmitted
    | TaskRejected
    | TaskAssigned
    | TaskStarted
    | TaskSucceeded
    | TaskFailed
    | TaskExpired
    | TaskCancelled
    | AttemptInterrupted
    | ResultRefused
    | DeliverySucceeded
    | DeliveryFailed
    | DeliveryAbandoned
)
"""Every kind of fact; the codec's tables are made from this union."""


class Record(NamedTuple):
    """An event in its place: who caused it, when, and after what."""

    seq: int
    at: int
    event: Event
    by: str = ""
    cause: int = 0

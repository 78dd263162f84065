"""What actors tell each other: frozen, in the imperative or as news.

A message that wants an answer carries a `Reply`; nobody asks and waits. Only values go in: ids,
numbers, commands; the receiver looks the rest up in the projections, where it is newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from rota.domain.commands import Limits, Outcome, SubmitTask
    from rota.domain.delivery import DeliveryReport
    from rota.domain.task import Lane
    from rota.errors import RotaError


class Reply(Protocol):
    """Where an answer goes; it is given once, after the facts behind it are durable."""

    def ok(self, value: Any) -> None:
        """Answer."""
        ...

    def fail(self, error: RotaError) -> None:
        """Answer that it was not done."""
        ...


# -- to the AdmissionActor


class SubmitTasks(NamedTuple):
    """Admit these tasks, each on its own; the reply is a list of `Admitted | Refused`."""

    commands: tuple[SubmitTask, ...]
    reply: Reply


class Admitted(NamedTuple):
    """One task was taken."""

    task: str
    position: int
    created_at: int


class Refused(NamedTuple):
    """One task was not taken."""

    task: str
    created_at: int
    code: str
    error: str
    details: dict[str, Any]


class ChangeLimits(NamedTuple):
    """Put other limits in force."""

    limits: Limits
    source: str
    by: str
    reply: Reply


# -- to a QueueActor


class TaskWaits(NamedTuple):
    """A task entered this lane."""

    lane: Lane
    task: str


class TaskLeft(NamedTuple):
    """A task left this lane without being dispatched."""

    lane: Lane


class CancelTask(NamedTuple):
    """Cancel a task of this agent; the reply is its id."""

    task: str
    reason: str
    by: str
    reply: Reply


class ExpireTask(NamedTuple):
    """The task's deadline has come."""

    task: str


class PauseAgent(NamedTuple):
    """Dispatch nothing of this agent."""

    reason: str
    by: str
    reply: Reply


class ResumeAgent(NamedTuple):
    """Dispatch this agent's tasks again."""

    by: str
    reply: Reply


# -- to the DispatcherActor


class HeadChanged(NamedTuple):
    """Another task is first in this lane, or none."""

    agent: str
    lane: Lane


class SlotFreed(NamedTuple):
    """A task of this lane gave its slot back."""

    agent: str
    lane: Lane


class AgentReleased(NamedTuple):
    """The agent was resumed."""

    agent: str


class LookAgain(NamedTuple):
    """Something changed that may let tasks through: limits, or a start."""


class Drain(NamedTuple):
    """Start nothing new: the server is stopping."""


# -- to the WorkerPool


class StartAttempt(NamedTuple):
    """Execute the task's attempt; its assignment is durable."""

    task: str
    token: int


class AbortAttempt(NamedTuple):
    """Stop executing any attempt assigned before `seq`: the task ended there without it."""

    task: str
    seq: int
    reason: str


class AttemptEnded(NamedTuple):
    """An executor is done."""

    task: str
    attempt: int
    token: int
    outcome: Outcome


class TimeOutAttempt(NamedTuple):
    """The attempt's own timeout has come."""

    task: str
    token: int


# -- to the WebhookActor


class DeliverCallback(NamedTuple):
    """Deliver the task's callback now; the task's end is durable."""

    task: str


class CallbackReported(NamedTuple):
    """A try to deliver has ended."""

    task: str
    report: DeliveryReport


# -- to the TimerActor


class Arm(NamedTuple):
    """Send `message` on at `at`."""

    at: int
    message: ExpireTask | TimeOutAttempt | DeliverCallback

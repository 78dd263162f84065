"""What actors tell each other: frozen, in the imperative or as news.

A message that wants an answer carries a `Reply`; nobody asks and waits. What it is about is named
by ids; the receiver looks it up in the projections, where it is newest. Only what has left memory
travels along, as it was read from the log (`fetched`): without it, the receiver has it read and is
told again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from rota.actors.archive import Fetched
    from rota.domain.commands import Limits, Outcome
    from rota.domain.declared import Declared, Key
    from rota.domain.delivery import DeliveryReport
    from rota.domain.intake import BatchRequest, Request, Rules
    from rota.domain.task import Lane
    from rota.domain.tokens import NewToken
    from rota.errors import RotaError
    from rota.executors.port import Note


class Reply(Protocol):
    """Where an answer goes; it is given once, after the facts behind it are durable."""

    def ok(self, value: Any) -> None: ...

    def fail(self, error: RotaError) -> None: ...


# -- to the AdmissionActor


class SubmitTasks(NamedTuple):
    """Admit these tasks, each on its own; the reply is a list, an answer for each.

    If one of them cannot be meant so, none is admitted, and the reply is the error.
    """

    requests: tuple[Request, ...]
    reply: Reply
    fetched: Fetched | None = None


class SubmitTogether(NamedTuple):
    """Admit a batch, all of it or none; the reply is a `BatchAdmitted`."""

    batch: BatchRequest
    reply: Reply
    fetched: Fetched | None = None


class Admitted(NamedTuple):
    """One task was taken; or `known` says why another stands for it: idempotent, deduplicated."""

    task: str
    position: int
    created_at: int
    state: str = "ready"
    known: str = ""
    executor: str = ""


class BatchAdmitted(NamedTuple):
    """A batch was taken; or is `known` already."""

    batch: str
    tasks: tuple[Admitted, ...]
    created_at: int
    known: str = ""


class Refused(NamedTuple):
    """One task was not taken; one that was only `counted` has no record under its id."""

    task: str
    created_at: int
    code: str
    error: str
    details: dict[str, Any]
    counted: bool = False


class CountRefusals(NamedTuple):
    """Record how many were refused without a record of their own."""


class FinishBatch(NamedTuple):
    """The last task of a batch has ended."""

    batch: str


class CancelBatch(NamedTuple):
    """Cancel what has not ended of a batch; the reply is how many tasks were cancelled."""

    batch: str
    reason: str
    by: str
    reply: Reply
    fetched: Fetched | None = None


class ChangeLimits(NamedTuple):
    """Put other limits in force, and other rules; without, those in force stay."""

    limits: Limits
    source: str
    by: str
    reply: Reply
    rules: Rules | None = None


class DeclareTypes(NamedTuple):
    """Keep what a worker declares; the reply says of each whether it holds.

    Tokens whose names are `taken` are the configuration's.
    """

    said: dict[Key, Declared]
    taken: frozenset[str]
    by: str
    reply: Reply


class CreateToken(NamedTuple):
    """Make a token; names that are `taken` elsewhere it may not have. The reply is its fact."""

    wanted: NewToken
    taken: frozenset[str]
    by: str
    reply: Reply


class RevokeToken(NamedTuple):
    """Take a token back; the reply is its name."""

    name: str
    by: str
    reply: Reply


# -- to a QueueActor


class CancelTask(NamedTuple):
    """Cancel a task of this agent; the reply is its id."""

    task: str
    reason: str
    by: str
    reply: Reply


class ExpireTask(NamedTuple):
    """The task's deadline has come."""

    task: str


class ReleaseTask(NamedTuple):
    """The moment has come that the task was scheduled for."""

    task: str


class EndWait(NamedTuple):
    """The task's queue timeout has come, if it still waits under this `entry`."""

    task: str
    entry: int


class ReviveTask(NamedTuple):
    """Give a failed task of this agent a new life; the reply is a `Revived`.

    It goes on with other `params`, if there are any. `dependents` were cancelled because it failed,
    each after those that it depends on. With `is_any` the task may be such a dependent itself.
    """

    task: str
    by: str
    reply: Reply
    fetched: Fetched | None = None
    params: dict[str, Any] | None = None
    dependents: tuple[str, ...] = ()
    is_any: bool = False


class Revived(NamedTuple):
    """A task lives again, and some of its dependents; `refused` are those that cannot, and why."""

    task: str
    dependents: tuple[str, ...] = ()
    refused: tuple[tuple[str, RotaError], ...] = ()


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
    """A task of this lane gave its slot back, or the `worker` did that held it.

    So many slots `of_key` are still taken.
    """

    agent: str
    lane: Lane
    worker: str | None = None
    of_key: int = 0


class AgentReleased(NamedTuple):
    """The agent was resumed."""

    agent: str


class LimitEased(NamedTuple):
    """A limit of some lanes' own has another cap: a workflow goes on, a declaration changed."""

    limit: str


class PauseType(NamedTuple):
    """Dispatch nothing of this type; or, with `paused` false, again."""

    type: str
    paused: bool
    reason: str
    by: str
    reply: Reply


class PauseScheduler(NamedTuple):
    """Dispatch nothing at all; or, with `paused` false, again."""

    paused: bool
    reason: str
    by: str
    reply: Reply


class LookAgain(NamedTuple):
    """Something changed that may let tasks through: limits, or a start."""


class Drain(NamedTuple):
    """Start nothing new: the server is stopping."""


# -- to the WorkerPool


class StartAttempt(NamedTuple):
    """Execute the task's attempt; its assignment is durable.

    `parents` are those whose results it asks for and that have left memory, or why there are none.
    """

    task: str
    token: int
    parents: Fetched | RotaError | None = None


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


class AttemptNoted(NamedTuple):
    """An executor has something to say of a running attempt."""

    task: str
    token: int
    note: Note


class NoteTask(NamedTuple):
    """Somebody outside adds log lines, or a report of progress, to a task.

    With a `token` it speaks for an attempt, and is refused unless that is the running one.
    """

    task: str
    lines: tuple[str, ...]
    level: str
    progress: Any
    by: str
    reply: Reply
    token: int | None = None


# -- to the DependentsActor


class SettleDependents(NamedTuple):
    """Some tasks' dependencies are met, or can never be."""


# -- to the OrchestratorActor


class LookAtWorkflow(NamedTuple):
    """There may be something to decide about a workflow."""

    workflow: str


class SteerWorkflow(NamedTuple):
    """Do with a workflow what somebody asks for; the reply is its state.

    `how` is cancel, pause, resume or close.
    """

    workflow: str
    how: str
    reason: str
    by: str
    reply: Reply
    fetched: Fetched | None = None


# -- to the WebhookActor


class DeliverCallback(NamedTuple):
    """Deliver a task's or batch's callback now; the end that it tells of is durable."""

    task: str
    delivery: str


class CallbackRead(NamedTuple):
    """What a callback tells of was read from the log, for this turn of it, or could not be.

    With nothing found it is to be read again.
    """

    task: str
    delivery: str
    turn: object
    found: Fetched | RotaError | None


class CallbackReported(NamedTuple):
    """A try to deliver has ended."""

    task: str
    delivery: str
    report: DeliveryReport


# -- to the TimerActor


class Arm(NamedTuple):
    """Send `message`, of a kind in the table of moments, on at `at`."""

    at: int
    message: Any


class DeriveMoments(NamedTuple):
    """Arm everything anew that is due some time: the clock was set, or there was a start."""


class Tick(NamedTuple):
    """The next moment has come."""

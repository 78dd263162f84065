"""The facts: everything that ever happened, in the past tense.

An event is an immutable tuple with a `kind` (its name on disk) and a version `v`. Fields with a
default may be absent on disk; a new optional field needs no new version, any other change does
(docs/reference/log_format.md). Facts about a task carry `task` and `agent` first. A `Record` is an
event with its place in the log. Nothing here decides or does anything.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from rota.domain import outside_events as outside
from rota.domain import project_events as projects
from rota.domain import schedule_events as schedules
from rota.domain import server_events as server
from rota.domain import workflow_events as flows
from rota.domain.plan import Plan  # noqa: TC001 - hints of events can be read

ServerStarted = server.ServerStarted
ServerStopped = server.ServerStopped
ConfigChanged = server.ConfigChanged
ActorFailed = server.ActorFailed
ClockStepped = server.ClockStepped
AgentPaused = server.AgentPaused
AgentResumed = server.AgentResumed
TypeDeclared = server.TypeDeclared
TypePaused = server.TypePaused
TypeResumed = server.TypeResumed
SchedulerPaused = server.SchedulerPaused
SchedulerResumed = server.SchedulerResumed
LeaseExpired = outside.LeaseExpired
LeaseEnded = outside.LeaseEnded
DeliverySucceeded = outside.DeliverySucceeded
DeliveryFailed = outside.DeliveryFailed
DeliveryAbandoned = outside.DeliveryAbandoned
TokenCreated = server.TokenCreated
TokenRevoked = server.TokenRevoked


BatchSubmitted = flows.BatchSubmitted
BatchRejected = flows.BatchRejected
BatchFinished = flows.BatchFinished
WorkflowSubmitted = flows.WorkflowSubmitted
WorkflowTripped = flows.WorkflowTripped
WorkflowPaused = flows.WorkflowPaused
WorkflowResumed = flows.WorkflowResumed
WorkflowClosed = flows.WorkflowClosed
WorkflowCancelled = flows.WorkflowCancelled
WorkflowEnded = flows.WorkflowEnded
ProjectCreated = projects.ProjectCreated
ProjectTaskAdded = projects.ProjectTaskAdded
ProjectTaskEdited = projects.ProjectTaskEdited
ProjectTaskMoved = projects.ProjectTaskMoved
ProjectTaskRemoved = projects.ProjectTaskRemoved
TaskHeld = projects.TaskHeld
ProjectDeleted = projects.ProjectDeleted
RunQueued = projects.RunQueued
RunStarted = projects.RunStarted
RunTaskSelected = projects.RunTaskSelected
RunStopRequested = projects.RunStopRequested
RunEnded = projects.RunEnded
ScheduleCreated = schedules.ScheduleCreated
ScheduleChanged = schedules.ScheduleChanged
SchedulePaused = schedules.SchedulePaused
ScheduleResumed = schedules.ScheduleResumed
ScheduleDeleted = schedules.ScheduleDeleted
ScheduleFired = schedules.ScheduleFired
ScheduleMissed = schedules.ScheduleMissed
ScheduleRealigned = schedules.ScheduleRealigned


class RefusalsCounted(NamedTuple):
    """So many tasks and batches were refused and have no record of their own.

    `agents` says whose tasks they were, `others` how many were those of agents not named there.
    """

    tasks: int
    agents: dict[str, int]
    others: int = 0
    batches: int = 0


class TaskSubmitted(NamedTuple):
    """A task was admitted.

    `waits` are the dependencies that had not succeeded yet: with any the task is blocked, with a
    `not_before` ahead it is scheduled, else it is ready. `plan` is None if it asks for nothing
    beyond the plain; on disk its fields lie among these.
    """

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
    waits: list[str] | None = None
    plan: Plan | None = None


class TaskRejected(NamedTuple):
    """Admission refused a task; it never enters a queue.

    What the task would have done is not kept: older records have it, in the fields from `params`
    on but `dialect`.
    """

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


class TaskReleased(NamedTuple):
    """What the task waited for has come (`after`: dependencies, delay, backoff, project).

    One that was held on a project's list belongs to this `run` from now on.
    """

    task: str
    agent: str
    after: str
    run: str | None = None


class TaskDelayed(NamedTuple):
    """The task's dependencies are met, but it must not start before `until` (`run`: as above)."""

    task: str
    agent: str
    until: int
    run: str | None = None


class TaskRevived(NamedTuple):
    """Somebody gave a failed task a new life: it is ready, and its attempts count anew.

    Or it was cancelled because what it depends on had failed, and `waits` for that again.
    `restored` are the fields of a task that had left memory, `restored_batch` those of its batch
    and `restored_workflow` those of its workflow. With `edited` it goes on with other `params`.
    """

    task: str
    agent: str
    restored: dict[str, Any] | None = None
    restored_batch: dict[str, Any] | None = None
    params: dict[str, Any] | None = None
    edited: bool | None = None
    waits: list[str] | None = None
    restored_workflow: dict[str, Any] | None = None


class TaskAssigned(NamedTuple):
    """A slot was taken for the task; this record's seq is the attempt's fencing token.

    With a `worker` it is lent: whoever came for it must be heard of every `lease_ms`.
    """

    task: str
    agent: str
    attempt: int
    worker: str | None = None
    lease_ms: int | None = None


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


class AttemptFailed(NamedTuple):
    """The attempt failed, and the task will be tried again at `next_at`."""

    task: str
    agent: str
    attempt: int
    code: str
    error: str
    next_at: int
    details: dict[str, Any] | None = None


class TaskLogged(NamedTuple):
    """Lines were added to the task's log."""

    task: str
    agent: str
    lines: list[str]
    level: str = "info"
    attempt: int = 0


class TaskProgressed(NamedTuple):
    """The task, or whoever works on it, said how far it has come."""

    task: str
    agent: str
    progress: Any
    attempt: int = 0


class TaskExpired(NamedTuple):
    """The task failed because a clock ran out while it waited; `clock` says which."""

    task: str
    agent: str
    clock: str
    error: str


class TaskCancelled(NamedTuple):
    """The task was cancelled; `was` is its state before, `code` the cause unless asked for."""

    task: str
    agent: str
    was: str
    reason: str = ""
    code: str | None = None


class TaskReprioritised(NamedTuple):
    """Somebody gave a task that has not ended another `priority`; `was` is the one before."""

    task: str
    agent: str
    priority: int
    was: int


class AttemptInterrupted(NamedTuple):
    """The attempt was cut off by no fault of its own; the task waits again, no attempt is spent.

    The server went away under it, or it made room `for_task`. With an `error` that is the task's
    last one from then on, and the reason its code.
    """

    task: str
    agent: str
    attempt: int
    reason: str
    for_task: str | None = None
    error: str | None = None


class ResultRefused(NamedTuple):
    """A result came for an attempt that is no longer the valid one; a lease has its `token`."""

    task: str
    agent: str
    attempt: int
    outcome: str
    token: int | None = None


TaskFact = (
    TaskSubmitted
    | TaskRejected
    | TaskReleased
    | TaskDelayed
    | TaskHeld
    | TaskRevived
    | TaskAssigned
    | TaskStarted
    | TaskSucceeded
    | TaskFailed
    | AttemptFailed
    | TaskLogged
    | TaskProgressed
    | TaskExpired
    | TaskCancelled
    | TaskReprioritised
    | AttemptInterrupted
    | LeaseExpired
    | LeaseEnded
    | ResultRefused
    | DeliverySucceeded
    | DeliveryFailed
    | DeliveryAbandoned
)
"""The facts that carry `task` and `agent` first."""

Event = (
    ServerStarted
    | ServerStopped
    | ConfigChanged
    | ActorFailed
    | ClockStepped
    | AgentPaused
    | AgentResumed
    | TypeDeclared
    | TypePaused
    | TypeResumed
    | SchedulerPaused
    | SchedulerResumed
    | TokenCreated
    | TokenRevoked
    | BatchSubmitted
    | BatchRejected
    | RefusalsCounted
    | BatchFinished
    | WorkflowSubmitted
    | WorkflowTripped
    | WorkflowPaused
    | WorkflowResumed
    | WorkflowClosed
    | WorkflowCancelled
    | WorkflowEnded
    | ProjectCreated
    | ProjectTaskAdded
    | ProjectTaskEdited
    | ProjectTaskMoved
    | ProjectTaskRemoved
    | ProjectDeleted
    | RunQueued
    | RunStarted
    | RunTaskSelected
    | RunStopRequested
    | RunEnded
    | ScheduleCreated
    | ScheduleChanged
    | SchedulePaused
    | ScheduleResumed
    | ScheduleDeleted
    | ScheduleFired
    | ScheduleMissed
    | ScheduleRealigned
    | TaskFact
)
"""Every kind of fact; the codec's tables are made from this union."""


E_co = TypeVar("E_co", bound=Event, covariant=True)


class Record(NamedTuple, Generic[E_co]):
    """An event in its place: who caused it, when, and after what.

    Whoever handles one kind of event says so: `Record[TaskFailed]`.
    """

    seq: int
    at: int
    event: E_co
    by: str = ""
    cause: int = 0

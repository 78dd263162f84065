"""A workflow: a batch that has a name, may stay open for more tasks, and has a rule for failures.

What a batch has (tasks, how many ended in which way, a callback, a key) is shared (domain/batch).
Here is what is its own, and what is decided about it: when it trips over its failures, when what is
left of it must be cancelled, when it ends and as what. All of that follows from its records and the
ends of its tasks, so whoever looks at it again decides the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from rota.domain import events as e
from rota.domain.batch import FATES, Batch
from rota.domain.derived import decide_derived
from rota.domain.intake import NATIVE, Request
from rota.errors import Conflict, NotFound, QueueFull

if TYPE_CHECKING:
    from rota.domain.derived import Place
    from rota.domain.events import Record
    from rota.domain.intake import Rules

CANCEL, PAUSE, ESCALATE = "cancel", "pause", "escalate"
COMPLETED, FAILED, CANCELLED, ESCALATED = "completed", "failed", "cancelled", "escalated"
RUNNING, PAUSED = "running", "paused"
STATES = (RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED, ESCALATED)
JOINED_MAX = 10_000
"""How many tasks one workflow has at most (what follows its tasks may exceed it)."""
LIVE_MAX = 10_000
"""How many workflows may be going on at once."""
MEMBERS_MAX = 1_000_000
"""How many tasks the workflows that go on may have in all, the ended ones among them."""
WORKFLOW_CANCELLED = "workflow_cancelled"


class Workflow(Batch):
    """Tasks that are one undertaking.

    `is_open` lets it go on without a task. `tripped` is what was done when the threshold was
    crossed; it is forgotten when revivals bring the failures under it, but for an escalation, of
    which there is one at most: `escalation_task`. `paused` is the reason of a pause, None without;
    `stopping` is why whatever is left of it is cancelled. `ended_as` is its state at its end.
    """

    __slots__ = (
        "ended_as",
        "escalate_json",
        "escalation_task",
        "failure",
        "is_cancelled",
        "is_open",
        "name",
        "on_failure",
        "paused",
        "seq",
        "stopping",
        "tripped",
    )

    def __init__(self, record: Record[e.WorkflowSubmitted]) -> None:
        event = record.event
        self.id = event.workflow
        self.tasks = []
        self.dialect = event.dialect or NATIVE
        self.parallelism = None
        self.callback = event.callback
        self.idempotency = event.idempotency
        self.by = record.by
        self.created_at = record.at
        self.finished_at = self.finished_seq = 0
        self.fates = dict.fromkeys(FATES, 0)
        self.seq = record.seq
        self.name = event.name
        self.is_open = bool(event.open)
        self.failure = event.failure or {"count": 1}
        self.on_failure = event.on_failure
        self.escalate_json = orjson.dumps(event.escalate).decode() if event.escalate else None
        self.escalation_task: str | None = None
        self.tripped: str | None = None
        self.paused: str | None = None
        self.stopping: str | None = None
        self.is_cancelled = False
        self.ended_as = ""

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        return (*Batch.__slots__, *cls.__slots__)

    @property
    def escalate(self) -> dict[str, Any] | None:
        """Give the task, or the callback, of an escalation; it is kept as text, which is small."""
        found: dict[str, Any] | None = None
        if self.escalate_json is not None:
            found = orjson.loads(self.escalate_json)
        return found

    @property
    def is_crossed(self) -> bool:
        """Whether as many of its tasks have failed as its threshold says."""
        failed = self.fates["failed"]
        if "count" in self.failure:
            return bool(failed >= self.failure["count"])
        return bool(failed and failed >= self.failure["share"] * len(self.tasks))

    @property
    def is_tripping(self) -> bool:
        """Whether something is to be done about its failures, and was not."""
        if self.on_failure is None or self.tripped or self.finished_at or self.is_cancelled:
            return False
        return self.is_crossed

    @property
    def is_over(self) -> bool:
        """Whether it is to end."""
        return not (self.finished_at or self.left or self.is_open)

    @property
    def is_due(self) -> bool:
        """Whether there is something to decide about it."""
        is_stopping = self.stopping is not None and not self.finished_at
        return is_stopping or self.is_over or self.is_tripping

    @property
    def state(self) -> str:
        if self.finished_at:
            return self.ended_as
        if self.stopping is not None:
            return CANCELLED if self.is_cancelled else FAILED
        if self.paused is not None:
            return PAUSED
        return ESCALATED if self.tripped == ESCALATE else RUNNING

    @property
    def end_state(self) -> str:
        """Say as what it ends, when all of its tasks have ended."""
        if self.is_cancelled:
            return CANCELLED
        if self.tripped == ESCALATE:
            return ESCALATED
        if self.is_crossed:
            return FAILED
        is_void = self.fates["cancelled"] and not self.fates["succeeded"]
        return CANCELLED if is_void else COMPLETED

    # -- its records

    def on_tripped(self, event: e.WorkflowTripped) -> None:
        self.tripped = event.action
        if event.action == ESCALATE:
            self.escalation_task = event.escalation
        elif event.action == PAUSE:
            self.paused = f"{event.failed} of {event.total} tasks failed"
        elif event.action == CANCEL:
            self.stopping = f"workflow {self.id} failed: {event.failed} of {event.total} tasks did"
            self.is_open = False

    def on_cancelled(self, event: e.WorkflowCancelled) -> None:
        self.is_cancelled = True
        self.is_open = False
        self.stopping = event.reason or f"workflow {self.id} was cancelled"

    def on_ended(self, record: Record[e.WorkflowEnded]) -> None:
        """Be what the record says alone: who rebuilds it from its records has nothing else."""
        event = record.event
        self.finished_at, self.finished_seq = record.at, record.seq
        self.ended_as, self.tripped = event.state, event.tripped
        self.paused = self.stopping = None
        self.is_open = self.is_cancelled = False

    def on_task_revived(self) -> None:
        """Go on: a task of it lives again, whose fate was taken back before."""
        self.stopping = None
        self.is_cancelled = False
        self.ended_as = ""
        if self.tripped != ESCALATE and not self.is_crossed:
            self.tripped = None


class Escalation(NamedTuple):
    """A workflow as the callback of its escalation tells of it."""

    workflow: Workflow

    @property
    def id(self) -> str:
        return self.workflow.id

    @property
    def callback(self) -> str | None:
        return callback_of(self.workflow)


def callback_of(workflow: Workflow) -> str | None:
    """Give the address that an escalation is told to, if it has one."""
    url: str | None = (workflow.escalate or {}).get("callback")
    return url


def decide_end(workflow: Workflow) -> e.WorkflowEnded | None:
    """End a workflow, once, when all of its tasks have ended and it waits for no more."""
    if workflow.finished_at or workflow.left or workflow.is_open:
        return None
    succeeded, failed, cancelled = (workflow.fates[fate] for fate in FATES)
    return e.WorkflowEnded(
        workflow.id, workflow.end_state, list(workflow.tasks), succeeded, failed, cancelled,
        workflow.tripped,
    )  # fmt: skip


def decide_trip(workflow: Workflow, rules: Rules, place: Place) -> tuple[e.Event, ...]:
    """Do what the workflow says about failures when its threshold is crossed: once."""
    action = workflow.on_failure
    if action is None or not workflow.is_tripping:
        return ()
    failed, total = workflow.fates["failed"], len(workflow.tasks)
    tripped = e.WorkflowTripped(workflow.id, action, failed, total)
    wanted = (workflow.escalate or {}).get("task")
    if action != ESCALATE or wanted is None:
        return (tripped,)
    said = {"id": workflow.id, "name": workflow.name, "failed": failed, "total": total}
    request = Request(
        wanted["agent"], wanted["action"], params=wanted.get("params"),
        priority=wanted.get("priority"), by=workflow.by,
    )  # fmt: skip
    derived = decide_derived(request, {"workflow": said}, rules, place)
    return (tripped._replace(escalation=derived[0].task), *derived)


def live_one(found: Any, workflow_id: str) -> Workflow:
    """Give a workflow that has not ended. Raises NotFound or Conflict."""
    details = {"workflowId": workflow_id}
    if not isinstance(found, Workflow):
        raise NotFound("workflow not found", details=details)
    if found.finished_at or found.stopping is not None:
        msg = f"the workflow has ended: it is {found.ended_as or 'being cancelled'}"
        raise Conflict(msg, code="workflow_ended", details={**details, "state": found.state})
    return found


def check_room(workflow: Workflow, more: int, members: int) -> None:
    """Refuse more tasks of one workflow, or of all, than there may be. Raises QueueFull."""
    details: dict[str, Any] = {"workflowId": workflow.id}
    if len(workflow.tasks) + more > JOINED_MAX:
        msg = f"the workflow has {len(workflow.tasks)} tasks; it may have {JOINED_MAX}"
        raise QueueFull(msg, code="workflow_full", details={**details, "max": JOINED_MAX})
    check_members(members + more)


def check_members(members: int) -> None:
    if members > MEMBERS_MAX:
        msg = f"the workflows that go on have {MEMBERS_MAX} tasks in all, which is the most"
        raise QueueFull(msg, code="too_many_workflow_tasks", details={"max": MEMBERS_MAX})


def check_live(live: int) -> None:
    """Refuse one more workflow when too many go on. Raises QueueFull."""
    if live >= LIVE_MAX:
        msg = f"{LIVE_MAX} workflows are going on already"
        raise QueueFull(msg, code="too_many_workflows", details={"max": LIVE_MAX})

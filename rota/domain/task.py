"""The task: its states, and what it is made of.

A task changes only by folding events into it (rota.domain.fold), as the table of legal moves says
(rota.domain.moves). Deciding (which may refuse) is left to admission, dispatch and attempts.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from rota.domain.commands import BROWSER_TYPES, BROWSERS_LIMIT, PULL, PUSH_LIMIT
from rota.domain.declared import limit_of
from rota.domain.packed import unpacked
from rota.domain.plan import Plan
from rota.domain.rows import Way, beginner, filler, packer


class TaskState(StrEnum):
    """Where a task is."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    READY = "ready"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


BLOCKED, SCHEDULED, READY = TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY
ASSIGNED, RUNNING = TaskState.ASSIGNED, TaskState.RUNNING
SUCCEEDED, FAILED = TaskState.SUCCEEDED, TaskState.FAILED
CANCELLED, REJECTED = TaskState.CANCELLED, TaskState.REJECTED

TERMINAL = frozenset({SUCCEEDED, FAILED, CANCELLED, REJECTED})
WAITING = frozenset({BLOCKED, SCHEDULED, READY})
IN_FLIGHT = frozenset({ASSIGNED, RUNNING})

ORDERLY = "shutdown"
LOG_FAILED = "log failed"
PREEMPTED = "preempted"
UNREAD = "results not read"
RELEASED = "released"
LEASE_EXPIRED = "lease expired"
FAULTED = "internal fault"
BLAMELESS = frozenset({ORDERLY, LOG_FAILED, PREEMPTED, UNREAD, RELEASED})
"""The reasons of an interruption that the task cannot have caused."""

Lane = tuple[str, str, str, str, str, str, str, str]
"""Tasks of one agent held back by the same.

These are (executor, action, key, batch, urgency, requires, workflow, declared).

The urgency is the priority of those that may pre-empt: none of them stands behind one that may not,
or that is less urgent and only older, and the first of a lane can do whatever the others can.
What it requires of a worker is the labels, one a line. What is declared is the limit that a worker
declared, if any (rota.domain.declared).
"""


class Notes(NamedTuple):
    """How many log lines and reports of progress a task has, and the last report."""

    lines: int = 0
    reports: int = 0
    progress: Any = None


@dataclass(slots=True, init=False, eq=False, repr=False)
class Task:
    """One task as the log tells it: the table of its fields.

    Those with a value here begin with it. What a task asked for beyond the plain is its `plan`, a
    table of its own (rota.domain.plan).

    `entry` is the backlog's mark (the seq of its entry in the queue, -1 while it waits outside of
    it, 0 when it does not wait) and `holds` the slots' (it holds a slot); they make leaving a queue
    and freeing a slot happen exactly once. `waits` are the dependencies that have not succeeded,
    None once it is not blocked; `rank` is its priority, aged if priorities age. `ended_seq` is the
    record that it last ended by; `weight` is what it counts for among the ended ones, 0 before.
    `begun_at` is the first start of any attempt, `started_at` that of the latest. `worker` is who
    came for the latest, None if rota runs it itself, and `lease_ms` how long it may be silent.
    `touched_at` is the last fact that left no other moment behind. One that is `edited` was revived
    with other params than it was submitted with. When its lease ends, `expires_at`, is known to the
    live server alone: no fact tells of it.
    """

    id: str
    agent: str
    action: str
    executor: str
    params_json: bytes | None
    priority: int
    dialect: str
    tab: str | None
    ref: str | None
    callback: str | None
    deadline: int | None
    timeout_ms: int | None
    on_interrupt: str | None
    position: int
    by: str
    state: TaskState
    created_at: int
    created_seq: int
    ready_at: int
    lane: Lane
    rank: int
    plan: Plan | None = None
    waits: set[str] | None = None
    entry: int = 0
    holds: bool = False
    attempt: int = 0
    token: int = 0
    assigned_at: int = 0
    begun_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    ended_seq: int = 0
    next_at: int = 0
    interruptions: int = 0
    revivals: int = 0
    spent_before: int = 0
    weight: int = 0
    result_json: bytes | None = None
    error: str | None = None
    error_code: str | None = None
    error_details: dict[str, Any] | None = None
    notes: Notes | None = None
    worker: str | None = None
    lease_ms: int = 0
    touched_at: int = 0
    edited: bool = False
    expires_at: int = 0

    @property
    def is_leased(self) -> bool:
        """Whether a worker holds it."""
        return self.worker is not None and self.state in IN_FLIGHT

    @property
    def updated_at(self) -> int:
        """Give when the last fact about it was recorded, its callback's aside."""
        return max(
            self.created_at,
            self.ready_at,
            self.assigned_at,
            self.started_at,
            self.finished_at,
            self.touched_at,
        )

    @property
    def params(self) -> dict[str, Any] | None:
        """Give what it was submitted with, parsed anew."""
        params: dict[str, Any] | None = unpacked(self.params_json)
        return params

    @property
    def result(self) -> Any:
        """Give its result, parsed anew."""
        return unpacked(self.result_json)

    @property
    def retries(self) -> int:
        """Count the retries of this life, the one that it waits for among them."""
        spent = self.attempt - self.spent_before
        return spent if self.state in WAITING else max(spent - 1, 0)

    def to_row(self) -> list[Any]:
        """Give all fields in the order of `ROW`, for a snapshot."""
        return _packed(self)

    @classmethod
    def from_row(cls, row: list[Any]) -> Task:
        task = cls.__new__(cls)
        _fill(task, row)
        task.lane = lane_for(task)
        task.rank = task.priority
        task.expires_at = 0
        return task


ROW = tuple(sorted({each.name for each in fields(Task)} - {"lane", "rank", "expires_at"}))
"""The fields of a task in a snapshot; its lane and rank follow from them."""
_WAYS = {
    "params_json": Way(bytes.decode, str.encode),
    "result_json": Way(bytes.decode, str.encode),
    "state": Way(None, {state.value: state for state in TaskState}.__getitem__),
    "waits": Way(sorted, set),
    "plan": Way(list, lambda values: Plan(*values)),
    "notes": Way(list, lambda values: Notes(*values)),
}
_packed = packer(ROW, _WAYS)
_fill = filler(ROW, _WAYS)
BEGINS = {each.name: each.default for each in fields(Task) if each.default is not MISSING}
begin = beginner(BEGINS)
"""Give a new task what its fields begin with."""
EMPTY = {
    each.name: BEGINS.get(each.name, {"int": 0, "str": ""}.get(str(each.type)))
    for each in fields(Task)
}
"""What each field is where nothing is said of it."""


@lru_cache(maxsize=4096)
def lane_of(
    executor: str,
    action: str,
    key: str = "",
    batch: str = "",
    urgency: str = "",
    requires: str = "",
    workflow: str = "",
    declared: str = "",
) -> Lane:
    """Name the lane of such tasks; one tuple for all of them.

    `batch` is set for batches with a bound on how many run at once: `bound:id`.
    """
    return (executor, action, key, batch, urgency, requires, workflow, declared)


@lru_cache(maxsize=4096)
def limits_of(lane: Lane) -> tuple[str, ...]:
    """Name the limits, besides the global one and the agent's, that hold a lane back."""
    executor, action, key, batch, _, _, workflow, declared = lane
    names = [f"type:{action}"] if executor == PULL else [PUSH_LIMIT, f"type:{action}"]
    if action in BROWSER_TYPES:
        names.append(BROWSERS_LIMIT)
    if key:
        names.append(f"key:{key}")
    if batch:
        names.append(f"batch:{batch}")
    if workflow:
        names.append(f"flow:{workflow}")
    if declared:
        names.append(declared)
    return tuple(names)


def lane_for(task: Task, priority: int | None = None) -> Lane:
    """Name the lane of a task; with a `priority`, the one that it would be in, or was."""
    plan = task.plan
    if plan is None:
        return lane_of(task.executor, task.action)
    batch = f"{plan.parallelism}:{plan.batch}" if plan.parallelism else ""
    at = task.priority if priority is None else priority
    urgency = str(at) if plan.preempt else ""
    requires = "\n".join(plan.requires) if plan.requires else ""
    workflow = plan.joined or ""
    declared = limit_of(plan.declared_for, task.action) if plan.declared_for else ""
    key = plan.key or ""
    return lane_of(task.executor, task.action, key, batch, urgency, requires, workflow, declared)

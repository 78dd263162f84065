"""The task: its states, the table of legal moves, what it is made of.

A task changes only by folding events into it (rota.domain.fold). Deciding (which may refuse) is
left to admission, dispatch and attempts. docs/state_machine.md draws `MOVES`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from rota.domain.commands import BROWSER_TYPES, BROWSERS_LIMIT, PULL, PUSH_LIMIT
from rota.domain.packed import unpacked


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

MOVES: dict[TaskState | None, dict[str, TaskState]] = {
    None: {"task_submitted": READY, "task_rejected": REJECTED},
    BLOCKED: {
        "task_released": READY,
        "task_delayed": SCHEDULED,
        "task_cancelled": CANCELLED,
        "task_expired": FAILED,
    },
    SCHEDULED: {
        "task_released": READY,
        "task_cancelled": CANCELLED,
        "task_expired": FAILED,
    },
    READY: {
        "task_assigned": ASSIGNED,
        "task_cancelled": CANCELLED,
        "task_expired": FAILED,
        # right after an interruption that must not be repeated, or when all browsers run
        "task_failed": FAILED,
    },
    ASSIGNED: {
        "task_started": RUNNING,
        "task_succeeded": SUCCEEDED,
        "task_failed": FAILED,
        "attempt_failed": SCHEDULED,
        "task_cancelled": CANCELLED,
        "attempt_interrupted": READY,
    },
    RUNNING: {
        "task_succeeded": SUCCEEDED,
        "task_failed": FAILED,
        "attempt_failed": SCHEDULED,
        "task_cancelled": CANCELLED,
        "attempt_interrupted": READY,
    },
    SUCCEEDED: {},
    FAILED: {"task_revived": READY},
    CANCELLED: {},
    REJECTED: {},
}
"""The legal moves: from a state, by an event, to a state.

A submitted task is ready, or blocked by its dependencies, or scheduled for later.
"""

ORDERLY = "shutdown"
LOG_FAILED = "log failed"
PREEMPTED = "preempted"
FAULTED = "internal fault"
BLAMELESS = frozenset({ORDERLY, LOG_FAILED, PREEMPTED})
"""The reasons of an interruption that the task cannot have caused."""

Lane = tuple[str, str, str, str, str]
"""Tasks of one agent held back by the same limits: (executor, action, key, batch, urgency).

The urgency is the priority of those that may pre-empt: none of them stands behind one that may not,
or that is less urgent and only older, and the first of a lane can do whatever the others can.
"""


class Plan(NamedTuple):
    """What a task asks for beyond the plain: the last fields of its `TaskSubmitted`.

    `depends` maps the names the task knows its parents under to their ids; `retry` is a
    `RetryPolicy` written out; the keys are as the client gave them.
    """

    key: str | None = None
    batch: str | None = None
    parallelism: int | None = None
    depends: dict[str, str] | None = None
    retry: dict[str, Any] | None = None
    queue_timeout_ms: int | None = None
    not_before: int | None = None
    preempt: bool | None = None
    idempotency: str | None = None
    digest: str | None = None
    dedup: str | None = None
    dedup_until: int | None = None
    delay_ms: int | None = None


NO_PLAN = Plan()


class Notes(NamedTuple):
    """How many log lines and reports of progress a task has, and the last report."""

    lines: int = 0
    reports: int = 0
    progress: Any = None


class Task:
    """One task as the log tells it.

    `entry` is the backlog's mark (the seq of its entry in the queue, -1 while it waits outside of
    it, 0 when it does not wait) and `holds` the slots' (it holds a slot); they make leaving a queue
    and freeing a slot happen exactly once. `waits` are the dependencies that have not succeeded,
    None once it is not blocked; `rank` is its priority, aged if priorities age. `ended_seq` is the
    record that it last ended by; `weight` is what it counts for among the ended ones, 0 before.
    `begun_at` is the first start of any attempt, `started_at` that of the latest.
    """

    __slots__ = (
        "action",
        "agent",
        "assigned_at",
        "attempt",
        "begun_at",
        "by",
        "callback",
        "created_at",
        "created_seq",
        "deadline",
        "dialect",
        "ended_seq",
        "entry",
        "error",
        "error_code",
        "error_details",
        "executor",
        "finished_at",
        "holds",
        "id",
        "interruptions",
        "lane",
        "next_at",
        "notes",
        "on_interrupt",
        "params_json",
        "plan",
        "position",
        "priority",
        "rank",
        "ready_at",
        "ref",
        "result_json",
        "revivals",
        "spent_before",
        "started_at",
        "state",
        "tab",
        "timeout_ms",
        "token",
        "waits",
        "weight",
    )

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
    entry: int
    holds: bool
    attempt: int
    token: int
    assigned_at: int
    begun_at: int
    started_at: int
    finished_at: int
    ended_seq: int
    result_json: bytes | None
    revivals: int
    error: str | None
    error_code: str | None
    error_details: dict[str, Any] | None
    interruptions: int
    next_at: int
    notes: Notes | None
    plan: Plan | None
    spent_before: int
    waits: set[str] | None
    weight: int
    lane: Lane
    rank: int

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
    def is_terminal(self) -> bool:
        """Whether nothing can change it any more."""
        return self.state in TERMINAL

    @property
    def retries(self) -> int:
        """Count the retries of this life, the one that it waits for among them."""
        spent = self.attempt - self.spent_before
        return spent if self.state in WAITING else max(spent - 1, 0)

    def to_row(self) -> list[Any]:
        """Give all fields in the order of `ROW`, for a snapshot."""
        return [
            self.action,
            self.agent,
            self.assigned_at,
            self.attempt,
            self.begun_at,
            self.by,
            self.callback,
            self.created_at,
            self.created_seq,
            self.deadline,
            self.dialect,
            self.ended_seq,
            self.entry,
            self.error,
            self.error_code,
            self.error_details,
            self.executor,
            self.finished_at,
            self.holds,
            self.id,
            self.interruptions,
            self.next_at,
            None if self.notes is None else list(self.notes),
            self.on_interrupt,
            None if self.params_json is None else self.params_json.decode(),
            None if self.plan is None else list(self.plan),
            self.position,
            self.priority,
            self.ready_at,
            self.ref,
            None if self.result_json is None else self.result_json.decode(),
            self.revivals,
            self.spent_before,
            self.started_at,
            self.state,
            self.tab,
            self.timeout_ms,
            self.token,
            None if self.waits is None else sorted(self.waits),
            self.weight,
        ]

    @classmethod
    def from_row(cls, row: list[Any]) -> Task:
        """Build the task that `to_row` wrote."""
        task = cls.__new__(cls)
        (
            task.action,
            task.agent,
            task.assigned_at,
            task.attempt,
            task.begun_at,
            task.by,
            task.callback,
            task.created_at,
            task.created_seq,
            task.deadline,
            task.dialect,
            task.ended_seq,
            task.entry,
            task.error,
            task.error_code,
            task.error_details,
            task.executor,
            task.finished_at,
            task.holds,
            task.id,
            task.interruptions,
            task.next_at,
            task.notes,
            task.on_interrupt,
            params,
            task.plan,
            task.position,
            task.priority,
            task.ready_at,
            task.ref,
            result,
            task.revivals,
            task.spent_before,
            task.started_at,
            task.state,
            task.tab,
            task.timeout_ms,
            task.token,
            waits,
            task.weight,
        ) = row
        task.params_json = None if params is None else params.encode()
        task.result_json = None if result is None else result.encode()
        task.state = TaskState(task.state)
        task.waits = None if waits is None else set(waits)
        task.plan = None if task.plan is None else Plan(*task.plan)
        task.notes = None if task.notes is None else Notes(*task.notes)
        task.lane = lane_for(task)
        task.rank = task.priority
        return task


ROW = tuple(name for name in Task.__slots__ if name not in ("lane", "rank"))
"""The fields of a task in a snapshot; its lane and rank follow from them."""


@lru_cache(maxsize=4096)
def lane_of(executor: str, action: str, key: str = "", batch: str = "", urgency: str = "") -> Lane:
    """Name the lane of such tasks; one tuple for all of them.

    `batch` is set for batches with a bound on how many run at once: `bound:id`.
    """
    return (executor, action, key, batch, urgency)


@lru_cache(maxsize=4096)
def limits_of(lane: Lane) -> tuple[str, ...]:
    """Name the limits, besides the global one and the agent's, that hold a lane back."""
    executor, action, key, batch, _ = lane
    names = [f"type:{action}"] if executor == PULL else [PUSH_LIMIT, f"type:{action}"]
    if action in BROWSER_TYPES:
        names.append(BROWSERS_LIMIT)
    if key:
        names.append(f"key:{key}")
    if batch:
        names.append(f"batch:{batch}")
    return tuple(names)


def lane_for(task: Task) -> Lane:
    """Name the lane of a task."""
    plan = task.plan
    if plan is None:
        return lane_of(task.executor, task.action)
    batch = f"{plan.parallelism}:{plan.batch}" if plan.parallelism else ""
    urgency = str(task.priority) if plan.preempt else ""
    return lane_of(task.executor, task.action, plan.key or "", batch, urgency)


def is_legal(state: TaskState | None, kind: str) -> bool:
    """Whether an event of this kind may follow in this state."""
    return kind in MOVES[state]

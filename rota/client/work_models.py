"""What a server answers of projects, schedules, leases and tokens; see models.py."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime  # noqa: TC003 - words.reader evaluates the hints
from typing import Any

from rota.client.fields import (  # noqa: TC001 - likewise
    ProjectStart,
    TaskBody,
    Want,
    WorkflowBody,
)
from rota.client.models import Task, model

Json = dict[str, Any]

# -- projects


@model
class Item:
    """A task on a project's list, in the words of its request; or one that was done."""

    task_id: str
    state: str = ""
    project: str | None = None
    position: int | None = None
    agent: str | None = None
    action: str | None = None
    params: Json | None = None
    priority: int | None = None
    timeout_s: float | None = None
    deadline: datetime | None = None
    run_id: str | None = None
    added_at: datetime | None = None
    stopped_at: datetime | None = None
    error: Any = None
    wait_reason: str | None = None


@model
class AddedItem:
    """A task that is on a project's list now."""

    project: str
    task_id: str
    state: str = ""
    idempotent: bool = False
    wait_reason: str | None = None


@model
class AddedItems:
    """Several of them."""

    project: str
    tasks: list[Item]
    idempotent: bool = False


@model
class ItemPage:
    """What is to come, in order; what runs; and what was done lately."""

    project: str
    tasks: list[Item]
    remaining: int
    done: list[Item]
    current: Item | None = None
    next_cursor: str | None = None


@model
class QueueStatus:
    """What a project is doing, or how its last run ended."""

    is_running: bool
    should_stop: bool
    completed: int
    remaining: int
    mode: str | None = None
    current_run_id: str | None = None
    current_task_id: str | None = None
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    stop_reason: str | None = None
    last_error: str | None = None


@model
class ProjectFigures:
    """What the runs of a project come to."""

    starts: int
    completed: int
    failed: int
    total_s: float
    longest_s: float
    stop_reasons: dict[str, int]
    mean_s: float | None = None


RUN_ENDED = ("completed", "failed")
"""The states in which a run of a project stays."""


@model
class Run:
    """One start of a project."""

    run_id: str
    project: str
    mode: str
    state: str
    completed: int = 0
    should_stop: bool = False
    task_id: str | None = None
    current_task_id: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    duration_s: float | None = None
    stop_reason: str | None = None
    error: str | None = None
    tasks: list[str] | None = None


@model
class Project:
    """A project; its last runs are those of one that was asked for by its name."""

    project: str
    created_at: datetime
    status: QueueStatus
    figures: ProjectFigures
    runs: list[Run] | None = None


@model
class ProjectPage:
    """Some projects, by name."""

    projects: list[Project]
    next_cursor: str | None = None


@model
class StillRunning:
    """What a force-stop has not ended yet."""

    run_id: str
    task_id: str | None = None


@model
class ProjectAnswer:
    """What became of one project that was run or stopped; or, among several, why it was refused."""

    success: bool
    project: str = ""
    run_id: str | None = None
    mode: str | None = None
    state: str | None = None
    removed: int | None = None
    killed_runs: list[str] | None = None
    still_running: list[StillRunning] | None = None
    unconfirmed: list[StillRunning] | None = None
    code: str | None = None
    error: str | None = None
    details: Json | None = None


@model
class ProjectAnswers:
    """What became of several."""

    projects: list[ProjectAnswer]
    success: bool


@model
class RemovedProject:
    """A project is no more; so many tasks were on its list."""

    project: str
    state: str
    removed: int


# -- schedules


@model
class Schedule:
    """A schedule; what it makes and its next moments are those of one asked for by its name."""

    name: str
    state: str
    cron: str
    timezone: str
    catch_up: str
    overlap: str
    makes: str
    agents: list[str]
    created_at: datetime
    by: str = ""
    waiting: int = 0
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    jitter_s: float | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    next_at: datetime | None = None
    due_at: datetime | None = None
    fired_until: datetime | None = None
    last_fired_at: datetime | None = None
    last_moment: datetime | None = None
    last_outcome: str | None = None
    last_id: str | None = None
    pause_reason: str | None = None
    task: TaskBody | None = None
    workflow: WorkflowBody | None = None
    project: ProjectStart | None = None
    upcoming: list[datetime] | None = None
    known: bool = False


@model
class SchedulePage:
    """Some schedules, by name."""

    schedules: list[Schedule]
    next_cursor: str | None = None


@model
class DeletedSchedule:
    """A schedule was deleted."""

    name: str
    deleted: bool


@model
class Firing:
    """What became of one moment of a schedule, or of several that were missed."""

    outcome: str
    moment: datetime
    seq: int | None = None
    at: datetime | None = None
    last_moment: datetime | None = None
    missed: int | None = None
    more: bool = False
    id: str | None = None
    reason: str | None = None
    manual: bool = False
    late: bool = False
    waited: bool = False


@model
class FiringPage:
    """Some firings of a schedule, oldest first."""

    firings: list[Firing]
    next_cursor: str | None = None


# -- leases and workers


@model
class Lease:
    """A task that a worker has, until when, and under which token."""

    lease_id: str
    token: int
    worker_id: str
    task_id: str
    attempt: int
    lease_s: float
    expires_at: datetime
    task: Task
    params: Json = field(default_factory=dict)


@model
class Stop:
    """A lease to stop working on; with `expires_at` the worker says when it has stopped.

    If its attempt has failed, `code` and `error` say why.
    """

    lease_id: str
    state: str | None = None
    expires_at: datetime | None = None
    code: str | None = None
    error: str | None = None


@model
class Leases:
    """The tasks that a worker was given, and what it is to stop working on."""

    leases: list[Lease]
    stop: list[Stop] = field(default_factory=list)


@model
class Heartbeat:
    """A lease lives on; or its task was cancelled, or the attempt has failed with `code`."""

    lease_id: str
    task_id: str
    state: str
    cancel_requested: bool
    expires_at: datetime | None = None
    code: str | None = None
    error: str | None = None
    stop: list[Stop] = field(default_factory=list)


@model
class Settled:
    """What became of the task of a lease; among several, `code` says why that was refused."""

    lease_id: str
    task_id: str | None = None
    state: str | None = None
    next_attempt_at: datetime | None = None
    code: str | None = None
    error: str | None = None
    idempotent: bool = False


@model
class SettledMany:
    """What became of many, in their order, and the tasks to work on next."""

    outcomes: list[Settled]
    leases: list[Lease]
    lease_error: Json | None = None
    stop: list[Stop] = field(default_factory=list)


@model
class HeldLease:
    """What a worker holds."""

    lease_id: str
    task_id: str
    agent: str
    action: str
    expires_at: datetime


@model
class DeclaredRow:
    """What became of one declaration; `agent` is None if it is for all."""

    action: str
    accepted: bool
    agent: str | None = None


@model
class DeclaredPage:
    """What became of a worker's declarations."""

    types: list[DeclaredRow]
    count: int


@model
class WorkerInfo:
    """A worker that was heard of."""

    worker_id: str
    last_seen: datetime
    waiting: bool
    labels: list[str]
    holds: int
    leases: list[HeldLease]
    heartbeat_delay_s: float | None = None
    agents: list[str] | None = None
    actions: list[str] | None = None
    wants: list[Want] | None = None


@model
class WorkerPage:
    """Some workers."""

    workers: list[WorkerInfo]
    next_cursor: str | None = None


# -- tokens


@model
class Token:
    """A token; its `token`, the secret, is there once, when it was made."""

    name: str
    role: str
    principal: str = ""
    agents: list[str] | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    expires_at: datetime | None = None
    expired: bool = False
    token: str | None = None


@model
class TokenPage:
    """The tokens of a namespace, by name."""

    tokens: list[Token]
    next_cursor: str | None = None


@model
class RevokedToken:
    """A token opens nothing any more."""

    name: str
    revoked: bool

"""What becomes of the moments of a schedule: which fire, wait, are skipped or are let go.

A moment that has come starts what the schedule makes, or waits for what it made before, or takes
its place, or is skipped. A firing and what it makes are one record call, so there is exactly one of
it for each moment, whatever crashes. A project has one run at a time, whoever started it; so a run
that is to take the place of another waits until that has been cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.domain import events as e
from rota.domain.attempts import decide_cancel
from rota.domain.project import decide_stop
from rota.domain.project_parts import Run
from rota.domain.schedule import ALL, CANCEL, LAST, QUEUED, SKIP, SKIPPED, Due
from rota.domain.workflow import Workflow

if TYPE_CHECKING:
    from rota.domain.project_parts import Project
    from rota.domain.schedule import Schedule
    from rota.domain.task import Task

CAUGHT_UP_MAX = 100
"""How many missed moments are made up for at most; older ones are let go."""
WAITING_MAX = 100
"""How many moments of one schedule wait for what it made before."""
RUNS_WAITING_MAX = 1
"""How many wait for the run of a project: the next one finds whatever is on the list."""
MINUTE_US = 60_000_000
"""Moments are at least so far apart."""
LATE_US = MINUTE_US
"""A moment that is acted on this much later, at most, is on time."""
OVERLAPPED = "schedule_overlap"
"""The code of what is cancelled because the next firing takes its place."""


class Passed(NamedTuple):
    """The moments from the one that is due to now: the newest of them, in order, and how many.

    They were so many, `total`, or if `is_more` at least that.
    """

    newest: tuple[int, ...]
    total: int
    is_more: bool = False


class Reckoning(NamedTuple):
    """What becomes of moments that have passed: which fire, and how many are let go before."""

    fire: tuple[int, ...]
    let_go: int = 0
    first: int = 0
    last: int = 0
    is_more: bool = False


def is_on_time(schedule: Schedule, now: int) -> bool:
    """Whether the moment that is due is acted on when it should be."""
    return schedule.due_at is not None and now - schedule.due_at <= LATE_US


def keep_for(catch_up: str) -> int:
    """Say how many of the newest moments are needed: those that may fire, and the one before."""
    return {ALL: CAUGHT_UP_MAX, LAST: 1}.get(catch_up, LATE_US // MINUTE_US + 1) + 1


def decide_catch_up(schedule: Schedule, passed: Passed, now: int) -> Reckoning:
    """Say which of the moments that have passed are made up for.

    What is late by a minute at most is on time, and fires whatever the schedule says. `passed` has
    as many as `keep_for` says, or all there are.
    """
    if schedule.catch_up == ALL:
        fire = passed.newest[-CAUGHT_UP_MAX:]
    elif schedule.catch_up == LAST:
        fire = passed.newest[-1:]
    else:
        fire = tuple([moment for moment in passed.newest if now - moment <= LATE_US])
    let_go = passed.total - len(fire)
    if not let_go:
        return Reckoning(fire)
    last = passed.newest[-len(fire) - 1]
    return Reckoning(fire, let_go, schedule.next_at or 0, last, passed.is_more)


def missed(schedule: Schedule, reckoning: Reckoning, due: Due) -> e.ScheduleMissed:
    r = reckoning
    return e.ScheduleMissed(
        schedule.name, r.let_go, r.first, r.last, due.next_at, due.due_at, r.is_more or None
    )


class Firing(NamedTuple):
    """One moment that fires: when it is due next, and where it comes from.

    It is `made_up` for if it is late, or had to wait until earlier ones were made up for.
    """

    moment: int
    due: Due = Due()
    manual: bool = False
    late: bool = False
    from_queue: bool = False
    made_up: bool = False


def fired(
    schedule: Schedule, firing: Firing, outcome: str, subject: str | None = None, reason: str = ""
) -> e.ScheduleFired:
    f = firing
    return e.ScheduleFired(
        schedule.name, f.moment, outcome, subject, reason or None, f.due.next_at, f.due.due_at,
        f.manual or None, f.late or None, f.from_queue or None,
    )  # fmt: skip


def decide_overlap(schedule: Schedule, firing: Firing, busy: str | None) -> e.ScheduleFired | None:
    """Say what becomes of a moment that may not fire now; None if it may.

    Who wants all moments that were missed wants none of them skipped for another.
    `busy` names what has not ended: what the schedule made last, or the run of its project.
    """
    takes_place = schedule.overlap == CANCEL and schedule.project is None
    if firing.from_queue or takes_place or (busy is None and not schedule.waiting):
        return None
    if schedule.overlap == SKIP and not (firing.made_up and schedule.catch_up == ALL):
        reason = f"{busy} has not ended" if busy is not None else "another is waiting"
        return fired(schedule, firing, SKIPPED, reason=reason)
    most = WAITING_MAX if schedule.project is None else RUNS_WAITING_MAX
    if len(schedule.waiting) < most:
        return fired(schedule, firing, QUEUED)
    reason = f"{most} moments are waiting already" if most > 1 else "one is waiting already"
    return fired(schedule, firing, SKIPPED, reason=reason)


def decide_replaced(
    schedule: Schedule, before: Task | Workflow | Run | None, project: Project | None
) -> tuple[e.Event, ...]:
    """Cut off what was made before: this firing takes its place."""
    reason = f"schedule {schedule.name} has fired again"
    if isinstance(before, Run):
        return decide_stop(project, reason, force=True) if project is not None else ()
    if isinstance(before, Workflow):
        return (e.WorkflowCancelled(before.id, reason),) if before.stopping is None else ()
    return (decide_cancel(before, reason, OVERLAPPED),) if before is not None else ()

"""The facts about a schedule: what it is, and what became of each of its moments.

They are named among the others in events.py, which is what everybody imports. Moments are computed
outside of the core and written down: `next_at` is the moment that comes next by the calendar, and
`due_at` when it is acted on, a little later with a jitter; without them none comes.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ScheduleCreated(NamedTuple):
    """A schedule began. `target` is what each firing makes: a task, a workflow or a run."""

    schedule: str
    cron: str
    timezone: str
    target: dict[str, Any]
    catch_up: str = "none"
    overlap: str = "skip"
    next_at: int | None = None
    due_at: int | None = None
    paused: bool | None = None
    jitter_ms: int | None = None
    start_at: int | None = None
    end_at: int | None = None


class ScheduleChanged(NamedTuple):
    """These fields of a schedule are this from now on; None takes away what may be left out.

    What was asked of it before, and waits, still counts.
    """

    schedule: str
    changes: dict[str, Any]
    next_at: int | None = None
    due_at: int | None = None


class SchedulePaused(NamedTuple):
    """No moment of the schedule comes until it is resumed."""

    schedule: str
    reason: str = ""


class ScheduleResumed(NamedTuple):
    """Its moments come again, from the next one on."""

    schedule: str
    next_at: int | None = None
    due_at: int | None = None


class ScheduleDeleted(NamedTuple):
    """There is no such schedule any more; what it made goes on."""

    schedule: str
    reason: str = ""


class ScheduleRealigned(NamedTuple):
    """The clock was set back: `next_at` is the first moment ahead that has not fired.

    Those up to `fired_until` have fired already, when the clock was ahead, and are left out.
    """

    schedule: str
    next_at: int | None = None
    due_at: int | None = None
    fired_until: int | None = None


class ScheduleFired(NamedTuple):
    """A moment of the schedule has come, and this is what became of it.

    `started`: what it made is `subject`, recorded together with this. `skipped`: nothing, and
    `reason` says why. `queued`: it waits until what was made before has ended; then it is in
    another record, `from_queue`. By `manual` it was asked for by somebody and is no moment of the
    calendar, so that `next_at` and `due_at` stay what they were.
    """

    schedule: str
    moment: int
    outcome: str
    subject: str | None = None
    reason: str | None = None
    next_at: int | None = None
    due_at: int | None = None
    manual: bool | None = None
    late: bool | None = None
    from_queue: bool | None = None


class ScheduleMissed(NamedTuple):
    """Moments from `first` to `last` passed while nobody could act on them, and are let go.

    They were so many, `missed`, or with `more` at least that.
    """

    schedule: str
    missed: int
    first: int
    last: int
    next_at: int | None = None
    due_at: int | None = None
    more: bool | None = None

"""Schedules in the random histories of builders.py: each move is one that an actor could make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain import schedule as domain
from rota.domain.admission import submitted
from rota.domain.firings import Firing, Passed, decide_catch_up, decide_overlap, fired, missed
from rota.domain.intake import Request, Rules, take_in
from rota.domain.plan import Plan
from rota.domain.schedule import CATCH_UPS, OVERLAPS, Definition, Due, Schedule
from rota.domain.task import TERMINAL

if TYPE_CHECKING:
    from random import Random

NAMES = ("daily", "nightly")
STEP_US = 60_000_000
TARGETS: tuple[dict[str, Any], ...] = (
    {"task": {"agent": "a1", "action": "echo"}},
    {"project": {"id": "p", "mode": "single"}},
)


def play_schedules(play: Any, dice: Random) -> None:
    """Make a move with one schedule."""
    schedule = play.state.schedules.get(dice.choice(NAMES))
    if schedule is None:
        due = Due(play._at + STEP_US, play._at + STEP_US)
        wanted = Definition("* * * * *", "UTC", dice.choice(TARGETS), overlap=dice.choice(OVERLAPS))
        play.record(domain.created(dice.choice(NAMES), wanted, due, paused=False), by="dice")
        return
    due = Due(play._at + STEP_US, play._at + STEP_US)
    changed = schedule.definition._replace(
        target=dice.choice(TARGETS), catch_up=dice.choice(CATCH_UPS), overlap=dice.choice(OVERLAPS)
    )
    moves = [
        lambda: _fire(play, schedule, Firing(schedule.next_at or 0, due)),
        lambda: _fire(play, schedule, Firing(play._at, manual=True)),
        lambda: play.record(
            domain.changed(schedule.name, schedule.definition, changed, due), by="eve"
        ),
        lambda: play.record(e.SchedulePaused(schedule.name, "dice")),
        lambda: play.record(e.ScheduleResumed(schedule.name, *due)),
        lambda: _miss(play, schedule, due),
        lambda: play.record(e.ScheduleRealigned(schedule.name, *due, dice.choice((None, 1)))),
        lambda: play.record(e.ScheduleDeleted(schedule.name, "dice")),
    ]
    if schedule.waiting:
        moment, manual = schedule.waiting[0]
        firing = Firing(moment, manual=manual, from_queue=True)
        moves += [lambda: _fire(play, schedule, firing)] * 3
    dice.choice(moves)()


def _miss(play: Any, schedule: Schedule, due: Due) -> None:
    if schedule.next_at is not None:
        passed = Passed((schedule.next_at, schedule.next_at + STEP_US), 2)
        now = schedule.next_at + 9 * STEP_US
        reckoning = decide_catch_up(schedule, passed, now)
        if reckoning.let_go:
            play.record(missed(schedule, reckoning, due))


def _fire(play: Any, schedule: Schedule, firing: Firing) -> None:
    task = play.state.tasks.get(schedule.last_subject or "")
    busy = task.id if task is not None and task.state not in TERMINAL else None
    event = decide_overlap(schedule, firing, busy)
    if event is not None or schedule.project is not None:
        skipped = fired(schedule, firing, domain.SKIPPED, reason="dice")
        play.record(event or skipped, by=schedule.by)
        return
    request = Request("a1", "echo", plan=Plan(schedule=schedule.name))
    command = take_in(request, Rules(), play._at)
    made = f"tsk_s{play.state.seq}"
    play.record(
        fired(schedule, firing, domain.STARTED, made),
        submitted(command, made, play.state.backlog.total + 1, at=play._at),
        by=schedule.by,
    )

"""Makes format_1_schedules.jsonl: schedules and what became of their moments, in format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_schedules.py > tests/eventlog/golden/format_1_schedules.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_000_000_000_000
HOUR = 3600 * SECOND
ONE, TWO, THREE = (1_795_003_200_000_000 + n * HOUR for n in range(3))
TASK = {"task": {"agent": "a", "action": "echo", "params": {"at": "{{schedule.moment}}"}}}
FLOW = {"workflow": {"tasks": [{"agent": "a", "action": "echo"}], "flow": {"name": "f"}}}
MADE = Plan(schedule="hourly")
STORY: tuple[tuple[int, e.Event], ...] = (
    (AT, e.ServerStarted("0.9.0", SETTINGS)),
    (AT, e.ScheduleCreated("hourly", "@hourly", "Europe/Berlin", TASK, "all", "queue", ONE,
                           ONE + SECOND, None, 5000, AT + SECOND, AT + 1000 * HOUR)),
    (AT, e.ScheduleCreated("nightly", "0 3 * * *", "UTC", FLOW, paused=True)),
    (AT, e.ScheduleCreated("lists", "0 * * * *", "UTC", {"project": {"id": "p", "mode": "loop"}},
                           "none", "cancel", ONE, ONE)),
    (ONE + SECOND, e.ScheduleFired("hourly", ONE, "started", "tsk_1", None, TWO, TWO)),
    (ONE + SECOND, e.TaskSubmitted("tsk_1", "a", "echo", "builtin", 1,
                                   params={"at": "2026-11-18T13:00:00Z"}, plan=MADE)),
    (ONE + SECOND, e.ScheduleFired("lists", ONE, "skipped", None, "project not found", TWO, TWO)),
    (TWO, e.ScheduleFired("hourly", TWO, "queued", None, None, THREE, THREE)),
    (TWO, e.ScheduleFired("hourly", TWO + SECOND, "queued", None, None, None, None, True)),
    (TWO + 2 * SECOND, e.TaskAssigned("tsk_1", "a", 1)),
    (TWO + 2 * SECOND, e.TaskStarted("tsk_1", "a", 1)),
    (TWO + 3 * SECOND, e.TaskSucceeded("tsk_1", "a", 1)),
    (TWO + 3 * SECOND, e.ScheduleFired("hourly", TWO, "started", "tsk_2", None, None, None, None,
                                       None, True)),
    (TWO + 3 * SECOND, e.TaskSubmitted("tsk_2", "a", "echo", "builtin", 1,
                                       params={"at": "2026-11-18T14:00:00Z"}, plan=MADE)),
    (THREE + HOUR, e.ScheduleMissed("lists", 2, TWO, THREE, THREE + HOUR, THREE + HOUR, True)),
    (THREE + HOUR, e.ScheduleFired("hourly", THREE, "queued", None, None, THREE + HOUR,
                                   THREE + HOUR, None, True)),
    # This one is of version 1 in the file: it had every field of the schedule then.
    (THREE + HOUR, e.ScheduleChanged("hourly", {
        "cron": "30 * * * *", "timezone": "Europe/Berlin", "target": TASK, "catch_up": "last",
        "overlap": "skip", "jitter_ms": 100, "start_at": AT + SECOND, "end_at": AT + 2000 * HOUR,
    }, THREE + HOUR, THREE + HOUR)),
    (THREE + HOUR, e.ScheduleResumed("nightly", THREE + 9 * HOUR, THREE + 9 * HOUR)),
    (THREE + HOUR, e.SchedulePaused("hourly", "a move")),
    (THREE + HOUR, e.ScheduleDeleted("lists", "not needed")),
)  # fmt: skip

if __name__ == "__main__":
    write(e.Record(seq, at, event, "ann") for seq, (at, event) in enumerate(STORY, start=1))

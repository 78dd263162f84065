"""Makes format_1_starts.jsonl: what a clock that was ahead at a start, or for a while, added.

Run once, and kept to show how; the file is the contract.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_starts.py > tests/eventlog/golden/format_1_starts.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_000_000_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
FIRST = 1_795_003_200_000_000
TASK = {"task": {"agent": "a", "action": "echo"}}
STORY: tuple[tuple[int, e.Event], ...] = (
    (AT, e.ServerStarted("0.2.0", SETTINGS)),
    (AT, e.ScheduleCreated("hourly", "@hourly", "UTC", TASK, "none", "skip", FIRST, FIRST)),
    (AT, e.TaskSubmitted("tsk_1", "a", "echo", "builtin", 1, plan=Plan(idempotency="k", digest="d"))),
    (AT, e.TaskAssigned("tsk_1", "a", 1)),
    (AT, e.TaskStarted("tsk_1", "a", 1)),
    (AT + SECOND, e.TaskSucceeded("tsk_1", "a", 1)),
    (AT + DAY, e.ServerStarted("0.2.0", SETTINGS, 6, settles_at=AT + DAY + 600 * SECOND)),
    (AT + DAY, e.TaskSubmitted("tsk_2", "a", "echo", "builtin", 1)),
    (AT + DAY + 10 * SECOND, e.ScheduleFired("hourly", FIRST + DAY, "skipped", None, "no room",
                                             FIRST + DAY + HOUR, FIRST + DAY + HOUR)),
    (AT + 20 * SECOND, e.ClockStepped(AT + DAY + 20 * SECOND, AT + 20 * SECOND, True)),
    (AT + 20 * SECOND, e.ScheduleRealigned("hourly", FIRST, FIRST, FIRST + DAY)),
)  # fmt: skip

if __name__ == "__main__":
    write(e.Record(seq, at, event, "ann") for seq, (at, event) in enumerate(STORY, start=1))

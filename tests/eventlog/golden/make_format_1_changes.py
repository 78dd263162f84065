"""Makes format_1_changes.jsonl: changes of a schedule, which say what is changed and nothing else.

Run once, and kept to show how; the file is the contract.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_changes.py > tests/eventlog/golden/format_1_changes.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e

AT = 1_795_000_000_000_000
HOUR = 3600 * SECOND
FIRST = 1_795_003_200_000_000
TASK = {"task": {"agent": "a", "action": "echo"}}
FLOW = {"workflow": {"tasks": [{"agent": "b", "action": "echo"}], "flow": {"name": "f"}}}
STORY: tuple[tuple[int, e.Event], ...] = (
    (AT, e.ServerStarted("0.2.0", SETTINGS)),
    (AT, e.ScheduleCreated("hourly", "@hourly", "UTC", TASK, "all", "queue", FIRST, FIRST, None,
                           5000, AT + SECOND, AT + 1000 * HOUR)),
    (AT, e.ScheduleCreated("other", "@hourly", "UTC", TASK, "none", "skip", FIRST, FIRST)),
    (AT + SECOND, e.ScheduleChanged("hourly", {"jitter_ms": None, "end_at": None}, FIRST, FIRST)),
    (AT + SECOND, e.ScheduleChanged("other", {"target": FLOW, "overlap": "cancel"}, FIRST, FIRST)),
)  # fmt: skip

if __name__ == "__main__":
    write(e.Record(seq, at, event, "ann") for seq, (at, event) in enumerate(STORY, start=1))

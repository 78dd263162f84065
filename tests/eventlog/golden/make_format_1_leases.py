"""Makes format_1_leases.jsonl: tasks lent to workers, which were added to format 1.

Run once, and kept to show how; the file is the contract.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_leases.py > tests/eventlog/golden/format_1_leases.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_794_950_000_000_000
GPU = Plan(requires=["gpu"])
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.5.0", {"queued": 500, "sticky_ms": 200}),
    e.TaskSubmitted("t1", "fitter", "fit", "pull", 1, plan=GPU),
    e.TaskSubmitted("t2", "fitter", "fit", "pull", 2),
    e.TaskAssigned("t1", "fitter", 1, "host-7", 30_000),
    e.TaskAssigned("t2", "fitter", 1, "host-7", 1000),
    e.TaskStarted("t1", "fitter", 1),
    e.LeaseExpired("t2", "fitter", 1, "host-7", AT + 7_500, 1000, 0),
    e.AttemptInterrupted("t2", "fitter", 1, "lease expired"),
    e.LeaseEnded("t1", "fitter", 1, "host-7", "completed", AT + 9_000, 12, 3),
    e.TaskSucceeded("t1", "fitter", 1, {"ok": True}),
    e.ResultRefused("t2", "fitter", 0, "succeeded", 5),
    e.TaskAssigned("t2", "fitter", 1, "host-8", 30_000),
    e.AttemptInterrupted("t2", "fitter", 1, "released"),
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * 1_500, event) for seq, event in enumerate(STORY, start=1))

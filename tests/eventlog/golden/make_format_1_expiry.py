"""Makes format_1_expiry.jsonl: a lease that expired is its task's last error.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_expiry.py > tests/eventlog/golden/format_1_expiry.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e

AT = 1_795_390_000_000_000
SILENT = "worker host-7 was silent until its lease expired"
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.2.0", SETTINGS),
    e.TaskSubmitted("tsk_1", "ann", "fit", "pull", 1),
    e.TaskAssigned("tsk_1", "ann", 1, worker="host-7", lease_ms=1000),
    e.LeaseExpired("tsk_1", "ann", 1, "host-7", AT + 3 * SECOND, 1000, 0),
    e.AttemptInterrupted("tsk_1", "ann", 1, "lease expired", error=SILENT),
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))

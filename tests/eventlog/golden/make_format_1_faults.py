"""Makes format_1_faults.jsonl: what was added to format 1 when rota learned to go on after faults.

Run once, and kept to show how; the file is the contract.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_faults.py > tests/eventlog/golden/format_1_faults.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import write

from rota.domain import events as e

AT = 1_772_971_500_000_000
STORY: tuple[e.Event, ...] = (
    e.TaskSubmitted("tsk_a", "crawler", "echo", "builtin", 1),
    e.TaskAssigned("tsk_a", "crawler", 1),
    e.ActorFailed("WorkerPool", "StartAttempt", "ValueError: a bug", 7),
    e.AttemptInterrupted("tsk_a", "crawler", 1, "internal fault"),
    e.TaskFailed("tsk_a", "crawler", 0, "internal_fault", "rota failed on this task twice"),
)


if __name__ == "__main__":
    write(e.Record(seq, AT + seq * 1_500, event) for seq, event in enumerate(STORY, start=1))

"""Makes format_1_declared.jsonl: what workers declared of types, and tasks that it holds back.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_declared.py \
        > tests/eventlog/golden/format_1_declared.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_390_000_000_000
RETRY = {"kind": "fixed", "max_attempts": 3, "retry_on": ["timeout"]}
STORY: tuple[tuple[e.Event, str], ...] = (
    (e.ServerStarted("0.2.0", SETTINGS), "rota"),
    (e.TypeDeclared("", "fit", RETRY, 5000, 2), "fleet#1"),
    (e.TypeDeclared("ann", "fit", max_concurrent=1), "local"),
    (e.TypeDeclared("bob", "fit", {}), "local"),
    (e.TypeDeclared("bob", "scan", timeout_ms=7), "local"),
    (e.TypeDeclared("bob", "scan"), "local"),
    (e.TaskSubmitted("tsk_1", "ann", "fit", "pull", 1, plan=Plan(declared_for="ann")), "ann"),
    (
        e.TaskSubmitted(
            "tsk_2", "cyd", "fit", "pull", 2, timeout_ms=5000,
            plan=Plan(retry=RETRY, declared_for="*"),
        ),
        "cyd",
    ),
    (e.TaskAssigned("tsk_1", "ann", 1, "w-1", 30_000), "rota"),
    (e.TaskAssigned("tsk_2", "cyd", 1, "w-1", 30_000), "rota"),
)  # fmt: skip

if __name__ == "__main__":
    write(
        e.Record(seq, AT + seq * SECOND, event, by)
        for seq, (event, by) in enumerate(STORY, start=1)
    )

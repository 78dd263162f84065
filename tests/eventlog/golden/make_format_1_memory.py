"""Makes format_1_memory.jsonl: what was added to format 1 so that memory is bounded.

Counted refusals, and revivals that carry what had left memory. Run once, when they were added, and
kept to show how; the file is the contract: it is not made again when the code changes.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_memory.py > tests/eventlog/golden/format_1_memory.jsonl
"""

from __future__ import annotations

from typing import Any

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

BOUNDED: dict[str, Any] = {
    **SETTINGS,
    "result_ttl_s": 60,
    "types": {},
    "per_key": 1,
    "aging_ms": 0,
    "browsers": 0,
    "queued_bytes": 1 << 30,
    "ended": 100_000,
    "ended_bytes": 64 << 20,
}
AT = 1_794_900_000_000_000
RESTORED = {
    "action": "echo",
    "agent": "ann",
    "assigned_at": AT + 3 * SECOND,
    "attempt": 1,
    "by": "client",
    "created_at": AT + 3 * SECOND,
    "created_seq": 3,
    "dialect": "native",
    "ended_seq": 5,
    "error": "it broke",
    "error_code": "boom",
    "executor": "builtin",
    "finished_at": AT + 5 * SECOND,
    "id": "tsk_a",
    "params_json": '{"n":1}',
    "plan": ["k", "bat_a", None, None, None, None, None, None, None, None, None, None],
    "position": 1,
    "priority": 2,
    "ready_at": AT + 3 * SECOND,
    "state": "failed",
    "token": 4,
}
BATCH = {
    "by": "client",
    "created_at": AT + 2 * SECOND,
    "dialect": "native",
    "fates": {"succeeded": 0, "failed": 1, "cancelled": 0},
    "finished_at": AT + 6 * SECOND,
    "finished_seq": 6,
    "id": "bat_a",
    "tasks": ["tsk_a"],
}

STORY: tuple[tuple[int, e.Event, str], ...] = (
    (1, e.ServerStarted("0.4.0", BOUNDED), ""),
    (2, e.BatchSubmitted("bat_a", ["tsk_a"]), "client"),
    (
        3,
        e.TaskSubmitted(
            "tsk_a", "ann", "echo", "builtin", 1, params={"n": 1}, plan=Plan(key="k", batch="bat_a")
        ),
        "client",
    ),
    (4, e.TaskAssigned("tsk_a", "ann", 1), ""),
    (5, e.TaskFailed("tsk_a", "ann", 1, "boom", "it broke"), ""),
    (6, e.BatchFinished("bat_a", 0, 1, 0), ""),
    (100, e.TaskRejected("tsk_b", "bob", "echo", "queue_full", "rejected: agent queue full"), ""),
    (101, e.RefusalsCounted(12, {"bob": 9, "ann": 2}, 1, 3), ""),
    (102, e.TaskRevived("tsk_a", "ann", RESTORED, BATCH), "client"),
    (103, e.TaskAssigned("tsk_a", "ann", 2), ""),
)


def records() -> list[e.Record]:
    """Number the story."""
    return [
        e.Record(seq, AT + at * SECOND, event, by)
        for seq, (at, event, by) in enumerate(STORY, start=1)
    ]


if __name__ == "__main__":
    write(records())

"""Makes format_1_clock.jsonl: the kind and the field that steps of the clock added to format 1.

Run once, when they were added, and kept to show how; `STORY` is what the file must read as. The
file is the contract: it is not made again when the code changes.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_clock.py > tests/eventlog/golden/format_1_clock.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_794_800_000_000_000
HOUR = 3600 * SECOND

STORY: tuple[tuple[int, e.Event], ...] = (
    (0, e.ServerStarted("0.3.0", {"result_ttl_s": 300})),
    (
        SECOND,
        e.TaskSubmitted(
            "tsk_a",
            "ann",
            "echo",
            "builtin",
            1,
            deadline=AT + 9 * HOUR,
            plan=Plan(not_before=AT + 61 * SECOND, delay_ms=60_000),
        ),
    ),
    (
        SECOND,
        e.TaskSubmitted("tsk_b", "ann", "echo", "builtin", 2, plan=Plan(not_before=AT + 8 * HOUR)),
    ),
    (
        SECOND,
        e.TaskSubmitted("tsk_c", "bob", "echo", "builtin", 3, plan=Plan(retry={"max_attempts": 2})),
    ),
    (2 * SECOND, e.TaskAssigned("tsk_c", "bob", 1)),
    (2 * SECOND, e.TaskStarted("tsk_c", "bob", 1)),
    (3 * SECOND + HOUR, e.ClockStepped(AT + 3 * SECOND, AT + 3 * SECOND + HOUR)),
    (
        4 * SECOND + HOUR,
        e.AttemptFailed("tsk_c", "bob", 1, "boom", "it broke", AT + 5 * SECOND + HOUR),
    ),
    (
        4 * SECOND + HOUR,
        e.TaskSubmitted(
            "tsk_d",
            "cyd",
            "echo",
            "builtin",
            3,
            plan=Plan(idempotency="i", digest="x", dedup="d", dedup_until=AT + 9 * SECOND + HOUR),
        ),
    ),
    (5 * SECOND + HOUR, e.TaskCancelled("tsk_d", "cyd", "ready")),
    (5 * SECOND, e.ClockStepped(AT + 5 * SECOND + HOUR, AT + 5 * SECOND)),
)


def records() -> list[e.Record]:
    """Number the story."""
    return [e.Record(seq, AT + at, event) for seq, (at, event) in enumerate(STORY, start=1)]


if __name__ == "__main__":
    write(records())

"""Makes format_1_task_model.jsonl: the kinds and fields that the task model added to format 1.

Run once, when they were added, and kept to show how; `STORY` is what the file must read as. The
file is the contract: it is not made again when the code changes.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1_task_model.py > tests/eventlog/golden/format_1_task_model.jsonl
"""

from __future__ import annotations

from typing import Any

from eventlog.golden.lines import HOOK, SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

TYPED: dict[str, Any] = {
    **SETTINGS,
    "types": {"scan": 2},
    "per_key": 1,
    "aging_ms": 60_000,
}
AT = 1_794_800_000_000_000

STORY: tuple[tuple[e.Event, str, int], ...] = (
    (e.ServerStarted("0.2.0", TYPED, 0, True), "", 0),
    (e.SchedulerPaused("started paused"), "", 0),
    (e.BatchSubmitted("bat_a", ["tsk_a", "tsk_b"], "native", 1, HOOK, "order-7", "d1"), "ann", 0),
    (
        e.TaskSubmitted(
            task="tsk_a",
            agent="crawler",
            action="scan",
            executor="web",
            position=1,
            ref="first",
            plan=Plan(
                batch="bat_a",
                parallelism=1,
                retry={"kind": "fixed", "max_attempts": 3, "retry_on": ["timeout", "status:5xx"]},
            ),
        ),
        "ann",
        0,
    ),
    (
        e.TaskSubmitted(
            task="tsk_b",
            agent="writer",
            action="click",
            executor="web",
            position=2,
            priority=0,
            params={"url": "{{first.url}}"},
            dialect="native",
            tab="tab-7",
            ref="second",
            callback=HOOK,
            deadline=AT + 3600 * SECOND,
            timeout_ms=30_000,
            on_interrupt="fail",
            waits=["tsk_a"],
            plan=Plan(
                key="shop",
                batch="bat_a",
                parallelism=1,
                depends={"first": "tsk_a"},
                retry={
                    "kind": "quadratic",
                    "base_ms": 500,
                    "multiplier": 1.5,
                    "jitter_ms": 100,
                    "max_ms": 9000,
                    "max_attempts": 4,
                },
                queue_timeout_ms=300_000,
                not_before=AT + 60 * SECOND,
                preempt=True,
                idempotency="once",
                digest="d2",
                dedup="basket",
                dedup_until=AT + 900 * SECOND,
            ),
        ),
        "ann",
        0,
    ),
    (e.BatchRejected("bat_b", 50, "queue_full", "rejected: global queue full"), "bob", 0),
    (e.TypePaused("scan", "the site is down"), "ann", 0),
    (e.TypeResumed("scan"), "ann", 0),
    (e.TypePaused("click"), "", 0),
    (e.SchedulerResumed(), "ann", 0),
    (e.SchedulerPaused(), "", 0),
    (e.TaskAssigned("tsk_a", "crawler", 1), "", 4),
    (e.TaskStarted("tsk_a", "crawler", 1), "", 12),
    (e.TaskLogged("tsk_a", "crawler", ["first line", "é\u2028"], "warning", 1), "", 12),
    (e.TaskLogged("tsk_a", "crawler", ["from outside"]), "ann", 0),
    (e.TaskProgressed("tsk_a", "crawler", {"percent": 40.5, "step": None}, 1), "", 12),
    (e.TaskProgressed("tsk_a", "crawler", 0), "ann", 0),
    (
        e.AttemptFailed(
            "tsk_a", "crawler", 1, "http_503", "HTTP 503", AT + SECOND, {"status": 503}
        ),
        "",
        12,
    ),
    (e.TaskReleased("tsk_a", "crawler", "backoff"), "", 0),
    (e.TaskAssigned("tsk_a", "crawler", 2), "", 4),
    (e.AttemptInterrupted("tsk_a", "crawler", 2, "preempted", "tsk_x"), "", 0),
    (e.TaskAssigned("tsk_a", "crawler", 2), "", 4),
    (e.TaskFailed("tsk_a", "crawler", 2, "timeout", "attempt timed out after 5 ms"), "", 22),
    (e.TaskRevived("tsk_a", "crawler"), "ann", 0),
    (e.TaskAssigned("tsk_a", "crawler", 3), "", 4),
    (e.TaskSucceeded("tsk_a", "crawler", 3, {"url": "https://example.com"}), "", 25),
    (e.TaskDelayed("tsk_b", "writer", AT + 60 * SECOND), "", 0),
    (e.TaskReleased("tsk_b", "writer", "delay"), "", 0),
    (e.TaskCancelled("tsk_b", "writer", "ready", "replaced by tsk_z", "replaced"), "ann", 0),
    (e.BatchFinished("bat_a", 1, 0, 1), "", 0),
    (e.TaskSubmitted("tsk_c", "writer", "echo", "builtin", 1, waits=["tsk_d"]), "", 0),
    (
        e.TaskSubmitted(
            "tsk_e", "crawler", "echo", "builtin", 2, plan=Plan(not_before=AT + SECOND)
        ),
        "",
        0,
    ),
)


def records() -> list[e.Record]:
    """Number the story."""
    return [
        e.Record(seq, AT + seq * 1_500, event, by, cause)
        for seq, (event, by, cause) in enumerate(STORY, start=1)
    ]


if __name__ == "__main__":
    write(records())

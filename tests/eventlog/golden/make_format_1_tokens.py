"""Makes format_1_tokens.jsonl: tokens, which were added to format 1, and `by` on every record.

Run once, and kept to show how; the file is the contract.

    PYTHONPATH=tests/eventlog/golden python tests/eventlog/golden/make_format_1_tokens.py \
        > tests/eventlog/golden/format_1_tokens.jsonl
"""

from __future__ import annotations

from lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan
from rota.domain.tokens import hash_of

AT = 1_794_960_000_000_000
DAY = 24 * 3600 * SECOND
STORY: tuple[tuple[e.Event, str], ...] = (
    (e.ServerStarted("0.6.0", SETTINGS), "rota"),
    (
        e.TaskSubmitted("tsk_1", "ann", "scan", "pull", 1, plan=Plan(idempotency="k", digest="d")),
        "",
    ),
    (
        e.TaskSubmitted(
            "tsk_2", "ann", "scan", "pull", 2, plan=Plan(idempotency="l", digest="d", dedup="m")
        ),
        "local",
    ),
    (e.TokenCreated("ops", "admin", hash_of(b"rota_ops")), "local"),
    (e.TokenCreated("ann", "submit", hash_of(b"rota_ann"), ["ann", "bob"], AT + DAY), "ops"),
    (e.TokenCreated("all", "work", hash_of(b"rota_all"), ["*"]), "ops"),
    (e.TokenCreated("eve", "audit", hash_of(b"rota_eve")), "ops"),
    (e.TokenRevoked("eve"), "ops"),
    (e.TokenRevoked("ann"), "ops"),
    (e.TokenCreated("ann", "submit", hash_of(b"rota_ann_2"), ["ann"], AT + DAY), "ops"),
)

if __name__ == "__main__":
    write(e.Record(n, AT + n * SECOND, event, by) for n, (event, by) in enumerate(STORY, start=1))

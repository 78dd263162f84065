"""Makes format_1_principals.jsonl: `principal` of tokens, which was added to format 1.

Run once, and kept to show how; the file is the contract.

    PYTHONPATH=tests/eventlog/golden python tests/eventlog/golden/make_format_1_principals.py \
        > tests/eventlog/golden/format_1_principals.jsonl
"""

from __future__ import annotations

from lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan
from rota.domain.tokens import hash_of

AT = 1_795_000_000_000_000
PLAN = Plan(idempotency="k", digest="d", dedup="m")
STORY: tuple[tuple[e.Event, str], ...] = (
    (e.ServerStarted("0.2.0", SETTINGS), "rota"),
    (e.TokenCreated("old", "submit", hash_of(b"rota_old"), ["ann"]), "local"),
    (e.TokenCreated("ann", "submit", hash_of(b"rota_ann"), ["ann"], None, "ann#3"), "local"),
    (e.TaskSubmitted("tsk_1", "ann", "scan", "pull", 1, plan=PLAN), "ann#3"),
    (e.TokenRevoked("ann"), "local"),
    (e.TokenCreated("ann", "submit", hash_of(b"rota_ann_2"), ["ann"], None, "ann#6"), "local"),
    (e.TaskSubmitted("tsk_2", "ann", "scan", "pull", 2, plan=PLAN), "ann#6"),
    (e.TaskSubmitted("tsk_3", "ann", "scan", "pull", 3, plan=PLAN), "old"),
)

if __name__ == "__main__":
    write(e.Record(n, AT + n * SECOND, event, by) for n, (event, by) in enumerate(STORY, start=1))

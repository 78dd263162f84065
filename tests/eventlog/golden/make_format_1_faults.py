"""Makes format_1_faults.jsonl: what was added to format 1 when rota learned to go on after faults.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_faults.py > tests/eventlog/golden/format_1_faults.jsonl
"""

from __future__ import annotations

import json
import sys
from hashlib import blake2b

from rota.domain import events as e
from rota.eventlog.codec import encode

AT = 1_772_971_500_000_000
STORY: tuple[e.Event, ...] = (
    e.TaskSubmitted("tsk_a", "crawler", "echo", "builtin", 1),
    e.TaskAssigned("tsk_a", "crawler", 1),
    e.ActorFailed("WorkerPool", "StartAttempt", "ValueError: a bug", 7),
    e.AttemptInterrupted("tsk_a", "crawler", 1, "internal fault"),
    e.TaskFailed("tsk_a", "crawler", 0, "internal_fault", "rota failed on this task twice"),
)


def main() -> None:
    """Write the lines."""
    digest = bytes(32)
    for seq, event in enumerate(STORY, start=1):
        body = encode(e.Record(seq, AT + seq * 1_500, event))
        digest = blake2b(digest + body, digest_size=32).digest()
        sys.stdout.write(json.dumps({"digest": digest.hex(), "body": body.decode()}) + "\n")


if __name__ == "__main__":
    main()

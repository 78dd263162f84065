"""Makes format_1_rules.jsonl: the rules of intake, which were added to two kinds of format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_rules.py > tests/eventlog/golden/format_1_rules.jsonl
"""

from __future__ import annotations

import json
import sys
from hashlib import blake2b

from rota.domain import events as e
from rota.domain.intake import Rules, TypeRules
from rota.eventlog.codec import encode

AT = 1_794_900_000_000_000
SETTINGS = {"queued": 500, "types": {"scan": 2}}
SCAN = TypeRules(
    executor="web",
    timeout_ms=30_000,
    timeout_ms_max=60_000,
    queue_timeout_ms=300_000,
    retry={"max_attempts": 3, "retry_on": ["timeout"]},
    on_interrupt="fail",
)
FIRST = Rules({"scan": SCAN, "post": TypeRules(retry={})}, tab="tabs")
SECOND = Rules({"scan": SCAN._replace(timeout_ms=None)}, chat="chats")
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.5.0", SETTINGS, rules=FIRST.to_dict()),
    e.ServerStarted("0.5.0", SETTINGS, 1, True),
    e.ConfigChanged({**SETTINGS, "queued": 600}, ["maxQueueSize"], "file"),
    e.ConfigChanged({**SETTINGS, "queued": 600}, [], "file", SECOND.to_dict()),
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

"""What the makers of golden files share: the first settings of format 1, and a line for each record.

Each line holds a body as the log keeps it and its digest.
"""

from __future__ import annotations

import json
import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from rota.eventlog.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.domain.events import Record

HOOK = "https://example.com/hook"
SECOND = 1_000_000
SETTINGS: dict[str, Any] = {
    "queued": 1000,
    "queued_per_agent": 100,
    "inflight": 20,
    "inflight_per_agent": 10,
    "push": 4,
    "result_ttl_s": 86400,
    "strategy": "fair-fifo",
}


def write(records: Iterable[Record]) -> None:
    """Write the lines."""
    digest = bytes(32)
    for record in records:
        body = encode(record)
        digest = blake2b(digest + body, digest_size=32).digest()
        line = {"digest": digest.hex(), "body": body.decode()}
        sys.stdout.write(json.dumps(line) + "\n")

"""The index of failures: which records ended a task as failed, newest first.

A database of its own beside the records: seq to task. It is filled with every append, so a list of
failed tasks goes on beyond memory without a scan. A log that was written without it, or by an
older rota in between, is indexed when it is next opened for writing; until then, a reader scans.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any

from rota.eventlog.chain import DIGEST_BYTES
from rota.eventlog.codec import failed_task
from rota.eventlog.damage import another, damaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.eventlog.port import Stored

logger = logging.getLogger("rota.eventlog")

INDEXED = b"failed_epoch"
"""The epoch of the last writer that kept the index; another writer's has passed it by."""
SCAN_RECORDS = 2000
REPORT_EVERY = 500_000
_SEQ = struct.Struct(">Q")


def rows_of(records: Sequence[Stored]) -> list[tuple[bytes, bytes]]:
    return [
        (_SEQ.pack(record.seq), task.encode())
        for record in records
        if record.task is not None and (task := failed_task(record.body)) is not None
    ]


def is_kept(txn: Any, meta: Any) -> bool:
    """Whether every record of the log has been through the index."""
    indexed = txn.get(INDEXED, db=meta)
    return indexed is not None and indexed == txn.get(b"epoch", b"0", db=meta)


def fill(txn: Any, meta: Any, events: Any, failed: Any) -> None:
    """Index the whole log anew, all or nothing, within one transaction."""
    txn.drop(failed, delete=False)
    total = txn.stat(events)["entries"]
    for number, (key, value) in enumerate(txn.cursor(events).iternext(), start=1):
        task = failed_task(value[DIGEST_BYTES:])
        if task is not None:
            txn.put(key, task.encode(), db=failed, append=True)
        if number % REPORT_EVERY == 0:
            logger.info("indexing failed tasks, once: %d of %d records", number, total)
    txn.put(INDEXED, txn.get(b"epoch", b"0", db=meta), db=meta)


def before(txn: Any, db: dict[str, Any], seq: int, limit: int) -> list[tuple[int, str]]:
    """Give up to `limit` rows before `seq`, newest first, each checked against its record."""
    cursor, events = txn.cursor(db["failed"]), db["events"]
    if not _go_before(cursor, seq):
        return []
    found: list[tuple[int, str]] = []
    for key, value in cursor.iterprev():
        if len(found) >= limit:
            break
        if len(key) != _SEQ.size:
            raise damaged("the index of failed tasks is damaged")
        row = _SEQ.unpack(key)[0], value.decode(errors="replace")
        record = txn.get(key, db=events)
        if record is None or failed_task(record[DIGEST_BYTES:]) != row[1]:
            raise another(row[1], row[0])
        found.append(row)
    return found


def scan(txn: Any, events: Any, seq: int, limit: int) -> tuple[list[tuple[int, str]], int]:
    """Look through some records before `seq`; give what is found, and where to look on (or 0)."""
    cursor = txn.cursor(events)
    if not _go_before(cursor, seq):
        return [], 0
    found: list[tuple[int, str]] = []
    for number, (key, value) in enumerate(cursor.iterprev(), start=1):
        seq = _SEQ.unpack(key)[0]
        task = failed_task(value[DIGEST_BYTES:])
        if task is not None:
            found.append((seq, task))
        if len(found) >= limit or number >= SCAN_RECORDS:
            return found, seq
    return found, 0


def _go_before(cursor: Any, seq: int) -> bool:
    """Put a cursor on the last key before `seq`."""
    if seq <= 0:
        return False
    at = min(seq, (1 << 64) - 1)
    return bool(cursor.prev() if cursor.set_range(_SEQ.pack(at)) else cursor.last())

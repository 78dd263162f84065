"""What a log of an earlier rota lacks, or has too much of; seen to once, when it is opened.

The index of failures is made where it is missing. Snapshots that were kept among the records are
deleted, so that their pages are used again. Whoever may only read leaves everything as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.eventlog import failed_index

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[Callable[[Any], None]], None]


def upgrade(begin: Callable[[], Any], write: Write | None, db: dict[str, Any]) -> bool:
    """Bring a log up to date; give whether its index of failures is whole."""
    failed, old = db.get("failed"), db["snapshots"]
    with begin() as txn:
        is_indexed = failed is not None and failed_index.is_kept(txn, db["meta"])
        is_empty = txn.stat(old)["entries"] == 0
    if write is None:
        return is_indexed
    if not is_indexed:
        write(lambda txn: failed_index.fill(txn, db["meta"], db["events"], failed))
    if not is_empty:
        write(lambda txn: txn.drop(old, delete=False))
    return True

"""What is said of a log whose bytes are not what was written.

Only here is the advice to have it verified: a log that cannot be opened or written at the moment is
whole, and is opened again.
"""

from __future__ import annotations

from rota.errors import LogCorrupt

ADVICE = (
    "run `rota verify`: if it says that all records are good, `rota reindex` mends the log; "
    "else restore the data folder from a copy"
)


def broken(seq: int) -> LogCorrupt:
    return LogCorrupt(seq, f"record {seq} does not match its digest", hint=ADVICE)


def missing(seq: int) -> LogCorrupt:
    """Say that a record is not there, though later ones are."""
    return LogCorrupt(seq, f"record {seq} is missing", hint=ADVICE)


def misplaced(seq: int, key: bytes) -> LogCorrupt:
    """Say that a record is good, and has another's key."""
    what = f"the tree of records is damaged: record {seq} has the key {int.from_bytes(key)}"
    return LogCorrupt(seq, what, hint=ADVICE)


def misled(task: str, seq: int) -> LogCorrupt:
    """Say that an index and the tree of records do not agree."""
    what = f"record {seq} is not found, which the index of task {task} names"
    return LogCorrupt(seq, what, hint=ADVICE)


def another(task: str, seq: int) -> LogCorrupt:
    """Say that an index names a good record for a task that the record is not about."""
    what = f"record {seq} is not about task {task}, as an index says: the index is damaged"
    return LogCorrupt(seq, what, hint=ADVICE)


def damaged(what: str, seq: int = 0) -> LogCorrupt:
    """Say that the file is damaged; `seq` is the first record that cannot be read, if known."""
    return LogCorrupt(seq, what, hint=ADVICE)

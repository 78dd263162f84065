"""What is said of a log whose bytes are not what was written.

Only here is the advice to restore from a copy: a log that cannot be opened or written at the
moment is whole, and is opened again.
"""

from __future__ import annotations

from rota.errors import LogCorrupt

RESTORE = "restore the data folder from a copy; `rota verify` checks one"


def broken(seq: int) -> LogCorrupt:
    return LogCorrupt(seq, f"record {seq} does not match its digest", hint=RESTORE)


def missing(seq: int) -> LogCorrupt:
    """Say that a record is not there, though later ones are."""
    return LogCorrupt(seq, f"record {seq} is missing", hint=RESTORE)


def misled(seq: int) -> LogCorrupt:
    return LogCorrupt(seq, f"record {seq} is missing, which the index names", hint=RESTORE)


def damaged(what: str, seq: int = 0) -> LogCorrupt:
    """Say that the file is damaged; `seq` is the first record that cannot be read, if known."""
    return LogCorrupt(seq, what, hint=RESTORE)

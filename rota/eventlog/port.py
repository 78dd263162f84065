"""What an event log is, whoever implements it.

A log is append-only, numbered from 1 without gaps, and hash-chained. `append` returns only when
the records are durable, and all of them are or none is. Reads give only what is durable, and
verify the digest of what they give. Whoever only reads is given the reader, whoever only writes the
writer. tests/support/eventlog_suite.py holds every implementation to this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT_VERSION = 1
READ_BYTES_MAX = 8 << 20


class Stored(NamedTuple):
    """A record as it lies in the log; `task` is what it is indexed under."""

    seq: int
    digest: bytes
    body: bytes
    task: str | None = None


class Head(NamedTuple):
    """The last durable record."""

    seq: int
    digest: bytes


class Snapshot(NamedTuple):
    """The state after `seq`, as bytes; a cache that may be deleted at any time."""

    seq: int
    digest: bytes
    version: int
    blob: bytes | bytearray


class LogReader(Protocol):
    """The reading half: what is durable, verified. May be used in any thread."""

    def read(self, after: int, limit: int, bytes_max: int = READ_BYTES_MAX) -> list[Stored]:
        """Give up to `limit` verified records after `after`. Raises LogCorrupt.

        The first of them that makes them more than `bytes_max` is the last.
        """
        ...

    def read_task(
        self, task_id: str, limit: int, after: int = 0, bytes_max: int = READ_BYTES_MAX
    ) -> list[Stored]:
        """Give up to `limit` verified records of one task after `after`. Raises LogCorrupt."""
        ...

    def has_task(self, task_id: str) -> bool:
        """Whether any record is indexed under this task."""
        ...

    def known_of(self, task_ids: Sequence[str]) -> set[str]:
        """Give those under which any record is indexed."""
        ...

    def last_subject(self, first: str, end: str) -> str:
        """Give the last id from `first` up to before `end` that is indexed; else ""."""
        ...

    def failed_before(self, seq: int, limit: int) -> list[tuple[int, str]]:
        """Give (seq, task) of up to `limit` records before `seq` by which a task failed.

        The newest comes first. A task that was revived and failed again comes once for each.
        """
        ...

    def head(self) -> Head:
        """Give the last durable record's seq and digest."""
        ...

    def load_snapshots(self) -> list[Snapshot]:
        """Give the snapshots, newest first; damaged ones are left out."""
        ...


class LogWriter(Protocol):
    """The writing half, for the one thread that writes; snapshots may be kept in another."""

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        """Make the records durable after `expected_seq`, under the writer's `epoch`."""
        ...

    def epoch(self) -> int:
        """Give the epoch under which appends are accepted now."""
        ...

    def claim(self) -> int:
        """Become the writer: raise the epoch, so that an older writer is refused."""
        ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, dropping all but the newest two."""
        ...

    def reopen(self) -> Head:
        """After a failed append: open anew, check that writing works, give the head.

        Whoever reads at that moment is waited for; whoever wants to waits, or gets LogUnusable.
        If it raises LogUnusable, the log can still be read if the disk can be.
        """
        ...

    def close(self) -> None: ...


class EventLog(LogReader, LogWriter, Protocol):
    """Both halves: an append-only, chained, durable sequence of records."""

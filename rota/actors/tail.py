"""The newest durable records, in memory: what streams and event handlers read.

Fed by the journal with what became durable, in order, and with nothing else: what was rolled back
was never here. It keeps records only while somebody reads, up to a count and a number of bytes;
whoever is further behind gets pages from the log, bounded alike, read beside the loop. After a
failure of the log it goes on with whatever comes next; if that does not follow on what is here,
what is here is let go, and readers find the records between in the log.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.eventlog.heading import heading_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rota.actors.journal import Journal
    from rota.eventlog.heading import Heading
    from rota.eventlog.port import LogReader, Stored

RECORDS_MAX = 4096
BYTES_MAX = 8 << 20
PAGE_RECORDS = 500
PAGE_BYTES = 256 << 10


class Entry:
    """A durable record as readers want it; one for all of them."""

    __slots__ = ("_about", "body", "frame", "seq")

    def __init__(self, seq: int, body: bytes) -> None:
        """Keep the stored body; the rest is made when it is first asked for."""
        self.seq = seq
        self.body = body
        self.frame: bytes | None = None
        self._about: Heading | None = None

    @property
    def about(self) -> Heading:
        if self._about is None:
            self._about = heading_of(self.body)
        return self._about


class Tail:
    """The end of one log, as far as it is durable."""

    def __init__(self, *, records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.last = -1
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._kept: dict[int, Entry] = {}
        self._first = 0
        self._bytes = 0
        self._readers = 0

    # -- in

    def join(self, journal: Journal) -> None:
        """Be fed by `journal`; the first one says where the log ends, later only records do."""
        journal.tail = self
        if self.last < 0:
            self._empty(journal.durable_seq)

    def add(self, records: list[Stored]) -> None:
        if not self._readers:
            self._empty(records[-1].seq)
            return
        if records[0].seq != self.last + 1:
            self._empty(records[0].seq - 1)
        kept = self._kept
        for record in records:
            kept[record.seq] = Entry(record.seq, record.body)
            self._bytes += len(record.body)
        self.last = records[-1].seq
        while self._bytes > self._bytes_max or len(kept) > self._records_max:
            self._bytes -= len(kept.pop(self._first).body)
            self._first += 1

    def _empty(self, last: int) -> None:
        self._kept.clear()
        self._bytes = 0
        self.last, self._first = last, last + 1

    # -- out

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Have records kept while in this block."""
        if not self._readers:
            self._empty(self.last)
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._empty(self.last)

    def holds(self, after: int) -> bool:
        """Whether every durable record after `after` is in memory."""
        return after + 1 >= self._first

    def recent(self, after: int) -> Iterable[Entry]:
        """Give the records after `after`, all of which are in memory."""
        kept = self._kept
        return (kept[seq] for seq in range(after + 1, self.last + 1))

    def page(self, after: int) -> list[Entry]:
        """Give the next durable records, which are in memory."""
        found_here: list[Entry] = []
        size = 0
        for entry in self.recent(after):
            found_here.append(entry)
            size += len(entry.body)
            if size > PAGE_BYTES or len(found_here) >= PAGE_RECORDS:
                break
        return found_here

    def read(self, log: LogReader, after: int, task: str | None) -> tuple[list[Entry], int]:
        """Give the next durable records from the log, of one task if it is named; in any thread.

        And how far that was looked through. Raises a LogError.
        """
        until = self.last
        if task is None:
            found = log.read(after, PAGE_RECORDS, PAGE_BYTES)
        else:
            found = log.read_task(task, PAGE_RECORDS, after, PAGE_BYTES)
        mine = [Entry(item.seq, item.body) for item in found if item.seq <= until]
        if task is None:
            return mine, mine[-1].seq if mine else after
        is_cut = len(mine) == len(found) and bool(found)
        return mine, mine[-1].seq if is_cut else until

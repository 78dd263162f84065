"""Reading a log from one place to another, verified and decoded.

`replay` pages through the log in short reads, so that no long transaction pins old pages, and
yields records of today's classes. It may end at a seq or at a moment. Progress is reported by a
callback; who draws the bar is the caller's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.eventlog.codec import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.events import Event, Record
    from rota.eventlog.port import LogReader, Stored

PAGE_RECORDS = 2000


def pages(log: LogReader, after: int = 0, until_seq: int | None = None) -> Iterator[list[Stored]]:
    """Give the verified records after `after`, up to and with `until_seq`, a page at a time."""
    while until_seq is None or after < until_seq:
        limit = PAGE_RECORDS if until_seq is None else min(PAGE_RECORDS, until_seq - after)
        page = log.read(after, limit)
        if not page:
            return
        yield page
        after = page[-1].seq


def stored(log: LogReader, after: int = 0, until_seq: int | None = None) -> Iterator[Stored]:
    """Give the same one by one."""
    for page in pages(log, after, until_seq):
        yield from page


def stored_of(log: LogReader, task_id: str, after: int = 0) -> Iterator[Stored]:
    """Give the verified records of one task after `after`, oldest first, read a page at a time."""
    while page := log.read_task(task_id, PAGE_RECORDS, after):
        yield from page
        after = page[-1].seq


def replay_task(log: LogReader, task_id: str, after: int = 0) -> Iterator[Record[Any]]:
    """Give the same, decoded."""
    for item in stored_of(log, task_id, after):
        yield decode(item.body)


def seq_at(log: LogReader, at: int) -> int:
    """Give the last seq whose record is dated a moment or before, by its own clock.

    This goes through all records since, for whoever has nothing but the log; a server bisects
    (sight/past).
    """
    end = log.head().seq
    while end > 0:
        page = log.read(max(0, end - PAGE_RECORDS), min(end, PAGE_RECORDS))
        for item in reversed(page):
            if decode(item.body).at <= at:
                return item.seq
        end -= len(page)
    return 0


def replay(
    log: LogReader,
    after: int = 0,
    *,
    until_seq: int | None = None,
    until_at: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Record[Event]]:
    """Give the decoded records after `after`, up to a seq or a moment."""
    if until_at is not None:
        last = seq_at(log, until_at)
        until_seq = last if until_seq is None else min(last, until_seq)
    for page in pages(log, after, until_seq):
        for item in page:
            yield decode(item.body)
        if progress is not None:
            progress(page[-1].seq)

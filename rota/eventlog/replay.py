"""Reading a log from one place to another, verified and decoded.

`replay` pages through the log in short reads, so that no long transaction pins old pages, and
yields records of today's classes. `stop` may be a seq or a moment. Progress is reported by a
callback; who draws the bar is the caller's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.eventlog.codec import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.events import Record
    from rota.eventlog.port import EventLog, Stored

PAGE_RECORDS = 2000


def pages(log: EventLog, after: int = 0, until_seq: int | None = None) -> Iterator[list[Stored]]:
    """Give the verified records after `after`, up to and with `until_seq`, a page at a time."""
    while until_seq is None or after < until_seq:
        limit = PAGE_RECORDS if until_seq is None else min(PAGE_RECORDS, until_seq - after)
        page = log.read(after, limit)
        if not page:
            return
        yield page
        after = page[-1].seq


def stored(log: EventLog, after: int = 0, until_seq: int | None = None) -> Iterator[Stored]:
    """Give the same one by one."""
    for page in pages(log, after, until_seq):
        yield from page


def stored_of(log: EventLog, task_id: str, after: int = 0) -> Iterator[Stored]:
    """Give the verified records of one task after `after`, oldest first, read a page at a time."""
    while page := log.read_task(task_id, PAGE_RECORDS, after):
        yield from page
        after = page[-1].seq


def replay_task(log: EventLog, task_id: str, after: int = 0) -> Iterator[Record]:
    """Give the same, decoded."""
    for item in stored_of(log, task_id, after):
        yield decode(item.body)


def replay(
    log: EventLog,
    after: int = 0,
    *,
    until_seq: int | None = None,
    until_at: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Record]:
    """Give the decoded records after `after`, up to a seq or a moment."""
    for page in pages(log, after, until_seq):
        for item in page:
            record = decode(item.body)
            if until_at is not None and record.at > until_at:
                return
            yield record
        if progress is not None:
            progress(page[-1].seq)

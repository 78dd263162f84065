"""Everything a log's records can be held to, without a server: what `rota verify` does.

Reads every record once, in order: its digest continues the chain, its body says its own seq, it
decodes, and it folds. Snapshots that a start would trust must be the fold up to their seq; the
index of every task must name exactly its records; a head that was kept elsewhere must be on the
chain. The first thing wrong is raised as LogCorrupt. Only records up to the head at the beginning
are judged, so a server may go on writing meanwhile.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from rota.domain.events import TaskExpired, TaskFailed
from rota.errors import IllegalMove, LogCorrupt
from rota.eventlog.chain import GENESIS
from rota.eventlog.codec import decode, subject_of
from rota.eventlog.port import READ_BYTES_MAX, Head
from rota.eventlog.replay import stored
from rota.projections.state import SNAPSHOT_VERSION, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.events import Event, Record
    from rota.eventlog.port import LogReader, Snapshot

FAILURES = (TaskFailed, TaskExpired)
INDEX = "tasks in the index"
PAGES = "pages"
REPORT_EVERY = 2000
RESTORE = "restore the data folder from a copy, and keep this one to find out what happened to it"
REINDEX = "`rota reindex` makes the log anew from its records; no copy is needed"


class Verified(NamedTuple):
    """What was found to be in order."""

    head: Head
    tasks: int
    snapshots: int
    digest: str


def verify(
    log: LogReader,
    kept: Head | None = None,
    *,
    progress: Callable[[int, int], None],
    index_progress: Callable[[int, int], None],
) -> Verified:
    """Check the whole log. Raises LogCorrupt naming the first record that is wrong."""
    end = log.head()
    if kept is not None and kept.seq > end.seq:
        msg = f"the log ends at {end.seq}, before the head {kept.seq} that was kept"
        raise LogCorrupt(end.seq + 1, msg, hint=f"records were cut off: {RESTORE}")
    snapshots = {s.seq: s for s in log.load_snapshots() if s.version == SNAPSHOT_VERSION}
    by_task: dict[str, array[int]] = {}
    failed: list[tuple[int, str]] = []
    state = State()
    digest, good = GENESIS, 0
    _check_kept(kept, 0, digest)
    for item in stored(log, 0, end.seq):
        record = decode(item.body)
        if record.seq != item.seq:
            msg = f"record {item.seq} says that it is record {record.seq}"
            raise LogCorrupt(item.seq, msg, hint=RESTORE)
        _fold(state, record)
        task = subject_of(record.event)
        if task is not None:
            by_task.setdefault(task, array("Q")).append(item.seq)
            if isinstance(record.event, FAILURES):
                failed.append((item.seq, task))
        digest = item.digest
        _check_kept(kept, item.seq, digest)
        snapshot = snapshots.get(item.seq)
        if snapshot is not None and snapshot.digest == digest:
            _check_snapshot(snapshot, state)
            good += 1
        if item.seq % REPORT_EVERY == 0:
            progress(item.seq, end.seq)
    if Head(state.seq, digest) != end:
        msg = f"the log should end at {end.seq}, but record {state.seq + 1} cannot be read"
        raise LogCorrupt(state.seq + 1, msg, hint=RESTORE)
    progress(end.seq, end.seq)
    try:
        _check_index(log, by_task, end.seq, index_progress)
        _check_failed(log, failed, end.seq)
    except LogCorrupt as error:
        msg = f"the index is damaged, all {end.seq} records are good: {error.message}"
        raise LogCorrupt(error.seq or end.seq, msg, hint=REINDEX) from error
    return Verified(end, len(by_task), good, state.digest())


def _fold(state: State, record: Record[Event]) -> None:
    try:
        state.apply(record)
    except Exception as error:
        why = str(error) if isinstance(error, IllegalMove) else f"{type(error).__name__}: {error}"
        msg = f"record {record.seq} does not fold: {why}"
        raise LogCorrupt(record.seq, msg, hint=RESTORE) from error


def _check_kept(kept: Head | None, seq: int, digest: bytes) -> None:
    if kept is not None and kept.seq == seq and kept.digest != digest:
        msg = f"the digest of record {seq} is not the one that was kept"
        raise LogCorrupt(seq, msg, hint=f"the history before it was rewritten: {RESTORE}")


def _check_snapshot(snapshot: Snapshot, state: State) -> None:
    """Compare a snapshot with the fold of the records before it."""
    try:
        same = State.load(snapshot.blob).digest() == state.digest()
    except (ValueError, KeyError, TypeError):
        return
    if not same:
        msg = f"the snapshot at {snapshot.seq} is not what the records before it add up to"
        hint = "the records are good; `rota replay --no-snapshots` shows the true state"
        raise LogCorrupt(snapshot.seq, msg, hint=hint)


def _check_index(
    log: LogReader, by_task: dict[str, array[int]], end: int, progress: Callable[[int, int], None]
) -> None:
    """Compare the index of every task with the records that are about it."""
    for number, (task, seqs) in enumerate(by_task.items(), start=1):
        found = [seq for seq in _indexed(log, task, len(seqs) + 1) if seq <= end]
        if found != list(seqs):
            wrong = min(set(found) ^ set(seqs))
            msg = f"the index of task {task} and record {wrong} do not agree"
            raise LogCorrupt(wrong, msg, hint=RESTORE)
        if number % REPORT_EVERY == 0:
            progress(number, len(by_task))


def _indexed(log: LogReader, task: str, most: int) -> list[int]:
    """Give the records that a task has by the index, page by page: its history may be large."""
    found: list[int] = []
    while len(found) < most:
        page = log.read_task(task, most - len(found), found[-1] if found else 0)
        found += [item.seq for item in page]
        if sum(len(item.body) for item in page) <= READ_BYTES_MAX:
            break  # it was not cut short
    return found


def _check_failed(log: LogReader, failed: list[tuple[int, str]], end: int) -> None:
    """Compare the index of failures with the records by which tasks failed."""
    before, right = end + 1, iter(reversed(failed))
    while page := log.failed_before(before, REPORT_EVERY):
        for found in page:
            _check_failure(found, next(right, None))
        before = page[-1][0]
    _check_failure(None, next(right, None))


def _check_failure(found: tuple[int, str] | None, right: tuple[int, str] | None) -> None:
    if found != right:
        wrong = max(seq for seq, _ in filter(None, (found, right)))
        msg = f"the index of failed tasks and record {wrong} do not agree"
        raise LogCorrupt(wrong, msg, hint=RESTORE)

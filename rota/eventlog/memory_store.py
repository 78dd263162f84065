"""An event log in memory, for the simulator and for tests.

It keeps the port's promises except the one it cannot: it is gone with its process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from rota.errors import LogUnusable
from rota.eventlog.chain import GENESIS, extend
from rota.eventlog.codec import failed_task
from rota.eventlog.port import READ_BYTES_MAX, Head, Snapshot, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

_SNAPSHOTS_KEPT = 2


class MemoryLog:
    """A list of records with the manners of a log."""

    def __init__(self) -> None:
        self._records: list[Stored] = []
        self._by_task: dict[str, list[int]] = {}
        self._failed: list[tuple[int, str]] = []
        self._snapshots: list[Snapshot] = []
        self._epoch = 0

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        """Keep the records, if they continue the chain and the writer is the current one."""
        if epoch != self._epoch:
            msg = f"writer of epoch {epoch} refused: the log is at epoch {self._epoch}"
            raise LogUnusable(msg)
        head = self.head()
        if expected_seq != head.seq:
            msg = f"append after {expected_seq} refused: the log is at {head.seq}"
            raise LogUnusable(msg)
        digest = head.digest
        for n, record in enumerate(records, start=head.seq + 1):
            digest = extend(digest, record.body)
            if record.seq != n or record.digest != digest:
                msg = f"record {record.seq} does not continue the chain at {n}"
                raise LogUnusable(msg)
        for record in records:
            self._records.append(record)
            if record.task is not None:
                self._by_task.setdefault(record.task, []).append(record.seq)
                if failed_task(record.body) is not None:
                    self._failed.append((record.seq, record.task))

    def read(self, after: int, limit: int, bytes_max: int = READ_BYTES_MAX) -> list[Stored]:
        return _up_to(self._records[max(after, 0) : max(after, 0) + limit], bytes_max)

    def read_task(
        self, task_id: str, limit: int, after: int = 0, bytes_max: int = READ_BYTES_MAX
    ) -> list[Stored]:
        own = self._by_task.get(task_id, [])
        first = bisect_right(own, after)
        return _up_to([self._records[seq - 1] for seq in own[first : first + limit]], bytes_max)

    def has_task(self, task_id: str) -> bool:
        return task_id in self._by_task

    def last_subject(self, first: str, end: str) -> str:
        return max((task for task in self._by_task if first <= task < end), default="")

    def failed_before(self, seq: int, limit: int) -> list[tuple[int, str]]:
        end = bisect_left(self._failed, (seq,))
        return self._failed[max(0, end - limit) : end][::-1]

    def known_of(self, task_ids: Sequence[str]) -> set[str]:
        return {task_id for task_id in task_ids if task_id in self._by_task}

    def head(self) -> Head:
        if not self._records:
            return Head(0, GENESIS)
        last = self._records[-1]
        return Head(last.seq, last.digest)

    def epoch(self) -> int:
        return self._epoch

    def claim(self) -> int:
        self._epoch += 1
        return self._epoch

    def save_snapshot(self, snapshot: Snapshot) -> None:
        kept = [old for old in self._snapshots if old.seq != snapshot.seq]
        self._snapshots = sorted([*kept, snapshot], key=lambda each: -each.seq)
        del self._snapshots[_SNAPSHOTS_KEPT:]

    def load_snapshots(self) -> list[Snapshot]:
        return list(self._snapshots)

    def reopen(self) -> Head:
        """Nothing to open: memory always accepts."""
        return self.head()

    def close(self) -> None:
        """Nothing to let go of."""


def _up_to(records: list[Stored], bytes_max: int) -> list[Stored]:
    """Leave out what comes after the first record that makes them too many bytes."""
    size = 0
    for count, record in enumerate(records, start=1):
        size += len(record.body)
        if size > bytes_max:
            return records[:count]
    return records

"""Takes snapshots of a state that does not stand still.

The small projections are copied at one instant; tasks are written out a slice at a time, and a
task about to change is written out just before (copy on write), so the snapshot is of that one
instant and the loop is never held for long. Keys, and the items of projects, never change, they are
only replaced, so a copy of their table will do. A snapshot is a cache: one that is not finished is
dropped.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from rota.eventlog.port import Snapshot
from rota.projections.state import SNAPSHOT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.task import Task
    from rota.projections.state import State

SLICE_TASKS = 50
SLICE_KEYS = 500
SLICE_ITEMS = 500
SLICE_BYTES = 256 << 10


class Snapshotter:
    """One snapshot in the making."""

    def __init__(self, state: State, digest: bytes) -> None:
        """Fix the instant: the state after its `seq`, whose digest is given."""
        self.seq = state.seq
        self._digest = digest
        self._state = state
        self._blob = bytearray(orjson.dumps(state.dump_head())[:-1] + b',"tasks":[')
        self._tasks = list(state.tasks)
        self._keys = state.keys.rows()
        self._items = state.projects.items_in_order()
        self._rows: dict[str, bytes] = {}
        self._at = 0
        self._slices = self._written()
        self._stopped = False
        state.tasks.before_change = self._write

    def _write(self, task: Task) -> None:
        if task.created_seq <= self.seq and task.id not in self._rows:
            self._rows[task.id] = orjson.dumps(task.to_row())

    def slice(self) -> Snapshot | None:
        """Write out some more; give the snapshot when it is whole."""
        for _ in self._slices:
            return None
        self.stop()
        return Snapshot(self.seq, self._digest, SNAPSHOT_VERSION, self._blob)

    def _written(self) -> Iterator[None]:
        """Write everything out, and stop for a moment after each slice."""
        while self._at < len(self._tasks):
            self._slice_tasks()
            if self._at < len(self._tasks):
                yield
        self._blob += b'],"keys":['
        is_more = False
        while part := list(islice(self._keys, SLICE_KEYS)):
            rows = [row for row in part if row is not None]
            if rows:
                self._append(is_more, orjson.dumps(rows)[1:-1])
                is_more = True
            if len(part) == SLICE_KEYS:
                yield
        self._blob += b'],"items":['
        for at in range(0, len(self._items), SLICE_ITEMS):
            yield from self._slice_items(at)
        self._blob += b"]}"

    def _slice_items(self, start: int) -> Iterator[None]:
        """Write out some items, not too much at a time."""
        rows: list[list[Any]] = []
        size = 0
        for at, (project, item) in enumerate(self._items[start : start + SLICE_ITEMS], start):
            rows.append([project, *item.to_row()])
            size += item.size
            if size >= SLICE_BYTES or at + 1 == min(start + SLICE_ITEMS, len(self._items)):
                self._append(at >= len(rows), orjson.dumps(rows)[1:-1])
                rows, size = [], 0
                yield

    def _slice_tasks(self) -> None:
        """Write out some tasks: not too many, and not too much."""
        rows, size = [], 0
        for task in self._tasks[self._at : self._at + SLICE_TASKS]:
            self._write(task)
            rows.append(self._rows[task.id])
            self._rows[task.id] = b""
            size += len(rows[-1])
            if size >= SLICE_BYTES:
                break
        self._append(self._at > 0, b",".join(rows))
        self._at += len(rows)

    def _append(self, is_more: bool, rows: bytes) -> None:  # noqa: FBT001
        if is_more:
            self._blob += b","
        self._blob += rows

    def stop(self) -> None:
        """Stop watching the tasks; a run that is under way ends without a result."""
        self._stopped = True
        self._state.tasks.before_change = None

    def run(self, later: Callable[[Callable[[], None]], object], done: Done) -> None:
        """Write slice by slice, the next when `later` says so, then call `done`."""
        if self._stopped:
            return
        snapshot = self.slice()
        if snapshot is None:
            later(lambda: self.run(later, done))
        else:
            done(snapshot)


if TYPE_CHECKING:
    Done = Callable[[Snapshot], None]

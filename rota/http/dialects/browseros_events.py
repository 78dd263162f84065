"""Facts by BrowserOS's names, for pages and for streams.

They name a task's batch, which only its first record says. That is looked up once a task, in memory
or by one read of one record; never by reading a task's history, which may be long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from rota.domain import events as e
from rota.eventlog.codec import KINDS as NAMES
from rota.eventlog.codec import decode
from rota.http.dialects import browseros

if TYPE_CHECKING:
    from rota.actors.system import Shard
    from rota.actors.tail import Entry
    from rota.domain.events import Record
    from rota.eventlog.port import Stored

KINDS = frozenset(NAMES[cls] for cls in browseros.EVENTS)
BATCHES_KEPT = 4096
SLICE_EVENTS = 50


class Batches:
    """Which task is of which batch; what was looked up last is kept."""

    def __init__(self, shard: Shard) -> None:
        """Look into the shard's memory first, then into its log."""
        self._shard = shard
        self._known: dict[str, str | None] = {}

    def of(self, record: Record) -> str | None:
        """Give the batch of the task that a record is about. Raises a LogError."""
        event: Any = record.event
        if isinstance(event, e.TaskSubmitted):
            return event.batch
        task = self._shard.state.tasks.get(event.task)
        if task is not None:
            return task.plan.batch if task.plan is not None else None
        if event.task not in self._known:
            first = self._shard.log.read_task(event.task, 1)
            born: Any = decode(first[0].body).event if first else None
            self._known[event.task] = getattr(born, "batch", None)
            if len(self._known) > BATCHES_KEPT:
                del self._known[next(iter(self._known))]
        return self._known[event.task]


class Frames:
    """Makes the frames of a stream."""

    def __init__(self, shard: Shard) -> None:
        """Look batches up in `shard`."""
        self._batches = Batches(shard)

    def __call__(self, entry: Entry) -> bytes:
        """Give the frame of a record; nothing if the document has no name for it."""
        record = decode(entry.body)
        if type(record.event) not in browseros.EVENTS:
            return b""
        shown = browseros.event_view(record, self._batches.of(record))
        if shown is None:
            return b""
        name = shown["type"].encode()
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (entry.seq, name, orjson.dumps(shown))


async def shown(shard: Shard, found: list[Stored]) -> list[dict[str, Any]]:
    """Show the facts of a page that the document has names for, without holding the loop."""
    batches = Batches(shard)
    views: list[dict[str, Any]] = []
    for count, item in enumerate(found, start=1):
        record = decode(item.body)
        if type(record.event) in browseros.EVENTS:
            view = browseros.event_view(record, batches.of(record))
            if view is not None:
                views.append(view)
        if count % SLICE_EVENTS == 0:
            await asyncio.sleep(0)
    return views

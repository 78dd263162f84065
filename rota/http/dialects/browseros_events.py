"""Facts by BrowserOS's names, for pages and for streams.

They name a task's batch, which only its first record says (rota.http.belonging).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rota.domain import events as e
from rota.eventlog.codec import KINDS as NAMES
from rota.eventlog.codec import decode
from rota.eventlog.heading import kind_of
from rota.http.belonging import Belonging
from rota.http.dialects import browseros
from rota.sight.turns import my_turn

if TYPE_CHECKING:
    from rota.actors.tail import Entry
    from rota.domain.events import Record
    from rota.eventlog.port import Stored
    from rota.sight.feed import Feed

KINDS = frozenset(NAMES[cls] for cls in browseros.EVENTS)
SLICE_EVENTS = 50


class Batches:
    """Which task is of which batch."""

    def __init__(self, feed: Feed) -> None:
        self._belonging = Belonging(feed)
        self.look_up = self._belonging.look_up_page

    def of(self, record: Record[e.Event]) -> str | None:
        """Give the batch of the task that a record is about. Raises LacksError."""
        event: Any = record.event
        if isinstance(event, e.TaskSubmitted):
            return event.plan.batch if event.plan is not None else None
        return self._belonging.of(event.task).batch


class Frames:
    """Makes the frames of a stream."""

    def __init__(self, feed: Feed) -> None:
        self._batches = Batches(feed)

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


async def shown(feed: Feed, found: list[Stored]) -> list[dict[str, Any]]:
    """Show the facts of a page that the document has names for, without holding the loop."""
    batches = Batches(feed)
    records = [decode(item.body) for item in found if kind_of(item.body) in KINDS]
    names: list[Any] = [getattr(record.event, "task", None) for record in records]
    await batches.look_up(dict.fromkeys(each for each in names if each is not None))
    views: list[dict[str, Any]] = []
    for count, record in enumerate(records, start=1):
        view = browseros.event_view(record, batches.of(record))
        if view is not None:
            views.append(view)
        if count % SLICE_EVENTS == 0:
            await my_turn()
    return views

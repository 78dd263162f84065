"""Facts as AutoMechanica's AgentEvents, for pages and for streams.

An AgentEvent is any fact that names an agent: its `event_type` is the fact's kind, its `payload`
what the fact says, its `id` the seq. What names no agent (a start, a reload) is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.eventlog.codec import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.actors.tail import Entry
    from rota.eventlog.port import Stored

KINDS = frozenset(kind for kind, cls in CLASSES.items() if "agent" in cls._fields)


def event_view(raw: dict[str, Any]) -> dict[str, Any]:
    """Show a record's body as an AgentEvent."""
    return {
        "id": raw["seq"],
        "agent_name": raw["agent"],
        "workflow_id": raw["data"].get("workflow"),
        "task_id": raw.get("task"),
        "event_type": raw["kind"],
        "payload": raw["data"],
        "created_at": rfc3339(raw["at"]),
    }


def shown(found: Iterable[Stored]) -> list[dict[str, Any]]:
    """Show the AgentEvents of a page."""
    bodies = (orjson.loads(item.body) for item in found)
    return [event_view(raw) for raw in bodies if raw["kind"] in KINDS]


def frame(entry: Entry) -> bytes:
    """Give a stream's frame of a record; nothing if it is no AgentEvent."""
    raw = orjson.loads(entry.body)
    if raw["kind"] not in KINDS:
        return b""
    event = orjson.dumps(event_view(raw))
    return b"id: %d\nevent: agent_event\ndata: %b\n\n" % (entry.seq, event)

"""Facts as AutoMechanica's AgentEvents, for pages and for streams.

An AgentEvent is any fact that names an agent: its `event_type` is the fact's kind, its `payload`
what the fact says, its `id` the seq. What names no agent (a start, a reload) is none. The workflow
is that of the fact's task, which only the task's first record names (rota.http.belonging).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.eventlog.codec import CLASSES
from rota.http.belonging import Belonging

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.actors.tail import Entry
    from rota.eventlog.port import Stored
    from rota.sight.feed import Feed

KINDS = frozenset(kind for kind, cls in CLASSES.items() if "agent" in cls._fields)
BIRTHS = frozenset({"task_submitted", "task_rejected"})
"""They say themselves what their task is of."""


def event_view(raw: dict[str, Any], belonging: Belonging) -> dict[str, Any]:
    """Show a record's body as an AgentEvent. Raises LacksError."""
    workflow, task = raw["data"].get("workflow"), raw.get("task")
    if workflow is None and task is not None and raw["kind"] not in BIRTHS:
        workflow = belonging.of(task).workflow
    return {
        "id": raw["seq"],
        "agent_name": raw["agent"],
        "workflow_id": workflow,
        "task_id": task,
        "event_type": raw["kind"],
        "payload": raw["data"],
        "created_at": rfc3339(raw["at"]),
    }


async def shown(feed: Feed, found: Iterable[Stored]) -> list[dict[str, Any]]:
    """Show the AgentEvents of a page."""
    bodies = [raw for item in found if (raw := orjson.loads(item.body))["kind"] in KINDS]
    belonging = Belonging(feed)
    await belonging.look_up_page(raw["task"] for raw in bodies if "task" in raw)
    return [event_view(raw, belonging) for raw in bodies]


class Frames:
    """Makes the frames of a stream."""

    def __init__(self, feed: Feed) -> None:
        self._belonging = Belonging(feed)

    def __call__(self, entry: Entry) -> bytes:
        """Give the frame of a record; nothing if it is no AgentEvent. Raises LacksError."""
        raw = orjson.loads(entry.body)
        if raw["kind"] not in KINDS:
            return b""
        event = orjson.dumps(event_view(raw, self._belonging))
        return b"id: %d\nevent: agent_event\ndata: %b\n\n" % (entry.seq, event)

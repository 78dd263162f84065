"""/v1/events: the whole history, as a paged feed and as a stream; with ?view= in a dialect's words.

Both show durable facts only. The feed reads the log in pages (rota.sight.history).
A stream is served from the tail of recent records, or from the log while it is behind (rota.http.
streams and catch_up); `Last-Event-ID` resumes it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import HttpVersion11, web

from rota.actors.tail import Entry
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX, STREAMS_MAX
from rota.errors import InvalidRequest, LogError
from rota.eventlog.codec import CLASSES
from rota.http import catch_up
from rota.http.dialects import automechanica, automechanica_events, browseros, browseros_events
from rota.http.presence import connection_of
from rota.http.streams import Stream
from rota.sight.history import check_after
from rota.sight.projects import shown_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.http.call import Call
    from rota.sight.history import MaySee, Wanted

logger = logging.getLogger("rota.http")

NATIVE = "native"
KINDS: dict[str, frozenset[str] | None] = {
    NATIVE: None,
    browseros.NAME: browseros_events.KINDS,
    automechanica.NAME: automechanica_events.KINDS,
}
"""The views of facts, and which kinds of facts they have words for; None is all."""


def _wanted(call: Call) -> Wanted:
    kinds = frozenset(filter(None, (call.query("kind") or "").split(",")))
    unknown = sorted(kinds - set(CLASSES))
    if unknown:
        msg = f"unknown kind '{unknown[0][:50]}'; use {', '.join(CLASSES)}"
        raise InvalidRequest(msg, details={"field": "kind"})
    task, agent, project = (call.query(name) for name in ("task", "agentId", "project"))
    return call.sight.wanted(kinds or None, task, agent, project)


async def feed(call: Call) -> Any:
    """GET /v1/events."""
    after = call.query_int("after", default=0, low=0, high=SEQ_MAX)
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    wanted = _wanted(call)
    view = _view(call)
    page = await call.sight.records(after, limit, wanted)
    if view != NATIVE:
        if view == browseros.NAME:
            shown = await browseros_events.shown(call.namespace.feed, page.found)
        else:
            shown = await automechanica_events.shown(call.namespace.feed, page.found)
        return call.json({"events": shown, "next": page.next, "head": page.head})
    events = b",".join(item.body for item in page.found)
    return call.raw(b'{"events":[%b],"next":%d,"head":%d}' % (events, page.next, page.head))


async def head(call: Call) -> Any:
    """GET /v1/events/head."""
    at = await call.sight.head()
    return call.json({"seq": at.seq, "digest": at.digest.hex()})


async def stream(call: Call) -> Any:
    """GET /v1/events/stream."""
    wanted, after = _wanted(call), await _place(call)
    view = _view(call)
    kinds = KINDS[view]
    if kinds is not None:
        wanted = wanted._replace(kinds=kinds if wanted.kinds is None else kinds & wanted.kinds)
    msg = f"{STREAMS_MAX} streams are open, or as many of yours as may"
    with call.holding(call.app.namespaces.streaming, "too_many_streams", msg):
        return await _stream(call, wanted, after, view)


async def _stream(call: Call, wanted: Wanted, after: int, view: str) -> Any:
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Request-ID": call.request_id,
            **call.app.access.shared_with(call.request),
        }
    )
    connection = connection_of(call.request)
    if connection.is_gone:
        return response
    made = Stream(
        connection,
        wanted,
        _renderer(call, view, wanted),
        after,
        is_chunked=call.request.version >= HttpVersion11,
    )
    with call.namespace.streams.open(made), call.staying(call.share, made.wake):
        await response.prepare(call.request)
        try:
            await response.write(b": rota event stream\n\n")
            await catch_up.serve(made, call.namespace.streams, lambda: _is_over(call))
        except ConnectionError:
            pass  # the reader has left
        except LogError as error:
            if call.namespace.damage.met(error) is not error:
                logger.error("a stream ends after %d: %s", made.at, error)  # noqa: TRY400
            response.force_close()
    return response


def _is_over(call: Call) -> bool:
    return call.must_end or not call.is_welcome


async def _place(call: Call) -> int:
    """Give the seq to go on after: the header's, the query's, or the newest. Raises."""
    last = call.request.headers.get("Last-Event-ID", "")
    if last:
        if not last.isascii() or not last.isdigit() or len(last) > 18:
            raise InvalidRequest("header 'Last-Event-ID': must be a seq")
        after = int(last)
    else:
        newest = call.namespace.feed.tail.last
        after = call.query_int("after", default=newest, low=0, high=SEQ_MAX)
    check_after(after, (await call.sight.head()).seq)
    return after


@dataclass(frozen=True, slots=True)
class _Shown:
    """Makes the frames for somebody who does not see all; equal ones can share frames."""

    frame: Callable[[Entry], bytes]
    may_see: MaySee

    def __call__(self, entry: Entry) -> bytes:
        body = shown_to(entry.body, entry.about, self.may_see)
        return self.frame(entry if body is entry.body else Entry(entry.seq, body))


def _renderer(call: Call, view: str, wanted: Wanted) -> Callable[[Entry], bytes]:
    """Give what makes the frames of a view: one for all streams, so that they can share them."""
    made = call.namespace.streams.renderers
    if view != NATIVE and view not in made:
        of_view = automechanica_events if view == automechanica.NAME else browseros_events
        made[view] = of_view.Frames(call.namespace.feed)
    frame = _frame if view == NATIVE else made[view]
    return frame if wanted.may_see is None else _Shown(frame, wanted.may_see)


def _frame(entry: Entry) -> bytes:
    if entry.frame is None:
        entry.frame = b"id: %d\nevent: event\ndata: %b\n\n" % (entry.seq, entry.body)
    return entry.frame


def _view(call: Call) -> str:
    """Name the words in which facts shall be shown. Raises InvalidRequest."""
    name = call.query("view") or NATIVE
    if name not in KINDS:
        msg = f"unknown view '{name[:50]}'; use {', '.join(KINDS)}"
        raise InvalidRequest(msg, details={"field": "view"})
    return name

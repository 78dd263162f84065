"""/v1/events: the whole history, as a paged feed and as a stream; with ?view= in a dialect's words.

Both read the log, so they show durable facts only. The stream is woken by commits and reads
pages, so that a slow reader costs nothing but its own delay; `Last-Event-ID` resumes it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX, STREAMS_MAX
from rota.errors import InvalidRequest
from rota.eventlog.codec import CLASSES, decode
from rota.http.dialects import browseros
from rota.http.problems import HttpProblem
from rota.http.v1.seqs import check_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.eventlog.port import EventLog, Stored
    from rota.http.call import Call

SCAN_MAX = 20_000
SCAN_ROWS = 100
HEARTBEAT_S = 15.0


def _wanted(call: Call) -> tuple[frozenset[str], str | None, str | None]:
    kinds = frozenset(filter(None, (call.query("kind") or "").split(",")))
    unknown = sorted(kinds - set(CLASSES))
    if unknown:
        msg = f"unknown kind '{unknown[0][:50]}'; use {', '.join(CLASSES)}"
        raise InvalidRequest(msg, details={"field": "kind"})
    return kinds, call.query("task"), call.query("agentId")


def _select(
    page: list[Stored], wanted: tuple[frozenset[str], str | None, str | None]
) -> list[Stored]:
    kinds, task, agent = wanted
    if not kinds and task is None and agent is None:
        return page
    found = []
    for item in page:
        event: Any = decode(item.body).event
        name = type(event).__name__
        if (
            (not kinds or any(CLASSES[kind].__name__ == name for kind in kinds))
            and (task is None or getattr(event, "task", None) == task)
            and (agent is None or getattr(event, "agent", None) == agent)
        ):
            found.append(item)
    return found


async def _scan(
    log: EventLog, after: int, limit: int, wanted: tuple[frozenset[str], str | None, str | None]
) -> tuple[list[Stored], int]:
    """Look through the log for up to `limit` wanted records; say how far it was looked through.

    The records of one task are found by its index.
    """
    found: list[Stored] = []
    looked, task, head = 0, wanted[1], log.head().seq
    while looked < SCAN_MAX:
        page = log.read(after, SCAN_ROWS) if task is None else log.read_task(task, SCAN_ROWS, after)
        if not page:
            return found, max(after, head)
        await asyncio.sleep(0)
        for item in _select(page, wanted):
            found.append(item)
            if len(found) == limit:
                return found, item.seq
        looked += len(page)
        after = page[-1].seq
    return found, after


async def feed(call: Call) -> Any:
    """GET /v1/events."""
    after = call.query_int("after", default=0, low=0, high=SEQ_MAX)
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    wanted = _wanted(call)
    log = call.bridge.shard.log
    check_after(after, log.head().seq)
    if wanted == (frozenset(), None, None):
        found = log.read(after, limit)
        after = found[-1].seq if found else after
    else:
        found, after = await _scan(log, after, limit, wanted)
    if _in_dialect(call):
        shown = [view for item in found if (view := _browseros(call, item)) is not None]
        return call.json({"events": shown, "next": after, "head": log.head().seq})
    events = b",".join(item.body for item in found)
    return call.raw(b'{"events":[%b],"next":%d,"head":%d}' % (events, after, log.head().seq))


async def head(call: Call) -> Any:
    """GET /v1/events/head."""
    at = call.bridge.shard.log.head()
    return call.json({"seq": at.seq, "digest": at.digest.hex()})


async def stream(call: Call) -> Any:
    """GET /v1/events/stream."""
    default = call.bridge.shard.log.head().seq
    last = call.request.headers.get("Last-Event-ID", "")
    if last:
        if not last.isascii() or not last.isdigit() or len(last) > 18:
            raise InvalidRequest("header 'Last-Event-ID': must be a seq")
        after = int(last)
    else:
        after = call.query_int("after", default=default, low=0, high=SEQ_MAX)
    check_after(after, default)
    wanted = _wanted(call)
    frame = _browseros_frame if _in_dialect(call) else _frame
    if len(call.app.streams) >= STREAMS_MAX:
        raise HttpProblem(503, "too_many_streams", "too many streams are open")
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Request-ID": call.request_id,
        }
    )
    await response.prepare(call.request)
    news = asyncio.Event()
    call.app.streams.add(news)
    try:
        await _pour(call, response, after, wanted, news, frame)
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        call.app.streams.discard(news)
    return response


async def _pour(
    call: Call,
    response: web.StreamResponse,
    after: int,
    wanted: tuple[frozenset[str], str | None, str | None],
    news: asyncio.Event,
    frame: Callable[[Call, Stored], bytes],
) -> None:
    await response.write(b": rota event stream\n\n")
    while not call.app.closing:
        news.clear()
        page = call.bridge.shard.log.read(after, PAGE_ROWS_MAX)
        if page:
            after = page[-1].seq
            chosen = _select(page, wanted)
            if chosen:
                await response.write(b"".join(frame(call, item) for item in chosen))
            await asyncio.sleep(0)
            continue
        try:
            await asyncio.wait_for(news.wait(), HEARTBEAT_S)
        except TimeoutError:
            await response.write(b": still here\n\n")


def _frame(call: Call, item: Stored) -> bytes:
    del call
    return b"id: %d\nevent: event\ndata: %b\n\n" % (item.seq, item.body)


def _in_dialect(call: Call) -> bool:
    """Whether facts shall be shown by BrowserOS's names. Raises InvalidRequest."""
    name = call.query("view")
    if name not in (None, "native", browseros.NAME):
        msg = f"unknown view '{str(name)[:50]}'; use native, {browseros.NAME}"
        raise InvalidRequest(msg, details={"field": "view"})
    return name == browseros.NAME


def _browseros(call: Call, item: Stored) -> dict[str, Any] | None:
    record = decode(item.body)
    if type(record.event) not in browseros.EVENTS:
        return None
    task = call.bridge.shard.archive.task(record.event.task)  # type: ignore[union-attr]
    plan = task.plan if task is not None else None
    return browseros.event_view(record, plan.batch if plan is not None else None)


def _browseros_frame(call: Call, item: Stored) -> bytes:
    shown = _browseros(call, item)
    if shown is None:
        return b""
    name = shown["type"].encode()
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (item.seq, name, orjson.dumps(shown))

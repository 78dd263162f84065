"""Giving a stream what it has not got yet, at its reader's own pace.

Page by page from the tail or from the log, and piece by piece: the next one is written when the
reader has taken the last. While a reader takes its time nothing is held for it but the piece it
has not taken; where it went on is known by the record and the byte within it. A log that cannot be
read for a while is waited for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.actors.readers import asked_by
from rota.errors import LogUnusable, StorageUnavailable
from rota.http.streams import STILL_HERE, LacksError
from rota.sight.turns import my_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.tail import Entry
    from rota.http.streams import Stream, Streams

PIECE_BYTES = 64 << 10
HEARTBEAT_S = 15.0
TAKES_ITS_TIME_S = 2.0
UNREADABLE = (LogUnusable, StorageUnavailable)
"""The log is being opened anew, or too many read it."""
UNREADABLE_S = 0.5
HELD_PAGES_MAX = 32
"""How many pages are kept for readers that take their time; the others are read again."""


async def serve(stream: Stream, streams: Streams, is_over: Callable[[], bool]) -> None:
    """Give a stream everything it wants until it is over. Raises ConnectionError or LogError."""
    has_probed = False
    while not is_over():
        if stream.connection.is_gone:
            return
        if stream.connection.at_eof and not has_probed:
            has_probed = True  # whoever says no more may be gone, and a byte would tell
            stream.write(stream.framed(STILL_HERE))
        if stream.connection.writing_paused:
            await _change(stream, None)
        elif not stream.is_idle:
            await _go_on(stream, streams)
        elif not await _change(stream, HEARTBEAT_S) and stream.has_room:
            stream.write(stream.framed(STILL_HERE))


async def _change(stream: Stream, within_s: float | None) -> bool:
    """Wait until something has changed for a stream; say whether it has."""
    stream.changed.clear()
    try:
        async with asyncio.timeout(within_s):
            await stream.changed.wait()
    except TimeoutError:
        return False
    return True


async def _go_on(stream: Stream, streams: Streams) -> None:
    """Give the next page, or find that there is none."""
    try:
        page, end = await _page(stream, streams)
        is_given = await _give(stream, streams, page)
    except UNREADABLE:
        await _change(stream, UNREADABLE_S)
        return
    if is_given:
        stream.at = max(stream.at, end)
        if stream.at >= streams.tail.last:  # from here on it is woken
            stream.is_idle = True


async def _page(stream: Stream, streams: Streams) -> tuple[list[Entry], int]:
    """Find the next of what a stream wants; say how far that was looked for.

    The streams of a caller read one after the other, and callers take turns with what was read.
    """
    wanted = stream.wanted
    async with streams.reading.setdefault(asked_by.get(), asyncio.Lock()):
        page, end = await streams.source.entries(stream.at, wanted.task)
        await my_turn()
        return [entry for entry in page if wanted.matches(entry.about)], end


async def _give(stream: Stream, streams: Streams, page: list[Entry]) -> bool:
    """Write a page piece by piece; say whether all of it was, before the reader took its time.

    What is made is written also if what comes after it cannot be: `stream.at` counts it as given.
    """
    piece = bytearray()
    for entry in page:
        try:
            frame = await _frame(stream, entry)
        except UNREADABLE:
            if piece:
                await _write(stream, streams, piece)
            raise
        while len(piece) + len(frame) - stream.offset > PIECE_BYTES:
            end = stream.offset + PIECE_BYTES - len(piece)
            piece += frame[stream.offset : end]
            stream.at, stream.offset = entry.seq - 1, end
            if not await _write(stream, streams, piece):
                return False
        piece += frame[stream.offset :]
        stream.at, stream.offset = entry.seq, 0
    return not piece or await _write(stream, streams, piece)


async def _frame(stream: Stream, entry: Entry) -> bytes:
    """Make the frame of a record, looking up what that takes."""
    while True:
        try:
            return stream.render(entry)
        except LacksError as lacks:
            await lacks.look_up()


async def _write(stream: Stream, streams: Streams, piece: bytearray) -> bool:
    """Write a piece; say whether the reader took it, while its page is held."""
    stream.write(stream.framed(bytes(piece)))
    piece.clear()
    if not stream.connection.writing_paused:
        return True
    if streams.held_pages >= HELD_PAGES_MAX:
        return False
    streams.held_pages += 1
    try:
        return await _change(stream, TAKES_ITS_TIME_S) and not _is_full(stream)
    finally:
        streams.held_pages -= 1


def _is_full(stream: Stream) -> bool:
    """Whether the reader has not taken what was written. Raises ConnectionError if it has left."""
    if stream.connection.is_gone:
        raise ConnectionResetError("the reader has left")
    return stream.connection.writing_paused

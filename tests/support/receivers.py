"""Real receivers on the loopback, for tests of whatever calls out over HTTP.

A `Receiver` counts its connections and keeps every request. What it answers is a script of raw
bytes or a coroutine, so that it can be as rude as a test needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

ACCEPT_TURNS = 5
"""So many turns of the loop at most lie between a connection's accept and the word of it."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Request(NamedTuple):
    """A request as it came in."""

    line: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """What one listener saw."""

    def __init__(self, answer: bytes | Answer, *, keeps: bool = False) -> None:
        """Answer every request in the same way, one a connection unless it `keeps` them."""
        self._answer = answer
        self._keeps = keeps
        self.port = 0
        self.connections = 0
        self.open_now = 0
        self.peak = 0
        self.requests: list[Request] = []
        self.raw = b""
        self.arrived = asyncio.Condition()
        self._handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._is_closing = False

    def url(self, host: str = "127.0.0.1", path: str = "/hook") -> str:
        """Give a URL that leads here if `host` does."""
        return f"http://{host}:{self.port}{path}"

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests have come in."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection; not a coroutine, which could be cancelled before it begins."""
        if self._is_closing:
            writer.transport.abort()
            return
        handler = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._handlers[handler] = writer
        handler.add_done_callback(self._handlers.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.peak = max(self.peak, self.open_now)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve_one(reader, writer)
                while self._keeps:
                    await self._serve_one(reader, writer)
        finally:
            self.open_now -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def hang_up(self) -> None:
        """End the connections that are still open, and those that are just coming in."""
        self._is_closing = True
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        handlers = dict(self._handlers)
        for handler, writer in handlers.items():
            handler.cancel()
            writer.transport.abort()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (first := await reader.read(1)) == b"\x16":
            self.raw = first + await reader.read(4096)  # a TLS hello; it gets no answer
            return
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip("\r\n").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        async with self.arrived:
            self.requests.append(Request(line, headers, body))
            self.arrived.notify_all()
        if isinstance(self._answer, bytes):
            writer.write(self._answer)
            await writer.drain()
        else:
            await self._answer(writer)


@asynccontextmanager
async def receiving(
    answer: bytes | Answer = OK, host: str = "127.0.0.1", port: int = 0, *, keeps: bool = False
) -> AsyncIterator[Receiver]:
    """Listen on a port of `host`, a free one unless named, until the block ends."""
    receiver = Receiver(answer, keeps=keeps)
    server = await asyncio.start_server(receiver.take, host, port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        for listener in server.sockets:  # accept no more, but let those in that were accepted:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        await receiver.hang_up()
        server.close()  # would lose them, and never close them (python/cpython#109564)
        await server.wait_closed()


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """Write an answer."""
    fields = "".join(f"{header}\r\n" for header in headers)
    head = f"HTTP/1.1 {status} Whatever\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body

"""aiohttp's low-level server, with our manners.

Takes all connections that have come in each turn of the loop, so that a new one does not wait for
a turn of every one before it while many requests keep the turns long.
Counts connections: above the limit those that owe us something or only sit there are closed for
whoever comes, and those that wait are answered early. If all are being served, the newcomer's
request is read, and the app answers only health and administrators. Headers must come within a
time, and answers be read within one. What is not HTTP, or cannot be made a request of, is answered
with a 4xx of our own shape and one line at debug level, and the connection is closed. A client that
has closed its half of the connection still gets its answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import ERROR, _ErrInfo

from rota.http import last_answers, problems
from rota.http.byte_budgets import SMALL_BYTES
from rota.http.places import Places
from rota.http.presence import AttendedConnection, connection_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.web_request import BaseRequest

    from rota.http.problems import HttpProblem
    from rota.http.tls import Shaking

    Handler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]

logger = logging.getLogger("rota.http")

KEEPALIVE_S = 75.0
UNREAD_S = 30.0
"""How long an answer may lie there without a byte of it being read."""
PARTING_S = 2.0
"""How long a client that has closed its half is still answered: it may as well have left."""
SWEEP_S = 1.0
LINGER_S = 1.0
"""How long a large body that nobody wants is read on: who still sends it sees no answer."""
LATE_STATUS = 408
PIECE_BYTES = 32 << 10
FRAMING_BYTES_MAX = 50_000
"""How much more than its own bytes a body in chunks may have; larger bodies, half of their size."""


ACCEPTS_MAX = 1024
"""How many connections are taken in one turn of the loop."""
ACCEPT_PAUSE_S = 1.0
SEND_BUFFER_BYTES = 128 << 10
"""What the kernel may hold for each connection (it doubles this); left alone it takes megabytes."""


class Protocol(AttendedConnection):
    """One connection."""

    __slots__ = (
        "_answered",
        "_awaited",
        "_framing",
        "_has_begun",
        "_is_chunked",
        "_is_refused",
        "_listener",
        "_wire",
        "answer_bytes",
        "is_parting",
    )

    is_parting: bool

    def __init__(self, listener: Listener, **options: Any) -> None:
        super().__init__(listener, **options)
        self._listener = listener
        self.places = listener.places
        self._leaves = []
        self._awaited: Any = EMPTY_PAYLOAD
        self._answered = 0
        self._framing = self.answer_bytes = 0
        self._has_begun = self._is_chunked = self._is_refused = False
        self.is_excess = self.is_parting = False

    # -- opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, or be one too many."""
        super().connection_made(transport)
        self._wire = self.transport if self._is_secure else None
        self._listener.arrived(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.places.leave(self)
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's
        """End the connection; over TLS without waiting for a farewell that may never come."""
        await super().shutdown(timeout)
        if self._wire is not None:
            await asyncio.sleep(0)  # what was written last goes out first
            self._wire.abort()

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's says None, asyncio looks
        """Go on for as long as a client that has closed its half waits for its answers."""
        self.says_no_more()
        if self._is_secure:
            return False  # TLS knows no half of a connection
        if self.is_parting:
            return True  # reading was resumed, and found the end again
        if self._payload_parser is not None or not self._is_busy:
            return False
        request = self._current_request
        if request is not None and request.writer.output_size > 0:
            return False  # the answer has begun: what was written of it still goes out
        self.is_parting = True
        if not self._awaited.is_eof():
            self._cut(self._awaited, last_answers.cut_short())
        self._loop.call_later(PARTING_S, self.force_close)
        return True

    @property
    def _is_secure(self) -> bool:
        transport = self.transport
        return transport is not None and transport.get_extra_info("sslcontext") is not None

    async def start(self) -> None:
        """Serve the connection; whatever happens, it does not stay open without anybody."""
        try:
            await super().start()
        except Exception:  # of aiohttp's own, before or after our handler
            logger.debug("a connection failed", exc_info=True)
        finally:
            if self.transport is not None and not self.transport.is_closing():
                self.force_close()

    # -- bytes in and out

    @property
    def _is_busy(self) -> bool:
        return self._request_count > self._answered

    def data_received(self, data: bytes) -> None:
        """Parse; a large packet piece by piece if it may be of a body in chunks."""
        if len(data) <= PIECE_BYTES or self._is_plain:
            self._parse(data)
            return
        for at in range(0, len(data), PIECE_BYTES):
            self._parse(data[at : at + PIECE_BYTES])

    def _parse(self, data: bytes) -> None:
        """Parse; know whether more is owed."""
        if self.is_parting or self._is_refused:
            return
        body = self._awaited
        self._framing += len(data) + body.total_bytes
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - whatever the parser could not bear
            self._refuse(error)
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            self._is_refused = True  # whatever still comes is not even looked at
            problems.forget_frames(self._messages[-1][0].exc)
            if not body.is_eof():
                self._break_off(body)
        self._framing -= body.total_bytes
        if self._is_in_crumbs(body):
            self.is_parting = True
            self._cut(body, last_answers.in_crumbs())
        if data:
            self._has_begun = True
        self._take_stock()

    def _is_in_crumbs(self, body: Any) -> bool:
        """Whether a body comes in so small chunks that to put it together holds everybody up."""
        if body.is_eof() or self._reading_paused:  # else what came of it was looked at
            return False
        allowed: int = max(FRAMING_BYTES_MAX, body.total_bytes // 2)
        return self._framing > allowed

    @property
    def _is_plain(self) -> bool:
        """Whether what comes now is of a body that has a length, or of no request any more."""
        return self._upgraded or not (self._awaited.is_eof() or self._is_chunked)

    def _take_stock(self) -> None:
        """Know what the client owes us, if anything."""
        if self._messages and self._awaited is not self._messages[-1][1]:
            message, self._awaited = self._messages[-1]
            self._framing = 0
            self._is_chunked = getattr(message, "chunked", False)
        if not self._awaited.is_eof() and not self.is_parting:
            self._listener.owes(self)
        elif self._is_busy:
            self.places.served(self)
        elif self._has_begun:
            self._listener.owes(self)
        else:
            self.places.rests(self)

    def _refuse(self, error: Exception) -> None:
        """Have what could not be parsed answered after what could."""
        self._request_count += 1
        self._messages.append((_ErrInfo(400, error, ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break_off(self, body: Any) -> None:
        """Have whoever reads a body know that it is broken; theirs is the last answer."""
        self._messages.pop()
        self._request_count -= 1
        self.is_parting = True
        self._cut(body, last_answers.not_http())

    def _cut(self, body: Any, error: HttpProblem) -> None:
        """Let a body end with an error; nobody waits for the rest of it."""
        self._lingering_time = 0.0
        body.set_exception(error)

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Answer, and rest until the next request."""
        self._close_if_unread(request, resp)
        self.answer_bytes = resp.content_length or 0
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(resp, web.Response):
                resp.body = None  # aiohttp keeps the answer until the next request
            self._answered += 1
            if not self._is_busy:
                self._has_begun = False
                if self.is_parting:
                    self.close()
            self._take_stock()

    def _close_if_unread(self, request: BaseRequest, answer: web.StreamResponse) -> None:
        """Let an answer be the last if a body that nobody wants is late, or not small."""
        if request.content.is_eof() or answer.prepared:
            return
        is_late = answer.status == LATE_STATUS
        if is_late or request.content_length is None or request.content_length > SMALL_BYTES:
            self._lingering_time = 0.0 if is_late else min(self._lingering_time, LINGER_S)
            answer.force_close()

    async def _drain_helper(self) -> None:
        """Wait until what was written is taken."""
        try:
            await super()._drain_helper()
        except ConnectionError as error:
            problems.forget_frames(error)  # what waited for is held by the frame that waited
            raise

    def pause_writing(self) -> None:
        super().pause_writing()
        self._listener.not_read(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.places.reads(self)

    # -- what went wrong

    def give_up(self) -> None:
        """Wait for headers no longer; a body has a time of its own."""
        if self._is_busy or not self._awaited.is_eof():
            return
        if self._has_begun and self.transport is not None:
            self.transport.write(last_answers.late())
        self.force_close()

    def make_way(self) -> None:
        """Give the place away: be answered early and closed if its request waits, else closed."""
        if not self._leaves or _left(self):
            self.places.leave(self)
            self.hang_up()
            return
        self.places.gives_way(self)
        self.is_excess = True
        for leave in self._leaves:
            leave()

    def hang_up(self) -> None:
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp could not make a request of."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        logger.debug("not a request: %s", type(exc).__name__)  # its text may have a secret
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was already begun")
        return last_answers.refusal(last_answers.not_http(status))


class Listener(web.Server):
    """Makes connections, up to a limit."""

    def __init__(
        self,
        handler: Handler,
        *,
        connections_max: int,
        body_bytes_max: int,
        header_timeout_s: float,
    ) -> None:
        # aiohttp warns of whatever clients ask for in vain; that is theirs to know, not our log's
        logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
        self._running = asyncio.get_running_loop()
        self._handler = handler
        self._body_bytes_max = body_bytes_max
        self._header_timeout_s = header_timeout_s
        self._sweep_s = min(SWEEP_S, header_timeout_s / 4)
        self._sweeping: asyncio.TimerHandle | None = None
        self.places: Places[Protocol | Shaking] = Places(connections_max)
        super().__init__(self._bounded, request_factory=self._make)

    def __call__(self, kind: type[Protocol] | None = None) -> Protocol:
        return (kind or Protocol)(
            self,
            loop=self._running,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_S,
        )

    def arrived(self, protocol: Protocol | Shaking) -> None:
        """Give a new connection a place, if need be that of one who makes no use of it."""
        places = self.places
        if places.is_full and (leaving := places.giving_way()) is not None:
            leaving.make_way()
        if places.is_full and places.is_overrun:
            oldest = places.oldest_excess()
            if oldest is None:
                protocol.hang_up()
                return
            places.leave(oldest)
            oldest.hang_up()
        protocol.is_excess = not places.enter(protocol, self._running.time())
        self._sweep_soon()

    def owes(self, protocol: Protocol) -> None:
        self.places.owes(protocol, self._running.time())
        self._sweep_soon()

    def not_read(self, protocol: Protocol) -> None:
        places = self.places
        places.unread(protocol, self._running.time(), _left(protocol), protocol.answer_bytes)
        while (leaving := places.reading_least()) is not None:
            places.leave(leaving)
            leaving.hang_up()
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        if self._sweeping is None:
            self._sweeping = self._running.call_later(self._sweep_s, self._sweep)

    def _sweep(self) -> None:
        """Close those whose time is over."""
        self._sweeping = None
        now = self._running.time()
        for protocol in self.places.owing_since(now - self._header_timeout_s):
            protocol.give_up()
        for protocol, seen in self.places.unread_since(now - UNREAD_S):
            left = _left(protocol)
            if left < seen.size:
                self.places.unread(protocol, now, left, seen.held)
            else:
                protocol.hang_up()
        if self.places.is_watched:
            self._sweep_soon()

    def _make(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> BaseRequest:
        """Make a request of what was parsed; what it cannot be made of is refused later."""
        limit = self._body_bytes_max
        try:
            is_known = message.version in (HttpVersion10, HttpVersion11)
            if not is_known or message.path is None or message.method == "CONNECT":
                return self._unusable(payload, protocol, writer, task)
            return web.BaseRequest(
                message, payload, protocol, writer, task, self._running, client_max_size=limit
            )
        except Exception as error:  # noqa: BLE001 - a target that only looks like a URL
            logger.debug("not a request: %s", type(error).__name__)
            return self._unusable(payload, protocol, writer, task)

    def _unusable(self, payload: Any, protocol: Any, writer: Any, task: Any) -> BaseRequest:
        if not payload.is_eof():
            payload.feed_eof()  # there is no end to wait for
        return web.BaseRequest(ERROR, EMPTY_PAYLOAD, protocol, writer, task, self._running)

    async def _bounded(self, request: BaseRequest) -> web.StreamResponse:
        """Answer; the answer is the last on a connection above the limit."""
        if request.method == ERROR.method:
            return last_answers.refusal(last_answers.not_http())
        answer = await self._handler(request)
        if connection_of(request).is_excess:
            answer.force_close()
        return answer


class Site(web.SockSite):
    """Listens, and takes many connections in each turn of the loop (libuv takes one)."""

    async def start(self) -> None:
        await web.BaseSite.start(self)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._sock.listen(self._backlog)
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def _resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        """Take those that have come, up to a bound; the loop calls again if there are more."""
        loop, listener = asyncio.get_running_loop(), self._runner.server
        assert isinstance(listener, Listener)
        for _ in range(ACCEPTS_MAX):
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # there are no more descriptors; that passes
                logger.warning("cannot accept a connection: %s", error.strerror)
                loop.remove_reader(self._sock)
                self._pause = loop.call_later(ACCEPT_PAUSE_S, self._resume)
                return
            sock.setblocking(False)
            task = loop.create_task(self._open(listener, sock))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, listener: Listener, sock: socket.socket) -> None:
        """Have a connection served."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(listener, sock)
        except OSError:
            logger.debug("a connection failed", exc_info=True)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        if self._pause is not None:
            self._pause.cancel()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        self._sock.close()
        await super().stop()


def _left(protocol: Protocol | Shaking) -> int:
    """How much of what was written to a connection has not been taken yet."""
    return protocol.transport.get_write_buffer_size() if protocol.transport is not None else 0

"""Whether somebody is still at the other end of a connection, and takes what it is sent.

Whoever waits on behalf of a client attends its connection: it is told when the client leaves, has
said all it will say, or takes bytes again. That costs nothing while nothing happens. A client that
takes no byte of what waits for it for a minute is cut off, whatever it had asked for: what waits
for it is held in memory.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiohttp.web_request import BaseRequest

TAKES_NOTHING_S = 60.0


class AttendedConnection(web.RequestHandler):
    """A connection that whoever waits on it hears from."""

    __slots__ = ("_attendant", "_look", "_untaken", "at_eof")

    at_eof: bool
    _attendant: Callable[[], None] | None
    _look: asyncio.TimerHandle | None
    _untaken: int

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with nobody who waits."""
        self.at_eof = False
        self._attendant = self._look = None
        self._untaken = 0
        super().connection_made(transport)

    @property
    def is_gone(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.transport is None or self.transport.is_closing()

    @contextmanager
    def attended(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Have a function called when the client leaves, or takes bytes again."""
        self._attendant = on_change
        try:
            yield
        finally:
            self._attendant = None

    def _tell(self) -> None:
        if self._attendant is not None:
            self._attendant()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell whoever waits that the client has left."""
        super().connection_lost(exc)
        self._stop_looking()
        self._tell()

    def eof_received(self) -> None:
        """Tell whoever waits that the client says no more; it may have left."""
        self.at_eof = True
        self._tell()
        return super().eof_received()

    def pause_writing(self) -> None:
        """Look now and then whether the client takes anything."""
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        """Tell whoever waits that the client has taken what there was."""
        super().resume_writing()
        self._stop_looking()
        self._tell()

    def _look_again(self) -> None:
        assert self.transport is not None
        self._untaken = self.transport.get_write_buffer_size()
        self._look = asyncio.get_running_loop().call_later(TAKES_NOTHING_S, self._lose_patience)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _lose_patience(self) -> None:
        self._look = None
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() < self._untaken:
            self._look_again()
        else:
            self.transport.abort()


def connection_of(request: BaseRequest) -> AttendedConnection:
    """Give the connection of a request."""
    connection: Any = request.protocol
    assert isinstance(connection, AttendedConnection)
    return connection

"""Whether somebody is still at the other end of a connection, and takes what it is sent.

Whoever waits on behalf of a client attends its connection: it is told when the client leaves, has
said all it will say, or takes bytes again. That costs nothing while nothing happens. A connection
whose request waits may have to give its place to another: what it waits for is then answered early.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from rota.errors import QueueFull

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from aiohttp.web_request import BaseRequest

    from rota.http.places import Places


LOOKS = ("GET", "HEAD")
"""Methods that do nothing but show: whoever has left is not shown anything."""


class AttendedConnection(web.RequestHandler):
    """A connection that whoever waits on it hears from."""

    __slots__ = ("_attendant", "_leaves", "at_eof", "is_excess", "places")

    at_eof: bool
    is_excess: bool
    """Whether it has no place, or none any more: nothing waits on it, and it is closed."""
    _leaves: list[Callable[[], None]]
    places: Places[Any]
    _attendant: Callable[[], None] | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.at_eof = False
        self._attendant = None
        super().connection_made(transport)

    @property
    def is_gone(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    @property
    def is_deaf(self) -> bool:
        """Whether nothing more is read for now, so that nobody would hear of the client's leave."""
        return self._reading_paused or self._buffer_paused

    @contextmanager
    def attended(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Have a function called when the client leaves, or takes bytes again."""
        self._attendant = on_change
        try:
            yield
        finally:
            self._attendant = None

    @contextmanager
    def waiting(self, share: str, leave: Callable[[], None]) -> Iterator[None]:
        """Have a function called, while in this block, when its place is needed.

        Raises QueueFull if the caller's share of places for those who wait is taken.
        """
        if not self._leaves and not self.places.waits(self, share):
            msg = f"{self.places.waiting.most} connections wait, or as many of yours as may"
            raise QueueFull(msg, code="too_many_waiting")
        self._leaves.append(leave)
        try:
            yield
        finally:
            self._leaves.remove(leave)
            if not self._leaves:
                self.places.waits_no_more(self)

    def _tell(self) -> None:
        if self._attendant is not None:
            self._attendant()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell whoever waits; what was only to be shown is looked for no longer."""
        request, serving = self._current_request, self._task_handler
        super().connection_lost(exc)
        self._tell()
        if request is not None and serving is not None and request.method in LOOKS:
            serving.cancel()

    def says_no_more(self) -> None:
        """Tell whoever waits that the client has closed its half; it may have left."""
        self.at_eof = True
        self._tell()

    def _pause_transport_reading(self) -> None:
        """Tell whoever waits that requests or a body behind its own fill what may lie unread."""
        super()._pause_transport_reading()
        self._tell()

    def resume_writing(self) -> None:
        """Tell whoever waits that the client has taken what there was."""
        super().resume_writing()
        self._tell()


def connection_of(request: BaseRequest) -> AttendedConnection:
    connection: Any = request.protocol
    assert isinstance(connection, AttendedConnection)
    return connection

"""Connections to executors and receivers, which may not be friendly.

A peer may send any number of answers that nobody asked for: `100` and `103` before the real one,
whole answers after it. aiohttp takes them all, thousands in one go, without letting anything else
run. Here each request gets one answer and a few informational ones before it; a peer that sends
more is hung up on, and the request fails. What is sent and what the answer means is left to others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    import asyncio

INFORMATIONAL_MAX = 16
"""So many answers of 1xx may come before the real one."""
PARSED_BYTES_MAX = 8192
"""What is parsed between two looks at what came out of it."""


class BoundedHandler(ResponseHandler):
    """One client connection, which hears no more answers than were asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._informational = 0
        self._is_answered = False
        self._is_unasked = False

    @property
    def should_close(self) -> bool:
        return self._is_unasked or super().should_close

    def set_response_params(self, **params: Any) -> None:
        """Expect the answer to a new request."""
        self._informational = 0
        self._is_answered = False
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take the head of an answer, if it is one that was asked for."""
        code = data[0].code
        is_informational = 100 <= code < 200 and code != 101
        self._informational += is_informational
        if self._is_answered or self._informational > INFORMATIONAL_MAX:
            self._is_unasked = True
            return
        self._is_answered = not is_informational
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Parse a little at a time, and hang up as soon as too much has come."""
        if len(data) <= PARSED_BYTES_MAX:
            super().data_received(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), PARSED_BYTES_MAX):
                super().data_received(bytes(view[start : start + PARSED_BYTES_MAX]))
                if self._is_unasked:
                    break
        if self._is_unasked:
            self._hang_up()

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        if not self._is_answered and self.exception() is None:
            msg = f"the other side sent more than {INFORMATIONAL_MAX} informational answers"
            self.set_exception(aiohttp.ClientConnectionError(msg))


class BoundedConnector(aiohttp.TCPConnector):
    """Makes such connections."""

    def __init__(self, **options: Any) -> None:
        """Take what a `TCPConnector` takes."""
        super().__init__(**options)
        self._factory: Any = partial(BoundedHandler, loop=self._loop)

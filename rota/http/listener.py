"""aiohttp's low-level server, with our manners.

Counts connections and answers 503 on those above the limit; answers what is not HTTP at all with a
400 of our own shape and one line at debug level, so that garbage cannot fill the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aiohttp import web

from rota import ids
from rota.http import problems
from rota.http.presence import AttendedConnection
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.web_request import BaseRequest

    Handler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]

logger = logging.getLogger("rota.http")

KEEPALIVE_S = 75.0


class Protocol(AttendedConnection):
    """One connection."""

    __slots__ = ("is_excess",)

    is_excess: bool

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
        logger.debug("not a request: %r", exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was already begun")
        error = HttpProblem(status, "bad_http", "this is not a valid HTTP request")
        return refusal(error)


def refusal(error: HttpProblem) -> web.Response:
    """Answer with an error and close the connection."""
    request_id = ids.request_id()
    answer = problems.response(error, problems.native_body(error, request_id))
    answer.headers["X-Request-ID"] = request_id
    answer.force_close()
    return answer


class Listener(web.Server):
    """Makes connections, up to a limit."""

    def __init__(self, handler: Handler, *, connections_max: int, body_bytes_max: int) -> None:
        """Hand requests to `handler`."""
        self._running = asyncio.get_running_loop()
        self._handler = handler
        self._connections_max = connections_max
        self._body_bytes_max = body_bytes_max
        super().__init__(self._bounded, request_factory=self._make)

    def __call__(self) -> Protocol:
        """Make the protocol of a new connection."""
        protocol = Protocol(
            self,
            loop=self._running,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes it for none
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_S,
        )
        protocol.is_excess = len(self._connections) >= self._connections_max
        return protocol

    def _make(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            self._running,
            client_max_size=self._body_bytes_max,
        )

    async def _bounded(self, request: BaseRequest) -> web.StreamResponse:
        """Answer, unless this connection is one too many."""
        if request.protocol.is_excess:  # type: ignore[attr-defined]
            message = "too many connections are open"
            return refusal(HttpProblem(503, "too_many_connections", message))
        return await self._handler(request)

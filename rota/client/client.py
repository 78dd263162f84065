"""`RotaClient`: the client for asyncio, on aiohttp.

Every call of calls/ is a method of it, to be awaited; what gives rows is iterated with `async for`.
It drives their steps over connections that it keeps and uses again, and belongs to the loop of its
first request. What is safe to be sent twice is, while the server is away (`retries`); everything
else is sent once. `async with RotaClient() as rota:` closes it; or `await rota.close()`.
"""

from __future__ import annotations

import asyncio
import socket
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from yarl import URL

from rota.client.calls import Calls
from rota.client.faces import GivesJson
from rota.client.steps import Call, Give, Next, Open, Send, Sleep, Together, insist
from rota.client.transport import REFUSED, RETRIES, STREAM_TIMEOUT_S, TIMEOUT_S, Transport
from rota.errors import RotaError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rota.client.steps import Flow, Json, Rows, Step
    from rota.client.words import Read

CONNECTIONS_MAX = 256
KEPT_S = 15.0
"""How long a connection is kept for another request; a server keeps it longer."""
AT_ONCE_BYTES_MAX = 1 << 20
"""What is larger is sent piece by piece."""
LINE_BYTES_MAX = 16 << 20
"""A line of a stream is one event, which may have a whole result in it."""


class AwaitingFace:
    """Drives flows on an event loop."""

    is_awaited = True

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        namespace: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
        ca_file: str | None = None,
    ) -> None:
        """Take the server's address. Raises InvalidRequest if it is not one.

        What is not given is taken from ROTA_URL, ROTA_TOKEN and ROTA_NAMESPACE, as by the command
        line. `ca_file` has authorities that an https address is judged by, beside the
        machine's.
        """
        gives_json = isinstance(self, GivesJson)
        self._http = Transport(url, token, namespace, speaks_python=not gives_json)
        self._tls = self._http.tls(ca_file)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self.retries = retries
        self.url = self._http.url
        self._origin = self.url.removesuffix(self._http.prefix)

    async def close(self) -> None:
        """Close the connections; the client may be used again, and makes others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, flow: Flow[Any], read: Read | None = None) -> Any:
        """Do the steps of a flow, and give what it gives, as `read` makes it."""
        stream = _Stream(self)
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step, stream)
                except RotaError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            return end.value if read is None else read(end.value)
        except WaitTimeout as error:
            error.last = error.last if read is None else read(error.last)
            raise
        finally:
            stream.close()

    async def iterate(self, rows: Rows[Any], read: Read | None = None) -> AsyncIterator[Any]:
        """Do the steps of a flow as its rows are asked for."""
        stream = _Stream(self)
        try:
            step = next(rows)
            while True:
                if isinstance(step, Give):
                    yield step.row if read is None else read(step.row)
                    step = next(rows)
                    continue
                try:
                    answer = await self._do(step, stream)
                except RotaError as error:
                    step = rows.throw(error)
                else:
                    step = rows.send(answer)
        except StopIteration:
            return
        finally:
            stream.close()
            rows.close()

    async def _do(self, step: Step, stream: _Stream) -> Any:
        match step:
            case Call():
                return await self.run(insist(step, self.retries, self._timeout_s))
            case Send():
                return await self._send(step.call)
            case Sleep():
                return await asyncio.sleep(step.seconds)
            case Open():
                return await stream.open(step)
            case Next():
                return await stream.next(step.within_s)
            case Together():
                places = asyncio.Semaphore(step.at_once)
                return await asyncio.gather(
                    *(self._answer_or_error(call, places) for call in step.calls)
                )

    async def _answer_or_error(self, call: Call, places: asyncio.Semaphore) -> Json | RotaError:
        async with places:
            try:
                answer: Json = await self.run(insist(call, self.retries, self._timeout_s))
            except RotaError as error:
                return error
            return answer

    async def _send(self, call: Call) -> Json:
        raw, headers = self._http.encoded(call.body)
        url = self._url(call.path, call.query)
        limit = aiohttp.ClientTimeout(total=self._timeout_s + call.wait_s)
        data = BytesIO(raw) if raw is not None and len(raw) > AT_ONCE_BYTES_MAX else raw
        try:
            async with self._opened().request(
                call.method, url, data=data, headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                answer = await response.read()
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise self._http.unreachable(error) from error
        return self._http.answer(response.status, answer)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=CONNECTIONS_MAX,
                keepalive_timeout=KEPT_S,
                ssl=self._tls if self._tls is not None else True,
                socket_factory=self._new_socket,
            )
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=LINE_BYTES_MAX)
        return self._session

    @staticmethod
    def _new_socket(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        return socket.socket(family, kind, protocol)

    def _url(self, path: str, query: Json | None) -> URL:
        return URL(self._origin + self._http.path(path, query), encoded=True)


class RotaClient(AwaitingFace, Calls):
    """Talks to one server, on an event loop."""


class AsyncJsonClient(GivesJson, AwaitingFace, Calls):
    """The same; the answers are the API's JSON."""


class _Stream:
    """The stream of events that a flow has open."""

    def __init__(self, face: AwaitingFace) -> None:
        self._face = face
        self._response: aiohttp.ClientResponse | None = None

    async def open(self, wanted: Open) -> None:
        self.close()
        face = self._face
        wire = face._http  # noqa: SLF001 - it is a part of the face
        limit = aiohttp.ClientTimeout(total=None, sock_read=STREAM_TIMEOUT_S)
        try:
            self._response = await face._opened().get(  # noqa: SLF001
                face._url(wanted.path, wanted.query),  # noqa: SLF001
                headers=wire.stream_headers(wanted),
                timeout=limit,
                allow_redirects=False,
            )
            if self._response.status >= REFUSED:
                raise wire.problem(self._response.status, await self._response.read())
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise wire.unreachable(error) from error

    async def next(self, within_s: float | None) -> Json | None:
        """Give the next event; None at the end, or when nothing came in time."""
        assert self._response is not None
        wire = self._face._http  # noqa: SLF001
        scope = asyncio.timeout(within_s)
        try:
            async with scope:
                while line := await self._response.content.readline():
                    if line.startswith(b"data: "):
                        return wire.parsed(self._response.status, line[6:])
        except TimeoutError as error:
            if not scope.expired():
                raise wire.unreachable(error) from error
        except (OSError, aiohttp.ClientError, ValueError) as error:
            raise wire.unreachable(error) from error
        return None

    def close(self) -> None:
        """Hang up: what is left of a stream has no end to be read."""
        response, self._response = self._response, None
        if response is not None:
            response.close()

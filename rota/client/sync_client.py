"""`SyncRotaClient`: the client that blocks, on the standard library alone.

Every call of calls/ is a method of it. It drives their steps by plain connections, which it keeps
and uses again; several threads may share one client, each request has a connection to itself. What
is safe to be sent twice is, while the server is away (`retries`); everything else is sent once.
"""

from __future__ import annotations

import http.client
import select
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self
from weakref import finalize

from rota.client.calls import Calls
from rota.client.faces import GivesJson
from rota.client.steps import Call, Give, Next, Open, Send, Sleep, Together, insist
from rota.client.transport import REFUSED, RETRIES, STREAM_TIMEOUT_S, TIMEOUT_S, Transport
from rota.clock import monotonic_s, sleep_s
from rota.errors import RotaError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.client.steps import Flow, Json, Rows, Step
    from rota.client.words import Read

KEPT_MAX = 16
KEPT_S = 15.0
"""How long a connection is kept for another request; a server keeps it longer."""


class BlockingFace:
    """Drives flows on the caller's thread."""

    is_awaited = False

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
        self._kept: deque[tuple[float, http.client.HTTPConnection]] = deque(maxlen=KEPT_MAX)
        finalize(self, _close_all, self._kept)
        self.retries = retries
        self.url = self._http.url

    def close(self) -> None:
        """Close the kept connections; the client may be used again, and makes others."""
        _close_all(self._kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, flow: Flow[Any], read: Read | None = None) -> Any:
        """Do the steps of a flow, and give what it gives, as `read` makes it."""
        stream = _Stream(self)
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step, stream)
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

    def iterate(self, rows: Rows[Any], read: Read | None = None) -> Iterator[Any]:
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
                    answer = self._do(step, stream)
                except RotaError as error:
                    step = rows.throw(error)
                else:
                    step = rows.send(answer)
        except StopIteration:
            return
        finally:
            stream.close()
            rows.close()

    def _do(self, step: Step, stream: _Stream) -> Any:
        match step:
            case Call():
                return self.run(insist(step, self.retries, self._timeout_s))
            case Send():
                return self._send(step.call)
            case Sleep():
                return sleep_s(step.seconds)
            case Open():
                return stream.open(step)
            case Next():
                return stream.next(step.within_s)
            case Together():
                with ThreadPoolExecutor(min(step.at_once, len(step.calls) or 1)) as threads:
                    return list(threads.map(self._answer_or_error, step.calls))

    def _answer_or_error(self, call: Call) -> Json | RotaError:
        try:
            answer: Json = self.run(insist(call, self.retries, self._timeout_s))
        except RotaError as error:
            return error
        return answer

    def _send(self, call: Call) -> Json:
        raw, headers = self._http.encoded(call.body)
        connection = self._connection(self._timeout_s + call.wait_s)
        path = self._http.path(call.path, call.query)
        try:
            connection.request(call.method, path, raw, _latin(headers))
            with connection.getresponse() as response:
                answer, status = response.read(), response.status
                is_kept = not response.will_close
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._http.unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        if is_kept and len(self._kept) < KEPT_MAX:
            self._kept.append((monotonic_s(), connection))
        else:
            connection.close()
        return self._http.answer(status, answer)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Take the connection that was used last, if it still stands, or make one."""
        while self._kept:
            try:
                since, connection = self._kept.pop()
            except IndexError:
                break
            if monotonic_s() - since < KEPT_S and _is_quiet(connection):
                connection.sock.settimeout(timeout_s)
                return connection
            connection.close()
        return self._new_connection(timeout_s)

    def _new_connection(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._http.host, self._http.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)


class SyncRotaClient(BlockingFace, Calls):
    """Talks to one server, and blocks until it has answered."""


class JsonClient(GivesJson, BlockingFace, Calls):
    """The same; the answers are the API's JSON."""


class _Stream:
    """The stream of events that a flow has open."""

    def __init__(self, face: BlockingFace) -> None:
        self._face = face
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None

    def open(self, wanted: Open) -> None:
        self.close()
        face = self._face
        wire = face._http  # noqa: SLF001 - it is a part of the face
        self._connection = face._new_connection(STREAM_TIMEOUT_S)  # noqa: SLF001
        path = wire.path(wanted.path, wanted.query)
        try:
            self._connection.request("GET", path, headers=_latin(wire.stream_headers(wanted)))
            self._response = self._connection.getresponse()
            if self._response.status >= REFUSED:
                raise wire.problem(self._response.status, self._response.read())
        except (OSError, http.client.HTTPException) as error:
            raise wire.unreachable(error) from error

    def next(self, within_s: float | None) -> Json | None:
        """Give the next event; None at the end, or when nothing came in time."""
        assert self._response is not None
        assert self._connection is not None
        wire = self._face._http  # noqa: SLF001
        end = None if within_s is None else monotonic_s() + within_s
        try:
            while True:
                if end is not None:
                    left = end - monotonic_s()
                    if left <= 0:
                        return None
                    if self._connection.sock is not None:
                        self._connection.sock.settimeout(left)
                line = self._response.readline()
                if not line:
                    return None
                if line.startswith(b"data: "):
                    return wire.parsed(self._response.status, line[6:])
        except TimeoutError as error:
            if end is not None and monotonic_s() >= end:
                return None
            raise wire.unreachable(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise wire.unreachable(error) from error

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()
        self._response = self._connection = None


def _latin(headers: dict[str, str]) -> dict[str, str | bytes]:
    """Write headers as http.client takes them, which knows no other way to send UTF-8."""
    return {name: value.encode() for name, value in headers.items()}


def _close_all(kept: deque[tuple[float, http.client.HTTPConnection]]) -> None:
    while kept:
        kept.pop()[1].close()


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing came since the last answer; the end of a connection would be something."""
    if connection.sock is None:
        return False
    return not select.select([connection.sock], [], [], 0)[0]

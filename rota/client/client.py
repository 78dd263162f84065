"""A small synchronous client of the native API, on the standard library alone.

`RotaClient(url, token=...)` has a method for each thing one asks a server; answers are the parsed
JSON. What the server refuses is raised as the class of rota.errors that it was, with its code,
status and details; a server that cannot be reached is `ServerUnreachable`. Every request has its
own connection and its own time limit, so a client may be shared by threads, and nothing is ever
sent twice. `stream` alone reconnects by itself, from the last event it gave.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import orjson

from rota.clock import monotonic_s, sleep_s
from rota.errors import (
    CallbackRefused,
    Conflict,
    InternalFault,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    QueueFull,
    RequestError,
    RotaError,
    ServerUnreachable,
    ShuttingDown,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DEFAULT_URL = "http://127.0.0.1:9867"
TIMEOUT_S = 30.0
STREAM_TIMEOUT_S = 45.0
"""Three of the server's heartbeats; a stream silent for longer is a lost one."""
POLL_S = 0.005
POLL_S_MAX = 0.25
RECONNECT_S = 0.1
RECONNECT_S_MAX = 5.0
REFUSED, FAILED = 400, 500
TERMINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "rejected"})

Json = dict[str, Any]

_BY_CODE: dict[str, type[RotaError]] = {
    cls.code: cls
    for cls in (
        CallbackRefused,
        Conflict,
        InternalFault,
        NotFound,
        PayloadTooLarge,
        QueueFull,
        ShuttingDown,
        StorageUnavailable,
    )
}


class RotaClient:
    """Talks to one server."""

    def __init__(
        self, url: str = DEFAULT_URL, *, token: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Take the server's address. Raises InvalidRequest if it is not one."""
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers: dict[str, str | bytes] = {"Accept": "application/json"}
        if token:
            if not token.isprintable():
                msg = "the token contains characters that a header cannot carry"
                raise InvalidRequest(msg)
            self._headers["Authorization"] = b"Bearer " + token.encode()
        try:
            parts = urlsplit(self.url)
            self._port = parts.port
        except ValueError:
            parts, self._port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"{url!r} is not the address of a server"
            raise InvalidRequest(msg, hint=f"write it like {DEFAULT_URL}")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._prefix = parts.path

    # -- tasks -------------------------------------------------------------------------------

    def submit(self, action: str, agent: str, **fields: Any) -> Json:
        """Submit a task; `fields` are the body's others: params, priority, deadline, tabId ..."""
        body = {name: value for name, value in fields.items() if value is not None}
        return self._ask("POST", "/v1/tasks", body={"agentId": agent, "action": action, **body})

    def get(self, task_id: str) -> Json:
        """Give one task. Raises NotFound."""
        return self._ask("GET", f"/v1/tasks/{quote(task_id, safe='')}")

    def tasks(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        action: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """Give a page of tasks, newest first; `nextCursor` leads to the next one."""
        query = {"agentId": agent, "state": state, "type": action}
        return self._ask("GET", "/v1/tasks", query={**query, "limit": limit, "cursor": cursor})

    def cancel(self, task_id: str, reason: str = "") -> Json:
        """Cancel a task. Raises NotFound, or Conflict if it has ended."""
        path = f"/v1/tasks/{quote(task_id, safe='')}/cancel"
        return self._ask("POST", path, body={"reason": reason})

    def wait(self, task_id: str, timeout_s: float) -> Json:
        """Give the task once it has ended, or as it is after `timeout_s`."""
        end = monotonic_s() + timeout_s
        pause = POLL_S
        while True:
            task = self.get(task_id)
            left = end - monotonic_s()
            if task["state"] in TERMINAL_STATES or left <= 0:
                return task
            sleep_s(min(pause, left))
            pause = min(pause * 2, POLL_S_MAX)

    # -- history -----------------------------------------------------------------------------

    def task_events(self, task_id: str) -> list[Json]:
        """Give the history of one task, oldest first. Raises NotFound."""
        path = f"/v1/tasks/{quote(task_id, safe='')}/events"
        found: list[Json] = self._ask("GET", path)["events"]
        return found

    def events(
        self,
        *,
        after: int = 0,
        limit: int | None = None,
        kinds: Iterable[str] = (),
        task: str | None = None,
        agent: str | None = None,
    ) -> Json:
        """Give a page of the history after a seq; the next page is after its `next`."""
        query = {"kind": ",".join(kinds), "task": task, "agentId": agent}
        return self._ask("GET", "/v1/events", query={"after": after, "limit": limit, **query})

    def head(self) -> Json:
        """Give the seq and the digest of the last event."""
        return self._ask("GET", "/v1/events/head")

    def stream(
        self,
        *,
        after: int | None = None,
        kinds: Iterable[str] = (),
        task: str | None = None,
        agent: str | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> Iterator[Json]:
        """Give events as they happen, from `after` or from now on, for ever.

        A lost connection is made again, from the last event given, as often as it takes; `on_lost`
        is told. Raises if the first one cannot be made, or the server refuses.
        """
        at = self.head()["seq"] if after is None else after
        query = {"kind": ",".join(kinds), "task": task, "agentId": agent}
        connected = False
        pause = RECONNECT_S
        while True:
            try:
                for event in self._stream_once(at, query):
                    connected = True
                    if event is not None:
                        at, pause = event["seq"], RECONNECT_S
                        yield event
                lost = "the server ended the stream"
            except (ServerUnreachable, ShuttingDown) as error:
                if not connected:
                    raise
                lost = error.message
            if on_lost is not None:
                on_lost(lost)
            sleep_s(pause)
            pause = min(pause * 2, RECONNECT_S_MAX)

    # -- the server --------------------------------------------------------------------------

    def stats(self) -> Json:
        """Give the counters."""
        return self._ask("GET", "/v1/stats")

    def config(self) -> Json:
        """Give the settings in force, without secrets."""
        return self._ask("GET", "/v1/config")

    def health(self) -> Json:
        """Give what the server says of its health."""
        return self._ask("GET", "/health")

    # -- HTTP --------------------------------------------------------------------------------

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=timeout_s)

    def _path(self, path: str, query: Json | None) -> str:
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        return self._prefix + path + (f"?{urlencode(given)}" if given else "")

    def _ask(
        self, method: str, path: str, *, query: Json | None = None, body: Json | None = None
    ) -> Json:
        """Send one request and give the parsed answer. Raises a RotaError."""
        headers = dict(self._headers)
        raw: bytes | None = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            try:
                raw = orjson.dumps(body)
            except TypeError as error:
                msg = f"this cannot be sent as JSON: {error}"
                raise InvalidRequest(msg) from error
        connection = self._connect(self._timeout_s)
        try:
            connection.request(method, self._path(path, query), raw, headers)
            with connection.getresponse() as response:
                answer, status = response.read(), response.status
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if status >= REFUSED:
            raise self._problem(status, answer)
        return self._parsed(status, answer)

    def _stream_once(self, after: int, query: Json) -> Iterator[Json | None]:
        """Give the events of one connection; None once, when it stands."""
        headers = {**self._headers, "Accept": "text/event-stream", "Last-Event-ID": str(after)}
        connection = self._connect(STREAM_TIMEOUT_S)
        try:
            connection.request("GET", self._path("/v1/events/stream", query), headers=headers)
            with connection.getresponse() as response:
                if response.status >= REFUSED:
                    raise self._problem(response.status, response.read())
                yield None
                while line := response.readline():
                    if line.startswith(b"data: "):
                        yield self._parsed(response.status, line[6:])
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = f"cannot reach a rota server at {self.url}: {reason}"
        return ServerUnreachable(msg, hint="start one with `rota serve`, or give its --url")

    def _parsed(self, status: int, answer: bytes) -> Json:
        try:
            value = orjson.loads(answer)
        except orjson.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            return value
        msg = f"{self.url} answered {status}, but not as a rota server does"
        raise RotaError(msg, code="not_rota", hint="check the address given with --url")

    def _problem(self, status: int, answer: bytes) -> RotaError:
        """Make the error that a refusal stands for."""
        body = self._parsed(status, answer)
        code = str(body.get("code") or f"http_{status}")
        cls = _BY_CODE.get(code)
        if cls is None:
            cls = InvalidRequest if status == REFUSED else RotaError
            if REFUSED < status < FAILED:
                cls = RequestError
        details = body.get("details")
        error = cls(
            str(body.get("error") or f"the server answered {status}"),
            code=code,
            details=details if isinstance(details, dict) else None,
        )
        error.status = status
        error.retryable = bool(body.get("retryable"))
        return error

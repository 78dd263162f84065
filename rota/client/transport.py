"""HTTP as the client speaks it: one request, one connection, one time limit.

JSON goes out and parsed JSON comes in; a refusal comes as the class of rota.errors that it was on
the server, with its code, status and details. Nothing is ever sent twice.
"""

from __future__ import annotations

import http.client
import os
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import orjson

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
    Unprocessable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_URL = "http://127.0.0.1:9867"
STREAM_TIMEOUT_S = 45.0
"""Three of the server's heartbeats; a stream silent for longer is a lost one."""
REFUSED, FAILED = 400, 500

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
_BY_STATUS: dict[int, type[RotaError]] = {
    cls.status: cls for cls in (InvalidRequest, Conflict, Unprocessable)
}
"""The classes whose errors may carry a more exact code than the class's own."""


class Transport:
    """Sends requests to one server."""

    def __init__(
        self, url: str, token: str | None, timeout_s: float, namespace: str | None = None
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
        if namespace:
            self._headers["X-Rota-Namespace"] = namespace.encode("ascii", "backslashreplace")
        try:
            parts = urlsplit(self.url)
            self._port = parts.port
        except ValueError:
            parts, self._port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"{url!r} is not the address of a server"
            raise InvalidRequest(msg, hint=f"write it like {DEFAULT_URL}")
        self._tls = _trust() if parts.scheme == "https" else None
        self._host = parts.hostname
        self._prefix = parts.path

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Json | None = None,
        body: Json | None = None,
        wait_s: float = 0.0,
    ) -> Json:
        """Send one request and give the parsed answer. Raises a RotaError.

        `wait_s` is how much longer than usual the server may take, because it was asked to wait.
        """
        headers = dict(self._headers)
        raw: bytes | None = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            try:
                raw = orjson.dumps(body)
            except TypeError as error:
                msg = f"this cannot be sent as JSON: {error}"
                raise InvalidRequest(msg) from error
        connection = self._connect(self._timeout_s + wait_s)
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

    def stream(self, path: str, after: int, query: Json) -> Iterator[Json | None]:
        """Give the server-sent events of one connection; None once, when it stands."""
        headers = {**self._headers, "Accept": "text/event-stream", "Last-Event-ID": str(after)}
        connection = self._connect(STREAM_TIMEOUT_S)
        try:
            connection.request("GET", self._path(path, query), headers=headers)
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

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self._tls
        )

    def _path(self, path: str, query: Json | None) -> str:
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        return self._prefix + path + (f"?{urlencode(given)}" if given else "")

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = f"cannot reach a rota server at {self.url}: {reason}"
        return ServerUnreachable(msg, hint="start one with `rota serve`, or give its url")

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
        cls = _BY_CODE.get(code) or _BY_STATUS.get(status)
        if cls is None:
            cls = RequestError if REFUSED < status < FAILED else RotaError
        details = body.get("details")
        error = cls(
            str(body.get("error") or f"the server answered {status}"),
            code=code,
            details=details if isinstance(details, dict) else None,
        )
        error.status = status
        error.retryable = bool(body.get("retryable"))
        return error


def _trust() -> ssl.SSLContext:
    """Trust the certificates of the system, and those in the file that ROTA_CA names.

    Raises InvalidRequest if that cannot be used.
    """
    made = ssl.create_default_context()
    path = os.environ.get("ROTA_CA")
    if path:
        try:
            made.load_verify_locations(path)
        except OSError as error:  # an SSLError is one
            msg = f"ROTA_CA: {path} cannot be used: {error.strerror or error}"
            raise InvalidRequest(msg, hint="name a PEM file of certificates") from None
    return made

"""HTTP as both faces of the client speak it: address, headers, bodies, answers; no sockets.

JSON goes out and parsed JSON comes in; a refusal becomes the class of rota.errors that it was on
the server, with its code, status and details.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import orjson

from rota import __version__
from rota.client.words import in_python
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
    from collections.abc import Mapping

    from rota.client.steps import Json, Open

DEFAULT_URL = "http://127.0.0.1:9867"
TIMEOUT_S = 30.0
RETRIES = 3
STREAM_TIMEOUT_S = 45.0
"""Three of the server's heartbeats; a stream silent for longer is a lost one."""
REFUSED, FAILED = 400, 500
GATEWAY = frozenset({502, 503, 504})

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
    cls.status: cls for cls in (InvalidRequest, Conflict, NotFound, Unprocessable)
}
"""The classes whose errors may carry a more exact code than the class's own."""


class Transport:
    """One server's address, what goes with every request to it, and how its answers are read."""

    def __init__(
        self, url: str | None, token: str | None, namespace: str | None, *, speaks_python: bool
    ) -> None:
        """Take the server's address. Raises InvalidRequest if it is not one.

        What is not given is taken from ROTA_URL, ROTA_TOKEN and ROTA_NAMESPACE, as by the command
        line. With `speaks_python` refusals name fields as Python does, else as the API does.
        """
        self._speaks_python = speaks_python
        environ = os.environ
        address = url or environ.get("ROTA_URL") or DEFAULT_URL
        secret = token if token is not None else environ.get("ROTA_TOKEN")
        name = namespace if namespace is not None else environ.get("ROTA_NAMESPACE")
        self.url = address.rstrip("/")
        self.headers = {"Accept": "application/json", "User-Agent": f"rota-python/{__version__}"}
        if secret:
            if not secret.isprintable():
                msg = "the token contains characters that a header cannot carry"
                raise InvalidRequest(msg)
            self.headers["Authorization"] = f"Bearer {secret}"
        if name:
            safe = name.encode("ascii", "backslashreplace").decode()
            self.headers["X-Rota-Namespace"] = safe
        try:
            parts = urlsplit(self.url)
            self.port = parts.port
        except ValueError:
            parts, self.port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"{address!r} is not the address of a server"
            raise InvalidRequest(msg, hint=f"write it like {DEFAULT_URL}")
        self.is_secure = parts.scheme == "https"
        self.host = parts.hostname
        self.prefix = parts.path

    def path(self, path: str, query: Mapping[str, object] | None) -> str:
        """Write what comes after the host, without what was not said."""
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        return self.prefix + path + (f"?{urlencode(given)}" if given else "")

    def encoded(self, body: Json | None) -> tuple[bytes | None, dict[str, str]]:
        """Write a body, and the headers that go with it. Raises InvalidRequest."""
        if body is None:
            return None, self.headers
        try:
            raw = orjson.dumps(body)
        except TypeError as error:
            msg = f"this cannot be sent as JSON: {error}"
            raise InvalidRequest(msg) from error
        return raw, {**self.headers, "Content-Type": "application/json"}

    def stream_headers(self, wanted: Open) -> dict[str, str]:
        """Give the headers that ask for a stream of events."""
        last = {"Last-Event-ID": str(wanted.after)}
        return {**self.headers, "Accept": "text/event-stream", **last}

    def tls(self, ca_file: str | None) -> ssl.SSLContext | None:
        """Give what an https address is judged by: the machine's authorities, and a file's."""
        if not self.is_secure:
            return None
        made = ssl.create_default_context()
        path = ca_file or os.environ.get("ROTA_CA")
        if path:
            try:
                made.load_verify_locations(path)
            except OSError as error:  # an SSLError is one
                said = "ca_file" if ca_file else "ROTA_CA"
                msg = f"{said}: {path} cannot be used: {error.strerror or error}"
                raise InvalidRequest(msg, hint="name a PEM file of certificates") from None
        return made

    def answer(self, status: int, raw: bytes) -> Json:
        """Read an answer. Raises the error that a refusal stands for."""
        if status >= REFUSED:
            raise self.problem(status, raw)
        return self.parsed(status, raw)

    def parsed(self, status: int, raw: bytes) -> Json:
        """Read JSON. Raises RotaError `not_rota`."""
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            return value
        msg = f"{self.url} answered {status}, but not as a rota server does"
        raise RotaError(msg, code="not_rota", hint="check the address given with --url")

    def problem(self, status: int, raw: bytes) -> RotaError:
        """Make the error that a refusal stands for."""
        if status in GATEWAY and not raw.lstrip().startswith(b"{"):  # a proxy's word, not rota's
            return self.unreachable(OSError(f"HTTP {status} from what is before it"))
        body = self.parsed(status, raw)
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
        return in_python(error) if self._speaks_python else error

    def unreachable(self, error: BaseException) -> ServerUnreachable:
        """Make the error of a server that gave no answer."""
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = f"cannot reach a rota server at {self.url}: {reason}"
        return ServerUnreachable(msg, hint="start one with `rota serve`, or give its url")

"""The HTTP server: from bytes to a route's handler and back.

Built on aiohttp's low-level server: one table of routes, no middleware chain, because routing and
middleware are where the time goes. Every answer carries `X-Request-ID`; every error is a 4xx or
503 with a code and a sentence, and a bug is a 500 that says nothing of the inside. Bodies are
bounded in size, depth and time; connections in number. Pages of other origins are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import orjson
from aiohttp import web
from pydantic import BaseModel, ValidationError

from rota import ids
from rota.config import Settings, load_settings
from rota.errors import InternalFault, InvalidRequest, LogError, PayloadTooLarge, RotaError
from rota.http import problems, views
from rota.http.dialects import pinchtab
from rota.http.problems import HttpProblem
from rota.http.routes import ROUTES, Route
from rota.http.v1.health import registry_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiohttp.web_request import BaseRequest

    from rota.domain.task import Task
    from rota.http.bridge import Bridge

logger = logging.getLogger("rota.http")

M = TypeVar("M", bound=BaseModel)

VIEWS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "native": views.native,
    "pinchtab": pinchtab.view,
}
_PROBLEMS = {"pinchtab": pinchtab.problem}
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)
_INT = re.compile(r"-?\d{1,19}")


class Call:
    """One request on its way through a handler."""

    __slots__ = ("app", "bridge", "by", "params", "request", "request_id")

    def __init__(
        self, app: App, request: BaseRequest, request_id: str, params: dict[str, str], by: str
    ) -> None:
        """Bundle what a handler needs."""
        self.app = app
        self.bridge = app.bridge
        self.request = request
        self.request_id = request_id
        self.params = params
        self.by = by

    def now(self) -> int:
        """Give the present moment."""
        return self.app.bridge.shard.journal.now()

    # -- in

    async def parsed(self) -> Any:
        """Read the body as JSON."""
        raw = await self._read()
        kind = self.request.headers.get("Content-Type", "application/json")
        if kind.partition(";")[0].strip().lower() != "application/json":
            msg = "send the body as Content-Type: application/json"
            raise HttpProblem(415, "unsupported_media_type", msg)
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            msg = f"the body is not valid JSON: {error.msg} at line {error.lineno}"
            raise InvalidRequest(msg, code="invalid_json") from None
        problems.check_depth(raw, value)
        return value

    def validate(self, model: type[M], value: Any) -> M:
        """Make a model of a parsed body. Raises InvalidRequest naming the field."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise problems.invalid(error) from None

    async def body(self, model: type[M], *, optional: bool = False) -> M:
        """Read and validate the body; an optional one may be empty."""
        if optional and not self.request.can_read_body:
            return model()
        return self.validate(model, await self.parsed())

    async def _read(self) -> bytes:
        request, limit = self.request, self.app.settings.server.body_bytes_max
        if (request.content_length or 0) > limit:
            raise PayloadTooLarge(f"the body is larger than {limit} bytes")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            msg = "send the body without Content-Encoding"
            raise HttpProblem(415, "unsupported_encoding", msg)
        try:
            if request.content.is_eof():
                return await request.read()
            async with asyncio.timeout(self.app.settings.server.body_timeout_s):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise PayloadTooLarge(f"the body is larger than {limit} bytes") from None
        except TimeoutError:
            raise HttpProblem(408, "body_timeout", "the body came too slowly") from None

    async def check_callback(self, url: str | None) -> None:
        """Refuse a callback URL that may not be called. Raises CallbackRefused."""
        if url:
            await self.bridge.guard.check_at_submission(url)

    def query(self, name: str) -> str | None:
        """Give a query parameter, or None."""
        value: str | None = self.request.query.get(name)
        return value or None

    def query_int(self, name: str, *, default: int, low: int, high: int) -> int:
        """Give a query parameter that must be a whole number in a range."""
        text = self.query(name)
        if text is None:
            return default
        if not _INT.fullmatch(text) or not low <= int(text) <= high:
            msg = f"query parameter '{name}': must be a whole number from {low} to {high}"
            raise InvalidRequest(msg, details={"field": name})
        return int(text)

    def view(self, task: Task, default: Callable[[Task], dict[str, Any]]) -> dict[str, Any]:
        """Show a task in the view that was asked for."""
        name = self.query("view") if self.request.query_string else None
        if name is None:
            return default(task)
        if name not in VIEWS:
            msg = f"unknown view '{name[:50]}'; use {', '.join(VIEWS)}"
            raise InvalidRequest(msg, details={"field": "view"})
        return VIEWS[name](task)

    # -- out

    def json(self, value: Any, status: int = 200) -> web.Response:
        """Answer with JSON."""
        return self.raw(orjson.dumps(value), status)

    def raw(
        self, body: bytes, status: int = 200, content_type: str = "application/json"
    ) -> web.Response:
        """Answer with bytes."""
        return web.Response(body=body, status=status, headers={"Content-Type": content_type})


class App:
    """The server's surface over one bridge."""

    def __init__(self, bridge: Bridge, settings: Settings, config_path: Path | None = None) -> None:
        """Serve what `bridge` leads to."""
        self.bridge = bridge
        self.settings = settings
        self.config_path = config_path
        self.started_at = bridge.shard.journal.now()
        self.registry = registry_for(bridge.shard)
        self.streams: set[asyncio.Event] = set()
        self.closing = False
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        self._tokens = {name: token.encode() for name, token in settings.server.tokens.items()}
        for route in ROUTES:
            if settings.scheduler.enabled or route.dialect != pinchtab.NAME:
                self._add(route)
        bridge.shard.listeners.append(self._news)

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            self._fixed.setdefault(route.path, {})[route.method] = route
            return
        parts = tuple(route.path.split("/"))
        same = self._patterns.setdefault(len(parts), [])
        for pattern, methods in same:
            if pattern == parts:
                methods[route.method] = route
                return
        same.append((parts, {route.method: route}))

    def _match(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        params: dict[str, str] = {}
        methods = self._fixed.get(path)
        if methods is None:
            parts = path.split("/")
            for pattern, candidates in self._patterns.get(len(parts), ()):
                params = {}
                for want, have in zip(pattern, parts, strict=True):
                    if want.startswith("{") and have:
                        params[want[1:-1]] = unquote(have, errors="replace")
                    elif want != have:
                        break
                else:
                    methods = candidates
                    break
        if methods is None:
            raise HttpProblem(404, "not_found", "there is nothing at this path; see /docs")
        route = methods.get(method)
        if route is None:
            allowed = sorted(methods)
            msg = f"this path takes {', '.join(allowed)}"
            raise HttpProblem(405, "method_not_allowed", msg, allowed=allowed)
        return route, params

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _SAFE_ID.fullmatch(given) else ids.request_id()
        dialect = ""
        try:
            route, params = self._match(request.method, request.raw_path.partition("?")[0])
            dialect = route.dialect
            by = self._admit(request, route)
            call = Call(self, request, request_id, params, by)
            answer: web.StreamResponse = await route.handler(call)
        except RotaError as error:
            if isinstance(error, LogError):
                error = InternalFault(error.message)
                error.status = 503
            answer = self._problem(error, request_id, dialect)
        except (asyncio.CancelledError, ConnectionResetError):
            raise
        except Exception:
            logger.exception("a handler failed")
            fault = InternalFault("rota failed on this request; it was logged under its id")
            answer = self._problem(fault, request_id, dialect)
        if not answer.prepared:
            answer.headers["X-Request-ID"] = request_id
        return answer

    @staticmethod
    def _problem(error: RotaError, request_id: str, dialect: str) -> web.Response:
        render = _PROBLEMS.get(dialect, problems.native_body)
        return problems.response(error, render(error, request_id))

    def _admit(self, request: BaseRequest, route: Route) -> str:
        """Check who is asking, and give their name."""
        headers = request.headers
        origin = headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != headers.get("Host"):
            raise HttpProblem(403, "foreign_origin", "pages of other origins may not call rota")
        if not self._tokens:
            host = headers.get("Host", "localhost")
            if not _LOOPBACK.fullmatch(host) and host != self._own_host():
                msg = "without tokens rota answers only under its own name"
                raise HttpProblem(403, "foreign_host", msg)
            return ""
        if route.public:
            return ""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip().encode(errors="replace")
            for name, known in self._tokens.items():
                if hmac.compare_digest(given, known):
                    return name
        raise HttpProblem(401, "unauthorized", "send Authorization: Bearer TOKEN")

    def _own_host(self) -> str:
        server = self.settings.server
        return f"{server.host}:{server.port}"

    # -- configuration

    def shown_settings(self) -> dict[str, Any]:
        """Give the settings in force, with secrets blotted out."""
        shown = self.settings.model_dump(mode="json", by_alias=True)
        shown["server"]["tokens"] = sorted(shown["server"]["tokens"])
        shown["webhooks"]["secret"] = "set" if self.settings.webhooks.secrets else ""
        for executor in shown["executors"].values():
            executor["headers"] = sorted(executor["headers"])
        return shown

    async def reload(self, source: str, by: str = "") -> list[str]:
        """Read the file again and put its limits in force. Raises ConfigError."""
        if self.config_path is None:
            return []
        fresh = load_settings(self.config_path)
        set_now = fresh.scheduler.model_dump(include=fresh.scheduler.model_fields_set)
        scheduler = self.settings.scheduler.model_copy(update=set_now)
        return await self.put_in_force(
            self.settings.model_copy(update={"scheduler": scheduler, "types": fresh.types}),
            source,
            by,
        )

    async def put_in_force(self, settings: Settings, source: str, by: str) -> list[str]:
        """Put the limits of `settings` in force; give the names of those that changed."""
        changed = await self.bridge.change_limits(settings.limits(), source, by)
        self.settings = self.bridge.settings = settings
        self.bridge.shard.limits = settings.limits()
        return changed

    # -- the stream

    def _news(self, seq: int) -> None:
        del seq
        for news in self.streams:
            news.set()

    def close(self) -> None:
        """End the streams."""
        self.closing = True
        self._news(0)

    def server(self) -> web.Server:
        """Make the aiohttp server of this app."""
        limit = self.settings.server.body_bytes_max
        loop = asyncio.get_running_loop()

        def make_request(
            message: Any, payload: Any, protocol: Any, writer: Any, task: Any
        ) -> BaseRequest:
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=limit
            )

        server = web.Server(
            self._bounded,
            request_factory=make_request,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=75.0,
        )
        self._server = server
        return server

    async def _bounded(self, request: BaseRequest) -> web.StreamResponse:
        """Answer, unless there are more connections than there may be."""
        if len(self._server._connections) > self.settings.server.connections_max:  # noqa: SLF001
            error = HttpProblem(503, "too_many_connections", "too many connections are open")
            answer = self._problem(error, ids.request_id(), "")
            answer.force_close()
            return answer
        return await self.handle(request)

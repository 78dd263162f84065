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
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

from rota import ids
from rota.clock import monotonic_s
from rota.config import load_settings
from rota.errors import ConfigError, InternalFault, LogError, RotaError
from rota.http import problems
from rota.http.call import Call
from rota.http.damage import Damage
from rota.http.descriptors import make_room
from rota.http.dialects import browsermanager, browseros, pinchtab
from rota.http.intake import Intake
from rota.http.listener import Listener
from rota.http.problems import HttpProblem
from rota.http.routes import Route, routes_for
from rota.http.streams import Streams
from rota.http.v1.health import registry_for
from rota.http.watches import Watches

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.web_request import BaseRequest

    from rota.config import Settings
    from rota.http.bridge import Bridge

logger = logging.getLogger("rota.http")

NEEDS_RESTART = ("executors", "webhooks", "server", "browsermanager")
_PROBLEMS = {
    pinchtab.NAME: pinchtab.problem,
    browseros.NAME: browseros.problem,
    browsermanager.NAME: browsermanager.problem,
}
_STATELESS = ("/health", "/metrics", "/docs")
_JOB_PATHS = ("/api/", "/ws/jobs")
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)


class App:
    """The server's surface over one bridge."""

    def __init__(self, bridge: Bridge, settings: Settings, config_path: Path | None = None) -> None:
        """Serve what `bridge` leads to."""
        self.bridge = bridge
        self.settings = settings
        self.presets = settings.presets
        self.read = settings if config_path is None else load_settings(config_path, self.presets)
        self.config_path = config_path
        self.started_s = monotonic_s()
        self.registry = registry_for(bridge.shard)
        self.streams = Streams(bridge.shard.tail)
        self.watches = Watches(bridge.shard)
        self.damage = Damage()
        self.intake = Intake()
        self.closing = False
        self._changing = asyncio.Lock()
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        self._tokens = {name: token.encode() for name, token in settings.server.tokens.items()}
        self.routes = tuple(
            route
            for route in routes_for(settings.browsermanager.routes)
            if settings.scheduler.enabled or route.handler is not pinchtab.stats
        )
        for route in self.routes:
            self._add(route)
        bridge.shard.listeners.append(self.streams.news)

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
        if method == "HEAD" and route is None:
            route = methods.get("GET")
            route = None if route is not None and route.is_stream else route
        if route is None:
            has_head = "GET" in methods and not methods["GET"].is_stream
            allowed = sorted({*methods, "HEAD"} if has_head else methods)
            msg = f"this path takes {', '.join(allowed)}"
            raise HttpProblem(405, "method_not_allowed", msg, allowed=allowed)
        return route, params

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _SAFE_ID.fullmatch(given) else ids.request_id()
        path = _path_of(request)
        dialect = browsermanager.NAME if path.startswith(_JOB_PATHS) else ""
        call = None
        try:
            route, params = self._match(request.method, path)
            dialect = route.dialect
            by = self._admit(request, route)
            if request.method == "GET" and not path.startswith(_STATELESS):
                await self.bridge.readable()
            call = Call(self, request, request_id, path, params, by, dialect)
            answer: web.StreamResponse = await route.handler(call)
        except RotaError as error:
            shown: RotaError = error
            if isinstance(error, LogError):
                shown = self.damage.met(error)
            answer = self._problem(shown, request_id, call.dialect if call else dialect)
            problems.forget_frames(error)
        except ConnectionError as error:
            problems.forget_frames(error)
            answer = web.Response(status=400)  # the client has left: nobody reads this
        except Exception as error:
            logger.exception("a handler failed")
            problems.forget_frames(error)
            fault = InternalFault("rota failed on this request; it was logged under its id")
            answer = self._problem(fault, request_id, dialect)
        if not answer.prepared:
            answer.headers["X-Request-ID"] = request_id
        return answer

    @staticmethod
    def _problem(error: RotaError, request_id: str, dialect: str) -> web.Response:
        body = _PROBLEMS.get(dialect, problems.native_body)(error, request_id)
        return problems.response(error, body)

    def _admit(self, request: BaseRequest, route: Route) -> str:
        """Check who is asking, and give their name."""
        headers = request.headers
        origin = headers.get("Origin")
        if origin is not None and not _is_own(origin, headers.get("Host")):
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
        if "Authorization" in headers:
            raise HttpProblem(401, "unauthorized", "this token is not known here")
        raise HttpProblem(401, "unauthorized", "send Authorization: Bearer TOKEN")

    def _own_host(self) -> str:
        server = self.settings.server
        return f"{server.host}:{server.port}"

    # -- configuration

    async def reload(self, source: str, by: str = "") -> list[str]:
        """Read the file again and put its limits in force. Raises ConfigError."""
        if self.config_path is None:
            return []
        fresh = load_settings(self.config_path, self.presets)
        late = [n for n in NEEDS_RESTART if getattr(fresh, n) != getattr(self.read, n)]
        if late:
            logger.warning("%s changed; that needs a restart", " and ".join(late))
        changes = fresh.scheduler.model_dump(include=fresh.scheduler.model_fields_set)
        return await self.change(changes, fresh, source, by)

    async def change(
        self,
        changes: dict[str, Any],
        fresh: Settings | None,
        source: str,
        by: str,
    ) -> list[str]:
        """Lay changes of the limits over those in force, one at a time; name what changed.

        `fresh` is the file read anew, if it was: its types and dialects come into force, too.
        """
        known = ("pull", "builtin", *self.settings.executors)
        for name, kind in (fresh.types if fresh is not None else {}).items():
            if kind.executor not in known:
                msg = f"types.{name}: executor {kind.executor!r} is new, and needs a restart"
                raise ConfigError(msg)
        async with self._changing:
            for fixed in ("enabled", "strategy"):
                changes.pop(fixed, None)
            scheduler = self.settings.scheduler.model_copy(update=changes)
            update: dict[str, Any] = {"scheduler": scheduler}
            if fresh is not None:
                update |= {n: getattr(fresh, n) for n in ("types", "agent", "browseros")}
            settings = self.settings.model_copy(update=update)
            changed = await self.bridge.change_limits(settings.limits(), source, by)
            self.settings = self.bridge.settings = settings
            self.bridge.shard.limits = settings.limits()
            return changed

    def close(self) -> None:
        """End the streams."""
        self.closing = True
        self.watches.close()
        self.streams.close()

    def listener(self) -> Listener:
        """Make the server of this app."""
        server = self.settings.server
        return Listener(
            self.handle,
            connections_max=make_room(server.connections_max),
            body_bytes_max=server.body_bytes_max,
            header_timeout_s=server.header_timeout_s,
        )


def _is_own(origin: str, host: str | None) -> bool:
    """Whether a page is one of ours: by the name we were asked under, over HTTP."""
    scheme, _, name = origin.partition("://")
    return scheme.lower() in ("http", "https") and name == host


def _path_of(request: BaseRequest) -> str:
    """Give the path that was asked for, still encoded; a proxy's absolute form has one too."""
    path = request.raw_path.partition("?")[0]
    if path.startswith("/"):
        return path
    rest = path.partition("://")[2]
    return "/" + rest.partition("/")[2] if rest else path

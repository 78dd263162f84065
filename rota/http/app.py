"""The HTTP server: from bytes to a route's handler and back.

Built on aiohttp's low-level server: one table of routes, no middleware chain, because routing and
middleware are where the time goes. Every answer carries `X-Request-ID`; every error is a 4xx or
503 with a code and a sentence, and a bug is a 500 that says nothing of the inside. Bodies are
bounded in size, depth and time; connections in number. Pages of other origins are refused.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

from rota import ids
from rota.actors.readers import asked_by
from rota.clock import monotonic_s
from rota.errors import InternalFault, LogError, RotaError, StorageUnavailable
from rota.http import problems
from rota.http.access import Access, check_place
from rota.http.byte_budgets import AnswerBudget, AnswerRoom, BodyBudget
from rota.http.call import Call
from rota.http.descriptors import make_room
from rota.http.dialects import automechanica, browsermanager, browseros, pinchtab, projects
from rota.http.listener import Listener
from rota.http.models import NoBody
from rota.http.namespaces import Namespaces, named_in
from rota.http.presence import LOOKS
from rota.http.problems import HttpProblem
from rota.http.reloading import Reloading
from rota.http.route import reserved_words
from rota.http.routes import Route, routes_for
from rota.sight.room import room_of
from rota.sight.turns import Turns, turns_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aiohttp.web_request import BaseRequest

    from rota.config import Settings
    from rota.http.access import Caller
    from rota.http.bridge import Bridge
    from rota.http.route import Handler

logger = logging.getLogger("rota.http")

_PROBLEMS = {
    pinchtab.NAME: pinchtab.problem,
    browseros.NAME: browseros.problem,
    browsermanager.NAME: browsermanager.problem,
    automechanica.NAME: automechanica.problem,
    projects.NAME: projects.problem,
}
_STATELESS = ("/health", "/metrics", "/docs", "/v1/namespaces")
_OF_DIALECTS = {
    "/api/": browsermanager.NAME,
    "/ws/jobs": browsermanager.NAME,
    "/projects/": projects.NAME,
}
"""Under which paths whose words are spoken, also where there is nothing."""
LOGGED_CHARS_MAX = 500
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class App:
    """The server's surface over its namespaces."""

    def __init__(
        self, bridges: Mapping[str, Bridge], settings: Settings, config_path: Path | None = None
    ) -> None:
        self.namespaces = Namespaces(bridges)
        self.settings = settings
        self.reloading = Reloading(self.namespaces, settings, config_path)
        self.started_s = monotonic_s()
        self._turns = Turns()
        self.body_budget = BodyBudget()
        self.answer_budget = AnswerBudget()
        self.closing = False
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        self.access = Access(settings, self.namespaces)
        self.routes = tuple(
            route
            for route in routes_for(settings.browsermanager.routes)
            if settings.scheduler.enabled or route.handler is not pinchtab.stats
        )
        self.reserved = reserved_words(self.routes)
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if route.refuses_body:
            route = route._replace(handler=_without_body(route.handler))
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
        """Find the route of a path. Raises HttpProblem.

        A fixed path goes before a pattern that it fits for its own methods alone: `/v1/tasks/retry`
        is a request to retry many for POST, and the task of that id for GET.
        """
        found = self._fixed.get(path)
        if found is not None and method in found:
            return found[method], {}
        rest, params = self._at_pattern(path)
        methods = {**rest, **(found or {})}
        if not methods:
            raise HttpProblem(404, "not_found", "there is nothing at this path; see /docs")
        if "GET" in methods and not methods["GET"].is_stream:
            methods.setdefault("HEAD", methods["GET"])
        if method not in methods:
            allowed = sorted(methods)
            msg = f"this path takes {', '.join(allowed)}"
            raise HttpProblem(405, "method_not_allowed", msg, allowed=allowed)
        return methods[method], params

    def _at_pattern(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """Give the routes of the pattern that a path fits, and what stands for its names."""
        parts = path.split("/")
        for pattern, methods in self._patterns.get(len(parts), ()):
            params = {}
            for want, have in zip(pattern, parts, strict=True):
                if want.startswith("{") and have:
                    params[want[1:-1]] = unquote(have, errors="replace")
                elif want != have:
                    break
            else:
                return methods, params
        return {}, {}

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _SAFE_ID.fullmatch(given) else ids.request_id()
        path = _path_of(request)
        dialect = ""
        call = room = None
        try:
            preflight = self.access.preflight(request)
            if preflight is not None:
                return web.Response(status=204, headers=preflight)
            route, params = self._match(request.method, path)
            dialect = route.dialect
            name = named_in(request)
            caller = await self._admitted(request, route, name)
            check_place(request, route, caller)
            if "?" in request.raw_path:
                route.check_query([*request.query.items()])
            namespace = self.namespaces.find(name, caller.namespace)
            call = Call(self, request, request_id, path, params, caller, dialect, namespace)
            asked_by.set(call.share)
            turns_of.set(self._turns)
            if not route.is_stream:
                room = AnswerRoom(self.answer_budget, call.share, call.staying)
                room_of.set(room)
            if request.method == "GET" and not path.startswith(_STATELESS):
                await call.sight.readable()
            answer: web.StreamResponse = await route.handler(call)
        except RotaError as error:
            shown: RotaError = error
            if isinstance(error, LogError) and call is not None:
                shown = call.namespace.damage.met(error)
            said_in = call.dialect if call else dialect or _dialect_at(path)
            answer = self._problem(shown, request_id, said_in)
            problems.forget_frames(error)
        except ConnectionError as error:
            problems.forget_frames(error)
            answer = web.Response(status=400)  # the client has left: nobody reads this
        except Exception as error:
            logger.exception("a handler failed")
            problems.forget_frames(error)
            fault = InternalFault("rota failed on this request; it was logged under its id")
            answer = self._problem(fault, request_id, dialect)
        if room is not None:
            room.made(_size_of(answer))
        self._finish(answer, request, request_id, call.by if call is not None else "-")
        return answer

    def _finish(
        self, answer: web.StreamResponse, request: BaseRequest, request_id: str, by: str
    ) -> None:
        """Add the headers that every answer has, and log it for those who debug."""
        if logger.isEnabledFor(logging.DEBUG):
            path = request.raw_path.partition("?")[0][:LOGGED_CHARS_MAX]
            logger.debug("%s %s by %s: %d", request.method, path, by, answer.status)
        if not answer.prepared:
            answer.headers["X-Request-ID"] = request_id
            if "Origin" in request.headers:
                answer.headers.update(self.access.shared_with(request))

    async def _admitted(self, request: BaseRequest, route: Route, namespace: str) -> Caller:
        """Let a request in; who only looks waits a little for tokens that are being rebuilt."""
        try:
            return self.access.admit(request, route, namespace)
        except StorageUnavailable:
            if request.method not in LOOKS:
                raise
        for each in self.namespaces:
            await each.sight.readable()
        return self.access.admit(request, route, namespace)

    @staticmethod
    def _problem(error: RotaError, request_id: str, dialect: str) -> web.Response:
        body = _PROBLEMS.get(dialect, problems.native_body)(error, request_id)
        return problems.response(error, body)

    def close(self) -> None:
        self.closing = True
        self.namespaces.close()

    def listener(self) -> Listener:
        server = self.settings.server
        return Listener(
            self.handle,
            connections_max=make_room(server.connections_max),
            body_bytes_max=server.body_bytes_max,
            header_timeout_s=server.header_timeout_s,
        )


def _size_of(answer: web.StreamResponse) -> int:
    body = answer.body if isinstance(answer, web.Response) else None
    return len(body) if isinstance(body, bytes) else 0


def _without_body(handler: Handler) -> Handler:
    """Have a handler that reads no body refuse one that says something."""

    async def refusing(call: Call) -> Any:
        await call.body(NoBody, optional=True)
        return await handler(call)

    return refusing


def _dialect_at(path: str) -> str:
    """Name the dialect of a path that leads to no route."""
    return next((name for at, name in _OF_DIALECTS.items() if f"{path}/".startswith(at)), "")


def _path_of(request: BaseRequest) -> str:
    """Give the path that was asked for, still encoded; a proxy's absolute form has one too."""
    path = request.raw_path.partition("?")[0]
    if path.startswith("/"):
        return path
    rest = path.partition("://")[2]
    return "/" + rest.partition("/")[2] if rest else path

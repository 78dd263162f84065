"""Who may ask: by origin, by host, by token; and for which namespace a token is good."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, NamedTuple

from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from rota.config import Settings
    from rota.http.routes import Route

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)


class Caller(NamedTuple):
    """Who asks, and the namespace that their token is bound to; empty if there is none."""

    name: str
    namespace: str = ""


NOBODY = Caller("")


class Access:
    """The rules of one server."""

    def __init__(self, settings: Settings) -> None:
        self._own_host = f"{settings.server.host}:{settings.server.port}"
        self._tokens = [
            (token.encode(), Caller(name)) for name, token in settings.server.tokens.items()
        ]
        for namespace, own in settings.namespaces.items():
            self._tokens += [
                (token.encode(), Caller(name, namespace)) for name, token in own.tokens.items()
            ]

    def admit(self, request: BaseRequest, route: Route, namespace: str = "") -> Caller:
        """Say who is asking. Raises HttpProblem.

        What is public needs no token, unless it is asked of the `namespace` that is named.
        """
        headers = request.headers
        origin = headers.get("Origin")
        if origin is not None and not _is_own(origin, headers.get("Host")):
            raise HttpProblem(403, "foreign_origin", "pages of other origins may not call rota")
        if not self._tokens:
            host = headers.get("Host", "localhost")
            if not _LOOPBACK.fullmatch(host) and host != self._own_host:
                msg = "without tokens rota answers only under its own name"
                raise HttpProblem(403, "foreign_host", msg)
            return NOBODY
        if route.public and not namespace:
            return NOBODY
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip().encode(errors="replace")
            for known, caller in self._tokens:
                if hmac.compare_digest(given, known):
                    if route.is_for_all and caller.namespace:
                        msg = f"this token is for namespace '{caller.namespace}' alone, and this"
                        raise HttpProblem(403, "namespace_forbidden", f"{msg} is the operators'")
                    return caller
        if "Authorization" in headers:
            raise HttpProblem(401, "unauthorized", "this token is not known here")
        raise HttpProblem(401, "unauthorized", "send Authorization: Bearer TOKEN")


def _is_own(origin: str, host: str | None) -> bool:
    """Whether a page is one of ours: by the name we were asked under, over HTTP."""
    scheme, _, name = origin.partition("://")
    return scheme.lower() in ("http", "https") and name == host

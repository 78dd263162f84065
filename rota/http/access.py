"""Who may ask: by origin, by host, by token; for which namespace, for what, and for which agents.

Tokens of the configuration are an administrator's. Those that were made at run time are in a
namespace's log: they are good there alone, and may do what their role may. This is the one place
that compares a role with what a route needs. As long as there has never been a token, whoever
reaches the loopback may do everything.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from multidict import istr

from rota.domain.shares import share_of
from rota.domain.tokens import ADMIN, LOCAL, ROLES, SCOPED, hash_of
from rota.errors import InvalidRequest, StorageUnavailable
from rota.http.presence import connection_of
from rota.http.problems import HttpProblem
from rota.http.submissions import KEY_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.web_request import BaseRequest

    from rota.config import Settings
    from rota.domain.tokens import Right
    from rota.http.namespaces import Namespaces
    from rota.http.routes import Route

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)
PAGE_HEADERS = "Authorization, Content-Type, Last-Event-ID, X-Request-ID, X-Rota-Namespace, " + (
    ", ".join(KEY_HEADERS)
)
"""The request headers that pages of listed origins may send."""
_IN_QUERY = ("token", "access_token")
TOKEN_BYTES_MAX = 1000
AUTHORIZATION = istr("Authorization")


class Caller(NamedTuple):
    """Who asks, and the namespace that their token is bound to; empty if there is none.

    `agents` is None if it is all of them. `token` is the hash of one that may be revoked, and
    `principal` who acts when that is used.
    """

    name: str
    namespace: str = ""
    role: str = ADMIN
    agents: frozenset[str] | None = None
    token: str = ""
    principal: str = ""

    @property
    def by(self) -> str:
        """Say who records and keys belong to: the token, and not whoever had its name before."""
        return self.principal or self.name

    def check_may(self, right: Right) -> None:
        """Refuse what the caller's role may not do. Raises HttpProblem."""
        if right not in ROLES[self.role]:
            raise HttpProblem(403, "forbidden", f"a token of role '{self.role}' may not do this")

    def check_agents(self, agents: Iterable[str]) -> None:
        """Refuse what is for agents that the caller does not speak for. Raises HttpProblem.

        Whether there are such agents is not said.
        """
        if self.agents is not None and not self.agents.issuperset(agents):
            raise HttpProblem(403, "forbidden", "this token is not for this agent")

    def share_for(self, agent: str = "") -> str:
        """Name whose share of a bound a request takes (domain/shares.py).

        A token has a share of its own. Where there are no tokens, an agent has one.
        """
        return share_of(self.by, agent)


NOBODY = Caller(LOCAL)


class Access:
    """The rules of one server."""

    def __init__(self, settings: Settings, namespaces: Namespaces) -> None:
        """Know the tokens of the settings, and look others up in the namespaces' logs."""
        server = settings.server
        self._origins = frozenset(server.allow_origins)
        self._own_host = f"{server.host}:{server.port}"
        self._namespaces = namespaces
        self._tokens = [(token.encode(), Caller(name)) for name, token in server.tokens.items()]
        for namespace, own in settings.namespaces.items():
            self._tokens += [
                (token.encode(), Caller(name, namespace)) for name, token in own.tokens.items()
            ]
        self.names = frozenset(caller.name for _, caller in self._tokens)
        """The tokens that the configuration names."""
        self._is_closed = bool(self._tokens) or not is_loopback(server.host)

    def is_open(self) -> bool:
        """Whether no token is wanted: there has never been one, and only the loopback listens."""
        if self._is_closed:
            return False
        with suppress(StorageUnavailable):  # there was none before, and nothing is shown just now
            self._is_closed = any(each.passes.changes for each in self._namespaces)
        return not self._is_closed

    def admit(self, request: BaseRequest, route: Route, namespace: str = "") -> Caller:
        """Say who is asking. Raises HttpProblem or InvalidRequest, or StorageUnavailable.

        What is public needs no token, unless it is asked of the `namespace` that is named.
        """
        headers = request.headers
        origin = headers.get("Origin")
        if origin is not None and not _is_own(origin, headers.get("Host")):
            self._check_origin(origin)
        _check_query(request)
        if len(headers.getall(AUTHORIZATION, ())) > 1:
            msg = "send one Authorization header: of several nobody can tell which one counts"
            raise InvalidRequest(msg, details={"field": AUTHORIZATION})
        if self.is_open():
            host = headers.get("Host", "localhost")
            if not _LOOPBACK.fullmatch(host) and host != self._own_host:
                msg = "without tokens rota answers only under its own name"
                raise HttpProblem(403, "foreign_host", msg)
            return NOBODY
        if route.public and not namespace:
            return NOBODY
        caller = self._known(headers.get(AUTHORIZATION))
        if caller.namespace and route.is_for_all and len(self._namespaces) > 1:
            msg = f"this token is for namespace '{caller.namespace}' alone, and this"
            raise HttpProblem(403, "namespace_forbidden", f"{msg} is the operators'")
        if not route.public:
            caller.check_may(route.needs)
        return caller

    def _check_origin(self, origin: str) -> None:
        if origin not in self._origins:
            msg = "pages of other origins may not call rota, unless server.allowOrigins names them"
            raise HttpProblem(403, "foreign_origin", msg)

    def shared_with(self, request: BaseRequest) -> dict[str, str]:
        """Give the headers that let a page of a listed origin read the answer (CORS)."""
        origin = request.headers.get("Origin")
        if origin not in self._origins:
            return {}
        exposed = "X-Request-ID, Retry-After, Location"
        allow = {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": exposed}
        return {**allow, "Vary": "Origin"}

    def preflight(self, request: BaseRequest) -> dict[str, str] | None:
        """Answer a browser that asks what a page may send (CORS); None if it does not ask.

        Raises HttpProblem for an origin that is not listed.
        """
        headers = request.headers
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in headers:
            return None
        self._check_origin(headers.get("Origin", ""))
        asked = headers.get("Access-Control-Request-Private-Network")
        private = {"Access-Control-Allow-Private-Network": "true"} if asked == "true" else {}
        return {
            **self.shared_with(request),
            "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": PAGE_HEADERS,
            "Access-Control-Max-Age": "600",
            **private,
        }

    def _known(self, header: str | None) -> Caller:
        """Give whose token it is. Raises HttpProblem, alike for all that are not good."""
        if header is None:
            raise HttpProblem(401, "unauthorized", "send Authorization: Bearer TOKEN")
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip().encode(errors="replace")
            for known, caller in self._tokens:
                if hmac.compare_digest(given, known):
                    return caller
            found = self._found(given)
            if found is not None:
                return found
        raise unwelcome()

    def _found(self, given: bytes) -> Caller | None:
        """Look a secret up in the logs. Raises StorageUnavailable if one cannot be looked at."""
        if not given or len(given) > TOKEN_BYTES_MAX:
            return None
        digest = hash_of(given)
        failure: StorageUnavailable | None = None
        for namespace in self._namespaces:
            try:
                token = namespace.passes.find(digest)
            except StorageUnavailable as error:
                failure = error
                continue
            if token is not None:
                agents = token.agents if token.role in SCOPED else None
                return Caller(
                    token.name, namespace.name, token.role, agents, digest, token.principal
                )
        if failure is not None:
            raise failure
        return None


def check_place(request: BaseRequest, route: Route, caller: Caller) -> None:
    """Refuse what comes above the limit of connections. Raises HttpProblem.

    Health is told all the same, and administrators are served if a token says that they are.
    """
    is_administrator = caller.role == ADMIN and caller is not NOBODY
    is_served = is_administrator or route.path.startswith("/health")
    if connection_of(request).is_excess and not is_served:
        raise HttpProblem(503, "too_many_connections", "too many connections are open")


def unwelcome() -> HttpProblem:
    """Say that a token is not good: whether it was never known, is revoked or has expired."""
    return HttpProblem(401, "unauthorized", "this token is not known here")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_query(request: BaseRequest) -> None:
    """Refuse a token in a URL, which ends up in logs and histories. Raises HttpProblem."""
    query = request.raw_path.partition("?")[2]
    if not query or ("token" not in query.lower() and "%" not in query):
        return
    if any(name.lower() in _IN_QUERY for name in request.query):
        msg = "a token in a URL is not accepted: send Authorization: Bearer TOKEN; and as URLs are"
        raise HttpProblem(401, "unauthorized", f"{msg} kept in logs, revoke this one")


def _is_own(origin: str, host: str | None) -> bool:
    """Whether a page is one of ours: by the name we were asked under, over HTTP."""
    scheme, _, name = origin.partition("://")
    return scheme.lower() in ("http", "https") and name == host

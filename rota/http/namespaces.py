"""The namespaces of a server as HTTP sees them, and which of them a request is for.

A namespace is a shard with a log of its own; nothing crosses from one to another. What belongs to
one hangs on its `Namespace`: the bridge, the streams, who waits for which task, the damage that was
met. What bounds the process (places, bodies, streams in all) is the app's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multidict import istr

from rota.config import STREAMS_MAX
from rota.domain.shares import Shares
from rota.errors import InvalidRequest
from rota.http.damage import Damage
from rota.http.guests import Guests
from rota.http.problems import HttpProblem
from rota.http.route import NAMESPACE_QUERY
from rota.http.streams import Streams
from rota.http.watches import Watches
from rota.sections import DEFAULT
from rota.sight.passes import Passes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiohttp.web_request import BaseRequest

    from rota.http.bridge import Bridge

HEADER = istr("X-Rota-Namespace")
_NAME_SHOWN_MAX = 63
OPERATIONS_MAX = 4
"""So many operations on many tasks run at once in one namespace; each lists what it has found."""


class Namespace:
    """One of them."""

    __slots__ = (
        "bridge",
        "damage",
        "feed",
        "guests",
        "name",
        "operations",
        "passes",
        "sight",
        "streams",
        "watches",
    )

    def __init__(self, name: str, bridge: Bridge, watching: Shares) -> None:
        """Have the streams told of what becomes durable in it."""
        self.name = name
        self.bridge = bridge
        self.sight = bridge.sight
        self.feed = bridge.feed
        self.streams = Streams(bridge.feed)
        self.watches = Watches(bridge.feed, watching)
        self.damage = Damage()
        self.operations = Shares(OPERATIONS_MAX)
        self.passes = Passes(bridge.shard)
        self.guests = Guests(self.passes, bridge.feed)
        self.feed.on_commit(self.streams.news)


class Namespaces:
    """All of them, by name."""

    def __init__(self, bridges: Mapping[str, Bridge]) -> None:
        """Lead to these; one of them is the default."""
        watching = Shares(STREAMS_MAX)
        self.streaming = Shares(STREAMS_MAX)
        """Who holds the streams of all of them."""
        self._all = {name: Namespace(name, bridge, watching) for name, bridge in bridges.items()}
        self.default = self._all[DEFAULT]

    def __iter__(self) -> Iterator[Namespace]:
        """Give them, the default first."""
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def find(self, name: str, bound: str) -> Namespace | None:
        """Give the one that is named, or a token is bound to; None if neither is said.

        Raises HttpProblem.
        """
        if bound:
            if name and name != bound:
                msg = f"this token is for namespace '{bound}' alone"
                raise HttpProblem(403, "namespace_forbidden", msg)
            name = bound
        if not name:
            return None
        found = self._all.get(name)
        if found is None:
            msg = f"there is no namespace '{name[:_NAME_SHOWN_MAX]}'; GET /v1/namespaces lists all"
            raise HttpProblem(404, "namespace_not_found", msg)
        return found

    def close(self) -> None:
        for each in self._all.values():
            each.watches.close()
            each.streams.close()


def named_in(request: BaseRequest) -> str:
    """Give the name that a request says; empty if it says none. Raises InvalidRequest for two."""
    headers, raw = request.headers, request.raw_path
    may_be_in_query = "?" in raw and ("namespace" in raw or "%" in raw)
    if HEADER not in headers and not may_be_in_query:
        return ""
    names = set(headers.getall(HEADER, ()))
    if may_be_in_query:  # where no header can be sent: EventSource, WebSocket
        names.update(request.query.getall(NAMESPACE_QUERY, ()))
    names.discard("")
    if len(names) > 1:
        msg = "the request names different namespaces"
        raise InvalidRequest(msg, details={"field": NAMESPACE_QUERY})
    return names.pop() if names else ""

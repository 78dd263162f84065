"""What is said of one thing that the server does: a row of the table in routes.py.

A row is a method, a path, its handler, what /openapi.json says of it, and what a caller must be
allowed to do. A row that does not say that is the administrators' alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.tokens import Right
from rota.errors import InvalidRequest
from rota.wording import guess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pydantic import BaseModel

    Handler = Callable[[Any], Awaitable[Any]]


NAMESPACE_QUERY = "namespace"
"""The query parameter that every route takes."""
CLOSED_DIALECTS = ("", "automechanica", "projects")
"""The dialects that refuse query parameters, and bodies, that they do not know; the empty one is
rota's own."""


class Route(NamedTuple):
    """One thing the server does."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    dialect: str = ""
    public: bool = False
    also: tuple[int, ...] = ()
    """Other statuses that are no error, or are answered alike."""
    media: str = "application/json"
    is_stream: bool = False
    is_for_all: bool = False
    """Whether it changes the whole server, which no token of one namespace may."""
    needs: Right = Right.MANAGE
    """What a caller must be allowed to do; access.py knows by its role whether it is."""

    @property
    def refuses_body(self) -> bool:
        """Whether a body that says anything is refused: it would be ignored."""
        return self.method != "GET" and self.body is None and self.dialect in CLOSED_DIALECTS

    def check_query(self, given: Sequence[tuple[str, str]]) -> None:
        """Refuse query parameters that the route does not know, are blank, or come twice.

        An empty cursor is the first page.

        Documents that leave unknown ones open have it so. What is public is asked by probes and
        browsers, which add names of their own. Raises InvalidRequest.
        """
        if self.public or self.dialect not in CLOSED_DIALECTS:
            return
        known = (*self.query, NAMESPACE_QUERY)
        for name, value in given:
            if name not in known:
                msg = f"unknown query parameter '{name[:100]}'{guess(name[:100], known)}"
                raise InvalidRequest(msg, details={"field": name[:100]})
            if not value.strip() and name != "cursor":
                msg = f"query parameter '{name}': must not be blank"
                raise InvalidRequest(msg, details={"field": name})
        own = [name for name, _ in given if name != NAMESPACE_QUERY]
        if len(set(own)) < len(own):
            name = next(each for each in own if own.count(each) > 1)
            msg = f"query parameter '{name}': is given more than once"
            raise InvalidRequest(msg, details={"field": name})


def reserved_words(routes: Iterable[Route]) -> dict[str, frozenset[str]]:
    """Give the words that no new id may be, since paths end in them where ids stand.

    They are given by the name of the collection: `tasks` has those of `/tasks` and `/v1/tasks`.
    """
    paths = {route.path for route in routes}
    found: dict[str, frozenset[str]] = {}
    for path in paths:
        parent, _, word = path.rpartition("/")
        if f"{parent}/{{id}}" in paths and word != "{id}":
            collection = parent.rpartition("/")[2]
            found[collection] = found.get(collection, frozenset()) | {word}
    return found

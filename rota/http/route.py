"""What is said of one thing that the server does: a row of the table in routes.py.

A row is a method, a path, its handler, what /openapi.json says of it, and what a caller must be
allowed to do. A row that does not say that is the administrators' alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.tokens import Right

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel

    Handler = Callable[[Any], Awaitable[Any]]


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

"""Lists that a server gives a page at a time, read to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.client.transport import Json

PAGE_ROWS = 1000
"""As many as a server gives at once."""


def rows_of(
    name: str, ask: Callable[..., Json], cursor: str | None = None, **filters: str | None
) -> Iterator[Json]:
    """Give the rows of every page from a cursor on."""
    while True:
        page = ask(limit=PAGE_ROWS, cursor=cursor, **filters)
        yield from page[name]
        cursor = page.get("nextCursor")
        if cursor is None:
            return

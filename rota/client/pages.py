"""Lists that a server gives a page at a time, read to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.client.steps import Call, Give, Json, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PAGE_ROWS = 1000
"""As many as a server gives at once."""


def all_rows(
    name: str, path: str, query: Mapping[str, object], *, page_rows: int | None = PAGE_ROWS
) -> Rows[Json]:
    """Give the rows of every page of a list."""
    cursor: object = None
    while True:
        asked = {**query, "limit": page_rows, "cursor": cursor}
        page: Json = yield Call("GET", path, asked, is_safe=True)
        for row in page[name]:
            yield Give(row)
        cursor = page.get("nextCursor")
        if cursor is None:
            return


def rows_of(
    name: str, ask: Callable[..., Json], cursor: str | None = None, **filters: str | None
) -> Iterator[Json]:
    """Give the rows of every page from a cursor on, by a call of the client that blocks."""
    while True:
        page = ask(limit=PAGE_ROWS, cursor=cursor, **filters)
        yield from page[name]
        cursor = page.get("nextCursor")
        if cursor is None:
            return

"""Lists that come a page at a time: options, rows, and what is said if there are more."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rota.cli.output import note, print_json
from rota.client.pages import PAGE_ROWS, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.steps import Json


class Page(NamedTuple):
    """Rows, and where to go on if there are more."""

    name: str
    rows: list[Json]
    cursor: str | None

    def print_json(self) -> None:
        answer = {self.name: self.rows, "count": len(self.rows)}
        print_json({**answer, "nextCursor": self.cursor} if self.cursor else answer)

    def note_more(self) -> None:
        if self.cursor:
            note(f"there are more: add --cursor {self.cursor}, or --all")


class Wish(NamedTuple):
    """Which rows were asked for."""

    limit: int
    cursor: str | None
    whole: bool

    def read(self, name: str, ask: Callable[..., Json], **filters: str | None) -> Page:
        """Ask for them; `ask` takes a limit and a cursor, too."""
        if self.whole:
            return Page(name, list(rows_of(name, ask, self.cursor, **filters)), None)
        page = ask(limit=self.limit, cursor=self.cursor, **filters)
        return Page(name, page[name], page.get("nextCursor"))


def with_pages(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--limit`, `--cursor` and `--all`, and call it with a wish made of them."""

    @click.option(
        "--limit", type=click.IntRange(1, PAGE_ROWS), default=50, show_default=True, help="Rows."
    )
    @click.option("--cursor", help="Go on where the page before ended.")
    @click.option("--all", "whole", is_flag=True, help="Every page, not just one.")
    @wraps(command)
    def call(*args: Any, limit: int, cursor: str | None, whole: bool, **options: Any) -> None:
        command(*args, wish=Wish(limit, cursor, whole), **options)

    return call

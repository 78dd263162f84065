"""What somebody may have meant who typed a command that is not there."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click import Command, Context


def meant(name: str, known: Iterable[str]) -> str:
    """Give the end of a sentence that names what is like `name`; nothing if nothing is."""
    close = get_close_matches(name, list(known), n=2, cutoff=0.6)
    if not close:
        return ""
    return f" Did you mean {' or '.join(close)}?"


class SuggestingGroup(click.Group):
    """A group that knows better."""

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command, or say which ones are like it."""
        name = args[0]
        if (
            not name.startswith("-")
            and not ctx.resilient_parsing
            and self.get_command(ctx, name) is None
        ):
            msg = f"No such command {name!r}.{meant(name, self.list_commands(ctx))}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)

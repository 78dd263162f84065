"""How every command prints: data to stdout, everything said to people to stderr.

What comes from outside (a task's error, an agent's name, an event) goes through `clean` before it
reaches a terminal or a log line, so that nobody can forge a line or move the cursor. JSON is
written in ASCII for the same reason. Tables are never cut short when piped.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from rota.logs import clean
from rota.wording import NO_EXECUTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

    from rota.errors import RotaError

PIPED_COLUMNS = 200

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def complain(message: str, hint: str = "") -> None:
    click.echo(f"error: {clean(message)}", err=True)
    if hint:
        click.echo(f"  try: {clean(hint)}", err=True)


def complain_in_json(error: RotaError) -> None:
    """Say on stderr what was refused, with everything that a program may branch on."""
    said = {"code": error.code, "error": error.message, "retryable": error.retryable}
    click.echo(json.dumps({**said, "details": error.details, "hint": error.hint}), err=True)


def note(message: str) -> None:
    click.echo(clean(message), err=True)


def note_wait(answer: dict[str, Any], action: str) -> None:
    """Say why a task that was just submitted waits."""
    reason = answer.get("waitReason")
    if reason is not None:
        meant = f" (is '{action}' the action you meant?)" if reason == NO_EXECUTOR else ""
        note(reason + meant)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print a value as JSON: indented, or with `lines` on one line of its own."""
    click.echo(json.dumps(value, indent=None if lines else 2))


def console(*, err: bool = False) -> Console:
    """Make a console for stdout (or stderr), as wide as what it is told needs when piped."""
    from rich.console import Console  # noqa: PLC0415 - most commands print no table

    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_COLUMNS
    return Console(stderr=err, width=width, highlight=False, markup=False, emoji=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    drop: Sequence[str] = (),
    cut: bool = False,
) -> None:
    """Print a table; numbers are set to the right.

    On a terminal that is too narrow the columns of `drop` go, the first of them first; the last
    column is wrapped, or with `cut` cut short.
    """
    from rota.cli.tables import Layout, lines_of  # noqa: PLC0415 - most commands print no table

    shown = [["" if cell is None else cell for cell in row] for row in rows]
    right = [
        bool(shown) and all(isinstance(row[at], int | float) for row in shown)
        for at in range(len(columns))
    ]
    cells = [[clean(cell) for cell in row] for row in shown]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    heading, *lines = lines_of(columns, cells, right, width, Layout(tuple(drop), cut))
    click.secho(heading, bold=True)
    for line in lines:
        click.echo(line)


@contextmanager
def progress(what: str, *, announce: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Give a function to report `done` and `total` to; on a terminal it draws a bar.

    The bar appears with the first report, so what is done at once shows none. Where there is no
    terminal nothing is shown, or with `announce` one line.
    """
    if not sys.stderr.isatty():
        said: list[int] = [] if announce else [0]

        def say(done: int, total: int) -> None:
            del done
            if not said:
                note(f"{what} {total}")
            said.append(total)

        yield say
        return
    from rich.progress import (  # noqa: PLC0415 - only terminals see a bar
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(err=True),
        transient=True,
    )
    task = bar.add_task(what)

    def draw(done: int, total: int) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield draw
    finally:
        bar.stop()

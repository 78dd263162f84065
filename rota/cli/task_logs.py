"""`rota logs`: what a task said, as far as it goes or as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json
from rota.cli.server_options import with_client
from rota.logs import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.client.sync_client import JsonClient


@click.command("logs")
@click.argument("task_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Wait for new lines, until the task ends.")
@json_option
@with_client
def logs_command(task_id: str, *, follow: bool, as_json: bool, client: JsonClient) -> None:
    """Print a task's log, oldest line first.

    With --json one line a line.

    \b
    Examples:
      rota logs tsk_1a2B3c4D
      rota logs tsk_1a2B3c4D --follow
    """
    lines: Iterable[dict[str, Any]] = client.iter_logs(task_id)
    if follow:
        lines = client.follow_logs(task_id, on_lost=_lost)
    count = 0
    try:
        for count, line in enumerate(lines, start=1):  # noqa: B007 - told after the loop
            if as_json:
                print_json(line, lines=True)
            else:
                click.echo(line_of(line))
    except KeyboardInterrupt:
        if not follow:
            raise
    if not count and not follow:
        note("it has said nothing; `rota events --task` shows what happened to it")


def line_of(line: dict[str, Any]) -> str:
    return " ".join(clean(line[name]) for name in ("at", "level", "message"))


def _lost(reason: str) -> None:
    note(f"{reason}; connecting again")

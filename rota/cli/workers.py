"""`rota workers`: who takes tasks, what each holds, and when it was last heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, print_table
from rota.cli.pages import with_pages
from rota.cli.server_options import with_client

if TYPE_CHECKING:
    from rota.cli.pages import Wish
    from rota.client.sync_client import JsonClient

COLUMNS = ("worker", "holds", "waits", "last seen", "silence", "takes", "labels")


@click.command("workers")
@with_pages
@json_option
@with_client
def workers_command(*, wish: Wish, as_json: bool, client: JsonClient) -> None:
    """List the workers, the one heard of last first.

    Silence is the longest that a worker was not heard of while it held what it holds.

    \b
    Examples:
      rota workers
      rota workers --all --json
    """
    page = wish.read("workers", client.workers)
    if as_json:
        page.print_json()
        return
    print_table(COLUMNS, [_row(worker) for worker in page.rows], cut=True)
    page.note_more()


def _row(worker: dict[str, Any]) -> tuple[Any, ...]:
    return (
        worker["workerId"],
        worker["holds"],
        "yes" if worker["waiting"] else "",
        worker["lastSeen"],
        f"{worker['heartbeatDelayMs'] / 1000:.1f} s" if worker["holds"] else "",
        _takes(worker),
        ", ".join(worker["labels"]),
    )


def _takes(worker: dict[str, Any]) -> str:
    """Say what it came for last; nothing if it has not come since the server started."""
    return "; ".join(map(_filter, worker.get("wants") or [worker]))


def _filter(wanted: dict[str, Any]) -> str:
    parts = [", ".join(wanted[name]) for name in ("types", "agents") if wanted.get(name)]
    return " of ".join(parts)

"""`rota namespaces`: the namespaces of a server, and how they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rota.cli.output import json_option, print_json, print_table
from rota.cli.server_options import with_client

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient


@click.command("namespaces")
@json_option
@with_client
def namespaces_command(*, as_json: bool, client: JsonClient) -> None:
    """List the namespaces of the server and their states.

    With --namespace only that one; with a token that is bound to one only that.

    \b
    Example:
      rota namespaces
    """
    answer = client.namespaces()
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            row["name"],
            row["state"],
            row.get("waiting", "-"),
            row.get("inflight", "-"),
            row["durableSeq"],
            row.get("reason", ""),
        )
        for row in answer["namespaces"]
    ]
    print_table(("namespace", "state", "waiting", "in flight", "events", "reason"), rows)

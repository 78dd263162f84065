"""`rota agents`: who has tasks, waiting or in flight, and who is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.server_options import with_client

if TYPE_CHECKING:
    from rota.client.client import RotaClient

PAGE_ROWS_MAX = 1000
COLUMNS = ("agent", "waiting", "in flight", "paused")


@click.command("agents")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ROWS_MAX), default=50, show_default=True, help="Rows."
)
@click.option("--cursor", help="Go on where the page before ended.")
@click.option("--all", "whole", is_flag=True, help="Every page, not just one.")
@json_option
@with_client
def agents_command(
    *, limit: int, cursor: str | None, whole: bool, as_json: bool, client: RotaClient
) -> None:
    """List the agents, with what each has waiting and in flight.

    \b
    Examples:
      rota agents
      rota agents --all --json
    """
    agents: list[dict[str, Any]] = []
    while True:
        page = client.agents(cursor=cursor, limit=PAGE_ROWS_MAX if whole else limit)
        agents += page["agents"]
        cursor = page.get("nextCursor")
        if cursor is None or not whole:
            break
    if as_json:
        answer = {"agents": agents, "count": len(agents)}
        print_json({**answer, "nextCursor": cursor} if cursor else answer)
        return
    shown = agents if whole else agents[:limit]
    rows = [(a["agentId"], a["waiting"], a["inflight"], _paused(a)) for a in shown]
    print_table(COLUMNS, rows, cut=True)
    if cursor:
        note(f"there are more: add --cursor {cursor}, or --all")
    elif len(shown) < len(agents):
        note(f"and {len(agents) - len(shown)} more: add --all")


def _paused(agent: dict[str, Any]) -> str:
    if not agent["paused"]:
        return ""
    return f"yes: {agent['pauseReason']}" if agent.get("pauseReason") else "yes"

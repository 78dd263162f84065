"""`rota agents`: who has tasks, waiting or in flight, and who is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from rota.cli.output import json_option, note, print_table
from rota.cli.pages import with_pages
from rota.cli.server_options import with_client
from rota.client.fields import AgentState

if TYPE_CHECKING:
    from rota.cli.pages import Wish
    from rota.client.sync_client import JsonClient

COLUMNS = ("agent", "waiting", "in flight", "paused")


@click.command("agents")
@click.option("--state", type=click.Choice(get_args(AgentState)), help="Only in this state.")
@with_pages
@json_option
@with_client
def agents_command(
    *, state: AgentState | None, wish: Wish, as_json: bool, client: JsonClient
) -> None:
    """List the agents, with what each has waiting and in flight.

    \b
    Examples:
      rota agents
      rota agents --state waiting
      rota agents --all --json
    """
    page = wish.read("agents", client.agents, state=state)
    if as_json:
        page.print_json()
        return
    shown = page.rows if wish.whole else page.rows[: wish.limit]
    rows = [(a["agentId"], a["waiting"], a["inflight"], _paused(a)) for a in shown]
    print_table(COLUMNS, rows, cut=True)
    page.note_more()
    if not page.cursor and len(shown) < len(page.rows):
        note(f"and {len(page.rows) - len(shown)} more: add --all")


def _paused(agent: dict[str, Any]) -> str:
    if not agent["paused"]:
        return ""
    return f"yes: {agent['pauseReason']}" if agent.get("pauseReason") else "yes"

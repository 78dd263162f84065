"""`rota dead list | revive`: the tasks that failed for good, and new lives for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.server_options import with_client
from rota.cli.suggestions import SuggestingGroup
from rota.errors import InvalidRequest
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient


@click.group("dead", cls=SuggestingGroup)
def dead_command() -> None:
    """Look at the tasks that failed for good, and give them new lives.

    \b
    Examples:
      rota dead list --agent ann
      rota dead revive tsk_1a2B3c4D --params '{"ms": 5}' --dependents
      rota dead revive --type embed
    """


@dead_command.command("list")
@click.option("--agent", "agent", help="Only of this agent.")
@click.option("--type", "action", help="Only of this type.")
@click.option("--workflow", "workflow_id", help="Only of this workflow.")
@click.option("--code", help="Only with this code.")
@click.option("--q", "q", help="Only with these words in the error.")
@click.option("--limit", type=click.IntRange(1, 1000), help="So many at most.")
@click.option("--cursor", help="Go on from the last page.")
@json_option
@with_client
def list_command(*, as_json: bool, client: JsonClient, **query: Any) -> None:
    """List dead tasks, newest failure first.

    \b
    Example:
      rota dead list --agent ann --limit 20
    """
    page = client.dead(**query)
    if as_json:
        print_json(page)
        return
    rows = [
        (d["taskId"], d["agentId"], d["type"], d["attempts"], d["failedAt"], d["error"]["message"])
        for d in page["dead"]
    ]
    print_table(("task", "agent", "type", "attempts", "failed at", "error"), rows, cut=True)
    if "nextCursor" in page:
        note(f"there are more: rota dead list --cursor {page['nextCursor']}")


@dead_command.command("revive")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--params", help="Go on with these, a JSON object (with ID).")
@click.option("--dependents", is_flag=True, help="Also those that its failure cancelled.")
@click.option("--agent", "agent", help="All of this agent.")
@click.option("--type", "action", help="All of this type.")
@click.option("--workflow", "workflow_id", help="All of this workflow.")
@click.option("--code", help="All with this code.")
@click.option("--all", "all_", is_flag=True, help="All that are dead.")
@click.option("--limit", type=click.IntRange(1, 1000), help="So many at most.")
@json_option
@with_client
def revive_command(
    task_id: str | None,
    *,
    params: str | None,
    dependents: bool,
    all_: bool,
    limit: int | None,
    as_json: bool,
    client: JsonClient,
    **filters: str | None,
) -> None:
    """Give a dead task a new life, or many by filter.

    \b
    Examples:
      rota dead revive tsk_1a2B3c4D
      rota dead revive tsk_1a2B3c4D --params '{"ms": 5}' --dependents
      rota dead revive --agent ann --limit 50
    """
    if task_id is not None:
        answer = client.revive(task_id, params=_object(params), dependents=dependents or None)
        said = f"{clean(answer['taskId'])} {clean(answer['state'])}"
        if answer.get("dependents"):
            said += f", with {len(answer['dependents'])} dependents"
    else:
        if params is not None:
            msg = "--params goes with the ID of one task"
            raise InvalidRequest(msg, hint="rota dead revive ID --params '{...}'")
        if not all_ and not any(filters.values()):
            hint = "give an ID, --agent, --type, --workflow or --code; or --all"
            raise InvalidRequest("which are meant?", hint=hint)
        answer = client.revive_many(**filters, limit=limit, dependents=dependents, everything=all_)
        said = f"{answer['count']} revived, {len(answer['failed'])} not"
        for each in answer["failed"]:
            note(f"{each['taskId']}: {each['error']}")
        if answer["more"]:
            note("there may be more: the same again")
    if as_json:
        print_json(answer)
    else:
        click.echo(said)


def _object(text: str | None) -> dict[str, Any] | None:
    """Read params. Raises InvalidRequest."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = "--params must be a JSON object"
        raise InvalidRequest(msg, hint="write it like --params '{\"ms\": 5}'")
    return found

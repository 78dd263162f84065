"""`rota workflow submit | list | get | cancel | pause | resume | close`: undertakings of tasks."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.server_options import with_client
from rota.cli.suggestions import SuggestingGroup
from rota.cli.task_tables import shown
from rota.domain.workflow import STATES
from rota.errors import InvalidRequest
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.fields import FlowControl
    from rota.client.sync_client import JsonClient

TASKS_SHOWN = 50
EXAMPLE = '{"name": "n", "agentId": "me", "tasks": [{"action": "echo"}]}'
_HIDDEN = ("counts", "tasks", "edges")


@click.group("workflow", cls=SuggestingGroup)
def workflow_command() -> None:
    """Submit tasks as one undertaking, look at it, steer it.

    \b
    Examples:
      rota workflow submit flow.json
      rota workflow get wfl_1a2B3c4D
      rota workflow pause wfl_1a2B3c4D
    """


@workflow_command.command("submit")
@click.argument("file", type=click.File(encoding="utf-8"))
@json_option
@with_client
def submit_command(file: IO[str], *, as_json: bool, client: JsonClient) -> None:
    """Submit the workflow in FILE, whole or not at all.

    FILE (- for standard input) is the body of POST /v1/workflows: a JSON object with `tasks` and
    name, open, failure, onFailure, escalate, callbackUrl or idempotencyKey.

    \b
    Example:
      rota workflow submit flow.json
    """
    try:
        body = json.load(file)
    except (ValueError, RecursionError) as error:
        msg = f"{file.name} is not JSON: {error}"
        raise InvalidRequest(msg, hint=f"write it like {EXAMPLE}") from error
    if not isinstance(body, dict):
        msg = f"{file.name} must be a JSON object"
        raise InvalidRequest(msg, hint=f"write it like {EXAMPLE}")
    answer = client.ask("POST", "/v1/workflows", body=body)
    if as_json:
        print_json(answer)
    else:
        click.echo(clean(answer["workflowId"]))


@workflow_command.command("list")
@click.option(
    "--state",
    shell_complete=lambda _, __, begun: [each for each in STATES if each.startswith(begun)],
    help="Only in these states, separated by commas.",
)
@click.option("--name", help="Only of this name.")
@click.option("--limit", type=click.IntRange(1, 1000), help="So many at most.")
@click.option("--cursor", help="Go on from the last page.")
@json_option
@with_client
def list_command(*, as_json: bool, client: JsonClient, **query: Any) -> None:
    """List workflows, newest first.

    \b
    Example:
      rota workflow list --state running,paused
    """
    page = client.workflows(**query)
    if as_json:
        print_json(page)
        return
    rows = [
        (w["workflowId"], w.get("name", ""), w["state"], f"{w['progress']:.0%}", w["total"])
        for w in page["workflows"]
    ]
    print_table(("workflow", "name", "state", "progress", "tasks"), rows)
    if "nextCursor" in page:
        note(f"there are more: rota workflow list --cursor {page['nextCursor']}")


@workflow_command.command("get")
@click.argument("workflow_id", metavar="ID")
@json_option
@with_client
def get_command(workflow_id: str, *, as_json: bool, client: JsonClient) -> None:
    """Show a workflow: how far it has come, and the states of its tasks.

    \b
    Example:
      rota workflow get wfl_1a2B3c4D
    """
    flow = client.get_workflow(workflow_id)
    if as_json:
        print_json(flow)
        return
    fields = {name: value for name, value in flow.items() if name not in _HIDDEN}
    fields["progress"] = f"{flow['progress']:.0%}"
    counts = {state: count for state, count in flow["counts"].items() if count}
    rows = [*fields.items(), *counts.items()]
    print_table(("field", "value"), [(name, shown(value)) for name, value in rows])
    click.echo()
    tasks = flow["tasks"]
    columns = ("task", "agent", "action", "state")
    names = ("taskId", "agentId", "action", "state")
    print_table(columns, [[t[name] for name in names] for t in tasks[:TASKS_SHOWN]])
    if len(tasks) > TASKS_SHOWN:
        note(f"there are {len(tasks) - TASKS_SHOWN} more: rota workflow get {workflow_id} --json")


def _steering(how: FlowControl, says: str) -> None:
    example = f"\b\nExample:\n  rota workflow {how} wfl_1a2B3c4D"

    @workflow_command.command(how, help=f"{says}\n\n{example}")
    @click.argument("workflow_id", metavar="ID")
    @click.option("--reason", default="", help="Why; kept in the log.")
    @json_option
    @with_client
    def steer(workflow_id: str, *, reason: str, as_json: bool, client: JsonClient) -> None:
        answer = client.steer_workflow(workflow_id, how, reason)
        if as_json:
            print_json(answer)
        else:
            click.echo(f"{clean(answer['workflowId'])} {clean(answer['state'])}")


_steering("cancel", "Cancel a workflow and whatever has not ended of it.")
_steering("pause", "Dispatch nothing more of a workflow.")
_steering("resume", "Dispatch the tasks of a workflow again.")
_steering("close", "Let an open workflow end with the last of its tasks.")

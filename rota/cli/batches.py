"""`rota batch submit | get | cancel`: tasks that go in together, and how far they have come."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, print_table, progress
from rota.cli.server_options import ended_or_not, found_later, with_client
from rota.cli.suggestions import SuggestingGroup
from rota.cli.task_tables import shown
from rota.cli.values import wait_option
from rota.errors import InvalidRequest
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient

TASKS_SHOWN = 50
EXAMPLE = '{"agentId": "me", "tasks": [{"action": "echo"}]}'


@click.group("batch", cls=SuggestingGroup)
def batch_command() -> None:
    """Submit tasks together, look at them, cancel them.

    \b
    Examples:
      rota batch submit tasks.json --wait
      rota batch get bat_1a2B3c4D
      rota batch cancel bat_1a2B3c4D
    """


@batch_command.command("submit")
@click.argument("file", type=click.File(encoding="utf-8"))
@wait_option
@json_option
@with_client
def submit_command(
    file: IO[str], *, wait_s: float | None, as_json: bool, client: JsonClient
) -> None:
    """Submit the batch in FILE, whole or not at all.

    FILE (- for standard input) is the body of POST /v1/batches: a JSON object with `tasks` and, for
    all of them, agentId, parallelism, callbackUrl or idempotencyKey. An item may have a `ref`, and
    others wait for it by "dependsOn": ["ref:NAME"] or its index.

    \b
    Examples:
      rota batch submit tasks.json
      echo '{"agentId": "me", "tasks": [{"action": "echo"}]}' | rota batch submit - --wait
    """
    answer = client.ask("POST", "/v1/batches", body=_read(file))
    if answer.get("idempotent"):
        note("the idempotency key stands for this batch already")
    if wait_s is not None:
        _see_through(client, answer["batchId"], wait_s, as_json=as_json)
    elif as_json:
        print_json(answer)
    else:
        click.echo(clean(answer["batchId"]))


@batch_command.command("get")
@click.argument("batch_id", metavar="ID")
@wait_option
@json_option
@with_client
def get_command(batch_id: str, *, wait_s: float | None, as_json: bool, client: JsonClient) -> None:
    """Show a batch: how far it has come, and the states of its tasks.

    \b
    Examples:
      rota batch get bat_1a2B3c4D
      rota batch get bat_1a2B3c4D --wait 300
    """
    if wait_s is not None:
        _see_through(client, batch_id, wait_s, as_json=as_json)
    else:
        show_batch(client.get_batch(batch_id), as_json=as_json)


@batch_command.command("cancel")
@click.argument("batch_id", metavar="ID")
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def cancel_command(batch_id: str, *, reason: str, as_json: bool, client: JsonClient) -> None:
    """Cancel the tasks of a batch that have not ended.

    \b
    Example:
      rota batch cancel bat_1a2B3c4D --reason "no longer needed"
    """
    answer = client.cancel_batch(batch_id, reason)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer['batchId'])} {answer['cancelled']} cancelled")


def _read(file: IO[str]) -> dict[str, Any]:
    """Read a batch. Raises InvalidRequest."""
    hint = f"write it like {EXAMPLE}"
    try:
        body = json.load(file)
    except (ValueError, RecursionError) as error:
        msg = f"{file.name} is not JSON: {error}"
        raise InvalidRequest(msg, hint=hint) from error
    if not isinstance(body, dict) or not isinstance(body.get("tasks"), list):
        msg = f"{file.name} must be a JSON object with a list of `tasks`"
        raise InvalidRequest(msg, hint=hint)
    return body


def _see_through(client: JsonClient, batch_id: str, wait_s: float, *, as_json: bool) -> None:
    """Wait for the end of a batch; exit 0 only if all of it succeeded."""
    later = f"rota batch get {batch_id}"
    with found_later(later), progress(f"batch {batch_id}") as report:
        batch = ended_or_not(lambda: client.wait_batch(batch_id, wait_s, on_progress=report))
    show_batch(batch, as_json=as_json)
    if batch["state"] != "finished":
        note(f"still {batch['state']} after {wait_s:g} s; later: {later}")
    elif batch["counts"].get("failed"):
        note(f"some failed: rota list --batch {batch_id} --state failed")
    if batch["counts"].get("succeeded", 0) != batch["total"]:
        click.get_current_context().exit(1)


def show_batch(batch: dict[str, Any], *, as_json: bool) -> None:
    """Print a batch: its fields, its counts, and the first of its tasks."""
    if as_json:
        print_json(batch)
        return
    fields = {name: value for name, value in batch.items() if name not in ("counts", "tasks")}
    fields["progress"] = f"{batch['progress']:.0%}"
    counts = {state: count for state, count in batch["counts"].items() if count}
    rows = [*fields.items(), *counts.items()]
    print_table(("field", "value"), [(name, shown(value)) for name, value in rows])
    click.echo()
    tasks = batch["tasks"]
    print_table(("task", "state"), [(t["taskId"], t["state"]) for t in tasks[:TASKS_SHOWN]])
    if len(tasks) > TASKS_SHOWN:
        left = len(tasks) - TASKS_SHOWN
        note(f"there are {left} more: rota list --all --batch {batch['batchId']}")

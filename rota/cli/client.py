"""`rota get | list`: one request each to a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note
from rota.cli.pages import with_pages
from rota.cli.server_options import ended_or_not, found_later, with_client
from rota.cli.task_tables import print_tasks, show_task
from rota.cli.values import wait_option
from rota.domain.task import TaskState

if TYPE_CHECKING:
    from rota.cli.pages import Wish
    from rota.client.sync_client import JsonClient


@click.command("get")
@click.argument("task_id", metavar="ID")
@wait_option
@click.option("--at", metavar="SEQ|TIME", help="Show it as it was after a record, or at a moment.")
@json_option
@with_client
def get_command(
    task_id: str, *, wait_s: float | None, at: str | None, as_json: bool, client: JsonClient
) -> None:
    """Show one task; with --wait once it has ended, with --at as it was.

    \b
    Examples:
      rota get tsk_1a2B3c4D
      rota get tsk_1a2B3c4D --wait 30s
      rota get tsk_1a2B3c4D --at 2026-03-08T12:05:00Z
    """
    if wait_s is not None and at is not None:
        raise click.UsageError("give either --wait or --at")
    if wait_s is None:
        show_task(client.get(task_id, at=at), as_json=as_json)
    else:
        show_end(client, task_id, wait_s, as_json=as_json)


def show_end(client: JsonClient, task_id: str, wait_s: float, *, as_json: bool) -> None:
    """Wait for a task and show it; anything but a success is exit code 1."""
    with found_later(f"rota get {task_id}"):
        task: dict[str, Any] = ended_or_not(lambda: client.wait(task_id, wait_s))
    show_task(task, as_json=as_json)
    if "completedAt" not in task:
        note(f"still {task['state']} after {wait_s:g} s; later: rota get {task['taskId']}")
    if task["state"] != "succeeded":
        click.get_current_context().exit(1)


@click.command("list")
@click.option("--agent", help="Only this agent's.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in TaskState]),
    help="Only in this state; may be repeated.",
)
@click.option("--action", "--type", "action", help="Only of this action.")
@click.option("--batch", help="Only of this batch.")
@with_pages
@json_option
@with_client
def list_command(
    *,
    agent: str | None,
    states: tuple[str, ...],
    action: str | None,
    batch: str | None,
    wish: Wish,
    as_json: bool,
    client: JsonClient,
) -> None:
    """List tasks, newest first.

    Those that have not ended, and those that ended within the server's retention. With --state
    failed alone, all that ever failed and were not retried, from the log; other older ones are
    found by their id (rota get, rota events).

    \b
    Examples:
      rota list --agent me --state ready --state running
      rota list --batch bat_1a2B3c4D --state failed
    """
    state = ",".join(states)
    page = wish.read("tasks", client.tasks, agent=agent, state=state, action=action, batch_id=batch)
    if as_json:
        page.print_json()
        return
    print_tasks(page.rows)
    page.note_more()

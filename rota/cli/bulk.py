"""`rota cancel | retry | reprioritise`: one task by its id, or many by a filter.

Before many are changed somebody confirms how many, and no more than that are: they are counted
first, and then changed a portion at a time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, progress
from rota.cli.server_options import with_client
from rota.cli.values import Duration, Priority
from rota.errors import InvalidRequest
from rota.logs import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client import fields
    from rota.client.sync_client import JsonClient

PORTION_TASKS = 5000
"""So many are changed by one request; then the progress is shown."""
LIVE = ("blocked", "scheduled", "ready", "assigned", "running")
DONE = {"cancel": "cancelled", "retry": "retried", "reprioritise": "reprioritised"}


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose tasks, and what to do about them."""
    for option in reversed((
        click.option("--agent", help="All of this agent."),
        click.option("--type", "--action", "action", help="All of this type."),
        click.option("--batch", "batch_id", help="All of this batch."),
        click.option("--workflow", "workflow_id", help="All of this workflow."),
        click.option("--key", help="All with this key."),
        click.option(
            "--older-than", "older_ms", type=Duration(), help="Submitted longer ago: 30m, 2h, 1d."
        ),
        click.option("--all", "everything", is_flag=True, help="All that there are."),
        click.option("--dry-run", is_flag=True, help="Only say how many."),
        click.option("--yes", is_flag=True, help="Do not ask."),
    )):  # fmt: skip
        command = option(command)
    return command


_state_option = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(LIVE),
    help="Only in this state; may be repeated.",
)


@click.command("cancel")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--reason", default="", help="Why; kept in the log.")
@_state_option
@_filters
@json_option
@with_client
def cancel_command(
    task_id: str | None,
    *,
    reason: str,
    states: tuple[str, ...],
    as_json: bool,
    client: JsonClient,
    **options: Any,
) -> None:
    """Cancel a task that has not ended, or many by filter.

    \b
    Examples:
      rota cancel tsk_1a2B3c4D --reason "no longer needed"
      rota cancel --agent ann --type embed --older-than 2h --dry-run
      rota cancel --batch bat_1a2B3c4D --state ready --yes
    """
    chosen = _chosen(task_id, {**options, "state": list(states) or None})
    if task_id is not None:
        _say(client.cancel(task_id, reason), as_json=as_json)
    else:
        many = Many("cancel", lambda **more: client.cancel_many(reason=reason, **chosen, **more))
        many.run(options, as_json=as_json)


@click.command("retry")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--state", type=click.Choice(["failed"]), help="There is no other.")
@click.option("--code", help="Only with this code.")
@_filters
@json_option
@with_client
def retry_command(
    task_id: str | None,
    *,
    state: str | None,
    code: str | None,
    as_json: bool,
    client: JsonClient,
    **options: Any,
) -> None:
    """Give a failed task a new life with all its attempts, or many by filter.

    \b
    Examples:
      rota retry tsk_1a2B3c4D
      rota retry --agent ann --code timeout
    """
    if state is not None and task_id is None:
        options["everything"] = not any(_said({**options, "code": code}))
    chosen = _chosen(task_id, {**options, "code": code})
    if task_id is not None:
        _say(client.retry(task_id), as_json=as_json)
    else:
        many = Many("retry", lambda **more: client.retry_many(**chosen, **more))
        many.run(options, as_json=as_json)


@click.command("reprioritise")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option(
    "--priority",
    type=Priority(),
    required=True,
    help="Lower is sooner; or critical, high, normal, low.",
)
@_state_option
@_filters
@json_option
@with_client
def reprioritise_command(
    task_id: str | None,
    *,
    priority: fields.Priority,
    states: tuple[str, ...],
    as_json: bool,
    client: JsonClient,
    **options: Any,
) -> None:
    """Give a task that has not ended another priority, or many by filter.

    \b
    Examples:
      rota reprioritise tsk_1a2B3c4D --priority high
      rota reprioritise --agent ann --type embed --priority low
    """
    chosen = _chosen(task_id, {**options, "state": list(states) or None})
    if task_id is not None:
        answer = client.reprioritise(task_id, priority)
        if as_json:
            print_json(answer)
        else:
            click.echo(
                f"{clean(answer['taskId'])} {answer['state']}, priority {answer['priority']}"
            )
    else:
        many = Many(
            "reprioritise", lambda **more: client.reprioritise_many(priority, **chosen, **more)
        )
        many.run(options, as_json=as_json)


def _said(options: dict[str, Any]) -> list[str]:
    """Name the filters that were given."""
    return [name for name, value in options.items() if value and name not in ("dry_run", "yes")]


def _chosen(task_id: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Give the filters as the client wants them. Raises InvalidRequest if they make no sense."""
    said = _said(options)
    name = click.get_current_context().info_name
    if task_id is not None:
        if said or options["dry_run"]:
            msg = "give either the ID of one task, or filters for many"
            raise InvalidRequest(msg, hint=f"rota {name} {task_id}")
        return {}
    if not said:
        hint = f"rota {name} ID, or filters such as --agent, --type, --older-than 2h; or --all"
        raise InvalidRequest("which tasks are meant?", hint=hint)
    if options["everything"] and len(said) > 1:
        raise InvalidRequest("give either --all or filters", hint=f"rota {name} --all")
    older_ms = options["older_ms"]
    chosen = {key: options[key] for key in said if key != "older_ms"}
    return chosen if older_ms is None else {**chosen, "older_than_s": older_ms / 1000}


class Many:
    """An operation on many tasks: count, ask, do, tell."""

    def __init__(self, how: str, ask: Callable[..., dict[str, Any]]) -> None:
        self._how = how
        self._ask = ask

    def run(self, options: dict[str, Any], *, as_json: bool) -> None:
        """Do it, or with --dry-run only count. Raises InvalidRequest if nobody can be asked."""
        counted = self._ask(dry_run=True)
        count = counted["matched"]
        if options["dry_run"]:
            self._tell(counted, f"{_tasks(count)} would be {DONE[self._how]}", as_json=as_json)
            return
        if count and not options["yes"]:
            self._confirm(count)
        answer = self._do(count)
        self._tell(answer, f"{_tasks(answer['changed'])} {DONE[self._how]}", as_json=as_json)
        for code, number in answer["refused"].items():
            note(f"{_tasks(number)} not: {code}")
        if answer["refused"]:
            click.get_current_context().exit(1)

    def _confirm(self, count: int) -> None:
        if not sys.stdin.isatty():
            msg = f"{_tasks(count)} would be {DONE[self._how]}, and nobody is there to be asked"
            raise InvalidRequest(msg, hint="the same with --yes; or with --dry-run to only count")
        if not click.confirm(f"{self._how.capitalize()} {_tasks(count)}?", err=True):
            note("nothing was done")
            click.get_current_context().exit(1)

    def _do(self, count: int) -> dict[str, Any]:
        """Change so many, a portion at a time; what is refused comes again in the last."""
        answer: dict[str, Any] = {"matched": count, "changed": 0, "refused": {}, "more": False}
        with progress(self._how) as report:
            while (left := count - answer["changed"]) > 0:
                done = self._ask(limit=min(left, PORTION_TASKS))
                answer["changed"] += done["changed"]
                answer |= {"refused": done["refused"], "more": done["more"]}
                if count > PORTION_TASKS:
                    report(answer["changed"], count)
                if not done["more"] or not done["changed"]:
                    break
        return {**answer, "dryRun": False}

    @staticmethod
    def _tell(answer: dict[str, Any], words: str, *, as_json: bool) -> None:
        if as_json:
            print_json(answer)
        else:
            click.echo(words)


def _tasks(count: int) -> str:
    return f"{count:,} task" if count == 1 else f"{count:,} tasks"


def _say(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer['taskId'])} {clean(answer['state'])}")

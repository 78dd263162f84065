"""`rota schedule create | list | get | edit | pause | resume | run | delete | history`."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.pages import with_pages
from rota.cli.server_options import with_client
from rota.cli.suggestions import SuggestingGroup
from rota.cli.task_tables import shown
from rota.cli.values import Duration, Moment, param_options
from rota.client.paths import path_of
from rota.domain.schedule import KINDS, STATES
from rota.errors import InvalidRequest
from rota.logs import clean

if TYPE_CHECKING:
    from rota.cli.pages import Wish
    from rota.client.sync_client import JsonClient

TASK_EXAMPLE = '{"agentId": "me", "action": "backup"}'
FLOW_EXAMPLE = '{"agentId": "me", "tasks": [{"action": "backup"}]}'
_APART = ("upcoming", "task", "workflow", "project")


@click.group("schedule", cls=SuggestingGroup)
def schedule_command() -> None:
    """Have a task, a workflow or a project's run made again and again, by the calendar.

    \b
    Examples:
      rota schedule create nightly "0 3 * * *" --timezone Europe/Berlin --agent me --action backup
      rota schedule get nightly
      rota schedule run nightly
    """


def _body_of(file: IO[str], example: str) -> dict[str, Any]:
    try:
        body = json.load(file)
    except (ValueError, RecursionError) as error:
        msg = f"{file.name} is not JSON: {error}"
        raise InvalidRequest(msg, hint=f"write it like {example}") from error
    if not isinstance(body, dict):
        msg = f"{file.name} must be a JSON object"
        raise InvalidRequest(msg, hint=f"write it like {example}")
    return body


@schedule_command.command("create")
@click.argument("name")
@click.argument("cron")
@click.option("--timezone", help="Such as Europe/Berlin.  [default: UTC]")
@click.option("--agent", help="Whose queue its tasks go to.")
@click.option("--action", help="What its tasks run.")
@param_options
@click.option(
    "--task", "task_file", type=click.File(encoding="utf-8"), help="A body as for POST /v1/tasks."
)
@click.option(
    "--workflow",
    "flow_file",
    type=click.File(encoding="utf-8"),
    help="A body as for POST /v1/workflows.",
)
@click.option("--project", help="The project that it starts a run of.")
@click.option("--loop", is_flag=True, help="Such a run goes on until the list is empty.")
@click.option(
    "--catch-up",
    "catchUp",
    type=click.Choice(["none", "last", "all"]),
    help="What to make up for that was missed.  [default: none]",
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "cancel"]),
    help="What to do when what it made last has not ended.  [default: skip]",
)
@click.option("--jitter", "jitterMs", type=Duration(), help="Fire up to so much later, by chance.")
@click.option("--start-at", "startAt", type=Moment(), help="No moment before: RFC 3339, or +1h.")
@click.option("--end-at", "endAt", type=Moment(), help="No moment after: RFC 3339, or +1h.")
@click.option("--paused", is_flag=True, help="Let no moment come until it is resumed.")
@json_option
@with_client
def create_command(
    name: str, cron: str, *, as_json: bool, client: JsonClient, **options: Any
) -> None:
    """Make the schedule NAME, which fires whenever CRON comes.

    CRON has five fields (minute, hour, day of month, month, day of week), or is @hourly, @daily,
    @weekly, @monthly or @yearly. It makes the task of --agent and --action, or what is in the file
    of --task or --workflow (- for standard input), or starts a run of --project.

    \b
    Examples:
      rota schedule create nightly "0 3 * * *" --timezone Europe/Berlin --agent me --action backup
      rota schedule create hourly @hourly --workflow flow.json --overlap queue
      rota schedule create chores "30 9 * * 1-5" --project chores --loop
    """
    fields = _target(options) | {n: value for n, value in options.items() if value is not None}
    answer = client.ask("POST", "/v1/schedules", body={"name": name, "cron": cron, **fields})
    if as_json:
        print_json(answer)
        return
    if answer.get("known"):
        note("it was there already, just so")
    _echo(answer)


def _target(options: dict[str, Any]) -> dict[str, Any]:
    """Take what it is to make out of the options. Raises UsageError unless that is one thing."""
    agent, action, params = (options.pop(each) for each in ("agent", "action", "params"))
    task_file, flow_file = options.pop("task_file"), options.pop("flow_file")
    project, loop = options.pop("project"), options.pop("loop")
    given = [
        bool(agent or action or params),
        *(x is not None for x in (task_file, flow_file, project)),
    ]
    if sum(given) != 1:
        msg = (
            "say what it makes: --agent and --action, --task FILE, --workflow FILE or --project ID"
        )
        raise click.UsageError(msg)
    if loop and project is None:
        msg = "--loop goes with --project"
        raise click.UsageError(msg)
    if project is not None:
        return {"project": {"id": project, "mode": "loop" if loop else "single"}}
    if task_file is not None:
        return {"task": _body_of(task_file, TASK_EXAMPLE)}
    if flow_file is not None:
        return {"workflow": _body_of(flow_file, FLOW_EXAMPLE)}
    if agent is None or action is None:
        msg = "--agent and --action go together"
        raise click.UsageError(msg)
    more = {"params": params} if params else {}
    return {"task": {"agentId": agent, "action": action, **more}}


def _echo(schedule: dict[str, Any]) -> None:
    ahead = f", next {schedule['nextAt']}" if "nextAt" in schedule else ""
    click.echo(f"{clean(schedule['name'])} {clean(schedule['state'])}{clean(ahead)}")


@schedule_command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only in this state.")
@click.option("--agent", help="Only those that make something for this agent.")
@click.option("--makes", type=click.Choice(KINDS), help="Only those that make this.")
@with_pages
@json_option
@with_client
def list_command(*, wish: Wish, as_json: bool, client: JsonClient, **filters: Any) -> None:
    """List schedules, by name.

    \b
    Example:
      rota schedule list --state active
    """
    page = wish.read("schedules", client.schedules, **filters)
    if as_json:
        page.print_json()
        return
    columns = ("name", "cron", "timezone", "state", "nextAt", "fired", "lastOutcome")
    print_table(columns, [[shown(s.get(each, "")) for each in columns] for s in page.rows])
    page.note_more()


@schedule_command.command("get")
@click.argument("name")
@json_option
@with_client
def get_command(name: str, *, as_json: bool, client: JsonClient) -> None:
    """Show a schedule, what it makes and its next five moments.

    \b
    Example:
      rota schedule get nightly
    """
    schedule = client.get_schedule(name)
    if as_json:
        print_json(schedule)
        return
    rows = [(each, shown(value)) for each, value in schedule.items() if each not in _APART]
    made = schedule["makes"]
    rows.append((made, json.dumps(schedule[made])))
    rows += [("upcoming", moment) for moment in schedule["upcoming"]]
    print_table(("field", "value"), rows)


@schedule_command.command("edit")
@click.argument("name")
@click.option("--cron", help="When it fires.")
@click.option("--timezone", help="Such as Europe/Berlin.")
@click.option(
    "--catch-up",
    "catchUp",
    type=click.Choice(["none", "last", "all"]),
    help="What to make up for that was missed.",
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "cancel"]),
    help="What to do when what it made last has not ended.",
)
@json_option
@with_client
def edit_command(name: str, *, as_json: bool, client: JsonClient, **options: Any) -> None:
    """Change when a schedule fires; what is not said stays.

    \b
    Example:
      rota schedule edit nightly --cron "0 4 * * *" --catch-up last
    """
    fields = {each: value for each, value in options.items() if value is not None}
    if not fields:
        msg = "say what is to be changed: --cron, --timezone, --catch-up or --overlap"
        raise click.UsageError(msg)
    _say(client.ask("PATCH", path_of("schedules", name), body=fields), as_json=as_json)


@schedule_command.command("pause")
@click.argument("name")
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def pause_command(name: str, *, reason: str, as_json: bool, client: JsonClient) -> None:
    """Let no moment of a schedule come.

    \b
    Example:
      rota schedule pause nightly --reason "the disk is being moved"
    """
    _say(client.pause_schedule(name, reason), as_json=as_json)


@schedule_command.command("resume")
@click.argument("name")
@json_option
@with_client
def resume_command(name: str, *, as_json: bool, client: JsonClient) -> None:
    """Let the moments of a schedule come again, from the next one on.

    \b
    Example:
      rota schedule resume nightly
    """
    _say(client.resume_schedule(name), as_json=as_json)


def _say(schedule: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(schedule)
    else:
        _echo(schedule)


@schedule_command.command("run")
@click.argument("name")
@json_option
@with_client
def run_command(name: str, *, as_json: bool, client: JsonClient) -> None:
    """Have a schedule fire now, beside the calendar.

    \b
    Example:
      rota schedule run nightly
    """
    fired = client.run_schedule(name)
    if as_json:
        print_json(fired)
        return
    said = fired.get("id") or fired.get("reason", "")
    click.echo(f"{clean(fired['outcome'])} {clean(said)}".rstrip())


@schedule_command.command("delete")
@click.argument("name")
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def delete_command(name: str, *, reason: str, as_json: bool, client: JsonClient) -> None:
    """Delete a schedule; what it made goes on.

    \b
    Example:
      rota schedule delete nightly
    """
    answer = client.delete_schedule(name, reason)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer['name'])} deleted")


@schedule_command.command("history")
@click.argument("name")
@with_pages
@json_option
@with_client
def history_command(name: str, *, wish: Wish, as_json: bool, client: JsonClient) -> None:
    """Show what became of a schedule's moments, oldest first.

    \b
    Example:
      rota schedule history nightly
    """

    def ask(**query: Any) -> dict[str, Any]:
        page: dict[str, Any] = client.schedule_history(name, **query)
        return page

    page = wish.read("firings", ask)
    if as_json:
        page.print_json()
        return
    rows = [
        (f["moment"], f["outcome"], shown(f.get("id") or f.get("missed") or f.get("reason", "")))
        for f in page.rows
    ]
    print_table(("moment", "outcome", "made"), rows)
    page.note_more()

"""`rota project add | tasks | move | remove | run | stop | force-stop | status | list | ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from rota.cli.output import json_option, note, note_wait, print_json, print_table
from rota.cli.server_options import ended_or_not, found_later, with_client
from rota.cli.suggestions import SuggestingGroup
from rota.cli.task_tables import shown
from rota.cli.values import Duration, Priority, param_options, wait_option
from rota.client.paths import path_of, said
from rota.client.work_models import RUN_ENDED
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient

NOT_COMPLETED = 1
"""The exit code of a run that was waited for, and has failed or not ended."""
STILL_RUNNING = 1
"""The exit code of a force-stop that left something running."""


@click.group("project", cls=SuggestingGroup)
def project_command() -> None:
    """Keep a list of tasks, and work through it one after the other.

    \b
    Examples:
      rota project add site echo --param n=1
      rota project run site --loop
      rota project status site
    """


@project_command.command("add")
@click.argument("project")
@click.argument("action")
@click.option("--agent", "agentId", help="Whose queue it goes to; the project's name.")
@param_options
@click.option(
    "--priority", type=Priority(), help="Lower is sooner; or critical, high, normal, low."
)
@click.option("--timeout", "timeoutMs", type=Duration(), help="How long one attempt may take.")
@click.option("--before", help="The task that it goes before; else the end.")
@click.option("--idempotency-key", "idempotencyKey", help="A repeat adds nothing.")
@json_option
@with_client
def add_command(
    project: str,
    action: str,
    *,
    params: dict[str, Any] | None,
    as_json: bool,
    client: JsonClient,
    **fields: Any,
) -> None:
    """Put a task on the list of PROJECT, which begins with its first one.

    \b
    Example:
      rota project add site sleep --param ms=200
    """
    body = said({"action": action, "params": params, **fields})
    answer = client.ask("POST", path_of("projects", project, "tasks"), body=body)
    if as_json:
        print_json(answer)
    else:
        click.echo(clean(answer["taskId"]))
    note_wait(answer, action)


@project_command.command("create")
@click.argument("project")
@json_option
@with_client
def create_command(project: str, *, as_json: bool, client: JsonClient) -> None:
    """Make PROJECT, with nothing on its list; one that is there stays as it is.

    \b
    Example:
      rota project create site
    """
    answer = client.create_project(project)
    if as_json:
        print_json(answer)
    else:
        click.echo(clean(answer["projectId"]))


@project_command.command("tasks")
@click.argument("project")
@click.option("--limit", type=click.IntRange(1, 1000), help="So many at most.")
@click.option("--cursor", help="Go on from the last page.")
@json_option
@with_client
def tasks_command(project: str, *, as_json: bool, client: JsonClient, **query: Any) -> None:
    """Show the list of PROJECT: what was done lately, what runs, what is to come.

    \b
    Example:
      rota project tasks site
    """
    page = client.project_tasks(project, **query)
    if as_json:
        print_json(page)
        return
    current = [page["current"]] if page["current"] is not None else []
    rows = [
        (
            shown(each["position"]) if each["position"] is not None else "",
            each["taskId"],
            each["state"],
            each.get("action", ""),
        )
        for each in (*page["done"], *current, *page["tasks"])
    ]
    print_table(("place", "task", "state", "action"), rows)
    if "nextCursor" in page:
        note(f"there are more: rota project tasks {project} --cursor {page['nextCursor']}")


@project_command.command("move")
@click.argument("project")
@click.argument("task_id", metavar="TASK")
@click.option("--before", help="The task that it goes before.")
@click.option("--position", type=click.IntRange(0), help="Its place; 0 is first.")
@json_option
@with_client
def move_command(
    project: str,
    task_id: str,
    *,
    before: str | None,
    position: int | None,
    as_json: bool,
    client: JsonClient,
) -> None:
    """Give a task that has not started another place; the end, if none is named.

    \b
    Example:
      rota project move site tsk_1a2B3c4D --position 0
    """
    place: dict[str, Any] = {"position": position} if position is not None else {}
    if before is not None or not place:
        place["before"] = before
    answer = client.edit_project_task(project, task_id, **place)
    _show(answer, as_json=as_json)


@project_command.command("remove")
@click.argument("project")
@click.argument("task_id", metavar="TASK")
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def remove_command(
    project: str, task_id: str, *, reason: str, as_json: bool, client: JsonClient
) -> None:
    """Take a task off the list of PROJECT that has not started.

    \b
    Example:
      rota project remove site tsk_1a2B3c4D
    """
    _show(client.remove_project_task(project, task_id, reason), as_json=as_json)


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer.get('taskId', answer['projectId']))} {clean(answer['state'])}")


@project_command.command("run")
@click.argument("projects", nargs=-1, required=True)
@click.option("--loop", is_flag=True, help="Go on until the list is empty.")
@click.option("--task", "task_id", help="The one to begin with; of one project.")
@click.option("--reason", default="", help="Why; kept in the log.")
@wait_option
@json_option
@with_client
def run_command(
    projects: tuple[str, ...],
    *,
    loop: bool,
    task_id: str | None,
    reason: str,
    wait_s: float | None,
    as_json: bool,
    client: JsonClient,
) -> None:
    """Start working through the lists of PROJECTS: one task each, or all with --loop.

    \b
    Examples:
      rota project run site --loop --wait 10m
      rota project run site shop
    """
    mode: Literal["single", "loop"] = "loop" if loop else "single"
    if len(projects) > 1:
        if task_id is not None:
            msg = "--task is for one project"
            raise click.UsageError(msg)
        if wait_s is not None:
            msg = "--wait is for one project"
            raise click.UsageError(msg)
        _each(client.steer_projects("run", projects, mode=mode, reason=reason), as_json=as_json)
        return
    answer = client.run_project(projects[0], mode, task_id, reason=reason)
    if wait_s is not None:
        _show_end(client, projects[0], answer["runId"], wait_s, as_json=as_json)
    elif as_json:
        print_json(answer)
    else:
        click.echo(clean(answer["runId"]))


def _show_end(
    client: JsonClient, project: str, run_id: str, wait_s: float, *, as_json: bool
) -> None:
    """Wait for a run and show it; anything but a completed one is exit code 1."""
    with found_later(f"rota project status {project}"):
        run: dict[str, Any] = ended_or_not(lambda: client.wait_run(project, run_id, wait_s))
    if as_json:
        print_json(run)
    else:
        rows = [(name, shown(value)) for name, value in run.items() if value is not None]
        print_table(("field", "value"), rows)
    if run["state"] not in RUN_ENDED:
        note(f"still {run['state']} after {wait_s:g} s; later: rota project status {project}")
    if run["state"] != "completed":
        raise SystemExit(NOT_COMPLETED)


@project_command.command("stop")
@click.argument("projects", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def stop_command(
    projects: tuple[str, ...], *, reason: str, as_json: bool, client: JsonClient
) -> None:
    """Let the running tasks of PROJECTS end, and no others begin.

    \b
    Example:
      rota project stop site
    """
    if len(projects) > 1:
        _each(client.steer_projects("stop", projects, reason=reason), as_json=as_json)
        return
    answer = client.stop_project(projects[0], reason)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(projects[0])} stops")


@project_command.command("force-stop")
@click.argument("projects", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def force_stop_command(
    projects: tuple[str, ...], *, reason: str, as_json: bool, client: JsonClient
) -> None:
    """Cut off whatever runs of PROJECTS; exits with 1 if something is not gone.

    \b
    Example:
      rota project force-stop site --reason "wrong branch"
    """
    if len(projects) > 1:
        _each(client.steer_projects("force-stop", projects, reason=reason), as_json=as_json)
        return
    answer = client.force_stop_project(projects[0], reason)
    if as_json:
        print_json(answer)
    for run in () if as_json else answer["killedRuns"]:
        click.echo(f"{clean(run)} killed")
    for left in () if as_json else answer["stillRunning"]:
        click.echo(f"{clean(left['runId'])} still running: {clean(str(left['taskId']))}")
    for cut in () if as_json else answer.get("unconfirmed", ()):
        click.echo(f"{clean(cut['runId'])} may still be worked on: {clean(str(cut['taskId']))}")
    if not answer["success"]:
        raise SystemExit(STILL_RUNNING)


def _each(answer: dict[str, Any], *, as_json: bool) -> None:
    """Show what became of several projects; exit with 1 unless all went well."""
    if as_json:
        print_json(answer)
    else:
        rows = [
            (
                each["projectId"],
                each.get("runId", "ok") if each["success"] else each.get("error", "still running"),
            )
            for each in answer["projects"]
        ]
        print_table(("project", "answer"), rows)
    if not answer["success"]:
        raise SystemExit(STILL_RUNNING)


@project_command.command("status")
@click.argument("project")
@json_option
@with_client
def status_command(project: str, *, as_json: bool, client: JsonClient) -> None:
    """Show what PROJECT is doing, or how its last run ended.

    \b
    Example:
      rota project status site
    """
    status = client.project_status(project)
    if as_json:
        print_json(status)
        return
    rows = [(name, shown(value)) for name, value in status.items() if value is not None]
    print_table(("field", "value"), rows)


@project_command.command("get")
@click.argument("project")
@json_option
@with_client
def get_command(project: str, *, as_json: bool, client: JsonClient) -> None:
    """Show PROJECT with its figures and its last runs.

    \b
    Example:
      rota project get site
    """
    found = client.get_project(project)
    if as_json:
        print_json(found)
        return
    print_table(("field", "value"), [(name, shown(v)) for name, v in found["figures"].items()])
    click.echo()
    rows = [
        (run["runId"], run["mode"], run["state"], run["stopReason"] or "", run["completed"])
        for run in found["runs"]
    ]
    print_table(("run", "mode", "state", "ended by", "completed"), rows)


@project_command.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), help="So many at most.")
@click.option("--cursor", help="Go on from the last page.")
@json_option
@with_client
def list_command(*, as_json: bool, client: JsonClient, **query: Any) -> None:
    """List the projects, by name.

    \b
    Example:
      rota project list
    """
    page = client.projects(**query)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            each["projectId"],
            each["status"]["mode"] if each["status"]["isRunning"] else "idle",
            each["status"]["remaining"],
            each["figures"]["starts"],
            each["status"]["stopReason"] or "",
        )
        for each in page["projects"]
    ]
    print_table(("project", "runs", "tasks left", "starts", "last ended by"), rows)
    if "nextCursor" in page:
        note(f"there are more: rota project list --cursor {page['nextCursor']}")


@project_command.command("delete")
@click.argument("project")
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def delete_command(project: str, *, reason: str, as_json: bool, client: JsonClient) -> None:
    """Drop PROJECT and its list; not while it runs.

    \b
    Example:
      rota project delete site
    """
    _show(client.delete_project(project, reason), as_json=as_json)

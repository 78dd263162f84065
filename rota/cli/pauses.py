"""`rota pause | resume`: an agent, a type, or everything; what runs goes on to its end."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json
from rota.cli.server_options import with_client
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient

agent_option = click.option("--agent", help="Only this agent.")
type_option = click.option("--type", "--action", "action", help="Only this type of task.")


@click.command("pause")
@agent_option
@type_option
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def pause_command(
    *, agent: str | None, action: str | None, reason: str, as_json: bool, client: JsonClient
) -> None:
    """Hold back an agent, a type, or everything.

    With neither --agent nor --type nothing at all is dispatched. Submissions are taken as before,
    and what runs already goes on to its end.

    \b
    Examples:
      rota pause --agent crawler-1 --reason "the site is down"
      rota pause --type browser_start
      rota pause
    """
    what = subject(agent, action)
    _say(client.pause(agent=agent, action=action, reason=reason), what, as_json=as_json)
    back = ["--agent", agent] if agent is not None else ["--type", action] if action else []
    note(f"`{shlex.join(['rota', 'resume', *back])}` lets it go on")


@click.command("resume")
@agent_option
@type_option
@json_option
@with_client
def resume_command(
    *, agent: str | None, action: str | None, as_json: bool, client: JsonClient
) -> None:
    """Let an agent, a type, or everything go on.

    What was paused on its own must be resumed on its own; `rota stats` shows what is paused.

    \b
    Examples:
      rota resume --agent crawler-1
      rota resume
    """
    what = subject(agent, action)
    _say(client.resume(agent=agent, action=action), what, as_json=as_json)


def subject(agent: str | None, action: str | None) -> str:
    """Name what is paused or resumed. Raises UsageError."""
    if agent is not None and action is not None:
        msg = "give --agent or --type, or neither for everything; for both, call it twice"
        raise click.UsageError(msg)
    if agent is not None:
        return f"agent {agent}"
    return f"type {action}" if action is not None else "everything"


def _say(answer: dict[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(what)} {'paused' if answer['paused'] else 'resumed'}")

"""`rota limits` and `rota limits set`: how much at once, on a running server.

What is set holds until the server is started again or its file is reloaded; the file is what
lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.server_options import with_client
from rota.cli.settings_help import MEANINGS
from rota.cli.suggestions import SuggestingGroup, meant
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient

FIXED = ("enabled", "strategy", "startPaused")
"""Settings of the scheduler that are no number which may be set while it runs."""
LIMITS = tuple(
    name.removeprefix("scheduler.")
    for name in MEANINGS
    if name.startswith("scheduler.") and name.removeprefix("scheduler.") not in FIXED
)


class Limit(click.ParamType[tuple[str, int]]):
    """`name=number`."""

    name = "name=number"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        name, sign, text = str(value).partition("=")
        if not sign:
            self.fail(f"{value!r} is not NAME=NUMBER, such as maxInflight=40", param, ctx)
        if name not in LIMITS:
            said = meant(name, LIMITS) or f" There are {', '.join(LIMITS)}."
            self.fail(f"there is no limit {name!r}.{said}", param, ctx)
        if not (text.isascii() and text.isdigit()) or int(text) == 0:
            self.fail(f"{name} must be a whole number above 0, not {text!r}", param, ctx)
        return name, int(text)


@click.group("limits", cls=SuggestingGroup, invoke_without_command=True)
@json_option
@with_client
def limits_command(*, as_json: bool, client: JsonClient) -> None:
    """Show the limits in force on the running server, or set them.

    \b
    Examples:
      rota limits
      rota limits set maxInflight=40 workerCount=8
    """
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        for name in ("url", "token"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                msg = f"write --{name} after {ctx.invoked_subcommand}"
                raise click.UsageError(msg)
        return
    scheduler = client.config()["scheduler"]
    values = {name: scheduler[name] for name in LIMITS if name in scheduler}
    if as_json:
        print_json(values)
        return
    rows = [(name, value, MEANINGS[f"scheduler.{name}"]) for name, value in values.items()]
    print_table(("limit", "value", "meaning"), rows, drop=("meaning",), cut=True)


@limits_command.command("set")
@click.argument("limits", metavar="NAME=NUMBER...", type=Limit(), nargs=-1, required=True)
@json_option
@with_client
def set_command(*, limits: tuple[tuple[str, int], ...], as_json: bool, client: JsonClient) -> None:
    """Put other limits in force, at once.

    They hold until the server is started again or its file is reloaded.

    \b
    Example:
      rota limits set maxInflight=40 maxPerAgent=500
    """
    before = client.config()["scheduler"]
    answer = client.ask("POST", "/v1/config/reload", body={"scheduler": dict(limits)})
    after = answer["scheduler"]
    changed = {
        name: {"from": before[name], "to": after[name]}
        for name, _ in limits
        if before[name] != after[name]
    }
    if as_json:
        print_json({"changed": changed})
        return
    for name, _ in limits:
        if name in changed:
            click.echo(f"{name}: {changed[name]['from']} -> {changed[name]['to']}")
        else:
            click.echo(f"{clean(name)}: {after[name]}, as it was")
    if changed:
        note("write it into the server's file to keep it over a restart")

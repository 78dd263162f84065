"""`rota token create | list | revoke`: who may do what, on a server or in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.server_options import with_client
from rota.cli.suggestions import SuggestingGroup
from rota.cli.values import Duration
from rota.client.pages import rows_of
from rota.domain.tokens import ROLES
from rota.logs import clean
from rota.sections import DEFAULT, folder_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.fields import Role
    from rota.client.sync_client import JsonClient

data_dir_option: Callable[..., Any] = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of a server that does not run, in place of --url.",
)


@click.group("token", cls=SuggestingGroup)
def token_command() -> None:
    """Make tokens, list them, revoke them.

    What a token may do is said by its role: submit tasks of some agents, work on them, audit (see
    everything, change nothing), or admin.

    \b
    Examples:
      rota token create --name ops --role admin
      rota token create --name crawler --role submit --agent crawler-1 --expires 90d
      rota token revoke crawler
    """


@token_command.command("create")
@click.option("--name", required=True, help="Whose it is; recorded with whatever it does.")
@click.option("--role", required=True, type=click.Choice(list(ROLES)), help="What it may do.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    help="For submit and work: an agent that it is for, '*' for all; may be repeated.",
)
@click.option("--expires", "expires_ms", type=Duration(), help="For how long, such as 90d.")
@data_dir_option
@json_option
@with_client
def create_command(
    *,
    name: str,
    role: Role,
    agents: tuple[str, ...],
    expires_ms: int | None,
    data_dir: Path | None,
    as_json: bool,
    client: JsonClient,
) -> None:
    """Make a token, and print it; it is not shown again.

    The first token of a server must be an admin's: from then on every request needs one.

    \b
    Examples:
      rota token create --name ops --role admin
      rota token create --name crawler --role submit --agent crawler-1 --expires 90d
      rota token create --name ops --role admin --data-dir /var/lib/rota
    """
    if data_dir is None:
        expires_s = expires_ms / 1000 if expires_ms is not None else None
        made = client.create_token(name, role, agents=agents, expires_s=expires_s)
    else:
        from rota.cli import token_folder  # noqa: PLC0415 - which loads a whole server

        made = token_folder.create(_folder(data_dir), name, role, agents, expires_ms)
    if as_json:
        print_json(made)
        return
    click.echo(made["token"])
    until = f", until {made['expiresAt']}" if "expiresAt" in made else ""
    whose = f" for {', '.join(made['agents'])}" if "agents" in made else ""
    note(f"this is the token of {name} ({role}{whose}{until}): keep it, it is not shown again")


@token_command.command("list")
@data_dir_option
@json_option
@with_client
def list_command(*, data_dir: Path | None, as_json: bool, client: JsonClient) -> None:
    """List the tokens, without their secrets; revoked ones are in `rota events`.

    \b
    Example:
      rota token list
    """
    if data_dir is None:
        rows = list(rows_of("tokens", client.tokens))
    else:
        from rota.cli import token_folder  # noqa: PLC0415 - which loads a whole server

        rows = token_folder.known(_folder(data_dir))["tokens"]
    if as_json:
        print_json({"tokens": rows, "count": len(rows)})
        return
    table = [
        (
            row["name"],
            row["role"],
            ", ".join(row.get("agents", ())),
            _end(row),
            row["createdAt"],
            row["createdBy"],
        )
        for row in rows
    ]
    columns = ("name", "role", "agents", "expires", "created", "by")
    print_table(columns, table, drop=("created", "by"), cut=True)


def _end(row: dict[str, Any]) -> str:
    end = row.get("expiresAt", "never")
    return f"{end} (expired)" if row.get("expired") else str(end)


@token_command.command("revoke")
@click.argument("name")
@data_dir_option
@json_option
@with_client
def revoke_command(name: str, *, data_dir: Path | None, as_json: bool, client: JsonClient) -> None:
    """Revoke a token: at once, also for streams and requests that are under way.

    \b
    Example:
      rota token revoke crawler
    """
    if data_dir is None:
        answer = client.revoke_token(name)
    else:
        from rota.cli import token_folder  # noqa: PLC0415 - which loads a whole server

        answer = token_folder.revoke(_folder(data_dir), name)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"token {clean(name)} revoked")


def _folder(data_dir: Path) -> Path:
    """Give the folder of the namespace that is meant."""
    namespace = click.get_current_context().params["namespace"]
    return folder_of(namespace or DEFAULT, data_dir)

"""The command line: parse, call, print; no policy.

One file per family of commands, each imported only when it is asked for, so that `rota get` need
not load a whole server. What a command raises on purpose ends here: as a line on stderr that says
what to do next, and an exit code.

    0 done   1 refused, not found, unreachable, unusable   2 wrong usage
    3 the storage failed under a running server            4 verification failed
    130 ended by Ctrl-C (a server: by the second one, at once)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from rota import __version__
from rota.cli.output import complain
from rota.cli.suggestions import SuggestingGroup
from rota.errors import RotaError

if TYPE_CHECKING:
    from click import Command, Context

COMMANDS = {
    "serve": "serve",
    "worker": "worker",
    "submit": "submit",
    "get": "client",
    "list": "client",
    "cancel": "bulk",
    "retry": "bulk",
    "reprioritise": "bulk",
    "logs": "task_logs",
    "batch": "batches",
    "workflow": "workflows",
    "project": "projects",
    "schedule": "schedules",
    "dead": "dead",
    "pause": "pauses",
    "resume": "pauses",
    "agents": "agents",
    "workers": "workers",
    "limits": "limits",
    "types": "figures",
    "stats": "figures",
    "top": "top",
    "namespaces": "namespaces",
    "token": "tokens",
    "events": "events",
    "replay": "audit",
    "verify": "audit",
    "reindex": "audit",
    "bench": "bench",
    "config": "config",
}
"""Every command, and the module of this package it is in (as `<command>_command`)."""


EXIT_INTERRUPTED = 130


class Commands(SuggestingGroup):
    """A group that imports its commands when they are asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Name the commands in the order they are read about."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"rota.cli.{COMMANDS[cmd_name]}")
        command: Command = getattr(module, f"{cmd_name}_command")
        return command

    def invoke(self, ctx: Context) -> Any:
        """Run a command; what it refuses becomes a line on stderr and exit code 1."""
        try:
            return super().invoke(ctx)
        except RotaError as error:
            complain(error.message, error.hint)
            ctx.exit(1)
        except (click.Abort, KeyboardInterrupt):
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rota")
def main() -> None:
    """Rota, a durable task scheduler: one process, one folder.

    \b
    rota serve                            start a server
    rota submit echo --agent me --wait    give it a task, see what became of it
    rota COMMAND --help                   more of each command, with an example

    Commands find their server by --url, --token and --namespace, or by ROTA_URL, ROTA_TOKEN and
    ROTA_NAMESPACE in the environment.
    """

"""`rota types | stats`: what there is to run, and how the server has done so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, print_json, print_table
from rota.cli.server_options import with_client
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient

TYPE_FIELDS = ("type", "executor", "inflight", "maxConcurrent", "timeoutMs", "queueTimeoutMs")


@click.command("types")
@json_option
@with_client
def types_command(*, as_json: bool, client: JsonClient) -> None:
    """List the types of tasks, and how busy they are.

    Those that the configuration names, that have a limit, or are paused; a task of any other type
    waits for a worker, without a limit of its own.

    \b
    Example:
      rota types
    """
    answer = client.types()
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            *(kind.get(name) for name in TYPE_FIELDS),
            kind.get("retry", {}).get("maxAttempts", 1),
            _paused(kind),
        )
        for kind in answer["types"]
    ]
    drop = ("queueTimeoutMs", "timeoutMs", "attempts", "paused", "executor")
    print_table((*TYPE_FIELDS, "attempts", "paused"), rows, drop=drop, cut=True)


@click.command("stats")
@json_option
@with_client
def stats_command(*, as_json: bool, client: JsonClient) -> None:
    """Show how many tasks wait, run and ended, and what is paused.

    \b
    Example:
      rota stats
    """
    stats = client.stats()
    scheduler = client.scheduler()
    if as_json:
        print_json({**stats, "scheduler": scheduler})
        return
    now = [*stats["queue"].items(), *_prefixed("callbacks", stats["callbacks"])]
    print_table(("now", ""), [*now, *_prefixed("log", stats["log"])])
    click.echo()
    since, total = stats["sinceStart"], stats["total"]
    print_table(("tasks", "since start", "in all"), [(n, since[n], total[n]) for n in total])
    for line in paused_lines(scheduler):
        click.echo(line)


def paused_lines(scheduler: dict[str, Any]) -> list[str]:
    """Say what is paused; nothing if nothing is."""
    lines = []
    if scheduler["paused"]:
        reason = scheduler.get("pauseReason", "")
        lines.append(f"everything is paused{': ' + reason if reason else ''}")
    for noun, name in (("agents", "pausedAgents"), ("types", "pausedTypes")):
        if scheduler[name]:
            lines.append(f"paused {noun}: {', '.join(scheduler[name])}")
    return [clean(line) for line in lines]


def _prefixed(prefix: str, values: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{prefix}.{name}", value) for name, value in values.items()]


def _paused(kind: dict[str, Any]) -> str:
    if not kind["paused"]:
        return ""
    return f"yes: {kind['pauseReason']}" if "pauseReason" in kind else "yes"

"""`rota events`: the history of a running server, as far as it goes or as it grows.

Prints one event a line, as columns or as JSON, with its moments as RFC 3339. A history that is
followed survives the server's restarts: it goes on after the last event it printed.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import json_option, note, print_json
from rota.cli.server_options import with_client
from rota.clock import rfc3339
from rota.logs import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rota.client.sync_client import JsonClient

EVENTS = 100
PAGE_ROWS_MAX = 1000
MOMENTS = ("deadline", "not_before", "until", "_until", "_at")
"""How the fields of events end that are moments; people read them as such."""
MOMENT_US_MIN = 10**14
"""What is less, in microseconds, is no moment of our time."""


@click.command("events")
@click.option("--after", type=int, help="Start after this seq; -20 is the last twenty.")
@click.option(
    "--limit", type=click.IntRange(1), help=f"How many.  [default: {EVENTS}; no end with --follow]"
)
@click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated.")
@click.option("--task", help="Only of this task, batch or workflow.")
@click.option("--agent", help="Only of this agent.")
@click.option("--project", help="Only of this project: its list and its runs.")
@click.option("--follow", is_flag=True, help="Wait for new ones; from now on, unless --after.")
@json_option
@with_client
def events_command(
    *,
    after: int | None,
    limit: int | None,
    kinds: tuple[str, ...],
    task: str | None,
    agent: str | None,
    project: str | None,
    follow: bool,
    as_json: bool,
    client: JsonClient,
) -> None:
    """Print the history, oldest first.

    With --json one event a line.

    \b
    Examples:
      rota events --after -20
      rota events --task tsk_1a2B3c4D
      rota events --follow --kind task_failed --json
    """
    if after is not None and after < 0:
        after = max(0, client.head()["seq"] + after)
    found: Iterable[dict[str, Any]]
    if follow:
        found = client.stream(
            after=after, kinds=kinds, task_id=task, agent=agent, project=project, on_lost=_lost
        )
    elif task is not None:
        if project is not None:
            msg = "give --task or --project"
            raise click.UsageError(msg)
        found = _of_task(client.iter_task_events(task, after=after or 0), kinds, agent)
    else:
        wanted = {"kinds": kinds, "agent": agent, "project": project}
        found = _pages(client, after or 0, limit or EVENTS, wanted)
    if limit is not None or not follow:
        found = islice(found, limit or EVENTS)
    try:
        for event in found:
            if as_json:
                print_json(readable(event), lines=True)
            else:
                click.echo(line_of(event))
    except KeyboardInterrupt:
        if not follow:
            raise


def readable(event: dict[str, Any]) -> dict[str, Any]:
    """Write the moments of an event as people and programs read them."""
    told = {name: _told(name, value) for name, value in event.get("data", {}).items()}
    return {**event, "at": rfc3339(event["at"]), "data": told}


def line_of(event: dict[str, Any]) -> str:
    said = readable(event)
    data = json.dumps(said["data"], ensure_ascii=False, separators=(",", ":"))
    about = [said[name] for name in ("task", "agent") if name in said]
    parts = (f"{said['seq']:>8}", said["at"], said["kind"], *about, data)
    return " ".join(clean(part) for part in parts)


def _told(name: str, value: Any) -> Any:
    is_moment = name.endswith(MOMENTS) and isinstance(value, int) and value >= MOMENT_US_MIN
    return rfc3339(value) if is_moment else value


def _of_task(
    events: Iterator[dict[str, Any]], kinds: tuple[str, ...], agent: str | None
) -> Iterator[dict[str, Any]]:
    for event in events:
        if (not kinds or event["kind"] in kinds) and (agent is None or event.get("agent") == agent):
            yield event


def _pages(
    client: JsonClient, after: int, limit: int, wanted: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Give up to about `limit` events: whoever wants few does not ask for a whole page."""
    if limit >= PAGE_ROWS_MAX:
        yield from client.iter_events(after=after, **wanted)
        return
    is_more = True
    while is_more:
        page = client.events(after=after, limit=limit, **wanted)
        yield from page["events"]
        after = page["next"]
        is_more = after < page["head"]


def _lost(reason: str) -> None:
    note(f"{reason}; connecting again")

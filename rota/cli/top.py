"""`rota top`: a server at a glance, looked at again and again.

It reads /v1/stats, /v1/scheduler, /v1/agents and, where there are any, /v1/workers. A server that
does not answer is waited for, with the last frame on the screen. Where stdout is no terminal it
prints one frame and ends, as with --once.
"""

from __future__ import annotations

import select
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import console, json_option, print_json
from rota.cli.server_options import with_client
from rota.clock import SystemClock, monotonic_s, rfc3339
from rota.errors import NotFound, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from rota.cli.top_frame import Look
    from rota.client.sync_client import JsonClient

AGENTS_MAX = 1000
ENDS = ("q", "Q", "\x03")
INTERVAL_S, INTERVAL_S_MIN, INTERVAL_S_MAX = 1.0, 0.1, 3600.0


@click.command("top")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(INTERVAL_S_MIN, INTERVAL_S_MAX),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@json_option
@with_client
def top_command(*, interval_s: float, once: bool, as_json: bool, client: JsonClient) -> None:
    """Watch queues, workers, rates, waits and latencies.

    Rates, waits and runs are those since the last look; on the first frame waits and runs are
    those of all time. q ends it.

    \b
    Examples:
      rota top
      rota top --interval 5
      rota top --once
    """
    if as_json:
        print_json(_as_json(_look(client)))
        return
    screen = console()
    if once or not sys.stdout.isatty():
        from rota.cli.top_frame import Page, frame  # noqa: PLC0415 - rich is slow to load

        width = screen.width if sys.stdout.isatty() else min(screen.width, 100)
        screen.print(frame(_look(client), None, Page(f"rota top  {client.url}", width)))
        return
    _watch(client, interval_s, screen)


def _watch(client: JsonClient, interval_s: float, screen: Console) -> None:
    """Draw a frame after each look, until somebody has had enough."""
    from rich.live import Live  # noqa: PLC0415 - rich is slow to load

    from rota.cli.top_frame import Page, frame  # noqa: PLC0415

    look, before = _look(client), None  # a server that is not there at all is complained about
    lost = ""
    with _keys() as pressed, Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            page = Page(f"rota top  {client.url}", screen.width, screen.height, lost)
            live.update(frame(look, before, page), refresh=True)
            if pressed(interval_s):
                return
            try:
                look, before, lost = _look(client), look, ""
            except RotaError as error:
                before, lost = None, f"no answer, will ask again: {error.message}"


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits so long, or until a key is pressed that ends it all."""
    import termios  # noqa: PLC0415 - there is none where there is no terminal
    import tty  # noqa: PLC0415

    if not sys.stdin.isatty():
        yield lambda wait_s: bool(select.select([], [], [], wait_s)[0])
        return
    before = termios.tcgetattr(sys.stdin)

    def pressed(wait_s: float) -> bool:
        end = monotonic_s() + wait_s
        while (left := end - monotonic_s()) > 0:
            if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1) in (*ENDS, ""):
                return True
        return False

    tty.setcbreak(sys.stdin)
    try:
        yield pressed
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _look(client: JsonClient) -> Look:
    from rota.cli.top_frame import Look  # noqa: PLC0415 - rich is slow to load

    stats, scheduler = client.stats(), client.scheduler()
    agents = client.agents(state="busy", limit=AGENTS_MAX)["agents"]
    try:
        workers: list[dict[str, Any]] | None = client.workers()["workers"]
    except NotFound:
        workers = None
    clock = rfc3339(SystemClock().now_us())[11:19] + "Z"
    return Look(monotonic_s(), clock, stats, scheduler, agents, workers)


def _as_json(look: Look) -> dict[str, Any]:
    told = {"stats": look.stats, "scheduler": look.scheduler, "agents": look.agents}
    return told if look.workers is None else {**told, "workers": look.workers}

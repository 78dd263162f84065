"""`rota serve`: one server, in the foreground, until a signal stops it.

Prints its address, a line to try at once, and where the data lie, as soon as it listens. What
keeps it from starting is exit code 1, a storage that fails under it is 3, a signal to stop is 0,
a second Ctrl-C 130. With --json-logs all of that is said as log lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import uvloop

from rota import __version__, logs
from rota.cli.output import complain, progress
from rota.config import Settings, load_settings
from rota.errors import ConfigError, RotaError
from rota.logs import clean
from rota.presets import PRESETS
from rota.sections import DEFAULT
from rota.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.errors import LogError

EXIT_STORAGE = 3
EXIT_CUT_OFF = 130
CUT_OFF = "ended at once; what was running is put back at the next start"
EXAMPLE = '{"agentId":"demo","action":"echo","params":{"text":"hello"}}'
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - shown, not listened on


@click.command("serve")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: 9867]"
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the log; made if it is not there.  [default: rota-data]",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML or JSON file of settings; `rota config` prints them all.",
)
@click.option(
    "--preset",
    "presets",
    type=click.Choice(sorted(PRESETS)),
    multiple=True,
    help="Settings of a document that rota stands in for, under the file's; may be repeated.",
)
@click.option("--paused", is_flag=True, help="Dispatch nothing until `rota resume`.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option(
    "--json-logs", is_flag=True, help="Log one JSON object a line, and say nothing otherwise."
)
def serve_command(
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    config_path: Path | None,
    presets: tuple[str, ...],
    log_level: str,
    *,
    paused: bool,
    json_logs: bool,
) -> None:
    """Start a server on one data folder.

    Options given here win over the file. SIGTERM or Ctrl-C stops it in good order, a second
    Ctrl-C at once (what ran is put back at the next start); SIGHUP, or a change of the file,
    reloads the limits.

    \b
    Example:
      rota serve --data-dir /var/lib/rota --config rota.toml
    """
    voice = Voice(as_json=json_logs)
    logs.set_up(log_level, as_json=json_logs)
    try:
        settings = _settings(config_path, presets)
        settings = overridden(settings, host=host, port=port, data_dir=data_dir, paused=paused)
        failure = _run(settings, config_path, voice)
    except RotaError as error:
        if not json_logs:
            raise
        voice.complain(error.message, error.hint)
        click.get_current_context().exit(1)
    if failure is not None:
        voice.complain(f"the storage failed: {failure.message}", failure.hint)
        click.get_current_context().exit(EXIT_STORAGE)


class Voice:
    """How the server speaks to whoever started it: in words, or in log lines."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, message: str) -> None:
        if self.as_json:
            logs.say(message)
        else:
            click.echo(message)

    def announce(self, settings: Settings, port: int, *, wants_token: bool) -> None:
        if self.as_json:
            address = _address(settings, settings.server.host, port)
            logs.say(
                f"rota {__version__} listening on {address}; data in {settings.server.data_dir}"
            )
        else:
            click.echo(announcement(settings, port, wants_token=wants_token))

    def complain(self, message: str, hint: str) -> None:
        if self.as_json:
            logs.say(f"{message} ({hint})" if hint else message, logging.ERROR)
        else:
            complain(message, hint)

    def stopping(self, running: int, grace_s: float) -> None:
        if not running:
            self.say("stopping")
            return
        attempts = f"{running} running attempt{'s' if running > 1 else ''}"
        self.say(
            f"stopping: waiting up to {grace_s:g} s for {attempts}; "
            "press Ctrl-C again to end at once"
        )

    def cut_off(self, number: int, frame: Any) -> None:
        """End at once: the log is whole, as after kill -9, and the next start goes on from it."""
        del number, frame
        line = logs.line_of(CUT_OFF) if self.as_json else f"{CUT_OFF}\n".encode()
        with contextlib.suppress(OSError):
            os.write(2, line)
        os._exit(EXIT_CUT_OFF)

    @contextlib.contextmanager
    def replaying(self) -> Iterator[Callable[[int, int], None]]:
        """Give a function to report to how far a replay is."""
        if not self.as_json:
            with progress("replaying events:", announce=True) as report:
                yield report
            return
        said: list[int] = []

        def report_once(done: int, total: int) -> None:
            del done
            if not said:
                logs.say(f"replaying events: {total}")
            said.append(total)

        yield report_once


def _settings(config_path: Path | None, presets: tuple[str, ...]) -> Settings:
    try:
        return load_settings(config_path, presets)
    except ConfigError as error:
        is_named = config_path is None or str(config_path) in error.message
        where = "" if is_named else f"{config_path}: "
        msg = where + error.message
        raise ConfigError(msg, hint=error.hint) from error


def _run(settings: Settings, config_path: Path | None, voice: Voice) -> LogError | None:
    try:
        return uvloop.run(_serve(settings, config_path, voice))
    except OSError as error:
        raise not_listening(settings, error) from error


def overridden(
    settings: Settings,
    *,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    paused: bool = False,
) -> Settings:
    """Lay the options over the file's settings."""
    over = {"host": host, "port": port, "data_dir": data_dir and str(data_dir)}
    update = {name: value for name, value in over.items() if value is not None}
    sections: dict[str, Any] = {"server": settings.server.model_copy(update=update)}
    if paused:
        sections["scheduler"] = settings.scheduler.model_copy(update={"start_paused": True})
    return settings.model_copy(update=sections)


async def _serve(settings: Settings, config_path: Path | None, voice: Voice) -> LogError | None:
    """Run a server to its end; give what its storage failed of, if it did."""
    server = Server(settings, config_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with voice.replaying() as report:
        await server.start(report)

    def stopping() -> None:
        if server.failure is None:
            voice.stopping(server.running(), settings.server.grace_s)
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, voice.cut_off)

    def ready() -> None:
        voice.announce(settings, server.port, wants_token=not server.app.access.is_open())
        for name, shard in server.namespaces().items():
            paused = shard.state.control.stopped
            if paused is not None:
                because = f" ({paused})" if paused else ""
                which = "" if name == DEFAULT else f" --namespace {name}"
                what = "everything" if name == DEFAULT else f"namespace {name}"
                voice.say(f"  {what} is paused{because}: `rota resume{which}` lets tasks run")

    await server.run(ready, stopping)
    if server.failure is None:
        voice.say("stopped in good order")
    return server.failure


def _leave(number: int, frame: Any) -> None:
    """Obey a signal that comes before the server serves: nothing has to be put in order yet."""
    del number, frame
    raise SystemExit(0)


def announcement(settings: Settings, port: int, *, wants_token: bool = False) -> str:
    """Say where it listens, what to type first, and where the data lie."""
    server = settings.server
    token = ' \\\n    -H "Authorization: Bearer $ROTA_TOKEN"' if wants_token else ""
    try_at = EVERYWHERE.get(server.host, server.host)
    return (
        f"rota {__version__} listening on {_address(settings, server.host, port)}\n"
        f"  try:   curl -X POST {_address(settings, try_at, port)}/v1/tasks{token} \\\n"
        f"    -H 'Content-Type: application/json' -d '{EXAMPLE}'\n"
        f"  docs:  {_address(settings, try_at, port)}/docs\n"
        f"  data:  {clean(Path(server.data_dir).resolve())}" + _beside(settings)
    )


def _beside(settings: Settings) -> str:
    """Name the namespaces beside the default one, if there are any."""
    names = [name for name in settings.namespaces if name != DEFAULT]
    return f"\n  namespaces:  {', '.join((DEFAULT, *names))}" if names else ""


def _address(settings: Settings, host: str, port: int) -> str:
    scheme = "http" if settings.server.tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def not_listening(settings: Settings, error: OSError) -> ConfigError:
    server = settings.server
    if error.errno == errno.EADDRINUSE:
        msg = f"port {server.port} on {server.host} is in use"
        hint = "give another --port, or --port 0 for any free one"
    elif error.errno == errno.EACCES and server.port < 1024:
        msg = f"port {server.port} may not be used by this user"
        hint = "give a --port above 1023"
    elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        msg = f"{server.host} is not an address of this machine"
        hint = "give another --host, such as 127.0.0.1"
    else:
        msg, hint = f"cannot serve: {error}", ""
    return ConfigError(msg, hint=hint)

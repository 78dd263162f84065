"""`rota serve`: one server, in the foreground, until a signal stops it.

Prints its address, a line to try at once, and where the data lie, as soon as it listens. What
keeps it from starting is exit code 1, a storage that fails under it is 3, a signal to stop is 0.
"""

from __future__ import annotations

import errno
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import uvloop

from rota import __version__
from rota.cli import logs
from rota.cli.output import clean, complain, progress
from rota.config import Settings, load_settings
from rota.errors import ConfigError
from rota.http.server import Server
from rota.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.errors import LogError

EXIT_STORAGE = 3
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
@click.option("--json-logs", is_flag=True, help="Log one JSON object a line.")
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

    Options given here win over the file. SIGTERM or Ctrl-C stops it in good order; SIGHUP, or a
    change of the file, reloads the limits.

    \b
    Example:
      rota serve --data-dir /var/lib/rota --config rota.toml
    """
    logs.set_up(log_level, as_json=json_logs)
    try:
        settings = load_settings(config_path, presets)
    except ConfigError as error:
        where = "" if str(config_path) in error.message else f"{config_path}: "
        msg = where + error.message
        raise ConfigError(msg, hint=error.hint) from error
    settings = overridden(settings, host=host, port=port, data_dir=data_dir, paused=paused)
    try:
        failure = uvloop.run(_serve(settings, config_path))
    except OSError as error:
        raise not_listening(settings, error) from error
    if failure is not None:
        complain(f"the storage failed: {failure.message}", failure.hint)
        click.get_current_context().exit(EXIT_STORAGE)


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


async def _serve(settings: Settings, config_path: Path | None) -> LogError | None:
    """Run a server to its end; give what its storage failed of, if it did."""
    server = Server(settings, config_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with progress("replaying events:", announce=True) as report:
        await server.start(lambda seq: report(seq, server.shard.log.head().seq))
    await server.run(_announcing(settings, server))
    if server.failure is None:
        click.echo("stopped in good order")
    return server.failure


def _leave(number: int, frame: Any) -> None:
    """Obey a signal that comes before the server serves: nothing has to be put in order yet."""
    del number, frame
    raise SystemExit(0)


def _announcing(settings: Settings, server: Server) -> Callable[[], None]:
    def announce() -> None:
        click.echo(announcement(settings, server.port))

    return announce


def announcement(settings: Settings, port: int) -> str:
    """Say where it listens, what to type first, and where the data lie."""
    server = settings.server
    path = "/tasks" if settings.scheduler.enabled else "/v1/tasks"
    token = ' \\\n    -H "Authorization: Bearer $ROTA_TOKEN"' if server.tokens else ""
    try_at = EVERYWHERE.get(server.host, server.host)
    return (
        f"rota {__version__} listening on {_address(server.host, port)}\n"
        f"  try:   curl -X POST {_address(try_at, port)}{path}{token} \\\n"
        f"    -H 'Content-Type: application/json' -d '{EXAMPLE}'\n"
        f"  docs:  {_address(try_at, port)}/docs\n"
        f"  data:  {clean(Path(server.data_dir).resolve())}"
    )


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def not_listening(settings: Settings, error: OSError) -> ConfigError:
    """Say why the address cannot be listened on, and what to do about it."""
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

"""The command line: parse, call, print; no policy."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click
import uvloop

from rota import __version__
from rota.config import load_settings
from rota.errors import RotaError
from rota.http.server import Server


@click.group()
@click.version_option(__version__, prog_name="rota")
def main() -> None:
    """Run rota."""


@main.command()
@click.option("--host")
@click.option("--port", type=int)
@click.option("--data-dir")
@click.option("--config", "config_path", type=click.Path(dir_okay=False, path_type=Path))
def serve(host, port, data_dir, config_path):
    logging.basicConfig(level=logging.INFO)
    try:
        settings = load_settings(config_path)
        over = {k: v for k, v in {"host": host, "port": port, "data_dir": data_dir}.items() if v is not None}
        settings = settings.model_copy(update={"server": settings.server.model_copy(update=over)})

        async def go():
            server = Server(settings, config_path)
            await server.start()
            await server.run(lambda: print(f"listening on {settings.server.host}:{server.port}", flush=True))
            if server.failure: raise server.failure
        uvloop.run(go())
    except RotaError as e:
        print("error:", e, file=sys.stderr); sys.exit(1)

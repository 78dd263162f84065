"""`rota worker MODULE:NAME`: run a worker that a module has made."""

from __future__ import annotations

import logging
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota import logs
from rota.cli.output import note
from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from types import ModuleType

    from rota.client.worker import Worker

DEFAULT_NAME = "worker"
log = logging.getLogger("rota.worker")


@click.command("worker")
@click.argument("target", metavar="MODULE[:NAME]")
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="So many tasks at once.")
@click.option("--prefetch", type=click.IntRange(0, 10_000), help="So many more that wait here.")
@click.option("--label", "labels", multiple=True, help="What it can do; may be repeated.")
@click.option("--id", "worker_id", help="Its name; hostname-pid unless given.")
@click.option("--grace", "grace_s", type=click.FloatRange(0), help="Seconds to finish, at the end.")
@click.option("--url", help="Address of the server; else the worker's own, or ROTA_URL.")
@click.option("--token", help="Token, if the server wants one; else the worker's, or ROTA_TOKEN.")
@click.option("--namespace", help="Namespace; else the worker's own, or ROTA_NAMESPACE.")
@click.option("--reload", is_flag=True, help="Start it anew when a Python file here changes.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option("--json-logs", is_flag=True, help="Log one JSON object a line.")
@click.option("--quiet", is_flag=True, help="The same as --log-level warning.")
def worker_command(
    target: str,
    *,
    labels: tuple[str, ...],
    reload: bool,
    log_level: str,
    json_logs: bool,
    quiet: bool,
    **given: str | float | None,
) -> None:
    """Run a worker: a rota.client.Worker that a module has.

    The module is looked for in this folder first; NAME is `worker` unless given. It runs until
    Ctrl-C or SIGTERM, then finishes what it can and gives back the rest; a second one ends it at
    once.

    \b
    Examples:
      rota worker my_agents:worker --concurrency 8
      rota worker my_agents --reload
    """
    if reload:
        _run_and_reload()
        return
    logs.set_up("warning" if quiet else log_level, as_json=json_logs)
    try:
        _run(target, labels, given)
    except RotaError as error:
        if not json_logs:
            raise
        said = f"{error.message} ({error.hint})" if error.hint else error.message
        log.critical("it ended: %s", said)
        click.get_current_context().exit(1)


def _run(target: str, labels: tuple[str, ...], given: dict[str, str | float | None]) -> None:
    worker = load(target)
    for name, value in given.items():
        if value is not None:
            setattr(worker, name, value)
    if labels:
        worker.labels = list(labels)
    worker.main()


def load(target: str) -> Worker:
    """Find a worker by where it is written. Raises ConfigError."""
    from rota.client.worker import Worker  # noqa: PLC0415 - the help need not wait for it

    name, _, attribute = target.partition(":")
    module = _imported(name, target)
    found = getattr(module, attribute or DEFAULT_NAME, None)
    if isinstance(found, Worker):
        return found
    workers = sorted(each for each, value in vars(module).items() if isinstance(value, Worker))
    hint = f"write {name}:{workers[0]}" if workers else f"write `worker = Worker()` in {name}"
    what = "is not a Worker" if found is not None else "is not there"
    raise ConfigError(f"{attribute or DEFAULT_NAME} of {name} {what}", hint=hint)


def _imported(name: str, target: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        hint = "write it like my_agents:worker, without .py and slashes"
        raise ConfigError(f"{target!r} does not name a module", hint=hint)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{name} cannot be imported: {error}") from error
        hint = f"is there a {name.replace('.', '/')}.py in {here}?"
        raise ConfigError(f"there is no module {error.name}", hint=hint) from error
    except Exception as error:
        msg = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError(msg) from error


def _run_and_reload() -> None:
    """Run the same command without --reload, anew after each change."""
    from watchfiles import PythonFilter, run_process  # noqa: PLC0415 - for development alone

    words = [word for word in sys.argv[1:] if word != "--reload"]
    command = shlex.join([sys.executable, "-m", "rota", *words])
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # its words for SIGTERM are a crash's
    run_process(
        Path.cwd(),
        target=command,
        target_type="command",
        watch_filter=PythonFilter(),
        callback=lambda changes: note(f"{len(changes)} files changed; starting anew"),
        sigint_timeout=30,
    )

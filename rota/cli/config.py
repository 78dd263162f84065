"""`rota config`: every setting there is, with the value it has, as a TOML file one can start from.

Values that are not the default say what the default is. Secrets are named, never printed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from rota.cli.output import json_option, print_json
from rota.cli.server_options import token_option, url_option
from rota.client.client import RotaClient
from rota.config import ExecutorSettings, Settings, TypeSettings, load_settings, shown
from rota.http.server import check_exposed

HIDDEN = ("tokens", "secret", "headers")
EXECUTOR_EXAMPLE = {"kind": "tab", "url": "http://127.0.0.1:9868"}
TYPE_EXAMPLE = {"executor": "pull", "timeoutMs": 30000, "maxConcurrent": 5}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")


@click.command("config")
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; without one, the defaults are printed.",
)
@click.option("--check", is_flag=True, help="Only say whether the file is good.")
@click.option("--server", "ask", is_flag=True, help="Ask the running server what is in force.")
@json_option
@url_option
@token_option
def config_command(
    *,
    config_path: Path | None,
    check: bool,
    ask: bool,
    as_json: bool,
    url: str,
    token: str | None,
) -> None:
    """Print every setting with its value.

    \b
    Examples:
      rota config > rota.toml
      rota config --config rota.toml --check
      rota config --server
    """
    if ask and (config_path or check):
        msg = "--server asks the running server; leave out --config and --check"
        raise click.UsageError(msg)
    if check and config_path is None:
        msg = "--check needs the file: --config FILE"
        raise click.UsageError(msg)
    if ask:
        values = RotaClient(url, token=token).config()
    else:
        settings = load_settings(config_path)
        values = shown(settings)
    if check:
        check_exposed(settings)
        if as_json:
            print_json({"ok": True, "file": str(config_path)})
        else:
            click.echo(f"{config_path} is good")
    elif as_json:
        print_json(values)
    else:
        click.echo(as_toml(values))


def as_toml(values: dict[str, Any]) -> str:
    """Write settings as a TOML file."""
    defaults = shown(Settings())
    lines: list[str] = []
    for section in ("server", "scheduler", "webhooks"):
        lines += [f"[{section}]", *_table(values[section], defaults[section]), ""]
    executor = ExecutorSettings.model_validate(EXECUTOR_EXAMPLE)
    tables: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        ("executors", EXECUTOR_EXAMPLE, executor.model_dump(mode="json", by_alias=True)),
        ("types", TYPE_EXAMPLE, TypeSettings().model_dump(mode="json", by_alias=True)),
    )
    for section, example, known in tables:
        for name, table in values[section].items():
            lines += [f"[{section}.{_key(name)}]", *_table(table, known), ""]
        if not values[section]:
            lines += [f"# [{section}.NAME]"]
            lines += [f"# {name} = {_value(value)}" for name, value in example.items()] + [""]
    return "\n".join(lines).rstrip()


def _table(values: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    lines = []
    for name, value in values.items():
        default = defaults.get(name)
        if name in HIDDEN:
            what = ", ".join(value) if isinstance(value, list) else value
            lines.append(f"# {name}: {_value(what) if what else 'none'}")
        elif value is None:
            lines.append(f"# {name}: not set")
        elif value == default or default is None or name in EXECUTOR_EXAMPLE:
            lines.append(f"{name} = {_value(value)}")
        else:
            lines.append(f"{name} = {_value(value)}  # default: {_value(default)}")
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """Write a value as TOML does; its strings are JSON's, but for a few characters."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

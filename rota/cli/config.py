"""`rota config`: every setting there is, with the value it has, as a TOML file one can start from.

Values that are not the default say what the default is. Secrets are named, never printed. What
presets bring is written out, so the file says the same without them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.config_check import problems_of
from rota.cli.output import clean, complain, json_option, print_json
from rota.cli.server_options import token_option, url_option
from rota.cli.settings_help import MEANINGS, PRESETS_MEANING, SECTIONS
from rota.client.client import RotaClient
from rota.config import ExecutorSettings, Settings, TypeSettings, load_settings
from rota.presets import PRESETS
from rota.shown_settings import shown

if TYPE_CHECKING:
    from rota.errors import ConfigError

HIDDEN = ("tokens", "secret", "headers")
FREE = ("routes",)
PLAIN_SECTIONS = ("server", "scheduler", "webhooks", "browseros", "browsermanager", "agent")
EXECUTOR_EXAMPLE = {"kind": "tab", "url": "http://127.0.0.1:9868"}
TYPE_EXAMPLE: dict[str, Any] = {
    "executor": "pull",
    "timeoutMs": 30000,
    "queueTimeoutMs": 300000,
    "maxConcurrent": 5,
    "retry": {"kind": "exponential", "maxAttempts": 3, "retryOn": ["timeout", "status:5xx"]},
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")


@click.command("config")
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; without one, the defaults are printed.",
)
@click.option(
    "--preset",
    "presets",
    type=click.Choice(sorted(PRESETS)),
    multiple=True,
    help="Settings of a document that rota stands in for, under the file's; may be repeated.",
)
@click.option("--check", is_flag=True, help="Only say what is wrong with the file, if anything.")
@click.option("--server", "ask", is_flag=True, help="Ask the running server what is in force.")
@json_option
@url_option
@token_option
def config_command(
    *,
    config_path: Path | None,
    presets: tuple[str, ...],
    check: bool,
    ask: bool,
    as_json: bool,
    url: str,
    token: str | None,
) -> None:
    """Print every setting with value and meaning.

    What is printed is a file to start from.

    \b
    Examples:
      rota config > rota.toml
      rota config --preset browsermanager > rota.toml
      rota config --config rota.toml --check
      rota config --server
    """
    if ask and (config_path or presets or check):
        msg = "--server asks the running server; leave out --config, --preset and --check"
        raise click.UsageError(msg)
    if check and config_path is None:
        msg = "--check needs the file: --config FILE"
        raise click.UsageError(msg)
    if ask:
        values = RotaClient(url, token=token).config()
    elif check:
        _check(str(config_path), problems_of(config_path, presets), as_json=as_json)
        return
    else:
        values = shown(load_settings(config_path, presets))
    if as_json:
        print_json(values)
    else:
        click.echo(as_toml(values))


def _check(path: str, problems: list[ConfigError], *, as_json: bool) -> None:
    """Say all that is wrong with a file, or that nothing is."""
    if as_json:
        found = [{"problem": problem.message, "hint": problem.hint} for problem in problems]
        print_json({"ok": not found, "file": path, **({"problems": found} if found else {})})
    elif not problems:
        click.echo(f"{clean(path)} is good")
    else:
        for problem in problems:
            where = "" if path in problem.message else f"{path}: "
            complain(where + problem.message, problem.hint)
    if problems:
        click.get_current_context().exit(1)


def as_toml(values: dict[str, Any]) -> str:
    """Write settings as a TOML file; the values of presets are written out."""
    defaults = shown(Settings())
    named = ", ".join(values.get("presets", ()))
    named = f"{named}, written out below" if named else "none"
    lines = [f"# presets: {named}; {PRESETS_MEANING}", ""]
    for section in PLAIN_SECTIONS[:3]:
        lines += _section(section, values[section], defaults[section])
    executor = ExecutorSettings.model_validate(EXECUTOR_EXAMPLE)
    tables: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        ("executors", EXECUTOR_EXAMPLE, executor.model_dump(mode="json", by_alias=True)),
        ("types", TYPE_EXAMPLE, TypeSettings().model_dump(mode="json", by_alias=True)),
    )
    for section, example, known in tables:
        lines.append(f"# {SECTIONS[section]}")
        for at, (name, table) in enumerate(values[section].items()):
            heading = f"[{section}.{_key(name)}]"
            lines += [heading, *_table(section, table, known, explain=at == 0), ""]
        if not values[section]:
            commented = [f"[{section}.NAME]", *_table(section, example, example)]
            lines += [line if line.startswith("#") else f"# {line}" for line in commented] + [""]
    for section in PLAIN_SECTIONS[3:]:
        lines += _section(section, values[section], defaults[section])
    return "\n".join(lines).rstrip()


def _section(section: str, values: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """Write a section; the tables in it whose keys are free become sections of their own."""
    free = {name: value for name, value in values.items() if name in FREE and value}
    rest = {name: value for name, value in values.items() if name not in free}
    lines = [f"# {SECTIONS[section]}", f"[{section}]", *_table(section, rest, defaults), ""]
    for name, table in free.items():
        lines += [f"# {MEANINGS[f'{section}.{name}']}", f"[{section}.{name}]"]
        lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()] + [""]
    return lines


def _table(
    section: str, values: dict[str, Any], defaults: dict[str, Any], *, explain: bool = True
) -> list[str]:
    lines = []
    for name, value in values.items():
        default = defaults.get(name)
        said = [MEANINGS.get(f"{section}.{name}", "")] if explain else []
        if name in HIDDEN:
            what = ", ".join(value) if isinstance(value, dict) else value
            line = f"# {name}: {_value(what) if what else 'none'}"
        elif value is None:
            line = f"# {name}: not set"
        else:
            line = f"{name} = {_value(value)}"
            is_usual = value == default or default is None or name in EXECUTOR_EXAMPLE
            if not is_usual and not isinstance(value, dict):
                said.insert(0, f"default: {_value(default)}")
        lines += _explained(line, "; ".join(filter(None, said)), above=isinstance(value, dict))
    return lines


def _explained(line: str, comment: str, *, above: bool) -> list[str]:
    """Put a comment beside a line, or above a long one."""
    if not comment:
        return [line]
    if above:
        return [f"# {comment}", line]
    return [f"{line}; {comment}" if line.startswith("#") else f"{line}  # {comment}"]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """Write a value as TOML does; its strings are JSON's, but for a few characters."""
    if isinstance(value, dict):
        pairs = (f"{_key(n)} = {_value(v)}" for n, v in value.items() if v is not None)
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    text = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

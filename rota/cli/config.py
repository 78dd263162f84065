"""`rota config`: every setting there is, with the value it has, as a TOML file one can start from.

Values that are not the default say what the default is. Secrets are named, never printed. What
presets bring is written out, so the file says the same without them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import tomlkit
from tomlkit import comment, nl

from rota.cli.config_check import problems_of
from rota.cli.output import complain, json_option, print_json
from rota.cli.server_options import namespace_option, token_option, url_option
from rota.cli.settings_help import MEANINGS, PRESETS_MEANING, SECTIONS
from rota.client.sync_client import JsonClient
from rota.config import ExecutorSettings, Settings, load_settings
from rota.logs import clean
from rota.presets import PRESETS
from rota.sections import TypeSettings
from rota.shown_settings import shown

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Item, Table

    from rota.errors import ConfigError

HIDDEN = ("tokens", "secret", "headers")
FREE = ("routes",)
PLAIN_SECTIONS = (
    "server",
    "scheduler",
    "webhooks",
    "defaults",
    "projects",
    "browseros",
    "browsermanager",
    "agent",
)
EXECUTOR_EXAMPLE = {"kind": "tab", "url": "http://127.0.0.1:9868"}
COMMAND_EXAMPLE: dict[str, Any] = {
    "kind": "command",
    "argv": ["convert", "--", "{{file}}", "out.png"],
    "cwd": "/srv/pictures",
    "env": {"LANG": "de_DE.UTF-8"},
    "sandbox": "bubblewrap",
    "resultFile": "result.json",
    "graceMs": 5000,
    "timeLimitMs": 60000,
    "cpuSecondsMax": 30,
    "memoryMbMax": 500,
    "fileMbMax": 100,
    "processesMax": 1024,
    "outputBytesMax": 10485760,
}
TYPE_EXAMPLE: dict[str, Any] = {
    "executor": "pull",
    "timeoutMs": 30000,
    "queueTimeoutMs": 300000,
    "maxConcurrent": 5,
    "retry": {"kind": "exponential", "maxAttempts": 3, "retryOn": ["timeout", "status:5xx"]},
}
NAMESPACE_EXAMPLE: dict[str, Any] = {
    "dataDir": "/var/lib/rota/NAME",
    "tokens": {},
    "scheduler": {"maxInflight": 5},
}
_UNSAFE = re.compile("[\x80-\x9f\u2028\u2029]")
"""What TOML lets stand in a text and a terminal may act on."""


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
@namespace_option
def config_command(
    *,
    config_path: Path | None,
    presets: tuple[str, ...],
    check: bool,
    ask: bool,
    as_json: bool,
    url: str,
    token: str | None,
    namespace: str | None,
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
        values = JsonClient(url, token=token, namespace=namespace, retries=0).config()
        sources = values.pop("sources", {})
    elif check:
        _check(str(config_path), problems_of(config_path, presets), as_json=as_json)
        return
    else:
        settings = load_settings(config_path, presets)
        values, sources = shown(settings), settings.sources()
    if as_json:
        print_json(values)
    else:
        click.echo(as_toml(values, sources))


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


def as_toml(values: dict[str, Any], sources: dict[str, str]) -> str:
    """Write settings as a TOML file, with their sources; the values of presets are written out."""
    defaults = shown(Settings())
    named = ", ".join(values.get("presets", ()))
    named = f"{named}, written out below" if named else "none"
    file = tomlkit.document()
    file.add(comment(f"presets: {named}; {PRESETS_MEANING}"))
    file.add(nl())
    for section in PLAIN_SECTIONS[:3]:
        _add_section(file, section, values[section], defaults[section], sources)
    executor = ExecutorSettings.model_validate(EXECUTOR_EXAMPLE)
    tables: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        ("executors", EXECUTOR_EXAMPLE, executor.model_dump(mode="json", by_alias=True)),
        ("types", TYPE_EXAMPLE, TypeSettings().model_dump(mode="json", by_alias=True)),
        ("namespaces", NAMESPACE_EXAMPLE, {}),
    )
    for section, example, known in tables:
        if values[section]:
            family = tomlkit.table(is_super_table=True)
            explained = set()
            for name, settings in values[section].items():
                kind = settings.get("kind") == "command"
                own = _below(sources, f"{section}.{name}")
                explain = kind not in explained
                family.add(name, _table(section, settings, known, own, explain=explain))
                explained.add(kind)
            _add(file, section, family, SECTIONS[section])
        else:
            file.add(comment(SECTIONS[section]))
            examples = (example, COMMAND_EXAMPLE) if section == "executors" else (example,)
            for each in examples:
                shape = {section: {"NAME": _table(section, each, each, {})}}
                for line in tomlkit.dumps(shape).rstrip().splitlines():
                    file.add(comment(line.removeprefix("# ")))
                file.add(nl())
    for section in PLAIN_SECTIONS[3:]:
        _add_section(file, section, values[section], defaults[section], sources)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", tomlkit.dumps(file)).rstrip()


def _add_section(
    file: TOMLDocument,
    section: str,
    values: dict[str, Any],
    defaults: dict[str, Any],
    sources: dict[str, str],
) -> None:
    """Write a section; the tables in it whose keys are free become sections of their own."""
    free = {name: value for name, value in values.items() if name in FREE and value}
    rest = {name: value for name, value in values.items() if name not in free}
    table = _table(section, rest, defaults, _below(sources, section))
    for name, settings in free.items():
        _add(table, name, tomlkit.item(settings), MEANINGS[f"{section}.{name}"])
        table.add(nl())
    _add(file, section, table, SECTIONS[section])


def _add(to: TOMLDocument | Table, name: str, table: Table, meaning: str) -> None:
    """Add a table right under the comment that says what it is about."""
    to.add(comment(meaning))
    to.add(name, table)
    table.trivia.indent = ""


def _below(sources: dict[str, str], where: str) -> dict[str, str]:
    """Give the sources of what one table says, by its keys."""
    start = len(where) + 1
    below = {k[start:]: v for k, v in sources.items() if k.startswith(f"{where}.")}
    return {key.partition(".")[0]: source for key, source in below.items()}


def _table(
    section: str,
    values: dict[str, Any],
    defaults: dict[str, Any],
    sources: dict[str, str],
    *,
    explain: bool = True,
) -> Table:
    """Write what a section says; what has no value, or may not be shown, is a comment."""
    table = tomlkit.table()
    for name, value in values.items():
        default = defaults.get(name)
        meaning = MEANINGS.get(f"{section}.{name}", "") if explain else ""
        if isinstance(value, dict) and meaning:
            table.add(comment(meaning))
            meaning = ""
        if name in HIDDEN or value is None:
            said = f"{name}: {_named(value)}" if name in HIDDEN else f"{name}: not set"
            table.add(comment("; ".join(filter(None, (said, meaning)))))
            continue
        is_usual = value == default or default is None or name in {*EXECUTOR_EXAMPLE, "argv"}
        if not is_usual and not isinstance(value, dict):
            meaning = "; ".join(filter(None, (f"default: {_value(default).as_string()}", meaning)))
        meaning = "; ".join(filter(None, (sources.get(name), meaning)))
        table.add(name, written := _value(value))
        if meaning:
            written.comment(meaning)
            written.trivia.comment_ws = "  "
    table.add(nl())
    return table


def _named(secret: Any) -> str:
    """Name a secret, or the secrets of a table."""
    what = ", ".join(secret) if isinstance(secret, dict) else secret
    return _value(what).as_string() if what else "none"


def _value(value: Any) -> Item:
    """Make a value of TOML; a table is written in one line, with room inside its braces."""
    if not isinstance(value, dict):
        plain: Item = tomlkit.item(value)
        return plain
    table = tomlkit.inline_table()
    room = tomlkit.ws(" " if value else "")
    table.add(room)
    table.update({name: each for name, each in value.items() if each is not None})
    table.add(room)
    return table

"""One name for each setting, however it is spelt.

A key of the configuration has several spellings: camelCase, snake_case, a document's own word for
it. All of them are in the models (rota.config), and nowhere else. `canonical` rewrites a parsed
file so that every key has the one spelling that `rota config` prints; presets, the file and the
environment can then be laid over each other key by key. Two spellings of one key that say
different things are an error. What is not known stays as it is, for the models to complain of.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_origin

from pydantic import AliasChoices, BaseModel

from rota.errors import ConfigError

NAME_SHOWN_MAX = 100


def canonical(model: type[BaseModel], table: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Give a table of the file with its keys, and those inside, spelt one way. Raises ConfigError.

    What means `as it was` is left out, so that it hides nothing of what lies under it.
    """
    known = spellings(model)
    if not where:
        table = undotted(table, known)
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for key, value in table.items():
        name = known.get(key, key)
        inner = model.model_fields.get(_fields(model).get(name, ""))
        path = f"{where}.{key}" if where else str(key)[:NAME_SHOWN_MAX]
        fresh = _inside(inner.annotation, value, path) if inner is not None else value
        if name in found and found[name] != fresh:
            msg = f"{where or 'the file'}: {given[name]} and {key} are one setting, given twice"
            raise ConfigError(msg, hint="leave one of them out")
        found[name] = fresh
        given.setdefault(name, key)
    return without_zeros(model, found) if getattr(model, "ignores_zeros", False) else found


def undotted(table: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """Read `"agent.max_queue_size": 5` as the table that TOML makes of it. Raises ConfigError."""
    found = {key: value for key, value in table.items() if not _is_dotted(key, known)}
    for key, value in table.items():
        if _is_dotted(key, known):
            first, *rest = key.split(".")
            for name in reversed(rest):
                value = {name: value}  # noqa: PLW2901 - wrapped step by step
            found = _laid(found, {first: value}, key)
    return found


def _is_dotted(key: str, known: dict[str, str]) -> bool:
    first, dot, _ = key.partition(".")
    return bool(dot) and first in known


def _laid(under: dict[str, Any], over: dict[str, Any], said: str) -> dict[str, Any]:
    """Lay one table over another that says nothing else of the same."""
    found = dict(under)
    for key, value in over.items():
        old = found.get(key, value)
        if isinstance(old, dict) and isinstance(value, dict):
            found[key] = _laid(old, value, said) if key in found else value
        elif old == value:
            found[key] = value
        else:
            msg = f"{said[:NAME_SHOWN_MAX]} is given twice"
            raise ConfigError(msg, hint="leave one of them out")
    return found


def without_zeros(model: type[BaseModel], table: dict[str, Any]) -> dict[str, Any]:
    """Drop zero numbers and empty strings: they mean `as it was`, where 0 is not a value."""
    return {
        key: value
        for key, value in table.items()
        if value != "" and (value != 0 or value is False or _takes_zero(model, key))
    }


def zeros(model: type[BaseModel], table: dict[str, Any]) -> frozenset[str]:
    """Give the fields of which a table says `as it was`."""
    names, said = spellings(model), without_zeros(model, table)
    return frozenset(_fields(model)[names[key]] for key in table if key not in said)


def _takes_zero(model: type[BaseModel], key: str) -> bool:
    """Whether 0 is a value of a setting: any free port, any number of runs, never."""
    field = model.model_fields.get(_fields(model).get(spellings(model).get(key, ""), ""))
    return field is not None and any(getattr(each, "ge", None) == 0 for each in field.metadata)


@cache
def spellings(model: type[BaseModel]) -> dict[str, str]:
    """Give every spelling of every key of a table, and the one that is printed."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        printed = field.serialization_alias or field.alias or name
        aliases: list[Any] = [printed, field.alias]
        aliases += [name] if model.model_config.get("populate_by_name") else []
        given = field.validation_alias
        aliases += given.choices if isinstance(given, AliasChoices) else [given]
        found |= {alias: printed for alias in aliases if isinstance(alias, str)}
    return found


def names_at(table: Any, path: list[str]) -> list[str]:
    """Give the names of the settings in a table inside of another; none if it has no settings."""
    for part in get_args(table):
        if get_origin(table) is not dict and (found := names_at(part, path)):
            return found
    if get_origin(table) is dict and path:  # its keys are names that people chose
        return names_at(get_args(table)[1], path[1:])
    if not (isinstance(table, type) and issubclass(table, BaseModel)):
        return []
    known = spellings(table)
    if not path:
        return list(dict.fromkeys(known.values()))
    field = table.model_fields.get(_fields(table).get(known.get(path[0], ""), ""))
    return names_at(field.annotation, path[1:]) if field is not None else []


@cache
def _fields(model: type[BaseModel]) -> dict[str, str]:
    """Give the field behind each printed name."""
    return {
        field.serialization_alias or field.alias or name: name
        for name, field in model.model_fields.items()
    }


def _inside(annotation: Any, value: Any, where: str) -> Any:
    """Rewrite what a key holds, if that is a table of settings or a table of such tables."""
    if not isinstance(value, dict):
        return value
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return canonical(annotation, value, where)
    parts = get_args(annotation)
    if get_origin(annotation) is dict:  # its keys are names that people chose
        return {key: _inside(parts[1], each, f"{where}.{key}") for key, each in value.items()}
    for part in parts:
        value = _inside(part, value, where)
    return value

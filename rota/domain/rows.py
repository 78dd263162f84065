"""Functions made once from a table of fields, as dataclasses make theirs.

A million tasks go through them at a start, and a loop over names would take three times as long as
code that names each field. So that code is written here, from the table, instead of by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Way(NamedTuple):
    """How a value goes into a row and comes out of it; None always goes as it is."""

    pack: Callable[[Any], Any] | None
    unpack: Callable[[Any], Any]


def packer(names: Sequence[str], ways: Mapping[str, Way]) -> Callable[[Any], list[Any]]:
    """Make the function that gives the fields of an object as a row."""
    known = {f"pack_{name}": way.pack for name, way in ways.items() if way.pack is not None}
    cells = [
        f"None if it.{name} is None else pack_{name}(it.{name})"
        if f"pack_{name}" in known
        else f"it.{name}"
        for name in names
    ]
    return _made(f"lambda it: [{', '.join(cells)}]", known)


def filler(names: Sequence[str], ways: Mapping[str, Way]) -> Callable[[Any, list[Any]], None]:
    """Make the function that gives an object the fields of a row."""
    known = {f"unpack_{name}": way.unpack for name, way in ways.items()}
    lines = [f"({', '.join(f'it.{name}' for name in names)}) = row"]
    lines += [f"if it.{name} is not None: it.{name} = unpack_{name}(it.{name})" for name in ways]
    return _function("it, row", lines, known)


def beginner(values: Mapping[str, Any]) -> Callable[[Any], None]:
    """Make the function that gives the fields of a new object these values, which are plain."""
    alike: dict[str, list[str]] = {}
    for name, value in values.items():
        alike.setdefault(repr(value), []).append(f"it.{name}")
    lines = [f"{' = '.join(fields)} = {value}" for value, fields in alike.items()]
    return _function("it", lines, {})


def _function(takes: str, lines: list[str], known: dict[str, Any]) -> Callable[..., None]:
    body = "".join(f"    {line}\n" for line in lines)
    exec(f"def made({takes}):\n{body}", known)  # noqa: S102 - of names that the code itself gives
    made: Callable[..., None] = known["made"]
    return made


def _made(source: str, known: dict[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = eval(source, known)  # noqa: S307 - of names that the code itself gives
    return made

"""The words of the API in Python: snake_case for camelCase, seconds for milliseconds.

`wire` writes a body, `reader` gives the function that makes of an answer what a type hint says.
Both go by one rule for names: `timeoutMs` is `timeout_s`, `dependsOn` is `depends_on`. What a task
carries for somebody else (params, results, details) is passed on as it is. `wire` refuses names
that are none of fields.py; `in_python` says what a server refuses in the names that were given.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from rota.client import fields
from rota.errors import InvalidRequest, RotaError
from rota.wording import guess

WIRE_NAMES = {
    "agent": "agentId",
    "actions": "types",
    "everything": "all",
    "expires_s": "expiresInMs",
    "result_ttl_s": "resultTTLSec",
}
"""Names that do not go by the rule."""
PYTHON_NAMES = {there: here for here, there in WIRE_NAMES.items()}
OTHER_NAMES = {"agent": "agent", "project": "projectId", "action": "type", "task_id": "task"}
"""What some answers call something that most call otherwise."""
PASSED_ON = frozenset({"params", "result", "details", "progress"})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CAMEL = re.compile(r"\b[a-z]+(?:[A-Z]+[a-z]*)+\b")
_IN_MS = re.compile(r"(field '[\w.]+Ms'|scheduler\.\w+Ms):")
_TRUE = re.compile(r'"(\w+)": true')
_BOUND = re.compile(r"(?<= than |least | most )\d+(?:\.\d+)?")

Read = Callable[[Any], Any]


def wire_name(name: str) -> str:
    """Give the API's name of a field."""
    if name in WIRE_NAMES:
        return WIRE_NAMES[name]
    head, *rest = (f"{name[:-2]}_ms" if name.endswith("_s") else name).split("_")
    return head + "".join(part.capitalize() for part in rest)


def python_name(name: str) -> str:
    """Give Python's name of a field."""
    if name in PYTHON_NAMES:
        return PYTHON_NAMES[name]
    snake = _HUMP.sub("_", name).lower()
    return f"{snake[:-3]}_s" if snake.endswith("_ms") else snake


def in_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def wire(said: Mapping[str, Any], shape: Any, place: str = "") -> dict[str, Any]:
    """Write what was said as the API does; None is something that was said.

    `shape` is the TypedDict that has its names. Raises InvalidRequest for one that it has not.
    """
    hints = _hints_of(shape)
    for name in said:
        if name not in hints:
            msg = f"unknown field '{place}{name}'{guess(python_name(name), hints)}"
            raise InvalidRequest(msg, details={"field": f"{place}{name}"})
    return {
        wire_name(name): _written(name, value, hints[name], place) for name, value in said.items()
    }


def _written(name: str, value: Any, hint: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return wire(value, hint, f"{place}{name}.") if is_typeddict(hint) else value
    if isinstance(value, list | tuple):
        [inner] = get_args(hint)[:1] or [None]
        return [_written(f"{name}.{at}", each, inner, place) for at, each in enumerate(value)]
    is_in_ms = wire_name(name).endswith("Ms")
    return in_ms(value) if is_in_ms and isinstance(value, int | float) else value


@cache
def _hints_of(shape: Any) -> dict[str, Any]:
    """Give the types of a TypedDict's names, without None."""
    return {name: _without_none(hint) for name, hint in get_type_hints(shape).items()}


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(arm for arm in get_args(hint) if arm is not NoneType)


@cache
def _python_names() -> dict[str, str]:
    """Give the names of fields.py by the API's."""
    shapes = [each for each in vars(fields).values() if is_typeddict(each)]
    return {wire_name(name): name for shape in shapes for name in _hints_of(shape)}


def in_python(error: RotaError) -> RotaError:
    """Have an error name the fields as they are called here, and its bounds in seconds."""
    field = error.details.get("field")
    message = error.message
    if _IN_MS.match(message):
        message = _BOUND.sub(lambda found: f"{float(found[0]) / 1000:.15g}", message)
        message = message.replace("a whole number", "a number")
    if isinstance(field, str):
        name = _place(field)
        message = message.replace(f"'{field}'", f"'{name}'")
        error.details = {**error.details, "field": name}
    message = _TRUE.sub(lambda found: f"{python_name(found[1])}=True", message)
    names = _python_names()
    error.message = _CAMEL.sub(lambda found: names.get(found[0], found[0]), message)
    error.args = (error.message,)
    return error


def _place(field: str) -> str:
    """Write the way to a field; what is inside of what is passed on is not ours to name."""
    names = field.split(".")
    ours = next((at for at, name in enumerate(names) if name in PASSED_ON), len(names))
    return ".".join([*map(python_name, names[:ours]), *names[ours:]])


def _python(name: str, value: Any) -> Any:
    """Read fields that a request could have, so that they can be asked for again."""
    if name in PASSED_ON:
        return value
    if isinstance(value, dict):
        return {python_name(each): _python(each, inner) for each, inner in value.items()}
    if isinstance(value, list):
        return [_python("", each) for each in value]
    return value / 1000 if name.endswith("Ms") and isinstance(value, int | float) else value


@cache
def reader(hint: Any) -> Read | None:
    """Give what makes a value of this type of a part of an answer; None if it is one already."""
    hint = _without_none(hint)
    if get_origin(hint) is list:
        one = reader(get_args(hint)[0])
        return (lambda rows: [one(row) for row in rows]) if one is not None else None
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _reader_of(hint)
    if is_typeddict(hint):
        return lambda value: _python("", value)
    return _moment if hint is datetime else None


def _reader_of(model: type[Any]) -> Read:
    """Read a model: what it has no field for is left out, what is not said stays at its default."""
    hints = get_type_hints(model)
    reads = {
        field.name: _seconds if field.name.endswith("_s") else reader(hints[field.name])
        for field in dataclasses.fields(model)
    }
    names = {OTHER_NAMES[name]: (name, read) for name, read in reads.items() if name in OTHER_NAMES}
    names |= {wire_name(name): (name, read) for name, read in reads.items()}

    def make(answer: Mapping[str, Any]) -> Any:
        given: dict[str, Any] = {}
        for name, value in answer.items():
            if value is not None and name in names:
                field, read = names[name]
                given[field] = value if read is None else read(value)
        return model(**given)

    return make


def _seconds(value: float) -> float:
    return value / 1000


def _moment(value: str | int) -> datetime:
    """Read RFC 3339, or the microseconds of an event."""
    if isinstance(value, int):
        return EPOCH + timedelta(microseconds=value)
    return datetime.fromisoformat(value)

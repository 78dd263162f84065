"""What is wrong with a value, in rota's own words.

Bodies and configuration files are validated by pydantic; its words for what is wrong are about its
own insides. The sentences here are about the value, and there is one for every kind of complaint
that a model of ours can make. Also the one way in which our models refuse what they do not know:
at the first unknown key, so that a body of a hundred thousand of them costs nothing.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

NO_EXECUTOR = "no executor is configured for it: it waits for a worker to take it"
RETRY_ON = r"^(timeout|connection|status:[1-5](\d\d|xx)|code:[^\s]{1,100})$"
HTTP_URL = r"^https?://[^\s]+$"
API_PATH = r"^/api/[A-Za-z0-9_./-]+$"
ORIGIN = r"^https?://[^\s/*@?#]+$"
NAMESPACE = r"^[a-z0-9][a-z0-9-]{0,62}$"
_PATTERNS = {
    RETRY_ON: "must be timeout, connection, status:503, status:5xx or code:NAME",
    HTTP_URL: "must be a URL that begins with http:// or https://",
    API_PATH: "must be a path under /api/ of letters, digits and . _ / -",
    ORIGIN: "must be an origin such as http://localhost:5173: no path, and no *",
    NAMESPACE: "must be small letters, digits and -, at most 63, and begin with no -",
}

UNKNOWN = "unknown_field"
_TYPES = {
    "string_type": "a string",
    "string_unicode": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""What a value of the wrong type should have been."""
_RULES: dict[str, Callable[[dict[str, Any]], str]] = {
    "missing": lambda _: "is missing",
    "extra_forbidden": lambda _: "is not known",
    UNKNOWN: lambda ctx: f"is not known{ctx['guess']}",
    "string_too_long": lambda ctx: f"must have at most {ctx['max_length']} characters",
    "string_too_short": lambda ctx: f"must have at least {ctx['min_length']} characters",
    "string_pattern_mismatch": lambda ctx: _PATTERNS.get(
        ctx["pattern"], "is not of the right form"
    ),
    "too_long": lambda ctx: f"must have at most {ctx['max_length']} items",
    "too_short": lambda ctx: f"must have at least {_items(ctx['min_length'])}",
    "greater_than": lambda ctx: f"must be more than {_number(ctx['gt'])}",
    "greater_than_equal": lambda ctx: f"must be at least {_number(ctx['ge'])}",
    "less_than": lambda ctx: f"must be less than {_number(ctx['lt'])}",
    "less_than_equal": lambda ctx: f"must be at most {_number(ctx['le'])}",
    "finite_number": lambda _: "must be a finite number",
    "int_parsing_size": lambda _: "is too large a number",
    "literal_error": lambda ctx: f"must be {ctx['expected']}",
    "value_error": lambda ctx: str(ctx["error"]),
}
"""What a value of the right type fails to be."""
_TAG = re.compile(r"int|str|float|bool|(constrained|function)-.*|.*\[.*|.*\(.*")
"""What pydantic names the members of a union; no field of ours is named so."""


def known_only(model: type[BaseModel], data: Any) -> Any:
    """Refuse the first key that a model does not know, before anything else is looked at."""
    if isinstance(data, dict):
        known = _known(model)
        for key in data:
            if key not in known:
                name = str(key)[:100]
                context = {"name": name, "guess": guess(name, known)}
                raise PydanticCustomError(UNKNOWN, "unknown field", context)
    return data


def guess(name: str, known: Iterable[str]) -> str:
    """Give the end of a sentence that asks for the known name that is most like this one.

    Of a name in camelCase and in snake_case it is the one in camelCase, as the documents have it.
    """
    by_lower = {each.lower().replace("_", ""): each for each in sorted(known, reverse=True)}
    close = get_close_matches(name.lower().replace("_", ""), by_lower, n=1, cutoff=0.6)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""


_names: dict[type[BaseModel], frozenset[str]] = {}


def _known(model: type[BaseModel]) -> frozenset[str]:
    """Give every key that a model takes, by whichever name."""
    found = _names.get(model)
    if found is None:
        names: set[str] = set()
        for name, field in model.model_fields.items():
            alias = field.validation_alias or field.alias
            by_name = alias is None or model.model_config.get("populate_by_name")
            names |= {*getattr(alias, "choices", (alias,)), *((name,) if by_name else ())}
        found = _names[model] = frozenset(filter(None, names))
    return found


def first_wrong(error: ValidationError) -> tuple[str, str, str]:
    """Give the first thing that is wrong: its kind, its place, and what is wrong with it."""
    return next(all_wrong(error))


def all_wrong(error: ValidationError) -> Iterator[tuple[str, str, str]]:
    """Give everything that is wrong, once for each place."""
    places: dict[str, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False, include_input=False):
        places.setdefault(place_of(each), []).append(each)
    for place, same in places.items():
        chosen = next((each for each in same if each["type"] not in _TYPES), None)
        if chosen is None:
            wanted = dict.fromkeys(_TYPES[each["type"]] for each in same)
            yield same[0]["type"], place, f"must be {' or '.join(wanted)}"
        else:
            yield chosen["type"], place, _rule(chosen)


def _rule(error: ErrorDetails) -> str:
    rule = _RULES.get(error["type"])
    return rule(error.get("ctx", {})) if rule is not None else "is not valid"


def place_of(error: ErrorDetails) -> str:
    """Name the place of an error by the keys that lead to it."""
    parts = [str(part)[:100] for part in error["loc"]]
    last = [error["ctx"]["name"]] if error["type"] == UNKNOWN else []
    if error["type"] == "extra_forbidden":
        last = [parts.pop()]
    return ".".join([*(part for part in parts if not _TAG.fullmatch(part)), *last])


def _items(count: int) -> str:
    return "one item" if count == 1 else f"{count} items"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)

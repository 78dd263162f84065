"""Values put in where params say `{{name}}`, and `{{name.field.0}}` for what is inside of one.

A string that is one placeholder becomes the value itself; inside a longer one the value is written
as text, JSON if it is not a string. What comes of it is bounded in bytes and in depth, and
so are the placeholders in number and length. `Filling` is the walk; what a name stands for is for
who fills in to say: the results of a task's dependencies (rota.domain.dependencies), or values that
are at hand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from rota.domain.values import DEPTH_MAX, is_too_deep
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILLED_BYTES_MAX = 4 << 20
PLACES_MAX = 10_000
NAMES_CHARS_MAX = 1 << 20
"""How long the names in all placeholders may be together: looking them up takes that long."""
_PLACE = re.compile(r"\{\{([^{}]{1,400}+)\}\}")


class Filling:
    """Fills in params, once."""

    def __init__(self) -> None:
        self._places = PLACES_MAX
        self._chars = NAMES_CHARS_MAX
        self._left = FILLED_BYTES_MAX

    def value_of(self, name: str) -> tuple[bool, Any]:
        """Say whether a name stands for something, and for what. Raises InvalidRequest."""
        raise NotImplementedError

    def fill_in(self, params: dict[str, Any]) -> dict[str, Any]:
        """Give params with the values in them. Raises InvalidRequest if they get too large."""
        filled: dict[str, Any] = self._fill(params)
        if self._places == PLACES_MAX:
            return params  # there was no placeholder
        try:
            raw = orjson.dumps(filled)
        except TypeError:
            raw = None
        if raw is None or is_too_deep(raw, filled):
            msg = f"params are nested deeper than {DEPTH_MAX} levels with the results filled in"
            raise InvalidRequest(msg)
        return filled

    def spend(self, size: int) -> None:
        """Count the bytes of a value that is filled in. Raises InvalidRequest."""
        self._left -= size
        if self._left < 0:
            msg = f"params are larger than {FILLED_BYTES_MAX} bytes with the results filled in"
            raise InvalidRequest(msg)

    def _fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._fill_text(value) if "{{" in value else value
        if isinstance(value, dict):
            return {key: self._fill(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._fill(each) for each in value]
        return value

    def _fill_text(self, text: str) -> Any:
        whole = _PLACE.fullmatch(text)
        if whole is not None:
            found, value = self._look_up(whole[1])
            return value if found else text

        def put(match: re.Match[str]) -> str:
            found, value = self._look_up(match[1])
            if not found:
                return match[0]
            return value if isinstance(value, str) else orjson.dumps(value).decode()

        return _PLACE.sub(put, text)

    def _look_up(self, name: str) -> tuple[bool, Any]:
        self._places -= 1
        if self._places < 0:
            msg = f"params have more than {PLACES_MAX} placeholders"
            raise InvalidRequest(msg)
        self._chars -= len(name)
        if self._chars < 0:
            msg = f"placeholders in params are longer than {NAMES_CHARS_MAX} characters in all"
            raise InvalidRequest(msg)
        return self.value_of(name.strip())


class AtHand(Filling):
    """Fills in what is at hand: every name must stand for something, and every path lead there."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self._values = values

    def value_of(self, name: str) -> tuple[bool, Any]:
        root, *path = name.split(".")
        if root not in self._values:
            raise _nothing(name)
        value = self._values[root]
        for step in path:
            if not _has(value, step):
                raise _nothing(name)
            value = inside(value, step)
        self.spend(len(orjson.dumps(value)))
        return True, value


def _nothing(name: str) -> InvalidRequest:
    return InvalidRequest(f"params: there is nothing for the placeholder '{{{{{name[:100]}}}}}'")


def _has(value: Any, step: str) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and _is_index(step) and int(step) < len(value)


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) <= len(str(FILLED_BYTES_MAX))


def inside(value: Any, step: str) -> Any:
    """Give what one step leads to; null if it leads nowhere."""
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and _is_index(step) and int(step) < len(value):
        return value[int(step)]
    return None


def names_in(value: Any) -> Iterator[str]:
    """Give the names of all placeholders in params, as they are written."""
    if isinstance(value, str):
        yield from (match.strip() for match in _PLACE.findall(value))
    elif isinstance(value, dict):
        for each in value.values():
            yield from names_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each)

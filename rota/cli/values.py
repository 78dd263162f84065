"""The values that options take: durations, moments, params, how long to wait.

Each is read as people write it and given as the API wants it; what cannot be read is refused with
an example of what can.
"""

from __future__ import annotations

import json
import re
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from rota.clock import US_PER_MS, SystemClock, parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = "60"
WAIT_S_MAX = 24 * 3600
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _span_ms(text: str) -> int | None:
    found = _SPAN.fullmatch(text)
    return round(float(found[1]) * _UNITS_MS[found[2]]) if found else None


class Duration(click.ParamType[int]):
    """A length of time with its unit, in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        ms = _span_ms(str(value))
        if ms is None:
            self.fail(f"{value!r} is not like 500ms, 5s, 2m, 1h or 1d", param, ctx)
        return ms


class Moment(click.ParamType[str]):
    """A moment, or how far ahead it is."""

    name = "moment"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Give it as RFC 3339."""
        ahead_ms = _span_ms(value.removeprefix("+")) if value.startswith("+") else None
        try:
            if ahead_ms is not None:
                return rfc3339(SystemClock().now_us() + ahead_ms * US_PER_MS)
            parse_rfc3339(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not like +30s, +5m or 2026-03-08T12:05:00Z", param, ctx)
        return str(value)


class Param(click.ParamType[tuple[str, Any]]):
    """`key=value`, the value being JSON if it parses as such and text if not, or always text."""

    name = "key=value"

    def __init__(self, *, is_text: bool = False) -> None:
        self._is_text = is_text

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        key, sign, text = str(value).partition("=")
        if not sign or not key:
            self.fail(f"{value!r} is not KEY=VALUE, such as url=https://example.com", param, ctx)
        if self._is_text:
            return key, text
        try:
            return key, json.loads(text)
        except ValueError:
            return key, text


class Params(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, Any]:
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("must be a JSON object, such as '{\"ms\": 100}'", param, ctx)
        return found


def param_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say params, and all of them together as `params`."""

    @click.option(
        "--param",
        "pairs",
        type=Param(),
        multiple=True,
        help="One param; the value is JSON if it can be (n=1 is a number), else text; repeatable.",
    )
    @click.option(
        "--param-str",
        "texts",
        type=Param(is_text=True),
        multiple=True,
        help="One param whose value is text, also if it looks like JSON; repeatable.",
    )
    @click.option("--params", type=Params(), help="All params, as a JSON object.")
    @wraps(command)
    def call(*args: Any, pairs: Any, texts: Any, params: Any, **options: Any) -> None:
        said = params if not (pairs or texts) else {**(params or {}), **dict(pairs), **dict(texts)}
        command(*args, params=said, **options)

    return call


class Priority(click.ParamType[int | str]):
    """A number, or one of the words that stand for some."""

    name = "priority"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """Tell numbers from words; the server knows which there are."""
        del param, ctx
        return int(value) if re.fullmatch(r"-?\d{1,18}", value, re.ASCII) else str(value)


class Seconds(click.ParamType[float]):
    """How long to wait; made for an option whose value may be left out."""

    name = "seconds"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Give it as a number; a bare one is in seconds already."""
        ms = _span_ms(str(value))
        try:
            seconds = float(value) if ms is None else ms / 1000
        except ValueError:
            self.fail(f"{value!r} is not like 10, 10s or 5m; write --wait last", param, ctx)
        if not 0 <= seconds <= WAIT_S_MAX:
            self.fail(f"must be from 0 to {WAIT_S_MAX}", param, ctx)
        return seconds


wait_option = click.option(
    "--wait",
    "wait_s",
    type=Seconds(),
    is_flag=False,
    flag_value=WAIT_S,
    help=f"Wait for the end, {WAIT_S} s at most unless given; exit 0 only if it is a success.",
)

"""The one place where wall time is read.

Everything else gets `now` as a value in integer microseconds UTC. `SystemClock` is for a
running server, `ManualClock` for the simulator and for tests, which move it by hand.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

US_PER_MS = 1_000
US_PER_S = 1_000_000


class Clock(Protocol):
    """A source of `now`, in microseconds since the epoch."""

    def now_us(self) -> int:
        """Give the present moment."""
        ...


class SystemClock:
    """Wall time as the machine tells it."""

    def now_us(self) -> int:
        """Give the present moment (through `time.time`, so that freezegun can hold it)."""
        return int(time.time() * US_PER_S)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_us: int = 1_700_000_000 * US_PER_S) -> None:
        """Start at `now_us`."""
        self._now_us = now_us

    def now_us(self) -> int:
        """Give the moment the clock was last moved to."""
        return self._now_us

    def advance_us(self, delta_us: int) -> None:
        """Move forward; time never goes back."""
        assert delta_us >= 0
        self._now_us += delta_us

    def move_to(self, at_us: int) -> None:
        """Move to `at_us`, or stay if that is already past."""
        self._now_us = max(self._now_us, at_us)


def monotonic_s() -> float:
    """Seconds on a clock that never jumps; only differences mean anything."""
    return time.monotonic()


def perf_s() -> float:
    """Seconds on the finest clock, for measuring; only differences mean anything."""
    return time.perf_counter()


def sleep_s(seconds: float) -> None:
    """Block this thread; for threads and command lines, never on the event loop."""
    time.sleep(seconds)


def rfc3339(at_us: int) -> str:
    """Write a moment as RFC 3339 in UTC, with as many decimals as it needs."""
    whole, rest = divmod(at_us, US_PER_S)
    if not rest:
        return _second(whole) + "Z"
    return f"{_second(whole)}.{rest:06d}".rstrip("0") + "Z"


@lru_cache(maxsize=1024)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_rfc3339(text: str) -> int:
    """Read an RFC 3339 timestamp; it must carry its offset. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        msg = "a timestamp needs a date, a time and an offset, such as 2026-03-08T12:05:00Z"
        raise ValueError(msg)
    try:
        delta = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError:
        msg = "the timestamp is out of range"
        raise ValueError(msg) from None
    return (delta.days * 86_400 + delta.seconds) * US_PER_S + delta.microseconds

"""The one place where time is read.

Everything else gets `now` as a value in integer microseconds UTC. A wall clock may be set to
another time while a server runs, so a clock here is a line of time over two of them: it tells the
wall clock's time as long as that goes on as the steady one does, and goes on by the steady one
when the wall clock was set, until somebody takes the step over. `SystemClock` is for a running
server, `ManualClock` for the simulator and for tests, which move it by hand.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol

US_PER_MS = 1_000
US_PER_S = 1_000_000
STEP_US = 500_000
"""How far the two clocks may part before it is a step. Half a second to either side: so nothing
that is counted from one moment to another is ever off by more than a second."""
BELIEVED_US = 5 * US_PER_S
"""After a start or a step forward, the time that was jumped over is doubted for so long.

It is longer than a step back takes to be noticed. So a clock that is ahead for a few seconds makes
no moment of the calendar come.
"""
_AT_ONCE_US = 10_000
_LOOKS = 5


class Step(NamedTuple):
    """The wall clock was set: what the time was, and what it is."""

    was: int
    now: int


class Clock(Protocol):
    """A line of time, in microseconds since the epoch."""

    shift_us: int
    """By how much it has been set since it began, forward and back added up."""

    def now_us(self) -> int: ...

    def take_over(self) -> Step | None:
        """If the wall clock was set, go on from what it says now."""
        ...

    def doubts(self, at_us: int) -> int:
        """Say for how long, in µs, it is still doubted that this moment has come."""
        ...


class Timeline:
    """A line of time over a wall clock and a steady one; it goes back only in `take_over`."""

    def __init__(self) -> None:
        self.shift_us = 0
        self._jumps = [(self.steady_us(), 0)]  # when, and from which moment: a start is one
        self._anchor()

    def wall_us(self) -> int:
        raise NotImplementedError

    def steady_us(self) -> int:
        """Read the clock that nobody sets; only differences mean anything."""
        raise NotImplementedError

    def _anchor(self) -> None:
        self._latest = self.wall_us()
        self._apart = self._ahead = self._latest - self.steady_us()

    def now_us(self) -> int:
        """Give the present moment; never before one that was given already."""
        steady = self.steady_us()
        ahead = self.wall_us() - steady
        if -STEP_US <= ahead - self._apart <= STEP_US:
            self._ahead = ahead
        now = steady + self._ahead
        self._latest = max(self._latest, now)
        return self._latest

    def take_over(self) -> Step | None:
        if not self._is_apart():
            return None
        was = self.steady_us() + self._apart  # not what small steps made of it: they would add up
        self._anchor()
        self.shift_us += self._latest - was
        if self._latest > was:
            self._jumps.append((self.steady_us(), was))
        return Step(was, self._latest)

    def doubts(self, at_us: int) -> int:
        """Say for how long, in µs, it is still doubted that this moment has come.

        It is while the clock has jumped over it only just now; not if it came by itself.
        """
        steady = self.steady_us()
        self._jumps = [jump for jump in self._jumps if steady - jump[0] < BELIEVED_US]
        doubts = (BELIEVED_US - (steady - when) for when, was in self._jumps if was < at_us)
        return max(doubts, default=0)

    def _is_apart(self) -> bool:
        """Compare the clocks, by readings between which the process was not held up."""
        for _ in range(_LOOKS):
            before, wall = self.steady_us(), self.wall_us()
            if -STEP_US <= wall - before - self._apart <= STEP_US:
                return False
            if self.steady_us() - before < _AT_ONCE_US:
                return True
        return False  # too busy to tell; the next look will


class SystemClock(Timeline):
    """Time as the machine tells it."""

    def wall_us(self) -> int:
        """Read the wall clock (through `time.time`, so that freezegun can hold it)."""
        return int(time.time() * US_PER_S)

    def steady_us(self) -> int:
        """Read the clock that nobody sets (and which freezegun leaves alone)."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000

    def now_us(self) -> int:
        """Give the present moment, without a detour: it is asked for several times a task."""
        steady = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        ahead = int(time.time() * US_PER_S) - steady
        if -STEP_US <= ahead - self._apart <= STEP_US:
            self._ahead = ahead
        now = steady + self._ahead
        self._latest = max(self._latest, now)
        return self._latest


class ManualClock(Timeline):
    """A clock that stands still until it is moved."""

    def __init__(self, now_us: int = 1_700_000_000 * US_PER_S) -> None:
        self._wall_us, self._steady_us = now_us, 0
        super().__init__()

    def wall_us(self) -> int:
        return self._wall_us

    def steady_us(self) -> int:
        return self._steady_us

    def advance_us(self, delta_us: int) -> None:
        """Let time pass."""
        assert delta_us >= 0
        self._wall_us += delta_us
        self._steady_us += delta_us

    def move_to(self, at_us: int) -> None:
        """Let time pass until `at_us`, or stay if that is already past."""
        self.advance_us(max(0, at_us - self.now_us()))

    def step_us(self, delta_us: int) -> None:
        """Set the wall clock forward or back, in no time."""
        self._wall_us += delta_us

    def begin_anew(self) -> None:
        """Be the clock of another process, which knows of no step."""
        Timeline.__init__(self)


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

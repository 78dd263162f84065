"""Clocks for servers under test: the wall clock can be set, and time can be let pass.

`SetClock` is the machine's own clock with a wall clock that a test sets; `passing` lets the clocks
of every server in this process go on from a later moment, as if so much time had passed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rota.clock import US_PER_S, SystemClock, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator


class SetClock(SystemClock):
    """The machine's clock, set forward or back by a test."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        """Begin so far ahead of the machine."""
        self.ahead_s = ahead_s
        super().__init__()

    def begin_anew(self) -> None:
        """Be the clock of another process, which knows of no step."""
        Timeline.__init__(self)

    def wall_us(self) -> int:
        """Read the wall clock."""
        return super().wall_us() + round(self.ahead_s * US_PER_S)

    def now_us(self) -> int:
        """Give the present moment by the clock as it is set."""
        return Timeline.now_us(self)


class Passing:
    """How much time was let pass."""

    def __init__(self, seconds: float) -> None:
        """Begin so much later."""
        self._us = round(seconds * US_PER_S)

    def tick(self, seconds: float) -> None:
        """Let more time pass."""
        self._us += round(seconds * US_PER_S)

    def __call__(self, read_us: int) -> int:
        """Read a clock that so much time has passed on."""
        return read_us + self._us


@contextlib.contextmanager
def passing(seconds: float = 0.0) -> Iterator[Passing]:
    """Let time pass for every server of this process, by its wall clock and its steady one."""
    wall, steady, now = SystemClock.wall_us, SystemClock.steady_us, SystemClock.now_us
    passed = Passing(seconds)
    SystemClock.wall_us = lambda self: passed(wall(self))  # type: ignore[method-assign]
    SystemClock.steady_us = lambda self: passed(steady(self))  # type: ignore[method-assign]
    SystemClock.now_us = Timeline.now_us  # type: ignore[method-assign] # by way of those two
    try:
        yield passed
    finally:
        SystemClock.now_us = now  # type: ignore[method-assign]
        SystemClock.wall_us, SystemClock.steady_us = wall, steady  # type: ignore[method-assign]

"""Notices that the clock was set, and makes it a fact.

The line of time (rota.clock) goes on steadily while the wall clock is set forward or back; `look`
takes such a step over and records `clock_stepped`, whose fold carries everything over that is
counted from something that happened. `begin` does the same for what the log has not heard of: that
the clock is behind the last record after a restart, or a step whose record was lost with the disk.
A clock may be ahead at a start, which looks like time that passed. So what has happened is not
forgotten by it for a while, and a step back within that time sets it right, also after another
start: how long the clock is doubted, and since when, is in the log (rota/projections/steps.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota.clock import STEP_US, US_PER_S, rfc3339

if TYPE_CHECKING:
    from rota.actors.journal import Journal
    from rota.clock import Clock

logger = logging.getLogger("rota.clock")

LOOK_S = 0.9
"""How often a server looks at its clock when nothing else makes it: within a second."""


SETTLES_US = 600 * US_PER_S
"""For so long after a start the clock may be set right, and nothing is forgotten by it."""
GAP_US = 60 * US_PER_S
"""A shorter time between the last record and a start is believed at once."""


class Timekeeper:
    """Keeps the log's time in step with the clock's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._journal: Journal | None = None
        self._base: int | None = None  # how far the log's clock had been set when this one began
        self._is_doubted = False  # whether the clock may have been ahead at the start

    def begin(self, journal: Journal) -> None:
        """Go on with a journal at which nothing has been recorded yet."""
        state, clock = journal.state, self._clock
        self._journal = journal
        if self._base is None:
            clock.take_over()  # nothing was recorded before it
            self._base = state.steps.shift - clock.shift_us
            behind = state.at - clock.now_us()
            if behind > STEP_US:
                self._base -= behind
            gap_us = -behind if state.at else 0
            self._is_doubted = gap_us > GAP_US or state.at < state.steps.settles_at
        self.look()

    def settles_at(self) -> int | None:
        """Say until when nothing is to be forgotten after this start, if the clock may be ahead.

        It may be as well if the server before this one ended before its clock was believed.
        """
        return self._clock.now_us() + SETTLES_US if self._is_doubted else None

    def follow(self, journal: Journal) -> None:
        """Tell a journal how far the clock has been set, so that its time goes on as the log's."""
        if self._base is not None:
            journal.shift_us = self._base + self._clock.shift_us

    def look(self) -> None:
        """Take over a step of the clock, if there was one and it can be recorded.

        A step that could not be recorded is, by the next look; until then records are dated as if
        the clock had not been set.
        """
        journal = self._journal
        if journal is None or self._base is None or journal.failure is not None:
            return
        self._clock.take_over()
        self.follow(journal)
        by_us = journal.shift_us - journal.state.steps.shift
        if not by_us:
            return
        now = self._clock.now_us()
        was = now - by_us
        try:
            for part in journal.state.steps.parts_of(was, now):
                journal.record(part, at=part.now)
        except Exception:
            logger.exception("a step of the clock could not be recorded")
            return
        logger.warning(
            "the clock was set %s by %.1f s: it was %s and is %s",
            "forward" if now > was else "back",
            abs(now - was) / US_PER_S,
            rfc3339(was),
            rfc3339(now),
        )

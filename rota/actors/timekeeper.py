"""Notices that the clock was set, and makes it a fact.

The line of time (rota.clock) goes on steadily while the wall clock is set forward or back; `look`
takes such a step over and records `clock_stepped`, whose fold carries everything over that is
counted from something that happened. `begin` does the same for what the log has not heard of: that
the clock is behind the last record after a restart, or a step whose record was lost with the disk.
A clock may be ahead at a start, which looks like time that passed. So what has happened is not
forgotten by it for a while, and a step back within that time sets it right.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota.clock import STEP_US, US_PER_S, rfc3339
from rota.domain.events import ClockStepped

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
        self._gap_us = self._settles_us = 0

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
            if state.at and -behind > GAP_US:
                self._gap_us = -behind
                self._settles_us = clock.now_us() - clock.shift_us + SETTLES_US
        self.look()

    def settles_at(self) -> int | None:
        """Say until when nothing is to be forgotten by the clock, if it may be ahead."""
        at = self._settles_us + self._clock.shift_us
        return at if self._clock.now_us() < at else None

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
        corrects = -self._gap_us <= by_us < 0 and self.settles_at() is not None
        try:
            journal.record(ClockStepped(was, now, corrects or None), at=now)
        except Exception:
            logger.exception("a step of the clock could not be recorded")
            return
        if corrects:
            self._gap_us += by_us
        logger.warning(
            "the clock was set %s by %.1f s: it was %s and is %s",
            "forward" if now > was else "back",
            abs(now - was) / US_PER_S,
            rfc3339(was),
            rfc3339(now),
        )

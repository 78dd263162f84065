"""A bound on how often one thing is said in the process's log.

What strangers cause must not fill a disk: of many lines in a short time only the first few are
written, and the next one that is written says how many were left out. Lines that name whom they
are about have a share for each of these (rota.domain.shares), so that one leaves room for another.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota.clock import monotonic_s
from rota.domain.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable


class LogRate:
    """Lets through so many lines in each span of time."""

    def __init__(
        self, lines_max: int, span_s: float, clock: Callable[[], float] = monotonic_s
    ) -> None:
        self._lines_max = lines_max
        self._shares = Shares(lines_max)
        self._span_s = span_s
        self._clock = clock
        self._since = float("-inf")
        self._left_out = 0

    def warn(
        self, logger: logging.Logger, message: str, *values: object, owner: str | None = None
    ) -> None:
        """Write a warning, or count it if there were enough of late."""
        self.log(logging.WARNING, logger, message, *values, owner=owner)

    def log(
        self,
        level: int,
        logger: logging.Logger,
        message: str,
        *values: object,
        owner: str | None = None,
    ) -> None:
        """Write a line, or count it if there were enough of late, or enough about its owner."""
        now = self._clock()
        if now - self._since >= self._span_s:
            self._since, self._shares = now, Shares(self._lines_max)
        is_full = self._shares.held >= self._lines_max
        if is_full or not (owner is None or self._shares.has_room(owner)):
            self._left_out += 1
            return
        self._shares.add(owner or "")
        if self._left_out:
            message += " (%d lines like this one were left out before it)"
            values = (*values, self._left_out)
            self._left_out = 0
        logger.log(level, message, *values)

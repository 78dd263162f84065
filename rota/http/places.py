"""Who holds the server's connections, and who gives way when they run short.

A connection owes us something (headers or a body that have not come), is idle between requests, has
a request that waits (a long poll, a stream), has an answer that it does not read, or is being
served. The first four give way to somebody new. Most are closed. One that waits is answered early:
the caller with the most of them gives way first, with the one that has waited longest. Those that
wait never take all places, and callers have shares of what they may take. Who has just come owes,
too: so half of the places are left to newcomers before they are taken from each other.

Some connections are taken above the limit: those that give way until they are answered, and
newcomers until their request tells whether it is one that is served all the same. The oldest of
these newcomers is closed for the next one. Knows nothing of sockets.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rota.domain.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")

EXCESS_MAX = 256
"""Connections above the limit: those that are answered early, and those that are looked at."""


UNREAD_BYTES_MAX = 128 << 20
"""How much of answers that are not read is held, for all connections together."""


class Unread(NamedTuple):
    """An answer that waits to be read: since when, how much was left then, and what it holds."""

    since: float
    size: int
    held: int


class Places(Generic[C]):
    """The open connections, by what they do."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[C, None] = {}
        self._excess: dict[C, float] = {}
        self._ending: dict[C, None] = {}  # above the limit, too, until they are answered
        self._waiting: dict[C, str] = {}  # for whom, who has waited longest first
        self.waiting = Shares(most - most // 10)
        self._owing: dict[C, float] = {}
        self._idle: dict[C, None] = {}
        self._unread: dict[C, Unread] = {}
        self._unread_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: C, now: float) -> bool:
        """Give a place to a new connection; False if all are taken."""
        if self.is_full:
            self._excess[connection] = now
            return False
        self._open[connection] = None
        self._owing[connection] = now
        return True

    def leave(self, connection: C) -> None:
        """Take the place of a connection that is closed, or is about to be."""
        for each in (self._open, self._excess, self._ending, self._owing, self._idle):
            each.pop(connection, None)
        self.waits_no_more(connection)
        self.reads(connection)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._most

    @property
    def is_overrun(self) -> bool:
        """Whether there are as many above the limit as there may be."""
        return len(self._excess) + len(self._ending) >= EXCESS_MAX

    @property
    def is_watched(self) -> bool:
        """Whether somebody's time can be over soon."""
        return bool(self._owing or self._excess or self._unread)

    # -- what a connection does

    def owes(self, connection: C, now: float) -> None:
        """Wait for its bytes; the time counts from the first thing that was missing."""
        if connection in self._open:
            self._idle.pop(connection, None)
            self._owing.setdefault(connection, now)

    def served(self, connection: C) -> None:
        """Know that it has said all that we need."""
        self._idle.pop(connection, None)
        self._owing.pop(connection, None)
        if self._excess.pop(connection, None) is not None:
            self._ending[connection] = None

    def waits(self, connection: C, share: str) -> bool:
        """Know that it can be answered early; False if its caller's share is taken."""
        if connection not in self._open:
            return True
        if not self.waiting.take(share):
            return False
        self._waiting[connection] = share
        return True

    def waits_no_more(self, connection: C) -> None:
        share = self._waiting.pop(connection, None)
        if share is not None:
            self.waiting.give_back(share)

    def gives_way(self, connection: C) -> None:
        """Take the place of one that waits; it is above the limit until it is answered."""
        self.leave(connection)
        self._ending[connection] = None

    def rests(self, connection: C) -> None:
        """Know that it was answered, and may ask again."""
        if connection in self._open:
            self._owing.pop(connection, None)
            self._idle[connection] = None

    def unread(self, connection: C, now: float, size: int, held: int = 0) -> None:
        """Know that it does not read its answer, of which so much is left.

        An answer is held whole until its last byte is taken: `held`, if that is more.
        """
        if connection in self._open or connection in self._ending:
            self.reads(connection)
            seen = self._unread[connection] = Unread(now, size, max(size, held))
            self._unread_bytes += seen.held

    def reads(self, connection: C) -> None:
        seen = self._unread.pop(connection, None)
        if seen is not None:
            self._unread_bytes -= seen.held

    # -- who gives way

    def giving_way(self) -> C | None:
        """Name who gives way to somebody new; None if all are being served."""
        if len(self._owing) >= max(1, self._most // 2):
            return next(iter(self._owing))
        return next(chain(self._idle, self._of_most(), self._owing, self._unread), None)

    def _of_most(self) -> Iterator[C]:
        """Give those who wait for the caller with most of them, if one more can be answered now."""
        most = self.waiting.largest() if not self.is_overrun else None
        yield from (each for each, share in self._waiting.items() if share == most)

    def oldest_excess(self) -> C | None:
        """Name who has been looked at for longest above the limit."""
        return next(iter(self._excess), None)

    def reading_least(self) -> C | None:
        """Name whose answer has not been read for longest, if there is too much of them all."""
        if self._unread_bytes <= UNREAD_BYTES_MAX or len(self._unread) == 1:
            return None
        return next(iter(self._unread))

    def owing_since(self, before: float) -> Iterator[C]:
        """Give those who have owed us something, or were above the limit, since before then."""
        for each in (self._owing, self._excess):
            for connection, since in list(each.items()):
                if since > before:
                    break
                yield connection

    def unread_since(self, before: float) -> Iterator[tuple[C, Unread]]:
        """Give those who have had an answer to read since before then."""
        for connection, seen in list(self._unread.items()):
            if seen.since <= before:
                yield connection, seen

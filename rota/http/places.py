"""Who holds the server's connections, and who gives way when they run short.

A connection owes us something (headers or a body that have not come), is idle between requests, has
an answer that it does not read, or is being served. The first three can be closed for somebody new,
those that owe first, the oldest first; who is being served never is. Whoever has just come owes,
too: so half of the places are left to newcomers before they are taken from each other. Knows
nothing of sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")

EXCESS_MAX = 256
"""Connections above the limit that are kept for as long as it takes to refuse them."""


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
        for each in (self._open, self._excess, self._owing, self._idle):
            each.pop(connection, None)
        self.reads(connection)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._most

    @property
    def is_overrun(self) -> bool:
        """Whether there are so many above the limit that one more is not even refused."""
        return len(self._excess) >= EXCESS_MAX

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

    def rests(self, connection: C) -> None:
        """Know that it was answered, and may ask again."""
        if connection in self._open:
            self._owing.pop(connection, None)
            self._idle[connection] = None

    def unread(self, connection: C, now: float, size: int, held: int = 0) -> None:
        """Know that it does not read its answer, of which so much is left.

        An answer is held whole until its last byte is taken: `held`, if that is more.
        """
        if connection in self._open:
            self.reads(connection)
            seen = self._unread[connection] = Unread(now, size, max(size, held))
            self._unread_bytes += seen.held

    def reads(self, connection: C) -> None:
        seen = self._unread.pop(connection, None)
        if seen is not None:
            self._unread_bytes -= seen.held

    # -- who gives way

    def giving_way(self) -> C | None:
        """Name who shall be closed for somebody new; None if all are being served."""
        if len(self._owing) >= max(1, self._most // 2):
            return next(iter(self._owing))
        for each in (self._idle, self._owing, self._unread):
            if each:
                return next(iter(each))
        return None

    def reading_least(self) -> C | None:
        """Name whose answer has not been read for longest, if there is too much of them all."""
        if self._unread_bytes <= UNREAD_BYTES_MAX or len(self._unread) == 1:
            return None
        return next(iter(self._unread))

    def owing_since(self, before: float) -> Iterator[C]:
        """Give those who have owed us something, or waited to be refused, since before then."""
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

"""What a shard needs of the place it runs in.

`Host` is the event loop seen from the actors: run this soon, at a moment, or from another thread.
`CommitLine` is the way to the committer. Production has asyncio and a thread; the simulator has
its own of both, and everything between them is the same code.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from rota.eventlog.committer import Committer, Resume, Run, SaveSnapshot, Wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.clock import Clock
    from rota.eventlog.committer import CommitFailed, Committed
    from rota.eventlog.port import EventLog, Snapshot, Stored

    Report = Callable[[Committed | CommitFailed], None]

WAKE_S_MAX = 3600.0


class Host(Protocol):
    """An event loop and its clock."""

    clock: Clock

    def call_soon(self, what: Callable[[], None]) -> Any:
        """Run soon, on the loop."""
        ...

    def hurry(self, run: Callable[[], None]) -> Any:
        """Run now what is scheduled to run soon; a host may leave it at that."""
        ...

    def call_at(self, at_us: int, what: Callable[[], None]) -> Any:
        """Run at a moment of the clock, or a little after."""
        ...

    def call_threadsafe(self, what: Callable[..., None], *args: Any) -> Any:
        """Run soon, on the loop; may be called from any thread."""
        ...


class CommitLine(Protocol):
    """The way to the one that writes."""

    def hand_over(self, records: list[Stored]) -> None:
        """Have the records written, after those handed over before."""
        ...

    def save(self, snapshot: Snapshot) -> None:
        """Have a snapshot kept."""
        ...

    def run(self, what: Callable[[], None]) -> None:
        """Call a function where writing happens, after what was handed over before."""
        ...

    def resume(self, epoch: int) -> None:
        """Go on after a failure, under a new epoch."""
        ...

    def close(self) -> None:
        """Write what is left, and end."""
        ...


class AsyncioHost:
    """The running asyncio loop."""

    def __init__(self, clock: Clock) -> None:
        """Bind to the running loop."""
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self.call_soon = self._loop.call_soon
        self.call_threadsafe = self._loop.call_soon_threadsafe

    def hurry(self, run: Callable[[], None]) -> None:
        """Run now: saves a turn of the loop."""
        run()

    def call_at(self, at_us: int, what: Callable[[], None]) -> asyncio.TimerHandle:
        """Run at a moment, at most an hour from now (whoever is woken looks again).

        It is slept by the loop's own clock, which nobody sets.
        """
        delay = max(0.0, (at_us - self.clock.now_us()) / 1e6)
        return self._loop.call_later(min(delay, WAKE_S_MAX), what)


class ThreadLine:
    """A committer in a thread of its own."""

    def __init__(self, log: EventLog, epoch: int, report: Report) -> None:
        """Start the thread; `report` is called in it."""
        self._outbox: deque[list[Stored]] = deque()
        self._ref = Committer.start(log, epoch, self._outbox, report)

    def hand_over(self, records: list[Stored]) -> None:
        """Have the records written."""
        self._outbox.append(records)
        self._ref.tell(Wake())

    def save(self, snapshot: Snapshot) -> None:
        """Have a snapshot kept."""
        self._ref.tell(SaveSnapshot(snapshot))

    def run(self, what: Callable[[], None]) -> None:
        """Call a function in the thread."""
        self._ref.tell(Run(what))

    def resume(self, epoch: int) -> None:
        """Go on after a failure."""
        self._outbox.clear()
        self._ref.tell(Resume(epoch))

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self._ref.stop(block=True, timeout=60)

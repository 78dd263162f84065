"""What a shard needs of the place it runs in.

`Host` is the event loop seen from the actors: run this soon, at a moment, or from another thread;
read that beside the loop.
`CommitLine` is the way to the committer. Production has asyncio and a thread; the simulator has
its own of both, and everything between them is the same code.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rota.actors.readers import Readers
from rota.eventlog.committer import Committer, Resume, Run, Wake, keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.clock import Clock
    from rota.eventlog.committer import CommitFailed, Committed
    from rota.eventlog.port import LogWriter, Snapshot, Stored

    Report = Callable[[Committed | CommitFailed], None]

WAKE_S_MAX = 3600.0

T = TypeVar("T")


class Host(Protocol):
    """An event loop and its clock."""

    clock: Clock

    def call_soon(self, what: Callable[[], None]) -> Any: ...

    def hurry(self, run: Callable[[], None]) -> Any:
        """Run now what is scheduled to run soon; a host may leave it at that."""
        ...

    def call_at(self, at_us: int, what: Callable[[], None]) -> Any:
        """Run at a moment of the clock, or a little after."""
        ...

    def call_threadsafe(self, what: Callable[..., None], *args: Any) -> Any:
        """Run soon, on the loop; may be called from any thread."""
        ...

    def fetch(
        self,
        read: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Read beside the loop; then call `done` with it on the loop, or `failed`.

        The world goes on meanwhile: what was read may be old by then. With `is_wanted`, which is
        asked in any thread, it is read to be shown: after what is needed to decide, and not at all
        if nobody waits for it any more; then neither is called.
        """
        ...


class CommitLine(Protocol):
    """The way to the one that writes."""

    def hand_over(self, records: list[Stored]) -> None:
        """Have the records written, after those handed over before."""
        ...

    def save(self, snapshot: Snapshot, done: Callable[[], None]) -> None:
        """Have a snapshot kept, beside the writing; `done` is called in whatever thread did."""
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
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self.call_soon = self._loop.call_soon
        self.call_threadsafe = self._loop.call_soon_threadsafe
        self.fetch = Readers(self.call_threadsafe).fetch

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

    def __init__(self, log: LogWriter, epoch: int, report: Report) -> None:
        """Start the thread; `report` is called in it."""
        self._outbox: deque[list[Stored]] = deque()
        self._log = log
        self._keeper: threading.Thread | None = None
        self._ref = Committer.start(log, epoch, self._outbox, report)

    def hand_over(self, records: list[Stored]) -> None:
        self._outbox.append(records)
        self._ref.tell(Wake())

    def save(self, snapshot: Snapshot, done: Callable[[], None]) -> None:
        """Have a snapshot kept by a thread of its own, after the one before."""
        self._join_keeper()
        what = (self._log, snapshot, done)
        self._keeper = threading.Thread(target=keep, args=what, name="rota-snapshot", daemon=True)
        self._keeper.start()

    def _join_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.join(60)

    def run(self, what: Callable[[], None]) -> None:
        self._ref.tell(Run(what))

    def resume(self, epoch: int) -> None:
        self._outbox.clear()
        self._ref.tell(Resume(epoch))

    def close(self) -> None:
        self._ref.stop(block=True, timeout=60)
        self._join_keeper()

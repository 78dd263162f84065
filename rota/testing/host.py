"""A loop that runs when it is told to, and a way to the log that writes at once.

`ManualHost` is a `Host` and `PromptLine` a `CommitLine` (`rota/actors/host.py`). With them a shard
runs on the thread of the test, and a test says exactly what happens, and in which order.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from rota.eventlog.committer import Committed

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.host import Report
    from rota.clock import Clock, ManualClock
    from rota.eventlog.port import EventLog, Snapshot, Stored

STEPS_MAX = 100_000

T = TypeVar("T")


class Handle:
    """A moment that can be called off."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what, self.live = what, True

    def cancel(self) -> None:
        self.live = False


class ManualHost:
    """A loop that runs when told to, by a clock that is moved by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock: Clock = clock
        self.soon: deque[Callable[[], Any]] = deque()
        self.later: list[tuple[int, int, Handle]] = []
        self.turns = 0
        self._clock = clock
        self._count = count()

    def call_soon(self, what: Callable[[], None]) -> None:
        """Keep for the next run."""
        self.soon.append(what)

    def hurry(self, run: Callable[[], None]) -> None:
        """Run now."""
        run()

    def call_at(self, at_us: int, what: Callable[[], None]) -> Handle:
        """Keep for a moment; it is waited for by the steady clock, as a loop does."""
        handle = Handle(what)
        due = self._clock.steady_us() + at_us - self._clock.now_us()
        heappush(self.later, (due, next(self._count), handle))
        return handle

    def call_threadsafe(self, what: Callable[..., None], *args: Any) -> None:
        """Keep for the next run: there is only one thread."""
        self.soon.append(lambda: what(*args))

    def fetch(
        self,
        read: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Read at another turn than the one that tells of it."""

        def run() -> None:
            if is_wanted is not None and not is_wanted():
                return
            try:
                self.call_threadsafe(done, read())
            except Exception as error:  # noqa: BLE001 - whatever it was: somebody waits for it
                self.call_threadsafe(failed, error)

        self.soon.append(run)

    def run(self) -> None:
        """Do what is to be done now."""
        for _ in range(STEPS_MAX):
            if not self.soon:
                return
            self.turns += 1
            self.soon.popleft()()
        msg = "the loop never comes to rest"
        raise AssertionError(msg)

    def due(self) -> int | None:
        """Give the next moment that somebody waits for."""
        while self.later and not self.later[0][2].live:
            heappop(self.later)
        ahead = self._clock.now_us() - self._clock.steady_us()
        return self.later[0][0] + ahead if self.later else None

    def run_until(self, at_us: int) -> None:
        """Let time pass, moment by moment."""
        for _ in range(STEPS_MAX):
            self.run()
            due = self.due()
            if due is None or due > at_us:
                self._clock.move_to(at_us)
                return
            self._clock.move_to(due)
            heappop(self.later)[2].what()
        msg = "the timers never come to rest"
        raise AssertionError(msg)


class PromptLine:
    """Writes what it is handed at once, and calls at once what it is to call."""

    def __init__(self, log: EventLog, epoch: int, report: Report) -> None:
        """Write to `log`, and say so to `report`."""
        self.log, self.epoch, self.report = log, epoch, report

    def hand_over(self, records: list[Stored]) -> None:
        self.log.append(records, records[0].seq - 1, self.epoch)
        self.report(Committed(records[-1].seq, len(records)))

    def save(self, snapshot: Snapshot, done: Callable[[], None]) -> None:
        self.log.save_snapshot(snapshot)
        done()

    def run(self, what: Callable[[], None]) -> None:
        what()

    def resume(self, epoch: int) -> None:
        self.epoch = epoch

    def close(self) -> None:
        """Nothing is left to write."""

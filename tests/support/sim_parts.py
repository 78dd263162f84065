"""The simulated inside of a server: its loop, its disk, its committer, and the watched shard.

Nothing here runs by itself. Each part keeps what it was given until the simulator, by its seed,
decides that now is the moment. What is outside (executors, receivers, clients) is in sim_outside.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from rota.actors.runtime import Runtime, retire
from rota.actors.system import Shard
from rota.domain.events import TaskAssigned
from rota.errors import IllegalMove, LogUnusable, StorageUnavailable
from rota.eventlog.committer import Committer, Resume, Run, Wake, keep
from rota.eventlog.memory_store import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from support.simulation import World

    from rota.actors.host import Report
    from rota.clock import ManualClock
    from rota.eventlog.port import EventLog, Head, Snapshot, Stored
    from rota.projections.state import State


class SimHost:
    """A loop that runs what the simulator picks."""

    def __init__(self, clock: ManualClock, is_unreadable: Callable[[], bool] = bool) -> None:
        """Start with nothing to do; `is_unreadable` draws whether a read fails."""
        self.clock = clock
        self._is_unreadable = is_unreadable
        self.soon: deque[Callable[[], Any]] = deque()
        self.posted: deque[Callable[[], Any]] = deque()
        self.reading: deque[Callable[[], Any]] = deque()
        self.later: list[tuple[int, int, Callable[[], Any], int]] = []
        self.running: set[Runtime] = set()
        self._count = 0

    def call_soon(self, what: Callable[[], None]) -> None:
        """Keep for soon; a runtime that wants to run is stepped by the simulator instead."""
        owner = getattr(what, "__self__", None)
        if type(owner) is Runtime and what == owner.run:
            owner._scheduled = False
            self.running.add(owner)
        else:
            self.soon.append(what)

    def hurry(self, run: Callable[[], None]) -> None:
        """Leave it at soon: the simulator decides the order."""

    def call_at(self, at_us: int, what: Callable[[], None]) -> None:
        """Keep for a moment of the clock, by the steady one, as a loop does."""
        self._count += 1
        due = self.clock.steady_us() + max(0, at_us - self.clock.now_us())
        heappush(self.later, (due, self._count, what, self._ahead()))

    def _ahead(self) -> int:
        """Say how far the line of time is ahead of the steady clock, but for what steps made."""
        return self.clock.now_us() - self.clock.steady_us() - self.clock.shift_us

    def late_us(self) -> int:
        """Say how late a moment may be: the wall clock went forward, in no step, while it waits."""
        ahead = self._ahead()
        return max((ahead - since for *_, since in self.later), default=0)

    def call_threadsafe(self, what: Callable[..., None], *args: Any) -> None:
        """Keep for soon, in a row of its own: other threads are not in step with the loop."""
        self.posted.append(lambda: what(*args))

    def fetch(self, read: Any, done: Any, failed: Any, is_wanted: Any = None) -> None:
        """Read some time; when it is told what was read, that may be old."""

        def run() -> None:
            if is_wanted is not None and not is_wanted():
                return
            try:
                if self._is_unreadable():
                    msg = "too many read the simulated log"
                    raise StorageUnavailable(msg)
                self.posted.append(partial(done, read()))
            except Exception as error:  # noqa: BLE001 - whatever it was
                self.posted.append(partial(failed, error))

        self.reading.append(run)

    def due(self) -> bool:
        """Whether a moment has come."""
        return bool(self.later) and self.later[0][0] <= self.clock.steady_us()

    def fire(self) -> None:
        """Run the first of what is due."""
        heappop(self.later)[2]()


class SimLog(MemoryLog):
    """A log whose disk can fail."""

    def __init__(self) -> None:
        """Start empty and whole."""
        super().__init__()
        self.broken = False
        self.torn = False
        self.panics = False
        self.panicked = False
        self.refuses_claim = False
        self.failures = 0

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        """Append; a torn failure has written, and cannot say so."""
        if self.broken:
            self.failures += 1
            self.panicked = self.panics
            if self.torn:
                self.torn = False
                super().append(records, expected_seq, epoch)
            msg = "the simulated disk failed"
            raise LogUnusable(msg)
        super().append(records, expected_seq, epoch)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        if self.broken:
            msg = "the simulated disk failed"
            raise LogUnusable(msg)
        super().save_snapshot(snapshot)

    def tear_snapshots(self, rng: Random) -> None:
        """Lose some: their files are not synced, and one that was torn is left out."""
        self._snapshots = [kept for kept in self._snapshots if rng.random() < 0.6]

    def reopen(self) -> Head:
        """Open anew; for reading only while the disk is not whole."""
        self.panicked = False
        if self.broken:
            msg = "the simulated disk still fails"
            raise LogUnusable(msg)
        return super().reopen()

    def claim(self) -> int:
        """Become the writer; the write for that may fail, too."""
        if self.refuses_claim:
            self.refuses_claim = False
            msg = "the simulated disk failed once more"
            raise LogUnusable(msg)
        return super().claim()

    def seq(self) -> int:
        """Give the last durable seq."""
        return len(self._records)


class Disk:
    """What a shard sees of a log: one that panicked cannot even be read until it is reopened."""

    def __init__(self, log: SimLog) -> None:
        """Stand before `log`."""
        self._log = log

    def __getattr__(self, name: str) -> Any:
        """Give what the log has."""
        if self._log.panicked and name not in ("append", "reopen", "close", "save_snapshot"):
            msg = "the simulated log must be opened anew"
            raise LogUnusable(msg)
        return getattr(self._log, name)


class SimLine:
    """The production committer, without its thread: the simulator says when it works."""

    def __init__(self, log: EventLog, epoch: int, report: Report) -> None:
        """Have nothing to write."""
        self._handed: deque[list[Stored]] = deque()
        self._outbox: deque[list[Stored]] = deque()
        self._committer = Committer(log, epoch, self._outbox, report)
        self._log = log
        self.waiting: deque[Any] = deque()
        self.saving: deque[tuple[Snapshot, Callable[[], None]]] = deque()

    def hand_over(self, records: list[Stored]) -> None:
        """Have the records written, some time."""
        self._handed.append(records)
        self.waiting.append(Wake())

    def save(self, snapshot: Snapshot, done: Callable[[], None]) -> None:
        """Have a snapshot kept, some time: no other thread is in step with that."""
        self.saving.append((snapshot, done))

    def keep(self) -> None:
        """Keep the next snapshot."""
        keep(self._log, *self.saving.popleft())

    def run(self, what: Callable[[], None]) -> None:
        """Call a function, some time."""
        self.waiting.append(Run(what))

    def resume(self, epoch: int) -> None:
        """Go on after a failure."""
        self._handed.clear()
        self.waiting.append(Resume(epoch))

    def work(self, batches_max: int) -> None:
        """Do the next thing; writing takes up to `batches_max` batches in one commit."""
        message = self.waiting.popleft()
        if type(message) is Wake:
            while self._handed and batches_max > 0:
                batches_max -= 1
                self._outbox.append(self._handed.popleft())
        self._committer.on_receive(message)

    def close(self) -> None:
        """Do everything that is left."""
        while self.waiting:
            self.work(1 << 30)
        while self.saving:
            self.keep()


class SimShard(Shard):
    """The production shard, with a model that watches every record it makes."""

    world: World
    is_started = False

    def _wire(self, state: State, head: Head) -> None:
        world = self.world
        apply = state.apply
        world.refold()
        world.courier.active = {}  # tries of replaced actors are out of its hands

        def watched(record: Any) -> None:
            if self.is_started:
                world.faults.at_fold(record)
            exact = type(record.event) is TaskAssigned and self._all_heard()
            world.model.observe(record, exact=exact)
            try:
                apply(record)
            except IllegalMove as error:
                world.violated(f"an illegal move was decided: {error}")
                raise
            world.compare_counts(self, record)
            world.check_line(record)

        state.apply = watched  # type: ignore[method-assign]
        super()._wire(state, head)
        world.faults.infect(self.journal)

    def _all_heard(self) -> bool:
        """Whether the dispatcher has heard of everything that was recorded."""
        if self.dispatcher.actor_inbox.queue or self.mending.is_due:
            return False
        return all(not ref.actor_inbox.queue for ref in self.cast.queues.values())

    def vanish(self) -> None:
        """Be gone, as a killed process is: nothing is told to anybody."""
        retire([*actors_of(self), *self.cast.queues.values()])


def actors_of(shard: Shard) -> list[Any]:
    """Give the actors of a shard that there is one of each."""
    return [
        shard.admission,
        shard.bulk,
        shard.dependents,
        shard.dispatcher,
        shard.leases,
        shard.orchestrator,
        shard.projects,
        shard.schedules,
        shard.pool,
        shard.timer,
        shard.webhook,
    ]

"""When snapshots are taken, and where they go.

One is begun when enough records are durable since the last one, is written out on the loop in
small slices with a rest after each, and is kept by a thread that is not the committer's. The next
one waits until the last is kept, and then for a multiple of the time that took: snapshots cost a
small share of the time however often they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.actors.snapshotter import Snapshotter

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.host import CommitLine, Host
    from rota.actors.journal import Journal
    from rota.eventlog.port import Snapshot

REST_FACTOR = 20
REST_US_MAX = 600_000_000
SLICE_REST_US = 2_000


class Snapshots:
    """Takes the snapshots of one shard."""

    def __init__(self, host: Host, every: int) -> None:
        """Take one for each `every` records."""
        self.seq = 0
        self._host = host
        self._every = every
        self._making: Snapshotter | None = None
        self._made: Snapshot | None = None
        self._is_saving = False
        self._began_at = self._rest_until = 0

    def look(self, journal: Journal, line: CommitLine) -> None:
        """See what is to be done, now that more is durable."""
        if self._made is not None and self._made.seq <= journal.durable_seq:
            made, self._made = self._made, None
            self.seq = made.seq
            line.save(made, self._saved_elsewhere)
        if journal.durable_seq - self.seq < self._every or self._making or self._is_saving:
            return
        now = self._host.clock.now_us()
        if self._rest_until - REST_US_MAX <= now < self._rest_until:
            return
        if not journal.state.is_as_told:
            return  # a snapshot must be what a replay gives; after the next record it is
        self._began_at, self._is_saving = now, True
        self._making = making = Snapshotter(journal.state, journal.digest)

        def done(snapshot: Snapshot) -> None:
            self._making = None
            self._made = snapshot  # kept once its last record is durable
            self.look(journal, line)

        making.run(self._after_a_rest, done)

    def _after_a_rest(self, write: Callable[[], None]) -> None:
        """Leave the loop to requests before the next slice: back to back they slow each down."""
        self._host.call_at(self._host.clock.now_us() + SLICE_REST_US, write)

    def _saved_elsewhere(self) -> None:
        self._host.call_threadsafe(self._saved)

    def _saved(self) -> None:
        """Rest before the next one."""
        now = self._host.clock.now_us()
        took = max(0, now - self._began_at)
        self._rest_until = now + min(took * REST_FACTOR, REST_US_MAX)
        self._is_saving = False

    def drop(self) -> None:
        """Forget the one in the making; one that is being kept is kept."""
        if self._making is not None:
            self._making.stop()
        if self._making is not None or self._made is not None:
            self._making = self._made = None
            self._is_saving = False

    def last(self, journal: Journal) -> Snapshot:
        """Give a snapshot of this moment, at once; for the end of the server."""
        self.drop()
        making = Snapshotter(journal.state, journal.digest)
        while (snapshot := making.slice()) is None:
            pass
        return snapshot

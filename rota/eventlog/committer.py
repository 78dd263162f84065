"""The committer: the one thread that writes.

A plain Pykka `ThreadingActor`. Everything that waits in its outbox goes into one transaction and
one sync (group commit); then it reports up to which seq the log is durable, or that it failed.
After a failure it writes nothing until it is told to go on, so that a record is never written
after a hole. It knows nothing of what the records mean.
"""

from __future__ import annotations

import logging
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import pykka

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from rota.eventlog.port import LogWriter, Snapshot, Stored

logger = logging.getLogger("rota.committer")

GROUP_RECORDS_MAX = 8192


class Wake(NamedTuple):
    """There are records in the outbox."""


class Run(NamedTuple):
    """Call a function in the writing thread (to reopen the log, or to wait for the rest)."""

    what: Callable[[], Any]


class Resume(NamedTuple):
    """Accept records again, under this epoch: the log is open and verified."""

    epoch: int


class Committed(NamedTuple):
    """Everything up to `seq` is durable."""

    seq: int
    records: int


class CommitFailed(NamedTuple):
    """Nothing after the last `Committed` was written."""

    error: BaseException


class Committer(pykka.ThreadingActor):
    """Owns the writing side of one log."""

    use_daemon_thread = True

    @staticmethod
    def _create_actor_inbox() -> SimpleQueue[Any]:
        """Wait on the queue that is written in C: the thread wakes up sooner."""
        return SimpleQueue()

    def __init__(
        self,
        log: LogWriter,
        epoch: int,
        outbox: deque[list[Stored]],
        report: Callable[[Committed | CommitFailed], None],
    ) -> None:
        """Write what others put into `outbox`; `report` is called in this actor's thread."""
        super().__init__()
        self._log = log
        self._epoch = epoch
        self._outbox = outbox
        self._report = report
        self._failed = False

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Wake):
            self._commit()
        elif isinstance(message, Run):
            message.what()
        elif isinstance(message, Resume):
            self._epoch, self._failed = message.epoch, False

    def _commit(self) -> None:
        records = self._drain()
        if not records or self._failed:
            return
        try:
            self._log.append(records, records[0].seq - 1, self._epoch)
        except Exception as error:  # noqa: BLE001 - whatever it was: stop acknowledging
            self._failed = True
            self._report(CommitFailed(error))
        else:
            self._report(Committed(records[-1].seq, len(records)))

    def _drain(self) -> list[Stored]:
        records: list[Stored] = []
        while self._outbox and len(records) < GROUP_RECORDS_MAX:
            records += self._outbox.popleft()
        if self._outbox:
            self.actor_ref.tell(Wake())
        return records


def keep(log: LogWriter, snapshot: Snapshot, done: Callable[[], None]) -> None:
    """Keep a snapshot, in a thread that is not the committer's (a failure changes nothing)."""
    try:
        log.save_snapshot(snapshot)
    except Exception as error:  # noqa: BLE001 - a cache: whatever it was, the log goes on
        logger.warning("no snapshot was kept, so the next start takes longer: %s", error)
    finally:
        done()

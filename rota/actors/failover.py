"""From a log that failed to one that is written again, without holding up the loop.

    running ── it fails ──▶ rebuilding ── it accepts writes ──────────▶ running
                                │                                          ▲
                                └─ it can only be read ──▶ read-only ──────┘

    and from each of them ── it is not what was acknowledged ──▶ given up

What was recorded and not written is gone, so the state on the loop is no longer the log's: nobody
may read it, and whoever wants to change something is refused at once. In the committer's thread
the log is opened anew, whatever it failed of, and folded. If it accepts writes, the shard goes on
from that state; if it does not, that state is shown, and is also what the shard goes on from later,
unless the log has changed by then. `MOVES` is the whole machine; `_heard` makes every move.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.actors.recovery import rebuild_whole
from rota.actors.stand_ins import let_go
from rota.errors import LogCorrupt, LogError, LogUnusable
from rota.eventlog.damage import ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.host import CommitLine, Host
    from rota.eventlog.port import EventLog, Head
    from rota.projections.state import State

logger = logging.getLogger("rota.failover")

REOPEN_US = 500_000
REOPEN_US_MAX = 5_000_000


class Phase(Enum):
    """How far it is."""

    RUNNING = "running"
    REBUILDING = "rebuilding"
    READ_ONLY = "read-only"
    GIVEN_UP = "given up"


class LogNews(Enum):
    """What is heard of the log."""

    FAILED = "a commit failed, or a fact could not be folded"
    STILL_FAILS = "it could not be opened anew"
    READABLE = "it can be read, and not be written"
    WRITABLE = "it accepts writes"
    LOST = "it is not what was acknowledged, or fails again and again"


MOVES = {
    (Phase.RUNNING, LogNews.FAILED): Phase.REBUILDING,
    (Phase.REBUILDING, LogNews.STILL_FAILS): Phase.REBUILDING,
    (Phase.REBUILDING, LogNews.READABLE): Phase.READ_ONLY,
    (Phase.REBUILDING, LogNews.WRITABLE): Phase.RUNNING,
    (Phase.READ_ONLY, LogNews.STILL_FAILS): Phase.READ_ONLY,
    (Phase.READ_ONLY, LogNews.WRITABLE): Phase.RUNNING,
    (Phase.RUNNING, LogNews.LOST): Phase.GIVEN_UP,
    (Phase.REBUILDING, LogNews.LOST): Phase.GIVEN_UP,
    (Phase.READ_ONLY, LogNews.LOST): Phase.GIVEN_UP,
}


class Rebuilt(NamedTuple):
    """A state, and the record that it is the state after."""

    state: State
    head: Head


class Failover:
    """Sees a shard through the failures of its log."""

    folded: Callable[[], None] | None = None
    """Called, in the committer's thread, with a fresh state made: a server spares it its gc."""

    def __init__(
        self,
        log: EventLog,
        host: Host,
        *,
        show: Callable[[Rebuilt], None],
        resume: Callable[[Rebuilt, int], None],
        give_up: Callable[[LogError], None],
        name: str = "",
    ) -> None:
        """Call `show` with what can only be read, `resume` with what can be gone on from.

        `name` says whose log it is, where there are several.
        """
        self._said = f"namespace {name}: " if name else ""
        self.phase = Phase.RUNNING
        self.reason = ""
        self._log = log
        self._host = host
        self._show = show
        self._resume = resume
        self._give_up = give_up
        self._acknowledged = 0
        self._kept: Rebuilt | None = None
        self._wait_us = REOPEN_US
        self._closed = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_readable(self) -> bool:
        """Whether there is a state, and it is the log's."""
        return self.phase is Phase.RUNNING or self.phase is Phase.READ_ONLY

    def begin(
        self,
        line: CommitLine,
        error: BaseException,
        acknowledged: int,
        left: State,
        *,
        rest_us: int = 0,
    ) -> None:
        """Leave `running`, and the state `left`: it has more than what was `acknowledged`.

        `rest_us` is to pass first, where what failed is likely to fail again.
        """
        text = "%sthe log failed; nothing is taken until it accepts writes: %s"
        logger.error(text, self._said, error)
        self._line = line
        self._acknowledged = acknowledged
        self._heard(LogNews.FAILED, error)
        line.run(lambda: let_go(left))
        if rest_us:
            self._host.call_at(self._host.clock.now_us() + rest_us, lambda: line.run(self._try))
        else:
            line.run(self._try)

    def lose(self, error: LogError) -> None:
        """Give up: what failed fails again and again."""
        self._heard(LogNews.LOST, error)

    def when_readable(self, then: Callable[[], None]) -> None:
        """Call `then` when there is a state that may be read, at once if there is one."""
        if self.phase is Phase.REBUILDING:
            self._waiting.append(then)
        else:
            then()

    def close(self) -> None:
        """Try no more: the server ends."""
        self._closed = True

    # -- on the loop -------------------------------------------------------------------------

    def _heard(self, news: LogNews, what: Any = None) -> None:
        if self.phase is Phase.GIVEN_UP:
            return
        self.phase = MOVES[self.phase, news]
        if news is LogNews.FAILED:
            self.reason = str(what) or repr(what)
            self._kept, self._wait_us = None, REOPEN_US
        elif news is LogNews.STILL_FAILS:
            self._try_later()
        elif news is LogNews.READABLE:
            self._kept = what
            self._show(what)
            self._wake()
            self._try_later()
        elif news is LogNews.WRITABLE:
            rebuilt, epoch = what
            self.reason, self._kept = "", None
            self._resume(rebuilt, epoch)
            text = "%sthe log accepts writes again; went on at %d"
            logger.warning(text, self._said, rebuilt.head.seq)
            self._wake()
        else:
            self.reason = str(what)
            self.close()
            self._give_up(what)
            self._wake()

    def _try_later(self) -> None:
        at = self._host.clock.now_us() + self._wait_us
        self._wait_us = min(self._wait_us * 2, REOPEN_US_MAX)
        self._host.call_at(at, lambda: self._line.run(self._try))

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    # -- in the committer's thread -----------------------------------------------------------

    def _try(self) -> None:
        """Open the log anew, fold it if need be, and tell the loop what came of it."""
        if self._closed:
            return
        found: tuple[LogNews, Any]
        try:
            found = self._open()
        except _ClosedError:
            return
        except LogUnusable as error:
            logger.warning("%sthe log still fails: %s", self._said, error)
            found = (LogNews.STILL_FAILS, None)
        except LogError as error:
            found = (LogNews.LOST, error)
        except Exception as error:
            logger.exception("%sthe log could not be opened anew", self._said)
            found = (LogNews.LOST, LogUnusable(f"cannot go on: {error}"))
        self._host.call_threadsafe(self._heard, *found)

    def _open(self) -> tuple[LogNews, Any]:
        """Open for writing, or at least for reading. Raises LogError."""
        kept = self._kept
        try:
            head = self._log.reopen()
            self._check(head)
            epoch = self._log.claim()
        except LogUnusable as error:
            if kept is not None:
                raise
            logger.warning("%sthe log still fails: %s", self._said, error)
            return LogNews.READABLE, self._fold()
        rebuilt = kept if kept is not None and kept.head == head else self._fold()
        return LogNews.WRITABLE, (rebuilt, epoch)

    def _check(self, head: Head) -> None:
        if head.seq < self._acknowledged:
            msg = f"the log ends at {head.seq}, but {self._acknowledged} was acknowledged"
            raise LogCorrupt(head.seq + 1, msg, hint=ADVICE)

    def _fold(self) -> Rebuilt:
        state, head = rebuild_whole(self._log, progress=self._check_open, folded=self.folded)
        self._check(head)
        return Rebuilt(state, head)

    def _check_open(self, seq: int) -> None:
        del seq
        if self._closed:
            raise _ClosedError


class _ClosedError(Exception):
    """The server ends while its log is being folded."""

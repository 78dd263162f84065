"""From a log that failed to one that is written again, without holding up the loop.

    running ── a commit fails ──▶ rebuilding ── the log accepts writes ──▶ running
                                      │                                       ▲
                                      └─ it can only be read ──▶ read-only ───┘

What was recorded and not written is gone, so the state on the loop is no longer the log's: nobody
may read it, and whoever wants to change something is refused at once. In the committer's thread
the log is opened anew, whatever it failed of, and folded. If it accepts writes, the shard goes on
from that state; if it does not, that state is shown, and is also what the shard goes on from later,
unless the log has changed by then.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.actors.recovery import rebuild_whole
from rota.actors.runtime import CooperativeActor
from rota.errors import LogCorrupt, LogError, LogUnusable, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.host import CommitLine, Host
    from rota.actors.runtime import Runtime
    from rota.eventlog.port import EventLog, Head
    from rota.projections.state import State

logger = logging.getLogger("rota.failover")

REOPEN_US = 500_000
REOPEN_US_MAX = 5_000_000
RESTORE = "restore the data folder from a copy; `rota verify` checks one"


class Phase(Enum):
    """How far it is."""

    RUNNING = "running"
    REBUILDING = "rebuilding"
    READ_ONLY = "read-only"


class Standing(NamedTuple):
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
        show: Callable[[Standing], None],
        resume: Callable[[Standing, int], None],
        give_up: Callable[[LogError], None],
    ) -> None:
        """Call `show` with what can only be read, `resume` with what can be gone on from."""
        self.phase = Phase.RUNNING
        self.reason = ""
        self._log = log
        self._host = host
        self._show = show
        self._resume = resume
        self._give_up = give_up
        self._acknowledged = 0
        self._kept: Standing | None = None
        self._wait_us = REOPEN_US
        self._closed = False
        self._waiting: list[Callable[[], None]] = []

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
        logger.error("the log failed; nothing is taken until it accepts writes: %s", error)
        self.phase, self.reason = Phase.REBUILDING, str(error) or repr(error)
        self._line = line
        self._acknowledged = acknowledged
        self._kept = None
        self._wait_us = REOPEN_US
        line.run(lambda: let_go(left))
        if rest_us:
            self._host.call_at(self._host.clock.now_us() + rest_us, lambda: line.run(self._try))
        else:
            line.run(self._try)

    def when_readable(self, then: Callable[[], None]) -> None:
        """Call `then` when there is a state that may be read, at once if there is one."""
        if self.phase is Phase.REBUILDING:
            self._waiting.append(then)
        else:
            then()

    def close(self) -> None:
        """Try no more: the server ends."""
        self._closed = True

    # -- in the committer's thread -----------------------------------------------------------

    def _try(self) -> None:
        """Open the log anew, fold it if need be, and tell the loop what came of it."""
        if self._closed:
            return
        outcome: tuple[Callable[..., None], Any]
        try:
            outcome = self._open()
        except _ClosedError:
            return
        except LogUnusable as error:
            logger.warning("the log still fails: %s", error)
            outcome = (self._try_later, None)
        except LogError as error:
            outcome = (self._give_up, error)
        except Exception as error:
            logger.exception("the log could not be opened anew")
            outcome = (self._give_up, LogUnusable(f"cannot go on: {error}"))
        self._host.call_threadsafe(*outcome)

    def _open(self) -> tuple[Callable[..., None], Any]:
        """Open for writing, or at least for reading. Raises LogError."""
        kept = self._kept
        try:
            head = self._log.reopen()
            self._check(head)
            epoch = self._log.claim()
        except LogUnusable as error:
            if kept is not None:
                raise
            logger.warning("the log still fails: %s", error)
            return self._stay, self._fold()
        standing = kept if kept is not None and kept.head == head else self._fold()
        return self._go_on, (standing, epoch)

    def _check(self, head: Head) -> None:
        if head.seq < self._acknowledged:
            msg = f"the log ends at {head.seq}, but {self._acknowledged} was acknowledged"
            raise LogCorrupt(head.seq + 1, msg, hint=RESTORE)

    def _fold(self) -> Standing:
        state, head = rebuild_whole(self._log, progress=self._check_open, folded=self.folded)
        self._check(head)
        return Standing(state, head)

    def _check_open(self, seq: int) -> None:
        del seq
        if self._closed:
            raise _ClosedError

    # -- on the loop -------------------------------------------------------------------------

    def _stay(self, standing: Standing) -> None:
        """Let the state be read, and keep trying to write."""
        self.phase, self._kept = Phase.READ_ONLY, standing
        self._show(standing)
        self._wake()
        self._try_later(None)

    def _try_later(self, nothing: None) -> None:
        del nothing
        at = self._host.clock.now_us() + self._wait_us
        self._wait_us = min(self._wait_us * 2, REOPEN_US_MAX)
        self._host.call_at(at, lambda: self._line.run(self._try))

    def _go_on(self, found: tuple[Standing, int]) -> None:
        """Be running again."""
        self.phase, self.reason, self._kept = Phase.RUNNING, "", None
        self._resume(*found)
        logger.warning("the log accepts writes again; went on at %d", found[0].head.seq)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


class _ClosedError(Exception):
    """The server ends while its log is being folded."""


class Door(CooperativeActor):
    """Stands in for every actor while nothing can be recorded: whoever asks is refused."""

    def __init__(self, runtime: Runtime, failure: StorageUnavailable) -> None:
        """Refuse with `failure`."""
        super().__init__(runtime)
        self._failure = failure
        self.running: dict[str, Any] = {}

    def on_receive(self, message: Any) -> None:
        """Refuse, if anybody waits for an answer."""
        reply = getattr(message, "reply", None)
        if reply is not None:
            reply.fail(self._failure)

    def abort_all(self, reason: str) -> list[str]:
        """Nothing runs."""
        del reason
        return []


class Unreadable:
    """Stands in for a state that is no longer the log's: looking at it raises."""

    def __init__(self, failure: StorageUnavailable) -> None:
        """Raise `failure`."""
        self.__failure = failure

    def __getattr__(self, name: str) -> Any:
        """Give nothing: what was there may have been taken back."""
        del name
        raise StorageUnavailable(self.__failure.message, hint=self.__failure.hint)


def let_go(state: State) -> None:
    """Empty a state one thing at a time: letting go of it at once would hold up the loop."""
    for projection in reversed(list(vars(state).values())):
        for held in reversed(list(getattr(projection, "__dict__", {}).values())):
            while held and isinstance(held, (dict, list, deque, set)):
                if isinstance(held, dict):
                    held.popitem()
                else:
                    held.pop()

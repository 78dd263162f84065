"""The threads that read the log for the loop.

A few of their own, beside the committer: a read that hangs holds up those that come after it, never
the loop or a commit. They are started when there is something to read and end when there has been
nothing for a while; what waits for them is bounded, and who comes then is refused.

There are two kinds of reads. What a decision needs goes before what is only to be shown, and one
thread at least is left for it: however much is looked at, tasks are submitted and go on. What is to
be shown to somebody who has left by the time of its turn is not read at all. Those who look wait in
one row; a share for each of them would be a row for each in `_to_show`, taken from in turns.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("rota.readers")

READERS_MAX = 4
DECIDING_ONLY = 1
"""So many of the threads read nothing that is only to be shown."""
WAITING_MAX = 1000
"""So many of each kind wait."""
IDLE_S = 5.0


class Wanted(NamedTuple):
    """A read that somebody waits for; without `is_wanted`, somebody who decides."""

    read: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]
    is_wanted: Callable[[], bool] | None


class Readers:
    """Reads in threads, and tells the loop."""

    def __init__(self, tell_loop: Callable[..., Any]) -> None:
        """Call back by `tell_loop`, which may be called in any thread."""
        self._tell_loop = tell_loop
        self._to_decide: deque[Wanted] = deque()
        self._to_show: deque[Wanted] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._threads = self._idle = self._showing = 0

    def fetch(
        self,
        read: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None],
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Have `read` called in a thread, and `done` or `failed` with what came of it.

        With `is_wanted` it is only to be shown; nothing is called once that says no.
        """
        with self._changed:
            row = self._to_decide if is_wanted is None else self._to_show
            if len(row) >= WAITING_MAX and not self._has_shed(row):
                failure = StorageUnavailable("too many wait to read the log", hint="try again")
                self._tell_loop(failed, failure)
                return
            row.append(Wanted(read, done, failed, is_wanted))
            if self._idle >= self._due() or self._threads >= READERS_MAX:
                self._changed.notify()
                return
            self._threads += 1
        threading.Thread(target=self._run, name="rota-reader", daemon=True).start()

    @staticmethod
    def _has_shed(row: deque[Wanted]) -> bool:
        """Let those go from a full row for whom nobody waits; say whether there is room now."""
        kept = [each for each in row if each.is_wanted is None or each.is_wanted()]
        row.clear()
        row.extend(kept)
        return len(row) < WAITING_MAX

    def _due(self) -> int:
        """Count the reads that a thread may take now."""
        free = READERS_MAX - DECIDING_ONLY - self._showing
        return len(self._to_decide) + min(len(self._to_show), max(free, 0))

    def _next(self) -> Wanted | None:
        """Take the next read; None if there is none for a while, and the thread is to end."""
        with self._changed:
            self._idle += 1
            while self._changed.wait_for(self._due, IDLE_S):
                if self._to_decide:
                    self._idle -= 1
                    return self._to_decide.popleft()
                wanted = self._to_show.popleft()
                if wanted.is_wanted is None or wanted.is_wanted():
                    self._idle -= 1
                    self._showing += 1
                    return wanted
                del wanted  # the thread may rest for a while now
            self._idle -= 1
            self._threads -= 1
            return None

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                outcome: tuple[Any, Any] = (wanted.done, wanted.read())
            except BaseException as error:  # noqa: BLE001 - whatever it was: somebody waits for it
                outcome = (wanted.failed, error)
            try:
                self._tell_loop(*outcome)
            except RuntimeError:
                logger.debug("the loop is closed: nobody waits any more")
            if wanted.is_wanted is not None:
                self._has_shown()
            del wanted, outcome

    def _has_shown(self) -> None:
        """Let another be shown something: by this thread, or by one that is idle."""
        with self._changed:
            self._showing -= 1
            if self._to_show:
                self._changed.notify()

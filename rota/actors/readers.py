"""The threads that read the log for the loop.

A few of their own, beside the committer: a read that hangs holds up those that come after it, never
the loop or a commit. They are started when there is something to read and end when there has been
nothing for a while; what waits for them is bounded, and who comes then is refused.

There are two kinds of reads. What a decision needs goes before what is only to be shown, and one
thread at least is left for it: however much is looked at, tasks are submitted and go on. What is to
be shown to somebody who has left by the time of its turn is not read at all. Each caller has a
queue of what is to be shown to it; the threads take from the queues in turns, and one caller never
has all threads. So a caller that reads much waits for itself; long scans come in slices
(sight/history.py), each of which goes to the back of its caller's queue.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.shares import may_take
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
asked_by: ContextVar[str] = ContextVar("asked_by", default="")
"""The caller (`Caller.share_for`) whose request the running task serves; set for each request."""


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
        self._to_show: dict[str, deque[Wanted]] = {}
        self._changed = threading.Condition(threading.Lock())
        self._threads = self._idle = 0
        self._showing: list[str] = []  # whom the threads read for

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
        wanted = Wanted(read, done, failed, is_wanted)
        with self._changed:
            is_taken = self._line_up(wanted) if is_wanted is not None else self._decide(wanted)
            if not is_taken:
                failure = StorageUnavailable("too many wait to read the log", hint="try again")
                self._tell_loop(failed, failure)
                return
            if self._idle >= self._due() or self._threads >= READERS_MAX:
                self._changed.notify()
                return
            self._threads += 1
        threading.Thread(target=self._run, name="rota-reader", daemon=True).start()

    def _decide(self, wanted: Wanted) -> bool:
        has_room = len(self._to_decide) < WAITING_MAX
        if has_room:
            self._to_decide.append(wanted)
        return has_room

    def _line_up(self, wanted: Wanted) -> bool:
        """Have a read wait in its caller's queue; False if the caller's share has no room."""
        caller = asked_by.get()
        if not self._has_room(caller):
            for name, queue in list(self._to_show.items()):  # those who have left take no room
                self._keep(name, deque(each for each in queue if _is_wanted(each)))
            if not self._has_room(caller):
                return False
        self._to_show.setdefault(caller, deque()).append(wanted)
        return True

    def _has_room(self, caller: str) -> bool:
        waiting = sum(map(len, self._to_show.values()))
        return may_take(len(self._to_show.get(caller, ())), waiting, 1, WAITING_MAX)

    def _keep(self, caller: str, queue: deque[Wanted]) -> None:
        """Put a caller's queue behind the others; an empty one is forgotten."""
        del self._to_show[caller]
        if queue:
            self._to_show[caller] = queue

    def _room_of(self, caller: str) -> int:
        """Count the threads that may read for a caller beside those that do: all but one."""
        most = max(1, READERS_MAX - DECIDING_ONLY - 1)
        return max(0, min(most - self._showing.count(caller), self._free()))

    def _free(self) -> int:
        return READERS_MAX - DECIDING_ONLY - len(self._showing)

    def _due(self) -> int:
        """Count the reads that a thread may take now."""
        shown = sum(min(len(queue), self._room_of(each)) for each, queue in self._to_show.items())
        return len(self._to_decide) + min(shown, max(self._free(), 0))

    def _next(self) -> tuple[Wanted, str] | None:
        """Take the next read; None if there is none for a while, and the thread is to end."""
        with self._changed:
            self._idle += 1
            while self._changed.wait_for(self._due, IDLE_S):
                if self._to_decide:
                    self._idle -= 1
                    return self._to_decide.popleft(), ""
                caller = next(each for each in self._to_show if self._room_of(each))
                queue = self._to_show[caller]
                wanted = queue.popleft()
                self._keep(caller, queue)
                if _is_wanted(wanted):
                    self._idle -= 1
                    self._showing.append(caller)
                    return wanted, caller
                del wanted  # the thread may rest for a while now
            self._idle -= 1
            self._threads -= 1
            return None

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            wanted, caller = taken
            try:
                outcome: tuple[Any, Any] = (wanted.done, wanted.read())
            except BaseException as error:  # noqa: BLE001 - whatever it was: somebody waits for it
                outcome = (wanted.failed, error)
            try:
                self._tell_loop(*outcome)
            except RuntimeError:
                logger.debug("the loop is closed: nobody waits any more")
            if wanted.is_wanted is not None:
                self._has_shown(caller)
            del taken, wanted, outcome

    def _has_shown(self, caller: str) -> None:
        """Let another be shown something: by this thread, or by one that is idle."""
        with self._changed:
            self._showing.remove(caller)
            if self._to_show:
                self._changed.notify()


def _is_wanted(read: Wanted) -> bool:
    return read.is_wanted is None or read.is_wanted()

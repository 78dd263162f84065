"""The only door to the log.

`record` stamps events with seq and time, folds them into the projections at once, and hands them
to the committer when the actors have nothing more to do; what hangs on them (`then`, and the
routes' effects) runs when they are durable, in the order of the log. So decisions see the newest
state, and the outside world sees only durable facts. After a failed commit nothing is recorded
until the system has rebuilt itself from the log; every reply that waited is told so.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from rota.domain.events import Record
from rota.errors import StorageUnavailable
from rota.eventlog import chain, codec
from rota.eventlog.crash_points import reach
from rota.eventlog.port import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.messages import Reply
    from rota.actors.tail import Tail
    from rota.clock import Clock
    from rota.domain.events import Event
    from rota.errors import RotaError
    from rota.eventlog.port import Head
    from rota.projections.state import State

logger = logging.getLogger("rota.journal")


class Journal:
    """Records facts for one shard."""

    def __init__(
        self,
        state: State,
        head: Head,
        clock: Clock,
        hand_over: Callable[[list[Stored]], None],
        schedule: Callable[[], None],
    ) -> None:
        """Go on after `head`; `hand_over` gives records to the committer."""
        assert state.seq == head.seq, (state.seq, head.seq)
        self.state = state
        self.digest = head.digest
        self.durable_seq = head.seq
        self.failure: StorageUnavailable | None = None
        self.on_record: dict[type[Any], Callable[[Record], None]] = {}
        self.on_durable: dict[type[Any], Callable[[Record], None]] = {}
        self.listeners: list[Callable[[int], None]] = []
        self.watched: dict[str, list[Callable[[], None]]] = {}
        self.tail: Tail | None = None
        self._clock = clock
        self._hand_over = hand_over
        self._schedule = schedule
        self._seq = head.seq
        self._unsent: list[Stored] = []
        self._handed: deque[list[Stored]] = deque()
        self._effects: deque[tuple[int, Callable[[Any], None], Any]] = deque()

    def now(self) -> int:
        """Give the time that the next record gets: never before that of the last."""
        return max(self._clock.now_us(), self.state.at)

    def check_open(self) -> None:
        """Raise StorageUnavailable if nothing can be recorded now."""
        if self.failure is not None:
            raise self.failure

    def record(self, *events: Event, by: str = "", cause: int = 0, at: int | None = None) -> Record:
        """Make the events facts, in this order; give the last. Raises StorageUnavailable.

        `at` is the `now` that they were decided at, where they say when something is due.
        """
        self.check_open()
        at = self.now() if at is None else at
        unsent, watched = self._unsent, self.watched
        routed: list[tuple[Callable[[Record], None], Record]] = []
        woken: list[Callable[[], None]] = []
        if not unsent:
            self._schedule()
        for event in events:
            seq = self._seq + 1
            record = Record(seq, at, event, by, cause)
            body = codec.encode(record)
            self._fold(record)
            self._seq = seq
            self.digest = digest = chain.extend(self.digest, body)
            subject = codec.subject_of(event)
            unsent.append(Stored(seq, digest, body, subject))
            if subject in watched:
                woken += watched[subject]
            effect = self.on_durable.get(type(event))
            if effect is not None:
                self._effects.append((seq, effect, record))
            route = self.on_record.get(type(event))
            if route is not None:
                routed.append((route, record))
        for route, each in routed:
            route(each)
        for wake in woken:
            wake()
        return record

    def _fold(self, record: Record) -> None:
        try:
            self.state.apply(record)
        except Exception as error:
            self.fail(error)  # half a fact is in the projections: they must be rebuilt
            raise

    def answer(self, reply: Reply, value: Any) -> None:
        """Answer when everything recorded so far is durable."""
        if self._seq <= self.durable_seq:
            reply.ok(value)
            return
        self._effects.append((self._seq, self._ok, (reply, value)))

    def refuse(self, reply: Reply, error: RotaError) -> None:
        """Refuse when everything recorded so far, which the refusal may rest on, is durable."""
        if self._seq <= self.durable_seq or self.failure is not None:
            reply.fail(error)
            return
        self._effects.append((self._seq, self._refused, (reply, error)))

    def flush(self) -> None:
        """Hand over what was recorded since the last time."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            reach("journal.recorded")
            self._handed.append(unsent)
            self._hand_over(unsent)

    def committed(self, seq: int) -> None:
        """Run what hung on the records up to `seq`: they are durable."""
        if self.failure is not None:
            return
        reach("journal.durable")
        self.durable_seq = seq
        self._follow(seq)
        effects = self._effects
        while effects and effects[0][0] <= seq:
            _, effect, value = effects.popleft()
            try:
                effect(value)
            except Exception:
                logger.exception("an effect failed; the log is not touched by it")
        for listener in self.listeners:
            listener(seq)

    def _follow(self, seq: int) -> None:
        """Feed the tail with what has become durable."""
        handed, tail = self._handed, self.tail
        while handed and handed[0][-1].seq <= seq:
            durable = handed.popleft()
            if tail is not None:
                tail.add(durable)

    def fail(self, error: BaseException) -> None:
        """Stop recording: nothing after `durable_seq` was written; tell whoever waits."""
        self.failure = StorageUnavailable(
            str(getattr(error, "message", error)), hint="not acknowledged; try again later"
        )
        effects, self._effects = self._effects, deque()
        self._unsent.clear()
        self._handed.clear()
        for _, effect, value in effects:
            if effect in (self._ok, self._refused):
                value[0].fail(self.failure)

    def _ok(self, value: tuple[Reply, Any]) -> None:
        value[0].ok(value[1])

    def _refused(self, value: tuple[Reply, RotaError]) -> None:
        value[0].fail(value[1])

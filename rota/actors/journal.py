"""The only door to the log.

`record` stamps events with seq and time, folds them into the projections at once, and hands them
to the committer when the actors have nothing more to do; what hangs on them (`then`, and the
routes' effects) runs when they are durable, in the order of the log. So decisions see the newest
state, and the outside world sees only durable facts. After a failed commit, or a fact that could
not be folded, nothing is recorded until the system has rebuilt itself from the log; every reply
that waited is told so, and so is `on_stopped`. A route or effect that raises takes nothing with it:
`on_fault` hears of it, and whatever hung on it is looked for in the projections.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from rota.domain.events import Record
from rota.domain.shares import PerMinute, share_of
from rota.domain.tokens import LOCAL, ROTA
from rota.errors import QueueFull, RequestError, StorageUnavailable
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

_new: Any = tuple.__new__  # past a NamedTuple's own constructor, for every record


def _logged(where: str, record: Record[Event], error: Exception) -> None:
    logger.error("a %s of record %d failed", where, record.seq, exc_info=error)


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
        self.on_record: dict[type[Any], Callable[[Record[Any]], None]] = {}
        self.on_durable: dict[type[Any], Callable[[Record[Any]], None]] = {}
        self.on_fault: Callable[[str, Record[Event], Exception], None] = _logged
        self.on_stopped: Callable[[Exception], None] | None = None
        self.listeners: list[Callable[[int], None]] = []
        self.watched: dict[str, list[Callable[[], None]]] = {}
        self.tail: Tail | None = None
        self.reading_for: list[Reply] = []
        """Who waits for an answer while the log is read for it."""
        self.written = PerMinute()
        """Who had how many bytes written; a restart forgets it."""
        self.shift_us = state.steps.shift  # how far the clock has been set in all
        self._clock = clock
        self._hand_over = hand_over
        self._schedule = schedule
        self._seq = head.seq
        self._unsent: list[Stored] = []
        self._handed: deque[list[Stored]] = deque()
        self._effects: deque[tuple[int, Callable[[Any], None], Any]] = deque()

    def now(self) -> int:
        """Give the time that the next record gets: never before that of the last."""
        state = self.state
        unheard = self.shift_us - state.steps.shift  # the clock was set, which is not recorded yet
        return max(self._clock.now_us() - unheard, state.at)

    def check_open(self) -> None:
        """Raise StorageUnavailable if nothing can be recorded now."""
        if self.failure is not None:
            raise self.failure

    def check_room(self, by: str, agent: str) -> None:
        """Refuse a caller that has had its share written of what a minute has room for.

        Whoever lets a caller have much written asks before: what makes, changes or revives
        something, and what lends to workers. What is small or was promised (a cancel, an outcome)
        is counted, and never refused. Raises StorageUnavailable or QueueFull.
        """
        self.check_open()
        most = self.state.control.limits.written_per_minute
        wait_us = self.written.wait_us(share_of(by, agent), most, self.now()) if most else 0
        if wait_us:
            msg = f"in this minute {most} bytes were written to the log, or yours as many as may be"
            details = {"maxBytes": most, "retryAfterS": -(-wait_us // 1_000_000)}
            hint = "scheduler.maxLogBytesPerMinute is the bound"
            raise QueueFull(msg, code="too_much_written", details=details, hint=hint)

    def record(
        self, *events: Event, by: str = ROTA, cause: int = 0, at: int | None = None
    ) -> Record[Event]:
        """Make the events facts, in this order; give the last.

        All of them or none: StorageUnavailable and NotWritable are raised before the first. `at` is
        the `now` that they were decided at, where they say when something is due. What nobody else
        asked for is by rota itself.
        """
        self.check_open()
        at = self.now() if at is None else at
        written: list[tuple[Record[Event], bytes]] = []
        seq = self._seq
        for event in events:
            seq += 1
            record = _new(Record, (seq, at, event, by, cause))
            written.append((record, codec.encode(record)))
        if not self._unsent:
            self._schedule()
        for record, body in written:
            self._keep(record, body)
        for record, _ in written:
            self._spread(record)
        return written[-1][0]

    def _keep(self, record: Record[Event], body: bytes) -> None:
        """Fold a record, and have it written."""
        seq, at, event, by, _ = record
        self._fold(record)
        if by != ROTA:
            agent = getattr(event, "agent", "") if by == LOCAL else ""
            self.written.add(share_of(by, agent), len(body), at)
        self._seq = seq
        self.digest = digest = chain.extend(self.digest, body)
        self._unsent.append(_new(Stored, (seq, digest, body, codec.subject_of(event))))
        effect = self.on_durable.get(type(event))
        if effect is not None:
            self._effects.append((seq, effect, record))

    def _spread(self, record: Record[Event]) -> None:
        """Tell whoever hears of a fact at once."""
        route = self.on_record.get(type(record.event))
        if route is not None:
            try:
                route(record)
            except Exception as error:  # noqa: BLE001 - the other routes have to be followed
                self.on_fault("route", record, error)
        if self.watched:
            for wake in self.watched.get(codec.subject_of(record.event) or "", ()):
                wake()

    def _fold(self, record: Record[Event]) -> None:
        try:
            self.state.apply(record)
        except Exception as error:
            self.stop(error)  # half a fact is in the projections: they must be rebuilt
            raise

    def stop(self, error: Exception) -> None:
        """Stop recording, and see to it that this is heard whoever catches the error."""
        before = self.failure
        self.fail(error)
        if before is None and self.on_stopped is not None:
            self.on_stopped(error)

    def answer(self, reply: Reply, value: Any) -> None:
        """Answer when everything recorded so far is durable."""
        if self.failure is not None:
            reply.fail(self.failure)
            return
        if self._seq <= self.durable_seq:
            reply.ok(value)
            return
        self._effects.append((self._seq, self._ok, (reply, value)))

    def answer_with(self, reply: Reply, do: Callable[[], Any]) -> None:
        """Answer with what `do` gives, or refuse by what it raises."""
        try:
            value = do()
        except RequestError as error:
            self.refuse(reply, error)
        else:
            self.answer(reply, value)

    def has_promised(self, reply: Reply) -> bool:
        """Whether an answer is under way: what was asked for is done, or will be decided."""
        if reply in self.reading_for:
            return True
        answers = (self._ok, self._refused)
        return any(how in answers and value[0] is reply for _, how, value in self._effects)

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
            try:
                self._hand_over(unsent)
            except Exception as error:
                logger.exception("the committer takes no more records")
                self.stop(error)

    def committed(self, seq: int) -> None:
        """Run what hung on the records up to `seq`: they are durable."""
        if self.failure is not None:
            return
        reach("journal.durable")
        self.durable_seq = seq
        self._follow(seq)
        while self._effects and self._effects[0][0] <= seq:  # a fault among them may end it all
            _, effect, value = self._effects.popleft()
            try:
                effect(value)
            except Exception as error:
                if isinstance(value, Record):
                    self.on_fault("effect", value, error)
                else:
                    logger.exception("an answer could not be given")
        for listener in self.listeners:
            try:
                listener(seq)
            except Exception:
                logger.exception("a listener failed; the log is not touched by it")

    def _follow(self, seq: int) -> None:
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

"""What is done about a fault: go on from the projections.

A handler, a route or an effect that raises has left something half done: a message was not told,
an attempt not started, a moment used up. Nobody can say what, so nothing is mended by its cause.
Instead the actor is reset at once, and then a *look* has every part do what the projections say is
due, as at a start: attempts are started or interrupted, timers armed, callbacks owed, batches
finished, slots given away. A look is idempotent, and comes the rarer the more there is to mend.
What a message alone knew (how an attempt ended) is tried once more. A message that fails twice is
dropped, and the task that it is about is interrupted, failed or cancelled, for all to see. If a
fact cannot be folded the state is not to be trusted: the shard rebuilds it from the log.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rota.actors import messages as m
from rota.actors import moments
from rota.actors.runtime import Again, body_of
from rota.domain.attempts import decide_giving_up
from rota.domain.batch import decide_finish
from rota.domain.events import ActorFailed, DeliveryAbandoned
from rota.domain.task import IN_FLIGHT
from rota.errors import InternalFault, LogUnusable, RotaError, StorageUnavailable, Unfolded

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.consequences import Consequences
    from rota.actors.host import Host
    from rota.actors.journal import Journal
    from rota.actors.runtime import CooperativeActor
    from rota.domain.events import Event, Record

logger = logging.getLogger("rota.mending")

GAP_US = 1_000_000
GAP_US_MAX = 64_000_000
"""Between two looks, and between two records of the same fault; doubles while faults go on."""
MEMORY_US = 300_000_000
"""For so long the first failure of a message is remembered."""
REMEMBERED_MAX = 10_000
STOPS_MAX = 10
STOPS_APART_US = 60_000_000
"""So many stops of the journal, none of them further from the last, are the end."""

STOP_REST_US = 500_000

TRIED_AGAIN = (m.AttemptEnded, m.Drain)
"""Messages that say what no projection knows."""
ABOUT_A_TASK: tuple[type[Any], ...] = (m.StartAttempt, m.AttemptEnded, *moments.OF_TASKS)
"""Messages that a task cannot go on without."""
CALLBACKS = (m.DeliverCallback, m.CallbackRead, m.CallbackReported)


def _answer_to(error: Exception) -> RotaError:
    if isinstance(error, StorageUnavailable):
        return error
    if isinstance(error, LogUnusable):
        return StorageUnavailable(error.message, hint="not acknowledged; try again later")
    return InternalFault("rota failed on this request; the failure was recorded")


class Mended(Protocol):
    """What there is of a shard to go on with."""

    stopping: bool
    timer: ActorRef[Any]

    def singles(self) -> list[ActorRef[Any]]:
        """Give the actors that there is one of each."""
        ...

    def drain(self) -> None: ...

    def unfolded(self, error: Unfolded) -> None:
        """Rebuild the state from the log: a fact could not be folded."""
        ...


class Gap:
    """How long something is left alone: longer, the sooner it comes back."""

    __slots__ = ("at", "length", "missed")

    def __init__(self) -> None:
        self.at: int | None = None
        self.length = GAP_US
        self.missed = 0

    def wait_us(self, now: int) -> int:
        """Say how long to wait from now on, at the longest the whole gap.

        Moments are compared by their distance: the clock may have been set back since.
        """
        if self.at is None or abs(now - self.at) > 2 * self.length:
            return 0
        return min(self.length, max(0, self.at + self.length - now))

    def pass_by(self, now: int) -> None:
        """Take note that it came now."""
        often = self.at is not None and abs(now - self.at) <= 2 * self.length
        self.length = min(2 * self.length, GAP_US_MAX) if often else GAP_US
        self.at = now


class Stops:
    """How often the journal had to stop because a fact could not be folded, one time after another.

    The fact was never written, so the log is folded anew and all goes on; but a fault that comes
    back each time must not be met for ever.
    """

    def __init__(self) -> None:
        self.count = 0
        self._at = 0

    def add(self, now: int) -> bool:
        """Count another; True if that was one too many."""
        self.count = self.count + 1 if abs(now - self._at) < STOPS_APART_US else 1
        self._at = now
        return self.count >= STOPS_MAX

    def rest_us(self) -> int:
        """Say how long to rest before all goes on: longer each time."""
        return STOP_REST_US << min(self.count, 4)


class Mending:
    """Deals with the faults of one set of actors."""

    def __init__(
        self, journal: Journal, consequences: Consequences, cast: Mended, host: Host
    ) -> None:
        """Mend what `journal` tells of; take turns with the rest of the loop by `host`."""
        self._journal = journal
        self._consequences = consequences
        self._cast = cast
        self._host = host
        self._timer = cast.timer
        self._gap = Gap()
        self._said: dict[tuple[str, str], Gap] = {}  # by actor and message: when to tell again
        self._failed_at: dict[tuple[str, ...], int] = {}  # what has failed once, and when
        self._dropped: set[str] = set()  # batches that a look must not begin with again
        self.is_due = False  # whether a look is under way
        journal.on_fault = self.fact_failed
        journal.on_stopped = self.journal_stopped

    # -- faults

    def handler_failed(self, actor: CooperativeActor, message: Any, error: Exception) -> None:
        """Tell whoever asked, and go on after a handler that raised."""
        reply = getattr(message, "reply", None)
        if reply is not None and not self._journal.has_promised(reply):
            self._try(lambda: reply.fail(_answer_to(error)))
        if self._journal.failure is not None:
            return  # everything is rebuilt from the log
        again = type(message) is Again
        message = message.message if again else message
        name, kind = type(actor).__name__, type(message).__name__
        subject, actor.subject = actor.subject, ""
        is_ours = not isinstance(error, LogUnusable | StorageUnavailable)
        if is_ours:
            self._try(lambda: self._tell_of(name, kind, error))
        self._try(actor.reset)
        if is_ours:
            self._try(lambda: self._deal_with(actor, message, subject, again=again))
        self.look_soon()

    def fact_failed(self, where: str, record: Record[Event], error: Exception) -> None:
        """Go on after a route or an effect that raised: whoever should hear of a fact did not."""
        self._try(lambda: self._tell_of(where, type(record.event).__name__, error))
        self.look_soon()

    def journal_stopped(self, error: Exception) -> None:
        """Have the state rebuilt, whoever caught the error on its way."""
        unfolded = Unfolded(f"a fact could not be recorded: {type(error).__name__}: {error}")
        logger.error("%s", unfolded, exc_info=error)

        def rebuild() -> None:
            if not self._is_gone():
                self._cast.unfolded(unfolded)

        self._host.call_soon(rebuild)

    def _is_gone(self) -> bool:
        return bool(body_of(self._timer).stopped)

    def _try(self, step: Callable[[], None]) -> None:
        """Do what can be done: a fault in here must not keep the rest from being mended."""
        try:
            step()
        except StorageUnavailable:
            pass  # everything is rebuilt from the log
        except Exception:
            logger.exception("a fault could not be dealt with")

    def _tell_of(self, name: str, kind: str, error: Exception) -> None:
        """Log and record a fault; of one that comes again and again only now and then."""
        gap = self._said.setdefault((name, kind), Gap())
        now = self._host.clock.now_us()
        if gap.wait_us(now):
            gap.missed += 1
            return
        gap.pass_by(now)
        missed, gap.missed = gap.missed, 0
        logger.error("%s failed on %s (and %d times since)", name, kind, missed, exc_info=error)
        if self._journal.failure is None:
            text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode()
            self._journal.record(ActorFailed(name, kind, text[:500], missed or None))

    def _deal_with(
        self, actor: CooperativeActor, message: Any, subject: str, *, again: bool
    ) -> None:
        """Try once more what must be; give up what fails twice."""
        name, kind = type(actor).__name__, type(message).__name__
        if subject:  # a message about many tasks, of which this one was at hand
            if self._is_second(name, "", subject):
                self._give_up(subject)
        elif isinstance(message, TRIED_AGAIN) and not again:
            if self._is_owed(message):
                actor.actor_ref.tell(Again(message))
        elif isinstance(message, ABOUT_A_TASK):
            if again or self._is_second(name, kind, message.task):
                self._give_up(message.task)
        elif isinstance(message, CALLBACKS):
            if self._is_second(name, "", message.delivery):
                self._abandon(message)
        elif isinstance(message, m.FinishBatch) and self._is_second(name, kind, message.batch):
            self._dropped.add(message.batch)
            self._finish(message.batch)

    def _is_second(self, *what: str) -> bool:
        """Whether this has failed before, lately."""
        now = self._host.clock.now_us()
        before = self._failed_at.pop(what, None)
        if before is not None and abs(now - before) < MEMORY_US:
            return True
        if len(self._failed_at) >= REMEMBERED_MAX:
            del self._failed_at[next(iter(self._failed_at))]
        self._failed_at[what] = now
        return False

    def _is_owed(self, message: Any) -> bool:
        """Whether a message that failed has not come to anything yet."""
        if not isinstance(message, m.AttemptEnded):
            return True
        task = self._journal.state.tasks.get(message.task)
        return task is not None and task.token == message.token and task.state in IN_FLIGHT

    def _give_up(self, task_id: str) -> None:
        task = self._journal.state.tasks.get(task_id)
        events = decide_giving_up(task) if task is not None else ()
        if events:
            fate = type(events[-1]).__name__
            logger.error("rota failed twice on task %s, so it ends as %s", task_id, fate)
            self._journal.record(*events)

    def _abandon(self, message: m.DeliverCallback | m.CallbackRead | m.CallbackReported) -> None:
        delivery = self._journal.state.deliveries.pending.get(message.task)
        if delivery is not None and delivery.id == message.delivery:
            number = delivery.tries + 1
            head = (delivery.task, delivery.agent, delivery.id, number)
            self._journal.record(DeliveryAbandoned(*head, 0, "rota failed on it twice"))

    def _finish(self, batch_id: str) -> None:
        event = decide_finish(self._journal.state.batches.get(batch_id))
        if event is not None:
            self._journal.record(event)
        self._dropped.discard(batch_id)

    # -- the look

    def look_soon(self) -> None:
        """Have everybody look at the projections, soon, or as soon as is decent."""
        if self.is_due or self._journal.failure is not None:
            return
        self.is_due = True
        now = self._host.clock.now_us()
        wait_us = self._gap.wait_us(now)
        if wait_us:
            self._host.call_at(now + wait_us, self._look)
        else:
            self._host.call_soon(self._look)

    def _is_over(self) -> bool:
        """Whether the actors are gone, or about to be replaced."""
        return self._journal.failure is not None or self._is_gone()

    def _look(self) -> None:
        self.is_due = False
        if self._is_over():
            return
        self._gap.pass_by(self._host.clock.now_us())
        for ref in self._cast.singles():
            self._try(body_of(ref).reset)
            ref.tell(m.LookAgain())
        if self._cast.stopping:
            self._cast.drain()
        for batch in self._journal.state.batches.unfinished():
            if batch not in self._dropped:
                self._try(partial(self._consequences.finish, batch))

"""Webhooks: delivers callbacks.

In: deliveries that are due (the task's or batch's end is durable), reports of tries. Out:
`delivery_succeeded`, `delivery_failed`, `delivery_abandoned`. How many are sent at once, and whose
turn it is, is decided in `domain/receivers.py`; the rest waits here, and nothing is dropped. What a
callback tells of and has left memory is read beside the loop when its turn has come.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from rota.actors.messages import CallbackRead, CallbackReported, DeliverCallback, Drain
from rota.actors.runtime import CooperativeActor
from rota.domain.batch import Batch
from rota.domain.delivery import ESCALATED, DeliveryReport, decide_delivery
from rota.domain.receivers import Receivers
from rota.domain.workflow import Escalation, Workflow
from rota.errors import RotaError, StorageUnavailable
from rota.eventlog.crash_points import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.delivery import Delivery
    from rota.domain.receivers import Standing
    from rota.domain.task import Task

logger = logging.getLogger("rota.webhook")

UNREAD_PAUSE_US = 1_000_000
"""After so long is read again what the log could not give."""


class Courier(Protocol):
    """Makes one try to deliver a callback; answers by calling `done`, later."""

    def deliver(
        self,
        subject: Task | Batch | Escalation,
        tasks: Sequence[Task],
        delivery_id: str,
        done: Callable[[DeliveryReport], None],
    ) -> None:
        """Send the callback of a task, or of a batch, workflow or escalation and its `tasks`."""
        ...


class Turn(NamedTuple):
    """A place at a host, and whose callback has it."""

    host: str
    standing: Standing
    due: DeliverCallback


class WebhookActor(CooperativeActor):
    """Owes and delivers callbacks."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        courier: Courier,
        *,
        tries_max: int,
        per_host_max: int,
        parallel_max: int,
        archive: Archive,
        call_at: Callable[[int, Callable[[], None]], Any],
    ) -> None:
        """Send through `courier`; `archive` finds also what has left memory.

        By `call_at` it is woken to read again what could not be read.
        """
        super().__init__(runtime)
        self._journal = journal
        self._courier = courier
        self._tries_max = tries_max
        self._archive = archive
        self._call_at = call_at
        self._draining = False
        self._busy: set[str] = set()  # whose callback waits, is read for or is being sent
        self._turns: dict[str, Turn] = {}  # who has a place and no try yet: it is read for
        self._sending: set[str] = set()  # whose try is under way
        self.receivers: Receivers[DeliverCallback] = Receivers(
            per_host_max=per_host_max, parallel_max=parallel_max
        )

    def reset(self) -> None:
        """Know only of the tries that are under way; the rest is owed anew by who resets this."""
        self._give_back_all()
        self._busy = set(self._sending)
        self.receivers.forget_waiting()

    def oldest_s(self, now: int) -> int:
        """Give the age of the callback that has been owed longest."""
        delivery = next(iter(self._journal.state.deliveries.pending.values()), None)
        return max(0, now - delivery.since) // 1_000_000 if delivery is not None else 0

    def _deliver(self, delivery: Delivery) -> None:
        """Have a callback sent, unless its task's end is still being written: it follows then."""
        if delivery.seq <= self._journal.durable_seq:
            self.actor_ref.tell(DeliverCallback(delivery.task, delivery.id))

    def on_receive(self, message: Any) -> None:
        if type(message) is DeliverCallback:
            self._enqueue(message)
        elif type(message) is CallbackReported:
            self._settle(message)
        elif type(message) is CallbackRead:
            self._take_up(message)
        elif type(message) is Drain:
            self._draining = True
            self._give_back_all()  # it is owed at the next start
        self._send()

    def _owed(self, message: DeliverCallback | CallbackReported) -> Delivery | None:
        """Give the delivery that is meant, unless it is settled or a later end has replaced it."""
        delivery = self._journal.state.deliveries.pending.get(message.task)
        return delivery if delivery is not None and delivery.id == message.delivery else None

    def _enqueue(self, message: DeliverCallback) -> None:
        delivery = self._owed(message)
        if message.task in self._busy or delivery is None:
            return
        if delivery.tries and delivery.due_at > self._journal.now():
            return  # its last try was still under way when this was sent; the timer knows the next
        host = urlsplit(delivery.callback).hostname or ""
        self._busy.add(message.task)
        self.receivers.add(host, message)

    def _send(self) -> None:
        while not self._draining:
            taken = self.receivers.take()
            if taken is None:
                return
            turn = Turn(*taken)
            if turn.due.task in self._turns or turn.due.task in self._sending:
                self.receivers.give_back(turn.host, turn.standing)  # it came twice
                continue
            self._turns[turn.due.task] = turn
            self._start(turn, None)

    def _give_back(self, turn: Turn) -> None:
        """Let go of a place that no try was made from."""
        del self._turns[turn.due.task]
        self._busy.discard(turn.due.task)
        self.receivers.give_back(turn.host, turn.standing)

    def _give_back_all(self) -> None:
        for turn in list(self._turns.values()):
            self._give_back(turn)

    def _start(self, turn: Turn, fetched: Fetched | None) -> None:
        """Start a try, if all that it tells of is here; or have that read first."""
        task_id = turn.due.task
        if self._owed(turn.due) is None:
            self._give_back(turn)
            self._go_on(task_id)
        elif lacking := self._lacking(task_id, fetched):
            self._read(turn, lacking, fetched)
        else:
            self._try(turn, fetched)

    def _lacking(self, subject: str, fetched: Fetched | None) -> list[str]:
        """Name what has to be read before a callback can be sent."""
        subject = subject.removesuffix(ESCALATED)
        lacking = self._archive.lacking((subject,), fetched)
        if not lacking:
            found = self._archive.either(subject, fetched)
            if isinstance(found, Batch):
                return self._archive.lacking(found.tasks, fetched)
        return lacking

    def _read(self, turn: Turn, lacking: list[str], fetched: Fetched | None) -> None:
        due = turn.due
        turn = self._turns[due.task] = Turn(*turn)  # another for every read: only its answer counts

        def go_on(found: Fetched | RotaError) -> None:
            self.actor_ref.tell(CallbackRead(due.task, due.delivery, turn, found))

        self._archive.fetch(lacking, fetched, go_on, go_on, depth="shown")

    def _take_up(self, message: CallbackRead) -> None:
        """Go on with what was read, unless nobody waits for it any more."""
        turn, found = self._turns.get(message.task), message.found
        if turn is None or turn is not message.turn:
            return
        if isinstance(found, StorageUnavailable):  # no try is spent, and no other held up
            again = message._replace(found=None)
            self._call_at(self._journal.now() + UNREAD_PAUSE_US, lambda: self.actor_ref.tell(again))
        elif isinstance(found, RotaError):
            self._try(turn, found)
        else:
            self._start(turn, found)

    def _try(self, turn: Turn, found: Fetched | RotaError | None) -> None:
        host, standing, due = turn
        is_open = True

        def done(report: DeliveryReport) -> None:
            nonlocal is_open
            if is_open:  # here and not in a handler: a fault there must not cost the place
                is_open = False
                self._sending.discard(due.task)
                answered = report.status != 0
                self.receivers.ended(host, standing, answered=answered, took_ms=report.duration_ms)
                self.actor_ref.tell(CallbackReported(due.task, due.delivery, report))

        del self._turns[due.task]
        self._sending.add(due.task)
        reach("webhook.before_send")
        try:
            self._hand_over(due, found, done)
        except Exception as error:
            logger.exception("a callback could not be sent")
            done(DeliveryReport(ok=False, error=f"could not be sent: {type(error).__name__}"))

    def _hand_over(
        self,
        due: DeliverCallback,
        found: Fetched | RotaError | None,
        done: Callable[[DeliveryReport], None],
    ) -> None:
        if isinstance(found, RotaError):
            raise found
        subject = self._archive.either(due.task.removesuffix(ESCALATED), found)
        assert subject is not None, due
        find = self._archive.finder(found)
        ids = subject.tasks if isinstance(subject, Batch) else ()
        tasks = [task for each in ids if (task := find(each)) is not None]
        if isinstance(subject, Workflow) and due.task.endswith(ESCALATED):
            self._courier.deliver(Escalation(subject), tasks, due.delivery, done)
        else:
            self._courier.deliver(subject, tasks, due.delivery, done)

    def _settle(self, message: CallbackReported) -> None:
        reach("webhook.after_send")
        if message.task not in self._sending and message.task not in self._turns:
            self._busy.discard(message.task)
        delivery = self._owed(message)
        if delivery is None:
            self._go_on(message.task)
            return
        now = self._journal.now()
        event = decide_delivery(delivery, message.report, self._tries_max, now)
        self._journal.record(event)

    def _go_on(self, task_id: str) -> None:
        """Tell of a later end, which waited until the callback of an earlier one was through."""
        delivery = self._journal.state.deliveries.pending.get(task_id)
        if delivery is not None and delivery.due_at <= self._journal.now():
            self._deliver(delivery)

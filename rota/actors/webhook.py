"""Webhooks: delivers callbacks.

In: deliveries that are due (the task's or batch's end is durable), reports of tries. Out:
`delivery_succeeded`, `delivery_failed`, `delivery_abandoned`. How many are sent at once, and whose
turn it is, is decided in `domain/receivers.py`; the rest waits here, and nothing is dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rota.actors.messages import CallbackReported, DeliverCallback, Drain
from rota.actors.runtime import CooperativeActor
from rota.domain.delivery import DeliveryReport, decide_delivery
from rota.domain.receivers import Receivers
from rota.errors import LogUnusable
from rota.eventlog.crash_points import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.batch import Batch
    from rota.domain.delivery import Delivery
    from rota.domain.receivers import Standing
    from rota.domain.task import Task

logger = logging.getLogger("rota.webhook")


class Courier(Protocol):
    """Makes one try to deliver a callback; answers by calling `done`, later."""

    def deliver(
        self, subject: Task | Batch, delivery_id: str, done: Callable[[DeliveryReport], None]
    ) -> None:
        """Send the callback of a task or a batch."""
        ...


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
        find: Callable[[str], Task | Batch | None],
    ) -> None:
        """Send through `courier`; `find` finds also what has left memory."""
        super().__init__(runtime)
        self._journal = journal
        self._courier = courier
        self._tries_max = tries_max
        self._find = find
        self._draining = False
        self._busy: set[str] = set()  # whose callback waits or is being sent
        self._sending: set[str] = set()  # whose try is under way
        self._oldest = ("", 0)
        self.receivers: Receivers[DeliverCallback] = Receivers(
            per_host_max=per_host_max, parallel_max=parallel_max
        )

    def reset(self) -> None:
        """Know only of the tries that are under way; the rest is owed anew by who resets this."""
        self._busy = set(self._sending)
        self.receivers.forget_waiting()

    def oldest_s(self, now: int) -> int:
        """Give the age of the callback that has been owed longest."""
        delivery = next(iter(self._journal.state.deliveries.pending.values()), None)
        if delivery is None:
            return 0
        shift = self._journal.state.steps.shift
        if self._oldest[0] != delivery.id:
            subject = self._find(delivery.task)
            since = subject.finished_at if subject is not None else None
            self._oldest = (delivery.id, (since or delivery.due_at) - shift)
        return max(0, now - shift - self._oldest[1]) // 1_000_000

    def _deliver(self, delivery: Delivery) -> None:
        """Have a callback sent, unless its task's end is still being written: it follows then."""
        if delivery.seq <= self._journal.durable_seq:
            self.actor_ref.tell(DeliverCallback(delivery.task, delivery.id))

    def on_receive(self, message: Any) -> None:
        """Queue what is due, settle what is reported, send what may be sent."""
        if type(message) is DeliverCallback:
            self._enqueue(message)
        elif type(message) is CallbackReported:
            self._settle(message)
        elif type(message) is Drain:
            self._draining = True
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
        subject = self._find(message.task)
        if subject is None or not subject.callback:
            return
        self._busy.add(message.task)
        self.receivers.add(urlsplit(subject.callback).hostname or "", message)

    def _send(self) -> None:
        """Send what may be sent."""
        while not self._draining:
            taken = self.receivers.take()
            if taken is None:
                return
            self._start(*taken)

    def _start(self, host: str, standing: Standing, due: DeliverCallback) -> None:
        is_open = True

        def done(report: DeliveryReport) -> None:
            nonlocal is_open
            if is_open:  # here and not in a handler: a fault there must not cost the place
                is_open = False
                self._sending.discard(due.task)
                answered = report.status != 0
                self.receivers.ended(host, standing, answered=answered, took_ms=report.duration_ms)
                self.actor_ref.tell(CallbackReported(*due, report))

        if self._owed(due) is None:
            self.receivers.give_back(host, standing)
            self._busy.discard(due.task)
            self._go_on(due.task)
            return
        self._sending.add(due.task)
        reach("webhook.before_send")
        try:
            subject = self._find(due.task)
            assert subject is not None, due
            self._courier.deliver(subject, due.delivery, done)
        except LogUnusable:  # it is being opened anew, and the callback is owed again then
            is_open = False
            self._sending.discard(due.task)
            self._busy.discard(due.task)
            self.receivers.give_back(host, standing)
            raise
        except Exception as error:
            logger.exception("a callback could not be sent")
            done(DeliveryReport(ok=False, error=f"could not be sent: {type(error).__name__}"))

    def _settle(self, message: CallbackReported) -> None:
        reach("webhook.after_send")
        if message.task not in self._sending:
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

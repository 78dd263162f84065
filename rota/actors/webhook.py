"""Webhooks: delivers callbacks.

In: deliveries that are due (the task's or batch's end is durable), reports of tries. Out:
`delivery_succeeded`, `delivery_failed`, `delivery_abandoned`. Keeps two tries at most at one host
at a time and a bound over all hosts; the rest waits its turn here, and nothing is dropped. One
slow host does not hold up the others.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rota.actors.messages import CallbackReported, DeliverCallback, Drain
from rota.actors.runtime import CooperativeActor
from rota.domain.delivery import DeliveryReport, decide_delivery
from rota.eventlog.crash_points import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.batch import Batch
    from rota.domain.delivery import Delivery
    from rota.domain.task import Task

logger = logging.getLogger("rota.webhook")

PER_HOST_MAX = 2


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
        parallel_max: int,
        find: Callable[[str], Task | Batch | None],
    ) -> None:
        """Send through `courier`; `find` finds also what has left memory."""
        super().__init__(runtime)
        self._journal = journal
        self._courier = courier
        self._tries_max = tries_max
        self._parallel_max = parallel_max
        self._find = find
        self._draining = False
        self._clear()

    def _clear(self) -> None:
        self._waiting: dict[str, deque[DeliverCallback]] = {}
        self._active: dict[str, int] = {}
        self._hosts: deque[str] = deque()
        self._busy: dict[str, str] = {}  # whose callback waits or is being sent, and to which host

    def reset(self) -> None:
        """Owe every callback anew; one that is being sent may arrive twice, under one id."""
        self._clear()
        for delivery in self._journal.state.deliveries.pending.values():
            self._deliver(delivery)

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
        if delivery.due_at > self._journal.now():
            return  # its last try was still under way when this was sent; the timer knows the next
        subject = self._find(message.task)
        if subject is None or not subject.callback:
            return
        host = urlsplit(subject.callback).hostname or ""
        self._busy[message.task] = host
        waiting = self._waiting.get(host)
        if waiting is None:
            waiting = self._waiting[host] = deque()
            self._hosts.append(host)
        waiting.append(message)

    def _send(self) -> None:
        """Go round the hosts until none of them, or none at all, may take another."""
        passed = 0
        while passed < len(self._hosts) and not self._draining:
            if sum(self._active.values()) >= self._parallel_max:
                return
            host = self._hosts[0]
            self._hosts.rotate(-1)
            if self._active.get(host, 0) >= PER_HOST_MAX:
                passed += 1
                continue
            passed = 0
            waiting = self._waiting[host]
            due = waiting.popleft()
            if not waiting:
                del self._waiting[host]
                self._hosts.pop()  # the rotation has put it last
            self._start(host, due)

    def _start(self, host: str, due: DeliverCallback) -> None:
        if self._owed(due) is None:
            del self._busy[due.task]
            self._go_on(due.task)
            return
        self._active[host] = self._active.get(host, 0) + 1
        reach("webhook.before_send")

        def done(report: DeliveryReport) -> None:
            self.actor_ref.tell(CallbackReported(*due, report))

        try:
            subject = self._find(due.task)
            assert subject is not None, due
            self._courier.deliver(subject, due.delivery, done)
        except Exception as error:
            logger.exception("a callback could not be sent")
            done(DeliveryReport(ok=False, error=f"could not be sent: {type(error).__name__}"))

    def _settle(self, message: CallbackReported) -> None:
        reach("webhook.after_send")
        host = self._busy.pop(message.task, None)
        if host is not None:
            self._active[host] -= 1
            if not self._active[host]:
                del self._active[host]
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

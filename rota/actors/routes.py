"""Who hears of which fact, and when.

One table of what follows from an event: what other actors are told as soon as it is recorded
(decisions inside), and what is set off once it is durable (effects outside). Every actor records;
none has to know who cares.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rota.actors import messages as m
from rota.actors.log_rate import LogRate
from rota.domain import events as e
from rota.domain.commands import PULL
from rota.domain.delivery import delivery_id
from rota.domain.task import IN_FLIGHT, READY, SCHEDULED, TERMINAL, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykka import ActorRef

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.projections.state import State


logger = logging.getLogger("rota.webhook")

FAILED_LINES_MAX = 20
FAILED_LINES_SPAN_S = 60.0
HOST_CHARS_MAX = 253


class Cast(Protocol):
    """The actors of a shard."""

    admission: ActorRef[Any]
    dependencies: ActorRef[Any]
    dispatcher: ActorRef[Any]
    pool: ActorRef[Any]
    webhook: ActorRef[Any]
    timer: ActorRef[Any]
    archive: Archive

    def queue(self, agent: str) -> ActorRef[Any]:
        """Give the agent's queue, started if need be."""
        ...


class Routes:
    """The table, for the actors of one shard."""

    def __init__(self, state: State, cast: Cast) -> None:
        """Route between these actors."""
        self._tasks = state.tasks
        self._deliveries = state.deliveries
        self._batches = state.batches
        self._orders = state.backlog.orders
        self._due = state.dependencies.due
        self._cast = cast
        self._failed_lines = LogRate(FAILED_LINES_MAX, FAILED_LINES_SPAN_S)

    def install(self, journal: Journal) -> None:
        """Have the journal follow the table."""
        self._journal = journal
        journal.on_record |= {
            e.TaskSubmitted: self._submitted,
            e.TaskReleased: self._released,
            e.TaskDelayed: self._scheduled,
            e.TaskRevived: self._revived,
            e.AttemptInterrupted: self._interrupted,
            e.AttemptFailed: self._attempt_failed,
            e.TaskAssigned: self._assigned,
            e.TaskSucceeded: self._succeeded,
            e.TaskFailed: self._failed,
            e.TaskExpired: self._expired,
            e.TaskCancelled: self._cancelled,
            e.AgentResumed: self._agent_released,
            e.ConfigChanged: self._limits_changed,
            e.DeliveryFailed: self._deliver_later,
            e.ClockStepped: self._clock_stepped,
        }
        journal.on_durable |= {
            e.TaskAssigned: self._start,
            e.AttemptInterrupted: self._aborted,
            e.AttemptFailed: self._aborted,
            e.BatchFinished: self._batch_finished,
            e.DeliveryFailed: self._delivery_failed,
            e.DeliveryAbandoned: self._delivery_failed,
            e.TaskSucceeded: self._ended,
            e.TaskFailed: self._ended,
            e.TaskExpired: self._ended,
            e.TaskCancelled: self._ended,
        }

    # -- as soon as it is recorded

    def _submitted(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:  # it may be doomed, and gone
            self._enters(task)

    def _enters(self, task: Task) -> None:
        """Tell of a task that is new, or lives again."""
        if task.state is READY:
            self._queued(task)
        self.rearm(task)

    def _waits(self, task: Task) -> None:
        """Tell of a task that entered its queue, and of nothing else that is due."""
        order = self._orders.get(task.agent)
        head = order.head(task.lane) if order is not None else None
        if head is task and task.executor != PULL:  # by no detour: a slot may be free for it
            self._cast.dispatcher.tell(m.HeadChanged(task.agent, task.lane))
        if task.plan is not None and task.plan.queue_timeout_ms is not None:
            due = task.ready_at + task.plan.queue_timeout_ms * 1000
            self._cast.timer.tell(m.Arm(due, m.EndWait(task.id, task.entry)))

    def _queued(self, task: Task) -> None:
        self._cast.queue(task.agent).tell(m.TaskWaits(task.lane, task.id))

    def _released(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._waits(task)

    def _scheduled(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._cast.timer.tell(m.Arm(task.next_at, m.ReleaseTask(task.id)))

    def _revived(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._enters(task)

    def _interrupted(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._cast.dispatcher.tell(m.SlotFreed(task.agent, task.lane))
            self._waits(task)

    def _attempt_failed(self, record: Record) -> None:
        self._slot_freed(record)
        self._scheduled(record)

    def _assigned(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._arm_timeout(task)

    def _arm_timeout(self, task: Task) -> None:
        if task.timeout_ms is not None:
            due = task.assigned_at + task.timeout_ms * 1000
            self._cast.timer.tell(m.Arm(due, m.TimeOutAttempt(task.id, task.token)))

    def _slot_freed(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._cast.dispatcher.tell(m.SlotFreed(task.agent, task.lane))

    def _succeeded(self, record: Record) -> None:
        self._slot_freed(record)
        self._over(record)

    def _failed(self, record: Record) -> None:
        self._slot_freed(record)
        self._left(record)
        self._over(record)

    def _expired(self, record: Record) -> None:
        self._left(record)
        self._over(record)

    def _over(self, record: Record) -> None:
        """Tell whoever waited for the end of a task: its dependents, its batch."""
        if self._due:
            self._cast.dependencies.tell(m.SettleDependents())
        task = self._of(record)
        plan = task.plan if task is not None else None
        if plan is not None and plan.batch is not None:
            batch = self._batches.get(plan.batch)
            if batch is not None and not batch.left:
                self.finish(batch.id)

    def _left(self, record: Record) -> None:
        task = self._of(record)
        if task is not None:
            self._cast.queue(task.agent).tell(m.TaskLeft(task.lane))

    def _cancelled(self, record: Record) -> None:
        event: e.TaskCancelled = record.event  # type: ignore[assignment]
        if event.was in WAITING:
            self._left(record)
        else:
            self._slot_freed(record)
        self._over(record)

    def _agent_released(self, record: Record) -> None:
        self._cast.dispatcher.tell(m.AgentReleased(record.event.agent))  # type: ignore[union-attr]

    def _limits_changed(self, record: Record) -> None:
        del record
        self._cast.dispatcher.tell(m.LookAgain())

    def _deliver_later(self, record: Record) -> None:
        event: e.DeliveryFailed = record.event  # type: ignore[assignment]
        self._cast.timer.tell(m.Arm(event.next_at, m.DeliverCallback(event.task, event.delivery)))

    def _clock_stepped(self, record: Record) -> None:
        del record
        self._cast.timer.tell(m.DeriveMoments())

    # -- once it is durable

    def _start(self, record: Record) -> None:
        event: e.TaskAssigned = record.event  # type: ignore[assignment]
        self._cast.pool.tell(m.StartAttempt(event.task, record.seq))

    def _aborted(self, record: Record) -> None:
        event: Any = record.event
        reason = getattr(event, "error", "") or event.reason
        self._cast.pool.tell(m.AbortAttempt(event.task, record.seq, reason))

    def _batch_finished(self, record: Record) -> None:
        event: e.BatchFinished = record.event  # type: ignore[assignment]
        self._tell_of(event.batch, record.seq)

    def _ended(self, record: Record) -> None:
        event: Any = record.event
        if type(event) is not e.TaskSucceeded:
            reason = getattr(event, "error", "") or "cancelled"
            self._cast.pool.tell(m.AbortAttempt(event.task, record.seq, reason))
        self._tell_of(event.task, record.seq)

    def finish(self, batch_id: str) -> None:
        """Have a batch finished whose tasks have all ended."""
        self._cast.admission.tell(m.FinishBatch(batch_id))

    def _delivery_failed(self, record: Record) -> None:
        """Log a try that came to nothing; of the address no more than the host is anybody's."""
        event: e.DeliveryFailed | e.DeliveryAbandoned = record.event  # type: ignore[assignment]
        subject = self._tasks.get(event.task) or self._batches.get(event.task)
        host = urlsplit(subject.callback or "").hostname if subject is not None else None
        self._failed_lines.warn(
            logger,
            "the callback of %s to %s was not delivered by try %d (%s); %s",
            event.task,
            (host or "its receiver")[:HOST_CHARS_MAX],
            event.number,
            f"status {event.status}" if event.status else "no answer",
            "it was given up" if type(event) is e.DeliveryAbandoned else "it is tried again",
        )

    def _tell_of(self, subject: str, seq: int) -> None:
        """Have the callback sent that this end, and no later one, owes."""
        delivery = self._deliveries.pending.get(subject)
        if delivery is not None and delivery.id == delivery_id(seq, subject):
            self._cast.webhook.tell(m.DeliverCallback(subject, delivery.id))

    # -- what the timer sends

    def due(self, message: Any) -> None:
        """Send a message whose moment has come to whoever handles it."""
        if type(message) is m.DeliverCallback:
            self._cast.webhook.tell(message)
        elif type(message) is m.TimeOutAttempt:
            self._cast.pool.tell(message)
        else:
            task = self._tasks.get(message.task)
            if task is not None:
                self._cast.queue(task.agent).tell(message)

    def is_live(self, message: Any) -> bool:
        """Whether a message that waits for its moment can still mean anything."""
        if type(message) is m.DeliverCallback:
            delivery = self._deliveries.pending.get(message.task)
            return delivery is not None and delivery.id == message.delivery
        task = self._tasks.get(message.task)
        if task is None:
            return False
        if type(message) is m.TimeOutAttempt:
            return task.token == message.token and task.state in IN_FLIGHT
        if type(message) is m.EndWait:
            return task.entry == message.entry
        if type(message) is m.ReleaseTask:
            return task.state is SCHEDULED
        return task.state not in TERMINAL

    def rearm(self, task: Task) -> None:
        """Arm what a task has due when it enters."""
        for at, message in self._moments_of(task):
            self._cast.timer.tell(m.Arm(at, message))

    def moments(self) -> Iterator[tuple[int, Any]]:
        """Give all that is due some time, as the projections tell."""
        for task in self._tasks:
            yield from self._moments_of(task)
        durable_seq = self._journal.durable_seq
        for delivery in self._deliveries.pending.values():
            if delivery.seq <= durable_seq:  # else it is told of when its end is durable
                yield delivery.due_at, m.DeliverCallback(delivery.task, delivery.id)

    def _moments_of(self, task: Task) -> Iterator[tuple[int, Any]]:
        if task.state in TERMINAL:
            return
        if task.deadline is not None:
            yield task.deadline, m.ExpireTask(task.id)
        if task.state is SCHEDULED:
            yield task.next_at, m.ReleaseTask(task.id)
        elif task.state is READY:
            if task.plan is not None and task.plan.queue_timeout_ms is not None:
                due = task.ready_at + task.plan.queue_timeout_ms * 1000
                yield due, m.EndWait(task.id, task.entry)
        elif task.timeout_ms is not None and task.state in IN_FLIGHT:
            due = task.assigned_at + task.timeout_ms * 1000
            yield due, m.TimeOutAttempt(task.id, task.token)

    def _of(self, record: Record) -> Task | None:
        task_id: str = record.event.task  # type: ignore[union-attr]
        return self._tasks.by_id.get(task_id) or self._cast.archive.lately(task_id)

"""What is due at a moment: which message is sent then, and to whom.

One table: for each message that the timer sends, how its moment follows from a task, a delivery or
a schedule, and who receives it. Nothing is kept here, so everything can be derived again at any
time: at a start, after a step of the clock or a fault, and to tell whether a message that waits for
its moment still means anything, which it does as long as its subject gives the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rota.actors import messages as m
from rota.actors.project_messages import TimeOutRun
from rota.actors.schedule_messages import FireSchedule
from rota.domain.project import progress_ends_at
from rota.domain.task import IN_FLIGHT, READY, SCHEDULED, TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykka import ActorRef

    from rota.actors.journal import Journal
    from rota.domain.delivery import Delivery
    from rota.domain.schedule import Schedule
    from rota.domain.task import Task

    Moment = tuple[int, Any] | None
    """When, and the message that is sent then."""


class Receivers(Protocol):
    """The actors that moments are for."""

    pool: ActorRef[Any]
    webhook: ActorRef[Any]
    timer: ActorRef[Any]
    schedules: ActorRef[Any]
    projects: ActorRef[Any]

    def queue(self, agent: str) -> ActorRef[Any]: ...


class RunClock(NamedTuple):
    """When a run ends that makes no progress until then."""

    run: str
    ends_at: int | None


class Kind(NamedTuple):
    """A kind of moment."""

    of: Callable[[Any], Moment]
    """Give that of a task, a delivery, a schedule or a run, if it has one ahead."""
    to: Callable[[Receivers, Any], ActorRef[Any]]


def _deadline(task: Task) -> Moment:
    if task.deadline is None or task.state in TERMINAL:
        return None
    return task.deadline, m.ExpireTask(task.id)


def _release(task: Task) -> Moment:
    return (task.next_at, m.ReleaseTask(task.id)) if task.state is SCHEDULED else None


def _queue_timeout(task: Task) -> Moment:
    if task.plan is None or task.plan.queue_timeout_ms is None or task.state is not READY:
        return None
    return task.ready_at + task.plan.queue_timeout_ms * 1000, m.EndWait(task.id, task.entry)


def _timeout(task: Task) -> Moment:
    if task.timeout_ms is None or task.state not in IN_FLIGHT:
        return None
    return task.assigned_at + task.timeout_ms * 1000, m.TimeOutAttempt(task.id, task.token)


def _delivery(delivery: Delivery) -> Moment:
    return delivery.due_at, m.DeliverCallback(delivery.task, delivery.id)


def _firing(schedule: Schedule) -> Moment:
    if schedule.due_at is None or schedule.next_at is None:
        return None
    return schedule.due_at, FireSchedule(schedule.name, schedule.next_at)


def _run_timeout(clock: RunClock) -> Moment:
    return (clock.ends_at, TimeOutRun(clock.run)) if clock.ends_at is not None else None


def _its_queue(cast: Receivers, task: Task) -> ActorRef[Any]:
    return cast.queue(task.agent)


OF_TASKS: dict[type[Any], Kind] = {
    m.ExpireTask: Kind(_deadline, _its_queue),
    m.ReleaseTask: Kind(_release, _its_queue),
    m.EndWait: Kind(_queue_timeout, _its_queue),
    m.TimeOutAttempt: Kind(_timeout, lambda cast, _: cast.pool),
}
OF_DELIVERIES: dict[type[Any], Kind] = {
    m.DeliverCallback: Kind(_delivery, lambda cast, _: cast.webhook),
}
OF_SCHEDULES: dict[type[Any], Kind] = {
    FireSchedule: Kind(_firing, lambda cast, _: cast.schedules),
}
OF_RUNS: dict[type[Any], Kind] = {TimeOutRun: Kind(_run_timeout, lambda cast, _: cast.projects)}
KINDS = OF_TASKS | OF_DELIVERIES | OF_SCHEDULES | OF_RUNS


class Moments:
    """The moments of one shard."""

    def __init__(self, journal: Journal, cast: Receivers) -> None:
        self._journal = journal
        self._tasks = journal.state.tasks
        self._pending = journal.state.deliveries.pending
        self._schedules = journal.state.schedules.by_name
        self._cast = cast

    def arm_run(self, run: str) -> None:
        """Have the timer know when a run ends that makes no progress."""
        self.arm(self._clock_of(run), TimeOutRun)

    def arm(self, subject: Task | Delivery | Schedule | RunClock, kind: type[Any]) -> None:
        """Have the timer know the moment of one kind, if there is one."""
        moment = KINDS[kind].of(subject)
        if moment is not None:
            self._cast.timer.tell(m.Arm(*moment))

    def arm_all(self, task: Task) -> None:
        """Have the timer know what a task has due as it enters."""
        for moment in self.of(task):
            self._cast.timer.tell(m.Arm(*moment))

    def of(self, task: Task) -> Iterator[tuple[int, Any]]:
        """Give what a task has due some time."""
        for kind in OF_TASKS.values():
            moment = kind.of(task)
            if moment is not None:
                yield moment

    def all(self) -> Iterator[tuple[int, Any]]:
        """Give all that is due some time, as the projections tell."""
        for task in self._tasks:
            yield from self.of(task)
        durable_seq = self._journal.durable_seq
        for delivery in self._pending.values():
            if delivery.seq <= durable_seq:  # else it is told of when its end is durable
                yield from filter(None, (kind.of(delivery) for kind in OF_DELIVERIES.values()))
        yield from filter(None, map(_firing, self._schedules.values()))
        clocks = map(self._clock_of, self._journal.state.projects.running)
        yield from filter(None, map(_run_timeout, clocks))

    def is_live(self, message: Any) -> bool:
        """Whether a message that waits for its moment still means anything."""
        kind, subject = KINDS[type(message)], self._subject(message)
        moment = kind.of(subject) if subject is not None else None
        return moment is not None and moment[1] == message

    def send(self, message: Any) -> None:
        """Send a message whose moment has come to whoever handles it."""
        subject = self._subject(message)
        if isinstance(subject, RunClock) and (subject.ends_at or 0) > self._journal.now():
            self.arm(subject, TimeOutRun)  # it has made progress since
        elif subject is not None:
            KINDS[type(message)].to(self._cast, subject).tell(message)

    def _clock_of(self, run_id: str) -> RunClock:
        state = self._journal.state
        run = state.projects.find_run(run_id)
        if run is None:
            return RunClock(run_id, None)
        task = state.tasks.get(run.task) if run.task is not None else None
        timeout_ms = state.control.limits.run_timeout_ms
        return RunClock(run_id, progress_ends_at(run, task, timeout_ms))

    def _subject(self, message: Any) -> Task | Delivery | Schedule | RunClock | None:
        if type(message) is FireSchedule:
            return self._schedules.get(message.schedule)
        if type(message) is TimeOutRun:
            return self._clock_of(message.run)
        if type(message) in OF_TASKS:
            return self._tasks.get(message.task)
        return self._pending.get(message.task)

"""Who hears of which fact, and when.

One table of what follows from an event: what other actors are told as soon as it is recorded
(decisions inside), and what is set off once it is durable (effects outside). Every actor records;
none has to know who cares. What is due at a moment is another table (`moments`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rota.actors import lease_messages as lm
from rota.actors import messages as m
from rota.actors import project_messages as pm
from rota.actors.bulk_messages import Reprioritised
from rota.actors.log_rate import LogRate
from rota.actors.schedule_messages import FireSchedule, LookAtSchedule
from rota.domain import events as e
from rota.domain.caps import FLOW, KEY
from rota.domain.declared import key_of, limit_of
from rota.domain.delivery import ESCALATED, delivery_id
from rota.domain.fold import AWAITED_PROJECT
from rota.domain.task import FAILED, READY, WAITING, lane_for
from rota.logs import ERROR_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal
    from rota.actors.moments import Moments
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.projections.state import State


logger = logging.getLogger("rota.dispatch")
attempts = logging.getLogger("rota.attempts")
runs = logging.getLogger("rota.projects")
callbacks = logging.getLogger("rota.webhook")

FAILED_LINES_MAX = 20
FAILED_LINES_SPAN_S = 60.0
FAILED_ATTEMPTS_MAX = 2000
"""So many failed attempts are logged in a minute; one agent's are half of them at most."""
RUN_LINES_MAX = 600
"""So many lines about runs are written in a minute; one project's are half of them at most."""
HOST_CHARS_MAX = 253


class Hearers(Protocol):
    """The actors of a shard."""

    admission: ActorRef[Any]
    orchestrator: ActorRef[Any]
    projects: ActorRef[Any]
    schedules: ActorRef[Any]
    dependents: ActorRef[Any]
    dispatcher: ActorRef[Any]
    leases: ActorRef[Any]
    pool: ActorRef[Any]
    webhook: ActorRef[Any]
    timer: ActorRef[Any]
    archive: Archive


class Consequences:
    """The table, for the actors of one shard."""

    def __init__(self, state: State, cast: Hearers, moments: Moments) -> None:
        self._tasks = state.tasks
        self._deliveries = state.deliveries
        self._batches = state.batches
        self._schedules = state.schedules
        self._orders = state.backlog.orders
        self._slots = state.slots
        self._due = state.graph.due
        self._cast = cast
        self._moments = moments
        self._failed_lines = LogRate(FAILED_LINES_MAX, FAILED_LINES_SPAN_S)
        self._failed_attempts = LogRate(FAILED_ATTEMPTS_MAX, FAILED_LINES_SPAN_S)
        self._run_lines = LogRate(RUN_LINES_MAX, FAILED_LINES_SPAN_S)

    def install(self, journal: Journal) -> None:
        at_once: dict[type[Any], Callable[[Record[Any]], None]] = {
            e.TaskSubmitted: self._submitted,
            e.TaskReleased: self._released,
            e.TaskDelayed: self._scheduled,
            e.TaskHeld: self._held,
            e.TaskRevived: self._revived,
            e.AttemptInterrupted: self._interrupted,
            e.AttemptFailed: self._attempt_failed,
            e.TaskAssigned: self._assigned,
            e.TaskSucceeded: self._succeeded,
            e.TaskFailed: self._failed,
            e.TaskExpired: self._expired,
            e.TaskCancelled: self._cancelled,
            e.TaskReprioritised: self._reprioritised,
            e.AgentResumed: self._agent_released,
            e.ConfigChanged: self._limits_changed,
            e.DeliveryFailed: self._deliver_later,
            e.ClockStepped: self._clock_stepped,
            e.WorkflowResumed: self._flow_resumed,
            e.TypeDeclared: self._declared,
            e.RunQueued: self._room_for_runs,
            e.RunStarted: self._run_started,
            e.RunStopRequested: self._run_stops,
            e.RunEnded: self._run_over,
            e.WorkflowCancelled: self._flow_cancelled,
            e.WorkflowEnded: self._flow_over,
            e.ScheduleCreated: self._moment_ahead,
            e.ScheduleChanged: self._moment_ahead,
            e.ScheduleResumed: self._moment_ahead,
            e.ScheduleFired: self._moment_ahead,
            e.ScheduleMissed: self._moment_ahead,
            e.ScheduleRealigned: self._moment_ahead,
        }
        once_durable: dict[type[Any], Callable[[Record[Any]], None]] = {
            e.TaskAssigned: self._start_attempt,
            e.AttemptInterrupted: self._abort_attempt,
            e.AttemptFailed: self._attempt_over,
            e.BatchFinished: self._batch_finished,
            e.WorkflowEnded: self._flow_ended,
            e.WorkflowTripped: self._flow_tripped,
            e.RunQueued: self._run_told,
            e.RunStarted: self._run_told,
            e.RunStopRequested: self._kill_attempts,
            e.RunEnded: self._run_told,
            e.DeliveryFailed: self._delivery_failed,
            e.DeliveryAbandoned: self._delivery_failed,
            e.TaskSucceeded: self._ended,
            e.TaskFailed: self._ended,
            e.TaskExpired: self._ended,
            e.TaskCancelled: self._ended,
        }
        journal.on_record |= at_once
        journal.on_durable |= once_durable

    # -- as soon as it is recorded

    def _submitted(self, record: Record[e.TaskSubmitted]) -> None:
        task = self._of(record)
        if task is not None:  # it may be doomed, and gone
            self._enters(task)
            if task.plan is not None and task.plan.joined is not None:
                self._look_at(task.plan.joined)  # it may have joined what is being cancelled

    def _enters(self, task: Task) -> None:
        """Tell of a task that is new, or lives again."""
        if task.state is READY:
            self._queued(task)
        self._moments.arm_all(task)

    def _queued(self, task: Task) -> None:
        """Tell of a task that entered its queue; if others are before it in its lane, nothing."""
        order = self._orders.get(task.agent)
        if order is not None and order.head(task.lane) is task:
            self._cast.dispatcher.tell(m.HeadChanged(task.agent, task.lane))

    def _waits(self, task: Task) -> None:
        """Tell of a task that is back in its queue, and of nothing else that is due."""
        self._queued(task)
        self._moments.arm(task, m.EndWait)

    def _released(self, record: Record[e.TaskReleased]) -> None:
        task = self._of(record)
        if task is not None:
            self._waits(task)

    def _scheduled(self, record: Record[e.TaskDelayed | e.AttemptFailed]) -> None:
        task = self._of(record)
        if task is not None:
            self._moments.arm(task, m.ReleaseTask)

    def _held(self, record: Record[e.TaskHeld]) -> None:
        self._left(record)
        self._look_at_project(self._of(record))

    def _revived(self, record: Record[e.TaskRevived]) -> None:
        task = self._of(record)
        if task is not None:
            self._enters(task)

    def _interrupted(self, record: Record[e.AttemptInterrupted]) -> None:
        task = self._of(record)
        if task is not None:
            self._free(record, task)
            self._waits(task)
            self._look_at_project(task)

    def _attempt_failed(self, record: Record[e.AttemptFailed]) -> None:
        self._slot_freed(record)
        self._scheduled(record)
        self._look_at_project(self._of(record))

    def _assigned(self, record: Record[e.TaskAssigned]) -> None:
        task = self._of(record)
        if task is not None:
            self._moments.arm(task, m.TimeOutAttempt)

    def _slot_freed(self, record: Record[e.TaskFact]) -> None:
        task = self._of(record)
        if task is not None:
            self._free(record, task)

    def _free(self, record: Record[e.TaskFact], task: Task) -> None:
        """Tell of a slot that was given back, and of the lease that it ends.

        A worker that lost the task, or did not want it, is not the one to keep its key for.
        """
        event: Any = record.event
        is_lost = type(event) is e.AttemptInterrupted
        worker = None if is_lost else task.worker
        of_key = self._slots.of_limit(KEY + task.lane[2])
        self._cast.dispatcher.tell(m.SlotFreed(task.agent, task.lane, worker, of_key))
        if task.worker is not None:
            how = event.reason if is_lost else getattr(event, "code", None) or "cancelled"
            attempt = getattr(event, "attempt", task.attempt)
            self._cast.leases.tell(lm.LeaseOver(task.id, task.token, attempt, how))

    def _succeeded(self, record: Record[e.TaskSucceeded]) -> None:
        self._slot_freed(record)
        self._over(record)

    def _failed(self, record: Record[e.TaskFailed]) -> None:
        self._slot_freed(record)
        self._left(record)
        self._over(record)

    def _expired(self, record: Record[e.TaskExpired]) -> None:
        self._left(record)
        self._over(record)

    def _over(self, record: Record[e.TaskFact]) -> None:
        """Tell whoever waited for the end of a task: its dependents, its batch."""
        if self._due:
            self._cast.dependents.tell(m.SettleDependents())
        task = self._of(record)
        plan = task.plan if task is not None else None
        if plan is not None and plan.batch is not None:
            batch = self._batches.get(plan.batch)
            if batch is not None and not batch.left:
                self.finish(batch.id)
        if plan is not None and plan.joined is not None:
            self._look_at(plan.joined)
        self._look_at_project(task)
        self._made_ended(record.event.task)

    def _look_at_project(self, task: Task | None) -> None:
        """Have the run looked at whose task is no longer what it was."""
        if task is not None and task.plan is not None and task.plan.project is not None:
            self._cast.projects.tell(pm.LookAtProject(task.plan.project))

    def _room_for_runs(self, record: Record[e.RunQueued | e.RunEnded]) -> None:
        del record
        self._cast.projects.tell(pm.StartRuns())

    def _run_started(self, record: Record[e.RunStarted]) -> None:
        self._moments.arm_run(record.event.run)

    def _run_over(self, record: Record[e.RunEnded]) -> None:
        self._room_for_runs(record)
        self._made_ended(AWAITED_PROJECT + record.event.project)

    def _run_stops(self, record: Record[e.RunStopRequested]) -> None:
        self._cast.projects.tell(pm.LookAtProject(record.event.project))
        if record.event.kills:
            self._cast.leases.tell(lm.LeasesCutOff(tuple(record.event.kills)))

    def _look_at(self, workflow_id: str) -> None:
        """Have a workflow looked at that something may be decided about."""
        flow = self._batches.flow(workflow_id)
        if flow is not None and flow.is_due:
            self._cast.orchestrator.tell(m.LookAtWorkflow(workflow_id))

    def _left(self, record: Record[Any]) -> None:
        task = self._of(record)
        if task is not None:
            self._cast.dispatcher.tell(m.HeadChanged(task.agent, task.lane))

    def _cancelled(self, record: Record[e.TaskCancelled]) -> None:
        event = record.event
        if event.was in WAITING:
            self._left(record)
        else:
            self._slot_freed(record)
        self._over(record)

    def _reprioritised(self, record: Record[e.TaskReprioritised]) -> None:
        """Tell of lanes that may have another head, and wait for the end of its wait anew."""
        task = self._of(record)
        if task is None:
            return
        if task.state is READY:
            lanes = dict.fromkeys((lane_for(task, record.event.was), task.lane))
            self._cast.dispatcher.tell(Reprioritised(task.agent, tuple(lanes)))
            self._moments.arm(task, m.EndWait)
        elif task.holds:
            self._cast.dispatcher.tell(Reprioritised(task.agent, (), task.id))

    def _flow_resumed(self, record: Record[e.WorkflowResumed]) -> None:
        self._cast.dispatcher.tell(m.LimitEased(FLOW + record.event.workflow))

    def _declared(self, record: Record[e.TypeDeclared]) -> None:
        self._cast.dispatcher.tell(m.LimitEased(limit_of(*key_of(record.event))))

    def _flow_cancelled(self, record: Record[e.WorkflowCancelled]) -> None:
        self._look_at(record.event.workflow)

    def _flow_over(self, record: Record[e.WorkflowEnded]) -> None:
        self._made_ended(record.event.workflow)

    def _made_ended(self, subject: str) -> None:
        """Tell of the end of what a schedule made, if moments of it wait for that."""
        for name in self._schedules.awaited.get(subject, ()):
            self._cast.schedules.tell(LookAtSchedule(name))

    def _moment_ahead(self, record: Record[Any]) -> None:
        schedule = self._schedules.get(record.event.schedule)
        if schedule is not None:
            self._moments.arm(schedule, FireSchedule)

    def _agent_released(self, record: Record[e.AgentResumed]) -> None:
        self._cast.dispatcher.tell(m.AgentReleased(record.event.agent))

    def _limits_changed(self, record: Record[e.ConfigChanged]) -> None:
        self._cast.dispatcher.tell(m.LookAgain())
        self._cast.projects.tell(pm.StartRuns())
        if "runTimeoutMs" in record.event.changed:
            self._cast.timer.tell(m.DeriveMoments())

    def _deliver_later(self, record: Record[e.DeliveryFailed]) -> None:
        delivery = self._deliveries.pending.get(record.event.task)
        if delivery is not None:
            self._moments.arm(delivery, m.DeliverCallback)

    def _clock_stepped(self, record: Record[e.ClockStepped]) -> None:
        del record
        self._cast.timer.tell(m.DeriveMoments())
        self._cast.schedules.tell(m.LookAgain())

    # -- once it is durable

    def _start_attempt(self, record: Record[e.TaskAssigned]) -> None:
        event = record.event
        to = f"is lent to worker {event.worker}" if event.worker else "starts"
        logger.debug("attempt %d of task %s (%s) %s", event.attempt, event.task, event.agent, to)
        if event.worker is None:  # else whoever came for it is told
            self._cast.pool.tell(m.StartAttempt(event.task, record.seq))

    def _abort_attempt(self, record: Record[e.AttemptInterrupted | e.AttemptFailed]) -> None:
        event: Any = record.event
        reason = getattr(event, "error", "") or event.reason
        self._cast.pool.tell(m.AbortAttempt(event.task, record.seq, reason))

    def _attempt_over(self, record: Record[e.AttemptFailed]) -> None:
        self._warn_of(record)
        self._abort_attempt(record)

    def _warn_of(self, record: Record[Any]) -> None:
        """Log a failed attempt: of the task no more than its type, its agent and the error."""
        event = record.event
        task = self._of(record)
        self._failed_attempts.warn(
            attempts,
            "attempt %d of task %s (%s of %s) failed at %s (%s): %s; %s",
            event.attempt,
            event.task,
            task.action if task is not None else "gone",
            event.agent,
            _who_ran(task),
            event.code,
            event.error[:ERROR_CHARS_MAX],
            "the task has failed" if task is None or task.state is FAILED else "it is tried again",
            owner=event.agent,
        )

    def _run_told(self, record: Record[Any]) -> None:
        """Log what became of a run."""
        event = record.event
        if type(event) is e.RunEnded:
            what = f"{event.state} after {event.completed} tasks: {event.reason}"
        elif type(event) is e.RunStopRequested:
            what = "is to stop by force" if event.force else "is to stop"
        else:
            what = "is pending" if type(event) is e.RunQueued else "is in progress"
        by = f" (by {record.by})" if record.by else ""
        self._run_lines.log(
            logging.INFO,
            runs,
            "run %s of project %s %s%s",
            event.run,
            event.project,
            what,
            by,
            owner=event.project,
        )

    def _kill_attempts(self, record: Record[e.RunStopRequested]) -> None:
        self._run_told(record)
        event = record.event
        if event.kills:
            reason = f"run {event.run} was force-stopped"
            self._cast.pool.tell(pm.KillAttempts(tuple(event.kills), reason))

    def _batch_finished(self, record: Record[e.BatchFinished]) -> None:
        event = record.event
        self._send_callback(event.batch, record.seq)

    def _flow_ended(self, record: Record[e.WorkflowEnded]) -> None:
        self._send_callback(record.event.workflow, record.seq)

    def _flow_tripped(self, record: Record[e.WorkflowTripped]) -> None:
        self._send_callback(record.event.workflow + ESCALATED, record.seq)

    def _ended(
        self, record: Record[e.TaskSucceeded | e.TaskFailed | e.TaskExpired | e.TaskCancelled]
    ) -> None:
        event: Any = record.event
        if type(event) is e.TaskFailed:
            self._warn_of(record)
        if type(event) is not e.TaskSucceeded:
            reason = getattr(event, "error", "") or "cancelled"
            self._cast.pool.tell(m.AbortAttempt(event.task, record.seq, reason))
        self._send_callback(event.task, record.seq)

    def finish(self, batch_id: str) -> None:
        """Have a batch finished whose tasks have all ended."""
        self._cast.admission.tell(m.FinishBatch(batch_id))

    def _delivery_failed(self, record: Record[e.DeliveryFailed | e.DeliveryAbandoned]) -> None:
        """Log a try that came to nothing; of the address no more than the host is anybody's."""
        event = record.event
        subject = self._tasks.get(event.task) or self._batches.get(event.task)
        host = urlsplit(subject.callback or "").hostname if subject is not None else None
        self._failed_lines.warn(
            callbacks,
            "the callback of %s to %s was not delivered by try %d (%s); %s",
            event.task,
            (host or "its receiver")[:HOST_CHARS_MAX],
            event.number,
            f"status {event.status}" if event.status else "no answer",
            "it was given up" if type(event) is e.DeliveryAbandoned else "it is tried again",
        )

    def _send_callback(self, subject: str, seq: int) -> None:
        """Have the callback sent that this end, and no later one, owes."""
        delivery = self._deliveries.pending.get(subject)
        if delivery is not None and delivery.id == delivery_id(seq, subject):
            self._cast.webhook.tell(m.DeliverCallback(subject, delivery.id))

    def _of(self, record: Record[e.TaskFact]) -> Task | None:
        task_id = record.event.task
        return self._tasks.by_id.get(task_id) or self._cast.archive.task_here(task_id)


def _who_ran(task: Task | None) -> str:
    if task is None:
        return "an executor"
    return f"worker {task.worker}" if task.worker is not None else f"executor {task.executor}"

"""The composition root of a shard: one log, one journal, one set of actors.

Builds them, starts them in order, stops them in order, and rebuilds them from the log after a
failure. Start and recovery are one path: fold the log, record the start, put back what was in
flight, arm the timers, dispatch. Nothing here is process-wide; a process may hold several shards.
"""

from __future__ import annotations

import logging
from random import random
from typing import TYPE_CHECKING, Any, cast

from rota import __version__, ids
from rota.actors import messages as m
from rota.actors.admission import AdmissionActor
from rota.actors.agent_queue import QueueActor
from rota.actors.archive import Archive
from rota.actors.dependencies import DependencyActor
from rota.actors.dispatcher import DispatcherActor
from rota.actors.failover import Door, Failover, Unreadable
from rota.actors.journal import Journal
from rota.actors.mending import Mending, Stops
from rota.actors.queues import Queues
from rota.actors.recovery import rebuild_whole
from rota.actors.retention import Retention
from rota.actors.routes import Routes
from rota.actors.runtime import Runtime, body_of, retire
from rota.actors.snapshots import Snapshots
from rota.actors.tail import Tail
from rota.actors.timekeeper import Timekeeper
from rota.actors.timer import TimerActor
from rota.actors.webhook import WebhookActor
from rota.actors.worker_pool import WorkerPool
from rota.domain.attempts import decide_interruption
from rota.domain.events import SchedulerPaused, ServerStarted, ServerStopped
from rota.domain.task import IN_FLIGHT, LOG_FAILED, ORDERLY
from rota.errors import LogError, StorageUnavailable, Unfolded
from rota.eventlog.committer import CommitFailed, Committed
from rota.eventlog.crash_points import reach
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.failover import Standing
    from rota.actors.host import CommitLine, Host, Report
    from rota.actors.webhook import Courier
    from rota.domain.commands import Limits
    from rota.eventlog.port import EventLog, Head
    from rota.executors.port import AttemptRunner
    from rota.projections.state import State

logger = logging.getLogger("rota.system")

HURRY_RECORDS = 4
"""A last group of so few records means that requests come one by one."""
IDS_APART_US = 10_000_000
"""Ids begin with their time, and are drawn at most this far ahead of it."""
SINGLES = ("timer", "dependencies", "pool", "webhook", "admission", "dispatcher")


class Shard:
    """A scheduler over one log."""

    dispatcher: ActorRef[Any]
    dependencies: ActorRef[Any]
    admission: ActorRef[Any]
    pool: ActorRef[Any]
    webhook: ActorRef[Any]
    timer: ActorRef[Any]

    def __init__(
        self,
        log: EventLog,
        host: Host,
        *,
        limits: Limits,
        line: Callable[[EventLog, int, Report], CommitLine],
        runner: AttemptRunner,
        courier: Courier,
        tries_max: int = 6,
        deliveries_max: int = 128,
        deliveries_per_host: int = 16,
        snapshot_every: int = 100_000,
        new_id: Callable[[], str] | None = None,
        draw: Callable[[], float] = random,
        start_paused: bool = False,
        on_fatal: Callable[[LogError], None] | None = None,
    ) -> None:
        """Put the parts together; `start` sets them going."""
        self.log = log
        self.limits = limits
        self.failover = Failover(
            log, host, show=self._show, resume=self._resume, give_up=self._fatal
        )
        self.stopping = False
        self._host = host
        self.timekeeper = Timekeeper(host.clock)
        self._make_line = line
        self._runner = runner
        self._courier = courier
        self._tries_max = tries_max
        self._deliveries = (deliveries_per_host, deliveries_max)
        self._new_id = new_id or self._draw_id
        self._new_uuid = new_id or (lambda: ids.uuid(self.journal.now()))
        self._draw = draw
        self._start_paused = start_paused
        self._on_fatal = on_fatal
        self._queues = Queues(self._start_queue)
        self._snapshots = Snapshots(host, snapshot_every)
        self._group_records = 0
        self._ids_clear_at = 0
        self._stops = Stops()
        self._waiting_for_end: Callable[[], None] | None = None
        self.listeners: list[Callable[[int], None]] = []
        self.watched: dict[str, list[Callable[[], None]]] = {}
        self.tail = Tail(log)

    # -- starting ----------------------------------------------------------------------------

    def start(self, progress: Callable[[int], None] | None = None) -> None:
        """Fold the log, become its writer, and go on where it ends. Raises a LogError."""
        state, head = rebuild_whole(self.log, progress=progress)
        self._line = self._make_line(self.log, self.log.claim(), self._reported)
        self._wire(state, head)
        self._go_on()

    @property
    def degraded(self) -> str:
        """Why nothing can be recorded; empty if it can."""
        return self.failover.reason

    def _keep_books(self, state: State, head: Head) -> None:
        """Make the journal and what reads over a state."""
        self.state = state
        self.journal = Journal(
            state, head, self._host.clock, self._line.hand_over, self.runtime.schedule
        )
        self.journal.listeners, self.journal.watched = self.listeners, self.watched
        self.tail.join(self.journal)
        self.archive = Archive(self.journal, self.log)

    def _wire(self, state: State, head: Head) -> None:
        """Make the journal and the actors over a state."""
        self.runtime = Runtime(self._host.call_soon, self._actor_failed)
        self._keep_books(state, head)
        self.runtime.idle.append(self.journal.flush)
        self._queues = Queues(self._start_queue)
        self._retention = Retention(self.journal, self.archive, self._host.call_at, self._line.run)
        self._routes = routes = Routes(state, self)
        runtime, journal = self.runtime, self.journal
        host, look = self._host, self.timekeeper.look
        self.timer = TimerActor.start(
            runtime, host.clock, host.call_at, routes.due, routes.is_live, routes.moments, look
        )
        self.dispatcher = DispatcherActor.start(runtime, journal)
        self.dependencies = DependencyActor.start(runtime, journal, self._host.call_soon)
        self.pool = WorkerPool.start(
            runtime, journal, self._runner, find_task=self.archive.task, draw=self._draw
        )
        self.webhook = WebhookActor.start(
            runtime,
            journal,
            self._courier,
            tries_max=self._tries_max,
            per_host_max=self._deliveries[0],
            parallel_max=self._deliveries[1],
            find=self.archive.either,
        )
        self.admission = AdmissionActor.start(
            runtime,
            journal,
            new_id=self._new_id,
            new_uuid=self._new_uuid,
            archive=self.archive,
            call_at=self._host.call_at,
            look=look,
        )
        routes.install(journal)
        self.mending = Mending(journal, routes, self, self._host)
        if self.stopping:
            self.drain()

    def _actor_failed(self, *fault: Any) -> None:
        self.mending.handler_failed(*fault)

    def _go_on(self, *, resumed: bool = False) -> None:
        """Record the start, put back what was in flight, arm what is due."""
        reach("recovery.folded")
        tasks = list(self.state.tasks)
        settings = limits_to(self.limits)
        self._ids_clear_at = self.state.at + IDS_APART_US
        self.timekeeper.begin(self.journal)
        self._snapshots.seq = max(self._snapshots.seq, self.state.snapshot_seq)
        started = self.journal.record(
            ServerStarted(__version__, settings, self.state.seq, resumed or None)
        )
        reason = LOG_FAILED if resumed else "server restarted"
        for task in tasks:
            if task.state in IN_FLIGHT:
                self.journal.record(*decide_interruption(task, reason), cause=started.seq)
        if self._start_paused and not resumed and self.state.control.stopped is None:
            self.journal.record(SchedulerPaused("started paused"))
        self.timer.tell(m.DeriveMoments())
        for batch_id in self.state.batches.unfinished():
            self._routes.finish(batch_id)
        self.dependencies.tell(m.SettleDependents())
        self.dispatcher.tell(m.LookAgain())

    # -- what the outside asks ---------------------------------------------------------------

    def queue(self, agent: str) -> ActorRef[Any]:
        """Give the agent's queue, started if need be."""
        return self.admission if self.degraded else self._queues.of(agent)

    def _start_queue(self, agent: str) -> ActorRef[Any]:
        return QueueActor.start(self.runtime, self.journal, agent, self.dispatcher, self.archive)

    def hurry(self) -> None:
        """Handle and hand over what waits now, if requests come so rarely that no group forms."""
        if self.degraded:
            return
        if self._group_records <= HURRY_RECORDS and self.journal.durable_seq >= self.state.seq:
            self._host.hurry(self.runtime.run)

    def _draw_id(self) -> str:
        now = self.journal.now()
        task_id, is_ahead = ids.task_id(now, self._is_taken)
        if is_ahead:  # when its time comes, whoever has it may have left memory
            self._ids_clear_at = now + IDS_APART_US
        return task_id

    def _is_taken(self, task_id: str) -> bool:
        """Look in memory; and in the log, while an id's time may have been drawn from before."""
        if task_id in self.state.tasks.by_id:
            return True
        clear_at = max(self._ids_clear_at, self.state.steps.latest + IDS_APART_US)
        return self.state.at < clear_at and self.archive.knows(task_id)

    # -- the log's news ----------------------------------------------------------------------

    def _reported(self, report: Committed | CommitFailed) -> None:
        """Bring the committer's report from its thread to the loop."""
        self._host.call_threadsafe(self.on_report, report)

    def on_report(self, report: Committed | CommitFailed) -> None:
        """Run effects, or fail over to read-only."""
        if isinstance(report, CommitFailed):
            self._degrade(report.error)
            return
        if self.degraded:
            return
        self.journal.committed(report.seq)
        self._retention.committed()
        self._queues.retire_idle()
        self._group_records = report.records
        self._host.hurry(self.runtime.work)  # attempts start first; what they record goes next
        self._snapshots.look(self.journal, self._line)
        if self._waiting_for_end is not None and self.journal.durable_seq >= self.state.seq:
            self._waiting_for_end()

    def _degrade(self, error: BaseException) -> None:
        """Shut the door and the windows: what is here is no longer what the log says."""
        if self.degraded:
            return
        self.journal.fail(error)
        failure, left = self._failure(), self.state
        self._drop_actors("the log failed")
        self.dispatcher = self.dependencies = self.admission = door = Door.start(
            self.runtime, failure
        )
        self.pool = self.webhook = self.timer = door
        self._queues = Queues(self._start_queue)
        self.state = self.archive = cast("Any", Unreadable(failure))
        self.failover.begin(
            self._line,
            error,
            self.journal.durable_seq,
            left,
            rest_us=self._stops.rest_us() if isinstance(error, Unfolded) else 0,
        )
        if self._waiting_for_end is not None:
            self.failover.close()
            self._waiting_for_end()

    def unfolded(self, error: Unfolded) -> None:
        """Fail over because a fact could not be folded; it was not written."""
        if self._stops.add(self._host.clock.now_us()):
            self.failover.reason = str(error)
            self._fatal(error)
        elif not self.degraded:
            self._degrade(error)

    def _failure(self) -> StorageUnavailable:
        return self.journal.failure or StorageUnavailable("the log failed")

    def _show(self, standing: Standing) -> None:
        """Let what is in the log be read, while nothing can be recorded."""
        failure = self._failure()
        self._keep_books(*standing)
        self.journal.fail(failure)

    def _resume(self, standing: Standing, epoch: int) -> None:
        """Go on writing: the log accepts again."""
        self._drop_actors("the log is back")
        self._line.resume(epoch)
        self._wire(*standing)
        try:
            self._go_on(resumed=True)
        except Exception as error:  # noqa: BLE001 - whatever it is: half a start is none
            self.journal.stop(error)

    def _drop_actors(self, reason: str) -> None:
        self._retention.stop()
        self._snapshots.drop()
        body_of(self.pool).abort_all(reason)
        self._retire_actors(reason)

    def _retire_actors(self, reason: str) -> None:
        """Stop the actors, and tell whoever still waits for one of them."""
        for ref in (actors := list(dict.fromkeys([*self.singles(), *self._queues.values()]))):
            for message in body_of(ref).actor_inbox.queue:
                reply = getattr(message, "reply", None)
                if reply is not None:
                    reply.fail(self.journal.failure or StorageUnavailable(reason))
        retire(actors)

    def _fatal(self, error: LogError) -> None:
        logger.critical("cannot go on: %s", error)
        if self._on_fatal is not None:
            self._on_fatal(error)

    def singles(self) -> list[ActorRef[Any]]:
        """Give the actors that there is one of each."""
        return [getattr(self, name) for name in SINGLES]

    # -- stopping ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Start nothing new; what runs may end."""
        self.stopping = True
        for ref in (self.dispatcher, self.pool, self.webhook):
            ref.tell(m.Drain())

    def running(self) -> int:
        """Count the attempts that still run."""
        return len(body_of(self.pool).running)

    def finish(self, done: Callable[[], None]) -> None:
        """Record what is left, and call `done` when all of it is durable."""
        body_of(self.pool).abort_all(ORDERLY)
        if self.degraded:
            self.failover.close()
            done()
            return
        self._retention.stop()  # the last snapshot is of the last record
        self.admission.tell(m.CountRefusals())
        while self.runtime.ready:
            self.runtime.run()
        for task in [t for t in self.state.tasks if t.state in IN_FLIGHT]:
            self.journal.record(*decide_interruption(task, ORDERLY))
        self.journal.record(ServerStopped("asked to stop"))
        self._retire_actors("the server has stopped")
        reach("shutdown.drained")
        self._waiting_for_end = done
        self.journal.flush()

    def close(self) -> None:
        """Take a last snapshot, end the committer and let go of the log."""
        if not self.degraded:
            self._line.save(self._snapshots.last(self.journal), lambda: None)
        self.failover.close()
        self._drop_actors(ORDERLY)
        self._line.close()
        self.log.close()

"""The composition root of a shard: one log, one journal, one set of actors.

Builds them, starts them in order, stops them in order, and rebuilds them from the log after a
failure. Start and recovery are one path: fold the log, record the start, put back what was in
flight, arm the timers, dispatch. Nothing here is process-wide; a process may hold several shards.
"""

from __future__ import annotations

import logging
from random import random
from typing import TYPE_CHECKING, Any

from rota import __version__, ids
from rota.actors import messages as m
from rota.actors.admission import AdmissionActor
from rota.actors.agent_queue import QueueActor
from rota.actors.archive import Archive
from rota.actors.dependencies import DependencyActor
from rota.actors.dispatcher import DispatcherActor
from rota.actors.journal import Journal
from rota.actors.recovery import rebuild
from rota.actors.routes import Routes
from rota.actors.runtime import Runtime, body_of, retire
from rota.actors.snapshotter import Snapshotter
from rota.actors.timer import TimerActor
from rota.actors.webhook import WebhookActor
from rota.actors.worker_pool import WorkerPool
from rota.domain.attempts import decide_interruption
from rota.domain.events import ActorFailed, SchedulerPaused, ServerStarted, ServerStopped
from rota.domain.task import IN_FLIGHT, LOG_FAILED, ORDERLY
from rota.errors import InternalFault, LogError, LogUnusable, StorageUnavailable
from rota.eventlog.committer import CommitFailed, Committed
from rota.eventlog.crash_points import reach
from rota.eventlog.port import Head
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.host import CommitLine, Host, Report
    from rota.actors.runtime import CooperativeActor
    from rota.actors.webhook import Courier
    from rota.domain.commands import Limits
    from rota.eventlog.port import EventLog, Snapshot
    from rota.executors.port import AttemptRunner
    from rota.projections.state import State

logger = logging.getLogger("rota.system")

QUEUE_ACTORS_IDLE_MAX = 2048
HURRY_RECORDS = 4
"""A last group of so few records means that requests come one by one."""
IDS_APART_US = 10_000_000
"""Ids begin with their time, and are drawn at most this far ahead of it."""
REOPEN_US = 500_000
REOPEN_US_MAX = 5_000_000


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
        self.degraded = ""
        self.stopping = False
        self._host = host
        self._make_line = line
        self._runner = runner
        self._courier = courier
        self._tries_max = tries_max
        self._deliveries = (deliveries_per_host, deliveries_max)
        self._snapshot_every = snapshot_every
        self._new_id = new_id or self._draw_id
        self._draw = draw
        self._start_paused = start_paused
        self._on_fatal = on_fatal
        self._queues: dict[str, ActorRef[Any]] = {}
        self._snapshot: Snapshotter | None = None
        self._snapshot_seq = 0
        self._group_records = 0
        self._ids_clear_at = 0
        self._acknowledged = 0
        self._reopen_us = REOPEN_US
        self._waiting_for_end: Callable[[], None] | None = None
        self.listeners: list[Callable[[int], None]] = []
        self.watched: dict[str, list[Callable[[], None]]] = {}

    # -- starting ----------------------------------------------------------------------------

    def start(self, progress: Callable[[int], None] | None = None) -> None:
        """Fold the log, become its writer, and go on where it ends. Raises a LogError."""
        state = rebuild(self.log, progress=progress)
        self._line = self._make_line(self.log, self.log.claim(), self._reported)
        self._wire(state)
        self._go_on()

    def _wire(self, state: State) -> None:
        """Make the journal and the actors over a state."""
        head = self.log.head() if state.seq else Head(0, bytes(32))
        self.state = state
        self.runtime = Runtime(self._host.call_soon, self._actor_failed)
        self.journal = Journal(
            state, head, self._host.clock, self._line.hand_over, self.runtime.schedule
        )
        self.journal.listeners, self.journal.watched = self.listeners, self.watched
        self.runtime.idle.append(self.journal.flush)
        self._queues = {}
        self.archive = Archive(self.journal, self.log)
        self._routes = routes = Routes(state, self)
        runtime, journal = self.runtime, self.journal
        self.timer = TimerActor.start(
            runtime, self._host.clock, self._host.call_at, routes.due, routes.is_live
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
            runtime, journal, new_id=self._new_id, archive=self.archive
        )
        routes.install(journal)
        if self.stopping:
            self.drain()

    def _go_on(self, *, resumed: bool = False) -> None:
        """Record the start, put back what was in flight, arm what is due."""
        reach("recovery.folded")
        tasks = list(self.state.tasks)
        owed = list(self.state.deliveries.pending.values())
        settings = limits_to(self.limits)
        self._ids_clear_at = self.state.at + IDS_APART_US
        self._snapshot_seq = max(self._snapshot_seq, self.state.snapshot_seq)
        started = self.journal.record(
            ServerStarted(__version__, settings, self.state.seq, resumed or None)
        )
        reason = LOG_FAILED if resumed else "server restarted"
        for task in tasks:
            if task.state in IN_FLIGHT:
                self.journal.record(*decide_interruption(task, reason), cause=started.seq)
        if self._start_paused and not resumed and self.state.control.stopped is None:
            self.journal.record(SchedulerPaused("started paused"))
        for task in tasks:
            self._routes.rearm(task)
        for delivery in owed:
            self.timer.tell(m.Arm(delivery.due_at, m.DeliverCallback(delivery.task, delivery.id)))
        for batch_id in self.state.batches.unfinished():
            self.admission.tell(m.FinishBatch(batch_id))
        self.dependencies.tell(m.SettleDependents())
        self.dispatcher.tell(m.LookAgain())

    # -- what the outside asks ---------------------------------------------------------------

    def queue(self, agent: str) -> ActorRef[Any]:
        """Give the agent's queue, starting it if need be and retiring idle ones."""
        ref = self._queues.get(agent)
        if ref is None:
            if len(self._queues) >= QUEUE_ACTORS_IDLE_MAX + 2 * len(self.state.backlog.orders):
                self._retire_idle_queues()
            ref = QueueActor.start(self.runtime, self.journal, agent, self.dispatcher)
            self._queues[agent] = ref
        return ref

    def _retire_idle_queues(self) -> None:
        orders = self.state.backlog.orders
        idle = [a for a, r in self._queues.items() if a not in orders and r.actor_inbox.empty()]
        retire([self._queues.pop(agent) for agent in idle])

    def hurry(self) -> None:
        """Handle and hand over what waits now, if requests come so rarely that no group forms."""
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
        return self.state.at < self._ids_clear_at and self.archive.knows(task_id)

    # -- the log's news ----------------------------------------------------------------------

    def _reported(self, report: Committed | CommitFailed) -> None:
        """Bring the committer's report from its thread to the loop."""
        self._host.call_threadsafe(self.on_report, report)

    def on_report(self, report: Committed | CommitFailed) -> None:
        """Run effects, or fail over to read-only."""
        if isinstance(report, CommitFailed):
            self._degrade(report.error)
            return
        self.journal.committed(report.seq)
        self._group_records = report.records
        self._host.hurry(self.runtime.work)  # attempts start first; what they record goes next
        if report.seq - self._snapshot_seq >= self._snapshot_every and self._snapshot is None:
            self._begin_snapshot()
        if self._waiting_for_end is not None and self.journal.durable_seq >= self.state.seq:
            self._waiting_for_end()

    def _degrade(self, error: BaseException) -> None:
        """Become read-only, as the log is; keep trying to reopen it."""
        if self.degraded:
            return
        self.degraded = str(error)
        logger.error("the log failed; serving reads only: %s", error)
        self._acknowledged = self.journal.durable_seq
        self.journal.fail(error)
        self._drop_actors("the log failed")
        try:
            self._wire(rebuild(self.log))
        except LogError as fatal:
            self._fatal(fatal)
            return
        self.journal.fail(error)
        if self._waiting_for_end is not None:
            self._waiting_for_end()
            return
        self._reopen_us = REOPEN_US
        self._line.run(self._reopen)

    def _drop_actors(self, reason: str) -> None:
        if self._snapshot is not None:
            self._snapshot.stop()
            self._snapshot = None
        body_of(self.pool).abort_all(reason)
        self._retire_actors(reason)

    def _retire_actors(self, reason: str) -> None:
        """Stop the actors, and tell whoever still waits for one of them."""
        actors = [self.dispatcher, self.dependencies, self.pool, self.webhook, self.timer]
        actors += [self.admission, *self._queues.values()]
        for ref in actors:
            for message in body_of(ref).actor_inbox.queue:
                reply = getattr(message, "reply", None)
                if reply is not None:
                    reply.fail(self.journal.failure or StorageUnavailable(reason))
        retire(actors)

    def _reopen(self) -> None:
        """In the committer's thread: open the log anew, and check that nothing is missing."""
        try:
            head = self.log.reopen()
            if head.seq < self._acknowledged:
                msg = f"the log ends at {head.seq}, but {self._acknowledged} was acknowledged"
                self._host.call_threadsafe(self._fatal, LogUnusable(msg))
                return
            epoch = self.log.claim()
        except LogUnusable as error:
            logger.warning("the log still fails: %s", error)
            self._host.call_threadsafe(self._reopen_later)
        except LogError as error:
            self._host.call_threadsafe(self._fatal, error)
        except Exception as error:
            logger.exception("reopening the log failed")
            self._host.call_threadsafe(self._fatal, LogUnusable(f"cannot reopen: {error}"))
        else:
            self._host.call_threadsafe(self._resume, epoch)

    def _reopen_later(self) -> None:
        at = self._host.clock.now_us() + self._reopen_us
        self._reopen_us = min(self._reopen_us * 2, REOPEN_US_MAX)
        self._host.call_at(at, lambda: self._line.run(self._reopen))

    def _resume(self, epoch: int) -> None:
        """Go on writing: the log accepts again."""
        self._drop_actors("the log is back")
        try:
            state = rebuild(self.log)
        except LogError as error:
            self._fatal(error)
            return
        self._line.resume(epoch)
        self.degraded = ""
        self._wire(state)
        self._go_on(resumed=True)
        logger.warning("the log accepts writes again; went on at %d", state.seq)

    def _fatal(self, error: LogError) -> None:
        logger.critical("cannot go on: %s", error)
        if self._on_fatal is not None:
            self._on_fatal(error)

    # -- snapshots ---------------------------------------------------------------------------

    def _begin_snapshot(self) -> None:
        self._snapshot = Snapshotter(self.state, self.journal.digest)
        self._snapshot.run(self._host.call_soon, self._snapshot_done)

    def _snapshot_done(self, snapshot: Snapshot) -> None:
        self._snapshot = None
        self._snapshot_seq = snapshot.seq
        self.journal.flush()
        self._line.save(snapshot)

    # -- failures ----------------------------------------------------------------------------

    def _actor_failed(self, actor: CooperativeActor, message: Any, error: Exception) -> None:
        """Tell whoever asked, record it, and restart the actor from the projections."""
        reply = getattr(message, "reply", None)
        if isinstance(error, LogUnusable):
            error = StorageUnavailable(error.message, hint="not acknowledged; try again later")
        if isinstance(error, StorageUnavailable):
            if reply is not None:
                reply.fail(error)
            return
        name = type(actor).__name__
        logger.error("%s failed on %s", name, type(message).__name__, exc_info=error)
        if reply is not None:
            reply.fail(InternalFault("rota failed on this request; the failure was recorded"))
        if self.journal.failure is not None:
            self._degrade(error)  # a fact could not be folded: the state is not the log's
            return
        text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode()
        self.journal.record(ActorFailed(name, type(message).__name__, text[:500]))
        actor.reset()

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
            done()
            return
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
            snapshotter = Snapshotter(self.state, self.journal.digest)
            while (snapshot := snapshotter.slice()) is None:
                pass
            self._line.save(snapshot)
        self._drop_actors(ORDERLY)
        self._line.close()
        self.log.close()

"""The composition root of a shard: one log, one journal, one set of actors.

Puts the parts together, starts them in order, stops them in order, and has them go on from the log
after a failure. Start and recovery are one path: fold the log, record the start, put back what was
in flight, arm the timers, dispatch. Nothing here is process-wide; a process may hold several
shards. The parts can be read alone: the actors (`cast`), failover, snapshots, ids and pacing.
"""

from __future__ import annotations

import logging
from random import random
from typing import TYPE_CHECKING, Any, cast

from rota import __version__
from rota.actors import messages as m
from rota.actors.archive import Archive
from rota.actors.cast import Cast, Outside
from rota.actors.consequences import Consequences
from rota.actors.failover import Failover
from rota.actors.journal import Journal
from rota.actors.mending import Mending, Stops
from rota.actors.moments import Moments
from rota.actors.new_ids import NewIds
from rota.actors.pacing import Pacing
from rota.actors.recovery import rebuild_whole
from rota.actors.retention import Retention
from rota.actors.runtime import Runtime
from rota.actors.snapshots import Snapshots
from rota.actors.stand_ins import Unreadable
from rota.actors.tail import Tail
from rota.actors.timekeeper import Timekeeper
from rota.domain.events import SchedulerPaused, ServerStarted, ServerStopped
from rota.domain.intake import Rules
from rota.domain.project import decide_return
from rota.domain.task import IN_FLIGHT, LOG_FAILED, ORDERLY
from rota.errors import LogError, ShuttingDown, StorageUnavailable, Unfolded
from rota.eventlog.committer import CommitFailed, Committed
from rota.eventlog.crash_points import reach
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.failover import Rebuilt
    from rota.actors.host import CommitLine, Host, Report
    from rota.actors.webhook import Courier
    from rota.domain.commands import Limits
    from rota.domain.task import Task
    from rota.eventlog.port import EventLog, Head
    from rota.executors.port import AttemptRunner
    from rota.projections.state import State

logger = logging.getLogger("rota.system")


class Shard:
    """A scheduler over one log."""

    admission = property(lambda self: self.cast.admission)
    dependents = property(lambda self: self.cast.dependents)
    orchestrator = property(lambda self: self.cast.orchestrator)
    bulk = property(lambda self: self.cast.bulk)
    projects = property(lambda self: self.cast.projects)
    schedules = property(lambda self: self.cast.schedules)
    dispatcher = property(lambda self: self.cast.dispatcher)
    leases = property(lambda self: self.cast.leases)
    pool = property(lambda self: self.cast.pool)
    timer = property(lambda self: self.cast.timer)
    webhook = property(lambda self: self.cast.webhook)

    def __init__(
        self,
        log: EventLog,
        host: Host,
        *,
        limits: Limits,
        rules: Rules | None = None,
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
        name: str = "",
    ) -> None:
        """Put the parts together; `start` sets them going."""
        self.log = log
        self.limits = limits
        self.rules = rules or Rules()
        self.failover = Failover(
            log, host, show=self._show, resume=self._resume, give_up=self._lost, name=name
        )
        self.stopping = False
        self._folded: tuple[State, Head] | None = None
        self._said = f"namespace {name}: " if name else ""
        self.timekeeper = Timekeeper(host.clock)
        self.ids = NewIds(new_id)
        self.cast = Cast(
            Outside(
                host,
                runner,
                courier,
                tries_max=tries_max,
                deliveries_max=deliveries_max,
                deliveries_per_host=deliveries_per_host,
                ids=self.ids,
                draw=draw,
                look=self.timekeeper.look,
            ),
            self.unfolded,
        )
        self.listeners: list[Callable[[int], None]] = []
        self.watched: dict[str, list[Callable[[], None]]] = {}
        self.tail = Tail()
        self.fetch = host.fetch
        self._host = host
        self._runner = runner
        self._make_line = line
        self._start_paused = start_paused
        self._on_fatal = on_fatal
        self._snapshots = Snapshots(host, snapshot_every)
        self._pacing = Pacing(host)
        self._stops = Stops()
        self._waiting_for_end: Callable[[], None] | None = None

    # -- starting ----------------------------------------------------------------------------

    def fold(self, progress: Callable[[int], None] | None = None) -> State:
        """Fold the log, and give the state to go on from: nothing begins yet. Raises a LogError."""
        self._folded = state, _ = rebuild_whole(self.log, progress=progress)
        self.ids.go_on_after(self.log, state)
        return state

    def start(self, progress: Callable[[int], None] | None = None) -> None:
        """Fold the log, become its writer, and go on where it ends. Raises a LogError."""
        if self._folded is None:
            self.fold(progress)
        assert self._folded is not None
        (state, head), self._folded = self._folded, None
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
        self.archive = Archive(self.journal, self.log, self._host)
        self.ids.join(self.journal, self.archive)

    def _wire(self, state: State, head: Head) -> None:
        self.runtime = Runtime(self._host.call_soon, self._actor_failed)
        self._keep_books(state, head)
        self.runtime.idle.append(self.journal.flush)
        self._retention = Retention(self.journal, self.archive, self._host.call_at, self._line.run)
        moments = Moments(self.journal, self.cast)
        self.cast.start(self.runtime, self.journal, self.archive, moments)
        self._consequences = Consequences(state, self.cast, moments)
        self._consequences.install(self.journal)
        self.mending = Mending(self.journal, self._consequences, self.cast, self._host)

    def _actor_failed(self, *fault: Any) -> None:
        self.mending.handler_failed(*fault)

    def _go_on(self, *, resumed: bool = False) -> None:
        """Record the start, put back what was in flight, arm what is due."""
        reach("recovery.folded")
        tasks = list(self.state.tasks)
        settings = limits_to(self.limits)
        self.timekeeper.begin(self.journal)
        self._snapshots.seq = max(self._snapshots.seq, self.state.snapshot_seq)
        rules = self.state.control.news_of(self.rules)
        settles_at = None if resumed else self.timekeeper.settles_at()
        started = self.journal.record(
            ServerStarted(__version__, settings, self.state.seq, resumed or None, rules, settles_at)
        )
        reason = LOG_FAILED if resumed else "server restarted"
        for task in tasks:
            if task.state in IN_FLIGHT and not task.is_leased:
                self._interrupt(task, reason, cause=started.seq)
        if self._start_paused and not resumed and self.state.control.stopped is None:
            self.journal.record(SchedulerPaused("started paused"))
        self.timer.tell(m.DeriveMoments())
        for batch_id in self.state.batches.unfinished():
            self._consequences.finish(batch_id)
        self.orchestrator.tell(m.LookAgain())
        self.projects.tell(m.LookAgain())
        self.schedules.tell(m.LookAgain())
        self.dependents.tell(m.SettleDependents())
        self.leases.tell(m.LookAgain())  # all of them live for their full length from here on
        self.dispatcher.tell(m.LookAgain())

    def _interrupt(self, task: Task, reason: str, cause: int = 0) -> None:
        """Record that nobody runs an attempt any more, and what a stop of its project asks for."""
        is_over, stop = (
            self._runner.leaves_nothing(task.executor),
            self.state.projects.stop_of(task),
        )
        self.journal.record(*decide_return(task, reason, *stop, is_over=is_over), cause=cause)

    # -- what the outside asks ---------------------------------------------------------------

    def queue(self, agent: str) -> ActorRef[Any]:
        return self.cast.queue(agent)

    def check_open(self) -> None:
        """Refuse work while none is taken. Raises ShuttingDown or StorageUnavailable."""
        if self.stopping:
            raise ShuttingDown("the server is stopping and takes no new work")
        failure = self.journal.failure
        if failure is not None:
            raise StorageUnavailable(failure.message, hint=failure.hint)

    @property
    def rules_in_force(self) -> Rules:
        return self.state.control.rules

    def configure(self, limits: Limits, rules: Rules) -> None:
        """Have the next start over the log begin with these; they are in force already."""
        self.limits, self.rules = limits, rules

    def hurry(self) -> None:
        """Handle and hand over what waits now, if requests come so rarely that no group forms."""
        if not self.degraded:
            self._pacing.hurry(self.runtime, self.journal)

    # -- the log's news ----------------------------------------------------------------------

    def _reported(self, report: Committed | CommitFailed) -> None:
        """Bring the committer's report from its thread to the loop."""
        self._host.call_threadsafe(self.on_report, report)

    def on_report(self, report: Committed | CommitFailed) -> None:
        if isinstance(report, CommitFailed):
            self._degrade(report.error)
            return
        if self.degraded:
            return
        self.journal.committed(report.seq)
        self._retention.committed()
        self.cast.queues.retire_idle()
        self._pacing.committed(report.records, self.runtime)
        self._snapshots.look(self.journal, self._line)
        if self._waiting_for_end is not None and self.journal.durable_seq >= self.state.seq:
            self._waiting_for_end()

    def _degrade(self, error: BaseException) -> None:
        """Shut the door and the windows: what is here is no longer what the log says."""
        if self.degraded:
            return
        self.journal.fail(error)
        left = self.state
        self._drop_actors("the log failed")
        self._close(self._failure())
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
            self.journal.fail(error)
            self._drop_actors("the log failed")
            self.failover.lose(error)
        else:
            self._degrade(error)

    def _failure(self) -> StorageUnavailable:
        return self.journal.failure or StorageUnavailable("the log failed")

    def _close(self, failure: StorageUnavailable) -> None:
        """Refuse whoever wants to change or to see something."""
        self.cast.shut(failure)
        self.state = self.archive = cast("Any", Unreadable(failure))

    def _drop_actors(self, reason: str) -> None:
        self._retention.stop()
        self._snapshots.drop()
        self.cast.abort_all(reason)
        self.cast.retire(reason)

    # -- what failover asks for ----------------------------------------------------------------

    def _show(self, rebuilt: Rebuilt) -> None:
        """Let what is in the log be read, while nothing can be recorded."""
        failure = self._failure()
        self._keep_books(*rebuilt)
        self.timekeeper.follow(self.journal)  # the record of a step may be among what was lost
        self.journal.fail(failure)

    def _resume(self, rebuilt: Rebuilt, epoch: int) -> None:
        """Go on writing: the log accepts again."""
        self._drop_actors("the log is back")
        self._line.resume(epoch)
        self._wire(*rebuilt)
        try:
            self._go_on(resumed=True)
        except Exception as error:  # noqa: BLE001 - whatever it is: half a start is none
            self.journal.stop(error)

    def _lost(self, error: LogError) -> None:
        """Be closed for good: nothing here is to be trusted, and nothing will mend it."""
        logger.critical("%scannot go on: %s", self._said, error)
        self.journal.failure = StorageUnavailable(f"closed: {error.message}", hint=error.hint)
        self._close(self.journal.failure)
        if self._on_fatal is not None:
            self._on_fatal(error)

    # -- stopping ----------------------------------------------------------------------------

    def drain(self) -> None:
        self.stopping = True
        self.cast.drain()

    def running(self) -> int:
        return self.cast.running()

    def finish(self, done: Callable[[], None]) -> None:
        """Record what is left, and call `done` when all of it is durable."""
        self.cast.abort_all(ORDERLY)
        try:
            self._record_the_end()
        except StorageUnavailable as failure:
            self._degrade(failure)  # it may have failed just now
            self.failover.close()
            done()
            return
        self.cast.retire("the server has stopped")
        reach("shutdown.drained")
        self._waiting_for_end = done
        self.journal.flush()

    def _record_the_end(self) -> None:
        """Let the actors come to rest, and record what is left. Raises StorageUnavailable."""
        self.journal.check_open()
        self._retention.stop()  # the last snapshot is of the last record
        self.admission.tell(m.CountRefusals())
        while self.runtime.ready:
            self.runtime.run()
        for task in [t for t in self.state.tasks if t.state in IN_FLIGHT and not t.is_leased]:
            self._interrupt(task, ORDERLY)
        self.journal.record(ServerStopped("asked to stop"))

    def close(self) -> None:
        """Take a last snapshot, end the committer and let go of the log."""
        if self.journal.failure is None:
            self._line.save(self._snapshots.last(self.journal), lambda: None)
        self.failover.close()
        self._drop_actors(ORDERLY)
        self._line.close()
        self.log.close()

"""The actors of a shard: started over a journal, drained, retired, and shut while the log fails.

A cast outlives its actors: after a failure of the log they are started anew over another journal,
and whoever holds the cast tells the new ones. While it is shut a door stands in for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.actors import messages as m
from rota.actors.admission import AdmissionActor
from rota.actors.agent_queue import QueueActor
from rota.actors.bulk import BulkActor
from rota.actors.dependents import DependentsActor
from rota.actors.dispatcher import DispatcherActor
from rota.actors.leases import LeasesActor
from rota.actors.orchestrator import OrchestratorActor
from rota.actors.projects import ProjectsActor
from rota.actors.queues import Queues
from rota.actors.runtime import body_of, retire
from rota.actors.schedules import SchedulesActor
from rota.actors.stand_ins import Door
from rota.actors.timer import TimerActor
from rota.actors.webhook import WebhookActor
from rota.actors.worker_pool import WorkerPool
from rota.actors.workers import Workers
from rota.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.archive import Archive
    from rota.actors.host import Host
    from rota.actors.journal import Journal
    from rota.actors.moments import Moments
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.actors.webhook import Courier
    from rota.errors import Unfolded
    from rota.executors.port import AttemptRunner

SINGLES = (
    "timer",
    "dependents",
    "pool",
    "leases",
    "webhook",
    "admission",
    "orchestrator",
    "bulk",
    "projects",
    "schedules",
    "dispatcher",
)


class Outside(NamedTuple):
    """What the actors of a shard are given, whichever journal they work on."""

    host: Host
    runner: AttemptRunner
    courier: Courier
    tries_max: int
    deliveries_max: int
    deliveries_per_host: int
    ids: NewIds
    draw: Callable[[], float]
    look: Callable[[], object]
    """Look at the clock: it may have been set."""


class Cast:
    """The actors that there are, by what they do."""

    dispatcher: ActorRef[Any]
    dependents: ActorRef[Any]
    leases: ActorRef[Any]
    admission: ActorRef[Any]
    orchestrator: ActorRef[Any]
    bulk: ActorRef[Any]
    projects: ActorRef[Any]
    schedules: ActorRef[Any]
    pool: ActorRef[Any]
    webhook: ActorRef[Any]
    timer: ActorRef[Any]
    archive: Archive

    def __init__(self, outside: Outside, unfolded: Callable[[Unfolded], None]) -> None:
        """Tell `unfolded` of a fact that could not be folded."""
        self.stopping = False
        self.unfolded = unfolded
        self.workers = Workers()
        self.queues = Queues(self._start_queue)
        self._outside = outside
        self._is_shut = False

    def start(self, runtime: Runtime, journal: Journal, archive: Archive, moments: Moments) -> None:
        outside = self._outside
        host = outside.host
        self._runtime, self._journal, self.archive = runtime, journal, archive
        self.queues = Queues(self._start_queue)
        self._is_shut = False
        self.timer = TimerActor.start(
            runtime,
            host.clock,
            host.call_at,
            moments.send,
            moments.is_live,
            moments.all,
            outside.look,
        )
        self.leases = LeasesActor.start(
            runtime,
            journal,
            archive=archive,
            resend=self._lend_again,
            call_at=host.call_at,
            ids=outside.ids,
            draw=outside.draw,
            workers=self.workers,
        )
        self.dispatcher = DispatcherActor.start(
            runtime, journal, self.leases, self.workers, host.call_at
        )
        self.dependents = DependentsActor.start(runtime, journal, host.call_soon)
        self.pool = WorkerPool.start(
            runtime,
            journal,
            outside.runner,
            archive=archive,
            ids=outside.ids,
            resend=self._start_again,
            call_at=host.call_at,
            draw=outside.draw,
        )
        self.webhook = WebhookActor.start(
            runtime,
            journal,
            outside.courier,
            tries_max=outside.tries_max,
            per_host_max=outside.deliveries_per_host,
            parallel_max=outside.deliveries_max,
            archive=archive,
            call_at=host.call_at,
        )
        self.admission = AdmissionActor.start(
            runtime,
            journal,
            ids=outside.ids,
            archive=archive,
            resend=self._admit_again,
            call_at=host.call_at,
            look=outside.look,
        )
        self.orchestrator = OrchestratorActor.start(
            runtime,
            journal,
            ids=outside.ids,
            archive=archive,
            resend=self._steer_again,
            call_soon=host.call_soon,
        )
        self.bulk = BulkActor.start(runtime, journal)
        self.projects = ProjectsActor.start(
            runtime,
            journal,
            ids=outside.ids,
            archive=archive,
            resend=self._add_again,
            arm=lambda at, message: self.timer.tell(m.Arm(at, message)),
            leaves_nothing=outside.runner.leaves_nothing,
        )
        self.schedules = SchedulesActor.start(
            runtime,
            journal,
            ids=outside.ids,
            draw=outside.draw,
            host=host,
            look=outside.look,
        )
        if self.stopping:
            self.drain()

    def queue(self, agent: str) -> ActorRef[Any]:
        """Give the agent's queue, started if need be."""
        return self.admission if self._is_shut else self.queues.of(agent)

    def _start_queue(self, agent: str) -> ActorRef[Any]:
        return QueueActor.start(
            self._runtime, self._journal, agent, self.archive, self._queue_again
        )

    def _admit_again(self, message: Any) -> None:
        """Bring what waited for a read to the admission of now: it may be another by then."""
        self.admission.tell(message)

    def _steer_again(self, message: Any) -> None:
        self.orchestrator.tell(message)

    def _add_again(self, message: Any) -> None:
        self.projects.tell(message)

    def _start_again(self, message: Any) -> None:
        self.pool.tell(message)

    def _lend_again(self, message: Any) -> None:
        self.leases.tell(message)

    def _queue_again(self, agent: str, message: Any) -> None:
        self.queue(agent).tell(message)

    def singles(self) -> list[ActorRef[Any]]:
        return [getattr(self, name) for name in SINGLES]

    def drain(self) -> None:
        """Start nothing new; what runs may end."""
        self.stopping = True
        for ref in (self.dispatcher, self.pool, self.webhook):
            ref.tell(m.Drain())

    def running(self) -> int:
        return len(body_of(self.pool).running)

    def abort_all(self, reason: str) -> None:
        body_of(self.pool).abort_all(reason)

    def shut(self, failure: StorageUnavailable) -> None:
        """Let a door stand where the actors stood: whoever asks is refused with `failure`."""
        if self._is_shut:  # the door that stands here is replaced
            self.retire(failure.message)
        door = Door.start(self._runtime, failure)
        for name in SINGLES:
            setattr(self, name, door)
        self.queues = Queues(self._start_queue)
        self._is_shut = True

    def retire(self, reason: str) -> None:
        """Stop the actors, and tell whoever still waits for one of them."""
        failure = self._journal.failure or StorageUnavailable(reason)
        dispatcher = body_of(self.dispatcher)
        if isinstance(dispatcher, DispatcherActor):
            dispatcher.send_away(failure)
        for ref in (actors := list(dict.fromkeys([*self.singles(), *self.queues.values()]))):
            for message in body_of(ref).actor_inbox.queue:
                reply = getattr(message, "reply", None)
                if reply is not None:
                    reply.fail(failure)
        retire(actors)

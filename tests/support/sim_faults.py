"""Faults inside: handlers, routes and effects of the production code that raise, by the seed.

A handler raises before it has done anything, after it has done everything, or in the middle: at
the n-th record that it makes (before or after that) or at the n-th message that it tells. What is
outside of the server (executors, receivers, clients) never meets such a fault.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from rota.actors.admission import AdmissionActor
from rota.actors.agent_queue import QueueActor
from rota.actors.dependents import DependentsActor
from rota.actors.dispatcher import DispatcherActor
from rota.actors.journal import Journal
from rota.actors.messages import Drain
from rota.actors.runtime import Ref
from rota.actors.timer import TimerActor
from rota.actors.webhook import WebhookActor
from rota.actors.worker_pool import WorkerPool
from rota.domain.events import ClockStepped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.simulation import World

ACTORS = (
    AdmissionActor,
    QueueActor,
    DependentsActor,
    DispatcherActor,
    TimerActor,
    WebhookActor,
    WorkerPool,
)
PLACES = ("before", "after", "record", "recorded", "tell", "tell")


class InjectedError(Exception):
    """A fault that was meant."""


class Faults:
    """When which handler raises, in one run."""

    def __init__(self, world: World) -> None:
        """Draw how many faults there are; most runs have none."""
        self._world = world
        self._rng = Random(f"faults {world.seed}")
        self.odds = self._rng.choice((0.0, 0.0, 0.003, 0.02, 0.1))
        self._folds_left = self._rng.choice((0, 0, 1, 3))
        self._calm_left = self._rng.choice((0, 3, 20))
        self._seen: Counter[str] = Counter()
        self.count = 0
        self._place = ""
        self._left = 0
        self._was_drain = False

    def _is_drawn(self, what: str, *, asked: bool = False) -> bool:
        """Toss for a fault, the rarer a thing is the higher; when all is calm there are few."""
        if not self.odds or (self._world.calm and (asked or not self._calm_left)):
            return False
        self._seen[what] += 1
        often = self._seen[what] / self._seen.total()
        return self._rng.random() < min(0.3, self.odds * min(10, 0.1 / often))

    def _raise(self, where: str) -> None:
        self.count += 1
        self._calm_left -= self._world.calm
        self._place = ""
        self._world.trace("FAULT %s", where)
        raise InjectedError(where)

    @contextmanager
    def around(self, actor: Any, message: Any) -> Iterator[None]:
        """Run a handler, with or without a fault."""
        place = ""
        name = f"{type(actor).__name__} on {type(message).__name__}"
        is_drawn = self._is_drawn(name, asked=hasattr(message, "reply"))
        if is_drawn and not (type(message) is Drain and self._was_drain):
            place, self._left = self._rng.choice(PLACES), self._rng.choice((0, 0, 1, 3))
            self._was_drain = type(message) is Drain
        if place == "before":
            self._raise(f"before {name}")
        self._place = place
        try:
            yield
            if self._place == "after":
                self._raise(f"after {name}")
        finally:
            self._place = ""

    def at(self, place: str, *events: Any) -> None:
        """Raise, if this is the place; `events` are not recorded then."""
        if self._place == place:
            self._left -= 1
            if self._left < 0:
                for event in events:
                    if type(event) is ClockStepped:  # what is decided now goes by the time before
                        self._world.told_time(event.was)
                self._raise(f"at {place}")

    def at_fold(self, record: Any) -> None:
        """Let a fact not be folded, now and then."""
        world = self._world
        if not self.odds or not self._folds_left or world.calm or world.draining:
            return
        if self._rng.random() < 0.01:
            self._folds_left -= 1
            self._raise(f"at the fold of {type(record.event).__name__}")

    def outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Keep a function of the outside free of faults."""

        def safe(*args: Any) -> Any:
            place, self._place = self._place, ""
            try:
                return function(*args)
            finally:
                self._place = place

        return safe

    def inside(self, where: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let a route or an effect raise, before or after it has done what it does."""

        def faulty(record: Any) -> None:
            name = f"{where} of {type(record.event).__name__}"
            is_drawn = self._is_drawn(name)
            if is_drawn and self._rng.random() < 0.7:
                self._raise(f"before the {name}")
            function(record)
            if is_drawn:
                self._raise(f"after the {name}")

        return faulty

    def infect(self, journal: Journal) -> None:
        """Have the routes and effects of a journal raise."""
        for where, table in (("route", journal.on_record), ("effect", journal.on_durable)):
            for kind, function in table.items():
                table[kind] = self.inside(where, function)


@contextmanager
def injected(current: Callable[[], Faults | None]) -> Iterator[None]:
    """Have the production code raise where the faults of the current run say so."""
    handlers = {kind: kind.on_receive for kind in ACTORS}
    record, tell = Journal.record, Ref.tell

    def wrapped(handler: Callable[..., None]) -> Callable[..., None]:
        def on_receive(self: Any, message: Any) -> None:
            faults = current()
            if faults is None:
                handler(self, message)
                return
            with faults.around(self, message):
                handler(self, message)

        return on_receive

    def faulty_record(self: Journal, *events: Any, **more: Any) -> Any:
        faults = current()
        if faults is None:
            return record(self, *events, **more)
        faults.at("record", *events)
        made = record(self, *events, **more)
        faults.at("recorded")
        return made

    def faulty_tell(self: Ref, message: Any) -> None:
        faults = current()
        if faults is not None:
            faults.at("tell")
        tell(self, message)

    for kind, handler in handlers.items():
        kind.on_receive = wrapped(handler)  # type: ignore[method-assign]
    Journal.record, Ref.tell = faulty_record, faulty_tell  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, handler in handlers.items():
            kind.on_receive = handler  # type: ignore[method-assign]
        Journal.record, Ref.tell = record, tell  # type: ignore[method-assign]

"""Pykka actors, run cooperatively.

The only module that knows Pykka's insides. An actor's inbox is a deque; `tell` appends to it and
puts the actor on the runtime's list; one callback on the event loop then works the list off, so
that a chain of messages costs no trip through the selector. When the list is empty the `idle`
hooks run (the journal hands over what was recorded). The simulator uses the same class and picks
the next actor by its seed. A handler that raises never takes another actor with it: the failure
goes to `on_failure`, and the actor goes on from a reset.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import pykka
from pykka import ActorRegistry
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("rota.runtime")

MESSAGES_PER_RUN_MAX = 4096
"""After so many messages the loop gets a chance to read sockets."""


class Again(NamedTuple):
    """A message whose handler raised, for the second and last time."""

    message: Any


class Inbox:
    """A deque that wakes its actor.

    Plain messages lie in it as they are; only what wants a Pykka reply (a stop) is enveloped.
    """

    __slots__ = ("actor", "queue")

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.actor: CooperativeActor | None = None

    def put(self, envelope: Envelope[Any], /) -> None:
        self.queue.append(envelope)
        if self.actor is not None:
            self.actor.runtime.wake(self.actor)

    def get(self) -> Any:
        return self.queue.popleft()

    def empty(self) -> bool:
        return not self.queue


class Ref(pykka.ActorRef["CooperativeActor"]):
    """A Pykka ref whose `tell` goes the short way."""

    actor_inbox: Inbox

    def tell(self, message: Any) -> None:
        """Append the message and wake the actor; one that has stopped hears nothing."""
        inbox = self.actor_inbox
        inbox.queue.append(message)
        actor = inbox.actor
        if actor is not None and not actor.awake:
            actor.runtime.wake(actor)


class Runtime:
    """The list of actors that have messages, and whoever works it off."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        on_failure: Callable[[CooperativeActor, Any, Exception], None],
    ) -> None:
        """Be run by `call_soon`; tell `on_failure` of handlers that raise."""
        self._call_soon = call_soon
        self._on_failure = on_failure
        self._scheduled = False
        self.ready: deque[CooperativeActor] = deque()
        self.idle: list[Callable[[], None]] = []

    def wake(self, actor: CooperativeActor) -> None:
        """Put an actor that has a message on the list."""
        if not actor.awake:
            actor.awake = True
            self.ready.append(actor)
            self.schedule()

    def schedule(self) -> None:
        """See to it that the list is worked off, and the idle hooks run."""
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self.run)

    def run(self) -> None:
        """Work off what waits, up to a bound, then run the idle hooks."""
        self._scheduled = False
        self.work()
        for hook in self.idle:
            hook()
        if self.ready:
            self.schedule()

    def work(self) -> None:
        """Work off what waits, up to a bound."""
        ready = self.ready
        left = MESSAGES_PER_RUN_MAX
        while ready and left > 0:
            actor = ready.popleft()
            queue = actor.actor_inbox.queue
            try:
                while queue and left > 0:
                    left -= 1
                    self.handle(actor, queue.popleft())
            finally:
                self._rest(actor)

    def step(self, choose: Callable[[int], int]) -> bool:
        """Handle one message of the actor at `choose(n)`; False if nothing waits."""
        if not self.ready:
            return False
        at = choose(len(self.ready))
        actor = self.ready[at]
        del self.ready[at]
        if not actor.actor_inbox.empty():
            self.handle(actor, actor.actor_inbox.get())
        self._rest(actor)
        return True

    def handle(self, actor: CooperativeActor, message: Any) -> None:
        """Give one message to its actor; a failure stays with it."""
        try:
            if type(message) is Envelope:
                self._answer(actor, message)
            elif not actor.stopped:
                actor.on_receive(message.message if type(message) is Again else message)
        except Exception as error:  # noqa: BLE001 - one actor's failure must not reach another
            self.failed(actor, message, error)

    def failed(self, actor: CooperativeActor, message: Any, error: Exception) -> None:
        """Have a failure dealt with: of a handler, or of what an actor does outside of one."""
        try:
            self._on_failure(actor, message, error)
        except Exception:
            logger.exception("a failure of %s could not be dealt with", type(actor).__name__)

    @staticmethod
    def _answer(actor: CooperativeActor, envelope: Envelope[Any]) -> None:
        """Handle what came by `ask`: a stop, or a message whose sender wants the result."""
        result = None
        if isinstance(envelope.message, _ActorStop):
            actor.end()
        elif not actor.stopped:
            result = actor.on_receive(envelope.message)
        if envelope.reply_to is not None:
            envelope.reply_to.set(result)

    def _rest(self, actor: CooperativeActor) -> None:
        if actor.actor_inbox.empty():
            actor.awake = False
        else:
            self.ready.append(actor)


class CooperativeActor(pykka.Actor):
    """An actor on a `Runtime`; give it to `start` first."""

    actor_inbox: Inbox
    subject = ""
    """The task that a handler is about to decide on, where its message does not say."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._actor_ref = Ref(self)
        self.awake = False
        self.stopped = False
        self.runtime = runtime

    @staticmethod
    def _create_actor_inbox() -> Inbox:
        return Inbox()

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.actor = self
        self.on_start()
        if self.actor_inbox.queue:
            self.runtime.wake(self)

    def reset(self) -> None:
        """Forget what was held in the actor and derive it again from the projections.

        Tells nobody anything, itself neither: what is due is done when a `LookAgain` comes.
        """

    def end(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._stop()


def body_of(ref: pykka.ActorRef[Any]) -> Any:
    """Give the actor behind a ref; for the composition root, which owns its actors."""
    inbox: Any = ref.actor_inbox
    return inbox.actor


def retire(refs: list[pykka.ActorRef[Any]]) -> None:
    """Stop many actors at once (Pykka's own way scans its whole registry for each)."""
    gone = {id(ref) for ref in refs}
    registry: Any = ActorRegistry
    with registry._actor_refs_lock:  # noqa: SLF001 - see the module docstring
        registry._actor_refs[:] = [r for r in registry._actor_refs if id(r) not in gone]  # noqa: SLF001
    for ref in refs:
        ref.actor_stopped.set()
        body_of(ref).stopped = True


def retire_for_good(refs: list[pykka.ActorRef[Any]]) -> None:
    """Stop actors that nobody asks for again, and free them now instead of at a collection."""
    retire(refs)
    for ref in refs:
        inbox: Any = ref.actor_inbox
        inbox.actor = None

"""The timer: everything that is due at a moment.

In: `Arm`; `Tick`, when the next moment has come; `DeriveMoments`. Out: the armed message, to
whoever handles it, when its moment has come. Nothing polls. Nobody disarms: the receiver looks
whether the message still means anything, and a heap that is mostly meaningless is swept. What is
armed can be derived from the projections at any time: after a step of the clock and a fault it is.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from rota.actors.messages import Arm, DeriveMoments, LookAgain, Tick
from rota.actors.runtime import CooperativeActor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.actors.runtime import Runtime
    from rota.clock import Clock

_SLACK = 1024
FAULT_PAUSE_US = 1_000_000


class TimerActor(CooperativeActor):
    """Sends messages when they are due."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        call_at: Callable[[int, Callable[[], None]], Any],
        send: Callable[[Any], None],
        is_live: Callable[[Any], bool],
        moments: Callable[[], Iterable[tuple[int, Any]]] = tuple,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Be woken by `call_at`; hand what is due to `send`; sweep what is not `is_live`.

        `moments` gives all that is due some time; `look` looks whether the clock was set.
        """
        super().__init__(runtime)
        self._clock = clock
        self._call_at = call_at
        self._send = send
        self._is_live = is_live
        self._moments = moments
        self._look = look
        self._heap: list[tuple[int, int, Any]] = []
        self._count = 0
        self._sweep_at = _SLACK
        self._shift_us = clock.shift_us
        self._next: int | None = None
        self._handle: Any = None
        self._rest_until = 0

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Tick:
            self.tick()
        elif kind is LookAgain:
            self._rest_until = 0
            self._forget_wake()
            self._rearm()
        elif kind is DeriveMoments or self._shift_us != self._clock.shift_us:
            self.reset()  # what was armed by another time, this message too, is derived by this one
        elif kind is Arm:
            self._arm(message.at, message.message)
            if len(self._heap) > self._sweep_at:
                self._sweep()
            self._rearm()

    def reset(self) -> None:
        """Derive all moments again from the projections; if that fails, try again in a while."""
        self._shift_us = self._clock.shift_us
        self._forget_wake()
        try:
            self._heap = [(at, n, what) for n, (at, what) in enumerate(self._moments())]
        except Exception:
            self._heap = []
            self._wake_at(self._clock.now_us() + FAULT_PAUSE_US, self._derive)
            raise
        heapify(self._heap)
        self._count = len(self._heap)
        self._sweep_at = 2 * len(self._heap) + _SLACK
        self._rearm()

    def tick(self) -> None:
        """Send what is due, and be woken for the next."""
        self._forget_wake()
        self._look()
        if self._shift_us != self._clock.shift_us:
            self.reset()
        now, heap = self._clock.now_us(), self._heap
        failure: Exception | None = None
        while heap and heap[0][0] <= now:
            try:
                self._send(heappop(heap)[2])
            except Exception as error:  # noqa: BLE001 - raised below; the others go on
                failure = failure or error
        if failure is not None:
            self._rest_until = now + FAULT_PAUSE_US  # what fails again must not fail all the time
            self.reset()
            raise failure
        self._rearm()

    def _arm(self, at: int, message: Any) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, message))

    def _rearm(self) -> None:
        if self._heap and (self._next is None or self._heap[0][0] < self._next):
            self._wake_at(max(self._heap[0][0], self._rest_until), self._wake)

    def _wake_at(self, at: int, wake: Callable[[], None]) -> None:
        self._forget_wake()
        self._next = at
        self._handle = self._call_at(at, wake)

    def _forget_wake(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = self._handle = None

    def _derive(self) -> None:
        if not self.stopped:
            self.actor_ref.tell(DeriveMoments())

    def _wake(self) -> None:
        if not self.stopped:
            self.actor_ref.tell(Tick())

    def _sweep(self) -> None:
        self._heap = [item for item in self._heap if self._is_live(item[2])]
        heapify(self._heap)
        self._sweep_at = 2 * len(self._heap) + _SLACK

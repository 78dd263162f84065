"""The timer: everything that is due at a moment.

In: `Arm`. Out: the armed message, to whoever handles it, when its moment has come. `tick` does
what is due and says when to wake next; nothing polls. Nobody disarms: the receiver looks whether
the message still means anything, and a heap that is mostly meaningless is swept.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from rota.actors.messages import Arm, Tick
from rota.actors.runtime import CooperativeActor

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.runtime import Runtime
    from rota.clock import Clock

_SLACK = 1024


class TimerActor(CooperativeActor):
    """Sends messages when they are due."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        call_at: Callable[[int, Callable[[], None]], Any],
        send: Callable[[Any], None],
        is_live: Callable[[Any], bool],
    ) -> None:
        """Be woken by `call_at`; hand what is due to `send`; sweep what is not `is_live`."""
        super().__init__(runtime)
        self._clock = clock
        self._call_at = call_at
        self._send = send
        self._is_live = is_live
        self._heap: list[tuple[int, int, Any]] = []
        self._count = 0
        self._sweep_at = _SLACK
        self._next: int | None = None
        self._handle: Any = None

    def reset(self) -> None:
        """Forget all moments; whoever resets the timer has them armed again."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
        self._next = self._handle = None

    def on_receive(self, message: Any) -> None:
        """Arm."""
        if type(message) is Arm:
            self._count += 1
            heappush(self._heap, (message.at, self._count, message.message))
            if len(self._heap) > self._sweep_at:
                self._sweep()
            self._rearm()

    def tick(self) -> int | None:
        """Send what is due; give the moment of the next, or None."""
        now = self._clock.now_us()
        self._next = self._handle = None
        heap = self._heap
        while heap and heap[0][0] <= now:
            self._send(heappop(heap)[2])
        self._rearm()
        return heap[0][0] if heap else None

    def _rearm(self) -> None:
        if self._heap and (self._next is None or self._heap[0][0] < self._next):
            self._next = self._heap[0][0]
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._call_at(self._next, self._wake)

    def _wake(self) -> None:
        if not self.stopped:
            try:
                self.tick()
            except Exception as error:  # noqa: BLE001 - as in a handler
                self._runtime.failed(self, Tick(), error)

    def _sweep(self) -> None:
        self._heap = [item for item in self._heap if self._is_live(item[2])]
        heapify(self._heap)
        self._sweep_at = 2 * len(self._heap) + _SLACK

"""Turns of the event loop for work that holds it long: one step at a time, callers in turn.

Lists that look through memory, streams that catch up, and large bodies wait here before each step.
A step is what a task does until it next waits for something. After each, the loop rests for as long
as the step took: so whatever many requests of one caller ask for, half of the loop's time is left
for other requests, and another caller's step comes after one of theirs. Log reads have their own
queues of callers (actors/readers.py), and the largest answers theirs (http/byte_budgets.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar

from rota.actors.readers import asked_by
from rota.clock import monotonic_s


class Turns:
    """A queue of steps for each caller; one `Turns` for each event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False
        self._began_s = 0.0

    async def take(self, caller: str) -> None:
        """Wait for the turn of a caller; its step lasts until the running task waits again."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(waiter)
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._next)
        await waiter

    def _next(self) -> None:
        """Begin the next step: what is called soon here comes directly before and after it."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            caller, queue = next(iter(self._waiting.items()))
            del self._waiting[caller]
            waiter = queue.popleft()
            if queue:
                self._waiting[caller] = queue  # behind the others
            if not waiter.done():  # else its request was cancelled
                loop.call_soon(self._begin)
                waiter.set_result(None)
                loop.call_soon(self._rest)
                return
        self._is_busy = False

    def _begin(self) -> None:
        self._began_s = monotonic_s()

    def _rest(self) -> None:
        asyncio.get_running_loop().call_later(monotonic_s() - self._began_s, self._next)


turns_of: ContextVar[Turns | None] = ContextVar("turns_of", default=None)
"""The turns of the server whose request the running task serves; set for each request."""


async def my_turn() -> None:
    """Wait for the next turn of the caller whose request is served; without one, let others run."""
    turns = turns_of.get()
    await (turns.take(asked_by.get()) if turns is not None else asyncio.sleep(0))

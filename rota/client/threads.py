"""Threads for plain functions: as many as are wanted at once, kept, and none that holds up an exit.

The standard library's pool waits for its threads when the process ends; a function that does not
look at `ctx.cancelled` would keep a worker from stopping. These are daemons.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Job = tuple["Callable[[], Any]", "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """Runs plain functions for one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = self._busy = 0

    async def run(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """Call a function in a thread. A caller that is cancelled does not wait for it."""
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        if self._busy > self._count:
            self._count += 1
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((lambda: context.run(function, **given), future, loop))
        return await future

    def close(self) -> None:
        """Let the threads end, each when it has nothing more to do."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future, loop = job
            try:
                result, error = call(), None
            except BaseException as raised:  # noqa: BLE001 - it is the task's failure
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(self._settle, future, result, error)
            except RuntimeError:  # the loop has ended, and nobody waits
                return

    def _settle(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        self._busy -= 1
        if future.done():
            return
        if isinstance(error, StopIteration):  # no future takes it
            error = RuntimeError(f"the function raised {error!r}")
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

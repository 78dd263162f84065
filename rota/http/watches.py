"""Waiting for a task to change: for long polls and for pushes.

Whoever waits has an event that is set when a commit has changed the task. A commit costs a look at
each task that is waited for, and nothing if none is; their number is bounded.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rota.config import STREAMS_MAX
from rota.domain.task import TERMINAL
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.actors.system import Shard
    from rota.domain.task import Task
    from rota.http.call import Call


class Watches:
    """Who waits for which task."""

    def __init__(self, shard: Shard) -> None:
        """Be told of commits by `shard`."""
        self._shard = shard
        self._waiting: dict[str, dict[asyncio.Event, Any]] = {}
        self._count = 0
        shard.listeners.append(self._committed)

    @contextmanager
    def on(self, task_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the task has changed. Raises HttpProblem."""
        if self._count >= STREAMS_MAX:
            raise HttpProblem(503, "too_many_streams", "too many requests wait for a task")
        changed = asyncio.Event()
        self._waiting.setdefault(task_id, {})[changed] = self._look(task_id)
        self._count += 1
        try:
            yield changed
        finally:
            self._count -= 1
            waiting = self._waiting[task_id]
            del waiting[changed]
            if not waiting:
                del self._waiting[task_id]

    def close(self) -> None:
        """Wake everybody: the server is stopping."""
        for waiting in self._waiting.values():
            for changed in waiting:
                changed.set()

    def _look(self, task_id: str) -> Any:
        task = self._shard.state.tasks.get(task_id)
        return None if task is None else (task.state, task.token, task.ready_at, task.notes)

    def _committed(self, seq: int) -> None:
        del seq
        for task_id, waiting in self._waiting.items():
            now = self._look(task_id)
            for changed, seen in waiting.items():
                if now != seen:
                    waiting[changed] = now
                    changed.set()


async def until_ended(call: Call, task_id: str, wait_ms: int) -> Task:
    """Give the task when it has ended, or as it is after `wait_ms`. Raises NotFound."""
    task = call.bridge.task(task_id)
    if wait_ms <= 0 or task.state in TERMINAL:
        return task
    with call.app.watches.on(task_id) as changed:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not call.app.closing:
                    changed.clear()
                    task = await call.bridge.durable(lambda: call.bridge.task(task_id))
                    if task.state in TERMINAL:
                        break
                    await changed.wait()
        except TimeoutError:
            pass
    return call.bridge.task(task_id)

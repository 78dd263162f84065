"""Waiting for a task to change: for long polls and for pushes.

Whoever waits has an event that is set when something about the task was recorded; whether that is
durable is for them to await. A record costs one look whether anybody waits for its task; the number
of those who wait is bounded, and whoever leaves makes room at once.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.config import STREAMS_MAX
from rota.domain.task import TERMINAL
from rota.http.presence import connection_of
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.http.call import Call
    from rota.sight.feed import Feed


class Watches:
    """Who waits for which task."""

    def __init__(self, feed: Feed, watching: list[None] | None = None) -> None:
        """Be told of records by `feed`; `watching` has an entry for everybody on this server."""
        self._waiting = feed.watched
        self._watching: list[None] = [] if watching is None else watching

    def __len__(self) -> int:
        """Count those who wait, on the whole server."""
        return len(self._watching)

    @contextmanager
    def on(self, *subjects: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever one of these has changed. Raises HttpProblem."""
        if len(self._watching) >= STREAMS_MAX:
            raise HttpProblem(503, "too_many_streams", "too many requests wait for a task")
        changed = asyncio.Event()
        for subject in subjects:
            self._waiting.setdefault(subject, []).append(changed.set)
        self._watching.append(None)
        try:
            yield changed
        finally:
            self._watching.pop()
            for subject in subjects:
                waiting = self._waiting[subject]
                waiting.remove(changed.set)
                if not waiting:
                    del self._waiting[subject]

    def close(self) -> None:
        """Wake everybody: the server is stopping."""
        for waiting in self._waiting.values():
            for wake in waiting:
                wake()


async def until_ended(call: Call, task_id: str, wait_ms: int) -> None:
    """Wait until a task has ended, `wait_ms` at most. Raises NotFound.

    Nobody is waited for who has left; one that says no more may have left, and is answered now.
    """
    if wait_ms <= 0 or (await call.sight.task(task_id)).state in TERMINAL:
        return
    connection = connection_of(call.request)
    with (
        call.namespace.watches.on(task_id) as changed,
        connection.attended(changed.set),
        call.staying(changed.set),
    ):
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not (call.app.closing or connection.is_gone or connection.at_eof):
                    changed.clear()
                    call.check_welcome()
                    state = await call.sight.show_task(task_id, lambda task: task.state)
                    if state in TERMINAL:
                        break
                    await changed.wait()
        except TimeoutError:
            pass

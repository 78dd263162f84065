"""Waiting for a task to change: for long polls and for pushes.

Whoever waits has an event that is set when something about the task was recorded; whether that is
durable is for them to await. A record costs one look whether anybody waits for its task; the number
of those who wait is bounded, callers have shares of it, and whoever leaves makes room at once.
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
    from collections.abc import Awaitable, Callable, Iterator

    from rota.domain.shares import Shares
    from rota.http.call import Call
    from rota.sight.feed import Feed


class Watches:
    """Who waits for which task."""

    def __init__(self, feed: Feed, watching: Shares) -> None:
        """Be told of records by `feed`; `watching` counts those who wait on the whole server."""
        self._waiting = feed.watched
        self._told = feed.told_to_stop
        self.watching = watching

    @contextmanager
    def on(self, share: str, *subjects: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever one of these has changed. Raises HttpProblem."""
        if not self.watching.take(share):
            msg = f"{STREAMS_MAX} requests wait for a task, or as many of yours as may"
            raise HttpProblem(503, "too_many_streams", msg)
        changed = asyncio.Event()
        for subject in subjects:
            self._waiting.setdefault(subject, []).append(changed.set)
        try:
            yield changed
        finally:
            self.watching.give_back(share)
            for subject in subjects:
                waiting = self._waiting[subject]
                waiting.remove(changed.set)
                if not waiting:
                    del self._waiting[subject]

    @contextmanager
    def stops(self, worker: str, hear: Callable[[str, str], None]) -> Iterator[None]:
        """Have `hear` called with each lease that a worker is to stop working on, and its agent.

        When the server is stopping it is called with empty names, which are no lease's.
        """
        told = self._told.setdefault(worker, [])
        told.append(hear)
        try:
            yield
        finally:
            told.remove(hear)
            if not told:
                del self._told[worker]

    def close(self) -> None:
        """Wake everybody: the server is stopping."""
        for waiting in self._waiting.values():
            for wake in waiting:
                wake()
        for told in self._told.values():
            for hear in told:
                hear("", "")


async def until_ended(call: Call, task_id: str, wait_ms: int) -> None:
    """Wait until a task has ended, `wait_ms` at most. Raises NotFound."""
    if wait_ms <= 0 or (task := await call.sight.task(task_id)).state in TERMINAL:
        return
    await until(
        call,
        task.agent,
        task_id,
        wait_ms,
        lambda: call.sight.show_task(task_id, lambda task: task.state in TERMINAL),
    )


async def until(
    call: Call, agent: str, subject: str, wait_ms: int, is_over: Callable[[], Awaitable[bool]]
) -> None:
    """Wait until something is over, `wait_ms` at most; look whenever it is told of.

    Nobody is waited for who has left; one that says no more may have left, and is answered now.
    """
    connection = connection_of(call.request)
    share = call.caller.share_for(agent)
    with (
        call.namespace.watches.on(share, subject) as changed,
        connection.attended(changed.set),
        call.staying(share, changed.set),
    ):
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not (call.must_end or connection.is_gone or connection.at_eof):
                    changed.clear()
                    call.check_welcome()
                    if await is_over():
                        break
                    await changed.wait()
        except TimeoutError:
            pass

"""What the server's own parts follow: the newest records as they become durable, for all callers.

Streams, event handlers and those who wait for a task are served from one feed, which knows no
caller. What a stream may show of it is said by its `Wanted`, which a caller's `Sight` makes; who
waits for a task is only woken, and sees it by that sight. Event handlers are the operator's code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rota.actors.answer import Answer
from rota.sight import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.actors.system import Shard
    from rota.actors.tail import Entry, Tail
    from rota.eventlog.port import LogReader
    from rota.sight.history import Belongs

T = TypeVar("T")


class Feed:
    """The news of a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @property
    def tail(self) -> Tail:
        """The newest durable records."""
        return self._shard.tail

    def on_commit(self, listener: Callable[[int], None]) -> None:
        """Have somebody told of every commit, with the last durable seq."""
        self._shard.listeners.append(listener)

    @property
    def watched(self) -> dict[str, list[Callable[[], None]]]:
        """Who is to be woken by a record of which task."""
        return self._shard.watched

    @property
    def told_to_stop(self) -> dict[str, list[Callable[[str, str], None]]]:
        """Who is told of the leases, and their agents, that a worker is to stop working on."""
        return self._shard.cast.workers.told

    async def entries(self, after: int, task_id: str | None = None) -> tuple[list[Entry], int]:
        """Give the next durable records, of one task if it is named; and how far that leads."""
        tail = self._shard.tail
        if after >= tail.last:
            return [], after
        if tail.holds(after):
            page = tail.page(after)
            return page, page[-1].seq if page else after
        return await read_log(self._shard, lambda log: tail.read(log, after, task_id))

    # -- for records that a caller was given already

    def belongs_here(self, task_id: str) -> tuple[bool, Belongs]:
        """Whether a task is in memory, and what it is of."""
        task = self._shard.archive.task_here(task_id)
        return task is not None, history.belongs(task.plan if task is not None else None)

    async def belongings_of(self, task_ids: Iterable[str]) -> dict[str, Belongs]:
        """Give what tasks are of, as their first records say."""
        wanted = list(task_ids)
        return await read_log(self._shard, lambda log: history.belongings_of(log, wanted))


async def read_log(shard: Shard, read: Callable[[LogReader], T]) -> T:
    """Read the log in a reader's thread. Raises a LogError."""
    answer = Answer()
    log = shard.log
    shard.fetch(lambda: read(log), answer.ok, answer.fail, answer.is_awaited)
    value: T = await answer.future
    return value

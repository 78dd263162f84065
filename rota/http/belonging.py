"""Which batch and workflow a task is of, for views of records that do not say it.

Only a task's first record does. It is looked up once a task, in memory or by one read of one record
beside the loop; never by reading a task's history, which may be long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.http.streams import LacksError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.sight.feed import Feed
    from rota.sight.history import Belongs

TASKS_KEPT = 4096


class Belonging:
    """What tasks are of; what was looked up last is kept."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._known: dict[str, Belongs] = {}

    def of(self, task_id: str) -> Belongs:
        """Give what a task is of. Raises LacksError."""
        is_here, belongs = self._feed.belongs_here(task_id)
        if is_here:
            return belongs
        if task_id not in self._known:
            raise LacksError(lambda: self.look_up([task_id]))
        return self._known[task_id]

    async def look_up(self, task_ids: Iterable[str]) -> None:
        """Keep what tasks are of. Raises a LogError."""
        self._known |= await self._feed.belongings_of(task_ids)
        while len(self._known) > TASKS_KEPT:
            del self._known[next(iter(self._known))]

    async def look_up_page(self, task_ids: Iterable[str]) -> None:
        """Keep what the tasks of a page are of, as far as they are not in memory."""
        absent = [each for each in dict.fromkeys(task_ids) if not self._feed.belongs_here(each)[0]]
        if absent:
            await self.look_up(absent)

"""What a caller may see of schedules: what they are, and what became of their moments.

A limited sight sees the schedules all of whose agents it may see, since they were made; whoever
sees all can also look at what was under a name before.
"""

from __future__ import annotations

from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, TypeVar

from rota.domain.schedule import found, no_such
from rota.errors import NotFound
from rota.eventlog.codec import SCHEDULE
from rota.sight import history
from rota.sight.feed import read_log
from rota.sight.room import with_room
from rota.sight.turns import my_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.system import Shard
    from rota.domain.schedule import Schedule
    from rota.sight.history import MaySee, Page
    from rota.sight.showing import Showing

T = TypeVar("T")


class ScheduleSight:
    """The schedules' part of a sight."""

    def __init__(self, shard: Shard, showing: Showing, may_see: MaySee | None) -> None:
        self._shard = shard
        self._showing = showing
        self._may_see = may_see

    def _is_seen(self, schedule: Schedule) -> bool:
        return self._may_see is None or all(map(self._may_see, schedule.agents))

    def _find(self, name: str) -> Schedule:
        """Give a schedule. Raises NotFound."""
        schedule = found(self._shard.state.schedules.by_name, name)
        if not self._is_seen(schedule):
            raise no_such(name)
        return schedule

    async def find(self, name: str) -> Schedule:
        """Give a schedule, as it is at this moment; not to be shown so. Raises NotFound."""

        async def here() -> Schedule:
            return self._find(name)

        return await self._showing.checked(here)

    async def show(self, name: str, view: Callable[[Schedule], T]) -> T:
        """Show a schedule. Raises NotFound."""

        async def here() -> Schedule:
            return self._find(name)

        return await self._showing.shown(here, view)

    async def page(
        self,
        is_wanted: Callable[[Schedule], bool],
        after: str,
        limit: int,
        view: Callable[[Schedule], T],
    ) -> tuple[list[T], str | None]:
        """Show some schedules by name, those after a name; and the last name, if there are more."""

        async def here() -> list[Schedule]:
            await my_turn()
            by_name = self._shard.state.schedules.by_name
            named = (s for name, s in by_name.items() if name > after)
            seen = (s for s in named if is_wanted(s) and self._is_seen(s))
            return nsmallest(limit + 1, seen, key=lambda each: each.name)

        def show(few: list[Schedule]) -> tuple[list[T], str | None]:
            last = few[limit - 1].name if len(few) > limit else None
            return [view(each) for each in few[:limit]], last

        return await self._showing.shown(here, show)

    async def records_of(self, name: str, after: int, limit: int) -> Page:
        """Give the next records of a schedule. Raises NotFound."""
        if self._may_see is not None:
            after = max(after, await self.show(name, lambda schedule: schedule.seq - 1))
        read = partial(history.records_of, task_id=SCHEDULE + name, after=after, limit=limit)
        try:
            return await with_room(partial(read_log, self._shard, read))
        except NotFound:
            raise no_such(name) from None

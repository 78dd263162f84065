"""When what is in memory may be shown: once everything it was made from is durable.

So nobody is shown a fact that a power cut could still take back. What was looked at in a state that
has been replaced since, after a failure of the log, is looked at again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from rota.actors.answer import Answer
from rota.actors.failover import Phase
from rota.errors import RequestError, StorageUnavailable
from rota.sight.room import room_of, size_of_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.actors.system import Shard

T = TypeVar("T")
Shown = TypeVar("Shown")

REBUILT_S = 2.0
"""How long a read waits for a state that may be read, before it is refused."""
LOOKS_MAX = 10


class Showing:
    """What is waited for before something of a shard is shown; one for whoever looks at it."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._rebuilt: asyncio.Future[None] | None = None

    async def readable(self) -> None:
        """Wait while the state is being rebuilt after a failure, but not for long."""
        failover = self._shard.failover
        if self._shard.journal.failure is not None and failover.phase is Phase.RUNNING:
            await asyncio.sleep(0)  # a fact could not be folded: the rebuilding begins at once
        if failover.phase is not Phase.REBUILDING:
            return
        if self._rebuilt is None or self._rebuilt.done():
            answer = Answer()
            self._rebuilt = answer.future
            failover.when_readable(lambda: answer.ok(None))
        await asyncio.wait([self._rebuilt], timeout=REBUILT_S)

    async def settled(self) -> bool:
        """Wait until what is in memory is durable; False if some of it was taken back."""
        journal = self._shard.journal
        if journal.failure is not None or journal.durable_seq >= self._shard.state.seq:
            return True
        answer = Answer()
        journal.answer(answer, None)
        try:
            await answer.future
        except StorageUnavailable:
            return False
        return True

    async def shown(self, gather: Callable[[], Awaitable[T]], show: Callable[[T], Shown]) -> Shown:
        """Show what was gathered, in the turn of the loop in which that is done, when durable.

        Who has to wait for room for it is shown what there is afterwards.
        A refusal, such as that there is no such thing, is one, too: it waits for the same.
        """
        room = room_of.get()
        for _ in range(LOOKS_MAX):
            await self.readable()
            state = self._shard.state
            refusal: RequestError | None = None
            try:
                found = await gather()
                if self._shard.state is not state:
                    continue
                shown = show(found)
                if room is not None and not room.take(size := size_of_view(shown)):
                    del found, shown
                    await room.wait(size)
                    continue
            except RequestError as error:
                refusal = error
            if await self.settled() and self._shard.state is state:
                if refusal is not None:
                    raise refusal
                return shown
        raise StorageUnavailable("the log fails again and again", hint="try again later")

    async def checked(self, check: Callable[[], Awaitable[T]]) -> T:
        """Give what a check lets pass, at once; what it refuses, it refuses when durable."""
        try:
            return await check()
        except RequestError:
            return await self.shown(check, lambda found: found)

"""The memory that an answer takes before it is written: taken before it is made.

`Showing.shown` and all reads of the log for a caller ask the `Room` of the request that they serve.
Who has none (streams, and the server's own parts) is bounded elsewhere. The bound and the shares of
callers are in http/byte_budgets.py.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rota.domain.packed import Deferred, weight_of
from rota.domain.task import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

READ_BYTES = 1 << 20
"""So much is taken before something is read from the log: a page of records."""
VALUE_BYTES = 64
"""About what one small value takes, as an object and in the answer."""


class Room(Protocol):
    """What one answer may take."""

    def take(self, size: int, *, is_read: bool = False) -> bool:
        """Have room for so many bytes in all; False, and none is taken, if there is too little."""
        ...

    async def wait(self, size: int, *, is_read: bool = False) -> None:
        """Wait for room for so many bytes, instead of what was taken. Raises HttpProblem."""
        ...

    def give_back(self) -> None:
        """Take no room while something else is waited for."""
        ...


room_of: ContextVar[Room | None] = ContextVar("room_of", default=None)
"""The room of the request that the running task serves; set for each request."""


async def with_room(read: Callable[[], Awaitable[T]]) -> T:
    """Read something of the log once there is room for it. Raises HttpProblem.

    Its size is known afterwards: what has no room then is let go of, and read again when it has.
    """
    room = room_of.get()
    if room is None:
        return await read()
    if not room.take(READ_BYTES, is_read=True):
        await room.wait(READ_BYTES, is_read=True)
    while True:
        found = await read()
        size = size_of_view(found)
        if room.take(size, is_read=True):
            return found
        del found
        await room.wait(size, is_read=True)


async def take_room(view: Any) -> None:
    """Have room for the answer with a view whose parts are at hand. Raises HttpProblem."""
    room, size = room_of.get(), size_of_view(view)
    if room is not None and not room.take(size):
        await room.wait(size)


def size_of_view(view: Any) -> int:
    """Estimate the bytes of the text of a view with its deferred parts, or of what was read."""
    kind = type(view)
    if kind is dict:
        return VALUE_BYTES * len(view) + sum(map(size_of_view, view.values()))
    if kind is Deferred:
        size: int = view.size
        return size
    if kind is str or kind is bytes:
        return len(view)
    if kind is Task:
        return weight_of(view)
    if isinstance(view, list | tuple):
        return VALUE_BYTES * len(view) + sum(map(size_of_view, view))
    return 0

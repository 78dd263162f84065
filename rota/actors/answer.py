"""A `Reply` (`messages.py`) that a coroutine can await."""

from __future__ import annotations

import asyncio
from typing import Any


class Answer:
    """An answer that is still to come."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ok(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def is_awaited(self) -> bool:
        """Whether somebody may still wait for it; in any thread."""
        return not self.future.done()

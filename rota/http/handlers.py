"""In-process event handlers: plain or async functions that are called with every durable fact.

They are called one after the other, fact by fact, in the order of the log; what they raise is
logged and hurts nobody. The facts come from the log, so a slow handler delays only itself and the
handlers after it, never the scheduler. They hear of what happens from the start of the server on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError
from rota.eventlog.codec import decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.actors.system import Shard
    from rota.domain.events import Record

    Handler = Callable[[Record], Awaitable[None] | None]

logger = logging.getLogger("rota.handlers")

PAGE_RECORDS = 100


def load_handler(path: str) -> Handler:
    """Find the function that `module:name` means. Raises ConfigError."""
    module, _, name = path.partition(":")
    try:
        found: Any = getattr(import_module(module), name)
    except Exception as error:
        msg = f"server.onEvent: cannot load {path!r}: {error}"
        raise ConfigError(msg, hint="write it as package.module:function") from error
    if not callable(found):
        msg = f"server.onEvent: {path!r} is not a function"
        raise ConfigError(msg)
    handler: Handler = found
    return handler


class EventHandlers:
    """Calls handlers with what becomes durable."""

    def __init__(self, shard: Shard, handlers: list[Handler]) -> None:
        """Begin after the log's present end."""
        self._shard = shard
        self._handlers = handlers
        self._after = shard.journal.durable_seq
        self._news = asyncio.Event()
        shard.listeners.append(self._committed)

    def _committed(self, seq: int) -> None:
        del seq
        self._news.set()

    async def run(self) -> None:
        """Call the handlers until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Call the handlers with everything that is durable and new to them."""
        while page := self._shard.log.read(self._after, PAGE_RECORDS):
            for item in page:
                self._after = item.seq
                await self._tell(decode(item.body))
            await asyncio.sleep(0)

    async def _tell(self, record: Record) -> None:
        for handler in self._handlers:
            try:
                waiting = handler(record)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception:
                logger.exception("an event handler failed on seq %d; it goes on", record.seq)

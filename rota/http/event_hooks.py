"""In-process event handlers: plain or async functions that are called with every durable fact.

They are called one after the other, fact by fact, in the order of the log; whatever they raise is
logged and hurts nobody. The facts come from the tail, or from the log where they have fallen
behind, and plain functions run in a thread of their own, so a slow handler delays only itself and
the handlers after it, never the scheduler. They hear of what happens from the start of the server
on; while the log cannot be read they wait, and go on where they were. A handler that takes an
argument `namespace` hears of every namespace, and of which; the others hear of the default alone.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from rota.actors.log_rate import LogRate
from rota.errors import ConfigError
from rota.eventlog.codec import decode
from rota.sections import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.domain.events import Event, Record
    from rota.sight.feed import Feed

    Handler = Callable[..., Awaitable[None] | None]
    """Called with a `Record`, and with `namespace=` if it takes that."""

logger = logging.getLogger("rota.handlers")

UNREADABLE_S = 0.2
LINES_MAX, LINES_SPAN_S = 3, 60.0


def load_handler(path: str) -> Handler:
    """Find the function that `module:name` means. Raises ConfigError."""
    module, _, name = path.partition(":")
    if not module or not name.isidentifier():
        msg = f"server.onEvent: {path!r} names no function"
        raise ConfigError(msg, hint="write it as package.module:function")
    try:
        loaded = import_module(module)
    except Exception as error:
        msg = f"server.onEvent: {module} cannot be imported: {type(error).__name__}: {error}"
        hint = "install it beside rota, or name its folder in PYTHONPATH"
        raise ConfigError(msg, hint=hint) from error
    found: Any = getattr(loaded, name, None)
    if not callable(found):
        msg = f"server.onEvent: {module} has no function {name}"
        raise ConfigError(msg, hint="write it as package.module:function")
    handler: Handler = found
    return handler


class HandlerThread:
    """Calls plain functions one after the other; one that never ends keeps nobody from leaving."""

    def __init__(self) -> None:
        """Start the thread with the first call."""
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, handler: Callable[[], Any]) -> Any:
        """Give what the handler returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result((value, error))

        def run() -> None:
            value, raised = None, None
            try:
                value = handler()
            except BaseException as error:  # noqa: BLE001 - SystemExit, too, is only told
                raised = error
            loop.call_soon_threadsafe(settle, value, raised)

        self._calls.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rota-handlers", daemon=True)
            self._thread.start()
        value, error = await ended
        if error is not None:
            raise HandlerFailed from error
        return value

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                call()


class HandlerFailed(Exception):  # noqa: N818 - its cause is the error
    """A handler raised something, be it an exit or a cancellation."""


def takes_namespace(handler: Handler) -> bool:
    """Whether a handler wants to hear of all namespaces."""
    try:
        return "namespace" in inspect.signature(handler).parameters
    except (TypeError, ValueError):  # it does not say what it takes
        return False


class Turn:
    """What the handlers of all namespaces share, so that one is called after the other."""

    def __init__(self) -> None:
        self.thread = HandlerThread()
        self.lock = asyncio.Lock()


class EventHandlers:
    """Calls handlers with what becomes durable in one namespace."""

    def __init__(
        self, feed: Feed, handlers: list[Handler], turn: Turn, namespace: str = DEFAULT
    ) -> None:
        """Begin after the log's present end."""
        self._feed = feed
        self._handlers = [
            partial(handler, namespace=namespace) if takes_namespace(handler) else handler
            for handler in handlers
            if namespace == DEFAULT or takes_namespace(handler)
        ]
        self._namespace = namespace
        self._after = feed.tail.last
        self._news = asyncio.Event()
        self._turn = turn
        self._rate = LogRate(LINES_MAX, LINES_SPAN_S)
        feed.on_commit(self._committed)

    def _committed(self, seq: int) -> None:
        del seq
        self._news.set()

    async def run(self) -> None:
        """Call the handlers until cancelled, whatever happens; what fails is tried again."""
        with self._feed.tail.reading():
            while True:
                try:
                    await self._next()
                except Exception as error:  # noqa: BLE001 - whatever it was: the next may do well
                    self._rate.warn(
                        logger,
                        "the event handlers wait after %d of %s: %s: %s",
                        self._after,
                        self._namespace,
                        type(error).__name__,
                        error,
                    )
                    await asyncio.sleep(UNREADABLE_S)

    async def _next(self) -> None:
        """Call the handlers with some of what is durable and new to them, or wait for it."""
        self._news.clear()
        page, _ = await self._feed.entries(self._after)
        if not page:
            await self._news.wait()
        for entry in page:
            record = decode(entry.body)
            self._after = entry.seq
            async with self._turn.lock:
                await self._tell(record)
        await asyncio.sleep(0)

    async def _tell(self, record: Record[Event]) -> None:
        for handler in self._handlers:
            try:
                if inspect.iscoroutinefunction(handler):
                    await _guarded(handler(record))
                else:
                    waiting = await self._turn.thread.call(partial(handler, record))
                    if inspect.isawaitable(waiting):
                        await _guarded(waiting)
            except HandlerFailed:
                logger.exception("an event handler failed on seq %d; it goes on", record.seq)


async def _guarded(waiting: Awaitable[None]) -> None:
    """Await a handler; only our own cancellation passes. Raises HandlerFailed for all else."""
    task = asyncio.current_task()
    try:
        await waiting
    except BaseException as error:
        if task is not None and task.cancelling():
            raise
        raise HandlerFailed from error

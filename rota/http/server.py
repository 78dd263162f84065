"""A whole server: log, shard, HTTP, signals, reload; started and stopped in order.

Stopping (SIGTERM, SIGINT): the door closes, nothing new is dispatched, running attempts get the
grace period, what is left is recorded and resumes after the next start, then the log is closed.
SIGHUP and a changed file reload the limits; a bad file keeps the old ones and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from aiohttp import web
from watchfiles import awatch

from rota.actors.host import AsyncioHost, ThreadLine
from rota.actors.system import Shard
from rota.actors.timekeeper import LOOK_S
from rota.clock import SystemClock
from rota.errors import ConfigError, RotaError
from rota.eventlog.lmdb_store import LmdbLog
from rota.executors.callback import CallbackSender
from rota.executors.courier import HttpCourier
from rota.executors.guard import CallbackGuard
from rota.executors.runner import AsyncRunner, build_executors
from rota.http.app import App
from rota.http.bridge import Bridge
from rota.http.callbacks import renderers
from rota.http.handlers import EventHandlers, load_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from rota.clock import Clock
    from rota.config import Settings
    from rota.domain.task import Task
    from rota.errors import LogError
    from rota.http.handlers import Handler

logger = logging.getLogger("rota.server")

SWITCH_INTERVAL_S = 0.0005
"""How long the loop may keep the interpreter from the committer; see benchmarks/README.md."""
GC_THRESHOLDS = (50_000, 20, 100)
BACKLOG = 4096
"""Connections the kernel holds for us; one it has no room for is tried again a second later."""
WATCH_STEP_MS = 1000
"""How often the watcher's thread looks whether the kernel has told it of a change."""


def check_exposed(settings: Settings) -> None:
    """Refuse to listen beyond loopback without tokens. Raises ConfigError."""
    for problem in exposures(settings):
        raise problem


def exposures(settings: Settings) -> Iterator[ConfigError]:
    """Say what lets in whom it should not."""
    server = settings.server
    try:
        is_local = ipaddress.ip_address(server.host).is_loopback
    except ValueError:
        is_local = server.host == "localhost"
    if not is_local and not server.tokens:
        msg = f"listening on {server.host} would let anybody in"
        yield ConfigError(msg, hint='set [server.tokens], such as ops = "a long secret"')
    for name, token in server.tokens.items():
        if len(token) < 16:
            msg = f"server.tokens.{name} is shorter than 16 characters"
            yield ConfigError(msg, hint="`openssl rand -hex 24` makes a good one")


class Server:
    """One process: a shard and its HTTP surface."""

    def __init__(
        self, settings: Settings, config_path: Path | None = None, clock: Clock | None = None
    ) -> None:
        """Take the settings; nothing is opened yet. Raises ConfigError."""
        check_exposed(settings)
        self.settings = settings
        self.config_path = config_path
        self.port = settings.server.port
        self._clock = clock
        self.failure: LogError | None = None
        self._handlers = [load_handler(path) for path in settings.server.on_event]
        self._stop = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()

    def on_event(self, handler: Handler) -> None:
        """Have a function called with every durable fact from the start on; call it before."""
        self._handlers.append(handler)

    async def start(self, progress: Callable[[int], None] | None = None) -> None:
        """Open the log, fold it, start the actors, then listen. Raises a RotaError or OSError."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        listener = await self._bind()
        try:
            await self._open(progress)
        except BaseException:
            listener.close()
            raise
        self._http = web.ServerRunner(self.app.listener(), shutdown_timeout=2.0)
        await self._http.setup()
        self._site = web.SockSite(self._http, listener, backlog=BACKLOG)
        await self._site.start()
        self.port = listener.getsockname()[1]
        self._run_beside(self._look_at_clock())
        if self._handlers:
            self._run_beside(EventHandlers(self.shard, self._handlers).run())
        if self.config_path is not None:
            self._run_beside(self._watch(self.config_path))

    async def _bind(self) -> socket.socket:
        """Take the address first: who cannot listen must not touch the log."""
        server = self.settings.server
        found = await asyncio.get_running_loop().getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, proto, _, address = found[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    async def _open(self, progress: Callable[[int], None] | None) -> None:
        """Open the log, fold it and start the actors."""
        s = self.settings
        guard = CallbackGuard(s.webhooks.allow_hosts)
        clock = self._clock or SystemClock()
        sender = CallbackSender(
            guard,
            secrets=s.webhooks.secrets,
            timeout_s=s.webhooks.timeout_ms / 1000,
            clock=clock,
        )
        log = LmdbLog(
            s.server.data_dir,
            map_bytes=s.server.map_bytes,
            allow_network_fs=s.server.allow_network_fs,
        )
        self._guard = guard
        self._runner = AsyncRunner(build_executors(s))
        self._courier = HttpCourier(sender, renderers(self._find_task))
        self.shard = Shard(
            log,
            AsyncioHost(clock),
            limits=s.limits(),
            start_paused=s.scheduler.start_paused,
            line=ThreadLine,
            runner=self._runner,
            courier=self._courier,
            tries_max=s.webhooks.attempts,
            deliveries_max=s.webhooks.parallel,
            deliveries_per_host=s.webhooks.per_host,
            snapshot_every=s.server.snapshot_every_events,
            on_fatal=self._fatal,
        )
        self.shard.failover.folded = gc.freeze
        gc.disable()
        try:
            self.shard.start(progress)
        except RotaError:
            log.close()
            raise
        finally:
            gc.freeze()  # what was folded stays; the collector need not walk it
            gc.enable()
        gc.set_threshold(*GC_THRESHOLDS)
        self.app = App(Bridge(self.shard, s, guard), s, self.config_path)

    async def run(
        self,
        ready: Callable[[], None] | None = None,
        stopping: Callable[[], None] | None = None,
    ) -> None:
        """Serve until a signal says stop; `stopping` is told of it before anything is stopped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        if ready is not None:
            ready()
        await self._stop.wait()
        if stopping is not None:
            stopping()
        await self.stop(self.settings.server.grace_s)

    async def stop(self, grace_s: float) -> None:
        """Stop in order; what is left is recorded, and resumes after the next start."""
        beside = list(self._background)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await self._site.stop()
        self.shard.drain()
        self.app.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self.shard.running() and loop.time() < end and self.failure is None:  # noqa: ASYNC110 - once
            await asyncio.sleep(0.02)
        await self._http.cleanup()
        settled = asyncio.Event()
        self.shard.finish(settled.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(settled.wait(), 30)
        await self._runner.close()
        await self._courier.close()
        self.shard.close()
        self._guard.close()

    async def _look_at_clock(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self.shard.timekeeper.look()
            except Exception:
                logger.exception("a step of the clock was not taken over; it is tried again")

    def _find_task(self, task_id: str) -> Task | None:
        return self.shard.archive.task(task_id)

    def _fatal(self, error: LogError) -> None:
        self.failure = error
        self._stop.set()

    def _reload_soon(self) -> None:
        self._run_beside(self._reload("sighup"))

    def _run_beside(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _reload(self, source: str) -> None:
        try:
            changed = await self.app.reload(source)
        except RotaError as error:
            logger.error("the configuration was not reloaded, the old one stays: %s", error)  # noqa: TRY400
        except Exception:
            logger.exception("the configuration was not reloaded, the old one stays")
        else:
            what = ", ".join(changed) or "no limit changed"
            logger.warning("reloaded %s: %s", self.config_path, what)

    async def _watch(self, path: Path) -> None:
        """Reload when the file changes, is replaced (as editors do) or its link is."""
        path, real = path.absolute(), path.resolve()  # noqa: ASYNC240 - once, at start
        names = (f"/{path.name}", f"/{real.name}", "/..data")
        async for _ in awatch(
            *{path.parent, real.parent},
            recursive=False,
            watch_filter=lambda _, changed: changed.endswith(names),
            step=WATCH_STEP_MS,
            debounce=WATCH_STEP_MS,
        ):
            await self._reload("file")

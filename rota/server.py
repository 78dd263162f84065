"""A whole server: namespaces, HTTP, signals, reload; started and stopped in order.

Stopping (SIGTERM, SIGINT): the door closes, nothing new is dispatched, running attempts get the
grace period, what is left is recorded and resumes after the next start, then the log is closed.
SIGHUP and a changed file reload the limits; a bad file keeps the old ones and says so.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from watchfiles import awatch

from rota.actors.timekeeper import LOOK_S
from rota.clock import SystemClock
from rota.errors import ConfigError, RotaError
from rota.executors.guard import CallbackGuard
from rota.http.access import is_loopback
from rota.http.app import App
from rota.http.event_hooks import EventHandlers, Turn, load_handler
from rota.http.listener import Site
from rota.http.tls import Tls, TlsSite
from rota.namespaces import OpenNamespace, has_log
from rota.presets import conflicts
from rota.sections import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from rota.actors.system import Shard
    from rota.clock import Clock
    from rota.config import Settings
    from rota.errors import LogError
    from rota.http.event_hooks import Handler

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
    """Say what lets in whom it should not; tokens in a log that is there are looked at later."""
    server, tokens = settings.server, _tokens(settings)
    if not is_loopback(server.host) and not tokens and not _has_log(settings):
        yield _exposed(settings)
    for name, token in tokens.items():
        if len(token) < 16:
            msg = f"{name} is shorter than 16 characters"
            yield ConfigError(msg, hint="`openssl rand -hex 24` makes a good one")


def _tokens(settings: Settings) -> dict[str, str]:
    """Give the tokens of the configuration, by where they are in it."""
    tokens = {f"server.tokens.{name}": token for name, token in settings.server.tokens.items()}
    for namespace, own in settings.namespaces.items():
        where = f"namespaces.{namespace}.tokens"
        tokens |= {f"{where}.{name}": token for name, token in own.tokens.items()}
    return tokens


def _has_log(settings: Settings) -> bool:
    return any(has_log(settings.of_namespace(name)) for name in _names(settings))


def _names(settings: Settings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((DEFAULT, *settings.namespaces)))


def _exposed(settings: Settings) -> ConfigError:
    server = settings.server
    make = f"rota token create --data-dir {server.data_dir} --name ops --role admin"
    return ConfigError(
        f"listening on {server.host} would let anybody in: there are no tokens",
        hint=f'`{make}` makes one; or set [server.tokens], such as ops = "a long secret"',
    )


def shared_folders(settings: Settings) -> Iterator[ConfigError]:
    """Find the namespaces whose folder is another's or lies inside of it.

    Those in `namespaces/` of the default's are where they belong.
    """
    folders: dict[str, Path] = {}
    for name in _names(settings):
        folder = Path(settings.of_namespace(name).server.data_dir).resolve()
        for other, taken in folders.items():
            if folder == taken:
                where = "is that"
            elif folder.is_relative_to(taken):
                if folder.parent == folders[DEFAULT] / "namespaces":
                    continue
                where = "lies inside that"
            elif taken.is_relative_to(folder):
                where = "has inside it that"
            else:
                continue
            msg = f"namespace {name}: its folder {where} of {other}: {folder}"
            yield ConfigError(msg, hint=f"give namespaces.{name}.dataDir another one")
        folders[name] = folder


class Server:
    """One process: namespaces, each with a shard, under one HTTP surface."""

    shard: Shard
    """That of the default namespace."""

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
        tls = settings.server.tls
        self._tls = Tls(tls) if tls is not None else None
        self._handlers = [load_handler(path) for path in settings.server.on_event]
        for key, before, later in conflicts(settings.presets):
            logger.warning("presets %s and %s both set %s: %s wins", before, later, key, later)
        self._stop = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._namespaces: list[OpenNamespace] = []

    def on_event(self, handler: Handler) -> None:
        """Have a function called with every durable fact from the start on; call it before."""
        self._handlers.append(handler)

    async def start(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Open the logs, fold them, start the actors, then listen. Raises a RotaError or OSError.

        `progress` is told of each log how far it is folded, and how far it goes.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        listener = await self._bind()
        try:
            await self._open(progress)
        except BaseException:
            listener.close()
            raise
        self._http = web.ServerRunner(self.app.listener(), shutdown_timeout=2.0)
        await self._http.setup()
        self._site = self._site_on(listener)
        await self._site.start()
        self.port = listener.getsockname()[1]
        self._run_beside(self._look_at_clock())
        if self._handlers:
            turn = Turn()
            for each in self.app.namespaces:
                handlers = EventHandlers(each.feed, self._handlers, turn, each.name)
                self._run_beside(handlers.run())
        if self.config_path is not None:
            self._run_beside(self._watch(self.config_path))

    def _site_on(self, listener: socket.socket) -> Site:
        if self._tls is None:
            return Site(self._http, listener, backlog=BACKLOG)
        return TlsSite(self._http, listener, ssl_context=self._tls.context, backlog=BACKLOG)

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

    async def _open(self, progress: Callable[[int, int], None] | None) -> None:
        """Open the logs, fold them and start the actors; all of them, or none."""
        self._guard = CallbackGuard(self.settings.webhooks.allow_hosts)
        clock = self._clock or SystemClock()
        gc.disable()
        try:
            for name, settings in self._apart():
                self._namespaces.append(OpenNamespace(name, settings))
            for namespace in self._namespaces:
                namespace.fold(clock, self._guard, lost=self._lost, progress=progress)
            self._check_guarded()
            for namespace in self._namespaces:
                namespace.start()
        except BaseException:
            await self._close()
            raise
        finally:
            gc.freeze()  # what was folded stays; the collector need not walk it
            gc.enable()
        gc.set_threshold(*GC_THRESHOLDS)
        self.shard = self._namespaces[0].shard
        bridges = {each.name: each.bridge for each in self._namespaces}
        self.app = App(bridges, self.settings, self.config_path)
        for namespace in self._namespaces:
            for name in sorted(self.app.access.names & namespace.shard.state.tokens.by_name.keys()):
                said = (
                    "token %s is in the configuration and in the log: what is by it may be either's"
                )
                logger.warning(said, name)

    def _check_guarded(self) -> None:
        """Refuse to listen beyond loopback if nobody has a token that is good. Raises ConfigError.

        Nothing has begun yet: no task was put back, and none is given to anybody.
        """
        if is_loopback(self.settings.server.host) or _tokens(self.settings):
            return
        if not any(each.has_token for each in self._namespaces):
            raise _exposed(self.settings)

    def _apart(self) -> Iterator[tuple[str, Settings]]:
        """Give the namespaces and their settings. Raises ConfigError if two share a folder."""
        for problem in shared_folders(self.settings):
            raise problem
        for name in _names(self.settings):
            yield name, self.settings.of_namespace(name)

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
        for namespace in self._namespaces:
            namespace.shard.drain()
        self.app.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self.running() and loop.time() < end and self.failure is None:  # noqa: ASYNC110 - once
            await asyncio.sleep(0.02)
        await self._site.stop()  # until now whoever connects is told that the server stops
        await self._http.cleanup()
        await self._close()

    async def _close(self) -> None:
        """Have every namespace record what is left, and let go of its log."""
        await asyncio.gather(*(each.finish() for each in self._namespaces))
        for namespace in self._namespaces:
            await namespace.close()
        self._guard.close()

    def running(self) -> int:
        return sum(each.shard.running() for each in self._namespaces)

    def namespaces(self) -> dict[str, Shard]:
        """Give the shards, by the names of their namespaces."""
        return {each.name: each.shard for each in self._namespaces}

    async def _look_at_clock(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                for namespace in self._namespaces:
                    namespace.shard.timekeeper.look()
            except Exception:
                logger.exception("a step of the clock was not taken over; it is tried again")

    def _lost(self, namespace: OpenNamespace) -> None:
        """Go on with the others, while there are any; the last one ends the server."""
        if all(each.failure is not None for each in self._namespaces):
            self.failure = namespace.failure
            self._stop.set()
        else:
            logger.critical(
                "namespace %s is closed, the others go on: %s", namespace.name, namespace.failure
            )

    def _reload_soon(self) -> None:
        self._run_beside(self._reload("sighup"))
        if self._tls is not None:
            self._run_beside(self._reload_certificate(self._tls))

    async def _reload_certificate(self, tls: Tls) -> None:
        try:
            await tls.reload()
        except ConfigError as error:
            logger.error("the certificate was not reloaded, the old one stays: %s", error)  # noqa: TRY400
        else:
            logger.warning("reloaded the certificate; new connections are served with it")

    def _run_beside(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _reload(self, source: str) -> None:
        try:
            done = await self.app.reloading.reload(source)
        except RotaError as error:
            logger.error("the configuration was not reloaded, the old one stays: %s", error)  # noqa: TRY400
        except Exception:
            logger.exception("the configuration was not reloaded, the old one stays")
        else:
            changed = [
                name if namespace == DEFAULT else f"{name} of {namespace}"
                for namespace, names in done.changed.items()
                for name in names
            ]
            parts = [", ".join(changed)] if changed else []
            if done.rules:
                parts.append("the rules of types changed")
            what = "; ".join(parts) or "no limit changed"
            logger.warning("reloaded %s: %s", self.config_path, what)
            for namespace, reason in done.waiting.items():
                said = "namespace %s takes that over when its log is back: %s"
                logger.warning(said, namespace, reason)

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

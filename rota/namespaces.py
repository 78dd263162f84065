"""A namespace that is open: a log, the shard over it, and what acts for it outside.

Opens, starts and ends one; knows nothing of the others, so that one whose disk fails takes nobody
with it. What it sends carries its name, unless it is the default.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path
from typing import TYPE_CHECKING

from rota.actors.host import AsyncioHost, ThreadLine
from rota.actors.system import Shard
from rota.errors import RotaError
from rota.eventlog.lmdb_store import LmdbLog
from rota.executors.callback import CallbackSender
from rota.executors.runner import AsyncRunner, build_executors
from rota.executors.wards.leftovers import kill_leftovers
from rota.http.bridge import Bridge
from rota.http.callbacks import HttpCourier
from rota.http.namespaces import HEADER
from rota.sections import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.clock import Clock
    from rota.config import Settings
    from rota.errors import LogError
    from rota.executors.guard import CallbackGuard

SETTLED_S = 30.0
LOG_FILE = "data.mdb"


def has_log(settings: Settings) -> bool:
    """Whether there is a log already in a namespace's folder."""
    return (Path(settings.server.data_dir) / LOG_FILE).exists()


class OpenNamespace:
    """One of a server's namespaces."""

    shard: Shard
    bridge: Bridge
    is_started = False
    has_token = False
    """Whether its log has a token that is good, when it was folded."""
    failure: LogError | None = None
    """Why it is closed for good, if it is."""

    def __init__(self, name: str, settings: Settings) -> None:
        """Open the log. Raises a LogError."""
        self.name = name
        self.settings = settings
        server = settings.server
        with self._named():
            self.log = LmdbLog(
                server.data_dir,
                map_bytes=server.map_bytes,
                allow_network_fs=server.allow_network_fs,
            )

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Have an error say which namespace it is of."""
        try:
            yield
        except RotaError as error:
            if self.name != DEFAULT:
                error.message = f"namespace {self.name}: {error.message}"
            raise

    def fold(
        self,
        clock: Clock,
        guard: CallbackGuard,
        *,
        lost: Callable[[OpenNamespace], None],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fold the log; nothing begins before `start`. Raises a RotaError."""
        s = self.settings
        more = {} if self.name == DEFAULT else {str(HEADER): self.name}
        sender = CallbackSender(
            guard,
            secrets=s.webhooks.secrets,
            timeout_s=s.webhooks.timeout_ms / 1000,
            clock=clock,
            namespace="" if self.name == DEFAULT else self.name,
        )
        self._runner = AsyncRunner(build_executors(s, more))
        self._courier = HttpCourier(sender, more)

        def give_up(error: LogError) -> None:
            self.failure = error
            lost(self)

        self.shard = Shard(
            self.log,
            AsyncioHost(clock),
            limits=s.limits(),
            rules=s.rules(),
            start_paused=s.scheduler.start_paused,
            line=ThreadLine,
            runner=self._runner,
            courier=self._courier,
            tries_max=s.webhooks.attempts,
            deliveries_max=s.webhooks.parallel,
            deliveries_per_host=s.webhooks.per_host,
            snapshot_every=s.server.snapshot_every_events,
            on_fatal=give_up,
            name="" if self.name == DEFAULT else self.name,
        )
        self.shard.failover.folded = gc.freeze
        with self._named():
            total = self.log.head().seq
            self.bridge = Bridge(self.shard, s, guard)
            state = self.shard.fold(None if progress is None else lambda seq: progress(seq, total))
        now, tokens = clock.now_us(), state.tokens.by_name.values()
        self.has_token = any(token.is_live(now) for token in tokens)

    def start(self) -> None:
        """Start the actors over what was folded. Raises a RotaError."""
        kill_leftovers(Path(self.settings.server.data_dir))
        with self._named():
            self.shard.start()
        self.is_started = True

    async def finish(self) -> None:
        """Record what is left, and wait for that to be durable; but not for ever."""
        if not self.is_started:
            return
        settled = asyncio.Event()
        self.shard.finish(settled.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(settled.wait(), SETTLED_S)

    async def close(self) -> None:
        """Cut off what still goes out, take a last snapshot, and let go of the log."""
        if not self.is_started:
            self.log.close()
            return
        await self._runner.close()
        await self._courier.close()
        self.shard.close()

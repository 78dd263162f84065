"""`Worker`: takes tasks from a server and runs your functions on them.

    worker = Worker(concurrency=8)

    @worker.task("generate_fitment", agent="FitmentAgent")
    async def generate_fitment(ctx: Context, part: str) -> dict[str, str]: ...

    worker.main()

It holds at most `concurrency` + `prefetch` tasks, keeps their leases, and tells what became of
each. On SIGTERM it takes nothing more, finishes what it can within `grace_s`, and gives back the
rest. What it has not told when it dies is done again by another: the promise is at least once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rota import logs
from rota.client.client import AsyncJsonClient
from rota.client.context import Context
from rota.client.functions import Function
from rota.client.keeping import Held, Keeper
from rota.client.threads import Threads
from rota.client.trade import Poller, Trade, named, warn_of, wish_of
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.client.fields import DeclaredType, RetryFields
    from rota.client.steps import Json

F = TypeVar("F", bound="Callable[..., Any]")
LEASE_S, GRACE_S = 30.0, 20.0
CANCEL_S, FLUSH_S = 1.0, 5.0
"""How long functions may take to hear a cancel, and outcomes to be told, after the grace."""
TIMEOUT_S = 15.0
EXIT_AT_ONCE = 130
SIGNALS = (signal.SIGTERM, signal.SIGINT)
log = logging.getLogger("rota.worker")


class Worker:
    """Functions, and how many tasks they get at once."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        namespace: str | None = None,
        concurrency: int = 8,
        prefetch: int = 0,
        labels: Iterable[str] = (),
        worker_id: str | None = None,
        lease_s: float = LEASE_S,
        grace_s: float = GRACE_S,
        ca_file: str | None = None,
    ) -> None:
        """Say where the server is (as `RotaClient` does) and how much is taken at once.

        `prefetch` tasks wait here for a free place: faster for short tasks, unfair for long ones.
        `labels` say which tasks' `requires` it can serve. Its id is hostname-pid, unless given.
        """
        if concurrency < 1 or prefetch < 0:
            msg = "concurrency must be at least 1, and prefetch at least 0"
            raise ConfigError(msg)
        self.url, self.token, self.namespace, self.ca_file = url, token, namespace, ca_file
        self.concurrency, self.prefetch = concurrency, prefetch
        self.labels = list(labels)
        self.worker_id = worker_id or f"{socket.gethostname()}-{os.getpid()}"
        self.lease_s, self.grace_s = lease_s, grace_s
        self.functions: dict[tuple[str | None, str], Function] = {}
        self.declared: list[DeclaredType] = []
        """What the server is told of types, as `declare_types` of the client takes it."""
        self._waiting: deque[Held] = deque()
        self._running: set[Held] = set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._all_done = asyncio.Event()

    def task(
        self,
        type: str,  # noqa: A002 - its name on the wire
        *,
        agent: str | Iterable[str] | None = None,
        retry: RetryFields | None = None,
        timeout: float | None = None,
        concurrency: int | None = None,
    ) -> Callable[[F], F]:
        """Have a function called for the tasks of a type: of one agent, of several, or of all.

        `retry`, `timeout` (seconds of an attempt) and `concurrency` (tasks in flight, over all
        workers; of each agent if some are named) are declared to the server when the worker starts.
        They hold for tasks submitted from then on that say nothing else, where the configuration
        does not; a retry without fields has four attempts.
        """
        agents = [agent] if agent is None or isinstance(agent, str) else list(agent)
        declares: DeclaredType = {"action": type}
        if retry is not None:
            declares["retry"] = retry
        if timeout is not None:
            declares["timeout_s"] = timeout
        if concurrency is not None:
            declares["max_concurrent"] = concurrency

        def register(function: F) -> F:
            served = Function(function, sys._getframe(1).f_locals)  # noqa: SLF001
            served.check_declares(retry=retry, timeout=timeout, concurrency=concurrency)
            for each in agents:
                if (each, type) in self.functions:
                    whose = "" if each is None else f" of {each}"
                    msg = f"two functions for {type}{whose}: {self.functions[each, type].name}"
                    raise ConfigError(f"{msg} and {served.name}")
                self.functions[each, type] = served
            if len(declares) > 1:
                named = [each for each in agents if each is not None]
                self.declared.append({**declares, "agents": named} if named else declares)
            return function

        return register

    def function_for(self, agent: str, type: str) -> Function | None:  # noqa: A002
        """Find who serves a task."""
        return self.functions.get((agent, type)) or self.functions.get((None, type))

    def stop(self) -> None:
        """Take nothing more, finish what can be, and end; a second time: end at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def main(self) -> None:
        """Run until a signal says so, and leave the process: 0, or 130 after a second signal."""
        if not logging.getLogger().handlers:
            logs.set_up("info", as_json=False)
        self.run_sync()
        sys.exit(EXIT_AT_ONCE if self._hurry.is_set() else 0)

    def run_sync(self) -> None:
        """Run until a signal says so."""
        asyncio.run(self.run())

    async def run(self, *, signals: bool = True) -> None:
        """Run until `stop`, or a signal if they are to be handled. Raises what is refused."""
        if not self.functions:
            msg = "the worker has no functions"
            raise ConfigError(msg, hint='write @worker.task("some_type") above one')
        self._stop, self._hurry, self._all_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._threads = Threads(f"rota-{self.worker_id}")
        where = {"token": self.token, "namespace": self.namespace, "ca_file": self.ca_file}
        client = AsyncJsonClient(self.url, timeout_s=TIMEOUT_S, retries=0, **where)
        poller = Poller(self.url, timeout_s=TIMEOUT_S, retries=0, **where)
        self._trade = Trade(
            client, poller, self.worker_id, self._wish(), self._room, self._begin_all, self.declared
        )
        self._keeper = Keeper(client, self.lease_s, self._drop)
        with ExitStack() as undo:
            if signals:
                undo.enter_context(_Signals(self.stop))
            try:
                await self._work(client)
            finally:
                self._threads.close()
                await client.close()
                await poller.close()

    async def _work(self, client: AsyncJsonClient) -> None:
        log.info("%s takes %s from %s", self.worker_id, self._served(), client.url)
        leasing = asyncio.create_task(self._trade.lease())
        settling = asyncio.create_task(self._trade.settle())
        keeping = asyncio.create_task(self._keeper.run())
        listening = asyncio.create_task(self._keeper.listen())
        stopped = asyncio.create_task(self._stop.wait())
        parts = {leasing, settling, keeping, listening, stopped}
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            self._trade.shut()
            leasing.cancel()
            broken = [part for part in done - {stopped} if part.exception() is not None]
            if not broken:
                await self._wind_down(settling)
            for part in broken:
                part.result()
        finally:
            for held in self._running:
                if held.run is not None:
                    held.run.cancel()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    def _wish(self) -> Json:
        return wish_of(self.functions, self.labels, self.lease_s, start=self.prefetch == 0)

    def _served(self) -> str:
        names = sorted({name for _, name in self.functions})
        return f"{', '.join(names)} ({self.concurrency} at once)"

    # -- attempts ----------------------------------------------------------------------------

    def _room(self) -> int:
        return self.concurrency + self.prefetch - len(self._running) - len(self._waiting)

    def _begin_all(self, leases: list[Json]) -> None:
        """Take what came; give it back if it came too late."""
        for lease in leases:
            task = lease["task"]
            function = self.function_for(task.get("agentId", ""), task["action"])
            if function is None or self._stop.is_set():
                self._trade.put(lease, {"outcome": "release"})
                continue
            lease_id = lease["leaseId"]
            ctx = Context(lease, loop=asyncio.get_running_loop(), on_note=self._noting(lease_id))
            held = Held(lease, ctx, function)
            self._keeper.add(held)
            self._waiting.append(held)
        self._begin_next()

    def _noting(self, lease_id: str) -> Callable[[], None]:
        return lambda: self._keeper.note(lease_id)

    def _begin_next(self) -> None:
        while self._waiting and len(self._running) < self.concurrency:
            held = self._waiting.popleft()
            self._running.add(held)
            held.run = asyncio.create_task(self._attempt(held))

    async def _attempt(self, held: Held) -> None:
        """Run one attempt, and have its outcome told; what comes after a stop is given back."""
        outcome: dict[str, Any] = {"outcome": "release"}
        try:
            came_of_it = await held.function.perform(held.ctx, self._threads)
            if not held.ctx.cancelled:  # else it may be half a result, or a failure to stop
                outcome = came_of_it
                if outcome["outcome"] == "fail":
                    warn_of(held.lease, outcome)
            await self._keeper.flush(held)
        except asyncio.CancelledError:
            pass  # dropped, or given back; an outcome that is there is told anyhow
        finally:
            self._keeper.remove(held)
            self._running.discard(held)
            if not held.is_lost:
                self._trade.put(held.lease, outcome)
            else:
                log.info("dropped what came of %s", held.ctx.task_id)
            self._begin_next()
            self._trade.look()
            if not self._running:
                self._all_done.set()

    def _drop(self, held: Held, reason: str, said: Json) -> None:
        """Stop an attempt that is not wanted any more, or has failed, as the server says."""
        if "code" in said:
            warn_of(held.lease, said)
        else:
            log.warning("stopping %s: %s", named(held.lease), reason)
        if held in self._waiting:
            self._waiting.remove(held)
            self._keeper.remove(held)
            if not held.is_lost:
                self._trade.put(held.lease, {"outcome": "release"})
            self._trade.look()
            return
        self._interrupt(held)

    def _interrupt(self, held: Held) -> None:
        held.ctx.cancel()
        if held.run is not None and held.function.is_async:
            held.run.cancel()

    # -- the end -----------------------------------------------------------------------------

    async def _wind_down(self, settling: asyncio.Task[None]) -> None:
        """Finish what can be finished in time, give back the rest, tell it all."""
        log.info("stopping: %d running, %d given back", len(self._running), len(self._waiting))
        while self._waiting:
            held = self._waiting.popleft()
            self._keeper.remove(held)
            self._trade.put(held.lease, {"outcome": "release"})
        self._all_done.clear()
        if self._running:
            await self._first(self.grace_s, self._all_done.wait(), self._hurry.wait())
        for held in list(self._running):
            log.warning("%s is not done; given back", held.ctx.task_id)
            held.ctx.cancel()
            if held.run is not None:
                held.run.cancel()
        if runs := {held.run for held in self._running if held.run is not None}:
            await asyncio.wait(runs, timeout=CANCEL_S)
        for held in self._running:  # who does not even listen to a cancel
            held.is_lost = True
            self._trade.put(held.lease, {"outcome": "release"})
        await self._first(FLUSH_S, self._trade.drained(), self._hurry.wait(), settling)
        if self._trade.undelivered:
            lost = self._trade.undelivered
            log.error("%d outcomes could not be told; these tasks will be tried again", lost)

    async def _first(self, within_s: float, *ends: Any) -> None:
        """Wait for the first of several ends, and no longer than that."""
        waits = {asyncio.ensure_future(end) for end in ends}
        mine = {wait for wait in waits if wait not in ends}
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in mine:
                wait.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*mine, return_exceptions=True)


class _Signals:
    """Calls somebody on SIGTERM and SIGINT, as long as it is entered; on the main thread only."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            try:
                before = signal.getsignal(each)
                loop.add_signal_handler(each, self._on_signal)
            except (ValueError, RuntimeError, NotImplementedError):  # not the main thread
                return
            self._before[each] = before

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for each, before in self._before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, before)

"""Keeping leases: one task beats for all that a worker holds, and tells what their attempts say.

Beside it one heartbeat waits at the server, for all that is held: what is to be stopped is told
there at once. It waits once something has been held for a moment, so short tasks cost no request.

A lease is extended about every third of its length, those of short attempts never. Log lines and
progress go out as soon as they are there, together with an extension; what comes meanwhile goes
with the next. Whoever is cancelled or has lost its lease is told by `on_lost`; an attempt that has
ended while its heartbeat was under way has lost nothing. A server that does not answer takes
nothing from anybody: after a restart it gives every lease its full length.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from rota.client.steps import is_passing
from rota.client.trade import away_pauses
from rota.clock import monotonic_s
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.client.client import AsyncJsonClient
    from rota.client.context import Context
    from rota.client.functions import Function
    from rota.client.steps import Json

BEATS_AT_ONCE = 16
LISTEN_S, LISTEN_AFTER_S = 20.0, 0.05
"""How long one heartbeat waits; and how long a task is held before one does."""
HOLDS_MAX = 1000
LOST = ("stale_attempt", "not_found")
log = logging.getLogger("rota.worker")


class Held:
    """A task that the worker has."""

    __slots__ = (
        "ctx",
        "extended_at",
        "function",
        "is_beating",
        "is_lost",
        "is_stopping",
        "lease",
        "run",
        "taken_at",
    )

    def __init__(self, lease: Json, ctx: Context, function: Function) -> None:
        self.lease = lease
        self.ctx = ctx
        self.function = function
        self.taken_at = self.extended_at = monotonic_s()
        self.is_stopping = False
        self.is_lost = False
        """Whether the server takes nothing of it any more. What a force-stop cuts off is stopping,
        and not lost: the server waits to hear that it has stopped."""
        self.is_beating = asyncio.Lock()
        self.run: asyncio.Task[None] | None = None


class Keeper:
    """Extends the leases that a worker holds."""

    def __init__(
        self, client: AsyncJsonClient, lease_s: float, on_lost: Callable[[Held, str, Json], None]
    ) -> None:
        self._client = client
        self._lease_s = lease_s
        self._on_lost = on_lost
        self._held: dict[str, Held] = {}
        self._noted: set[str] = set()
        self._woken = asyncio.Event()
        self._has_more = asyncio.Event()
        self._is_idle = True

    @property
    def held(self) -> Iterable[Held]:
        return list(self._held.values())

    def add(self, held: Held) -> None:
        self._held[held.lease["leaseId"]] = held
        self._has_more.set()
        if self._is_idle:
            self._woken.set()

    def remove(self, held: Held) -> None:
        self._held.pop(held.lease["leaseId"], None)

    def _holds(self, held: Held) -> bool:
        return self._held.get(held.lease["leaseId"]) is held

    def note(self, lease_id: str) -> None:
        """Have somebody's lines and progress told."""
        self._noted.add(lease_id)
        self._woken.set()

    async def run(self) -> None:
        """Beat for ever."""
        sweep_s = self._lease_s / 6  # so that nobody waits for longer than a third
        sweep_at = monotonic_s() + sweep_s
        while True:
            self._is_idle = not self._held
            with suppress(TimeoutError):
                left = None if self._is_idle else max(sweep_at - monotonic_s(), 0.0)
                await asyncio.wait_for(self._woken.wait(), left)
            self._woken.clear()
            now = monotonic_s()
            if self._is_idle:
                sweep_at = now + sweep_s
            due = [held for each in self._noted if (held := self._held.get(each)) is not None]
            self._noted.clear()
            if now >= sweep_at:
                sweep_at = now + sweep_s
                due += [h for h in self._held.values() if now - h.extended_at >= sweep_s]
            if due:
                await self._beat_all(list(dict.fromkeys(due)))

    async def listen(self) -> None:
        """Have a heartbeat wait for what is to be stopped, for ever."""
        tries = away_pauses(self._lease_s)
        while True:
            self._has_more.clear()
            told = [held for held in self._held.values() if not held.is_stopping]
            if not told:
                await self._has_more.wait()
                continue
            now = monotonic_s()
            if (left_s := told[0].taken_at + LISTEN_AFTER_S - now) > 0:
                await asyncio.sleep(left_s)
                continue
            is_heard = await self._listen_for(told[0], told[1 : HOLDS_MAX + 1])
            if is_heard or monotonic_s() - now >= LISTEN_S / 2:
                tries = away_pauses(self._lease_s)
            else:  # the server is away, or cannot let it wait
                await asyncio.sleep(next(tries))

    async def _listen_for(self, held: Held, others: list[Held]) -> bool:
        """Have a heartbeat of one lease wait; say whether there was something to hear."""
        lease_id, token = held.lease["leaseId"], held.lease["token"]
        holds = [each.lease["leaseId"] for each in others]
        try:
            answer = await self._client.heartbeat(
                lease_id, token, lease_s=self._lease_s, wait_s=LISTEN_S, holds=holds
            )
        except RotaError as error:
            return error.code in LOST and self._failed(held, {}, error)
        stops = answer.get("stop", [])
        for each in [answer, *stops] if answer.get("cancelRequested") else stops:
            is_cancelled = each.get("state") in (None, "cancelled") or "expiresAt" in each
            reason = "it was cancelled" if is_cancelled else "the lease is over"
            self._stop(self._held.get(each["leaseId"]), each, reason)
        return bool(stops or answer.get("cancelRequested"))

    def _stop(self, held: Held | None, said: Json, reason: str = "it was cancelled") -> None:
        """Stop an attempt, which is lost unless the server waits to hear that it has stopped."""
        if held is None or held.is_lost:
            return
        held.is_lost = "expiresAt" not in said
        if not held.is_stopping:
            held.is_stopping = True
            self._on_lost(held, reason, said)

    async def _beat_all(self, due: list[Held]) -> None:
        places = asyncio.Semaphore(BEATS_AT_ONCE)

        async def one(held: Held) -> None:
            async with places:
                await self.beat(held)

        await asyncio.gather(*(one(held) for held in due))

    async def flush(self, held: Held) -> None:
        """Tell what an attempt has said, before it ends; however long the server is away."""
        tries = away_pauses(self._lease_s)
        while held.ctx.has_notes() and not held.is_lost:
            if not await self.beat(held):
                await asyncio.sleep(next(tries))

    async def beat(self, held: Held) -> bool:
        """Extend one lease, with what there is to tell; say whether the server answered."""
        async with held.is_beating:
            if held.is_lost or not self._holds(held):
                return True
            told = held.ctx.take_notes()
            lease_id, token = held.lease["leaseId"], held.lease["token"]
            try:
                answer = await self._client.heartbeat(
                    lease_id, token, lease_s=self._lease_s, **told
                )
            except RotaError as error:
                return self._failed(held, told, error)
            held.extended_at = monotonic_s()
            if answer.get("cancelRequested"):
                self._stop(self._held.get(lease_id), answer)
            return True

    def _failed(self, held: Held, told: Json, error: RotaError) -> bool:
        if not self._holds(held):
            return True
        if error.code in LOST:
            self._stop(held, {}, error.message)
        elif is_passing(error) or error.status >= 500:
            held.ctx.put_back(told)
            return False
        else:  # what it said is refused: too much of it, say
            log.warning("the log of %s does not take it: %s", held.ctx.task_id, error.message)
        return True

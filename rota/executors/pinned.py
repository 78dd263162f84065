"""Connections for callbacks: only to addresses that were judged for the attempt at hand.

An attempt says which addresses passed the guard just now (`pinned_to`). A new connection goes to
one of them, and its peer is looked at once more before the first byte is sent. A connection is
kept for a while after a good answer; another attempt at the same scheme, host and port gets it
only if its peer is among the addresses judged for that attempt, and hangs it up otherwise. What
is kept is bounded in number and in time.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from rota.errors import CallbackRefused
from rota.executors.connections import BoundedConnector
from rota.executors.guard import plain_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

KEPT_MAX = 128
"""So many connections at most wait to be used again; the oldest gives way."""
KEPT_S_MAX = 15.0


class Pin:
    """The addresses that one attempt may use, and what it used."""

    __slots__ = ("addresses", "checked", "is_kept", "wants_fresh")

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses
        self.checked = frozenset(plain_address(address) for address in addresses)
        self.is_kept = False
        self.wants_fresh = False

    def check(self, protocol: ResponseHandler) -> None:
        """Refuse a connection whose peer is not one of the addresses."""
        transport = protocol.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        if peer is None:
            msg = "the connection was lost at once"
            raise aiohttp.ClientConnectionError(msg)
        if plain_address(peer[0]) not in self.checked:
            msg = "the connection went to an address that was not checked"
            raise CallbackRefused(msg)

    def allows_kept(self, protocol: ResponseHandler | None) -> bool:
        """Whether a connection that was kept may be used again, by this attempt."""
        if protocol is None or protocol.should_close or self.wants_fresh:
            return False
        try:
            self.check(protocol)
        except (aiohttp.ClientConnectionError, CallbackRefused):
            return False
        return True


_PIN: ContextVar[Pin] = ContextVar("rota_callback_pin")


@contextmanager
def pinned_to(addresses: Sequence[str]) -> Iterator[Pin]:
    """Have what is sent in the block go to these addresses only."""
    pin = Pin(addresses)
    token = _PIN.set(pin)
    try:
        yield pin
    finally:
        _PIN.reset(token)


class PinnedResolver(AbstractResolver):
    """Answer every question with the addresses that were checked."""

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the interface has it
    ) -> list[ResolveResult]:
        """Give the checked addresses, whatever `host` would resolve to by now."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in _PIN.get().addresses
        ]

    async def close(self) -> None:
        """Hold nothing, release nothing."""


class PinnedConnector(BoundedConnector):
    """Connect to checked addresses only, and to each attempt's own."""

    def __init__(self) -> None:
        """Bound what is kept; what is in use is bounded by whoever sends."""
        super().__init__(
            resolver=PinnedResolver(), use_dns_cache=False, keepalive_timeout=KEPT_S_MAX, limit=0
        )

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the interface has it
    ) -> Connection:
        """Connect, and look who is at the other end before anything is sent."""
        pin = _PIN.get()
        while True:  # each turn hangs up one that was kept
            pin.is_kept = True
            connection = await super().connect(req, traces, timeout)
            if not pin.is_kept or pin.allows_kept(connection.protocol):
                return connection
            connection.close()

    async def _create_connection(self, *args: Any) -> ResponseHandler:
        """Make a connection, and refuse one to an address that was not checked."""
        pin = _PIN.get()
        pin.is_kept = False
        protocol = await super()._create_connection(*args)
        try:
            pin.check(protocol)
        except BaseException:
            protocol.close()
            raise
        return protocol

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        """Keep a connection for the next attempt; beyond the bound the oldest is hung up."""
        super()._release(key, protocol, should_close=should_close)
        if sum(map(len, self._conns.values())) > KEPT_MAX:
            oldest = next(iter(self._conns))
            self._conns[oldest].popleft()[0].close()
            if not self._conns[oldest]:
                del self._conns[oldest]

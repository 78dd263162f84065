"""HTTPS: the certificate that connections are served with, and another one while the server runs.

The listening context never changes; every handshake is given the context that is in force, which
was made whole before it replaced the last. So a new certificate is for new connections, and one
that cannot be used changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError
from rota.http.listener import Protocol, Site

if TYPE_CHECKING:
    from rota.http.listener import Listener
    from rota.sections import TlsSettings

logger = logging.getLogger("rota.http")

HANDSHAKE_S = 10.0
SHUTDOWN_S = 2.0


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """Read a certificate and its key. Raises ConfigError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    try:
        made.load_cert_chain(settings.cert, settings.key, password=_no_password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        msg = f"server.tls: {settings.cert} and {settings.key} cannot be used: {reason}"
        hint = "both are PEM files, the certificate with those that signed it, the key without"
        raise ConfigError(msg, hint=f"{hint} a password") from None
    return made


def _no_password() -> str:
    """Nobody is there to type one."""
    msg = "the key has a password"
    raise ValueError(msg)


class Tls:
    """What a server is known by to its clients."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files. Raises ConfigError."""
        self._settings = settings
        self._in_force = context_of(settings)
        self.context = context_of(settings)
        self.context.sni_callback = self._serve

    def _serve(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        """Give a handshake the certificate of now; called whether or not it names a host."""
        del name, context
        connection.context = self._in_force

    async def reload(self) -> None:
        """Read the files again. Raises ConfigError, and then the old ones stay."""
        self._in_force = await asyncio.to_thread(context_of, self._settings)


class Shaking:
    """A connection until hands are shaken: it has a place, and gives way as who owes bytes."""

    is_excess = False
    transport = None

    def __init__(self, listener: Listener, sock: socket.socket) -> None:
        self._listener = listener
        self._sock = sock

    async def shake(self, context: ssl.SSLContext) -> None:
        """Have the connection served once it is secure; it is closed if it cannot be."""
        self._listener.arrived(self)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._served,
                self._sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError:  # an SSLError is one, too
            logger.debug("no hands were shaken", exc_info=True)
        finally:
            self.leave()

    def _served(self) -> Secure:
        protocol = self._listener(Secure)
        assert isinstance(protocol, Secure)
        protocol.shaking = self
        return protocol

    def leave(self) -> None:
        self._listener.places.leave(self)

    def give_up(self) -> None:
        self.hang_up()

    def make_way(self) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        self.leave()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class Secure(Protocol):
    """A connection over TLS: it takes the place that its handshake had."""

    __slots__ = ("shaking",)
    shaking: Shaking

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.shaking.leave()
        super().connection_made(transport)


class TlsSite(Site):
    """Listens, over TLS; who does not shake hands in time is hung up on."""

    async def _open(self, listener: Listener, sock: socket.socket) -> None:
        assert self._ssl_context is not None
        await Shaking(listener, sock).shake(self._ssl_context)

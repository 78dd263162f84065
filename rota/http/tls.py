"""HTTPS: the certificate that connections are served with, and another one while the server runs.

The listening context never changes; every handshake is given the context that is in force, which
was made whole before it replaced the last. So a new certificate is for new connections, and one
that cannot be used changes nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from aiohttp import web

from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.sections import TlsSettings

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


class TlsSite(web.SockSite):
    """Listens, over TLS; who does not shake hands in time is hung up on."""

    async def start(self) -> None:
        await web.BaseSite.start(self)
        assert self._runner.server is not None
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,
            sock=self._sock,
            ssl=self._ssl_context,
            backlog=self._backlog,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )

"""The bodies that are on their way in, bounded in bytes all together.

What counts is what has come, not what was promised: nobody is kept out by headers alone. Small
bodies always pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.errors import PayloadTooLarge
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from aiohttp import StreamReader

BYTES_MAX = 256 << 20
"""How much of large bodies is held at once, all of them together, until they have come whole."""
SMALL_BYTES = 64 << 10
"""Bodies up to so large are not worth a refusal, nor the end of a connection."""


class BodyBudget:
    """Reads bodies."""

    def __init__(self) -> None:
        self.held = 0

    async def read(self, content: StreamReader, limit: int) -> bytes:
        """Read a body whole. Raises PayloadTooLarge or HttpProblem."""
        body = bytearray()
        counted = 0
        try:
            while chunk := await content.readany():
                body += chunk
                size = len(body)
                if size > limit:
                    raise PayloadTooLarge(f"the body is larger than {limit} bytes")
                if size > SMALL_BYTES:
                    self.held += size - counted
                    counted = size
                    if self.held > BYTES_MAX:
                        msg = "too many bytes of bodies are on their way in"
                        raise HttpProblem(503, "too_many_bytes", msg)
            return bytes(body)
        finally:
            self.held -= counted

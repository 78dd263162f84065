"""The hash chain: digest(n) = blake2b-256(digest(n-1) ‖ body(n)).

A changed, dropped or reordered record breaks every digest after it, so a head kept elsewhere
proves the whole history before it.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 32
GENESIS = bytes(DIGEST_BYTES)
"""The digest before the first record."""


def extend(previous: bytes, body: bytes) -> bytes:
    """Give the digest of the record that follows `previous`."""
    return blake2b(previous + body, digest_size=DIGEST_BYTES).digest()

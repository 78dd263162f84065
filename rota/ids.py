"""New ids.

Task ids have the PinchTab document's form `tsk_XXXXXXXX`, eight characters of 62. They begin with
the time in units of 10 ms, so that ids of one moment lie side by side in the log's index and a
commit touches few pages; the rest is drawn from the system's source of randomness. Two draws may
be equal, so the caller says which ids are taken, and another is drawn. Where a document wants a
UUID it is one of version 7 (RFC 9562), which begins with its time as well.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

TASK, BATCH, WORKFLOW, RUN = "tsk_", "bat_", "wfl_", "run-"
PREFIXES = (TASK, BATCH, WORKFLOW, RUN)
"""What drawn ids begin with, and ids that clients choose do not."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_RADIX = len(_PAIRS)
_EPOCH_US = 1_767_225_600_000_000  # 2026-01-01
_UNIT_US = 10_000
_DRAW_BITS = 10  # 62^8 / 2^10 units of 10 ms are 67 years
_DRAWS_PER_UNIT = 8
_POOL_BYTES = 6 * 512

_pool: list[bytes] = []


def _draw() -> bytes:
    """Draw six bytes; many are drawn at once, since a system call for each costs more."""
    if not _pool:
        drawn = secrets.token_bytes(_POOL_BYTES)
        _pool.extend(drawn[at : at + 6] for at in range(0, _POOL_BYTES, 6))
    return _pool.pop()


def _word(n: int) -> str:
    """Write a number in eight characters that sort as it does."""
    n, d = divmod(n, _RADIX)
    n, c = divmod(n, _RADIX)
    n, b = divmod(n, _RADIX)
    return _PAIRS[n % _RADIX] + _PAIRS[b] + _PAIRS[c] + _PAIRS[d]


def task_id(now_us: int, is_taken: Callable[[str], bool]) -> tuple[str, bool]:
    """Draw a task id that is not taken; in a crowded moment, from the moments after it.

    Also say whether it is of a later moment.
    """
    unit = (now_us - _EPOCH_US) // _UNIT_US
    for tries in count():
        moment = unit + tries // _DRAWS_PER_UNIT
        found = TASK + _word(
            (moment << _DRAW_BITS) + int.from_bytes(_draw()[:2], "big") % (1 << _DRAW_BITS)
        )
        if not is_taken(found):
            return found, moment > unit
    raise AssertionError


def uuid(now_us: int) -> str:
    """Draw a UUID of version 7: 48 bits of milliseconds, 74 that are drawn."""
    drawn = int.from_bytes(_draw() + _draw(), "big")
    high = (now_us // 1000) << 16 | 0x7000 | (drawn >> 62) & 0xFFF
    low = 0b10 << 62 | drawn & ((1 << 62) - 1)
    return str(UUID(int=high << 64 | low))


def request_id() -> str:
    return "req_" + _draw().hex()


def token_secret() -> str:
    """Draw a token of 256 bits, which says whose it is."""
    return f"rota_{secrets.token_urlsafe(32)}"

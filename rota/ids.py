"""New ids.

Task ids have the PinchTab document's form `tsk_XXXXXXXX`, eight characters of 62. They begin with
the time in units of 10 ms, so that ids of one moment lie side by side in the log's index and a
commit touches few pages; the rest is drawn from the system's source of randomness. Two draws of
one unit may be equal; `TaskIds` gives none twice. Where a document wants a UUID it is one of
version 7 (RFC 9562), which begins with its time as well.
"""

from __future__ import annotations

import secrets
from uuid import UUID

from rota.domain.delivery import DELIVERY
from rota.domain.dependencies import BATCH, REF
from rota.domain.leases import LEASE

TASK, WORKFLOW, RUN, REQUEST = "tsk_", "wfl_", "run-", "req_"
DRAWN = (TASK, BATCH, WORKFLOW, RUN)
"""The prefixes of ids in the log that begin with their time."""
PREFIXES = (*DRAWN, LEASE, DELIVERY, REQUEST, REF)
"""The prefixes of all ids that rota makes; ids that clients choose cannot begin with them."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_RADIX = len(_PAIRS)
_EPOCH_US = 1_767_225_600_000_000  # 2026-01-01
_UNIT_US = 10_000
_DRAW_BITS = 10  # 62^8 / 2^10 units of 10 ms are 67 years
_DRAWS_PER_UNIT = 8
_POOL_BYTES = 6 * 512
_CHARACTERS = 8

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


def beginning_at(now_us: int) -> str:
    """Give the first eight characters that an id of this moment or a later one may have."""
    return _word((now_us - _EPOCH_US) // _UNIT_US << _DRAW_BITS)


class TaskIds:
    """Draws task ids, none twice; the time in them never goes back.

    When a unit of time is crowded, or the clock has been set back, ids are drawn from the units
    after those that were drawn from already.
    """

    def __init__(self) -> None:
        self._unit = 0
        self._given: set[int] = set()  # within the unit

    def draw(self, now_us: int) -> str:
        self._reach((now_us - _EPOCH_US) // _UNIT_US)
        while True:
            for _ in range(_DRAWS_PER_UNIT):
                drawn = int.from_bytes(_draw()[:2], "big") % (1 << _DRAW_BITS)
                if drawn not in self._given:
                    self._given.add(drawn)
                    return TASK + _word((self._unit << _DRAW_BITS) + drawn)
            self._reach(self._unit + 1)

    def go_beyond(self, eight: str) -> None:
        """Draw only ids that are of later units than the one of these eight characters."""
        if len(eight) == _CHARACTERS and all(each in _ALPHABET for each in eight):
            number = 0
            for each in eight:
                number = number * len(_ALPHABET) + _ALPHABET.index(each)
            self._reach((number >> _DRAW_BITS) + 1)

    def _reach(self, unit: int) -> None:
        if unit > self._unit:
            self._unit = unit
            self._given.clear()


def uuid(now_us: int) -> str:
    """Draw a UUID of version 7: 48 bits of milliseconds, 74 that are drawn."""
    drawn = int.from_bytes(_draw() + _draw(), "big")
    high = (now_us // 1000) << 16 | 0x7000 | (drawn >> 62) & 0xFFF
    low = 0b10 << 62 | drawn & ((1 << 62) - 1)
    return str(UUID(int=high << 64 | low))


def request_id() -> str:
    return REQUEST + _draw().hex()


def token_secret() -> str:
    """Draw a token of 256 bits, which says whose it is."""
    return f"rota_{secrets.token_urlsafe(32)}"

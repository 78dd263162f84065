"""New ids, from the system's source of randomness.

Task ids have the PinchTab document's form `tsk_XXXXXXXX`, eight characters of 62. Two draws may
be equal, so the caller says which ids are taken and another is drawn.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_RADIX = len(_PAIRS)


def word() -> str:
    """Draw eight characters."""
    n = int.from_bytes(secrets.token_bytes(8), "big")
    n, a = divmod(n, _RADIX)
    n, b = divmod(n, _RADIX)
    n, c = divmod(n, _RADIX)
    return _PAIRS[a] + _PAIRS[b] + _PAIRS[c] + _PAIRS[n % _RADIX]


def task_id(is_taken: Callable[[str], bool]) -> str:
    """Draw a task id that is not taken."""
    while is_taken(found := "tsk_" + word()):
        pass
    return found


def request_id() -> str:
    """Draw a request id."""
    return "req_" + word()

"""Memory that is free, given back to the operating system.

What Python frees stays with the C library, which gives it back only from its end: after a burst a
server would look as large as it ever was. Where that library can be asked (glibc), it is.
"""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give back what is free; takes some milliseconds, and lets other threads run meanwhile."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

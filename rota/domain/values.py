"""JSON values from outside: what can be kept.

The log's writer nests less deep than the reader does, and wraps each value in a few levels of its
own; so whatever comes in is held to a depth that can be written down again.
"""

from __future__ import annotations

import re
from typing import Any

DEPTH_MAX = 64
_QUOTE = b'"'


def has_more_values(raw: bytes | bytearray, most: int) -> bool:
    """Whether a text of JSON has more than so many values; told without reading it as JSON.

    Every value follows a comma or an opening bracket, or is the first; what stands in strings is
    left out of the count only if there is so much of it that it matters.
    """
    if _openings(raw) <= most:
        return False
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(_QUOTE) > 4 * most + 4:
        return True  # a key and a value for each at most, and two quotes for both
    return _openings(b"".join(bare.split(_QUOTE)[::2])) > most


def _openings(raw: bytes | bytearray) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{") + 1


def says_too_deep(error: ValueError) -> bool:
    """Whether JSON could not be read because it is nested deeper than any reader goes."""
    return re.search("depth|recursion", str(error), re.IGNORECASE) is not None


def is_too_deep(raw: bytes, value: Any) -> bool:
    """Whether a parsed value, given with its text, is nested deeper than can be kept."""
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX or not isinstance(value, dict | list):
        return False
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True

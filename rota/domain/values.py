"""JSON values from outside: what can be kept.

The log's writer nests less deep than the reader does, and wraps each value in a few levels of its
own; so whatever comes in is held to a depth that can be written down again.
"""

from __future__ import annotations

from typing import Any

DEPTH_MAX = 64


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

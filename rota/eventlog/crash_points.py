"""Named crash points at every durability boundary.

`reach(name)` marks the boundary in the code. In production it does nothing. A test process arms
one through the environment (`ROTA_CRASH_AT=name` or `name:n` for the n-th time) and the process
then kills itself there with SIGKILL, as a power cut would.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = (
    "commit.begin",
    "commit.written",
    "commit.synced",
    "journal.recorded",
    "journal.durable",
    "pool.before_start",
    "pool.after_result",
    "webhook.before_send",
    "webhook.after_send",
    "snapshot.before_save",
    "snapshot.written",
    "snapshot.saved",
    "recovery.folded",
    "shutdown.drained",
)


class _Armed:
    """The one point this process dies at, and how often it must be passed before."""

    def __init__(self, spec: str) -> None:
        self.name, _, count = spec.partition(":")
        self.left = int(count or "1")
        if self.name not in POINTS:
            msg = f"ROTA_CRASH_AT names no crash point: {self.name}"
            raise ValueError(msg)


_ARMED = _Armed(spec) if (spec := os.environ.get("ROTA_CRASH_AT")) else None


def _reach(name: str) -> None:
    """Pass a boundary; die there if this process was told to."""
    if _ARMED is not None and _ARMED.name == name:
        _ARMED.left -= 1
        if _ARMED.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


reach: Callable[[str], object] = _reach if _ARMED is not None else bool
"""With nothing armed it is a call that costs nothing."""

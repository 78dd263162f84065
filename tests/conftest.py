"""What holds for every test."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

LONG = ("tests/simulation/test_simulation", "tests/acceptance", "tests/simulation", "tests/docs")
"""What takes longest, in this order; the rest has files that are done in seconds."""


def pytest_configure() -> None:
    """Take Ctrl-C, which a shell has ignored by what it starts in the background.

    What is ignored here would be ignored by every process that a test starts, and some are to end
    by it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: else one core is left with it while the others are done."""

    def place(item: pytest.Item) -> int:
        found = (n for n, name in enumerate(LONG) if item.nodeid.startswith(name))
        return next(found, len(LONG))

    items.sort(key=place)

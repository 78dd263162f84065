"""What holds for every test."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take Ctrl-C, which a shell has ignored by what it starts in the background.

    What is ignored here would be ignored by every process that a test starts, and some are to end
    by it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

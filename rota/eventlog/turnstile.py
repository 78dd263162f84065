"""Who may be inside: many readers together, or one that changes what they read, alone.

LMDB must have no transaction under way while its map is grown, or its file is closed and opened
anew. So whoever does that comes in alone: nobody else is let in any more, and those inside are
waited for. Readers wait for it, but not for long: a file that does not open is a reader's answer,
too. A reader that finds the file unusable can wait until somebody has opened it anew.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.errors import LogUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

READER_WAITS_S = 2.0


class Turnstile:
    """The way to what is read by many threads and changed by one."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._is_closed = False
        self._times = 0

    def enter(self) -> int:
        """Come in to read; give how often somebody was inside alone. Raises LogUnusable."""
        with self._changed:
            if self._is_closed and not self._changed.wait_for(self._is_open, READER_WAITS_S):
                raise LogUnusable("the log is being opened anew", hint="try again later")
            self._readers += 1
            return self._times

    def leave(self) -> None:
        with self._changed:
            self._readers -= 1
            if self._is_closed:
                self._changed.notify_all()

    def wait_for_change(self, times: int) -> bool:
        """Wait, outside, until somebody was inside alone again; False if it takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._times > times, READER_WAITS_S)

    def _is_open(self) -> bool:
        return not self._is_closed

    def _is_empty(self) -> bool:
        return not self._readers

    @contextmanager
    def alone(self, within_s: float | None = None) -> Iterator[bool]:
        """Be inside alone; False if somebody did not leave within the time."""
        with self._changed:
            self._is_closed = True
            is_empty = self._changed.wait_for(self._is_empty, within_s)
        try:
            yield is_empty
        finally:
            with self._changed:
                self._is_closed = False
                self._times += 1
                self._changed.notify_all()

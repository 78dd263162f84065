"""Who stays: streams, sockets and requests that wait, by a token that may be revoked meanwhile.

A request is let in once, at the door (access.py). One that goes on for long says so here, and is
called as soon as its token is good no more: by the commit that revoked it, or when it expires. It
has to look then, by `is_welcome`, and leave. Nothing is done while nothing happens.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.http.access import Caller
    from rota.sight.feed import Feed
    from rota.sight.passes import Passes

LOOK_S_MAX = 3600.0
"""How long one timer runs at most: clocks are set."""
REBUILT_US = 1_000_000
"""When to look again, if nobody can tell because the state is being rebuilt."""


class Guests:
    """Those who stay in one namespace."""

    def __init__(self, passes: Passes, feed: Feed) -> None:
        """Look again with every commit that changed a token."""
        self._passes = passes
        self._staying: dict[object, tuple[str, Callable[[], None]]] = {}
        self._seen = 0
        feed.on_commit(self._news)

    def is_welcome(self, caller: Caller) -> bool:
        """Whether a caller's token is good still; so is one while nobody can tell."""
        if not caller.token:
            return True
        try:
            return self._passes.find(caller.token) is not None
        except StorageUnavailable:
            return True

    @contextmanager
    def staying(self, caller: Caller, leave: Callable[[], None]) -> Iterator[None]:
        """Have `leave` called, while in this block, when the caller is no longer welcome."""
        if not caller.token:
            yield
            return
        stay = object()
        self._staying[stay] = (caller.token, leave)
        timer = self._timer(stay)
        try:
            yield
        finally:
            del self._staying[stay]
            if timer is not None:
                timer.cancel()

    def _news(self, seq: int) -> None:
        del seq
        changes = self._passes.changes
        if changes == self._seen:
            return
        self._seen = changes
        for token, leave in list(self._staying.values()):
            if self._passes.find(token) is None:
                leave()

    def _timer(self, stay: object) -> _Timer | None:
        token, leave = self._staying[stay]
        try:
            left_us = self._passes.left_us(token)
        except StorageUnavailable:
            return None
        return None if left_us is None else _Timer(self._passes, token, leave, left_us)


class _Timer:
    """Calls when a token has expired, however the clock is set meanwhile."""

    def __init__(self, passes: Passes, token: str, leave: Callable[[], None], left_us: int) -> None:
        self._passes, self._token, self._leave = passes, token, leave
        self._wait(left_us)

    def _wait(self, left_us: int) -> None:
        wait_s = min(left_us / 1e6, LOOK_S_MAX)
        self._handle = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        try:
            left_us = self._passes.left_us(self._token)
        except StorageUnavailable:
            left_us = REBUILT_US
        if left_us:
            self._wait(left_us)
        else:
            self._leave()

    def cancel(self) -> None:
        self._handle.cancel()

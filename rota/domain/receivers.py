"""Decide: whose callback is sent next, so that no receiver holds up another.

Callbacks wait under their host. A host gets so many at once, and all of them together so many;
between hosts that may take another the turn goes round. How many places hosts may fill together
depends on their standing: those that answer promptly may fill all, those that are new or slow
half, those that gave no answer lately a quarter and one at once each. So a quarter is left for
whoever answers, however many silent hosts a stranger names. Every step takes the same time,
whatever the number of hosts.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")

PROMPT_MS_MAX = 1000
"""An answer that took longer is a slow one."""
HOSTS_REMEMBERED_MAX = 4096
DOUBT_NEW = 1
DOUBT_SLOW = 2
DOUBT_SILENT = 16
DOUBT_MAX = 64


class Standing(IntEnum):
    """What is known of a host."""

    PROMPT = 0
    UNSURE = 1
    SILENT = 2


class Receiver(Generic[T]):
    """One host: what waits for it, how many it has now, and how far it is doubted."""

    __slots__ = ("active", "doubt", "name", "standing", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[T] = deque()
        self.active = 0
        self.doubt = DOUBT_NEW
        self.standing = Standing.UNSURE

    def heard(self, *, answered: bool, took_ms: int) -> None:
        """Judge the host by how a try went: doubt comes fast and goes slowly."""
        if not answered:
            self.doubt = min(self.doubt + DOUBT_SILENT, DOUBT_MAX)
        elif took_ms <= PROMPT_MS_MAX or self.doubt >= DOUBT_SILENT:
            self.doubt = max(self.doubt - 1, 0)
        else:
            self.doubt = min(self.doubt + DOUBT_SLOW, DOUBT_SILENT - 1)
        silent, sure = self.doubt >= DOUBT_SILENT, self.doubt == 0
        self.standing = Standing(2 if silent else 0 if sure else 1)


class Receivers(Generic[T]):
    """All hosts, and whose turn it is."""

    def __init__(self, *, per_host_max: int, parallel_max: int) -> None:
        assert per_host_max > 0
        assert parallel_max > 0
        self._per_host_max = per_host_max
        self._shares = (parallel_max, max(1, parallel_max // 2), max(1, parallel_max // 4))
        self._active = [0, 0, 0]
        self._turn = 0
        self._ready: tuple[OrderedDict[str, None], ...] = tuple(OrderedDict() for _ in Standing)
        self._hosts: dict[str, Receiver[T]] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self.waiting = 0
        self.active = 0

    def add(self, host: str, item: T) -> None:
        receiver = self._hosts.get(host)
        if receiver is None:
            receiver = self._hosts[host] = Receiver(host)
        receiver.waiting.append(item)
        self.waiting += 1
        self._place(receiver)

    def take(self) -> tuple[str, Standing, T] | None:
        """Give what is to be sent now, if anything may be; `ended` gives its place back."""
        if self.active >= self._shares[Standing.PROMPT]:
            return None
        for step in range(len(Standing)):
            standing = Standing((self._turn + step) % len(Standing))
            ready = self._ready[standing]
            if ready and self._active[standing] < self._shares[standing]:
                self._turn = (standing + 1) % len(Standing)
                return self._start(self._hosts[next(iter(ready))])
        return None

    def _start(self, receiver: Receiver[T]) -> tuple[str, Standing, T]:
        item = receiver.waiting.popleft()
        standing = receiver.standing
        self._ready[standing].pop(receiver.name)  # and last again, if it may take another
        self.waiting -= 1
        self.active += 1
        receiver.active += 1
        self._active[standing] += 1
        self._place(receiver)
        return receiver.name, standing, item

    def ended(self, host: str, standing: Standing, *, answered: bool, took_ms: int) -> None:
        """Give back a place that `take` gave under this standing, and say how it went."""
        receiver = self._hosts[host]
        self._ready[receiver.standing].pop(host, None)
        receiver.heard(answered=answered, took_ms=took_ms)
        self.give_back(host, standing)

    def give_back(self, host: str, standing: Standing) -> None:
        """Give back a place that was not used."""
        receiver = self._hosts[host]
        self.active -= 1
        self._active[standing] -= 1
        receiver.active -= 1
        self._place(receiver)

    def forget_waiting(self) -> None:
        """Drop what waits; what is being sent keeps its places."""
        for receiver in list(self._hosts.values()):
            receiver.waiting.clear()
            self._place(receiver)
        self.waiting = 0

    def _place(self, receiver: Receiver[T]) -> None:
        """Put a host where it belongs now: among those that may take another, or aside."""
        name = receiver.name
        at_once = 1 if receiver.standing is Standing.SILENT else self._per_host_max
        if receiver.waiting and receiver.active < at_once:
            self._ready[receiver.standing].setdefault(name)
        else:
            self._ready[receiver.standing].pop(name, None)
        self._idle.pop(name, None)
        if not receiver.waiting and not receiver.active:
            self._idle[name] = None
            if len(self._idle) > HOSTS_REMEMBERED_MAX:
                oldest, _ = self._idle.popitem(last=False)
                del self._hosts[oldest]

"""Somebody who follows the tail of the simulated server, now and then.

It must be given every durable record once and in order, whatever fails; and never one that the log
does not have.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from rota.errors import LogUnusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.sim_parts import SimLog

    from rota.actors.system import Shard
    from rota.actors.tail import Entry


class Follower:
    """Follows one server, from its start to its end."""

    def __init__(
        self, shard: Shard, log: SimLog, seed: int, violated: Callable[[str], None]
    ) -> None:
        """Read a bounded tail, at moments of its own drawing."""
        self._tail, self._log, self._violated = shard.tail, log, violated
        self._disk = shard.log
        self._tail._records_max = 10
        self._rng = Random(seed)
        self._reading = self._tail.reading()
        self._reading.__enter__()
        self._after = self._tail.last
        shard.listeners.append(self._heard)

    def _heard(self, seq: int) -> None:
        del seq
        if self._rng.random() < 0.3:
            with suppress(LogUnusable):  # it is being opened anew: another time
                self.catch_up()

    def catch_up(self) -> None:
        """Read what there is."""
        while page := self._page():
            for entry in page:
                self._after += 1
                kept = self._log.read(self._after - 1, 1)
                if entry.seq != self._after or not kept or kept[0].body != entry.body:
                    self._violated(f"a follower was given {entry.seq}, not {self._after}")
                    return

    def _page(self) -> list[Entry]:
        if self._tail.holds(self._after):
            return self._tail.page(self._after)
        return self._tail.read(self._disk, self._after, None)[0]

    def at_rest(self) -> None:
        """Have been given everything."""
        self.catch_up()
        if self._after != self._log.seq():
            self._violated(f"a follower has {self._after} of {self._log.seq()} records")

"""How soon what waits is handed over to the committer.

Normally the actors run when the loop comes to it, and what they record in one run goes to disk
together: the more requests there are, the larger the groups. When requests come one by one no group
forms, and a turn of the loop is only lost: then the actors run at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.actors.host import Host
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime

HURRY_RECORDS = 4
"""A last group of so few records means that requests come one by one."""


class Pacing:
    """Paces one shard."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._group_records = 0

    def hurry(self, runtime: Runtime, journal: Journal) -> None:
        """Handle and hand over what waits now, if requests come so rarely that no group forms."""
        if self._group_records <= HURRY_RECORDS and journal.durable_seq >= journal.state.seq:
            self._host.hurry(runtime.run)

    def committed(self, records: int, runtime: Runtime) -> None:
        """Go on after a group: attempts start first, and what they record goes next."""
        self._group_records = records
        self._host.hurry(runtime.work)

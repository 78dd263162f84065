"""Refusals: the first of each second are recorded, the others are counted.

Whoever is refused comes again, and a stranger may come thousands of times a second. So a second has
room for `RECORDS_PER_S` records of refusals; what is beyond becomes one `refusals_counted`. Counts
name so many agents and no more. Nothing here need outlive the server: what is not counted in the
log when it dies was told to nobody but those who were refused.
"""

from __future__ import annotations

from rota.domain.events import RefusalsCounted

RECORDS_PER_S = 100
AGENTS_NAMED_MAX = 100
WINDOW_US = 1_000_000


class Refusals:
    """The refusals of the present second, and the count of those without a record."""

    __slots__ = ("_recorded", "_since", "agents", "batches", "others", "tasks")

    def __init__(self) -> None:
        self._since = self._recorded = 0
        self.clear()

    def clear(self) -> None:
        self.tasks = self.batches = self.others = 0
        self.agents: dict[str, int] = {}

    def take_room(self, now: int) -> bool:
        """Take the room of one more record, if this second has any; if not, it is to be counted."""
        if not 0 <= now - self._since < WINDOW_US:
            self._since, self._recorded = now, 0
        self._recorded += 1
        return self._recorded <= RECORDS_PER_S

    def count_task(self, agent: str) -> None:
        self.tasks += 1
        if agent in self.agents or len(self.agents) < AGENTS_NAMED_MAX:
            self.agents[agent] = self.agents.get(agent, 0) + 1
        else:
            self.others += 1

    def count_batch(self) -> None:
        self.batches += 1

    def fact(self) -> RefusalsCounted | None:
        if not self.tasks and not self.batches:
            return None
        return RefusalsCounted(self.tasks, self.agents, self.others, self.batches)

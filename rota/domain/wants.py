"""What a worker asks for when it comes for tasks: agents, types, labels, how many and how long.

In which lines such a request waits, and what it is given, is in lending.py.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from rota.domain.tokens import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.domain.task import Task

FILTERS_MAX = 1000
"""In so many lines one worker may stand: agents times types, of all its filters."""


class Filter(NamedTuple):
    """Tasks of these agents that are of these types; None takes all agents, or all types."""

    agents: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None

    def pairs(self) -> Iterator[tuple[tuple[str] | None, tuple[str] | None]]:
        """Give each agent with each type."""
        agents = [None] if self.agents is None else [(each,) for each in self.agents]
        types = [None] if self.types is None else [(each,) for each in self.types]
        return product(agents, types)

    def takes(self, agent: str, action: str) -> bool:
        return (self.agents is None or agent in self.agents) and (
            self.types is None or action in self.types
        )


class Wants(NamedTuple):
    """What a worker asks for: whatever one of its filters takes."""

    worker: str
    filters: tuple[Filter, ...]
    labels: frozenset[str]
    most: int
    lease_ms: int
    start: bool = False
    by: str = LOCAL
    """Whose token it came with."""
    share: str = ""
    """Whose share of the lines it takes."""

    def pairs(self) -> dict[tuple[tuple[str] | None, tuple[str] | None], None]:
        """Give each agent with each type that it takes of it, once."""
        return dict.fromkeys(pair for each in self.filters for pair in each.pairs())

    def meets(self, requires: str) -> bool:
        return not requires or self.labels.issuperset(requires.split("\n"))

    def takes(self, task: Task) -> bool:
        return self.serves(task.agent, task.action, task.lane[5])

    def serves(self, agent: str, action: str, requires: str) -> bool:
        """Whether tasks of this kind are taken; `requires` is the labels, one a line."""
        return any(each.takes(agent, action) for each in self.filters) and self.meets(requires)

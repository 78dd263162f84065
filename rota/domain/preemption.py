"""Which waiting tasks might take the place of a running one, and which of them to look at.

A task that may pre-empt can do so when it is first in its lane. Whether it then finds a victim
changes only when its lane's head changes, when its agent is resumed or gets a less urgent task
under way, or when a limit that held it back does so no longer. Each of these puts its lane among
those to `look` at; until then the lane waits under the limits that were full, or over their cap,
when it was last looked at. So who never asks for pre-emption pays nothing for it, and nobody is
scanned for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.domain.task import Lane

    Place = tuple[str, Lane]
    """(agent, lane)"""
    Hold = tuple[str, bool]
    """(limit, whether it was over its cap)"""


class UrgentLanes:
    """The lanes whose first task may pre-empt; in order, so that every run looks alike."""

    def __init__(self) -> None:
        """Start with none."""
        self.look: dict[Place, None] = {}
        self._lanes: dict[str, dict[Lane, tuple[Hold, ...]]] = {}
        self._best: dict[str, int] = {}
        self._held: dict[Hold, dict[Place, None]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._lanes)

    def add(self, agent: str, lane: Lane, priority: int) -> None:
        """Take note of a lane whose new first task may pre-empt."""
        self._lanes.setdefault(agent, {}).setdefault(lane, ())
        self._best[agent] = min(priority, self._best.get(agent, priority))
        self.look[agent, lane] = None

    def drop(self, agent: str, lanes: Iterable[Lane] | None = None) -> None:
        """Forget lanes of an agent, or all of them, that have no such task first."""
        own = self._lanes.get(agent)
        if own is None:
            return
        for lane in list(own) if lanes is None else lanes:
            if lane in own:
                self.hold(agent, lane, ())
                del own[lane]
            self.look.pop((agent, lane), None)
        if not own:
            del self._lanes[agent], self._best[agent]

    def hold(self, agent: str, lane: Lane, holds: tuple[Hold, ...]) -> None:
        """Let a lane wait under what holds it back, and under nothing else."""
        place = (agent, lane)
        for hold in self._lanes[agent][lane]:
            places = self._held.get(hold, {})
            places.pop(place, None)
            if not places:
                self._held.pop(hold, None)
        for hold in holds:
            self._held.setdefault(hold, {})[place] = None
        self._lanes[agent][lane] = holds

    def let_go(self, hold: Hold) -> None:
        """Have the lanes looked at that waited under this."""
        self.look.update(self._held.pop(hold, ()))

    def look_at(self, agent: str, than: int | None = None) -> None:
        """Have an agent's lanes looked at, if one may be more urgent `than` that priority."""
        if agent in self._lanes and (than is None or self._best[agent] < than):
            self.look.update(dict.fromkeys((agent, lane) for lane in self._lanes[agent]))

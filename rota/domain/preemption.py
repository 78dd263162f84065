"""Which waiting tasks might take the place of a running one, and which of them to look at.

A task that may pre-empt can do so when it is first in its lane. Whether it then finds a victim
changes only when its lane's head changes, when its agent is resumed or gets a less urgent task
under way, or when a limit that held it back does so no longer. Each of these puts its lane among
those to look at; until then the lane waits under the limits that were full, or over their cap,
when it was last looked at. So who never asks for pre-emption pays nothing for it, and nobody is
scanned for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.domain.caps import Caps
    from rota.domain.ordering import AgentOrder
    from rota.domain.task import Lane, Task

    Place = tuple[str, Lane]
    """(agent, lane)"""
    Hold = tuple[str, bool]
    """(limit, whether it was over its cap)"""


class Urgent:
    """The lanes whose first task may pre-empt; in order, so that every run looks alike.

    `Turns` passes on what it hears: of heads, freed slots, resumed agents and tasks given a slot.
    """

    def __init__(self, orders: Mapping[str, AgentOrder], caps: Caps) -> None:
        self._orders = orders
        self._caps = caps
        self._look: dict[Place, None] = {}  # what to look at next
        self._lanes: dict[str, dict[Lane, tuple[Hold, ...]]] = {}  # and what each waits under
        self._best: dict[str, int] = {}  # the most urgent priority that an agent has had here
        self._held: dict[Hold, dict[Place, None]] = {}  # `_lanes` the other way round
        self._eased: dict[str, None] = {}  # limits that a slot was given back of since

    def head_changed(self, agent: str, lane: Lane, head: Task | None) -> None:
        if head is not None and head.plan is not None and head.plan.preempt:
            self._lanes.setdefault(agent, {}).setdefault(lane, ())
            self._best[agent] = min(head.priority, self._best.get(agent, head.priority))
            self._look[agent, lane] = None
        elif agent in self._lanes:
            self._drop(agent, lane)

    def freed(self, agent: str, lane: Lane) -> None:
        if self._lanes:
            self._eased.update(dict.fromkeys(self._caps.all_of(agent, lane)))

    def eased(self, limit: str) -> None:
        """Take note that a limit has room again, though no slot of it was given back."""
        if self._lanes:
            self._eased[limit] = None

    def resumed(self, agent: str) -> None:
        self._look_at(agent)

    def given(self, task: Task) -> None:
        """Take note that a task, which may become a victim, was given a slot."""
        if task.agent in self._lanes and self._best[task.agent] < task.priority:
            self._look_at(task.agent)

    def next(self) -> tuple[Task, tuple[str, ...]] | None:
        """Give a task that may pre-empt and the limits that hold it back, if one slot would do.

        To be asked when `Turns.next` has said None: what can run without a victim does.
        """
        self._let_go()
        soon: dict[Place, None] = {}
        while self._look:
            agent, lane = next(iter(self._look))
            del self._look[agent, lane]
            order = self._orders.get(agent)
            task = order.head(lane) if order is not None else None
            if task is None or task.plan is None or not task.plan.preempt:
                continue  # another head, which is not known here yet
            full, over = self._caps.held_by(task)
            self._hold(agent, lane, (*((lim, False) for lim in full), *((o, True) for o in over)))
            if full and not over:
                self._look.update(soon)
                return task, full
            if not full and not over:
                soon[agent, lane] = None  # it has room, and will be served when that is heard here
        self._look.update(soon)
        return None

    def _let_go(self) -> None:
        """Have the lanes looked at that waited under limits which hold them no longer."""
        for limit in self._eased:
            taken, cap = self._caps.usage(limit)
            if taken < cap:
                self._look.update(self._held.pop((limit, False), ()))
            if taken <= cap:
                self._look.update(self._held.pop((limit, True), ()))
        self._eased.clear()

    def _look_at(self, agent: str) -> None:
        self._look.update(dict.fromkeys((agent, lane) for lane in self._lanes.get(agent, ())))

    def _hold(self, agent: str, lane: Lane, holds: tuple[Hold, ...]) -> None:
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

    def _drop(self, agent: str, lane: Lane) -> None:
        own = self._lanes[agent]
        if lane in own:
            self._hold(agent, lane, ())
            del own[lane]
        self._look.pop((agent, lane), None)
        if not own:
            del self._lanes[agent], self._best[agent]

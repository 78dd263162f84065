"""An agent's order, as plain data structures.

A lane is a heap of ready tasks by (rank, age); an agent has one lane for each (executor, action,
key, batch), so that a lane held back by a limit is set aside whole instead of being scanned past;
tasks that may pre-empt have lanes of their own, so that the first of them is found without a scan.
Leaving is lazy: a task that is no longer waiting under the entry it was queued with is dropped
when it comes to the top, and a lane that is mostly dead entries is rebuilt. All costs O(log n).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.domain.task import Lane, Task

_SLACK = 16


class LaneOrder:
    """The waiting tasks of one lane, best first."""

    __slots__ = ("_heap", "live")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Task]] = []
        self.live = 0

    def push(self, task: Task) -> None:
        """Add a task under its current `entry`."""
        heappush(self._heap, (task.rank, task.created_seq, task.entry, task))
        self.live += 1

    def left(self) -> None:
        """Note that one of the tasks no longer waits (its `entry` is cleared already)."""
        self.live -= 1
        if len(self._heap) > 2 * self.live + _SLACK:
            self._heap = [item for item in self._heap if item[3].entry == item[2]]
            heapify(self._heap)

    def head(self) -> Task | None:
        heap = self._heap
        while heap:
            _, _, entry, task = heap[0]
            if task.entry == entry:
                return task
            heappop(heap)
        return None

    def __iter__(self) -> Iterator[Task]:
        """Go through the waiting tasks in order (costs a sort)."""
        return (item[3] for item in sorted(self._heap) if item[3].entry == item[2])


class AgentOrder:
    """The lanes of one agent, how many tasks wait in them, and since when the agent waits.

    `since` is the seq at which the agent was last served, or began to wait: the smaller, the
    longer it has waited for its turn.
    """

    __slots__ = ("lanes", "since", "waiting")

    def __init__(self, since: int) -> None:
        self.lanes: dict[Lane, LaneOrder] = {}
        self.since = since
        self.waiting = 0

    def push(self, task: Task) -> None:
        lane = self.lanes.get(task.lane)
        if lane is None:
            lane = self.lanes[task.lane] = LaneOrder()
        lane.push(task)
        self.waiting += 1

    def left(self, task: Task) -> None:
        lane = self.lanes[task.lane]
        lane.left()
        if not lane.live:
            del self.lanes[task.lane]
        self.waiting -= 1

    def head(self, lane: Lane) -> Task | None:
        order = self.lanes.get(lane)
        return order.head() if order is not None else None

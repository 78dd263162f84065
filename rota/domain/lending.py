"""Who is next: what rota runs itself, or what one of the workers that wait has come for.

Workers wait in lines, one for each filter (an agent or any, a type or any, and what is required of
who takes it); one that names several agents and types stands in several. Only a line that there is
news for is looked at: a task that came to the front of a lane is news for the few lines that would
take it; a slot that was freed, for those whose tasks are held back. All others cost nothing,
however many they are.
The lines that have a turn are in a heap, the fairest first. Giving tasks away only makes turns
worse, so a place that is too good is seen when it comes to the top.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heapreplace
from itertools import count, product
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.commands import PULL
from rota.domain.dispatch import PUSHER, Consumer, side_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.domain.dispatch import Turns
    from rota.domain.gates import Turn
    from rota.domain.task import Lane, Task

FILTERS_MAX = 1000
"""In so many lines one worker may stand: agents times types."""
KEPT_MAX = 10_000


class Wants(NamedTuple):
    """What a worker asks for; None takes all agents, or all types."""

    worker: str
    agents: tuple[str, ...] | None
    types: tuple[str, ...] | None
    labels: frozenset[str]
    most: int
    lease_ms: int
    start: bool = False

    def filters(self, requires: str) -> Iterator[Consumer]:
        """Give the lines to stand in for tasks that require so much."""
        if not self.meets(requires):
            return
        agents = [None] if self.agents is None else [(each,) for each in self.agents]
        types = [None] if self.types is None else [(each,) for each in self.types]
        for agent, kind in product(agents, types):
            yield Consumer(PULL, kind, agent, requires)

    def meets(self, requires: str) -> bool:
        return not requires or self.labels.issuperset(requires.split("\n"))

    def takes(self, task: Task) -> bool:
        return (
            (self.agents is None or task.agent in self.agents)
            and (self.types is None or task.action in self.types)
            and self.meets(task.lane[5])
        )


class Waiter:
    """A worker that waits, with what it was given so far: tasks and their tokens."""

    __slots__ = ("given", "lines", "reply", "timer", "wants")

    def __init__(self, wants: Wants, reply: Any) -> None:
        self.wants = wants
        self.reply = reply
        self.timer: Any = None
        self.lines: list[Consumer] = []
        self.given: list[tuple[str, int]] = []

    @property
    def is_served(self) -> bool:
        return len(self.given) >= self.wants.most


class Lending:
    """The workers that wait, and whose turn it is among them and the dispatcher."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines: dict[Consumer, dict[Waiter, None]] = {}
        self._by_worker: dict[str, dict[Waiter, None]] = {}
        self._required: dict[str, None] = {"": None}  # what there are lines for
        self._heap: list[tuple[Turn, int, Consumer]] = []
        self._news: dict[Consumer, None] = {}  # the lines to look at next
        self._held: dict[Consumer, None] = {}  # those for which something waits, but not freely
        self._count = count()
        self._by_reply: dict[Any, Waiter] = {}
        self._kept: OrderedDict[str, tuple[int, str]] = OrderedDict()  # until when, for whom
        self._kept_for: dict[str, set[str]] = {}  # and the other way round

    def __len__(self) -> int:
        return len(self._by_reply)

    def all(self) -> list[Waiter]:
        return list(self._by_reply.values())

    def waits(self, worker: str) -> bool:
        return worker in self._by_worker

    def by_reply(self, reply: Any) -> Waiter | None:
        return self._by_reply.get(reply)

    # -- who waits

    def join(self, waiter: Waiter) -> None:
        if not self._lines:
            self._required = dict.fromkeys(("", *self._turns.requirements()))
        self._by_reply[waiter.reply] = waiter
        self._by_worker.setdefault(waiter.wants.worker, {})[waiter] = None
        for requires in self._required:
            self._stand(waiter, requires)
        self._come_back(waiter.wants.worker)

    def _stand(self, waiter: Waiter, requires: str) -> None:
        """Have a worker stand in the lines for tasks that require so much, if it has that."""
        for consumer in waiter.wants.filters(requires):
            line = self._lines.get(consumer)
            if line is None:
                line = self._lines[consumer] = {}
                self._news[consumer] = None
            line[waiter] = None
            waiter.lines.append(consumer)

    def leave(self, waiter: Waiter) -> bool:
        """Take one out; whether it was there."""
        if self._by_reply.pop(waiter.reply, None) is None:
            return False
        own = self._by_worker[waiter.wants.worker]
        del own[waiter]
        if not own:
            del self._by_worker[waiter.wants.worker]
        for consumer in waiter.lines:
            line = self._lines[consumer]
            del line[waiter]
            if not line:
                del self._lines[consumer]
                self._news.pop(consumer, None)
                self._held.pop(consumer, None)
        waiter.lines.clear()
        return True

    # -- what is heard

    def rebase(self, turns: Turns) -> None:
        """Go on with other turns: everybody comes anew."""
        self._turns = turns
        waiting = self.all()
        for waiter in waiting:
            self.leave(waiter)
        self._heap.clear()
        for waiter in waiting:
            self.join(waiter)

    def head_changed(self, agent: str, lane: Lane) -> None:
        """Have the lines looked at that would take from a lane."""
        if not self._lines or side_of(lane) != PULL:
            return
        kind, requires = (lane[1],), lane[5]
        if requires not in self._required:
            self._required[requires] = None
            for waiter in self.all():
                self._stand(waiter, requires)
        for types, agents in product((kind, None), ((agent,), None)):
            consumer = Consumer(PULL, types, agents, requires)
            if consumer in self._lines:
                self._news[consumer] = None

    def eased(self) -> None:
        """Have the lines looked at whose tasks were held back: something gave way."""
        if self._held or self._heap:
            self._news.update(self._held)
            self._news.update((consumer, None) for _, _, consumer in self._heap)
            self._held.clear()
            self._heap.clear()

    # -- who is next

    def next(self) -> tuple[Task, Waiter | None] | None:
        """Give the task whose turn it is, and the worker it goes to, or None if rota runs it."""
        turns = self._turns
        push = turns.first(PUSHER)
        if self._lines and not turns.is_full:
            self._look()
            turn = self._best()
            if turn is not None and (push is None or turn[0] < push):
                task = turn[0].task
                return task, self._worker_for(task, turn[1])
        return (push.task, None) if push is not None else None

    def _look(self) -> None:
        """Find the turns of the lines that there is news for."""
        if not self._news:
            return
        news, self._news = self._news, {}
        stale = {consumer for _, _, consumer in self._heap} & news.keys()
        if stale:
            self._heap = [item for item in self._heap if item[2] not in stale]
        for consumer in news:
            turn = self._turns.first(consumer)
            if turn is not None:
                self._heap.append((turn, next(self._count), consumer))
            else:
                self._rest(consumer)
        heapify(self._heap)

    def _best(self) -> tuple[Turn, Consumer] | None:
        heap = self._heap
        while heap:
            turn, number, consumer = heap[0]
            now = self._turns.first(consumer) if consumer in self._lines else None
            if now is not None and now == turn:
                return turn, consumer
            if now is not None:
                heapreplace(heap, (now, number, consumer))
            else:
                heappop(heap)
                self._rest(consumer)
        return None

    def _rest(self, consumer: Consumer) -> None:
        """Let a line wait that has no turn: for any ease if something is held, else for a head."""
        if consumer in self._lines and self._turns.has_any(consumer):
            self._held[consumer] = None

    def _worker_for(self, task: Task, consumer: Consumer) -> Waiter:
        """Give the one that had the task's key last if it waits, else who has waited longest."""
        key = task.plan.key if task.plan is not None else None
        if key:
            _, worker = self._kept.get(key, (0, ""))
            for waiter in self._by_worker.get(worker, ()):
                if waiter.wants.takes(task):
                    return waiter
        return next(iter(self._lines[consumer]))

    # -- keys that a worker had

    def keep(self, key: str, worker: str, until: int) -> None:
        """Keep a key for the worker that gave it back, unless it waits already."""
        self._forget(key)
        self._kept[key] = (until, worker)
        self._kept_for.setdefault(worker, set()).add(key)
        if worker not in self._by_worker:
            self._turns.keep(key)
        if len(self._kept) > KEPT_MAX:
            self._let_go(next(iter(self._kept)))

    def let_go(self, now: int, longest_us: int) -> int | None:
        """Keep those no longer whose time is over; give when the next one is."""
        while self._kept:
            key, (until, _) = next(iter(self._kept.items()))
            if now < until <= now + longest_us:  # else the clock was set
                return until
            self._let_go(key)
        return None

    def _let_go(self, key: str) -> None:
        """Let whoever comes first have a key."""
        self._forget(key)
        self._turns.let_go(key)
        self.eased()

    def _come_back(self, worker: str) -> None:
        """Let go of the keys of a worker that waits now: it is preferred, and nobody is held up."""
        for key in self._kept_for.get(worker, ()):
            self._turns.let_go(key)
            self.eased()

    def _forget(self, key: str) -> None:
        _, worker = self._kept.pop(key, (0, ""))
        keys = self._kept_for.get(worker)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._kept_for[worker]

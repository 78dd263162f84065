"""Who is next: what rota runs itself, or what one of the workers that wait has come for.

Workers wait in lines, one for each filter (an agent or any, a type or any, and what is required of
who takes it); one that names several agents and types stands in several. Only a line that there is
news for is looked at: a task that came to the front of a lane is news for the few lines that would
take it; a slot that was freed, for those that its agent's tasks are for, or that wait for a limit
it was under. All others cost nothing, however many they are.
The lines that have a turn are in a heap, the fairest first. Giving tasks away only makes turns
worse, so a place that is too good is seen when it comes to the top.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.commands import PULL
from rota.domain.dispatch import PUSHER, Consumer, side_of
from rota.domain.shares import Shares
from rota.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Collection

    from rota.domain.dispatch import Turns
    from rota.domain.gates import Turn
    from rota.domain.task import Lane, Task
    from rota.domain.wants import Wants

WAITING_MAX = 10_000
"""So many requests of workers may wait; callers have shares (domain/shares.py)."""
PLACES_MAX = 100_000
"""So many places there are in all lines together: for each worker, one a line it stands in.

Callers have shares of them, too.
"""
PLACES_EACH_MAX = 4000
"""And so many for one: its filters, for each set of labels that is required and that it has."""
LENT_BYTES_MAX = 8 << 20
"""Of the params in one answer; the task that reaches it is the last."""
KEPT_MAX = 10_000
"""Of so many keys it is remembered which worker had them last."""
EASED_AT_ONCE = 256
"""So many lines are looked at in one go when a limit gave way that any of them may wait for."""
_SLACK = 64


class Kept(NamedTuple):
    """A key that nobody else is given before `until`; whether a task that is ready asked for it."""

    until: int
    worker: str
    is_for_task: bool = False


class Waiter:
    """A worker that waits, with what it was given so far: tasks, their tokens, about how much.

    If it is not `patient` it is answered at the end of this run, and counts towards no bound.
    """

    __slots__ = ("given", "is_patient", "lines", "pairs", "reply", "size", "timer", "wants")

    def __init__(self, wants: Wants, reply: Any, *, is_patient: bool = True) -> None:
        self.wants = wants
        self.is_patient = is_patient
        self.reply = reply
        self.timer: Any = None
        self.pairs = wants.pairs()
        self.lines: list[Consumer] = []
        self.given: list[tuple[str, int]] = []
        self.size = 0

    @property
    def is_served(self) -> bool:
        return len(self.given) >= self.wants.most or self.size >= LENT_BYTES_MAX


class Lending:
    """The workers that wait, and whose turn it is among them and the dispatcher."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines: dict[Consumer, dict[Waiter, None]] = {}
        self._by_worker: dict[str, dict[Waiter, None]] = {}
        self._by_labels: dict[frozenset[str], dict[Waiter, None]] = {}
        self._required: dict[str, None] = {"": None}  # what there are lines for
        self._heap: list[tuple[Turn, int, Consumer]] = []
        self._places: dict[Consumer, int] = {}  # which place of a line counts
        self._news: dict[Consumer, None] = {}  # the lines to look at next
        self._held: dict[Consumer, None] = {}  # those for which something waits, but not freely
        self._easing: dict[Consumer, None] = {}  # of these, and all with a turn, some to look at
        self._eased: set[str] = set()  # the limits that gave way for it; empty if it is all
        self._count = count()
        self._requests = Shares(WAITING_MAX)
        self._taken = Shares(PLACES_MAX)  # of the places in all lines
        self.crowded: dict[Waiter, None] = {}
        """Those that found no place in one of their lines: they have to leave."""
        self._by_reply: dict[Any, Waiter] = {}
        self._last_worker: OrderedDict[str, str] = OrderedDict()  # of each key
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # the keys that wait for that worker
        self._kept_for: dict[str, dict[str, None]] = {}  # the same, by worker

    def __len__(self) -> int:
        return len(self._by_reply)

    def all(self) -> list[Waiter]:
        return list(self._by_reply.values())

    def waits(self, worker: str) -> bool:
        return worker in self._by_worker

    def by_reply(self, reply: Any) -> Waiter | None:
        return self._by_reply.get(reply)

    # -- who waits

    def check_room(self, waiter: Waiter) -> None:
        """Refuse a worker that would wait where there is no room. Raises QueueFull."""
        if not waiter.is_patient:
            return
        share = waiter.wants.share
        if not self._requests.has_room(share):
            msg = f"{WAITING_MAX} workers wait already, or as many of yours as may"
            raise QueueFull(msg, code="too_many_waiting")
        met = sum(map(waiter.wants.meets, self._required_now()))
        places = met * len(waiter.pairs)
        if places > PLACES_EACH_MAX or not self._taken.has_room(share, places):
            msg = (
                "there is no room for so many lines of workers; fewer agents, types or labels help"
            )
            raise QueueFull(msg, code="too_many_waiting")

    def _required_now(self) -> dict[str, None]:
        if not self._lines:
            self._required = dict.fromkeys(("", *self._turns.requirements()))
        return self._required

    def join(self, waiter: Waiter) -> None:
        if waiter.is_patient:
            self._requests.take(waiter.wants.share)
        self._by_reply[waiter.reply] = waiter
        self._by_worker.setdefault(waiter.wants.worker, {})[waiter] = None
        self._by_labels.setdefault(waiter.wants.labels, {})[waiter] = None
        met = list(filter(waiter.wants.meets, self._required_now()))
        if (
            not waiter.is_patient
        ):  # if it cannot look at all of them, it begins with others each time
            at = next(self._count) % len(met)
            met = met[at:] + met[:at]
        for requires in met:
            self._stand(waiter, requires)
        self._come_back(waiter.wants.worker)

    def _stand(self, waiter: Waiter, requires: str) -> None:
        """Have a worker stand in the lines for tasks that require so much, which it has."""
        more = len(waiter.pairs)
        fits = len(waiter.lines) + more <= PLACES_EACH_MAX
        if not fits or (waiter.is_patient and not self._taken.take(waiter.wants.share, more)):
            if waiter.is_patient:
                self.crowded[waiter] = None
            return
        for agent, kind in waiter.pairs:
            consumer = Consumer(PULL, kind, agent, requires)
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
        if waiter.is_patient:
            self._requests.give_back(waiter.wants.share)
        _take_out(self._by_worker, waiter.wants.worker, waiter)
        _take_out(self._by_labels, waiter.wants.labels, waiter)
        for consumer in waiter.lines:
            self._step_out(waiter, consumer)
        waiter.lines.clear()
        self.crowded.pop(waiter, None)
        return True

    def _step_out(self, waiter: Waiter, consumer: Consumer) -> None:
        if waiter.is_patient:
            self._taken.give_back(waiter.wants.share)
        if _take_out(self._lines, consumer, waiter):
            self._news.pop(consumer, None)
            self._held.pop(consumer, None)
            self._easing.pop(consumer, None)
            self._places.pop(consumer, None)

    # -- what is heard

    def rebase(self, turns: Turns) -> None:
        """Go on with other turns: everybody comes anew, and what was kept is kept."""
        self._turns = turns
        waiting = self.all()
        for waiter in waiting:
            self.leave(waiter)
        self._heap.clear()
        for waiter in waiting:
            self.join(waiter)
        for key in self._kept:
            turns.keep(key)

    def head_changed(self, agent: str, lane: Lane) -> None:
        """Have the lines looked at that would take from a lane."""
        if not self._lines or side_of(lane) != PULL:
            return
        if lane[5] not in self._required:
            self._require(lane[5])
        self._tell(agent, lane)

    def _require(self, requires: str) -> None:
        """Open lines for tasks that require what none has before; shut those of none any more."""
        required = self._required
        if len(required) > 2 * len(waiting := set(self._turns.requirements())) + _SLACK:
            for waiter in self.all():
                for consumer in waiter.lines:
                    if consumer.requires and consumer.requires not in waiting:
                        self._step_out(waiter, consumer)
                lines = self._lines
                waiter.lines = [each for each in waiter.lines if waiter in lines.get(each, ())]
            self._required = required = dict.fromkeys(("", *waiting))
        required[requires] = None
        for labels, waiters in self._by_labels.items():
            if labels.issuperset(requires.split("\n")):
                for waiter in waiters:
                    self._stand(waiter, requires)

    def _tell(self, agent: str, lane: Lane) -> None:
        for types, agents in product(((lane[1],), None), ((agent,), None)):
            consumer = Consumer(PULL, types, agents, lane[5])
            if consumer in self._lines:
                self._news[consumer] = None

    def freed(self, agent: str, lane: Lane) -> None:
        """Have the lines looked at for which a slot of such a task gave way."""
        if self._lines:
            self.resumed(agent)
            if wanted := self._turns.wanted(lane):
                self.eased(wanted)

    def resumed(self, agent: str) -> None:
        """Have the lines looked at that would take from an agent, which stands better now."""
        lanes = self._turns.lanes_of(agent)
        if len(lanes) > len(self._lines):
            mine = (None, (agent,))
            self._news.update((each, None) for each in self._lines if each.agents in mine)
            return
        for lane in lanes:
            if side_of(lane) == PULL:
                self._tell(agent, lane)

    def eased(self, limits: Collection[str] = ()) -> None:
        """Have all lines looked at that anything waits for: these limits, or who knows, gave way.

        Some at a time, and only as long as there is room: most would find it taken by the first.
        """
        is_some = bool(limits) and (bool(self._eased) or not self._easing)
        self._eased = self._eased.union(limits) if is_some else set()
        self._easing.update(self._held)
        self._easing.update(dict.fromkeys(self._places))

    @property
    def is_easing(self) -> bool:
        return bool(self._easing) and not self._turns.is_full

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
        if self._easing:
            self._ease()
        if not self._news:
            return
        news, self._news = self._news, {}
        for consumer in news:
            turn = self._turns.first(consumer)
            if turn is None:
                self._rest(consumer)
            else:
                self._held.pop(consumer, None)
                number = self._places[consumer] = next(self._count)
                heappush(self._heap, (turn, number, consumer))
        if len(self._heap) > 2 * len(self._places) + _SLACK:
            self._heap = [item for item in self._heap if self._places.get(item[2]) == item[1]]
            heapify(self._heap)

    def _ease(self) -> None:
        """Make news of the next lines that may have been eased."""
        if self._eased and not self._turns.lends(self._eased):
            self._easing.clear()
        for consumer in list(islice(self._easing, EASED_AT_ONCE)):
            del self._easing[consumer]
            self._news[consumer] = None
        if not self._easing:
            self._eased.clear()

    def _best(self) -> tuple[Turn, Consumer] | None:
        heap = self._heap
        while heap:
            turn, number, consumer = heap[0]
            if self._places.get(consumer) != number:
                heappop(heap)
                continue
            now = self._turns.first(consumer)
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
        self._places.pop(consumer, None)
        if self._turns.has_any(consumer):
            self._held[consumer] = None
        else:
            self._held.pop(consumer, None)

    def _worker_for(self, task: Task, consumer: Consumer) -> Waiter:
        """Give the one that had the task's key last if it waits, else who has waited longest."""
        key = task.plan.key if task.plan is not None else None
        if key:
            for waiter in self._by_worker.get(self._last_worker.get(key, ""), ()):
                if waiter.wants.takes(task):
                    return waiter
        return next(iter(self._lines[consumer]))

    # -- keys that a worker had

    def keep(self, key: str, worker: str, until: int, now: int) -> None:
        """Remember which worker had a key last; keep the key for it, unless it waits already."""
        self.forget(key)
        self._last_worker[key] = worker
        if worker not in self._by_worker and now < until:
            self._keep(key, Kept(until, worker))
        if len(self._last_worker) > KEPT_MAX:
            self.forget(next(iter(self._last_worker)))

    def keep_for(self, task: Task, until: int) -> None:
        """Keep the key of a task that is ready for the worker that had it last.

        It is kept for one task at a time. A worker that has not come by then is forgotten.
        """
        key = task.lane[2]
        worker = self._last_worker.get(key)
        kept = self._kept.get(key)
        is_kept_for_task = kept is not None and kept.is_for_task
        if worker is not None and worker not in self._by_worker and not is_kept_for_task:
            self._keep(key, Kept(until, worker, is_for_task=True))

    def _keep(self, key: str, kept: Kept) -> None:
        self._kept.pop(key, None)
        self._kept[key] = kept
        self._kept_for.setdefault(kept.worker, {})[key] = None
        self._turns.keep(key)

    def let_go(self, now: int, longest_us: int) -> int | None:
        """Keep those no longer whose time is over; give when the next one is."""
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if now < kept.until <= now + longest_us:  # else the clock was set
                return kept.until
            if kept.is_for_task:
                self.forget(key)
            else:
                self._let_go([key])
        return None

    def forget(self, key: str) -> None:
        """Forget which worker had a key last, and let whoever comes first have it."""
        self._last_worker.pop(key, None)
        self._let_go([key])

    def _come_back(self, worker: str) -> None:
        """Let go of the keys of a worker that waits now: it is preferred, and nobody is held up."""
        self._let_go(list(self._kept_for.get(worker, ())))

    def _let_go(self, keys: list[str]) -> None:
        """Keep these no longer for the workers that had them last."""
        wanted = []
        for key in keys:
            kept = self._kept.pop(key, None)
            if kept is not None:
                _take_out(self._kept_for, kept.worker, key)
                wanted += self._turns.let_go(key)
        if wanted:
            self.eased(wanted)


def _take_out(groups: dict[Any, dict[Any, None]], name: Any, member: Any) -> bool:
    """Take one out of its group; whether that was the last."""
    group = groups[name]
    del group[member]
    if group:
        return False
    del groups[name]
    return True

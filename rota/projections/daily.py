"""The figures of each day, per agent and in all: what a queue's metrics are made of.

Facts are counted on the UTC day of their record's own `at`, so a replay gives the same series. The
present day has a cell for each agent, up to `AGENTS_TODAY`, with histograms of waits and runs. When
a day is over it is packed: the busiest `AGENTS_A_DAY` of it keep their figures, the rest are summed
up; after `DAYS_BY_AGENT` days only the sum is kept, for `DAYS_KEPT`. What all days before this one
had in all is kept for the agents that were counted last. What the figures mean is in
docs/reference/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from rota.domain.browsers import REACHED_CODE

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.task import Task

DAY_US = 86_400 * 1_000_000
AGENTS_TODAY = 1000
AGENTS_A_DAY = 100
AGENTS_KEPT = 1000
NAMED_MAX = 100
DAYS_BY_AGENT = 400
DAYS_KEPT = 40_000

CREATED, COMPLETED, FAILED, LATENCY_US, ENDED, ENDED_BADLY, LEASES, SILENCE_MS = range(8)
"""What is kept of a day: tasks, the time that completed ones took, attempts that ended and those
of them that failed, leases that ended and their longest silences."""
KEPT = 8
WAIT_US, RUN_US, WAITS = 8, 9, 10
BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""The upper bounds of the histograms' buckets; there is one more, for what is longer."""
_BOUNDS_US = tuple(round(bound * 1_000_000) for bound in BOUNDS_S)
BUCKETS = len(BOUNDS_S) + 1
RUNS = WAITS + BUCKETS
CELL = RUNS + BUCKETS

Cell = list[int]
"""The figures of one agent, or of several: `KEPT` of them for days that are over, else `CELL`."""


class Day(NamedTuple):
    """A day: its agents by name, and the sum of the others."""

    agents: dict[str, Cell]
    other: Cell

    def total(self) -> Cell:
        return summed(self.agents.values(), self.other)


class Daily:
    """The figures of the present day, of the days before, and of all days."""

    def __init__(self) -> None:
        self.day = 0
        self._end = 0
        self._begin(Day({}, [0] * CELL))
        self.days: dict[int, bytes] = {}
        self.agents: dict[str, Cell] = {}
        self.before: Cell = [0] * CELL
        self.named: dict[str, None] = {}

    # -- what is counted

    def on_submitted(self, record: Record[e.TaskSubmitted], task: Task) -> None:
        at, agent = record.at, task.agent
        if at >= self._end:
            self.turn(at)
        cell = self._cells.get(agent) or self._new(agent)
        cell[CREATED] += 1

    def on_assigned(self, record: Record[e.TaskAssigned], task: Task) -> None:
        at, agent = record.at, task.agent
        if at >= self._end:
            self.turn(at)
        cell = self._cells.get(agent) or self._new(agent)
        wait = at - task.ready_at
        if wait > 0:
            cell[WAIT_US] += wait
        cell[WAITS + bisect_left(_BOUNDS_US, wait)] += 1

    def on_succeeded(self, record: Record[e.TaskSucceeded], task: Task) -> None:
        at, agent = record.at, task.agent
        if at >= self._end:
            self.turn(at)
        cell = self._cells.get(agent) or self._new(agent)
        cell[COMPLETED] += 1
        cell[ENDED] += 1
        took = at - task.created_at
        if took > 0:
            cell[LATENCY_US] += took
        run = at - (task.started_at or task.assigned_at)
        if run > 0:
            cell[RUN_US] += run
        cell[RUNS + bisect_left(_BOUNDS_US, run)] += 1

    def on_failed(self, record: Record[e.TaskFailed], task: Task) -> None:
        self._of(record.at, task.agent)[FAILED] += 1
        if record.event.code != REACHED_CODE:  # which no attempt led to
            self.on_attempt_failed(record, task)

    def on_attempt_failed(self, record: Record[e.AttemptFailed | e.TaskFailed], task: Task) -> None:
        cell = self._of(record.at, task.agent)
        cell[ENDED] += 1
        cell[ENDED_BADLY] += 1
        run = max(0, record.at - (task.started_at or task.assigned_at))
        cell[RUN_US] += run
        cell[RUNS + bisect_left(_BOUNDS_US, run)] += 1

    def on_expired(self, record: Record[e.TaskExpired], task: Task) -> None:
        self._of(record.at, task.agent)[FAILED] += 1

    def on_lease_over(self, record: Record[Any], task: Task | None = None) -> None:
        """Count the longest silence of a worker, as its lease's last fact tells it."""
        del task
        cell = self._of(record.at, record.event.agent)
        cell[LEASES] += 1
        cell[SILENCE_MS] += record.event.gap_ms

    # -- days

    def _of(self, at: int, agent: str) -> Cell:
        if at >= self._end:
            self.turn(at)
        return self._cells.get(agent) or self._new(agent)

    def _new(self, agent: str) -> Cell:
        """Give the cell of an agent that has none today: its own, or that of all others."""
        agents = self.today.agents
        if len(agents) >= AGENTS_TODAY:
            return self.today.other
        if len(self.named) < NAMED_MAX:
            self.named[agent] = None
        cell = agents[agent] = [0] * CELL
        return cell

    def turn(self, at: int) -> None:
        """Go on with the day of this moment: the next, or an earlier one if the clock was set."""
        self._close()
        self.day = at // DAY_US
        self._end = (self.day + 1) * DAY_US

    def _begin(self, day: Day) -> None:
        self.today = day
        self._cells = day.agents

    def _close(self) -> None:
        """Pack the day, and add it to what was before."""
        today = self.today
        if not today.agents:
            return
        self._begin(Day({}, [0] * CELL))
        add(self.before, today.total())
        for agent, cell in today.agents.items():
            known = self.agents.pop(agent, None)
            self.agents[agent] = summed((known,), cell) if known is not None else cell
        while len(self.agents) > AGENTS_KEPT:
            del self.agents[next(iter(self.agents))]
        busiest = nlargest(NAMED_MAX, today.agents.items(), key=_busyness)
        names = [agent for agent, _ in busiest] + [n for n in self.named if n in self.agents]
        self.named = dict.fromkeys(list(dict.fromkeys(names))[:NAMED_MAX])
        self.days[self.day] = _packed(_trimmed(self._merged(self.day, today)))
        self._forget()

    def _forget(self) -> None:
        """Sum up the days that are too many to be kept by agent, and drop those that are not."""
        for day in sorted(self.days)[: -DAYS_BY_AGENT or None]:
            if len(self.days) > DAYS_KEPT:
                del self.days[day]
            elif (whole := _unpacked(self.days[day])).agents:
                self.days[day] = _packed(Day({}, whole.total()))

    def _merged(self, day: int, more: Day) -> Day:
        """Give a day with more of it, as it is kept of a day that is over."""
        known = self.days.get(day)
        agents, other = _unpacked(known) if known is not None else Day({}, [0] * KEPT)
        agents = dict(agents)
        for agent, cell in more.agents.items():
            agents[agent] = summed((cell[:KEPT],), agents.get(agent, [0] * KEPT))
        return Day(agents, summed((more.other[:KEPT],), other))

    # -- what is read

    def of_day(self, day: int) -> Day:
        """Give the figures of a day; of the present one, as far as it has come."""
        return self._merged(day, self.today if day == self.day else Day({}, [0] * KEPT))

    def total(self) -> Cell:
        """Give the figures of all agents and days."""
        return summed((self.before,), self.today.total())

    def by_name(self) -> dict[str, Cell]:
        """Give the figures of all days of those agents that are shown by their names."""
        found = {}
        for agent in self.named:
            cells = (self.agents.get(agent), self.today.agents.get(agent))
            found[agent] = summed((cell for cell in cells if cell is not None), [0] * CELL)
        return found

    # -- snapshots

    def dump(self) -> dict[str, Any]:
        return {
            "day": self.day,
            "today": list(self.today),
            "days": [[day, orjson.Fragment(blob)] for day, blob in self.days.items()],
            "agents": self.agents,
            "before": self.before,
            "named": list(self.named),
        }

    def load(self, data: dict[str, Any]) -> None:
        self.day = data["day"]
        self._begin(Day(*data["today"]))
        self._end = (self.day + 1) * DAY_US if self.day or self.today.agents else 0
        self.days = {day: orjson.dumps(packed) for day, packed in data["days"]}
        self.agents = data["agents"]
        self.before = data["before"]
        self.named = dict.fromkeys(data["named"])


def add(cell: Cell, more: Cell) -> None:
    for at, value in enumerate(more):
        cell[at] += value


def summed(cells: Any, first: Cell) -> Cell:
    """Add cells up, in a new one."""
    return [sum(column) for column in zip(first, *cells, strict=True)]


def _busyness(item: tuple[str, Cell]) -> int:
    cell = item[1]
    return cell[CREATED] + cell[ENDED] + cell[FAILED]


def _trimmed(day: Day) -> Day:
    if len(day.agents) <= AGENTS_A_DAY:
        return day
    kept = dict(nlargest(AGENTS_A_DAY, day.agents.items(), key=_busyness))
    rest = [cell for agent, cell in day.agents.items() if agent not in kept]
    return Day(kept, summed(rest, day.other))


def _packed(day: Day) -> bytes:
    return orjson.dumps(list(day))


def _unpacked(blob: bytes) -> Day:
    return Day(*orjson.loads(blob))

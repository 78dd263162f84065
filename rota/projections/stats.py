"""The counters: global and per agent, for all time and since the last start.

`avgDispatchLatencyMs` runs from queue entry to dispatch; execution time is its own figure. Agents
are counted one by one while they are busy, and so are the `AGENTS_KEPT` that were counted last;
what the others had goes into `rest`. `uncounted` is no part of the fold: refusals of the present
second, which admission counts and has not recorded yet.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from rota.domain.browsers import REACHED_CODE
from rota.domain.task import WAITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.refusals import Refusals
    from rota.domain.task import Task

AGENTS_KEPT = 10_000
LOOKS = 8
"""How many agents are looked at when one is counted and there are too many."""

COUNTERS = (
    "submitted",
    "completed",
    "failed",
    "cancelled",
    "rejected",
    "expired",
    "dispatched",
    "dispatch_wait_us",
    "executed",
    "execution_us",
    "interrupted",
    "refused",
    "retried",
)
PER_AGENT = ("submitted", "completed", "failed", "cancelled", "rejected")
REST = ("agents", *PER_AGENT)
"""How many agents were forgotten (some may be counted twice), and what they had."""


class Stats:
    """Counts of everything that happened to tasks."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(COUNTERS, 0)
        self.at_start = dict.fromkeys(COUNTERS, 0)
        self.agents: OrderedDict[str, dict[str, int]] = OrderedDict()
        self.agents_at_start: dict[str, dict[str, int]] = {}
        self.rest = dict.fromkeys(REST, 0)
        self.rest_at_start = dict.fromkeys(REST, 0)
        self.is_busy: Callable[[str], bool] = lambda _agent: False
        self.uncounted: Refusals | None = None

    def on_server_started(self, record: Record[e.ServerStarted]) -> None:
        """Count `since start` from here."""
        event = record.event
        if event.resumed:
            return
        self.at_start = dict(self.totals)
        self.agents_at_start = {agent: dict(counts) for agent, counts in self.agents.items()}
        self.rest_at_start = dict(self.rest)

    def on_submitted(self, record: Record[e.TaskSubmitted], task: Task) -> None:
        del record
        self._count("submitted", task.agent)

    def on_rejected(self, record: Record[e.TaskRejected], task: Task) -> None:
        del record
        self._count("rejected", task.agent)

    def on_refusals(self, record: Record[e.RefusalsCounted]) -> None:
        event = record.event
        for agent, many in event.agents.items():
            self._count("rejected", agent, many)
        self.totals["rejected"] += event.others
        self.rest["rejected"] += event.others

    def on_assigned(self, record: Record[e.TaskAssigned], task: Task) -> None:
        totals = self.totals
        totals["dispatched"] += 1
        wait = record.at - task.ready_at
        if wait > 0:
            totals["dispatch_wait_us"] += wait

    def on_succeeded(self, record: Record[e.TaskSucceeded], task: Task) -> None:
        self._count("completed", task.agent)
        self._executed(record, task)

    def on_failed(self, record: Record[e.TaskFailed], task: Task) -> None:
        self._count("failed", task.agent)
        event = record.event
        if event.code != REACHED_CODE:  # which no attempt led to
            self._executed(record, task)

    def on_attempt_failed(self, record: Record[e.AttemptFailed], task: Task) -> None:
        self.totals["retried"] += 1
        self._executed(record, task)

    def on_expired(self, record: Record[e.TaskExpired], task: Task) -> None:
        del record
        self.totals["expired"] += 1
        self._count("failed", task.agent)

    def on_cancelled(self, record: Record[e.TaskCancelled], task: Task) -> None:
        self._count("cancelled", task.agent)
        event = record.event
        if event.was not in WAITING:
            self._executed(record, task)

    def on_interrupted(self, record: Record[e.AttemptInterrupted], task: Task) -> None:
        del record, task
        self.totals["interrupted"] += 1

    def on_refused(self, record: Record[e.ResultRefused]) -> None:
        del record
        self.totals["refused"] += 1

    def _executed(self, record: Record[e.TaskFact], task: Task) -> None:
        if task.started_at:
            totals = self.totals
            totals["executed"] += 1
            run = record.at - task.started_at
            if run > 0:
                totals["execution_us"] += run

    def _count(self, name: str, agent: str, many: int = 1) -> None:
        self.totals[name] += many
        counts = self.agents.get(agent)
        if counts is None:
            counts = self.agents[agent] = dict.fromkeys(PER_AGENT, 0)
        else:
            self.agents.move_to_end(agent)
        counts[name] += many
        if len(self.agents) > AGENTS_KEPT:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Look at those longest without news: sum up who is idle, let who is not go on."""
        for _ in range(LOOKS):
            agent = next(iter(self.agents))
            if self.is_busy(agent):
                self.agents.move_to_end(agent)
                continue
            counts = self.agents.pop(agent)
            before = self.agents_at_start.pop(agent, None)
            self.rest["agents"] += 1
            for name, value in counts.items():
                self.rest[name] += value
            for name, value in (before or {}).items():
                self.rest_at_start[name] += value
            if len(self.agents) <= AGENTS_KEPT:
                return

    def all_time(self) -> dict[str, int]:
        """Give the counters, with what is counted and not recorded yet."""
        totals = dict(self.totals)
        if self.uncounted is not None:
            totals["rejected"] += self.uncounted.tasks
        return totals

    def of_agent(self, agent: str) -> dict[str, int]:
        """Give the counters of an agent, if it is known."""
        counts = self.agents.get(agent, {})
        refused = self.uncounted.agents.get(agent) if self.uncounted is not None else None
        if not refused:
            return counts
        counts = counts or dict.fromkeys(PER_AGENT, 0)
        return {**counts, "rejected": counts["rejected"] + refused}

    def since_start(self) -> dict[str, int]:
        return {name: value - self.at_start[name] for name, value in self.all_time().items()}

    def agents_since_start(self) -> dict[str, dict[str, int]]:
        """Give the counters of each agent that did anything since the server started."""
        none = dict.fromkeys(PER_AGENT, 0)
        found = {}
        for agent in {**self.agents, **(self.uncounted.agents if self.uncounted else {})}:
            counts, before = self.of_agent(agent), self.agents_at_start.get(agent, none)
            if counts != before:
                found[agent] = {name: counts[name] - before[name] for name in PER_AGENT}
        return found

    def rest_since_start(self) -> dict[str, int]:
        """Give the counters of those that are not counted one by one."""
        rest = {name: self.rest[name] - self.rest_at_start[name] for name in REST}
        if self.uncounted is not None:
            rest["rejected"] += self.uncounted.others
        return rest

    def dump(self) -> dict[str, Any]:
        return {
            "totals": self.totals,
            "atStart": self.at_start,
            "agents": dict(self.agents.items()),  # the writer would take them in another order
            "agentsAtStart": self.agents_at_start,
            "rest": self.rest,
            "restAtStart": self.rest_at_start,
        }

    def load(self, data: dict[str, Any]) -> None:
        self.totals = data["totals"]
        self.at_start = data["atStart"]
        self.agents = OrderedDict(data["agents"])
        self.agents_at_start = data["agentsAtStart"]
        self.rest = data["rest"]
        self.rest_at_start = data["restAtStart"]


def average_ms(total_us: int, count: int) -> float:
    """Give the average in milliseconds; 0.0 of nothing."""
    return round(total_us / count / 1000, 3) if count else 0.0

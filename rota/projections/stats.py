"""The counters: global and per agent, for all time and since the last start.

`avgDispatchLatencyMs` runs from queue entry to dispatch; execution time is its own figure. Agents
are counted one by one up to `AGENTS_MAX`; what comes after is counted in the totals only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.browsers import REACHED_CODE
from rota.domain.task import WAITING

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.task import Task

AGENTS_MAX = 100_000

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


class Stats:
    """Counts of everything that happened to tasks."""

    def __init__(self) -> None:
        """Start at zero."""
        self.totals = dict.fromkeys(COUNTERS, 0)
        self.at_start = dict.fromkeys(COUNTERS, 0)
        self.agents: dict[str, dict[str, int]] = {}
        self.agents_at_start: dict[str, dict[str, int]] = {}

    def on_server_started(self, record: Record) -> None:
        """Count `since start` from here."""
        event: e.ServerStarted = record.event  # type: ignore[assignment]
        if event.resumed:
            return
        self.at_start = dict(self.totals)
        self.agents_at_start = {agent: dict(counts) for agent, counts in self.agents.items()}

    def on_submitted(self, record: Record, task: Task) -> None:
        """Count an accepted task."""
        del record
        self._count("submitted", task.agent)

    def on_rejected(self, record: Record, task: Task) -> None:
        """Count a rejected task."""
        del record
        self._count("rejected", task.agent)

    def on_assigned(self, record: Record, task: Task) -> None:
        """Count a dispatch and what it waited."""
        totals = self.totals
        totals["dispatched"] += 1
        totals["dispatch_wait_us"] += record.at - task.ready_at

    def on_succeeded(self, record: Record, task: Task) -> None:
        """Count a success."""
        self._count("completed", task.agent)
        self._executed(record, task)

    def on_failed(self, record: Record, task: Task) -> None:
        """Count a failure."""
        self._count("failed", task.agent)
        event: e.TaskFailed = record.event  # type: ignore[assignment]
        if event.code != REACHED_CODE:  # which no attempt led to
            self._executed(record, task)

    def on_attempt_failed(self, record: Record, task: Task) -> None:
        """Count an attempt that failed and is followed by another."""
        self.totals["retried"] += 1
        self._executed(record, task)

    def on_expired(self, record: Record, task: Task) -> None:
        """Count a task that waited too long: expired, and failed."""
        del record
        self.totals["expired"] += 1
        self._count("failed", task.agent)

    def on_cancelled(self, record: Record, task: Task) -> None:
        """Count a cancellation."""
        self._count("cancelled", task.agent)
        event: e.TaskCancelled = record.event  # type: ignore[assignment]
        if event.was not in WAITING:
            self._executed(record, task)

    def on_interrupted(self, record: Record, task: Task) -> None:
        """Count an attempt that the server's end cut off."""
        del record, task
        self.totals["interrupted"] += 1

    def on_refused(self, record: Record) -> None:
        """Count a result that came too late."""
        del record
        self.totals["refused"] += 1

    def _executed(self, record: Record, task: Task) -> None:
        if task.started_at:
            self.totals["executed"] += 1
            self.totals["execution_us"] += record.at - task.started_at

    def _count(self, name: str, agent: str) -> None:
        self.totals[name] += 1
        counts = self.agents.get(agent)
        if counts is None:
            if len(self.agents) >= AGENTS_MAX:
                return
            counts = self.agents[agent] = dict.fromkeys(PER_AGENT, 0)
        counts[name] += 1

    def since_start(self) -> dict[str, int]:
        """Give the counters since the server started."""
        return {name: value - self.at_start[name] for name, value in self.totals.items()}

    def agents_since_start(self) -> dict[str, dict[str, int]]:
        """Give the counters of each agent that did anything since the server started."""
        none = dict.fromkeys(PER_AGENT, 0)
        found = {}
        for agent, counts in self.agents.items():
            before = self.agents_at_start.get(agent, none)
            if counts != before:
                found[agent] = {name: counts[name] - before[name] for name in PER_AGENT}
        return found

    def dump(self) -> dict[str, Any]:
        """Give everything for a snapshot."""
        return {
            "totals": self.totals,
            "atStart": self.at_start,
            "agents": self.agents,
            "agentsAtStart": self.agents_at_start,
        }

    def load(self, data: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.totals = data["totals"]
        self.at_start = data["atStart"]
        self.agents = data["agents"]
        self.agents_at_start = data["agentsAtStart"]


def average_ms(total_us: int, count: int) -> float:
    """Give the average in milliseconds; 0.0 of nothing."""
    return round(total_us / count / 1000, 3) if count else 0.0

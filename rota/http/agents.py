"""Agents as they are shown: by pages, or the busiest of them.

There may be a hundred thousand, so no answer has them all: a page is the next names in their order,
and where a document wants one object of all agents it gets the `AGENTS_SHOWN` with the most, and
the sum of the rest beside it.
"""

from __future__ import annotations

from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING, Any

from rota.config import PAGE_ROWS_MAX
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.http.call import Call
    from rota.projections.state import State

AGENTS_SHOWN = 1000
STATES = ("busy", "waiting", "inflight", "paused")


def page(call: Call, state: State) -> dict[str, Any]:
    """Give a page of agents, by name."""
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    after = call.query("cursor") or ""
    waiting, running = state.backlog.counts(), state.slots.by_agent()
    paused, known = state.control.paused, state.stats.agents
    names: Iterable[str] = {**waiting, **running, **paused, **known}
    asked = call.query("state")
    if asked is not None:
        if asked not in STATES:
            msg = f"unknown state '{asked[:50]}'; use {', '.join(STATES)}"
            raise InvalidRequest(msg, details={"field": "state"})
        busy = {**waiting, **running}
        tables: dict[str, Mapping[str, Any]]
        tables = {"busy": busy, "waiting": waiting, "inflight": running, "paused": paused}
        names = tables[asked]
    found = nsmallest(limit + 1, (name for name in names if name > after))
    rows = []
    for name in found[:limit]:
        row: dict[str, Any] = {
            "agentId": name,
            "waiting": waiting.get(name, 0),
            "inflight": running.get(name, 0),
            "paused": name in paused,
            **state.stats.of_agent(name),
        }
        if paused.get(name):
            row["pauseReason"] = paused[name]
        rows.append(row)
    body: dict[str, Any] = {"agents": rows, "count": len(rows)}
    if len(found) > limit:
        body["nextCursor"] = found[limit - 1]
    return body


def busiest_queues(counts: dict[str, int]) -> tuple[dict[str, int], dict[str, int] | None]:
    """Give how much waits of the agents with the most, and the sum of the rest if there are any."""
    if len(counts) <= AGENTS_SHOWN:
        return counts, None
    shown = dict(nlargest(AGENTS_SHOWN, counts.items(), key=lambda item: item[1]))
    rest = {"agents": len(counts) - len(shown), "queued": sum(counts.values())}
    rest["queued"] -= sum(shown.values())
    return shown, rest


def busiest_agents(
    counts: dict[str, dict[str, int]], rest: dict[str, int]
) -> tuple[dict[str, dict[str, int]], dict[str, int] | None]:
    """Give the counters of those with the most tasks; add the others up with `rest`."""
    if len(counts) > AGENTS_SHOWN:
        shown = dict(nlargest(AGENTS_SHOWN, counts.items(), key=lambda item: sum(item[1].values())))
        rest = dict(rest)
        rest["agents"] += len(counts) - len(shown)
        for name, each in counts.items():
            for counter, value in each.items() if name not in shown else ():
                rest[counter] += value
        counts = shown
    return counts, rest if any(rest.values()) else None

"""The figures of AutoMechanica's document: of all days in /v1/stats, by day in /v1/stats/daily.

The names are the document's. Times are milliseconds; an average or a rate of nothing is null. What
each figure counts is in docs/reference/metrics.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rota.clock import parse_rfc3339, rfc3339
from rota.config import ID_CHARS_MAX
from rota.errors import InvalidRequest
from rota.projections import daily as d

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rota.http.call import Call
    from rota.projections.daily import Cell, Daily
    from rota.projections.state import State

DAYS_SHOWN = 7
DAYS_SHOWN_MAX = 100
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def of_all_days(daily: Daily) -> dict[str, Any]:
    """Show the figures of all days: in all, of the agents that have names, and of the others."""
    total, agents = daily.total(), daily.by_name()
    shown = _section(total, agents, rest(total, agents.values()))
    for name, sum_at, at in (("wait", d.WAIT_US, d.WAITS), ("run", d.RUN_US, d.RUNS)):
        counts = total[at : at + d.BUCKETS]
        shown[name] = {"count": sum(counts), "sum_ms": total[sum_at] / 1000, "buckets": counts}
    shown["bounds_ms"] = [round(bound * 1000) for bound in d.BOUNDS_S]
    return shown


def rest(total: Cell, cells: Iterable[Cell]) -> Cell:
    """Give what is left of a sum."""
    named = d.summed(cells, [0] * len(total))
    return [whole - part for whole, part in zip(total, named, strict=True)]


def _section(total: Cell, agents: Mapping[str, Cell], other: Cell) -> dict[str, Any]:
    rows = {agent: _row(cell) for agent, cell in agents.items()}
    section = _row(total)
    section["error_rates_per_agent"] = {agent: row["error_rate"] for agent, row in rows.items()}
    section["agents"] = rows
    if any(other):
        section["other"] = _row(other)
    return section


def _row(cell: Cell) -> dict[str, Any]:
    return {
        "tasks_created": cell[d.CREATED],
        "tasks_completed": cell[d.COMPLETED],
        "tasks_failed": cell[d.FAILED],
        "average_latency": _ratio(cell[d.LATENCY_US] / 1000, cell[d.COMPLETED], 3),
        "worker_heartbeat_delay": _ratio(cell[d.SILENCE_MS], cell[d.LEASES], 3),
        "error_rate": _ratio(cell[d.ENDED_BADLY], cell[d.ENDED], 6),
    }


def _ratio(total: float, count: int, digits: int) -> float | None:
    return round(total / count, digits) if count else None


async def by_day(call: Call) -> Any:
    """GET /v1/stats/daily."""
    return call.json({"days": await days_of(call, "agentId")})


async def days_of(call: Call, agent_field: str) -> list[dict[str, Any]]:
    """Give the figures of some days, oldest first; the last week if none is named.

    Whoever is for some agents gets theirs alone: what other agents did is in no sum of it.
    """
    today = call.now() // d.DAY_US
    last = _day(call, "to", today)
    first = _day(call, "from", last - DAYS_SHOWN + 1)
    if first > last:
        raise _bad("from", "is after 'to'")
    if last - first >= DAYS_SHOWN_MAX:
        raise _bad("from", f"at most {DAYS_SHOWN_MAX} days can be asked for at once")
    agent, own = call.query(agent_field), call.caller.agents
    if agent is not None and len(agent) > ID_CHARS_MAX:
        raise _bad(agent_field, f"must have at most {ID_CHARS_MAX} characters")
    if agent is not None:
        call.caller.check_agents([agent])
    days = range(max(first, 0), min(last, today) + 1)

    def look(state: State) -> list[dict[str, Any]]:
        return [_of_day(state.daily, day, agent, own) for day in days]

    return await call.sight.seen(look)


def _of_day(
    daily: Daily, day: int, agent: str | None, own: Collection[str] | None
) -> dict[str, Any]:
    found, name, none = daily.of_day(day), {"day": rfc3339(day * d.DAY_US)[:10]}, [0] * d.KEPT
    if agent is None and own is None:
        return name | _section(found.total(), found.agents, found.other)
    if agent is None:
        cells = {each: cell for each, cell in found.agents.items() if each in (own or ())}
        return name | _section(d.summed(cells.values(), none), cells, none)
    cell = found.agents.get(agent)
    if cell is None and own is not None and any(found.other):
        return name | dict.fromkeys(_row(none))
    if cell is None and any(found.other):  # which may be this agent's, or not
        return name | dict.fromkeys(_row(found.other)) | {"other": _row(found.other)}
    return name | _row(cell or none)


def _day(call: Call, name: str, default: int) -> int:
    """Read a day of the query. Raises InvalidRequest."""
    text = call.query(name)
    if text is None:
        return default
    wrong = _bad(name, "must be a day such as 2026-03-08")
    if not _DAY.fullmatch(text):
        raise wrong
    try:
        return parse_rfc3339(f"{text}T00:00:00Z") // d.DAY_US
    except ValueError:
        raise wrong from None


def _bad(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"query parameter '{name}': {problem}", details={"field": name})

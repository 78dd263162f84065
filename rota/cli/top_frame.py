"""One frame of `rota top`: what two looks at a server tell, as lines for a terminal.

The rates, waits and runs are of the time between the looks; of a first look there is none, so its
waits and runs are of all time and its rates are left open. Whatever does not fit goes: rows first,
then columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rota.logs import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

RATES = ("submitted", "dispatched", "completed", "failed", "retried")
WIDE = 100
NOTHING = "-"
LINES_ABOVE = 7
HEADING_AND_REST = 2
NAME_CHARS_MIN = 12


class Look(NamedTuple):
    """What a server said at one moment; `workers` is None if it has no list of them."""

    at_s: float
    clock: str
    stats: dict[str, Any]
    scheduler: dict[str, Any]
    agents: list[dict[str, Any]]
    workers: list[dict[str, Any]] | None


class Page(NamedTuple):
    """What a frame is drawn on."""

    title: str
    width: int
    height: int | None = None
    lost: str = ""


def frame(look: Look, before: Look | None, page: Page) -> RenderableType:
    parts: list[RenderableType] = [_head(look, page), _queue(look), _rates(look, before)]
    parts += [_times(name, look, before) for name in ("wait", "run")]
    parts += [_sums(look.stats["figures"]), Text()]
    agents, workers = _room(look, page)
    parts.append(_agents(look, page, agents))
    if look.workers is not None:
        parts += [Text(), _workers(look.workers, page, workers)]
    return Group(*parts)


def _room(look: Look, page: Page) -> tuple[int | None, int | None]:
    """Say how many rows of agents and of workers there is room for; None is any number."""
    if page.height is None:
        return None, None
    left = page.height - LINES_ABOVE - bool(page.lost) - HEADING_AND_REST
    if look.workers is None:
        return max(left, 1), None
    workers = max(1, min(len(look.workers), left // 3))
    return max(left - workers - HEADING_AND_REST - 1, 1), workers


def _head(look: Look, page: Page) -> Text:
    left = Text(_cut(clean(page.title), page.width - len(look.clock) - 2), style="bold")
    left.pad_right(page.width - len(look.clock) - left.cell_len)
    left.append(look.clock)
    if page.lost:
        left.append(f"\n{_cut(clean(page.lost), page.width)}", style="red")
    return left


def _queue(look: Look) -> Text:
    queue, callbacks = look.stats["queue"], look.stats["callbacks"]
    said = [
        ("waiting", queue["waiting"]),
        ("in flight", queue["inflight"]),
        ("agents waiting", queue["agents"]),
        ("callbacks owed", callbacks["pending"]),
    ]
    line = _line("queue", [(name, f"{value:,}") for name, value in said])
    if look.scheduler["paused"]:
        line.append("   PAUSED", style="bold yellow")
    return line


def _rates(look: Look, before: Look | None) -> Text:
    """Say how much of what happened in a second."""
    rates = dict.fromkeys(RATES, NOTHING)
    if before is not None and look.at_s > before.at_s:
        passed, now, then = look.at_s - before.at_s, look.stats["total"], before.stats["total"]
        rates = {name: _rate((now[name] - then[name]) / passed) for name in RATES}
    return _line("per s", list(rates.items()))


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _times(name: str, look: Look, before: Look | None) -> Text:
    """Say how long tasks waited, or attempts ran, between the looks or ever."""
    now, bounds = look.stats["figures"][name], look.stats["figures"]["bounds_ms"]
    counts, total_ms = list(now["buckets"]), now["sum_ms"]
    if before is not None:
        then = before.stats["figures"][name]
        counts = [new - old for new, old in zip(counts, then["buckets"], strict=True)]
        total_ms -= then["sum_ms"]
    count = sum(counts)
    said = [(f"p{share}", _quantile(counts, bounds, share / 100)) for share in (50, 95, 99)]
    said += [("avg", shown_ms(total_ms / count) if count else NOTHING), ("of", f"{count:,}")]
    return _line(name, said)


def _quantile(counts: Sequence[int], bounds: Sequence[int], share: float) -> str:
    """Give the bound under which such a share lies, as near as the buckets tell."""
    left = sum(counts) * share
    if not left:
        return NOTHING
    for count, bound in zip(counts, bounds, strict=False):
        left -= count
        if left <= 0:
            return f"<{shown_ms(bound)}"
    return f">{shown_ms(bounds[-1])}"


def _sums(figures: dict[str, Any]) -> Text:
    said = [
        ("created", f"{figures['tasks_created']:,}"),
        ("completed", f"{figures['tasks_completed']:,}"),
        ("failed", f"{figures['tasks_failed']:,}"),
        ("latency", shown_ms(figures["average_latency"])),
        ("errors", _percent(figures["error_rate"])),
    ]
    return _line("in all", said)


def _line(name: str, said: Sequence[tuple[str, str]]) -> Text:
    line = Text(f"{name:<7}", style="bold", no_wrap=True, overflow="ellipsis")
    for at, (what, value) in enumerate(said):
        line.append("  " * bool(at))
        line.append(f"{what} ", style="not bold dim")
        line.append(value, style="not bold")
    return line


def _agents(look: Look, page: Page, room: int | None) -> RenderableType:
    figures = look.stats["figures"]["agents"]
    known = {each["agentId"]: each for each in look.agents}
    rows = [(name, known.get(name, {}), figures.get(name, {})) for name in {**known, **figures}]
    rows.sort(key=lambda row: (-_load(row[1]), -row[2].get("tasks_created", 0), row[0]))
    columns = ["waiting", "in flight", "completed", "failed", "latency", "errors"]
    if page.width >= WIDE:
        columns.insert(2, "created")
    shown = rows[:room] if room is not None else rows
    table = _table("agent", columns, page.width)
    for name, agent, row in shown:
        cells = {
            "waiting": f"{agent.get('waiting', 0):,}",
            "in flight": f"{agent.get('inflight', 0):,}",
            "created": _count(row.get("tasks_created")),
            "completed": _count(row.get("tasks_completed")),
            "failed": _count(row.get("tasks_failed")),
            "latency": shown_ms(row.get("average_latency")),
            "errors": _percent(row.get("error_rate")),
        }
        mark = " (paused)" if agent.get("paused") else ""
        table.add_row(clean(name) + mark, *(cells[column] for column in columns))
    return _with_rest(table, len(rows) - len(shown), "agents")


def _load(agent: dict[str, Any]) -> int:
    return int(agent.get("waiting", 0)) + int(agent.get("inflight", 0))


def _workers(workers: list[dict[str, Any]], page: Page, room: int | None) -> RenderableType:
    ordered = sorted(workers, key=lambda each: (-each.get("holds", 0), each["workerId"]))
    shown = ordered[:room] if room is not None else ordered
    columns = ["holds", "waiting", "delay", "last seen"]
    table = _table("worker", columns, page.width)
    for each in shown:
        table.add_row(
            clean(each["workerId"]),
            f"{each.get('holds', 0):,}",
            "yes" if each.get("waiting") else "no",
            shown_ms(each.get("heartbeatDelayMs")),
            clean(each.get("lastSeen", NOTHING))[11:19] or NOTHING,
        )
    if not shown:
        table.add_row("none has come yet", *[""] * len(columns))
    return _with_rest(table, len(ordered) - len(shown), "workers")


def _table(first: str, columns: Sequence[str], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", width=width)
    table.add_column(first, no_wrap=True, overflow="ellipsis", ratio=1, min_width=NAME_CHARS_MIN)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _with_rest(table: Table, left: int, noun: str) -> RenderableType:
    return Group(table, Text(f"and {left:,} more {noun}", style="dim")) if left > 0 else table


def _count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _percent(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate * 100:.1f} %"


def shown_ms(value: float | None) -> str:
    """Write a time in the unit that it is read in."""
    if value is None:
        return NOTHING
    for below, size, unit, digits in (
        (10, 1, "ms", 1),
        (1000, 1, "ms", 0),
        (120_000, 1000, "s", 1),
        (7_200_000, 60_000, "min", 0),
    ):
        if value < below:
            return f"{value / size:.{digits}f}".removesuffix(".0") + f" {unit}"
    return f"{value / 3_600_000:.0f} h"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"

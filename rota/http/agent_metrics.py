"""The document's figures for Prometheus: counters and histograms, by agent.

At most `AGENTS_MAX` agents have a label of their own, those that did the most on the last whole
day first; all others are `other`. Who has one changes when a day is over, and else only as new
agents come while there is room: `other` may then go up or down, as after a restart.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)

from rota.http.figures import rest
from rota.projections import daily as d

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from rota.projections.daily import Cell, Daily

AGENTS_MAX = 20
OTHER = "other"
LABELS = ("namespace", "agent")
COUNTERS = (
    ("rota_agent_tasks_created", "Tasks created", d.CREATED),
    ("rota_agent_tasks_completed", "Tasks completed", d.COMPLETED),
    ("rota_agent_tasks_failed", "Tasks failed for good", d.FAILED),
    ("rota_agent_attempts_ended", "Attempts that ended, well or badly", d.ENDED),
    ("rota_agent_attempts_failed", "Attempts that failed", d.ENDED_BADLY),
)
HISTOGRAMS = (
    ("rota_agent_wait_seconds", "From ready to assigned", d.WAIT_US, d.WAITS),
    ("rota_agent_run_seconds", "From an attempt's start to its end", d.RUN_US, d.RUNS),
)
_BOUNDS = (*(f"{bound:g}" for bound in d.BOUNDS_S), "+Inf")


def families(namespace: str, daily: Daily) -> Iterator[Metric]:
    cells = list(_labelled(daily).items())
    for name, meaning, at in COUNTERS:
        counter = CounterMetricFamily(name, meaning, labels=LABELS)
        for agent, cell in cells:
            counter.add_metric([namespace, agent], cell[at])
        yield counter
    latency = SummaryMetricFamily(
        "rota_agent_latency_seconds", "From creation to completion", labels=LABELS
    )
    delay = SummaryMetricFamily(
        "rota_agent_heartbeat_delay_seconds", "The longest silence of a lease", labels=LABELS
    )
    for agent, cell in cells:
        latency.add_metric([namespace, agent], cell[d.COMPLETED], cell[d.LATENCY_US] / 1e6)
        delay.add_metric([namespace, agent], cell[d.LEASES], cell[d.SILENCE_MS] / 1e3)
    yield latency
    yield delay
    for name, meaning, sum_at, at in HISTOGRAMS:
        histogram = HistogramMetricFamily(name, meaning, labels=LABELS)
        for agent, cell in cells:
            counts = accumulate(cell[at : at + d.BUCKETS])
            buckets = list(zip(_BOUNDS, counts, strict=True))
            histogram.add_metric([namespace, agent], buckets, cell[sum_at] / 1e6)
        yield histogram


def _labelled(daily: Daily) -> dict[str, Cell]:
    """Give the cells by label; an agent that is called `other` is counted with the others."""
    named = [item for item in daily.by_name().items() if item[0] != OTHER][:AGENTS_MAX]
    found = dict(named)
    others = rest(daily.total(), found.values())
    return {**found, OTHER: others} if any(others) else found

"""/health, /metrics, /v1/namespaces: is it well, and how does it do.

What names a namespace is told of that one. What names none is told of the default, and whether it
is well with all of them: one that fails keeps the server from saying `ok`, and not from working.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from rota import __version__
from rota.clock import US_PER_S, monotonic_s, rfc3339
from rota.http import agent_metrics
from rota.http.agent_metrics import OTHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from rota.http.call import Call
    from rota.http.namespaces import Namespace
    from rota.projections.projects import Projects
    from rota.projections.state import State
    from rota.sight.figures import Callbacks, Figures

STEPS_SHOWN_S = 600
"""So long after the clock was set, it is told."""
STEPS_SHOWN_MAX = 10
PROJECTS_NAMED_MAX = 20
"""So many projects have a label of their own, those with the most runs; the rest is `other`."""
_PROCESS = ProcessCollector(registry=None)


async def health(call: Call) -> Any:
    """GET /health."""
    namespace, now = call.namespace, call.now()
    figures = namespace.sight.figures()
    shown = _all(call) if not call.is_named else {}
    reason = _reason(namespace) or next(filter(None, map(_told, shown.values())), "")
    body: dict[str, Any] = {"status": "degraded" if reason else "ok"}
    if reason:
        body["reason"] = reason
    body |= {
        "agent_version": __version__,
        "uptime_seconds": int(monotonic_s() - call.app.started_s),
        **_figures(figures, now),
        "db": "unavailable" if figures.degraded else "damaged" if namespace.damage.reason else "ok",
        "timestamp": rfc3339(now // 1_000_000 * 1_000_000),
    }
    if len(shown) > 1:
        body["namespaces"] = {name: _condition(each) for name, each in shown.items()}
    return call.json(body)


def _all(call: Call) -> dict[str, Namespace]:
    return {each.name: each for each in call.app.namespaces}


def _reason(namespace: Namespace) -> str:
    """Say why it is not well with a namespace; nothing if it is."""
    return namespace.sight.figures().degraded or namespace.damage.reason


def _told(namespace: Namespace) -> str:
    reason = _reason(namespace)
    return reason and f"namespace {namespace.name}: {reason}"


def _condition(namespace: Namespace) -> dict[str, Any]:
    """Say in what state a namespace is, and why if it is not well."""
    figures, reason = namespace.sight.figures(), _reason(namespace)
    is_stopping = figures.is_stopping and not reason
    condition = {"state": "stopping" if is_stopping else figures.phase}
    return condition | ({"reason": reason} if reason else {})


async def namespaces(call: Call) -> Any:
    """GET /v1/namespaces: all of them, or the one that is named or that the token is bound to."""
    rows = []
    for each in (call.namespace,) if call.is_named else call.app.namespaces:
        figures = each.sight.figures()
        row = {"name": each.name, **_condition(each), "durableSeq": figures.durable_seq}
        if (state := figures.state) is not None:
            row |= {"waiting": state.backlog.total, "inflight": state.slots.total}
        rows.append(row)
    return call.json({"namespaces": rows, "count": len(rows)})


def _figures(found: Figures, now: int) -> dict[str, Any]:
    """Count what is here; nothing can be said while the state is being rebuilt."""
    if (state := found.state) is None:
        nothing = dict.fromkeys(("queued", "running", "max_concurrent"))
        return {"queue": nothing, "browsers": dict.fromkeys(("active", "max"))}
    limits, callbacks = state.control.limits, found.callbacks
    figures: dict[str, Any] = {
        "queue": {
            "queued": state.backlog.total,
            "running": state.slots.total,
            "max_concurrent": limits.inflight,
        },
        "browsers": {
            "active": len(state.browsers.held),
            "max": limits.browsers or limits.inflight,
        },
        "callbacks": {
            "pending": len(state.deliveries.pending),
            "oldest_seconds": callbacks.oldest_s if callbacks is not None else None,
        },
    }
    if ahead := state.schedules.ahead():
        figures["schedules_ahead"] = ahead
    stepped = state.steps.recent(now, STEPS_SHOWN_S * US_PER_S)
    if stepped:
        figures["clock_steps"] = [
            {
                "was": rfc3339(step.was),
                "now": rfc3339(step.now),
                "seconds": (step.now - step.was) / US_PER_S,
                "seq": step.seq,
            }
            for step in stepped[-STEPS_SHOWN_MAX:]
        ]
    return figures


async def live(call: Call) -> Any:
    """GET /health/live."""
    return call.json({"status": "ok"})


async def ready(call: Call) -> Any:
    """GET /health/ready: whether new work is taken; if no namespace is named, in any of them."""
    asked = (call.namespace,) if call.is_named else tuple(call.app.namespaces)
    reasons = {each.name: _refusal(each.sight.figures()) for each in asked}
    if all(reasons.values()):
        reason = reasons[asked[0].name]
        return call.json({"status": "unavailable", "reason": reason}, status=503)
    body: dict[str, Any] = {"status": "ok"}
    if any(reasons.values()):
        body["unavailable"] = {name: reason for name, reason in reasons.items() if reason}
    return call.json(body)


def _refusal(figures: Figures) -> str:
    return "stopping" if figures.is_stopping else figures.degraded


class FiguresCollector(Collector):
    """The figures of shards for Prometheus, read when they are asked for.

    Each metric is one family, whatever the number of namespaces; `namespace` is its first label.
    """

    def __init__(self, namespaces: Iterable[Namespace]) -> None:
        self._namespaces = namespaces

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for namespace in self._namespaces:
            for family in _families(namespace.name, namespace.sight.figures()):
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        yield from families.values()


def _families(name: str, figures: Figures) -> Iterator[Metric]:
    """Give the figures of one; of its log alone, while its state is being rebuilt."""
    yield _gauge(name, "rota_log_durable_seq", "Last durable event", figures.durable_seq)
    degraded = float(bool(figures.degraded))
    yield _gauge(name, "rota_degraded", "1 while the log takes no writes", degraded)
    if figures.state is not None:
        yield from _of_state(name, figures.state, figures.callbacks)


def _of_state(name: str, state: State, under_way: Callbacks | None) -> Iterator[Metric]:
    totals = state.stats.all_time()
    fates = ("submitted", "completed", "failed", "cancelled", "rejected", "expired")
    told = {fate: totals[fate] for fate in fates}
    yield _by_fate(name, "rota_tasks", "Tasks by what became of them", told)
    yield _gauge(name, "rota_tasks_waiting", "Tasks that wait", state.backlog.total)
    yield _gauge(name, "rota_tasks_inflight", "Tasks in flight", state.slots.total)
    yield _gauge(name, "rota_tasks_in_memory", "Tasks in memory", len(state.tasks))
    yield _summary(
        name,
        "rota_dispatch_wait_seconds",
        "From queue entry to dispatch",
        totals["dispatched"],
        totals["dispatch_wait_us"] / 1e6,
    )
    yield _summary(
        name,
        "rota_execution_seconds",
        "From start to end",
        totals["executed"],
        totals["execution_us"] / 1e6,
    )
    yield _counter(
        name, "rota_attempts_interrupted", "Attempts cut off by a restart", totals["interrupted"]
    )
    yield _counter(name, "rota_results_refused", "Results that came too late", totals["refused"])
    yield from agent_metrics.families(name, state.daily)
    yield from _of_projects(name, state.projects)
    callbacks = {
        "delivered": state.deliveries.delivered,
        "failed_try": state.deliveries.failed_tries,
        "abandoned": state.deliveries.abandoned,
    }
    yield _by_fate(name, "rota_callbacks", "Callbacks by fate", callbacks)
    yield _gauge(name, "rota_callbacks_pending", "Callbacks owed", len(state.deliveries.pending))
    yield _gauge(name, "rota_log_seq", "Last recorded event", state.seq)
    if under_way is None:
        return
    waiting, sending = under_way.waiting, under_way.sending
    yield _gauge(name, "rota_callbacks_waiting", "Callbacks that wait for a place", waiting)
    yield _gauge(name, "rota_callbacks_sending", "Callbacks being sent", sending)
    yield _gauge(
        name,
        "rota_callbacks_oldest_seconds",
        "How long the oldest callback has been owed",
        under_way.oldest_s,
    )


def _of_projects(name: str, projects: Projects) -> Iterator[Metric]:
    yield _gauge(name, "rota_projects", "Projects", len(projects.by_id))
    running, waiting = len(projects.running), len(projects.waiting)
    yield _gauge(name, "rota_project_runs_in_progress", "Projects being processed", running)
    yield _gauge(name, "rota_project_runs_pending", "Runs that wait for their turn", waiting)
    yield _gauge(name, "rota_project_tasks", "Tasks on the lists of projects", projects.items.held)
    yield _by_fate(name, "rota_project_runs", "Runs by why they ended", projects.figures.reasons)
    named = {each.id: each.figures for each in projects.by_id.values() if each.id != OTHER}
    most = sorted(named, key=lambda each: (-named[each].starts, each))[:PROJECTS_NAMED_MAX]
    ended = CounterMetricFamily(
        "rota_project_runs_ended",
        "Runs by project and why they ended",
        labels=["namespace", "project", "reason"],
    )
    seconds = SummaryMetricFamily(
        "rota_project_run_seconds",
        "How long runs were in progress, by project",
        labels=["namespace", "project"],
    )
    rest, rest_count, rest_us = Counter(projects.figures.reasons), *projects.figures.ended
    for each in most:
        figures = named[each]
        count, total_us = figures.ended
        rest -= Counter(figures.reasons)
        rest_count, rest_us = rest_count - count, rest_us - total_us
        for reason, times in figures.reasons.items():
            ended.add_metric([name, each, reason], times)
        seconds.add_metric([name, each], count, total_us / 1e6)
    for reason, times in rest.items():
        ended.add_metric([name, OTHER, reason], times)
    if rest_count:
        seconds.add_metric([name, OTHER], rest_count, rest_us / 1e6)
    yield ended
    yield seconds


def _gauge(namespace: str, name: str, meaning: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=["namespace"])
    family.add_metric([namespace], value)
    return family


def _counter(namespace: str, name: str, meaning: str, value: float) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=["namespace"])
    family.add_metric([namespace], value)
    return family


def _by_fate(namespace: str, name: str, meaning: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=["namespace", "fate"])
    for fate, value in values.items():
        family.add_metric([namespace, fate], value)
    return family


def _summary(namespace: str, name: str, meaning: str, count: int, total: float) -> Metric:
    family = SummaryMetricFamily(name, meaning, labels=["namespace"])
    family.add_metric([namespace], count_value=count, sum_value=total)
    return family


async def metrics(call: Call) -> Any:
    """GET /metrics: of all namespaces, or of the one that is named."""
    registry = CollectorRegistry()
    registry.register(FiguresCollector((call.namespace,) if call.is_named else call.app.namespaces))
    registry.register(_PROCESS)
    text = generate_latest(registry)
    return call.raw(text, content_type="text/plain; version=0.0.4; charset=utf-8")

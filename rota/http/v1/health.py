"""/health, /metrics: is it well, and how does it do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from rota import __version__
from rota.actors.runtime import body_of
from rota.clock import rfc3339
from rota.domain.commands import BROWSERS_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from rota.actors.system import Shard
    from rota.http.call import Call


async def health(call: Call) -> Any:
    """GET /health."""
    shard = call.bridge.shard
    limits = shard.state.control.limits
    now = call.now()
    body: dict[str, Any] = {"status": "degraded" if shard.degraded else "ok"}
    if shard.degraded:
        body["reason"] = shard.degraded
    body |= {
        "agent_version": __version__,
        "uptime_seconds": (now - call.app.started_at) // 1_000_000,
        "queue": {
            "queued": shard.state.backlog.total,
            "running": shard.state.slots.total,
            "max_concurrent": limits.inflight,
        },
        "browsers": {
            "active": shard.state.slots.of_limit(BROWSERS_LIMIT),
            "max": limits.browsers or limits.inflight,
        },
        "callbacks": {
            "pending": len(shard.state.deliveries.pending),
            "oldest_seconds": body_of(shard.webhook).oldest_s(now),
        },
        "db": "unavailable" if shard.degraded else "ok",
        "timestamp": rfc3339(now // 1_000_000 * 1_000_000),
    }
    return call.json(body)


async def live(call: Call) -> Any:
    """GET /health/live."""
    return call.json({"status": "ok"})


async def ready(call: Call) -> Any:
    """GET /health/ready: whether new work is taken."""
    shard = call.bridge.shard
    reason = "stopping" if shard.stopping else shard.degraded
    if reason:
        return call.json({"status": "unavailable", "reason": reason}, status=503)
    return call.json({"status": "ok"})


class ShardCollector(Collector):
    """A shard's figures for Prometheus, read when they are asked for."""

    def __init__(self, shard: Shard) -> None:
        """Read from `shard`."""
        self._shard = shard

    def collect(self) -> Iterator[Metric]:
        """Give the figures of this moment."""
        state = self._shard.state
        totals = state.stats.totals
        tasks = CounterMetricFamily("rota_tasks", "Tasks by what became of them", labels=["fate"])
        for fate in ("submitted", "completed", "failed", "cancelled", "rejected", "expired"):
            tasks.add_metric([fate], totals[fate])
        yield tasks
        yield GaugeMetricFamily("rota_tasks_waiting", "Tasks that wait", state.backlog.total)
        yield GaugeMetricFamily("rota_tasks_inflight", "Tasks in flight", state.slots.total)
        yield GaugeMetricFamily("rota_tasks_in_memory", "Tasks in memory", len(state.tasks))
        yield SummaryMetricFamily(
            "rota_dispatch_wait_seconds",
            "From queue entry to dispatch",
            count_value=totals["dispatched"],
            sum_value=totals["dispatch_wait_us"] / 1e6,
        )
        yield SummaryMetricFamily(
            "rota_execution_seconds",
            "From start to end",
            count_value=totals["executed"],
            sum_value=totals["execution_us"] / 1e6,
        )
        yield CounterMetricFamily(
            "rota_attempts_interrupted", "Attempts cut off by a restart", totals["interrupted"]
        )
        yield CounterMetricFamily(
            "rota_results_refused", "Results that came too late", totals["refused"]
        )
        callbacks = CounterMetricFamily("rota_callbacks", "Callbacks by fate", labels=["fate"])
        callbacks.add_metric(["delivered"], state.deliveries.delivered)
        callbacks.add_metric(["failed_try"], state.deliveries.failed_tries)
        callbacks.add_metric(["abandoned"], state.deliveries.abandoned)
        yield callbacks
        yield GaugeMetricFamily(
            "rota_callbacks_pending", "Callbacks owed", len(state.deliveries.pending)
        )
        webhook = body_of(self._shard.webhook)
        yield GaugeMetricFamily(
            "rota_callbacks_waiting", "Callbacks that wait for a place", webhook.receivers.waiting
        )
        yield GaugeMetricFamily(
            "rota_callbacks_sending", "Callbacks being sent", webhook.receivers.active
        )
        yield GaugeMetricFamily(
            "rota_callbacks_oldest_seconds",
            "How long the oldest callback has been owed",
            webhook.oldest_s(self._shard.journal.now()),
        )
        yield GaugeMetricFamily("rota_log_seq", "Last recorded event", state.seq)
        durable = self._shard.journal.durable_seq
        yield GaugeMetricFamily("rota_log_durable_seq", "Last durable event", durable)
        degraded = float(bool(self._shard.degraded))
        yield GaugeMetricFamily("rota_degraded", "1 while the log takes no writes", degraded)


def registry_for(shard: Shard) -> CollectorRegistry:
    """Make the registry of one server."""
    registry = CollectorRegistry()
    registry.register(ShardCollector(shard))
    ProcessCollector(registry=registry)
    return registry


async def metrics(call: Call) -> Any:
    """GET /metrics."""
    text = generate_latest(call.app.registry)
    return call.raw(text, content_type="text/plain; version=0.0.4; charset=utf-8")

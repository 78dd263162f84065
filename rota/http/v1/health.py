"""/health, /metrics: is it well, and how does it do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from rota import __version__
from rota.actors.failover import Phase
from rota.actors.runtime import body_of
from rota.actors.webhook import WebhookActor
from rota.clock import US_PER_S, monotonic_s, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from rota.actors.system import Shard
    from rota.http.call import Call

STEPS_SHOWN_S = 600
"""So long after the clock was set, it is told."""
STEPS_SHOWN_MAX = 10


async def health(call: Call) -> Any:
    """GET /health."""
    shard = call.bridge.shard
    now = call.now()
    reason = shard.degraded or call.app.damage.reason
    body: dict[str, Any] = {"status": "degraded" if reason else "ok"}
    if reason:
        body["reason"] = reason
    body |= {
        "agent_version": __version__,
        "uptime_seconds": int(monotonic_s() - call.app.started_s),
        **_figures(shard, now),
        "db": "unavailable" if shard.degraded else "damaged" if reason else "ok",
        "timestamp": rfc3339(now // 1_000_000 * 1_000_000),
    }
    return call.json(body)


def _figures(shard: Shard, now: int) -> dict[str, Any]:
    """Count what is here; nothing can be said while the state is being rebuilt."""
    if shard.failover.phase is Phase.REBUILDING:
        nothing = dict.fromkeys(("queued", "running", "max_concurrent"))
        return {"queue": nothing, "browsers": dict.fromkeys(("active", "max"))}
    limits, webhook = shard.state.control.limits, _webhook(shard)
    figures: dict[str, Any] = {
        "queue": {
            "queued": shard.state.backlog.total,
            "running": shard.state.slots.total,
            "max_concurrent": limits.inflight,
        },
        "browsers": {
            "active": len(shard.state.browsers.held),
            "max": limits.browsers or limits.inflight,
        },
        "callbacks": {
            "pending": len(shard.state.deliveries.pending),
            "oldest_seconds": webhook.oldest_s(now) if webhook is not None else None,
        },
    }
    stepped = shard.state.steps.recent(now, STEPS_SHOWN_S * US_PER_S)
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
        """Give the figures of this moment; of the log alone, while the state is being rebuilt."""
        durable = self._shard.journal.durable_seq
        yield GaugeMetricFamily("rota_log_durable_seq", "Last durable event", durable)
        degraded = float(bool(self._shard.degraded))
        yield GaugeMetricFamily("rota_degraded", "1 while the log takes no writes", degraded)
        if self._shard.failover.phase is not Phase.REBUILDING:
            yield from self._of_state()

    def _of_state(self) -> Iterator[Metric]:
        state = self._shard.state
        totals = state.stats.all_time()
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
        yield GaugeMetricFamily("rota_log_seq", "Last recorded event", state.seq)
        webhook = _webhook(self._shard)
        if webhook is None:
            return
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


def _webhook(shard: Shard) -> WebhookActor | None:
    """Give the actor that delivers callbacks; nobody does while nothing can be recorded."""
    actor = body_of(shard.webhook)
    return actor if isinstance(actor, WebhookActor) else None


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

"""/v1/agents, /v1/stats, /v1/config: what operators look at and set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import ID_CHARS_MAX, merge_scheduler
from rota.errors import ConfigError, InvalidRequest
from rota.http.models import ReasonBody, ReloadBody
from rota.projections.stats import average_ms

if TYPE_CHECKING:
    from rota.http.app import Call


async def list_agents(call: Call) -> Any:
    """GET /v1/agents."""
    state = call.bridge.shard.state
    waiting, running = state.backlog.counts(), state.slots.by_agent()
    paused = state.control.paused
    names = sorted({*waiting, *running, *paused, *state.stats.agents})
    rows = []
    for name in names:
        row: dict[str, Any] = {
            "agentId": name,
            "waiting": waiting.get(name, 0),
            "inflight": running.get(name, 0),
            "paused": name in paused,
            **state.stats.agents.get(name, {}),
        }
        if paused.get(name):
            row["pauseReason"] = paused[name]
        rows.append(row)
    return call.json(await call.bridge.durable({"agents": rows, "count": len(rows)}))


def _agent(call: Call) -> str:
    agent = call.params["id"]
    if not agent.strip() or len(agent) > ID_CHARS_MAX or not agent.isprintable():
        raise InvalidRequest("the agent's id is blank, too long or not printable")
    return agent


async def pause_agent(call: Call) -> Any:
    """POST /v1/agents/{id}/pause."""
    body = await call.body(ReasonBody, optional=True)
    agent = await call.bridge.pause(_agent(call), body.reason, call.by)
    return call.json({"agentId": agent, "paused": True})


async def resume_agent(call: Call) -> Any:
    """POST /v1/agents/{id}/resume."""
    agent = await call.bridge.resume(_agent(call), call.by)
    return call.json({"agentId": agent, "paused": False})


async def stats(call: Call) -> Any:
    """GET /v1/stats."""
    state = call.bridge.shard.state
    body = {
        "queue": {
            "waiting": state.backlog.total,
            "inflight": state.slots.total,
            "agents": len(state.backlog.orders),
            "tasksInMemory": len(state.tasks),
        },
        "sinceStart": _figures(state.stats.since_start()),
        "total": _figures(state.stats.totals),
        "callbacks": {
            "pending": len(state.deliveries.pending),
            "delivered": state.deliveries.delivered,
            "failedTries": state.deliveries.failed_tries,
            "abandoned": state.deliveries.abandoned,
        },
        "log": {"seq": state.seq, "durableSeq": call.bridge.shard.journal.durable_seq},
    }
    return call.json(await call.bridge.durable(body))


def _figures(counts: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {n: v for n, v in counts.items() if not n.endswith("_us")}
    shown["avgDispatchLatencyMs"] = average_ms(counts["dispatch_wait_us"], counts["dispatched"])
    shown["avgExecutionMs"] = average_ms(counts["execution_us"], counts["executed"])
    return shown


async def get_config(call: Call) -> Any:
    """GET /v1/config: what is in force, without secrets."""
    return call.json(call.app.shown_settings())


async def reload_config(call: Call) -> Any:
    """POST /v1/config/reload."""
    body = await call.body(ReloadBody, optional=True)
    try:
        if body.scheduler is not None:
            settings = merge_scheduler(call.bridge.settings, body.scheduler)
            changed = await call.app.put_in_force(settings, "api", call.by)
        else:
            changed = await call.app.reload("api", call.by)
    except ConfigError as error:
        raise InvalidRequest(error.message, code="bad_config", hint="nothing changed") from error
    return call.json({"changed": changed, **call.app.shown_settings()})

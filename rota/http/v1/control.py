"""/v1/agents, /v1/types, /v1/scheduler, /v1/stats, /v1/config: what operators look at and set."""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rota.config import scheduler_changes
from rota.domain.declared import EVERY_AGENT, limit_of
from rota.domain.intake import CHAT
from rota.domain.retry import RetryPolicy
from rota.errors import ConfigError, InvalidRequest
from rota.http import agents, figures, views
from rota.http.models import ACTION, AGENT_ID, ReasonBody, ReloadBody
from rota.projections.stats import average_ms
from rota.shown_settings import shown
from rota.wording import first_wrong

if TYPE_CHECKING:
    from rota.http.call import Call
    from rota.projections.state import State


DECLARED_SHOWN = 1000


async def list_agents(call: Call) -> Any:
    """GET /v1/agents."""
    return call.json(await call.sight.seen(lambda state: agents.page(call, state)))


def _agent(call: Call) -> str:
    try:
        return AGENT_ID.validate_python(call.params["id"])
    except ValidationError as error:
        raise InvalidRequest(f"agent id: {first_wrong(error)[2]}") from None


async def pause_agent(call: Call) -> Any:
    """POST /v1/agents/{id}/pause."""
    body = await call.body(ReasonBody, optional=True)
    agent = await call.bridge.pause(_agent(call), body.reason, call.by)
    return call.json({"agentId": agent, "paused": True})


async def resume_agent(call: Call) -> Any:
    """POST /v1/agents/{id}/resume."""
    agent = await call.bridge.resume(_agent(call), call.by)
    return call.json({"agentId": agent, "paused": False})


async def list_types(call: Call) -> Any:
    """GET /v1/types: the registry, and how busy each type is."""
    return call.json(await call.sight.seen(lambda state: _types(call, state)))


def _types(call: Call, state: State) -> dict[str, Any]:
    caps = dict(state.control.limits.types)
    paused = state.control.paused_types
    settings = call.bridge.settings
    known = {name: settings.type_settings(name) for name in settings.types}
    known[CHAT] = settings.chats()
    declared = _declared(state)
    rows = []
    for name in sorted({*known, *caps, *paused, *declared}):
        row: dict[str, Any] = {"type": name}
        if name in known:
            row |= known[name].model_dump(mode="json", by_alias=True, exclude_none=True)
        if name in caps:
            row["maxConcurrent"] = caps[name]
        row |= {"inflight": state.slots.of_limit(f"type:{name}"), "paused": name in paused}
        if paused.get(name):
            row["pauseReason"] = paused[name]
        if name in declared:
            row["declared"] = declared[name]
        rows.append(row)
    body: dict[str, Any] = {"types": rows, "count": len(rows)}
    if rest := max(0, len(state.control.declared.by_key) - DECLARED_SHOWN):
        body["declaredRest"] = rest
    return body


def _declared(state: State) -> dict[str, list[dict[str, Any]]]:
    """Show what workers declared, by type: the first so many, each with whose token it is."""
    shown: dict[str, list[dict[str, Any]]] = {}
    known = state.control.declared
    for (agent, action), each in islice(known.by_key.items(), DECLARED_SHOWN):
        row: dict[str, Any] = {} if agent == EVERY_AGENT else {"agentId": agent}
        row["by"] = each.by
        if each.retry is not None:
            row["retry"] = views.retry(RetryPolicy(**each.retry))
        if each.timeout_ms is not None:
            row["timeoutMs"] = each.timeout_ms
        if each.max_concurrent is not None:
            inflight = state.slots.of_limit(limit_of(agent, action))
            row |= {"maxConcurrent": each.max_concurrent, "inflight": inflight}
        shown.setdefault(action, []).append(row)
    return shown


def _type(call: Call) -> str:
    try:
        return ACTION.validate_python(call.params["id"])
    except ValidationError as error:
        raise InvalidRequest(f"type: {first_wrong(error)[2]}") from None


async def pause_type(call: Call) -> Any:
    """POST /v1/types/{id}/pause."""
    body = await call.body(ReasonBody, optional=True)
    name = _type(call)
    await call.bridge.pause_type(name, paused=True, reason=body.reason, by=call.by)
    return call.json({"type": name, "paused": True})


async def resume_type(call: Call) -> Any:
    """POST /v1/types/{id}/resume."""
    name = _type(call)
    await call.bridge.pause_type(name, paused=False, reason="", by=call.by)
    return call.json({"type": name, "paused": False})


async def get_scheduler(call: Call) -> Any:
    """GET /v1/scheduler."""
    return call.json(await call.sight.seen(_scheduler))


def _scheduler(state: State) -> dict[str, Any]:
    control = state.control
    body: dict[str, Any] = {
        "paused": control.stopped is not None,
        "pausedAgents": nsmallest(agents.AGENTS_SHOWN, control.paused),
        "pausedTypes": nsmallest(agents.AGENTS_SHOWN, control.paused_types),
    }
    if len(control.paused) > agents.AGENTS_SHOWN:
        body["pausedAgentsRest"] = len(control.paused) - agents.AGENTS_SHOWN
    if control.stopped:
        body["pauseReason"] = control.stopped
    return body


async def pause_scheduler(call: Call) -> Any:
    """POST /v1/scheduler/pause."""
    body = await call.body(ReasonBody, optional=True)
    await call.bridge.pause_scheduler(paused=True, reason=body.reason, by=call.by)
    return call.json({"paused": True})


async def resume_scheduler(call: Call) -> Any:
    """POST /v1/scheduler/resume."""
    await call.bridge.pause_scheduler(paused=False, reason="", by=call.by)
    return call.json({"paused": False})


async def stats(call: Call) -> Any:
    """GET /v1/stats."""
    return call.json(await call.sight.seen(lambda state: _stats(state, call.sight.durable_seq)))


def _stats(state: State, durable_seq: int) -> dict[str, Any]:
    return {
        "queue": {
            "waiting": state.backlog.total,
            "inflight": state.slots.total,
            "agents": len(state.backlog.orders),
            "tasksInMemory": len(state.tasks),
            "waitingBytes": state.backlog.waiting_bytes.held,
            "inflightBytes": state.slots.bytes.held,
            "endedBytes": state.tasks.ended_bytes,
        },
        "sinceStart": _figures(state.stats.since_start()),
        "total": _figures(state.stats.all_time()),
        "callbacks": {
            "pending": len(state.deliveries.pending),
            "delivered": state.deliveries.delivered,
            "failedTries": state.deliveries.failed_tries,
            "abandoned": state.deliveries.abandoned,
        },
        "log": {"seq": state.seq, "durableSeq": durable_seq},
        "figures": figures.of_all_days(state.daily),
    }


def _figures(counts: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {n: v for n, v in counts.items() if not n.endswith("_us")}
    shown["avgDispatchLatencyMs"] = average_ms(counts["dispatch_wait_us"], counts["dispatched"])
    shown["avgExecutionMs"] = average_ms(counts["execution_us"], counts["executed"])
    return shown


async def get_config(call: Call) -> Any:
    """GET /v1/config: what is in force, without secrets."""
    return call.json(_settings(call))


def _settings(call: Call) -> dict[str, Any]:
    """Show what is in force; whoever names a namespace is told of that one alone."""
    settings = call.bridge.settings
    values = {**shown(settings), "sources": settings.sources()}
    if call.is_named:
        values["namespaces"] = {}
        values["sources"] = {
            key: source
            for key, source in values["sources"].items()
            if not key.startswith("namespaces.")
        }
    return values


async def reload_config(call: Call) -> Any:
    """POST /v1/config/reload."""
    body = await call.body(ReloadBody, optional=True)
    try:
        if body.scheduler is not None:
            changes = scheduler_changes(body.scheduler)
            changed = await call.app.reloading.change(call.namespace, changes, "api", call.by)
            late, later = [], {}
        else:
            done = await call.app.reloading.reload("api", call.by)
            changed, late, later = done.changed[call.namespace.name], done.late, done.waiting
    except ConfigError as error:
        raise InvalidRequest(error.message, code="bad_config", hint="nothing changed") from error
    waiting: dict[str, Any] = {"needsRestart": late} if late else {}
    if later:
        waiting["needsLog"] = later
    return call.json({"changed": changed, **waiting, **_settings(call)})

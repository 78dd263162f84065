"""/v1/leases, /v1/workers: tasks lent to workers, what they say of them, and who they are.

Also what they declare about the types that they serve, by POST /v1/types.

A worker waits here for its turn; if it leaves before its answer, what it was given goes back at
once. One that has closed its half of the connection counts as gone: it may hear of nothing, and a
task that is lent to nobody would wait for its lease to expire. Every outcome carries the token of
its lease.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.config import PAGE_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX
from rota.domain.commands import Outcome
from rota.domain.declared import DECLARED_MAX, EVERY_AGENT, Declared
from rota.domain.leases import lease_id
from rota.domain.packed import spliced
from rota.domain.wants import FILTERS_MAX, Filter, Wants
from rota.errors import InvalidRequest, QueueFull, RotaError
from rota.http import views
from rota.http.lease_models import (
    CompleteBody,
    DeclareBody,
    FailBody,
    FailFields,
    HeartbeatBody,
    HeldBody,
    LeaseBody,
    SettleBody,
    WantsBody,
)
from rota.http.presence import connection_of
from rota.http.problems import native_body
from rota.sight.room import take_room

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.actors.lent import Lent, Settled
    from rota.domain.declared import Key
    from rota.http.call import Call
    from rota.sight.workers import Stop

    Rows = list[dict[str, Any]]
    Show = Callable[[str, Lent], dict[str, Any]]

WORKER_ERROR = "worker_error"
"""The code of a failure that its worker gives no name."""


async def lease(call: Call) -> Any:
    """POST /v1/leases."""
    body = await call.body(LeaseBody)
    shown, more = await take(call, body, _shown)
    return call.json({"leases": shown, **more})


async def take(call: Call, body: LeaseBody, show: Show) -> tuple[Rows, dict[str, Any]]:
    """Lend tasks to a worker; say what it is to stop, and what holds tasks if there are none."""
    wants = _wanted(call, body.workerId, body)
    return await _lent(call, wants, body.waitMs, show)


async def _more(call: Call, wants: Wants, lent: Rows, stops: list[str]) -> dict[str, Any]:
    """Say what a worker is to stop working on, and what holds tasks if it was given none."""
    reason = await call.sight.why_none(wants) if not lent else None
    more: dict[str, Any] = {"waitReason": reason} if reason is not None else {}
    if stops and (found := await call.sight.stops(wants.worker, stops)):
        more["stop"] = [_stop(each) for each in found.values()]
    return more


async def _lent(call: Call, wants: Wants, wait_ms: int, show: Show) -> tuple[Rows, dict[str, Any]]:
    """Wait for tasks, or for something to stop, as long as the worker does.

    What it was given goes back if there is no room for the answer, or nobody to read it.
    """
    connection = connection_of(call.request)

    def has_left() -> bool:
        """Whether it hangs up, of which the end is the first to be heard, or could unheard."""
        return connection.is_gone or connection.at_eof or connection.is_deaf

    def left() -> None:
        if has_left():
            asked.leave()

    def leave() -> None:
        asked.leave()

    stops: list[str] = []

    def to_stop(name: str, agent: str) -> None:
        if call.sight.may_see(agent):
            stops.append(name)
            asked.wait_no_longer()

    waits = wait_ms > 0 and not connection.is_excess
    with connection.attended(left), ExitStack() as waiting:
        if waits:
            waiting.enter_context(call.staying(wants.share, leave))
            waiting.enter_context(call.namespace.watches.stops(wants.worker, to_stop))
        asked = call.bridge.lend(wants, wait_ms if waits else 0)
        left()
        lent = await asked.answer()
    shown = [show(wants.worker, each) for each in lent]
    try:
        await take_room(shown)
        call.check_welcome()
        is_told = not has_left()
    except BaseException:
        _give_back(call, lent)
        raise
    if not is_told:
        _give_back(call, lent)
        shown = []
    return shown, await _more(call, wants, shown, stops)


def _give_back(call: Call, lent: list[Lent]) -> None:
    if lent:
        call.bridge.give_back(lent)


def _stop(stop: Stop) -> dict[str, Any]:
    shown = {"leaseId": stop.lease, "state": stop.state, "expiresAt": _moment(stop.expires_at)}
    shown |= {"code": stop.code, "error": stop.error}
    return {name: value for name, value in shown.items() if value is not None}


def _moment(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)


def _wanted(call: Call, worker: str, body: WantsBody) -> Wants:
    """Say what a worker asks for, of the agents that its token is for."""
    filters = []
    for each in body.wants or [body]:
        agents = call.may_work_for(each.agents)
        filters.append(
            Filter(
                tuple(dict.fromkeys(agents)) if agents is not None else None,
                tuple(dict.fromkeys(each.types)) if each.types is not None else None,
            )
        )
    if sum(len(each.agents or "1") * len(each.types or "1") for each in filters) > FILTERS_MAX:
        msg = f"agents times types must not be more than {FILTERS_MAX}"
        raise InvalidRequest(msg)
    labels = frozenset(body.labels)
    share = call.caller.share_for(worker)
    return Wants(worker, tuple(filters), labels, body.max, body.leaseMs, body.start, call.by, share)


def _shown(worker: str, lent: Lent) -> dict[str, Any]:
    task = lent.task
    return {
        "leaseId": lease_id(task.id, lent.token),
        "token": lent.token,
        "workerId": worker,
        "taskId": task.id,
        "attempt": lent.attempt,
        "leaseMs": lent.lease_ms,
        "expiresAt": rfc3339(lent.expires_at),
        "params": spliced(lent.params),
        "task": views.native(task),
    }


async def heartbeat(call: Call) -> Any:
    """POST /v1/leases/{id}/heartbeat."""
    return call.json(await heard(call, await call.body(HeartbeatBody)))


async def heard(call: Call, body: HeartbeatBody) -> dict[str, Any]:
    """Let a lease live on, and say what its worker has to know."""
    name = call.params["id"]
    found = await call.bridge.extend_lease(
        name,
        body.token,
        worker=body.workerId,
        lines=tuple(body.lines),
        level=body.level,
        progress=body.progress,
        lease_ms=body.leaseMs,
        by=call.by,
    )
    answer: dict[str, Any] = {"leaseId": name, "taskId": found.task, "state": found.state}
    expires_at, must_stop = found.expires_at, found.must_stop
    if not must_stop and (body.waitMs or body.holds):
        names, wait_ms = [name, *body.holds], body.waitMs
        del body  # it may be long, and so may the wait
        stops = await _stops(call, found.worker, names, wait_ms)
        if (own := stops.pop(name, None)) is not None:
            answer |= _stop(own)
            expires_at, must_stop = own.expires_at, True
        if stops:
            answer["stop"] = [_stop(each) for each in stops.values()]
    if expires_at is not None:
        answer["expiresAt"] = rfc3339(expires_at)
    return {**answer, "cancelRequested": must_stop}


async def _stops(call: Call, worker: str, names: list[str], wait_ms: int) -> dict[str, Stop]:
    """Wait until a worker is to stop working on a lease; `names` are those that it knows of.

    It is not waited for where there is no room for it to wait, or when it has left.
    """
    connection, changed = connection_of(call.request), asyncio.Event()
    share = call.caller.share_for(worker)

    def to_stop(name: str, agent: str) -> None:
        if call.sight.may_see(agent):
            names.append(name)
        changed.set()

    async def look() -> dict[str, Stop]:
        changed.clear()
        heard = names.copy()
        names.clear()
        return await call.sight.stops(worker, heard)

    def must_end() -> bool:
        return call.must_end or connection.is_gone or connection.at_eof or connection.is_deaf

    with call.namespace.watches.stops(worker, to_stop), connection.attended(changed.set):
        found = await look()
        if wait_ms and not found:
            with suppress(QueueFull, TimeoutError), call.staying(share, changed.set):
                async with asyncio.timeout(wait_ms / 1000):
                    while not (found or must_end()):
                        await changed.wait()
                        call.check_welcome()
                        found = await look()
        return found


async def complete(call: Call) -> Any:
    """POST /v1/leases/{id}/complete."""
    body = await call.body(CompleteBody)
    return call.json(await settle_one(call, body, Outcome(ok=True, result=body.result)))


async def fail(call: Call) -> Any:
    """POST /v1/leases/{id}/fail."""
    body = await call.body(FailBody)
    return call.json(await settle_one(call, body, failure(body)))


async def release(call: Call) -> Any:
    """POST /v1/leases/{id}/release."""
    return call.json(await settle_one(call, await call.body(HeldBody), None))


def failure(body: FailFields) -> Outcome:
    return Outcome(
        ok=False,
        code=body.code or WORKER_ERROR,
        error=body.error or "the worker failed",
        details=body.details,
        retry_after_s=body.retryAfterMs / 1000 if body.retryAfterMs is not None else None,
        retryable=body.retryable,
    )


async def settle_one(call: Call, body: HeldBody, outcome: Outcome | None) -> dict[str, Any]:
    """Take what a worker says of a lease, and say what became of its task."""
    name = call.params["id"]
    said = [(name, body.token, outcome)]
    (settled,) = await call.bridge.settle_leases(said, body.workerId, call.by)
    if isinstance(settled, RotaError):
        raise settled
    return _settled(name, settled)


def _settled(name: str, settled: Settled) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "leaseId": name,
        "taskId": settled.task,
        "state": settled.state,
    }
    if settled.next_at:
        answer["nextAttemptAt"] = rfc3339(settled.next_at)
    if settled.is_repeated:
        answer["idempotent"] = True
    return answer


async def settle(call: Call) -> Any:
    """POST /v1/leases/settle: many outcomes, each on its own, and the next tasks."""
    body = await call.body(SettleBody)
    wants = _wanted(call, body.workerId, body.lease) if body.lease is not None else None
    said: list[tuple[str, int, Outcome | None]] = []
    for at, item in enumerate(body.outcomes):
        outcome: Outcome | None = None
        if item.outcome == "complete":
            outcome = Outcome(ok=True, result=item.result)
        elif item.outcome == "fail":
            if not item.error:
                field = f"outcomes.{at}.error"
                msg = f"missing required field '{field}'"
                raise InvalidRequest(msg, details={"field": field})
            outcome = failure(item)
        said.append((item.leaseId, item.token, outcome))
    settling = await call.bridge.tell_settled(said, body.workerId, call.by)
    leases: Rows = []
    more: dict[str, Any] = {}
    if wants is not None and body.lease is not None:
        try:
            leases, more = await _lent(call, wants, body.lease.waitMs, _shown)
        except RotaError as error:  # which says nothing of the outcomes
            more = {"leaseError": native_body(error, call.request_id)}
    outcomes = [
        _refused(name, each) if isinstance(each, RotaError) else _settled(name, each)
        for (name, _, _), each in zip(said, await settling, strict=True)
    ]
    return call.json({"outcomes": outcomes, "leases": leases, **more})


def _refused(name: str, error: RotaError) -> dict[str, Any]:
    return {"leaseId": name, "code": error.code, "error": error.message}


async def declare(call: Call) -> Any:
    """POST /v1/types: keep what a worker declares, for the agents that its token is for."""
    body = await call.body(DeclareBody)
    said = declared_in(body, call.by, call.may_work_for)
    holds = await call.bridge.declare_types(said, call.app.access.names, call.by)
    rows = [
        {"type": action, **({} if agent == EVERY_AGENT else {"agentId": agent}), "accepted": held}
        for (agent, action), held in zip(said, holds, strict=True)
    ]
    return call.json({"types": rows, "count": len(rows)})


def declared_in(
    body: DeclareBody, by: str, agents_for: Callable[[list[str] | None], Sequence[str] | None]
) -> dict[Key, Declared]:
    """Read what is declared, for each agent that it is for. Raises InvalidRequest."""
    said: dict[Key, Declared] = {}
    for each in body.types:
        retry = each.retry.written() if each.retry is not None else None
        declared = Declared(by, retry, each.timeoutMs, each.maxConcurrent)
        for agent in agents_for(each.agents) or (EVERY_AGENT,):
            said[agent, each.type] = declared
        if len(said) > DECLARED_MAX:
            msg = f"agents times types must not be more than {DECLARED_MAX}"
            raise InvalidRequest(msg)
    return said


async def workers(call: Call) -> Any:
    """GET /v1/workers: those heard of last first."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    at = call.query_int("cursor", default=0, low=0, high=1 << 31)
    rows, is_more = await call.sight.workers(at, limit)
    shown: list[orjson.Fragment] = []
    size = 0
    for row in rows:
        text = orjson.dumps(_worker(row))
        shown.append(orjson.Fragment(text))
        size += len(text)
        if size > PAGE_BYTES_MAX:
            break
    body: dict[str, Any] = {"workers": shown, "count": len(shown)}
    if is_more or len(shown) < len(rows):
        body["nextCursor"] = str(at + len(shown))
    return call.json(body)


def _worker(row: Any) -> dict[str, Any]:
    wants = row.wants
    view: dict[str, Any] = {
        "workerId": row.worker,
        "lastSeen": rfc3339(row.seen_at),
        "waiting": row.is_waiting,
        "labels": sorted(wants.labels) if wants is not None else [],
        "holds": row.holds,
        "leases": [
            {
                "leaseId": lease_id(lease.task, token),
                "taskId": lease.task,
                "agentId": lease.agent,
                "type": lease.type,
                "expiresAt": rfc3339(lease.expires_at),
            }
            for token, lease in row.leases
        ],
    }
    if row.delay_us is not None:
        view["heartbeatDelayMs"] = row.delay_us // 1000
    filters = [_filter(each) for each in wants.filters] if wants is not None else []
    return view | (filters[0] if len(filters) == 1 else {"wants": filters} if filters else {})


def _filter(wanted: Filter) -> dict[str, Any]:
    named = {"agents": wanted.agents, "types": wanted.types}
    return {name: list(names) for name, names in named.items() if names is not None}

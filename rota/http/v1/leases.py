"""/v1/leases, /v1/workers: tasks lent to workers, what they say of them, and who they are.

A worker waits here for its turn; if it leaves before its answer, what it was given goes back at
once. One that has closed its half of the connection counts as gone: it may hear of nothing, and a
task that is lent to nobody would wait for its lease to expire. Every outcome carries the token of
its lease.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.config import PAGE_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX
from rota.domain.commands import Outcome
from rota.domain.leases import lease_id
from rota.domain.wants import FILTERS_MAX, Filter, Wants
from rota.errors import InvalidRequest, RotaError
from rota.http import views
from rota.http.lease_models import (
    CompleteBody,
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

if TYPE_CHECKING:
    from rota.actors.lent import Lent, Settled
    from rota.http.call import Call

WORKER_ERROR = "worker_error"
"""The code of a failure that its worker gives no name."""


async def lease(call: Call) -> Any:
    """POST /v1/leases."""
    body = await call.body(LeaseBody)
    leases, why = await take(call, body)
    return call.json({"leases": [_shown(body.workerId, each) for each in leases], **why})


async def take(call: Call, body: LeaseBody) -> tuple[list[Lent], dict[str, str]]:
    """Lend tasks to a worker; if there are none, say what holds them."""
    wants = _wanted(call, body.workerId, body)
    leases = await _lent(call, wants, body.waitMs)
    return leases, await _why_none(call, wants, leases)


async def _why_none(call: Call, wants: Wants, leases: list[Lent]) -> dict[str, str]:
    """Tell a worker that was given nothing which limit or pause holds what it came for."""
    reason = await call.sight.why_none(wants) if not leases else None
    return {"waitReason": reason} if reason is not None else {}


async def _lent(call: Call, wants: Wants, wait_ms: int) -> list[Lent]:
    """Wait for tasks, as long as the worker does."""
    connection = connection_of(call.request)

    def has_left() -> bool:
        """Whether it hangs up, of which the end is the first to be heard, or could unheard."""
        return connection.is_gone or connection.at_eof or connection.is_deaf

    def left() -> None:
        if has_left():
            asked.leave()

    def leave() -> None:
        asked.leave()

    waits = wait_ms > 0 and not connection.is_excess
    staying = call.staying(wants.share, leave) if waits else nullcontext()
    with connection.attended(left), staying:
        asked = call.bridge.lend(wants, wait_ms if waits else 0)
        left()
        lent = await asked.answer()
    if lent and not call.is_welcome:
        call.bridge.give_back(lent)
        lent = []
    call.check_welcome()
    if lent and has_left():
        call.bridge.give_back(lent)
        return []
    return lent


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
        "params": lent.params,
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
    answer = {"leaseId": name, "taskId": found.task, "state": found.state}
    if found.expires_at is not None:
        answer["expiresAt"] = rfc3339(found.expires_at)
    return {**answer, "cancelRequested": found.must_stop}


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
    leases: list[Lent] = []
    why: dict[str, Any] = {}
    if wants is not None and body.lease is not None:
        try:
            leases = await _lent(call, wants, body.lease.waitMs)
            why = await _why_none(call, wants, leases)
        except RotaError as error:  # which says nothing of the outcomes
            why = {"leaseError": native_body(error, call.request_id)}
    outcomes = [
        _refused(name, each) if isinstance(each, RotaError) else _settled(name, each)
        for (name, _, _), each in zip(said, await settling, strict=True)
    ]
    shown = [_shown(body.workerId, each) for each in leases]
    return call.json({"outcomes": outcomes, "leases": shown, **why})


def _refused(name: str, error: RotaError) -> dict[str, Any]:
    return {"leaseId": name, "code": error.code, "error": error.message}


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

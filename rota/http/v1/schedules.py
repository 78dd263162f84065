"""/v1/schedules: what is made again and again, at moments of the calendar."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from rota import calendars
from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX
from rota.domain import events as e
from rota.domain import schedule as domain
from rota.domain.intake import BatchRequest, take_in
from rota.domain.schedule import STATES, TASK, WORKFLOW, Definition
from rota.domain.schedule_targets import check_alone, check_workflow
from rota.domain.stored import write_request, write_workflow
from rota.errors import InvalidRequest, NotFound
from rota.eventlog.codec import SCHEDULE, decode
from rota.http.models import ReasonBody, moment_us
from rota.http.schedule_models import ScheduleBody, SchedulePatch
from rota.http.schedule_views import firing_row, firing_view, schedule_row, schedule_view
from rota.http.submissions import dedup_of, native_request
from rota.http.v1.batches import read_items
from rota.http.v1.workflows import flow_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.domain.schedule import Schedule
    from rota.http.call import Call
    from rota.http.schedule_models import Targets
    from rota.projections.state import State

UPCOMING = 5
FIRINGS = (e.ScheduleFired, e.ScheduleMissed)
_FIELDS = {
    "cron": "cron",
    "timezone": "timezone",
    "catchUp": "catch_up",
    "overlap": "overlap",
    "jitterMs": "jitter_ms",
    "startAt": "start_at",
    "endAt": "end_at",
}
_MAY_GO = ("jitterMs", "startAt", "endAt")
"""What null takes away."""


async def create(call: Call) -> Any:
    """POST /v1/schedules."""
    body = await call.body(ScheduleBody)
    await asyncio.to_thread(calendars.check, body.cron, body.timezone)
    target = await _target(call, body)
    wanted = Definition(target=target, **_said(body, set(_FIELDS)))
    domain.check_definition(wanted, call.now())
    known = await call.bridge.create_schedule(body.name, wanted, call.by, paused=body.paused)
    view = await _shown(call, body.name)
    return call.json({**view, "known": True}) if known else call.json(view, status=201)


async def change(call: Call) -> Any:
    """PATCH /v1/schedules/{name}."""
    body = await call.body(SchedulePatch)
    given = body.model_fields_set & set(_FIELDS)
    for name in given:
        if getattr(body, name) is None and name not in _MAY_GO:
            raise _bad(name, "must not be null")
    name, changes = call.params["name"], _said(body, given)
    was = await call.sight.seen(lambda state: _found(state, name).definition)
    if "cron" in changes or "timezone" in changes:
        cron, zone = changes.get("cron", was.cron), changes.get("timezone", was.timezone)
        await asyncio.to_thread(calendars.check, cron, zone)
    if body.targets():
        changes["target"] = await _target(call, body)
    if not changes:
        raise InvalidRequest("say what is to be changed")
    await call.bridge.change_schedule(name, changes, call.by)
    return call.json(await _shown(call, name))


def _said(body: ScheduleBody | SchedulePatch, names: set[str]) -> dict[str, Any]:
    """Give what a body says, in the words of the core."""
    said = {_FIELDS[name]: getattr(body, name) for name in names}
    for field in ("start_at", "end_at"):
        if said.get(field) is not None:
            said[field] = moment_us(said[field])
    if "jitter_ms" in said:
        said["jitter_ms"] = said["jitter_ms"] or None
    return said


async def _target(call: Call, body: Targets) -> dict[str, Any]:
    """Read what a schedule makes, so that no firing can fail on its shape.

    Raises InvalidRequest or CallbackRefused.
    """
    if body.task is not None:
        return {TASK: await _task(call, body)}
    assert body.workflow is not None
    flow = body.workflow
    if flow.escalate is not None:
        await call.check_callback(flow.escalate.callback)
    requests = await read_items(call, flow)
    batch = BatchRequest(
        requests, callback=flow.callbackUrl or None, by=call.by, idempotency=flow.idempotencyKey,
        flow=flow_of(flow),
    )  # fmt: skip
    check_workflow(batch, call.bridge.rules)
    return {WORKFLOW: write_workflow(batch)}


async def _task(call: Call, body: Targets) -> dict[str, Any]:
    task = body.task
    assert task is not None
    await call.check_callback(task.callbackUrl)
    request = native_request(task, task.agentId, call.by)._replace(dedup=dedup_of(task.dedup))
    plan = request.plan._replace(idempotency=task.idempotencyKey)
    check_alone(request._replace(plan=plan))
    take_in(request, call.bridge.rules, call.now())
    return write_request(request)


async def list_all(call: Call) -> Any:
    """GET /v1/schedules: by name."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    after, state = call.query("cursor") or "", call.query("state")
    if state is not None and state not in STATES:
        raise InvalidRequest(
            f"unknown state '{state[:50]}'; use {', '.join(STATES)}", details={"field": "state"}
        )

    def page(seen: State) -> dict[str, Any]:
        found = seen.schedules.by_name.values()
        wanted = (s.name for s in found if s.name > after and (state is None or s.state == state))
        names = nsmallest(limit + 1, wanted)
        rows = [schedule_row(seen.schedules.by_name[name]) for name in names[:limit]]
        answer: dict[str, Any] = {"schedules": rows, "count": len(rows)}
        return {**answer, "nextCursor": names[limit - 1]} if len(names) > limit else answer

    return call.json(await call.sight.seen(page))


async def get_one(call: Call) -> Any:
    """GET /v1/schedules/{name}: with the next five moments."""
    return call.json(await _shown(call, call.params["name"]))


async def _shown(call: Call, name: str) -> dict[str, Any]:
    """Show a schedule; its moments are computed beside the loop. Raises NotFound."""

    def look(state: State) -> tuple[dict[str, Any], tuple[Any, ...]]:
        schedule = _found(state, name)
        asked = (schedule.cron, schedule.timezone, schedule.next_at, schedule.end_at)
        return schedule_view(schedule), asked

    view, asked = await call.sight.seen(look)
    moments = await asyncio.to_thread(_upcoming, *asked)
    return {**view, "upcoming": [rfc3339(moment) for moment in moments]}


def _upcoming(cron: str, timezone: str, next_at: int | None, end_at: int | None) -> list[int]:
    if next_at is None:
        return []
    found = [next_at, *calendars.several(cron, timezone, next_at, UPCOMING - 1)]
    return [moment for moment in found if end_at is None or moment <= end_at]


def _found(state: State, name: str) -> Schedule:
    return domain.found(state.schedules.by_name, name)


def _steering(how: str) -> Callable[[Call], Awaitable[Any]]:
    async def steer(call: Call) -> Any:
        body = await call.body(ReasonBody, optional=True)
        name = call.params["name"]
        await call.bridge.steer_schedule(name, how, body.reason, call.by)
        return call.json(await _shown(call, name))

    steer.__doc__ = f"POST /v1/schedules/{{name}}/{how}."
    return steer


pause, resume = _steering("pause"), _steering("resume")


async def delete(call: Call) -> Any:
    """DELETE /v1/schedules/{name}: what it made goes on."""
    name = call.params["name"]
    await call.bridge.steer_schedule(name, "delete", "", call.by)
    return call.json({"name": name, "deleted": True})


async def run(call: Call) -> Any:
    """POST /v1/schedules/{name}/run: fire now, beside the calendar."""
    fired: e.ScheduleFired = await call.bridge.run_schedule(call.params["name"], call.by)
    status = 200 if fired.outcome == domain.SKIPPED else 202
    return call.json(firing_view(fired), status=status)


async def history(call: Call) -> Any:
    """GET /v1/schedules/{name}/history: what became of its moments, oldest first."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    after = call.query_int("cursor", default=0, low=0, high=SEQ_MAX)
    name = call.params["name"]
    try:
        page = await call.sight.records_of(SCHEDULE + name, after, limit)
    except NotFound:
        raise NotFound("schedule not found", details={"name": name}) from None
    records: list[Any] = [decode(each.body) for each in page.found]
    rows = [firing_row(record) for record in records if isinstance(record.event, FIRINGS)]
    answer: dict[str, Any] = {"firings": rows, "count": len(rows)}
    return call.json({**answer, "nextCursor": str(page.next)} if page.is_cut else answer)


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

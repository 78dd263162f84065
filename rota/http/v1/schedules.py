"""/v1/schedules: what is made again and again, at moments of the calendar.

The calendar is asked in a thread, so that no expression can hold the loop; what the core asks it
after that is known by then (`calendars.after`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rota import calendars
from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX
from rota.domain import events as e
from rota.domain.intake import BatchRequest, take_in
from rota.domain.schedule import (
    KINDS,
    PROJECT,
    SKIPPED,
    STATES,
    TASK,
    WORKFLOW,
    Definition,
    agents_of,
)
from rota.domain.schedule_targets import check_alone, check_workflow
from rota.domain.stored import write_request, write_workflow
from rota.domain.tokens import Right
from rota.errors import InvalidRequest
from rota.eventlog.codec import decode
from rota.http.models import ReasonBody, moment_us
from rota.http.schedule_models import ScheduleBody, SchedulePatch
from rota.http.schedule_views import firing_row, firing_view, schedule_row, schedule_view
from rota.http.submissions import dedup_of, native_request
from rota.http.v1.batches import read_items
from rota.http.v1.workflows import flow_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.domain.schedule import Schedule
    from rota.http.call import Call
    from rota.http.flow_models import WorkflowBody
    from rota.http.models import SubmitBody
    from rota.http.schedule_models import Targets

UPCOMING = 5
FIRINGS = (e.ScheduleFired, e.ScheduleMissed)
READS_MAX = 20
"""So often one page of the history reads on."""
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
    target = await _target(call, body)
    wanted = Definition(target=target, **_said(body, set(_FIELDS)))
    await _ask_calendar(wanted, call.now())
    known = await call.bridge.schedules.create(body.name, wanted, call.by, paused=body.paused)
    view = await _shown(call, body.name)
    return call.json({**view, "known": True}) if known else call.json(view, status=201)


async def change(call: Call) -> Any:
    """PATCH /v1/schedules/{name}."""
    body, name = await call.body(SchedulePatch), call.params["name"]
    given = body.model_fields_set & set(_FIELDS)
    for field in given:
        if getattr(body, field) is None and field not in _MAY_GO:
            raise _bad(field, "must not be null")
    was = (await call.bridge.schedules.of(name)).definition
    _check_author(call, was.target)
    changes = _said(body, given)
    if body.targets():
        changes["target"] = await _target(call, body)
    if not changes:
        raise InvalidRequest("say what is to be changed")
    if set(changes) - {"target", "catch_up", "overlap"}:
        await _ask_calendar(was._replace(**changes), call.now())
    await call.bridge.schedules.change(name, changes, call.by)
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


async def _ask_calendar(wanted: Definition, now: int) -> None:
    """Check the expression and the zone, and look up what the core will want to know."""

    def ask() -> None:
        calendars.check(wanted.cron, wanted.timezone)
        calendars.after(wanted.cron, wanted.timezone, max(now, (wanted.start_at or 0) - 1))

    await asyncio.to_thread(ask)


async def _target(call: Call, body: Targets) -> dict[str, Any]:
    """Read what a schedule makes, so that no firing can fail on its shape.

    Raises HttpProblem, InvalidRequest or CallbackRefused.
    """
    target: dict[str, Any]
    if body.task is not None:
        target = {TASK: await _task(call, body.task)}
    elif body.workflow is not None:
        target = {WORKFLOW: await _workflow(call, body.workflow)}
    else:
        assert body.project is not None
        target = {PROJECT: body.project.model_dump()}
    call.caller.check_agents(agents_of(target))
    _check_author(call, target)
    return target


def _check_author(call: Call, target: dict[str, Any]) -> None:
    """Refuse what the caller could not submit: it is made in their name. Raises HttpProblem."""
    if WORKFLOW in target:
        call.caller.check_may(Right.ORCHESTRATE)


async def _workflow(call: Call, flow: WorkflowBody) -> dict[str, Any]:
    if flow.escalate is not None:
        await call.check_callback(flow.escalate.callback, "workflow.escalate.callback")
    requests = await read_items(call, flow, "workflow.")
    batch = BatchRequest(
        requests, callback=flow.callbackUrl or None, by=call.by, idempotency=flow.idempotencyKey,
        flow=flow_of(flow), wanted_id=flow.workflowId,
    )  # fmt: skip
    check_workflow(batch, call.bridge.rules)
    return write_workflow(batch)


async def _task(call: Call, task: SubmitBody) -> dict[str, Any]:
    await call.check_callback(task.callbackUrl, "task.callbackUrl")
    request = native_request(task, task.agentId, call.by)._replace(dedup=dedup_of(task.dedup))
    plan = request.plan._replace(idempotency=task.idempotencyKey)
    check_alone(request._replace(plan=plan))
    take_in(request, call.bridge.rules, call.now())
    return write_request(request)


async def list_all(call: Call) -> Any:
    """GET /v1/schedules: by name."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    agent = call.query("agent")
    state, makes = _one_of(call, "state", STATES), _one_of(call, "makes", KINDS)

    def is_wanted(schedule: Schedule) -> bool:
        return (
            (state is None or schedule.state == state)
            and (agent is None or agent in schedule.agents)
            and (makes is None or schedule.makes == makes)
        )

    cursor = call.query("cursor") or ""
    rows, last = await call.sight.schedules.page(is_wanted, cursor, limit, schedule_row)
    answer: dict[str, Any] = {"schedules": rows, "count": len(rows)}
    return call.json(answer if last is None else {**answer, "nextCursor": last})


def _one_of(call: Call, name: str, known: Sequence[str]) -> str | None:
    said = call.query(name)
    if said is not None and said not in known:
        raise _bad(name, f"unknown {name} '{said[:50]}'; use {', '.join(known)}")
    return said


async def get_one(call: Call) -> Any:
    """GET /v1/schedules/{name}: with the next five moments."""
    return call.json(await _shown(call, call.params["name"]))


async def _shown(call: Call, name: str) -> dict[str, Any]:
    """Show a schedule and its next moments. Raises NotFound."""

    def look(schedule: Schedule) -> tuple[dict[str, Any], tuple[Any, ...]]:
        asked = (schedule.cron, schedule.timezone, schedule.next_at, schedule.end_at)
        return schedule_view(schedule), asked

    view, asked = await call.sight.schedules.show(name, look)
    moments = await asyncio.to_thread(_upcoming, *asked)
    return {**view, "upcoming": [rfc3339(moment) for moment in moments]}


def _upcoming(cron: str, timezone: str, next_at: int | None, end_at: int | None) -> list[int]:
    if next_at is None:
        return []
    found = [next_at, *calendars.several(cron, timezone, next_at, UPCOMING - 1)]
    return [moment for moment in found if end_at is None or moment <= end_at]


async def pause(call: Call) -> Any:
    """POST /v1/schedules/{name}/pause."""
    body = await call.body(ReasonBody, optional=True)
    await call.bridge.schedules.steer(call.params["name"], "pause", body.reason, call.by)
    return call.json(await _shown(call, call.params["name"]))


async def resume(call: Call) -> Any:
    """POST /v1/schedules/{name}/resume."""
    name = call.params["name"]
    await _ask_calendar((await call.bridge.schedules.of(name)).definition, call.now())
    await call.bridge.schedules.steer(name, "resume", "", call.by)
    return call.json(await _shown(call, name))


async def delete(call: Call) -> Any:
    """DELETE /v1/schedules/{name}: what it made goes on."""
    body = await call.body(ReasonBody, optional=True)
    name = call.params["name"]
    await call.bridge.schedules.steer(name, "delete", body.reason, call.by)
    return call.json({"name": name, "deleted": True})


async def run(call: Call) -> Any:
    """POST /v1/schedules/{name}/run: fire now, beside the calendar."""
    fired = await call.bridge.schedules.run(call.params["name"], call.by)
    return call.json(firing_view(fired), status=200 if fired.outcome == SKIPPED else 202)


async def history(call: Call) -> Any:
    """GET /v1/schedules/{name}/history: what became of its moments, oldest first."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    after = call.query_int("cursor", default=0, low=0, high=SEQ_MAX)
    rows: list[dict[str, Any]] = []
    for _ in range(READS_MAX):  # records of other kinds are passed over
        wanted = limit - len(rows)
        page = await call.sight.schedules.records_of(call.params["name"], after, wanted)
        records: list[Any] = [decode(each.body) for each in page.found]
        rows += [firing_row(record) for record in records if isinstance(record.event, FIRINGS)]
        if len(rows) >= limit or not page.is_cut:
            break
        after = page.next
    answer: dict[str, Any] = {"firings": rows, "count": len(rows)}
    return call.json({**answer, "nextCursor": str(page.next)} if page.is_cut else answer)


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

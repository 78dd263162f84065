"""Schedules as the native API shows them: in the words of their requests, with what became."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.domain import events as e
from rota.domain.packed import Deferred
from rota.domain.schedule import TASK, WORKFLOW
from rota.domain.stored import read_request
from rota.http.flow_views import escalation_shown
from rota.http.stored_views import request_said

if TYPE_CHECKING:
    from rota.domain.events import Record
    from rota.domain.schedule import Schedule


def schedule_row(schedule: Schedule) -> dict[str, Any]:
    view: dict[str, Any] = {
        "name": schedule.name,
        "state": schedule.state,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "catchUp": schedule.catch_up,
        "overlap": schedule.overlap,
        "makes": schedule.makes,
        "agents": sorted(schedule.agents),
        "by": schedule.by,
        "waiting": len(schedule.waiting),
        "fired": schedule.fired,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "createdAt": rfc3339(schedule.created_at),
    }
    more = {
        "jitterMs": schedule.jitter_ms,
        "startAt": _time(schedule.start_at),
        "endAt": _time(schedule.end_at),
        "nextAt": _time(schedule.next_at),
        "dueAt": _time(schedule.due_at),
        "firedUntil": _time(schedule.fired_until),
        "lastFiredAt": _time(schedule.last_fired_at),
        "lastMoment": _time(schedule.last_moment),
        "lastOutcome": schedule.last_outcome or None,
        "lastId": schedule.last_subject,
        "pauseReason": schedule.paused or None,
    }
    return view | {name: value for name, value in more.items() if value is not None}


def schedule_view(schedule: Schedule) -> dict[str, Any]:
    """Show a schedule with what it makes; its moments are added by who can compute them."""
    target = Deferred(len(schedule.target_json), partial(_target, schedule.target_json))
    return {**schedule_row(schedule), schedule.makes: target}


def _target(written: bytes) -> Any:
    """Show what a schedule makes in the words of its request."""
    ((kind, target),) = orjson.loads(written).items()
    if kind == TASK:
        return _task(target)
    return _workflow(target) if kind == WORKFLOW else target


def _task(written: dict[str, Any]) -> dict[str, Any]:
    request = read_request(written, "")
    return {"agentId": request.agent, **request_said(request)}


def _workflow(written: dict[str, Any]) -> dict[str, Any]:
    flow = written["flow"]
    more = {
        "name": flow.get("name"),
        "open": flow.get("is_open"),
        "failure": flow.get("failure"),
        "onFailure": flow.get("on_failure"),
        "escalate": escalation_shown(flow.get("escalate")),
        "callbackUrl": written.get("callback"),
    }
    said = {name: value for name, value in more.items() if value is not None}
    return said | {"tasks": [_task(each) for each in written["tasks"]]}


def firing_view(event: e.ScheduleFired) -> dict[str, Any]:
    view = {
        "outcome": event.outcome,
        "moment": rfc3339(event.moment),
        "id": event.subject,
        "reason": event.reason,
        "manual": event.manual,
        "late": event.late,
        "waited": event.from_queue,
    }
    return {name: value for name, value in view.items() if value is not None}


def firing_row(record: Record[e.ScheduleFired | e.ScheduleMissed]) -> dict[str, Any]:
    """Show a record of what became of one moment, or of several that were missed."""
    event = record.event
    head = {"seq": record.seq, "at": rfc3339(record.at)}
    if isinstance(event, e.ScheduleFired):
        return head | firing_view(event)
    row: dict[str, Any] = {
        "outcome": "missed",
        "moment": rfc3339(event.first),
        "lastMoment": rfc3339(event.last),
        "missed": event.missed,
    }
    return head | row | ({"more": True} if event.more else {})


def _time(at: int | None) -> str | None:
    return rfc3339(at) if at else None

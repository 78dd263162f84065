"""A task's log lines, read from its records; with its transitions, if a dialect wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.config import PAGE_ROWS_MAX
from rota.domain import events as e
from rota.eventlog.replay import replay_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.domain.events import Record
    from rota.http.call import Call

_TRANSITIONS: dict[type[Any], str] = {
    e.TaskSubmitted: "submitted",
    e.TaskRejected: "rejected: {error}",
    e.TaskReleased: "ready after {after}",
    e.TaskDelayed: "dependencies met, delayed",
    e.TaskRevived: "revived",
    e.TaskAssigned: "attempt {attempt} dispatched",
    e.TaskStarted: "attempt {attempt} started",
    e.TaskSucceeded: "succeeded",
    e.TaskFailed: "failed: {error}",
    e.AttemptFailed: "attempt {attempt} failed, will be retried: {error}",
    e.TaskExpired: "failed: {error}",
    e.TaskCancelled: "cancelled",
    e.AttemptInterrupted: "attempt {attempt} interrupted: {reason}",
}
_BAD = (e.TaskFailed, e.TaskExpired, e.TaskRejected)


def answer_logs(call: Call, task_id: str, *, transitions: bool = False) -> dict[str, Any]:
    """Give the lines that the query asks for: `cursor` lines are left out, `limit` come."""
    skip = call.query_int("cursor", default=0, low=0, high=1 << 31)
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    lines = list(log_lines(call, task_id, transitions=transitions))
    page = lines[skip : skip + limit]
    body: dict[str, Any] = {"lines": page, "count": len(page)}
    if skip + limit < len(lines):
        body["nextCursor"] = str(skip + limit)
    return body


def log_lines(call: Call, task_id: str, *, transitions: bool) -> Iterator[dict[str, Any]]:
    """Go through a task's log, oldest first."""
    for record in replay_task(call.bridge.shard.log, task_id):
        event = record.event
        if isinstance(event, e.TaskLogged):
            for text in event.lines:
                yield _line(record, event.level, text, event.attempt)
        elif transitions and type(event) in _TRANSITIONS:
            values = event._asdict()
            text = _TRANSITIONS[type(event)].format_map(values)
            level = "error" if isinstance(event, _BAD) else "info"
            yield _line(record, level, text, values.get("attempt", 0))


def _line(record: Record, level: str, text: str, attempt: int) -> dict[str, Any]:
    line: dict[str, Any] = {"at": rfc3339(record.at), "level": level, "message": text}
    if attempt:
        line["attempt"] = attempt
    return line

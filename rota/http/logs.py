"""A task's log lines, read from its records; with its transitions, if a dialect wants them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.config import PAGE_ROWS_MAX
from rota.domain import events as e

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.domain.events import Event, Record
    from rota.http.call import Call

_TRANSITIONS: dict[type[Any], str] = {
    e.TaskSubmitted: "submitted",
    e.TaskRejected: "rejected: {error}",
    e.TaskReleased: "ready after {after}",
    e.TaskDelayed: "dependencies met, delayed",
    e.TaskHeld: "back on its project's list",
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


async def answer_logs(call: Call, task_id: str, *, transitions: bool = False) -> dict[str, Any]:
    """Give the lines that the query asks for: `cursor` lines are left out, `limit` come."""
    skip = call.query_int("cursor", default=0, low=0, high=1 << 31)
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)

    def page_of(records: Iterator[Record[Any]]) -> list[dict[str, Any]]:
        return list(islice(log_lines(records, transitions=transitions), skip, skip + limit + 1))

    page = await call.sight.told(task_id, page_of)
    body: dict[str, Any] = {"lines": page[:limit], "count": len(page[:limit])}
    if len(page) > limit:
        body["nextCursor"] = str(skip + limit)
    return body


def log_lines(records: Iterator[Record[Any]], *, transitions: bool) -> Iterator[dict[str, Any]]:
    """Go through what a task said, oldest first."""
    for record in records:
        event = record.event
        if isinstance(event, e.TaskLogged):
            for text in event.lines:
                yield _line(record, event.level, text, event.attempt)
        elif transitions and type(event) in _TRANSITIONS:
            values = event._asdict()
            text = _TRANSITIONS[type(event)].format_map(values)
            level = "error" if isinstance(event, _BAD) else "info"
            yield _line(record, level, text, values.get("attempt", 0))


def _line(record: Record[Event], level: str, text: str, attempt: int) -> dict[str, Any]:
    line: dict[str, Any] = {"at": rfc3339(record.at), "level": level, "message": text}
    if attempt:
        line["attempt"] = attempt
    return line

"""Decide: what is kept of log lines and reports of progress.

Bounded per task and per line, because they are facts in the log for ever. The line that would be
one too many is replaced by a last one that says so; what comes after is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.task import IN_FLIGHT, TERMINAL, Notes
from rota.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.domain.task import Task

LINES_MAX = 1000
LINE_CHARS_MAX = 2000
REPORTS_MAX = 1000
REPORT_BYTES_MAX = 4096
LEVELS = ("debug", "info", "warning", "error")
STALE = "stale_attempt"
FULL = f"further lines are dropped: a task keeps {LINES_MAX}"


def check_token(task: Task, token: int | None) -> None:
    """Refuse whoever speaks for an attempt that is not the running one. Raises Conflict."""
    if token is None or (token == task.token and task.state in IN_FLIGHT):
        return
    msg = "this attempt is over: the token is not the running attempt's"
    details = {"taskId": task.id, "state": task.state.value, "attempt": task.attempt}
    raise Conflict(msg, code=STALE, details=details, hint="stop working on it")


def decide_notes(
    task: Task, lines: Sequence[str], level: str, progress: Any, *, strict: bool = False
) -> list[e.TaskLogged | e.TaskProgressed]:
    """Keep what fits. A `strict` caller is told when nothing does. Raises Conflict."""
    notes = task.notes or Notes()
    events: list[e.TaskLogged | e.TaskProgressed] = []
    if strict and task.state in TERMINAL:
        details = {"taskId": task.id, "state": task.state.value}
        raise Conflict(f"task is already {task.state.value}", details=details)
    room = LINES_MAX - notes.lines
    if lines and room > 0:
        kept = [line[:LINE_CHARS_MAX] for line in lines[:room]]
        if len(lines) >= room:
            kept[-1] = FULL
        events.append(e.TaskLogged(task.id, task.agent, kept, level, task.attempt))
    if progress is not None and notes.reports < REPORTS_MAX:
        events.append(e.TaskProgressed(task.id, task.agent, progress, task.attempt))
    if strict and not events:
        msg = f"the task's log is full: it keeps {LINES_MAX} lines and {REPORTS_MAX} reports"
        raise Conflict(msg, code="log_full", details={"taskId": task.id})
    return events

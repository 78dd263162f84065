"""Tasks as tables: one with all its fields, or many with a line each."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rota.cli.output import print_json, print_table
from rota.wording import NO_EXECUTOR

if TYPE_CHECKING:
    from collections.abc import Callable

TASK_FIELDS = ("taskId", "agentId", "action", "state", "priority", "attempt", "createdAt")
NEWS_FIELDS = (
    "waitingFor",
    "nextAttemptAt",
    "lastError",
    "error",
    "result",
    "progress",
    "batchId",
)
"""What one asks a task for, after what it is."""
NAMES_SHOWN = 3
UNIMPORTANT = ("attempt", "prio", "ms", "created", "note", "action", "agent")
"""The columns of a list of tasks that a narrow terminal goes without, the first of them first."""


def show_task(task: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(task)
        return
    first = (*TASK_FIELDS, *NEWS_FIELDS)
    order = [*first, *(name for name in task if name not in first)]
    rows = [(name, _field(task, name)) for name in order if name in task]
    print_table(("field", "value"), [row for row in rows if row[0] not in _TOLD_ELSEWHERE])


def print_tasks(tasks: list[dict[str, Any]]) -> None:
    columns = ("task", "agent", "action", "state", "prio", "attempt", "created", "ms", "note")
    rows = [
        (
            *(task[name] for name in TASK_FIELDS[:-1]),
            _created(task),
            task.get("latencyMs"),
            remark(task),
        )
        for task in tasks
    ]
    print_table(columns, rows, drop=UNIMPORTANT, cut=True)


def _created(task: dict[str, Any]) -> str:
    """Give when a task was created; to the second, where people look at it."""
    at = str(task["createdAt"])
    return f"{at.partition('.')[0]}Z" if "." in at and sys.stdout.isatty() else at


def remark(task: dict[str, Any]) -> str:
    """Say in a few words what a task waits for, or how it fared."""
    said = []
    if "waitingFor" in task:
        said.append(f"waits for {_few(task['waitingFor'])}")
    if "waitReason" in task:
        is_usual = task["waitReason"] == NO_EXECUTOR
        said.append("waits for a worker" if is_usual else task["waitReason"])
    if "nextAttemptAt" in task:
        said.append(f"next at {task['nextAttemptAt']}")
    error = task.get("error") or task.get("lastError")
    if error is not None:
        said.append(error["message"])
    elif "completedAt" not in task and "progress" in task:
        said.append(f"progress {shown(task['progress'])}")
    return "; ".join(said)


def shown(value: Any) -> str:
    """Give a field as text; what is not text as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _field(task: dict[str, Any], name: str) -> str:
    tell = _TELLERS.get(name)
    return shown(task[name]) if tell is None else tell(task)


def _few(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _attempt(task: dict[str, Any]) -> str:
    most = task.get("maxAttempts")
    is_first_life = most is not None and task["attempt"] <= most
    return f"{task['attempt']} of {most}" if is_first_life else shown(task["attempt"])


def _error(error: dict[str, Any]) -> str:
    details = f" {shown(error['details'])}" if error.get("details") else ""
    return f"{error['code']}: {error['message']}{details}"


def _retry(policy: dict[str, Any]) -> str:
    """Write a policy in the words of the options."""
    base, most = policy["baseMs"], policy["maxMs"]
    said = [policy["kind"], f"{base} ms at first", f"{most} ms at most"]
    if policy["kind"] == "exponential":
        said.append(f"times {policy['multiplier']:g}")
    if policy.get("jitterMs"):
        said.append(f"up to {policy['jitterMs']} ms more")
    if policy.get("retryOn") is not None:
        said.append(f"on {', '.join(policy['retryOn']) or 'nothing'}")
    return ", ".join(said)


_TELLERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "attempt": _attempt,
    "dependsOn": lambda task: ", ".join(task["dependsOn"]),
    "waitingFor": lambda task: ", ".join(task["waitingFor"]),
    "error": lambda task: _error(task["error"]),
    "lastError": lambda task: _error(task["lastError"]),
    "retry": lambda task: _retry(task["retry"]),
}
_TOLD_ELSEWHERE = ("maxAttempts",)

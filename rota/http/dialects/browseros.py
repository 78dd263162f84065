"""BrowserOS's own words and shapes.

Its tasks share one agent and are of one type, which is run by the chat executor; that gives its
global order and its one bound on how many run at once. `pending` is anything that waits its turn,
`queued` has been selected. Retries default to the document's three, and a batch is one unit with
its own webhook. Everything else is the native core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.config import BROWSEROS_BATCH_MAX, CHAT
from rota.domain import events as e
from rota.domain.commands import SubmitBatch, SubmitTask
from rota.domain.packed import spliced
from rota.domain.retry import RetryPolicy
from rota.domain.task import BLOCKED, SCHEDULED, TERMINAL, TaskState
from rota.errors import InvalidRequest
from rota.http.dialects.models import BrowserOSBatch, BrowserOSBody
from rota.http.models import PRIORITY_WORDS
from rota.http.problems import native_body, reworded
from rota.http.submissions import admitted, keyed, note_wait, written
from rota.http.tables import SLICE_TASKS
from rota.http.views import add_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.batch import Batch
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.errors import RotaError
    from rota.http.call import Call
    from rota.http.dialects.models import BrowserOSItem

NAME = "browseros"

STATES = {
    TaskState.BLOCKED: "waiting_dependency",
    TaskState.SCHEDULED: "pending",
    TaskState.READY: "pending",
    TaskState.ASSIGNED: "queued",
    TaskState.RUNNING: "running",
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
    TaskState.REJECTED: "failed",
}
NATIVE = {
    word: frozenset(s for s, w in STATES.items() if w == word) - {TaskState.REJECTED}
    for word in set(STATES.values())
}
WORDS = {0: "critical", 1: "high", 2: "normal", 3: "low"}
EVENTS: dict[type[Any], str] = {
    e.TaskSubmitted: "task.created",
    e.TaskStarted: "task.started",
    e.TaskSucceeded: "task.completed",
    e.TaskFailed: "task.failed",
    e.AttemptFailed: "task.failed",
    e.TaskExpired: "task.failed",
    e.TaskCancelled: "task.cancelled",
}


# -- out


def view(task: Task) -> dict[str, Any]:
    """Show a task as BrowserOS does."""
    plan = task.plan
    policy = RetryPolicy(**plan.retry) if plan is not None and plan.retry else RetryPolicy()
    params = task.params or {}
    shown: dict[str, Any] = {
        "taskId": task.id,
        "state": STATES[task.state],
        "instruction": params.get("instruction", ""),
        "priority": WORDS.get(task.priority, task.priority),
        "dependsOn": list(dict.fromkeys(plan.depends.values())) if plan and plan.depends else [],
        "retryCount": task.retries,
        "maxRetries": policy.max_attempts - 1,
        "retryPolicy": {
            "maxRetries": policy.max_attempts - 1,
            "backoffMs": policy.base_ms,
            "backoffMultiplier": policy.multiplier,
        },
        "createdAt": rfc3339(task.created_at),
    }
    if task.timeout_ms is not None:
        shown["timeoutMs"] = task.timeout_ms
    if plan is not None and plan.batch is not None:
        shown["batchId"] = plan.batch
    if task.callback is not None:
        shown["webhookUrl"] = task.callback
    if "llmConfig" in params:
        shown["llmConfig"] = params["llmConfig"]
    if task.state is BLOCKED:
        shown["waitingFor"] = sorted(task.waits or ())
    add_wait(shown, task)
    if task.state is SCHEDULED:
        shown["nextAttemptAt"] = rfc3339(task.next_at)
    if task.notes is not None and task.notes.progress is not None:
        shown["progress"] = task.notes.progress
    _add_end(shown, task)
    return shown


def _add_end(shown: dict[str, Any], task: Task) -> None:
    """Add how a task went, as far as it went."""
    if task.started_at:
        shown["startedAt"] = rfc3339(task.started_at)
    if task.result_json is not None:
        shown["result"] = spliced(task.result_json)
    if task.error is not None:
        shown["error" if task.state in TERMINAL else "lastError"] = task.error
    if task.finished_at:
        shown["completedAt"] = rfc3339(task.finished_at)
        shown["executionTimeMs"] = _execution_ms(task)


def _execution_ms(task: Task) -> int:
    return (task.finished_at - task.started_at) // 1000 if task.started_at else 0


def problem(error: RotaError, request_id: str) -> dict[str, Any]:
    """Show an error as on all of bare /tasks, in BrowserOS's words."""
    return native_body(reworded(error, STATES), request_id)


def callback(task: Task) -> tuple[dict[str, str], bytes]:
    """Give the headers and the body of a task's webhook: exactly the document's fields."""
    body: dict[str, Any] = {"taskId": task.id, "state": STATES[task.state]}
    if task.state is TaskState.SUCCEEDED:
        body["result"] = spliced(task.result_json)
    elif task.error is not None:
        body["error"] = task.error
    body["executionTimeMs"] = _execution_ms(task)
    return {"X-BrowserOS-Event": f"task.{STATES[task.state]}"}, orjson.dumps(body)


def batch_view(batch: Batch, tasks: list[Task | None]) -> dict[str, Any]:
    """Show a batch as BrowserOS would."""
    counts = dict.fromkeys(dict.fromkeys(STATES.values()), 0)
    counts |= {
        "completed": batch.fates["succeeded"],
        "failed": batch.fates["failed"],
        "cancelled": batch.fates["cancelled"],
    }
    for task in tasks:
        if task is not None and task.state not in TERMINAL:
            counts[STATES[task.state]] += 1
    ended = len(batch.tasks) - batch.left
    shown: dict[str, Any] = {
        "batchId": batch.id,
        "state": _fate(batch) if batch.finished_at else "running",
        "total": len(batch.tasks),
        "counts": counts,
        "progress": round(ended / len(batch.tasks), 4),
        "tasks": [{"taskId": t.id, "state": STATES[t.state]} for t in tasks if t is not None],
        "createdAt": rfc3339(batch.created_at),
    }
    if batch.parallelism is not None:
        shown["parallelism"] = batch.parallelism
    if batch.callback is not None:
        shown["webhookUrl"] = batch.callback
    if batch.finished_at:
        shown["completedAt"] = rfc3339(batch.finished_at)
    return shown


def _fate(batch: Batch) -> str:
    if batch.fates["failed"]:
        return "failed"
    return "cancelled" if batch.fates["cancelled"] else "completed"


def batch_callback(
    batch: Batch, find: Callable[[str], Task | None]
) -> tuple[dict[str, str], bytes]:
    """Give the headers and the body of a batch's webhook."""
    body: dict[str, Any] = {
        "batchId": batch.id,
        "state": _fate(batch),
        "total": len(batch.tasks),
        "completed": batch.fates["succeeded"],
        "failed": batch.fates["failed"],
        "cancelled": batch.fates["cancelled"],
        "executionTimeMs": (batch.finished_at - batch.created_at) // 1000,
        "tasks": [],
    }
    for task in map(find, batch.tasks):
        if task is not None:
            body["tasks"].append(orjson.loads(callback(task)[1]))
    return {"X-BrowserOS-Event": f"batch.{_fate(batch)}"}, orjson.dumps(body)


def event_view(record: Record, batch_id: str | None) -> dict[str, Any] | None:
    """Show a fact by its name in the document; None if it has none."""
    event: Any = record.event
    name = EVENTS.get(type(event))
    if name is None:
        return None
    states = {"task.created": "pending", "task.started": "running"}
    if type(event) is e.TaskSubmitted and event.waits:
        states["task.created"] = "waiting_dependency"
    shown: dict[str, Any] = {"type": name, "taskId": event.task}
    if batch_id is not None:
        shown["batchId"] = batch_id
    shown["state"] = states.get(name, name.removeprefix("task."))
    if type(event) is e.AttemptFailed:
        shown["state"] = "pending"
        shown["nextAttemptAt"] = rfc3339(event.next_at)
    if type(event) is e.TaskSucceeded:
        shown["result"] = event.result
    if hasattr(event, "error"):
        shown["error"] = event.error
    shown["timestamp"] = rfc3339(record.at)
    return shown


# -- in


def _command(call: Call, body: BrowserOSItem) -> SubmitTask:
    """Make the command that a body asks for. Raises InvalidRequest."""
    settings = call.bridge.settings
    kind = settings.chats()
    timeout_ms = body.timeoutMs or body.timeout or kind.timeout_ms
    if timeout_ms is not None and timeout_ms > kind.timeout_ms_max:
        msg = f"field 'timeoutMs': is more than {kind.timeout_ms_max}, the most there is"
        raise InvalidRequest(msg, details={"field": "timeoutMs"})
    retry, given = kind.retry, body.retryPolicy
    if given is not None and retry is not None:
        changes: dict[str, Any] = {}
        if given.maxRetries is not None:
            changes["max_attempts"] = given.maxRetries + 1
        if given.backoffMs is not None:
            changes["base_ms"] = given.backoffMs
        if given.backoffMultiplier is not None:
            changes["multiplier"] = given.backoffMultiplier
        retry = retry.model_copy(update=changes)
    params: dict[str, Any] = {"instruction": body.instruction}
    if body.llmConfig is not None:
        params["llmConfig"] = body.llmConfig
    command = SubmitTask(
        settings.browseros.agent,
        CHAT,
        kind.executor,
        params,
        PRIORITY_WORDS[body.priority],
        NAME,
        ref=body.ref,
        callback=body.webhookUrl or None,
        timeout_ms=timeout_ms,
        on_interrupt="fail" if kind.on_interrupt == "fail" else None,
        by=call.by,
        wanted_id=body.taskId,
        depends=tuple(body.dependsOn),
        on_missing=body.onMissing,
        retry=written(retry),
        queue_timeout_ms=kind.queue_timeout_ms,
        preempt=body.preempt,
    )
    note_wait(command, "chat")
    return command


async def submit(call: Call, raw: Any) -> Any:
    """POST /tasks."""
    body = call.validate(BrowserOSBody, raw)
    await call.check_callback(body.webhookUrl)
    answer = await admitted(call, keyed(call, _command(call, body), body.idempotencyKey, raw))
    shown: dict[str, Any] = {
        "taskId": answer.task,
        "state": STATES[TaskState(answer.state)],
        "createdAt": rfc3339(answer.created_at),
    }
    if answer.known:
        return call.json({**shown, answer.known: True})
    return call.json(shown, status=201)


async def submit_batch(call: Call, raw: Any) -> Any:
    """POST /tasks/batch."""
    tasks = raw.get("tasks")
    if isinstance(tasks, list) and len(tasks) > BROWSEROS_BATCH_MAX:
        msg = f"batch has {len(tasks)} tasks; at most {BROWSEROS_BATCH_MAX} are allowed"
        details = {"tasks": len(tasks), "max": BROWSEROS_BATCH_MAX}
        raise InvalidRequest(msg, code="batch_too_large", details=details)
    body = call.validate(BrowserOSBatch, raw)
    for url in {body.webhookUrl, *(item.webhookUrl for item in body.tasks)}:
        await call.check_callback(url)
    batch = SubmitBatch(
        tuple(_command(call, item) for item in body.tasks),
        NAME,
        body.parallelism,
        body.webhookUrl or None,
        call.by,
    )
    answer = await call.bridge.submit_batch(keyed(call, batch, body.idempotencyKey, raw))
    shown: dict[str, Any] = {
        "batchId": answer.batch,
        "taskIds": [task.task for task in answer.tasks],
        "tasks": [
            {"taskId": task.task, "state": STATES[TaskState(task.state)]} for task in answer.tasks
        ],
        "createdAt": rfc3339(answer.created_at),
    }
    if answer.known:
        return call.json({**shown, answer.known: True})
    return call.json(shown, status=201)


async def cancel(call: Call, task_id: str) -> Any:
    """DELETE /tasks/{id}."""
    task_id = await call.bridge.cancel(task_id, "", call.by)
    return call.json({"taskId": task_id, "state": "cancelled"})


async def stats(call: Call) -> Any:
    """GET /tasks/stats: how many of BrowserOS's tasks are where."""
    counts = await call.bridge.gathered(lambda: _counts(call), lambda counts: counts)
    total = sum(counts.values())
    limits = dict(call.bridge.shard.state.control.limits.types)
    active = call.bridge.shard.state.slots.of_limit(f"type:{CHAT}")
    body = {"total": total, **counts, "activeTasks": active, "maxConcurrent": limits.get(CHAT)}
    return call.json(body)


async def _counts(call: Call) -> dict[str, int]:
    counts = dict.fromkeys(dict.fromkeys(STATES.values()), 0)
    for at, task in enumerate(list(call.bridge.shard.state.tasks)):
        if task.dialect == NAME and task.state is not TaskState.REJECTED:
            counts[STATES[task.state]] += 1
        if at % SLICE_TASKS == SLICE_TASKS - 1:
            await asyncio.sleep(0)
    return counts

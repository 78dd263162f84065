"""BrowserOS's own words and shapes.

Its tasks share one agent and are of one type, which is run by the chat executor; that gives its
global order and its one bound on how many run at once. `pending` is anything that waits its turn,
`queued` has been selected. Retries default to the document's three, and a batch is one unit with
its own webhook. Everything else is the native core.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.config import BROWSEROS_BATCH_MAX
from rota.domain import events as e
from rota.domain.intake import CHAT, BatchRequest, Request, TimeoutTooLong, Usual
from rota.domain.packed import spliced, written
from rota.domain.plan import NO_PLAN, Plan
from rota.domain.retry import RetryPolicy, policy_of
from rota.domain.task import BLOCKED, SCHEDULED, TERMINAL, TaskState
from rota.errors import InvalidRequest
from rota.http.dialects.models import BrowserOSBatch, BrowserOSBody
from rota.http.models import PRIORITY_WORDS
from rota.http.problems import native_body, reworded
from rota.http.submissions import admitted, keyed, keyed_batch, note_wait
from rota.http.views import add_wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.domain.batch import Batch
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.errors import RotaError
    from rota.http.call import Call
    from rota.http.dialects.models import BrowserOSItem, RetryPolicyBody
    from rota.projections.state import State

NAME = "browseros"
PREEMPTING = Plan(preempt=True)

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
    plan = task.plan
    policy = policy_of(task) or RetryPolicy()
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
    return {"X-BrowserOS-Event": f"task.{STATES[task.state]}"}, written(body)


def batch_view(batch: Batch, tasks: list[Task | None]) -> dict[str, Any]:
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


def batch_callback(batch: Batch, tasks: Sequence[Task]) -> tuple[dict[str, str], bytes]:
    body: dict[str, Any] = {
        "batchId": batch.id,
        "state": _fate(batch),
        "total": len(batch.tasks),
        "completed": batch.fates["succeeded"],
        "failed": batch.fates["failed"],
        "cancelled": batch.fates["cancelled"],
        "executionTimeMs": (batch.finished_at - batch.created_at) // 1000,
        "tasks": [orjson.loads(callback(task)[1]) for task in tasks],
    }
    return {"X-BrowserOS-Event": f"batch.{_fate(batch)}"}, written(body)


def event_view(record: Record[e.Event], batch_id: str | None) -> dict[str, Any] | None:
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


def _request(call: Call, body: BrowserOSItem) -> Request:
    """Give what a body asks for, by the document's defaults."""
    own = call.bridge.settings.browseros
    params: dict[str, Any] = {"instruction": body.instruction}
    if body.llmConfig is not None:
        params["llmConfig"] = body.llmConfig
    return Request(
        own.agent,
        CHAT,
        params=params,
        priority=PRIORITY_WORDS[body.priority],
        dialect=NAME,
        ref=body.ref,
        callback=body.webhookUrl or None,
        timeout_ms=body.timeoutMs or body.timeout,
        by=call.by,
        wanted_id=body.taskId,
        depends=tuple(body.dependsOn),
        on_missing=body.onMissing,
        plan=PREEMPTING if body.preempt else NO_PLAN,
        retries=_retries(body.retryPolicy),
        usual=Usual(own.timeout_ms, own.timeout_ms_max, own.retry.written()),
    )


def _retries(given: RetryPolicyBody | None) -> dict[str, Any] | None:
    """Give what a `retryPolicy` says natively."""
    if given is None:
        return None
    retries: dict[str, Any] = {}
    if given.maxRetries is not None:
        retries["max_attempts"] = given.maxRetries + 1
    if given.backoffMs is not None:
        retries["base_ms"] = given.backoffMs
    if given.backoffMultiplier is not None:
        retries["multiplier"] = given.backoffMultiplier
    return retries


@contextmanager
def _worded() -> Iterator[None]:
    """Say in BrowserOS's words that a timeout is too long."""
    try:
        yield
    except TimeoutTooLong as error:
        msg = f"field 'timeoutMs': is more than {error.most_ms}, the most there is"
        raise InvalidRequest(msg, details={"field": "timeoutMs"}) from None


async def submit(call: Call, raw: Any) -> Any:
    """POST /tasks."""
    body = call.validate(BrowserOSBody, raw)
    await call.check_callback(body.webhookUrl, "webhookUrl")
    request = keyed(call, _request(call, body), body.idempotencyKey, raw)
    with _worded():
        answer = await admitted(call, request)
    note_wait(request, answer, CHAT)
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
    urls = {item.webhookUrl: f"tasks.{at}.webhookUrl" for at, item in enumerate(body.tasks)}
    for url, field in {**urls, body.webhookUrl: "webhookUrl"}.items():
        await call.check_callback(url, field)
    batch = BatchRequest(
        tuple(_request(call, item) for item in body.tasks),
        NAME,
        body.parallelism,
        body.webhookUrl or None,
        call.by,
    )
    with _worded():
        answer = await call.bridge.submit_batch(keyed_batch(call, batch, body.idempotencyKey, raw))
    for request, task in zip(batch.tasks, answer.tasks, strict=True):
        note_wait(request, task, CHAT)
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
    counts = dict.fromkeys(dict.fromkeys(STATES.values()), 0)

    def count(task: Task) -> None:
        if task.dialect == NAME and task.state is not TaskState.REJECTED:
            counts[STATES[task.state]] += 1

    async def gather() -> None:
        counts.update(dict.fromkeys(counts, 0))
        await call.sight.each_task(count)

    await call.sight.gathered(gather, lambda _: None)
    total = sum(counts.values())

    def busy(state: State) -> dict[str, Any]:
        active = state.slots.of_limit(f"type:{CHAT}")
        most = dict(state.control.limits.types).get(CHAT)
        return {"activeTasks": active, "maxConcurrent": most}

    return call.json({"total": total, **counts, **await call.sight.seen(busy)})

"""/v1/tasks: submit, list, look, cancel, retry, and what a task said and went through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX, WAIT_MS_MAX
from rota.domain.task import TaskState
from rota.errors import NotFound
from rota.http import views
from rota.http.failures import answer_failed
from rota.http.logs import answer_logs
from rota.http.models import LogBody, ProgressBody, ReasonBody, SubmitBody
from rota.http.submissions import command_from, keyed, submit_one
from rota.http.tables import answer_list
from rota.http.v1.seqs import check_after
from rota.http.watches import until_ended

if TYPE_CHECKING:
    from rota.http.call import Call

EVENTS_BYTES = 1 << 20
STATES = {state.value: frozenset({state}) for state in TaskState}


async def submit(call: Call) -> Any:
    """POST /v1/tasks."""
    raw = await call.parsed()
    body = call.validate(SubmitBody, raw)
    await call.check_callback(body.callbackUrl)
    command = command_from(call, body, body.agentId, "native", body.callbackUrl, call.now())
    return await submit_one(call, keyed(call, command, body.idempotencyKey, raw))


async def list_all(call: Call) -> Any:
    """GET /v1/tasks; the failed ones also after they have left memory."""
    if (call.query("state") or call.query("status")) == TaskState.FAILED:
        return await answer_failed(call, views.native)
    return await answer_list(call, STATES, views.native, rows=PAGE_ROWS, rows_max=PAGE_ROWS_MAX)


async def get_one(call: Call) -> Any:
    """GET /v1/tasks/{id}: at once, or with waitMs when it has ended."""
    task_id = call.params["id"]
    wait_ms = call.query_int("waitMs", default=0, low=0, high=WAIT_MS_MAX)
    await until_ended(call, task_id, wait_ms)
    found = await call.bridge.durable(lambda: call.view(call.bridge.task(task_id), views.native))
    return call.json(found)


async def cancel(call: Call) -> Any:
    """POST /v1/tasks/{id}/cancel."""
    body = await call.body(ReasonBody, optional=True)
    task_id = await call.bridge.cancel(call.params["id"], body.reason, call.by)
    return call.json({"taskId": task_id, "state": "cancelled"})


async def retry(call: Call) -> Any:
    """POST /v1/tasks/{id}/retry: a new life for a failed task."""
    task_id = await call.bridge.retry(call.params["id"], call.by)
    return call.json({"taskId": task_id, "state": "ready"}, status=202)


async def events(call: Call) -> Any:
    """GET /v1/tasks/{id}/events."""
    task_id, log = call.params["id"], call.bridge.shard.log
    after = call.query_int("after", default=0, low=0, high=SEQ_MAX)
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    check_after(after, log.head().seq)
    found = log.read_task(task_id, limit, after, EVENTS_BYTES)
    if not found and not log.has_task(task_id):
        raise NotFound("task not found")
    body = b'{"events":[%b]' % b",".join(each.body for each in found)
    if len(found) == limit or sum(len(each.body) for each in found) > EVENTS_BYTES:
        body += b',"next":%d' % found[-1].seq
    return call.raw(body + b"}")


async def logs(call: Call) -> Any:
    """GET /v1/tasks/{id}/logs."""
    task = call.bridge.task(call.params["id"])
    return call.json({"taskId": task.id, **answer_logs(call, task.id)})


async def add_logs(call: Call) -> Any:
    """POST /v1/tasks/{id}/logs."""
    body = await call.body(LogBody)
    task_id = call.params["id"]
    await call.bridge.note(
        task_id, lines=tuple(body.lines), level=body.level, by=call.by, token=body.token
    )
    return call.json({"taskId": task_id}, status=201)


async def add_progress(call: Call) -> Any:
    """POST /v1/tasks/{id}/progress."""
    body = await call.body(ProgressBody)
    task_id = call.params["id"]
    await call.bridge.note(task_id, progress=body.progress, by=call.by, token=body.token)
    return call.json({"taskId": task_id}, status=201)

"""/v1/tasks: submit, list, look, cancel, retry, and what a task said and went through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX, WAIT_MS_MAX
from rota.domain.task import BLOCKED, TaskState
from rota.errors import InvalidRequest
from rota.http import views
from rota.http.bulk_models import PriorityBody
from rota.http.failures import answer_failed
from rota.http.logs import answer_logs
from rota.http.models import LogBody, ProgressBody, ReasonBody, SubmitBody, moment_us
from rota.http.submissions import dedup_of, keyed, native_request, submit_one
from rota.http.tables import answer_list
from rota.http.watches import until_ended
from rota.sight.past import Moment

if TYPE_CHECKING:
    from rota.http.call import Call

STATES = {state.value: frozenset({state}) for state in TaskState}


async def submit(call: Call) -> Any:
    """POST /v1/tasks."""
    raw = await call.parsed()
    body = call.validate(SubmitBody, raw)
    await call.check_callback(body.callbackUrl)
    request = native_request(body, body.agentId, call.by)
    if body.dedup is not None:
        request = request._replace(dedup=dedup_of(body.dedup))
    return await submit_one(call, keyed(call, request, body.idempotencyKey, raw))


async def list_all(call: Call) -> Any:
    """GET /v1/tasks; the failed ones also after they have left memory."""
    if call.query("state") == TaskState.FAILED:
        return await answer_failed(call, views.native)
    for name in ("code", "q"):
        if call.query(name) is not None:
            msg = f"query parameter '{name}': goes with state=failed"
            raise InvalidRequest(msg, details={"field": name})
    return await answer_list(call, STATES, views.native, rows=PAGE_ROWS, rows_max=PAGE_ROWS_MAX)


async def get_one(call: Call) -> Any:
    """GET /v1/tasks/{id}: at once, or with waitMs when it has ended; with `at`, as it was then."""
    task_id = call.params["id"]
    if "at" in call.request.query:
        task = await call.sight.task_at(task_id, _moment(call))
        return call.json(call.view(task, views.native, is_past=True))
    wait_ms = call.query_int("waitMs", default=0, low=0, high=WAIT_MS_MAX)
    await until_ended(call, task_id, wait_ms)
    shown = await call.sight.show_task(task_id, lambda task: call.view(task, views.native))
    return call.json(shown)


def _moment(call: Call) -> Moment:
    """Read the `at` of the query: a seq, or a moment. Raises InvalidRequest."""
    text = call.query("at") or ""
    if call.query("waitMs"):
        raise _bad_at("give either at or waitMs: what was cannot be waited for")
    if text.isascii() and text.isdigit():
        return Moment(int(text.lstrip("0")[:19] or "0"))  # so many digits are beyond any log
    try:
        return Moment(None, moment_us(text.replace(" ", "+")))  # a plus sign, as queries write it
    except ValueError:
        raise _bad_at("must be a seq, or a moment such as 2026-03-08T12:05:00Z") from None


def _bad_at(problem: str) -> InvalidRequest:
    return InvalidRequest(f"query parameter 'at': {problem}", details={"field": "at"})


async def cancel(call: Call) -> Any:
    """POST /v1/tasks/{id}/cancel."""
    body = await call.body(ReasonBody, optional=True)
    task_id = await call.bridge.cancel(call.params["id"], body.reason, call.by)
    return call.json({"taskId": task_id, "state": "cancelled"})


async def retry(call: Call) -> Any:
    """POST /v1/tasks/{id}/retry: a new life for a failed task."""
    task_id = await call.bridge.retry(call.params["id"], call.by)
    is_held = await call.sight.show_task(task_id, lambda task: task.state is BLOCKED)
    return call.json({"taskId": task_id, "state": "blocked" if is_held else "ready"}, status=202)


async def reprioritise(call: Call) -> Any:
    """POST /v1/tasks/{id}/reprioritise."""
    body = await call.body(PriorityBody)
    task_id, priority = call.params["id"], int(body.priority)
    state = await call.bridge.reprioritise(task_id, priority, call.by)
    return call.json({"taskId": task_id, "state": state, "priority": priority})


async def events(call: Call) -> Any:
    """GET /v1/tasks/{id}/events."""
    after = call.query_int("after", default=0, low=0, high=SEQ_MAX)
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    page = await call.sight.records_of(call.params["id"], after, limit)
    body = b'{"events":[%b]' % b",".join(each.body for each in page.found)
    if page.is_cut:
        body += b',"next":%d' % page.next
    return call.raw(body + b"}")


async def logs(call: Call) -> Any:
    """GET /v1/tasks/{id}/logs."""
    task = await call.sight.task(call.params["id"])
    return call.json({"taskId": task.id, **await answer_logs(call, task.id)})


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

"""BrowserManager's own words and shapes: jobs under /api.

Every answer is `{code, msg, data, requestId}`, code 0 for success and a negative one for an error;
`queued` is anything that waits, `running` whatever has been given to a worker. A job's key is its
profile, so that a profile has at most so many jobs at once. Which path makes which type of job is
in the configuration. Everything else is the native core.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, WAIT_MS_MAX, RetrySettings
from rota.domain.browsers import START, STOP, STOP_ALL
from rota.domain.commands import SubmitTask
from rota.domain.packed import spliced
from rota.domain.retry import RetryPolicy
from rota.domain.task import TaskState
from rota.errors import InvalidRequest, QueueFull, RotaError
from rota.http.dialects.job_pages import numbered_page
from rota.http.dialects.models import EnvBody, JobBody, JobFields
from rota.http.logs import answer_logs
from rota.http.problems import reworded
from rota.http.submissions import admitted, keyed, written
from rota.http.tables import shown_list
from rota.http.views import add_wait
from rota.http.watches import until_ended

if TYPE_CHECKING:
    from rota.config import TypeSettings
    from rota.domain.task import Task
    from rota.http.call import Call

NAME = "browsermanager"

STATES = {
    TaskState.BLOCKED: "queued",
    TaskState.SCHEDULED: "queued",
    TaskState.READY: "queued",
    TaskState.ASSIGNED: "running",
    TaskState.RUNNING: "running",
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "canceled",
    TaskState.REJECTED: "failed",
}
NATIVE = {
    word: frozenset(s for s, w in STATES.items() if w == word) - {TaskState.REJECTED}
    for word in set(STATES.values())
}
RETRY = RetrySettings(jitter_ms=1000)
"""The document's backoff, for types that have none of their own."""
QUEUE_FULL = -1403
CODES = {
    400: -1400,
    401: -1401,
    403: -1402,
    404: -1404,
    405: -1405,
    409: -1409,
    413: -1413,
    415: -1415,
    422: -1422,
    503: -1503,
}
"""The codes by status; the document fixes only the one for a full queue."""
NAMES = {"taskId": "jobId", "state": "status"}
"""What the details of an error are called here."""
_TASK = re.compile(r"\btask\b")
MESSAGES = {"timeout": "Execution timeout", "queue_timeout_exceeded": "Queue timeout"}


# -- out


def view(task: Task) -> dict[str, Any]:
    """Show a job."""
    plan = task.plan
    policy = RetryPolicy(**plan.retry) if plan is not None and plan.retry else RetryPolicy()
    shown: dict[str, Any] = {
        "jobId": task.id,
        "jobType": task.action,
        "status": STATES[task.state],
        "priority": task.priority,
        "retryCount": task.retries,
        "maxRetries": policy.max_attempts - 1,
        "createdAt": rfc3339(task.created_at),
    }
    if plan is not None:
        given = {"profileId": plan.key, "idempotencyKey": plan.idempotency}
        shown |= {name: value for name, value in given.items() if value is not None}
        if plan.queue_timeout_ms is not None:
            shown["queueTimeoutSeconds"] = plan.queue_timeout_ms / 1000
    if task.params_json not in (None, b"{}"):
        shown["payload"] = spliced(task.params_json)
    if task.timeout_ms is not None:
        shown["timeoutSeconds"] = task.timeout_ms / 1000
    _add_course(shown, task)
    return shown


def _add_course(shown: dict[str, Any], task: Task) -> None:
    """Add how a job went, as far as it went."""
    add_wait(shown, task)
    if task.state is TaskState.SCHEDULED:
        shown["nextRetryAt"] = rfc3339(task.next_at)
    if task.notes is not None and task.notes.progress is not None:
        shown["progress"] = task.notes.progress
    if task.started_at:
        shown["startedAt"] = rfc3339(task.started_at)
    if task.finished_at:
        shown["finishedAt"] = rfc3339(task.finished_at)
    if task.result_json is not None:
        shown["result"] = spliced(task.result_json)
    if task.error is not None:
        shown["errorCode"] = (task.error_details or {}).get("code") or task.error_code
        shown["errorMessage"] = MESSAGES.get(task.error_code or "", task.error)


def callback(task: Task) -> tuple[dict[str, str], bytes]:
    """Give the headers and the body of a job's callback."""
    return {"X-BrowserManager-Event": f"job.{STATES[task.state]}"}, orjson.dumps(view(task))


def problem(error: RotaError, request_id: str) -> dict[str, Any]:
    """Show an error in the envelope."""
    if isinstance(error, QueueFull):
        error.status = 422
        return _envelope(QUEUE_FULL, "Job queue full", error.details, request_id)
    error = reworded(error, STATES)
    message = _TASK.sub("job", str(error))
    code = CODES.get(error.status, -1500 if error.status >= 500 else -1400)
    details = {"error": error.code}
    details |= {NAMES.get(name, name): value for name, value in error.details.items()}
    return _envelope(code, message, details, request_id)


def _envelope(code: int, msg: str, data: Any, request_id: str) -> dict[str, Any]:
    return {"code": code, "msg": msg, "data": data, "requestId": request_id}


def _ok(call: Call, data: Any) -> Any:
    return call.json(_envelope(0, "success", data, call.request_id))


# -- in


def _command(
    call: Call, body: JobFields, job_type: str, profile: str | None, payload: dict[str, Any] | None
) -> SubmitTask:
    """Make the command that a job's body asks for. Raises InvalidRequest."""
    settings = call.bridge.settings
    kind = settings.types.get(job_type)
    if kind is None:
        known = ", ".join(sorted(settings.types)) or "none: start with --preset browsermanager"
        msg = f"unknown job type '{job_type[:100]}'; there are {known}"
        raise InvalidRequest(msg, code="unknown_type", details={"field": "jobType"})
    if profile is None and job_type in (START, STOP):  # nobody could stop such a browser
        raise _missing("profileId")
    timeout_ms = _timeout_ms(body, kind, job_type)
    retry = kind.retry
    if body.maxRetries is not None:
        retry = _with_retries(retry, body.maxRetries, job_type)
    return SubmitTask(
        body.agentId or settings.browsermanager.agent,
        job_type,
        kind.executor,
        payload,
        int(body.priority),
        NAME,
        callback=body.callbackUrl or body.webhookUrl or None,
        timeout_ms=timeout_ms,
        on_interrupt="fail" if kind.on_interrupt == "fail" else None,
        by=call.by,
        key=profile,
        retry=written(retry),
        queue_timeout_ms=kind.queue_timeout_ms,
    )


def _missing(field: str) -> InvalidRequest:
    return InvalidRequest(f"missing required field '{field}'", details={"field": field})


def _timeout_ms(body: JobFields, kind: TypeSettings, job_type: str) -> int | None:
    """Read how long an attempt may take, in milliseconds or in seconds. Raises InvalidRequest."""
    given, field, most = body.timeoutMs, "timeoutMs", kind.timeout_ms_max
    problem = f"is more than {most}, the most for {job_type}"
    if body.timeoutSeconds is not None:
        given, field = max(1, round(body.timeoutSeconds * 1000)), "timeoutSeconds"
        problem = f"is more than {most / 1000:g}, the most for {job_type}"
        if body.timeoutMs not in (None, given):
            given, problem = most + 1, "says another time than timeoutMs"
    if given is not None and given > most:
        raise InvalidRequest(f"field '{field}': {problem}", details={"field": field})
    return given or kind.timeout_ms


def _with_retries(retry: RetrySettings | None, count: int, job_type: str) -> RetrySettings:
    """Let a job be tried again so often. Raises InvalidRequest if its type never is."""
    if retry is not None and retry.retry_on == [] and count:
        msg = f"field 'maxRetries': jobs of type {job_type} are never tried again"
        raise InvalidRequest(msg, details={"field": "maxRetries"})
    return (retry or RETRY).model_copy(update={"max_attempts": count + 1})


async def _enqueue(call: Call, command: SubmitTask, given: str | None, raw: Any) -> Any:
    await call.check_callback(command.callback)
    answer = await admitted(call, keyed(call, command, given, raw))
    if not answer.known:
        status = STATES[TaskState(answer.state)]
        return _ok(call, {"jobId": answer.task, "status": status})
    known = await call.bridge.durable(lambda: view(call.bridge.task(answer.task)))
    data = {name: known[name] for name in ("jobId", "status", "result") if name in known}
    return _ok(call, {**data, answer.known: True})


async def submit_by_path(call: Call) -> Any:
    """POST to a configured path: the path says the type, the body is the payload."""
    job_type = call.bridge.settings.browsermanager.routes[call.path]
    may_be_empty = job_type == STOP_ALL and not call.request.can_read_body
    raw = {} if may_be_empty else await call.parsed()
    body = call.validate(EnvBody, raw)
    payload = {k: v for k, v in raw.items() if k not in JobFields.model_fields}
    command = _command(call, body, job_type, body.profileId or body.id, payload)
    return await _enqueue(call, command, body.idempotencyKey, raw)


async def submit(call: Call) -> Any:
    """POST /api/jobs."""
    raw = await call.parsed()
    body = call.validate(JobBody, raw)
    job_type = body.jobType or body.type
    if job_type is None:
        raise _missing("jobType")
    command = _command(call, body, job_type, body.profileId, body.payload)
    return await _enqueue(call, command, body.idempotencyKey, raw)


async def list_all(call: Call) -> Any:
    """GET /api/jobs: the newest first, a page at a time, by cursor or by number."""
    if call.query("page") or call.query("pageSize"):
        return _ok(call, await numbered_page(call, NATIVE, NAME, view))
    jobs, cursor = await shown_list(
        call,
        NATIVE,
        view,
        rows=PAGE_ROWS,
        rows_max=PAGE_ROWS_MAX,
        dialect=NAME,
        hide_rejected=frozenset({NAME}),
    )
    data: dict[str, Any] = {"jobs": jobs, "count": len(jobs)}
    if cursor is not None:
        data["nextCursor"] = cursor
    return _ok(call, data)


async def get_one(call: Call) -> Any:
    """GET /api/jobs/{id}: at once, or with waitMs when it has ended."""
    job_id = call.params["id"]
    wait_ms = call.query_int("waitMs", default=0, low=0, high=WAIT_MS_MAX)
    await until_ended(call, job_id, wait_ms)
    shown = await call.bridge.durable(lambda: call.view(call.bridge.task(job_id), view))
    return _ok(call, shown)


async def cancel(call: Call) -> Any:
    """POST /api/jobs/{id}/cancel."""
    job_id = await call.bridge.cancel(call.params["id"], "", call.by)
    return _ok(call, {"jobId": job_id, "status": "canceled"})


async def logs(call: Call) -> Any:
    """GET /api/jobs/{id}/logs: what the job said, and every transition."""
    task = call.bridge.task(call.params["id"])
    return _ok(call, {"jobId": task.id, **answer_logs(call, task.id, transitions=True)})

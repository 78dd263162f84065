"""BrowserManager's own words and shapes: jobs under /api.

Every answer is `{code, msg, data, requestId}`, code 0 for success and a negative one for an error;
`queued` is anything that waits, `running` whatever has been given to a worker. A job's key is its
profile, so that a profile has at most so many jobs at once. Which path makes which type of job is
in the configuration. Everything else is the native core.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, WAIT_MS_MAX
from rota.domain.browsers import START, STOP, STOP_ALL
from rota.domain.intake import EVERY_TYPE, NOTHING_USUAL, Request, TimeoutTooLong, Usual
from rota.domain.packed import spliced, written
from rota.domain.plan import NO_PLAN, Plan
from rota.domain.retry import RetryPolicy, policy_of
from rota.domain.task import TaskState
from rota.errors import InvalidRequest, QueueFull, RotaError
from rota.http.dialects.job_pages import numbered_page
from rota.http.dialects.models import EnvBody, JobBody, JobFields
from rota.http.logs import answer_logs
from rota.http.problems import reworded
from rota.http.submissions import admitted, keyed
from rota.http.tables import shown_list
from rota.http.views import add_wait
from rota.http.watches import until_ended
from rota.sections import RetrySettings

if TYPE_CHECKING:
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
USUAL = Usual(retry=RetrySettings(jitter_ms=1000).written())
"""The document's backoff, for jobs that ask for retries whose type has none of its own."""
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
    plan = task.plan
    policy = policy_of(task) or RetryPolicy()
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
    return {"X-BrowserManager-Event": f"job.{STATES[task.state]}"}, written(view(task))


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


def _request(
    call: Call, body: JobFields, job_type: str, profile: str | None, payload: dict[str, Any] | None
) -> Request:
    """Give what a job's body asks for. Raises InvalidRequest."""
    types = call.bridge.rules.types
    rules = types.get(job_type) if job_type != EVERY_TYPE else None
    if rules is None:
        names = ", ".join(sorted({*types} - {EVERY_TYPE}))
        known = names or "none: start with --preset browsermanager"
        msg = f"unknown job type '{job_type[:100]}'; there are {known}"
        raise InvalidRequest(msg, code="unknown_type", details={"field": "jobType"})
    if profile is None and job_type in (START, STOP):  # nobody could stop such a browser
        raise _missing("profileId")
    retries = body.maxRetries
    if retries and rules.retry is not None and rules.retry.get("retry_on") == []:
        raise _bad("maxRetries", f"jobs of type {job_type} are never tried again")
    return Request(
        body.agentId or call.bridge.settings.browsermanager.agent,
        job_type,
        params=payload,
        priority=int(body.priority),
        dialect=NAME,
        callback=body.callbackUrl or body.webhookUrl or None,
        timeout_ms=_timeout_ms(body),
        by=call.by,
        plan=Plan(key=profile) if profile is not None else NO_PLAN,
        retries={"max_attempts": retries + 1} if retries is not None else None,
        usual=USUAL if retries is not None else NOTHING_USUAL,
    )


def _missing(field: str) -> InvalidRequest:
    return InvalidRequest(f"missing required field '{field}'", details={"field": field})


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})


def _timeout_ms(body: JobFields) -> int | None:
    """Read how long an attempt may take, in milliseconds or in seconds. Raises InvalidRequest."""
    if body.timeoutSeconds is None:
        return body.timeoutMs
    given = max(1, round(body.timeoutSeconds * 1000))
    if body.timeoutMs not in (None, given):
        raise _bad("timeoutSeconds", "says another time than timeoutMs")
    return given


async def _enqueue(call: Call, body: JobFields, request: Request, raw: Any) -> Any:
    await call.check_callback(request.callback, "callbackUrl" if body.callbackUrl else "webhookUrl")
    try:
        answer = await admitted(call, keyed(call, request, body.idempotencyKey, raw))
    except TimeoutTooLong as error:
        raise _too_long(body, request.action, error.most_ms) from None
    if not answer.known:
        status = STATES[TaskState(answer.state)]
        return _ok(call, {"jobId": answer.task, "status": status})
    known = await call.sight.show_task(answer.task, view)
    data = {name: known[name] for name in ("jobId", "status", "result") if name in known}
    return _ok(call, {**data, answer.known: True})


def _too_long(body: JobFields, job_type: str, most_ms: int) -> InvalidRequest:
    """Say by the name and in the unit that the client used that a timeout is too long."""
    if body.timeoutSeconds is not None:
        return _bad("timeoutSeconds", f"is more than {most_ms / 1000:g}, the most for {job_type}")
    return _bad("timeoutMs", f"is more than {most_ms}, the most for {job_type}")


async def submit_by_path(call: Call) -> Any:
    """POST to a configured path: the path says the type, the body is the payload."""
    job_type = call.bridge.settings.browsermanager.routes[call.path]
    may_be_empty = job_type == STOP_ALL and not call.request.can_read_body
    raw = {} if may_be_empty else await call.parsed()
    body = call.validate(EnvBody, raw)
    payload = {k: v for k, v in raw.items() if k not in JobFields.model_fields}
    request = _request(call, body, job_type, body.profileId or body.id, payload)
    return await _enqueue(call, body, request, raw)


async def submit(call: Call) -> Any:
    """POST /api/jobs."""
    raw = await call.parsed()
    body = call.validate(JobBody, raw)
    job_type = body.jobType or body.type
    if job_type is None:
        raise _missing("jobType")
    request = _request(call, body, job_type, body.profileId, body.payload)
    return await _enqueue(call, body, request, raw)


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
    shown = await call.sight.show_task(job_id, lambda job: call.view(job, view))
    return _ok(call, shown)


async def cancel(call: Call) -> Any:
    """POST /api/jobs/{id}/cancel."""
    job_id = await call.bridge.cancel(call.params["id"], "", call.by)
    return _ok(call, {"jobId": job_id, "status": "canceled"})


async def logs(call: Call) -> Any:
    """GET /api/jobs/{id}/logs: what the job said, and every transition."""
    task = await call.sight.task(call.params["id"])
    return _ok(call, {"jobId": task.id, **await answer_logs(call, task.id, transitions=True)})

"""PinchTab's own paths, words and shapes.

Submissions without priority are of priority 0 and get a deadline a minute away; `queued` is
anything that waits. Errors leave out what is empty. Callbacks carry the task's snapshot and
PinchTab's headers. Everything else is the native core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import Admitted, Refused
from rota.clock import rfc3339
from rota.config import PINCHTAB_BATCH_MAX, PINCHTAB_DEADLINE_S
from rota.domain.admission import check_ahead
from rota.domain.intake import Request, Usual
from rota.domain.packed import written
from rota.domain.task import TaskState
from rota.errors import InvalidRequest
from rota.http import views
from rota.http.agents import busiest_agents, busiest_queues
from rota.http.dialects.models import PinchTabBatch, PinchTabBody
from rota.http.problems import reworded
from rota.http.submissions import admitted, deadline_us, keyed, note_wait, submitted
from rota.projections.stats import average_ms

if TYPE_CHECKING:
    from rota.domain.commands import Limits
    from rota.domain.task import Task
    from rota.errors import RotaError
    from rota.http.call import Call
    from rota.http.dialects.models import PinchTabItem
    from rota.projections.state import State

NAME = "pinchtab"
USUAL = Usual(deadline_ms=PINCHTAB_DEADLINE_S * 1000)

STATES = {
    TaskState.BLOCKED: "queued",
    TaskState.SCHEDULED: "queued",
    TaskState.READY: "queued",
    TaskState.ASSIGNED: "assigned",
    TaskState.RUNNING: "running",
    TaskState.SUCCEEDED: "done",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
    TaskState.REJECTED: "rejected",
}
NATIVE = {
    word: frozenset(s for s, w in STATES.items() if w == word) for word in set(STATES.values())
}


def view(task: Task) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "taskId": task.id,
        "agentId": task.agent,
        "action": task.action,
        "priority": task.priority,
        "state": STATES[task.state],
    }
    views.add_common(shown, task)
    if task.begun_at:  # the document's is the first execution, not the latest
        shown["startedAt"] = rfc3339(task.begun_at)
        if task.finished_at:
            shown["latencyMs"] = (task.finished_at - task.begun_at) // 1000
    if task.error is not None:
        shown["error"] = task.error
    return shown


def problem(error: RotaError, request_id: str) -> dict[str, Any]:
    """Show an error as PinchTab does: what is empty is left out."""
    del request_id
    error = reworded(error, STATES)
    body: dict[str, Any] = {"code": error.code, "error": str(error)}
    if error.retryable:
        body["retryable"] = True
    if error.details:
        body["details"] = error.details
    return body


def callback(task: Task) -> tuple[dict[str, str], bytes]:
    headers = {"X-PinchTab-Event": "task.completed", "X-PinchTab-Task-ID": task.id}
    return headers, written(view(task))


def _request(call: Call, body: PinchTabBody | PinchTabItem, agent: str, url: str | None) -> Request:
    return Request(
        agent,
        body.action,
        params=body.params,
        priority=int(body.priority),
        dialect=NAME,
        tab=body.tabId,
        ref=body.ref,
        callback=url or None,
        deadline=deadline_us(body.deadline),
        by=call.by,
        usual=USUAL,
        needs_tab=True,
    )


async def submit(call: Call, raw: Any) -> Any:
    """POST /tasks."""
    body = call.validate(PinchTabBody, raw)
    await call.check_callback(body.callbackUrl)
    request = keyed(call, _request(call, body, body.agentId, body.callbackUrl), None, raw)
    answer = await admitted(call, request)
    note_wait(request, answer, "tab")
    return submitted(call, answer, STATES[TaskState(answer.state)], {})


async def submit_batch(call: Call, raw: Any) -> Any:
    """POST /tasks/batch: each task is admitted or rejected on its own."""
    tasks = raw.get("tasks") if isinstance(raw, dict) else None
    if isinstance(tasks, list) and len(tasks) > PINCHTAB_BATCH_MAX:
        msg = f"batch has {len(tasks)} tasks; at most {PINCHTAB_BATCH_MAX} are allowed"
        details = {"tasks": len(tasks), "max": PINCHTAB_BATCH_MAX}
        raise InvalidRequest(msg, code="batch_too_large", details=details)
    body = call.validate(PinchTabBatch, raw)
    await call.check_callback(body.callbackUrl)
    now = call.now()
    requests = tuple(_request(call, i, body.agentId, body.callbackUrl) for i in body.tasks)
    for request in requests:
        check_ahead(request.deadline, now)
    answers = await call.bridge.submit(requests)
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, Admitted):
            note_wait(request, answer, "tab")
    return call.json(
        {
            "tasks": [_item(answer) for answer in answers],
            "submitted": sum(isinstance(answer, Admitted) for answer in answers),
        },
        status=202,
    )


def _item(answer: Admitted | Refused | RotaError) -> dict[str, Any]:
    if isinstance(answer, Admitted):
        return {"taskId": answer.task, "state": "queued", "position": answer.position}
    assert isinstance(answer, Refused), answer  # it has no keys and no dependencies
    return {
        "taskId": answer.task,
        "state": "rejected",
        "code": answer.code,
        "error": answer.error,
    }


async def cancel(call: Call, task_id: str) -> Any:
    """POST /tasks/{id}/cancel."""
    task_id = await call.bridge.cancel(task_id, "", call.by)
    return call.json({"status": "cancelled", "taskId": task_id})


async def stats(call: Call) -> Any:
    """GET /scheduler/stats: the document's fields, and two more if there are too many agents."""
    return call.json(await call.sight.seen(_stats))


def _stats(state: State) -> dict[str, Any]:
    counts = state.stats.since_start()
    queues, queues_rest = busiest_queues(state.backlog.counts())
    agents, agents_rest = busiest_agents(
        state.stats.agents_since_start(), state.stats.rest_since_start()
    )
    return {
        "queue": {
            "totalQueued": state.backlog.total,
            "totalInflight": state.slots.total,
            "agentCounts": queues,
            **({"agentCountsRest": queues_rest} if queues_rest is not None else {}),
        },
        "metrics": {
            "tasksSubmitted": counts["submitted"],
            "tasksCompleted": counts["completed"],
            "tasksFailed": counts["failed"],
            "tasksCancelled": counts["cancelled"],
            "tasksRejected": counts["rejected"],
            "tasksExpired": counts["expired"],
            "dispatchCount": counts["dispatched"],
            "avgDispatchLatencyMs": average_ms(counts["dispatch_wait_us"], counts["dispatched"]),
            "agents": agents,
            **({"agentsRest": agents_rest} if agents_rest is not None else {}),
        },
        "config": _config(state.control.limits),
    }


def _config(limits: Limits) -> dict[str, Any]:
    return {
        "strategy": limits.strategy,
        "maxQueueSize": limits.queued,
        "maxPerAgent": limits.queued_per_agent,
        "maxInflight": limits.inflight,
        "maxPerAgentFlight": limits.inflight_per_agent,
        "workerCount": limits.push,
        "resultTTL": go_duration(limits.result_ttl_s),
    }


def go_duration(seconds: int) -> str:
    """Write seconds as Go writes a duration: 300 is 5m0s."""
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    if hours:
        return f"{hours}h{m}m{s}s"
    return f"{m}m{s}s" if m else f"{s}s"

"""AutoMechanica's own words and shapes: the rows of its `tasks` table, in snake_case.

A row has every column of the document and no other; what a task has not is null. `pending` is
anything that waits, `dead` has failed for good, and what was cancelled is `failed` with its
`error_info`. `attempts` counts the failed attempts, so a first try has 0 and one that died of its
errors has `max_attempts`. The queue is one: rows are those of all tasks, whoever submitted them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.config import PAGE_ROWS, PAGE_ROWS_MAX
from rota.domain.intake import Request, Usual
from rota.domain.packed import spliced, written
from rota.domain.plan import NO_PLAN, Plan
from rota.domain.retry import RetryPolicy, policy_of
from rota.domain.task import WAITING, TaskState
from rota.errors import RequestError
from rota.http.dialects.automechanica_models import AutoMechanicaBody, own_word
from rota.http.failures import answer_failed
from rota.http.flow_views import flow_row, flow_view
from rota.http.models import moment_us
from rota.http.problems import native_body, reworded
from rota.http.submissions import admitted, keyed
from rota.http.tables import answer_list
from rota.presets import AUTOMECHANICA_RETRY
from rota.sections import RetrySettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rota.domain.task import Task
    from rota.domain.workflow import Workflow
    from rota.errors import RotaError
    from rota.http.call import Call
    from rota.http.dialects.automechanica_models import RowFields

NAME = "automechanica"

STATES = {
    TaskState.BLOCKED: "pending",
    TaskState.SCHEDULED: "pending",
    TaskState.READY: "pending",
    TaskState.ASSIGNED: "leased",
    TaskState.RUNNING: "running",
    TaskState.SUCCEEDED: "completed",
    TaskState.FAILED: "dead",
    TaskState.CANCELLED: "failed",
    TaskState.REJECTED: "failed",
}
NATIVE = {
    word: frozenset(s for s, w in STATES.items() if w == word) - {TaskState.REJECTED}
    for word in dict.fromkeys(STATES.values())
}
USUAL = Usual(retry=RetrySettings.model_validate(AUTOMECHANICA_RETRY).written())
"""The document's backoff, for tasks whose type has none of its own."""


# -- out


def view(task: Task) -> dict[str, Any]:
    plan = task.plan or NO_PLAN
    owner, expires_at = lease_of(task)
    return {
        "id": task.id,
        "workflow_id": plan.workflow,
        "agent_name": task.agent,
        "task_type": task.action,
        "payload": spliced(task.params_json) if task.params_json is not None else None,
        "priority": task.priority,
        "status": STATES[task.state],
        "attempts": attempts_of(task),
        "max_attempts": (policy_of(task) or RetryPolicy()).max_attempts,
        "available_at": _moment(_available_at(task)),
        "lease_owner": owner,
        "lease_expires_at": _moment(expires_at),
        "error_info": _error_info(task),
        "created_at": rfc3339(task.created_at),
        "updated_at": rfc3339(task.updated_at),
    }


def lease_of(task: Task) -> tuple[str | None, int]:
    """Say who holds a task, and until when; 0 if nobody does, or that is not known."""
    return (task.worker, task.expires_at) if task.is_leased else (None, 0)


def attempts_of(task: Task) -> int:
    """Count the attempts of this life that failed: the document's retry counter."""
    spent = task.attempt - task.spent_before
    if task.state in WAITING or task.state is TaskState.FAILED:
        return spent
    was_waiting = task.next_at or task.ready_at > task.assigned_at
    if task.state is TaskState.CANCELLED and was_waiting:
        return spent
    return max(spent - 1, 0)  # the last one has not failed


def _available_at(task: Task) -> int:
    """Say from when on a task can be taken, or could when it last was; 0 if nobody knows yet."""
    if task.state is TaskState.BLOCKED:
        return 0
    return task.next_at if task.state is TaskState.SCHEDULED else task.ready_at


def _moment(at: int) -> str | None:
    return rfc3339(at) if at else None


def _error_info(task: Task) -> dict[str, Any] | None:
    if task.error is None:
        if task.state is not TaskState.CANCELLED:
            return None
        return {"code": "cancelled", "message": "cancelled"}
    info: dict[str, Any] = {"code": task.error_code, "message": task.error}
    return {**info, "details": task.error_details} if task.error_details else info


def callback(task: Task) -> tuple[dict[str, str], bytes]:
    return {"X-AutoMechanica-Event": f"task.{STATES[task.state]}"}, written(view(task))


def workflow_callback(
    flow: Workflow, tasks: Sequence[Task], what: str
) -> tuple[dict[str, str], bytes]:
    """Render the callback of a workflow that is `what` now."""
    headers = {"X-AutoMechanica-Event": f"workflow.{what}"}
    return headers, written(workflow_view(flow, tasks))


def own_words(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Rename what a native answer says; the state of a task becomes its status."""
    shown = {own_word(name): value for name, value in answer.items() if name != "state"}
    if "stop" in shown:  # leases, each told of in the same words
        shown["stop"] = list(map(own_words, shown["stop"]))
    return shown | ({"status": STATES[TaskState(answer["state"])]} if "state" in answer else {})


def workflow_view(flow: Workflow, tasks: Sequence[Task | None]) -> dict[str, Any]:
    """Show a workflow with its tasks and their dependencies."""
    return _flow_words(flow_view(flow, tasks))


def workflow_row(flow: Workflow) -> dict[str, Any]:
    """Show a workflow without its tasks."""
    return _flow_words(flow_row(flow))


def _flow_words(flow: dict[str, Any]) -> dict[str, Any]:
    """Rename what is said of a workflow, whose state is no task's."""
    shown = {own_word(name): value for name, value in flow.items()}
    counts: Counter[str] = Counter()
    for state, count in flow["counts"].items():
        counts[STATES[TaskState(state)]] += count
    shown["counts"] = counts
    if "escalate" in flow:
        shown["escalate"] = {
            own_word(name): own_words(value) if name == "task" else value
            for name, value in flow["escalate"].items()
        }
    if "tasks" in flow:
        shown["tasks"] = [{"id": task.pop("taskId"), **own_words(task)} for task in flow["tasks"]]
    return shown


def problem(error: RotaError, request_id: str) -> dict[str, Any]:
    return native_body(reworded(error, STATES), request_id)


# -- in


def request_of(call: Call, body: RowFields, agent: str, workflow: str | None = None) -> Request:
    """Give what a body asks for, by the document's defaults."""
    own = call.bridge.settings.defaults.retry
    not_before = moment_us(body.notBefore) if body.notBefore else None
    plan = Plan(not_before=not_before, workflow=workflow)
    return Request(
        agent,
        body.action,
        params=body.params,
        priority=int(body.priority),
        dialect=NAME,
        callback=body.callbackUrl or None,
        by=call.by,
        wanted_id=body.taskId,
        plan=NO_PLAN if plan == NO_PLAN else plan,
        retries={"max_attempts": body.maxAttempts} if body.maxAttempts is not None else None,
        usual=Usual(retry=own.written()) if own is not None else USUAL,
    )


@contextmanager
def fields_in_own_words() -> Iterator[None]:
    """Name the field of an error that the core found by its own word."""
    try:
        yield
    except RequestError as error:
        if "field" in error.details:
            native = str(error.details["field"])
            last = native.rpartition(".")[2]
            own = error.details["field"] = ".".join(map(own_word, native.split(".")))
            said = error.message.replace(f"'{native}'", f"'{own}'")
            error.message = said.replace(f"'{last}'", f"'{own_word(last)}'")
        raise


async def submit(call: Call) -> Any:
    """POST /automechanica/tasks."""
    raw = await call.parsed()
    body = call.validate(AutoMechanicaBody, raw)
    await call.check_callback(body.callbackUrl, "callback_url")
    request = request_of(call, body, body.agentId, body.workflowId)
    with fields_in_own_words():
        answer = await admitted(call, keyed(call, request, body.idempotencyKey, raw))
    shown = await call.sight.show_task(answer.task, view)
    return call.json(shown, status=200 if answer.known else 201)


async def get_one(call: Call) -> Any:
    """GET /automechanica/tasks/{id}."""
    return call.json(await call.sight.show_task(call.params["id"], lambda t: call.view(t, view)))


async def list_all(call: Call) -> Any:
    """GET /automechanica/tasks; the dead ones also after they have left memory."""
    if call.query("status") == STATES[TaskState.FAILED]:
        return await answer_failed(call, view)
    return await answer_list(call, NATIVE, view, rows=PAGE_ROWS, rows_max=PAGE_ROWS_MAX)


async def list_dead(call: Call) -> Any:
    """GET /automechanica/dead."""
    return await answer_failed(call, view)

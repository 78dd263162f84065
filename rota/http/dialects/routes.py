"""The rows of the table that speak other products' words; routes.py has the rest of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.tokens import Right
from rota.http.dialects import (
    automechanica,
    automechanica_work,
    bare_tasks,
    browsermanager,
    browseros,
    browseros_batches,
    job_socket,
    pinchtab,
)
from rota.http.dialects import automechanica_models as rows
from rota.http.dialects import models as bodies
from rota.http.models import ReasonBody
from rota.http.route import Route

if TYPE_CHECKING:
    from collections.abc import Iterable

LIST_QUERY = ("agentId", "state", "type", "batchId", "workflowId", "cursor", "limit", "view")
ROW_QUERY = ("agent_name", "task_type", "cursor", "limit", "view")
JOB_QUERY = ("status", "jobType", "profileId", "agentId", "cursor", "limit", "page", "pageSize")
_TAB = pinchtab.NAME
_JOBS = browsermanager.NAME
_ROWS = automechanica.NAME

DIALECT_ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/tasks",
        bare_tasks.submit,
        "Submit a task: PinchTab's, or with `instruction` BrowserOS's",
        bodies.BareBody,
        None,
        202,
        dialect=_TAB,
        also=(200, 201),
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/tasks",
        bare_tasks.list_all,
        "List tasks",
        query=LIST_QUERY,
        dialect=_TAB,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/tasks/{id}",
        bare_tasks.get_one,
        "One task",
        query=("view",),
        dialect=_TAB,
        needs=Right.SEE,
    ),
    Route(
        "DELETE",
        "/tasks/{id}",
        bare_tasks.cancel,
        "Cancel a task",
        dialect=_TAB,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/tasks/{id}/cancel",
        bare_tasks.cancel,
        "Cancel a task",
        dialect=_TAB,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/tasks/{id}/retry",
        bare_tasks.retry,
        "Retry a failed task",
        status=202,
        dialect=_TAB,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/tasks/batch",
        bare_tasks.submit_batch,
        "Submit up to 50 tasks, or with `instruction` BrowserOS's 100",
        bodies.BareBatch,
        None,
        202,
        dialect=_TAB,
        also=(200, 201),
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/tasks/batch/{id}",
        browseros_batches.get_one,
        "One batch",
        dialect=_TAB,
        needs=Right.SEE,
    ),
    Route(
        "DELETE",
        "/tasks/batch/{id}",
        browseros_batches.cancel,
        "Cancel",
        dialect=_TAB,
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/tasks/stats",
        browseros.stats,
        "BrowserOS's tasks by state",
        dialect=_TAB,
        needs=Right.OVERSEE,
    ),
    Route(
        "GET",
        "/scheduler/stats",
        pinchtab.stats,
        "Queue, metrics, limits",
        dialect=_TAB,
        needs=Right.OVERSEE,
    ),
    Route(
        "POST",
        "/api/jobs",
        browsermanager.submit,
        "Enqueue a job",
        bodies.JobBody,
        dialect=_JOBS,
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/api/jobs",
        browsermanager.list_all,
        "Jobs",
        query=JOB_QUERY,
        dialect=_JOBS,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/api/jobs/{id}",
        browsermanager.get_one,
        "A job",
        query=("waitMs",),
        dialect=_JOBS,
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/cancel",
        browsermanager.cancel,
        "Cancel a job",
        dialect=_JOBS,
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/api/jobs/{id}/logs",
        browsermanager.logs,
        "A job's log",
        dialect=_JOBS,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/ws/jobs/{id}",
        job_socket.watch,
        "A job's transitions (WebSocket)",
        status=101,
        dialect=_JOBS,
        is_stream=True,
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/automechanica/tasks",
        automechanica.submit,
        "Create a task",
        rows.AutoMechanicaBody,
        None,
        201,
        dialect=_ROWS,
        also=(200,),
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/automechanica/tasks",
        automechanica.list_all,
        "Tasks, as rows of its table",
        query=("status", *ROW_QUERY),
        dialect=_ROWS,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/automechanica/tasks/{id}",
        automechanica.get_one,
        "One task",
        query=("view",),
        dialect=_ROWS,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/automechanica/dead",
        automechanica.list_dead,
        "The dead letters",
        query=ROW_QUERY,
        dialect=_ROWS,
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/automechanica/dead/{id}/revive",
        automechanica_work.revive,
        "A new life for a dead task",
        rows.AutoMechanicaRevive,
        status=202,
        dialect=_ROWS,
        needs=Right.ORCHESTRATE,
    ),
    Route(
        "POST",
        "/automechanica/leases",
        automechanica_work.lease,
        "Lease tasks; waits for them",
        rows.AutoMechanicaLease,
        dialect=_ROWS,
        needs=Right.WORK,
    ),
    *(
        Route(
            "POST",
            f"/automechanica/leases/{{id}}/{handler.__name__}",
            handler,
            summary,
            body,
            dialect=_ROWS,
            needs=Right.WORK,
        )
        for handler, summary, body in (
            (automechanica_work.heartbeat, "Extend a lease", rows.AutoMechanicaHeartbeat),
            (automechanica_work.complete, "The task is completed", rows.AutoMechanicaComplete),
            (automechanica_work.fail, "The attempt failed", rows.AutoMechanicaFail),
            (automechanica_work.release, "Give the task back", rows.AutoMechanicaRelease),
        )
    ),
    Route(
        "POST",
        "/automechanica/workflows",
        automechanica_work.submit_workflow,
        "Create a workflow",
        rows.AutoMechanicaWorkflow,
        status=201,
        dialect=_ROWS,
        also=(200,),
        needs=Right.ORCHESTRATE,
    ),
    Route(
        "GET",
        "/automechanica/workflows",
        automechanica_work.list_workflows,
        "Workflows, newest first",
        query=("state", "name", "cursor", "limit"),
        dialect=_ROWS,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/automechanica/workflows/{id}",
        automechanica_work.get_workflow,
        "One workflow with its tasks",
        dialect=_ROWS,
        needs=Right.SEE,
    ),
    *(
        Route(
            "POST",
            f"/automechanica/workflows/{{id}}/{how}",
            handler,
            f"{how.capitalize()} a workflow",
            ReasonBody,
            dialect=_ROWS,
            needs=Right.ORCHESTRATE,
        )
        for how, handler in automechanica_work.STEERING.items()
    ),
    Route(
        "GET",
        "/automechanica/task_queue_metrics",
        automechanica_work.metrics,
        "The figures of each day, per agent; the last week if no days are named",
        query=("from", "to", "agent_name"),
        dialect=_ROWS,
        needs=Right.MEASURE,
    ),
)


def job_routes(paths: Iterable[str]) -> tuple[Route, ...]:
    """Give the paths that a configuration maps to types of jobs."""
    return tuple(
        Route(
            "POST",
            path,
            browsermanager.submit_by_path,
            "Enqueue a job of the path's type",
            bodies.EnvBody,
            dialect=_JOBS,
            needs=Right.SUBMIT,
        )
        for path in paths
    )

"""The whole surface as one table.

A row is a method, a path, its handler and what /openapi.json says of it. To find where something
is answered, look here first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.http import answers, docs, flow_models, models
from rota.http.dialects import (
    bare_tasks,
    browsermanager,
    browseros,
    browseros_batches,
    job_socket,
    pinchtab,
)
from rota.http.dialects import models as bodies
from rota.http.v1 import batches, control, dead, events, health, tasks, workflows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pydantic import BaseModel

    Handler = Callable[[Any], Awaitable[Any]]

LIST_QUERY = ("agentId", "state", "type", "batchId", "workflowId", "cursor", "limit", "view")
DEAD_QUERY = ("agentId", "type", "workflowId", "code", "q", "cursor", "limit", "view")
FEED_QUERY = ("after", "limit", "kind", "task", "agentId", "view")
JOB_QUERY = ("status", "jobType", "profileId", "agentId", "cursor", "limit", "page", "pageSize")


class Route(NamedTuple):
    """One thing the server does."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    dialect: str = ""
    public: bool = False
    also: tuple[int, ...] = ()
    """Other statuses that are no error, or are answered alike."""
    media: str = "application/json"
    is_stream: bool = False
    is_for_all: bool = False
    """Whether it changes the whole server, which no token of one namespace may."""


_TAB = pinchtab.NAME
_JOBS = browsermanager.NAME

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/tasks",
        tasks.submit,
        "Submit a task",
        models.SubmitBody,
        answers.Submitted,
        202,
        also=(200,),
    ),
    Route(
        "GET", "/v1/tasks", tasks.list_all, "List tasks", None, answers.TaskPage, 200, LIST_QUERY
    ),
    Route(
        "GET",
        "/v1/tasks/{id}",
        tasks.get_one,
        "One task",
        None,
        answers.TaskView,
        200,
        ("view", "waitMs", "at"),
    ),
    Route("POST", "/v1/tasks/{id}/cancel", tasks.cancel, "Cancel a task", models.ReasonBody),
    Route("POST", "/v1/tasks/{id}/retry", tasks.retry, "A new life for a failed task", status=202),
    Route(
        "GET",
        "/v1/tasks/{id}/events",
        tasks.events,
        "A task's history; `next` is the `after` of the next page",
        query=("after", "limit"),
    ),
    Route(
        "GET",
        "/v1/tasks/{id}/logs",
        tasks.logs,
        "A task's log",
        None,
        answers.LogPage,
        200,
        ("cursor", "limit"),
    ),
    Route(
        "POST", "/v1/tasks/{id}/logs", tasks.add_logs, "Add log lines", models.LogBody, status=201
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/progress",
        tasks.add_progress,
        "Say how far it has come",
        models.ProgressBody,
        status=201,
    ),
    Route(
        "POST",
        "/v1/batches",
        batches.submit,
        "Submit tasks together",
        models.BatchBody,
        answers.BatchSubmitted,
        202,
        also=(200,),
    ),
    Route("GET", "/v1/batches/{id}", batches.get_one, "One batch", None, answers.BatchView),
    Route("POST", "/v1/batches/{id}/cancel", batches.cancel, "Cancel a batch", models.ReasonBody),
    Route(
        "POST",
        "/v1/workflows",
        workflows.submit,
        "Submit a workflow",
        flow_models.WorkflowBody,
        answers.WorkflowSubmitted,
        202,
        also=(200,),
    ),
    Route(
        "GET",
        "/v1/workflows",
        workflows.list_all,
        "List workflows",
        None,
        answers.WorkflowPage,
        200,
        ("state", "name", "cursor", "limit"),
    ),
    Route(
        "GET", "/v1/workflows/{id}", workflows.get_one, "One workflow", None, answers.WorkflowView
    ),
    *(
        Route(
            "POST",
            f"/v1/workflows/{{id}}/{how}",
            handler,
            f"{how.capitalize()} a workflow",
            models.ReasonBody,
            answers.WorkflowState,
        )
        for how, handler in workflows.STEERING.items()
    ),
    Route("GET", "/v1/dead", dead.list_all, "Dead tasks", None, answers.DeadPage, 200, DEAD_QUERY),
    Route(
        "POST",
        "/v1/dead/{id}/revive",
        dead.revive,
        "A new life for a dead task",
        flow_models.ReviveBody,
        answers.Revived,
        202,
    ),
    Route(
        "POST",
        "/v1/dead/revive",
        dead.revive_many,
        "New lives for dead tasks",
        flow_models.ReviveManyBody,
        answers.RevivedMany,
    ),
    Route(
        "GET", "/v1/events", events.feed, "The history", None, answers.EventPage, 200, FEED_QUERY
    ),
    Route(
        "GET",
        "/v1/events/stream",
        events.stream,
        "The history as server-sent events; resume with Last-Event-ID",
        query=("after", "kind", "task", "agentId", "view"),
        media="text/event-stream",
        is_stream=True,
    ),
    Route("GET", "/v1/events/head", events.head, "The end of the log", None, answers.HeadView),
    Route(
        "GET",
        "/v1/agents",
        control.list_agents,
        "The agents, by name",
        query=("state", "limit", "cursor"),
    ),
    Route("POST", "/v1/agents/{id}/pause", control.pause_agent, "Pause", models.ReasonBody),
    Route("POST", "/v1/agents/{id}/resume", control.resume_agent, "Resume an agent"),
    Route("GET", "/v1/types", control.list_types, "The types of tasks"),
    Route("POST", "/v1/types/{id}/pause", control.pause_type, "Pause a type", models.ReasonBody),
    Route("POST", "/v1/types/{id}/resume", control.resume_type, "Resume a type"),
    Route("GET", "/v1/scheduler", control.get_scheduler, "What is paused"),
    Route("POST", "/v1/scheduler/pause", control.pause_scheduler, "Pause all", models.ReasonBody),
    Route("POST", "/v1/scheduler/resume", control.resume_scheduler, "Resume all"),
    Route("GET", "/v1/stats", control.stats, "Counters"),
    Route("GET", "/v1/config", control.get_config, "The settings in force"),
    Route(
        "POST",
        "/v1/config/reload",
        control.reload_config,
        "Reload limits",
        models.ReloadBody,
        is_for_all=True,
    ),
    Route(
        "GET",
        "/v1/namespaces",
        health.namespaces,
        "The namespaces, and how they are",
        None,
        answers.NamespacePage,
    ),
    Route("GET", "/health", health.health, "Health", public=True),
    Route(
        "GET",
        "/health/live",
        health.live,
        "Whether the process runs",
        None,
        answers.Condition,
        public=True,
    ),
    Route(
        "GET",
        "/health/ready",
        health.ready,
        "Whether it takes work",
        None,
        answers.Condition,
        public=True,
        also=(503,),
    ),
    Route("GET", "/metrics", health.metrics, "Figures for Prometheus", media="text/plain"),
    Route("GET", "/openapi.json", docs.openapi, "This table, for machines", public=True),
    Route("GET", "/", docs.home, "To the docs", status=302, public=True),
    Route("GET", "/docs", docs.page, "This table, for people", public=True, media="text/html"),
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
    ),
    Route("GET", "/tasks", bare_tasks.list_all, "List tasks", query=LIST_QUERY, dialect=_TAB),
    Route("GET", "/tasks/{id}", bare_tasks.get_one, "One task", query=("view",), dialect=_TAB),
    Route("DELETE", "/tasks/{id}", bare_tasks.cancel, "Cancel a task", dialect=_TAB),
    Route("POST", "/tasks/{id}/cancel", bare_tasks.cancel, "Cancel a task", dialect=_TAB),
    Route(
        "POST",
        "/tasks/{id}/retry",
        bare_tasks.retry,
        "Retry a failed task",
        status=202,
        dialect=_TAB,
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
    ),
    Route("GET", "/tasks/batch/{id}", browseros_batches.get_one, "One batch", dialect=_TAB),
    Route("DELETE", "/tasks/batch/{id}", browseros_batches.cancel, "Cancel", dialect=_TAB),
    Route("GET", "/tasks/stats", browseros.stats, "BrowserOS's tasks by state", dialect=_TAB),
    Route("GET", "/scheduler/stats", pinchtab.stats, "Queue, metrics, limits", dialect=_TAB),
    Route(
        "POST", "/api/jobs", browsermanager.submit, "Enqueue a job", bodies.JobBody, dialect=_JOBS
    ),
    Route("GET", "/api/jobs", browsermanager.list_all, "Jobs", query=JOB_QUERY, dialect=_JOBS),
    Route(
        "GET", "/api/jobs/{id}", browsermanager.get_one, "A job", query=("waitMs",), dialect=_JOBS
    ),
    Route("POST", "/api/jobs/{id}/cancel", browsermanager.cancel, "Cancel a job", dialect=_JOBS),
    Route("GET", "/api/jobs/{id}/logs", browsermanager.logs, "A job's log", dialect=_JOBS),
    Route(
        "GET",
        "/ws/jobs/{id}",
        job_socket.watch,
        "A job's transitions (WebSocket)",
        status=101,
        dialect=_JOBS,
        is_stream=True,
    ),
)


def routes_for(paths: Iterable[str]) -> tuple[Route, ...]:
    """Add the paths that a configuration maps to types of jobs."""
    made = (
        Route(
            "POST",
            path,
            browsermanager.submit_by_path,
            "Enqueue a job of the path's type",
            bodies.EnvBody,
            dialect=_JOBS,
        )
        for path in paths
    )
    return (*ROUTES, *made)

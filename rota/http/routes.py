"""The whole surface as one table.

A row is a method, a path, its handler and what /openapi.json says of it. To find where something
is answered, look here first; the rows of the dialects are in dialects/routes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.tokens import Right
from rota.http import answers, docs, figures, models
from rota.http.bulk_routes import BULK_ROUTES
from rota.http.dialects.routes import DIALECT_ROUTES, LIST_QUERY, job_routes
from rota.http.project_routes import PROJECT_ROUTES
from rota.http.route import Route
from rota.http.schedule_routes import SCHEDULE_ROUTES
from rota.http.v1 import batches, control, events, health, tasks, tokens
from rota.http.work_routes import WORK_ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ROUTES", "Route", "routes_for"]

FEED_QUERY = ("after", "limit", "kind", "task", "agentId", "project", "view")

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
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/v1/tasks",
        tasks.list_all,
        "List tasks",
        None,
        answers.TaskPage,
        200,
        (*LIST_QUERY, "code", "q"),
        needs=Right.SEE,
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
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/cancel",
        tasks.cancel,
        "Cancel a task",
        models.ReasonBody,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/retry",
        tasks.retry,
        "A new life for a failed task",
        status=202,
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/v1/tasks/{id}/events",
        tasks.events,
        "A task's history; `next` is the `after` of the next page",
        None,
        answers.HistoryPage,
        query=("after", "limit"),
        needs=Right.SEE,
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
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/logs",
        tasks.add_logs,
        "Add log lines",
        models.LogBody,
        status=201,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/progress",
        tasks.add_progress,
        "Say how far it has come",
        models.ProgressBody,
        status=201,
        needs=Right.WORK,
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
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/v1/batches/{id}",
        batches.get_one,
        "One batch",
        None,
        answers.BatchView,
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/v1/batches/{id}/cancel",
        batches.cancel,
        "Cancel a batch",
        models.ReasonBody,
        needs=Right.SUBMIT,
    ),
    Route(
        "GET",
        "/v1/events",
        events.feed,
        "The history",
        None,
        answers.EventPage,
        200,
        FEED_QUERY,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/v1/events/stream",
        events.stream,
        "The history as server-sent events; resume with Last-Event-ID",
        query=("after", "kind", "task", "agentId", "project", "view"),
        media="text/event-stream",
        is_stream=True,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/v1/events/head",
        events.head,
        "The end of the log",
        None,
        answers.HeadView,
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/v1/agents",
        control.list_agents,
        "The agents, by name",
        query=("state", "limit", "cursor"),
        needs=Right.OVERSEE,
    ),
    Route("POST", "/v1/agents/{id}/pause", control.pause_agent, "Pause", models.ReasonBody),
    Route("POST", "/v1/agents/{id}/resume", control.resume_agent, "Resume an agent"),
    Route("GET", "/v1/types", control.list_types, "The types of tasks", needs=Right.OVERSEE),
    Route("POST", "/v1/types/{id}/pause", control.pause_type, "Pause a type", models.ReasonBody),
    Route("POST", "/v1/types/{id}/resume", control.resume_type, "Resume a type"),
    Route("GET", "/v1/scheduler", control.get_scheduler, "What is paused", needs=Right.OVERSEE),
    Route("POST", "/v1/scheduler/pause", control.pause_scheduler, "Pause all", models.ReasonBody),
    Route("POST", "/v1/scheduler/resume", control.resume_scheduler, "Resume all"),
    Route("GET", "/v1/stats", control.stats, "Counters", needs=Right.OVERSEE),
    Route(
        "GET",
        "/v1/stats/daily",
        figures.by_day,
        "The figures of each day, per agent; the last week if no days are named",
        None,
        answers.DayPage,
        200,
        ("from", "to", "agentId"),
        needs=Right.MEASURE,
    ),
    Route("GET", "/v1/config", control.get_config, "The settings in force", needs=Right.OVERSEE),
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
        needs=Right.OVERSEE,
    ),
    Route(
        "POST",
        "/v1/tokens",
        tokens.create,
        "Make a token; it is shown this once",
        models.TokenBody,
        answers.TokenMade,
        201,
    ),
    Route(
        "GET",
        "/v1/tokens",
        tokens.list_all,
        "The tokens, by name, without their secrets",
        None,
        answers.TokenPage,
        query=("limit", "cursor"),
        needs=Right.OVERSEE,
    ),
    Route(
        "DELETE",
        "/v1/tokens/{id}",
        tokens.revoke,
        "Revoke a token, at once",
        None,
        answers.TokenGone,
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
    Route(
        "GET",
        "/metrics",
        health.metrics,
        "Figures for Prometheus",
        media="text/plain",
        needs=Right.OVERSEE,
    ),
    Route("GET", "/openapi.json", docs.openapi, "This table, for machines", public=True),
    Route("GET", "/", docs.home, "To the docs", status=302, public=True),
    Route("GET", "/docs", docs.page, "This table, for people", public=True, media="text/html"),
    *BULK_ROUTES,
    *WORK_ROUTES,
    *PROJECT_ROUTES,
    *SCHEDULE_ROUTES,
    *DIALECT_ROUTES,
)


def routes_for(paths: Iterable[str]) -> tuple[Route, ...]:
    """Add the paths that a configuration maps to types of jobs."""
    return (*ROUTES, *job_routes(paths))

"""The whole surface as one table.

A row is a method, a path, its handler and what /openapi.json says of it. To find where something
is answered, look here first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.http import docs, models
from rota.http.dialects import pinchtab
from rota.http.v1 import control, events, health, tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel

    Handler = Callable[[Any], Awaitable[Any]]

LIST_QUERY = ("agentId", "state", "type", "cursor", "limit", "view")
FEED_QUERY = ("after", "limit", "kind", "task", "agentId")


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


_TAB = pinchtab.NAME

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/tasks",
        tasks.submit,
        "Submit a task",
        models.SubmitBody,
        models.Submitted,
        202,
    ),
    Route("GET", "/v1/tasks", tasks.list_all, "List tasks", None, models.TaskPage, 200, LIST_QUERY),
    Route(
        "GET", "/v1/tasks/{id}", tasks.get_one, "One task", None, models.TaskView, 200, ("view",)
    ),
    Route("POST", "/v1/tasks/{id}/cancel", tasks.cancel, "Cancel a task", models.ReasonBody),
    Route("GET", "/v1/tasks/{id}/events", tasks.events, "A task's history"),
    Route("GET", "/v1/events", events.feed, "The history", None, models.EventPage, 200, FEED_QUERY),
    Route(
        "GET",
        "/v1/events/stream",
        events.stream,
        "The history as server-sent events; resume with Last-Event-ID",
        query=("after", "kind", "task", "agentId"),
    ),
    Route("GET", "/v1/events/head", events.head, "The end of the log", None, models.HeadView),
    Route("GET", "/v1/agents", control.list_agents, "The agents"),
    Route("POST", "/v1/agents/{id}/pause", control.pause_agent, "Pause", models.ReasonBody),
    Route("POST", "/v1/agents/{id}/resume", control.resume_agent, "Resume an agent"),
    Route("GET", "/v1/stats", control.stats, "Counters"),
    Route("GET", "/v1/config", control.get_config, "The settings in force"),
    Route("POST", "/v1/config/reload", control.reload_config, "Reload limits", models.ReloadBody),
    Route("GET", "/health", health.health, "Health", public=True),
    Route("GET", "/health/live", health.live, "Whether the process runs", public=True),
    Route("GET", "/health/ready", health.ready, "Whether it takes work", public=True),
    Route("GET", "/metrics", health.metrics, "Figures for Prometheus"),
    Route("GET", "/openapi.json", docs.openapi, "This table, for machines", public=True),
    Route("GET", "/", docs.home, "To the docs"),
    Route("GET", "/docs", docs.page, "This table, for people", public=True),
    Route(
        "POST",
        "/tasks",
        pinchtab.submit,
        "Submit a task",
        models.PinchTabBody,
        None,
        202,
        dialect=_TAB,
    ),
    Route("GET", "/tasks", pinchtab.list_all, "List tasks", query=LIST_QUERY, dialect=_TAB),
    Route("GET", "/tasks/{id}", pinchtab.get_one, "One task", query=("view",), dialect=_TAB),
    Route("POST", "/tasks/{id}/cancel", pinchtab.cancel, "Cancel a task", dialect=_TAB),
    Route(
        "POST",
        "/tasks/batch",
        pinchtab.submit_batch,
        "Submit up to 50 tasks",
        models.PinchTabBatch,
        None,
        202,
        dialect=_TAB,
    ),
    Route("GET", "/scheduler/stats", pinchtab.stats, "Queue, metrics, limits", dialect=_TAB),
)

"""The rows of the table for projects: natively, and in the words of the queue-state plan."""

from __future__ import annotations

from rota.domain.tokens import Right
from rota.http import models
from rota.http import project_answers as out
from rota.http import project_models as bodies
from rota.http.answers import HistoryPage
from rota.http.dialects.projects import NAME
from rota.http.route import Route
from rota.http.v1 import projects

PAGE = ("limit", "cursor")


def _routes(base: str, dialect: str) -> tuple[Route, ...]:
    """Give the same rows under a path, whose errors are told in a dialect."""
    one = f"{base}/{{id}}"
    item, run = f"{one}/tasks/{{task}}", f"{one}/runs/{{run}}"
    reason = models.ReasonBody
    see = (
        (base, projects.list_all, "The projects, by name", out.ProjectPage, PAGE),
        (one, projects.get_one, "One project", out.ProjectView, ()),
        (f"{one}/tasks", projects.list_tasks, "A project's list", out.ProjectTaskPage, PAGE),
        (item, projects.get_task, "One task of a list", out.ListedTask, ()),
        (f"{one}/queue/status", projects.status, "What it is doing", out.QueueStatus, ()),
        (f"{one}/runs", projects.list_runs, "Its last runs", out.RunPage, ()),
        (run, projects.get_run, "One run", out.RunTasksView, ("waitMs",)),
        (f"{run}/events", projects.run_events, "A run's history", HistoryPage, ("after", "limit")),
    )
    do = (
        ("POST", f"{base}/run", projects.run_many, "Start several projects",
         bodies.RunManyBody, out.EachProject, 200),
        ("POST", f"{base}/stop", projects.stop_many, "Stop several projects",
         bodies.StopManyBody, out.EachProject, 200),
        ("POST", f"{base}/force-stop", projects.force_stop_many, "Cut several projects off",
         bodies.StopManyBody, out.EachProject, 200),
        ("PUT", one, projects.create, "Make an empty project",
         None, out.ProjectView, 201),
        ("POST", f"{one}/tasks", projects.add, "Add tasks to a list",
         bodies.AddBody, out.ProjectTaskAdded, 201),
        ("PATCH", item, projects.edit, "Change or move what has not started",
         bodies.ItemPatch, out.ProjectTaskState, 200),
        ("DELETE", item, projects.remove, "Take off what has not started",
         reason, out.ProjectTaskState, 200),
        ("DELETE", one, projects.delete, "Drop a project that does not run",
         reason, out.ProjectGone, 200),
        ("POST", f"{one}/run", projects.run, "Work through the list",
         bodies.RunBody, out.RunStarted, 202),
        ("POST", f"{one}/queue/stop", projects.stop, "Let the running task end, and no other begin",
         reason, out.QueueStopped, 200),
        ("POST", f"{one}/queue/force-stop", projects.force_stop, "Cut off whatever runs",
         reason, out.QueueKilled, 200),
    )  # fmt: skip
    seen = tuple(
        Route("GET", path, handler, says, None, answer, query=query, dialect=dialect,
              needs=Right.SEE)
        for path, handler, says, answer, query in see
    )  # fmt: skip
    done = tuple(
        Route(method, path, handler, says, body, answer, status, dialect=dialect,
              also=(200,) if status == 201 else (), needs=Right.SUBMIT)
        for method, path, handler, says, body, answer, status in do
    )  # fmt: skip
    return seen + done


PROJECT_ROUTES: tuple[Route, ...] = (*_routes("/v1/projects", ""), *_routes("/projects", NAME))

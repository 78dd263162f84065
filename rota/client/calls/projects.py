"""Projects: lists of tasks, and the runs that work through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

from rota.client.faces import asks, iterates
from rota.client.fields import ItemChanges, ItemFields, ItemsBody
from rota.client.pages import all_rows
from rota.client.paths import keyed_body, path_of, said
from rota.client.steps import Call, Json, Rows
from rota.client.words import wire
from rota.client.work_models import (
    AddedItem,
    AddedItems,
    Item,
    ItemPage,
    Project,
    ProjectAnswer,
    ProjectAnswers,
    ProjectPage,
    QueueStatus,
    RemovedProject,
    Run,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.client.fields import ItemBody


def run_call(project: str, run_id: str, *, wait_s: float = 0) -> Call:
    """Ask for a run: at once, or for so long until it has ended."""
    query = {"waitMs": round(wait_s * 1000) or None}
    return Call("GET", path_of("projects", project, "runs", run_id), query, is_safe=True)


class ProjectCalls:
    """/v1/projects."""

    retries: int

    @asks(AddedItem)
    def add_to_project(self, project: str, action: str, /, **fields: Unpack[ItemFields]) -> Call:
        """Put a task on a project's list; it has the fields of `submit`, and `before`.

        It is submitted when a run selects it. An idempotency_key is made for you, if `retries` is
        not 0.
        """
        body = keyed_body(fields, ItemFields, self.retries) | {"action": action}
        is_safe = "idempotencyKey" in body
        return Call("POST", path_of("projects", project, "tasks"), body=body, is_safe=is_safe)

    @asks(AddedItems)
    def add_many_to_project(
        self,
        project: str,
        tasks: Iterable[ItemBody],
        /,
        *,
        agent: str | None = None,
        before: str | None = None,
        idempotency_key: str | None = None,
    ) -> Call:
        """Put several tasks on a project's list, all of them or none.

        `agent` is for those that name none. An idempotency_key for all of them is made for you, if
        `retries` is not 0 and none of them has a key of its own.
        """
        items = list(tasks)
        key = {"idempotency_key": idempotency_key}
        fields = {"tasks": items, "agent": agent, "before": before, **key}
        has_keys = any("idempotency_key" in each for each in items)
        body = keyed_body(fields, ItemsBody, 0 if has_keys else self.retries)
        is_safe = "idempotencyKey" in body
        return Call("POST", path_of("projects", project, "tasks"), body=body, is_safe=is_safe)

    @asks(ItemPage)
    def project_tasks(
        self, project: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Call:
        """Give what is on a project's list in order, what runs, and what was done lately."""
        query = {"limit": limit, "cursor": cursor}
        return Call("GET", path_of("projects", project, "tasks"), query, is_safe=True)

    @asks(Item)
    def project_task(self, project: str, task_id: str) -> Call:
        """Give one task that is on a project's list, runs, or was done lately. Raises NotFound."""
        return Call("GET", path_of("projects", project, "tasks", task_id), is_safe=True)

    @asks(AddedItem)
    def edit_project_task(
        self, project: str, task_id: str, /, **changes: Unpack[ItemChanges]
    ) -> Call:
        """Change what has not started: its fields, or its place by `before` or `position`.

        Raises NotFound, or Conflict if it has started.
        """
        body = wire(changes, ItemChanges)
        return Call("PATCH", path_of("projects", project, "tasks", task_id), body=body)

    @asks(AddedItem)
    def remove_project_task(self, project: str, task_id: str, reason: str = "") -> Call:
        """Take off its list what has not started. Raises NotFound, or Conflict."""
        path = path_of("projects", project, "tasks", task_id)
        return Call("DELETE", path, body={"reason": reason})

    @asks(ProjectAnswer)
    def run_project(
        self,
        project: str,
        mode: Literal["single", "loop"] = "single",
        task_id: str | None = None,
        *,
        reason: str | None = None,
    ) -> Call:
        """Work through a list: one task by `single`, until it is empty by `loop`.

        Raises Conflict if it is being worked through already.
        """
        body = said({"mode": mode, "taskId": task_id, "reason": reason})
        return Call("POST", path_of("projects", project, "run"), body=body)

    @asks(ProjectAnswer)
    def stop_project(self, project: str, reason: str = "") -> Call:
        """Let the running task end, and no other begin."""
        path = path_of("projects", project, "queue", "stop")
        return Call("POST", path, body={"reason": reason}, is_safe=True)

    @asks(ProjectAnswer)
    def force_stop_project(self, project: str, reason: str = "") -> Call:
        """Cut off whatever runs; `still_running` names what is not gone yet."""
        path = path_of("projects", project, "queue", "force-stop")
        return Call("POST", path, body={"reason": reason}, is_safe=True)

    @asks(ProjectAnswers)
    def steer_projects(
        self,
        how: Literal["run", "stop", "force-stop"],
        projects: Iterable[str],
        /,
        *,
        mode: Literal["single", "loop"] | None = None,
        reason: str | None = None,
    ) -> Call:
        """Do something with several projects, each answered on its own; `mode` is for run."""
        body = said({"projects": list(projects), "mode": mode, "reason": reason})
        return Call("POST", path_of("projects", how), body=body)

    @asks(QueueStatus)
    def project_status(self, project: str) -> Call:
        """Say what a project is doing, or how its last run ended. Raises NotFound."""
        return Call("GET", path_of("projects", project, "queue", "status"), is_safe=True)

    @asks(Project)
    def get_project(self, project: str) -> Call:
        """Give a project with its status, figures and last runs. Raises NotFound."""
        return Call("GET", path_of("projects", project), is_safe=True)

    @asks(Project)
    def create_project(self, project: str) -> Call:
        """Make an empty project, or give the one that is called so."""
        return Call("PUT", path_of("projects", project), is_safe=True)

    @asks(ProjectPage)
    def projects(self, *, limit: int | None = None, cursor: str | None = None) -> Call:
        """Give a page of projects, by name; `next_cursor` leads to the next one."""
        return Call("GET", "/v1/projects", {"limit": limit, "cursor": cursor}, is_safe=True)

    @iterates(Project)
    def iter_projects(self) -> Rows[Json]:
        """Give all projects, by name, asked for a page at a time."""
        return all_rows("projects", "/v1/projects", {})

    @asks(RemovedProject)
    def delete_project(self, project: str, reason: str = "") -> Call:
        """Drop a project that does not run, and its list. Raises NotFound, or Conflict."""
        return Call("DELETE", path_of("projects", project), body={"reason": reason})

    @asks(Run)
    def get_run(self, project: str, run_id: str) -> Call:
        """Give one run of a project, however old, with its first 1,000 tasks. Raises NotFound."""
        return run_call(project, run_id)

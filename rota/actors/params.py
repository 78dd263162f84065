"""The params that an attempt gets: as they were submitted, with the results of parents filled in.

Parents that have left memory are read from the log first, beside the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.dependencies import Results
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from rota.actors.archive import Archive, Fetched
    from rota.domain.task import Task

Params = dict[str, Any] | InvalidRequest
"""Or what is wrong with them."""
UNREAD_PAUSE_US = 1_000_000
"""For so long a task keeps its slot whose parents' results could not be read."""


def filled_in(archive: Archive, task: Task, parents: Fetched | None) -> tuple[Params, list[str]]:
    """Give the task's params, and the parents that have to be read first.

    If there are any, the rest is void.
    """
    params = task.params or {}
    depends = task.plan.depends if task.plan is not None else None
    if not depends or b"{{" not in (task.params_json or b""):
        return params, []
    lacking: dict[str, None] = {}

    def find(task_id: str) -> Task | None:
        if archive.lacking((task_id,), parents):
            lacking[task_id] = None
            return None
        return archive.finder(parents)(task_id)

    try:
        return Results(depends, find).fill_in(params), list(lacking)
    except InvalidRequest as error:
        return error, list(lacking)

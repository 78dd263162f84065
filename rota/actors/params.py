"""The params that an attempt gets: as they were submitted, with the results of parents filled in.

Parents that have left memory are read from the log first, beside the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.dependencies import Results
from rota.domain.packed import text_of
from rota.domain.placeholders import FILLED_BYTES_MAX
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from rota.actors.archive import Archive, Fetched
    from rota.domain.task import Task
    from rota.projections.tasks import Tasks

Params = dict[str, Any] | InvalidRequest
"""Or what is wrong with them."""
UNREAD_PAUSE_US = 1_000_000
"""For so long a task keeps its slot whose parents' results could not be read."""


UNREAD_BYTES = 256 << 10
"""What the result of a parent that has left memory is taken for, before it is read."""


def guessed_size(tasks: Tasks, task: Task) -> int:
    """Give about how many bytes the task's params have with the results filled in."""
    text, depends = task.params_json or b"", task.plan.depends if task.plan is not None else None
    if not depends or b"{{" not in text:
        return len(text)
    parents = map(tasks.get, set(depends.values()))
    largest = max(len(p.result_json or b"") if p is not None else UNREAD_BYTES for p in parents)
    return len(text) + min(text.count(b"{{") * largest, FILLED_BYTES_MAX)


def has_places(task: Task) -> bool:
    """Whether results may have to be filled in."""
    depends = task.plan.depends if task.plan is not None else None
    return bool(depends) and b"{{" in (task.params_json or b"")


def filled_text(
    archive: Archive, task: Task, parents: Fetched | None
) -> tuple[bytes | InvalidRequest, list[str]]:
    """Give the text of the task's params, and the parents that have to be read first.

    Where there is nothing to fill in it is the text that memory has already.
    """
    if not has_places(task):
        return task.params_json or b"{}", []
    params, lacking = filled_in(archive, task, parents)
    return params if isinstance(params, InvalidRequest) else text_of(params), lacking


def filled_in(archive: Archive, task: Task, parents: Fetched | None) -> tuple[Params, list[str]]:
    """Give the task's params, and the parents that have to be read first.

    If there are any, the rest is void.
    """
    params = task.params or {}
    depends = task.plan.depends if task.plan is not None else None
    if not depends or not has_places(task):
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

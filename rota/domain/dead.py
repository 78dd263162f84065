"""Decide: a new life for what a failure took with it.

A task that failed for good is dead, until somebody revives it (rota.domain.attempts). The tasks
that depended on it were cancelled with it, with the code `dependency_failed`: these, and no other
cancelled ones, can be revived too, once what they depend on lives or has succeeded. They wait for
it again. All rules of a revival hold for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain import events as e
from rota.domain.attempts import check_revivable, decide_freeing
from rota.domain.dependencies import DOOMED
from rota.domain.task import CANCELLED, FAILED, REJECTED, SUCCEEDED
from rota.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Container

    from rota.domain.dependencies import Find
    from rota.domain.task import Task

DEPENDENTS_MAX = 1000
"""How many dependents are revived with one task at once; the others can be, one by one."""


def is_doomed(task: Task) -> bool:
    """Whether a task was cancelled because something it depends on had failed."""
    return task.state is CANCELLED and task.error_code == DOOMED


def decide_return(
    task: Task, find: Find, now: int, revived: Container[str] = ()
) -> tuple[e.TaskRevived] | tuple[e.TaskRevived, e.TaskReleased | e.TaskDelayed]:
    """Have a dependent wait again for what it depends on; `revived` are being, too.

    Raises Conflict if it was not cancelled by that, or one of its parents is still dead.
    """
    details = {"taskId": task.id, "state": task.state.value}
    if not is_doomed(task):
        msg = f"only what a failed dependency has cancelled can be; this one is {task.state.value}"
        raise Conflict(msg, details=details)
    check_revivable(task, now)
    waits: dict[str, None] = {}
    depends = task.plan.depends if task.plan is not None else None
    for parent_id in (depends or {}).values():
        parent = None if parent_id in revived else find(parent_id)
        if parent is not None and parent.state in (FAILED, CANCELLED, REJECTED):
            msg = f"its dependency {parent_id} is {parent.state.value}"
            raise Conflict(msg, code=DOOMED, details=details, hint=f"revive {parent_id} first")
        if parent is None or parent.state is not SUCCEEDED:
            waits[parent_id] = None
    event = e.TaskRevived(task.id, task.agent, waits=list(waits))
    return (event,) if waits else (event, decide_freeing(task, now))

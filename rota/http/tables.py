"""Lists: filtered, newest first, by cursor.

The cursor is the place of the last task shown, so pages neither repeat nor skip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.config import PAGE_BYTES_MAX
from rota.domain.packed import weight_of
from rota.domain.task import REJECTED
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.domain.task import Task, TaskState
    from rota.http.call import Call

    View = Callable[[Task], dict[str, Any]]
    Words = Mapping[str, frozenset[TaskState]]

NO_OWN: Mapping[str, Words] = {}


class Listed(NamedTuple):
    """Tasks that were wanted when they were found; and the cursor of the next page."""

    tasks: list[Task]
    cursor: str | None
    is_wanted: Callable[[Task], bool]


async def list_tasks(
    call: Call,
    words: Words,
    *,
    rows: int,
    rows_max: int,
    dialect: str | None = None,
    hide_rejected: frozenset[str] = frozenset(),
    own: Mapping[str, Words] = NO_OWN,
) -> Listed:
    """Give the tasks that the query asks for, and the cursor of the next page if there is one.

    `words` are those for states; tasks of the dialects in `own` go by their own.
    """
    agent, action = asked_agent(call), asked_action(call)
    asked = "state" if call.query("state") else "status"
    states, own_states = _states(asked, call.query(asked), words, own)
    batch, profile = call.query("batchId"), call.query("profileId")
    workflow = call.query("workflowId")
    limit = call.query_int("limit", default=rows, low=1, high=rows_max)
    before = call.query_int("cursor", default=0, low=0, high=1 << 62)

    def is_wanted(task: Task) -> bool:
        return (
            (agent is None or task.agent == agent)
            and (states is None or task.state in own_states.get(task.dialect, states))
            and (action is None or task.action == action)
            and (dialect is None or task.dialect == dialect)
            and not (task.state is REJECTED and task.dialect in hide_rejected)
            and (batch is None or (task.plan is not None and task.plan.batch == batch))
            and (workflow is None or (task.plan is not None and task.plan.workflow == workflow))
            and (profile is None or (task.plan is not None and task.plan.key == profile))
        )

    found, is_more = await call.sight.page(is_wanted, limit, before)
    return Listed(found, str(found[-1].created_seq) if is_more else None, is_wanted)


def asked_agent(call: Call) -> str | None:
    return call.query("agentId") or call.query("agent_name")


def asked_action(call: Call) -> str | None:
    """Name the type that is asked for, by whichever word a dialect has for it."""
    names = ("type", "action", "jobType", "task_type")
    return next((found for name in names if (found := call.query(name))), None)


async def answer_list(
    call: Call,
    words: Mapping[str, frozenset[TaskState]],
    view: View,
    *,
    rows: int,
    rows_max: int,
    hide_rejected: frozenset[str] = frozenset(),
    own: Mapping[str, Words] = NO_OWN,
    dialect: str | None = None,
) -> Any:
    shown, cursor = await shown_list(
        call,
        words,
        lambda task: call.view(task, view),
        rows=rows,
        rows_max=rows_max,
        dialect=dialect,
        hide_rejected=hide_rejected,
        own=own,
    )
    body: dict[str, Any] = {"tasks": shown, "count": len(shown)}
    if cursor is not None:
        body["nextCursor"] = cursor
    return call.json(body)


async def shown_list(
    call: Call, words: Words, view: View, **asked: Any
) -> tuple[list[dict[str, Any]], str | None]:
    """Give a page of tasks in some view, all of it durable, and the cursor of the next."""
    return await call.sight.gathered(
        lambda: list_tasks(call, words, **asked), lambda found: fitting(found, view)
    )


def fitting(found: Listed, view: View) -> tuple[list[dict[str, Any]], str | None]:
    """Show as many tasks as fit into one answer, and give the cursor of the next.

    One that has changed while the others were looked for, and is not wanted any more, is left out.
    """
    tasks, cursor, is_wanted = found
    rows: list[dict[str, Any]] = []
    size = 0
    for task in tasks:
        if not is_wanted(task):
            continue
        rows.append(view(task))
        size += weight_of(task)
        if size > PAGE_BYTES_MAX and task is not tasks[-1]:
            return rows, str(task.created_seq)
    return rows, cursor


def _states(
    field: str, text: str | None, words: Words, own: Mapping[str, Words]
) -> tuple[frozenset[TaskState] | None, dict[str, frozenset[TaskState]]]:
    """Say which states are asked for, and which of the tasks that have their own words."""
    if not text:
        return None, {}
    asked = [word.strip() for word in text.split(",")]
    known = set(words).union(*own.values())
    for word in asked:
        if word not in known:
            msg = f"unknown {field} '{word[:50]}'; use {', '.join(sorted(known))}"
            raise InvalidRequest(msg, details={"field": field})
    return _meant(asked, words), {name: _meant(asked, each) for name, each in own.items()}


def _meant(asked: list[str], words: Words) -> frozenset[TaskState]:
    return frozenset(state for word in asked for state in words.get(word, ()))

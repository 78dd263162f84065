"""The failed tasks, also those that have left memory: read from the log, newest failure first.

A page is walked down the log's index of failures. A task is shown for its last failure and only
while it is failed, so pages neither repeat one nor show one that lives again. A request looks at a
bounded number of failures and gives a cursor to go on from, if need be with no row at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import PAGE_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX
from rota.domain.packed import weight_of
from rota.domain.task import FAILED
from rota.http.tables import asked_action, asked_agent

if TYPE_CHECKING:
    from rota.domain.task import Task
    from rota.http.call import Call
    from rota.http.tables import View

SLICE_FAILURES = 50
LOOKS_MAX = 2000
"""How many failures one request looks at."""


async def answer_failed(call: Call, view: View) -> Any:
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    at = call.query_int("cursor", default=SEQ_MAX, low=1, high=SEQ_MAX)
    rows: list[dict[str, Any]] = []
    size = looks = 0
    more = True
    while more and looks < LOOKS_MAX:
        page = await call.sight.failed(at, SLICE_FAILURES)
        more = len(page) == SLICE_FAILURES
        for place, (seq, task) in enumerate(page, start=1):
            at, looks = seq, looks + 1
            if task is not None and _is_asked_for(call, task):
                rows.append(call.view(task, view))
                size += weight_of(task)
            if len(rows) == limit or size > PAGE_BYTES_MAX:
                more = place < len(page) or bool(await call.sight.failed(at, 1))
                return _answer(call, rows, at, is_more=more)
    return _answer(call, rows, at, is_more=more)


def _is_asked_for(call: Call, task: Task) -> bool:
    agent, action, batch = asked_agent(call), asked_action(call), call.query("batchId")
    return (
        task.state is FAILED
        and (agent is None or task.agent == agent)
        and (action is None or task.action == action)
        and (batch is None or (task.plan is not None and task.plan.batch == batch))
    )


def _answer(call: Call, rows: list[dict[str, Any]], at: int, *, is_more: bool) -> Any:
    body: dict[str, Any] = {"tasks": rows, "count": len(rows)}
    if is_more:
        body["nextCursor"] = str(at)
    return call.json(body)

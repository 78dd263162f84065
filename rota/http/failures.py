"""The failed tasks, also those that have left memory: read from the log, newest failure first.

A page is walked down the log's index of failures. A task is shown for its last failure and only
while it is failed, so pages neither repeat one nor show one that lives again. A request looks at a
bounded number of failures and gives a cursor to go on from, if need be with no row at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rota.config import PAGE_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX
from rota.domain.packed import weight_of
from rota.domain.task import FAILED

if TYPE_CHECKING:
    from rota.domain.task import Task
    from rota.http.call import Call
    from rota.http.tables import View

SLICE_FAILURES = 50
LOOKS_MAX = 2000
"""How many failures one request looks at."""


async def answer_failed(call: Call, view: View) -> Any:
    """Answer with a page of failed tasks."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    at = call.query_int("cursor", default=SEQ_MAX, low=1, high=SEQ_MAX)
    log, archive = call.bridge.shard.log, call.bridge.shard.archive
    rows: list[dict[str, Any]] = []
    size = looks = 0
    more = True
    while more and looks < LOOKS_MAX:
        page = log.failed_before(at, SLICE_FAILURES)
        more = len(page) == SLICE_FAILURES
        for seq, task_id in page:
            at, looks = seq, looks + 1
            task = archive.task(task_id)
            if task is not None and task.ended_seq == seq and _is_asked_for(call, task):
                rows.append(call.view(task, view))
                size += weight_of(task)
            if len(rows) == limit or size > PAGE_BYTES_MAX:
                return _answer(call, rows, at, is_more=bool(log.failed_before(at, 1)))
        await asyncio.sleep(0)
    return _answer(call, rows, at, is_more=more)


def _is_asked_for(call: Call, task: Task) -> bool:
    agent, batch = call.query("agentId"), call.query("batchId")
    action = call.query("type") or call.query("action") or call.query("jobType")
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

"""The failed tasks, also those that have left memory: read from the log, newest failure first.

A page is walked down the log's index of failures; what a task was given is read for those that are
shown, one at a time. A task is shown for its last failure and only
while it is failed, so pages neither repeat one nor show one that lives again. A request looks at a
bounded number of failures and gives a cursor to go on from, if need be with no row at all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rota.config import PAGE_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX
from rota.domain.packed import weight_of
from rota.domain.task import FAILED
from rota.http.tables import asked_action, asked_agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.task import Task
    from rota.http.call import Call
    from rota.http.tables import View
    from rota.sight.sight import Sight

T = TypeVar("T")

SLICE_FAILURES = 50
LOOKS_MAX = 2000
"""How many failures one request looks at."""


class Asked(NamedTuple):
    """Which failed tasks are asked for: by what they are, the code and words of their failure."""

    agent: str | None = None
    action: str | None = None
    batch: str | None = None
    workflow: str | None = None
    code: str | None = None
    words: str | None = None

    @classmethod
    def by_query(cls, call: Call) -> Asked:
        names = ("batchId", "workflowId", "code", "q")
        return cls(asked_agent(call), asked_action(call), *map(call.query, names))

    def matches(self, task: Task) -> bool:
        plan = task.plan
        return (
            task.state is FAILED
            and (self.agent is None or task.agent == self.agent)
            and (self.action is None or task.action == self.action)
            and (self.batch is None or (plan is not None and plan.batch == self.batch))
            and (self.workflow is None or (plan is not None and plan.workflow == self.workflow))
            and (self.code is None or task.error_code == self.code)
            and (self.words is None or self.words.lower() in (task.error or "").lower())
        )


class FailedPage(NamedTuple):
    """What was made of some failed tasks; and the cursor to go on from, if there may be more."""

    rows: list[Any]
    cursor: int | None


async def failed_page(
    sight: Sight,
    asked: Asked,
    make: Callable[[Task], T],
    limit: int,
    at: int,
    *,
    is_whole: bool = False,
) -> FailedPage:
    """Make something of each failed task that is asked for, newest failure first, after `at`.

    It gets them with what they were given if it asks for the `whole`.
    """
    rows: list[Any] = []
    size = looks = 0
    more = True
    while more and looks < LOOKS_MAX:
        page = await sight.failed(at, SLICE_FAILURES)
        more = len(page) == SLICE_FAILURES
        for place, (seq, task) in enumerate(page, start=1):
            at, looks = seq, looks + 1
            if task is None or not asked.matches(task):
                continue
            shown = await sight.failed_whole(task.id, seq) if is_whole else task
            if shown is not None:
                rows.append(make(shown))
                size += weight_of(shown)
            if len(rows) == limit or size > PAGE_BYTES_MAX:
                more = place < len(page) or bool(await sight.failed(at, 1))
                return FailedPage(rows, at if more else None)
    return FailedPage(rows, at if more else None)


async def answer_failed(call: Call, view: View, name: str = "tasks") -> Any:
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    at = call.query_int("cursor", default=SEQ_MAX, low=1, high=SEQ_MAX)
    asked = Asked.by_query(call)

    async def gather() -> FailedPage:
        shown = partial(call.view, default=view)
        return await failed_page(call.sight, asked, shown, limit, at, is_whole=True)

    page = await call.sight.gathered(gather, lambda page: page)
    body: dict[str, Any] = {name: page.rows, "count": len(page.rows)}
    if page.cursor is not None:
        body["nextCursor"] = str(page.cursor)
    return call.json(body)

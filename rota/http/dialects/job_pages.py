"""Lists of jobs by the number of the page: ?page=2&pageSize=50, with the total.

The total is of what lists show at that moment, so pages may shift while jobs come in; a cursor's
do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.config import LIST_ROWS_MAX, PAGE_ROWS, PAGE_ROWS_MAX
from rota.errors import InvalidRequest
from rota.http.tables import fitting, list_tasks

if TYPE_CHECKING:
    from rota.http.call import Call
    from rota.http.tables import Listed, View, Words

ALL = 1 << 62


async def numbered_page(call: Call, words: Words, dialect: str, view: View) -> dict[str, Any]:
    """Give one page of the jobs that the query asks for. Raises InvalidRequest."""
    for name in ("cursor", "limit"):
        if call.query(name):
            msg = f"query parameter '{name}': give either page and pageSize, or cursor and limit"
            raise InvalidRequest(msg, details={"field": name})
    page = call.query_int("page", default=1, low=1, high=LIST_ROWS_MAX)
    size = call.query_int("pageSize", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)

    async def gather() -> Listed:
        return await list_tasks(
            call, words, rows=ALL, rows_max=ALL, dialect=dialect, hide_rejected=frozenset({dialect})
        )

    def show(found: Listed) -> dict[str, Any]:
        rows = found.tasks[(page - 1) * size : page * size]
        jobs, cursor = fitting(found._replace(tasks=rows), view)
        data = {
            "jobs": jobs,
            "count": len(jobs),
            "total": len(found.tasks),
            "page": page,
            "pageSize": size,
        }
        if cursor is not None:  # the page is larger than an answer may be
            data["nextCursor"] = cursor
        return data

    return await call.sight.gathered(gather, show)

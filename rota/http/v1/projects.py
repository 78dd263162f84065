"""/v1/projects and /projects: lists of tasks, and the runs that work through them.

Both paths lead here; they differ in the words for errors and successes (dialects/projects.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rota.config import PAGE_ROWS, PAGE_ROWS_MAX, SEQ_MAX, WAIT_MS_MAX
from rota.errors import InvalidRequest, NotFound, RequestError
from rota.http.dialects import projects as dialect
from rota.http.models import ReasonBody
from rota.http.problems import HttpProblem, native_body
from rota.http.project_models import (
    ItemBody,
    ItemPatch,
    ItemsBody,
    ProjectName,
    RunBody,
    RunManyBody,
    StopManyBody,
)
from rota.http.project_views import (
    done_view,
    item_view,
    listed_view,
    project_row,
    project_view,
    run_view,
    runs_view,
    status_view,
)
from rota.http.submissions import dedup_of, keyed, native_request, why_waits
from rota.http.watches import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.actors.project_messages import ItemAdded, Stopping
    from rota.domain.intake import Request
    from rota.domain.packed import Deferred
    from rota.domain.project_parts import Project
    from rota.http.call import Call
    from rota.http.project_views import MaySee

T = TypeVar("T")
R = TypeVar("R")

PLACES_MAX = 1 << 31
LIST_BYTES_MAX = 256 << 10
"""A page of a list ends here: whoever asks for many at once must not hold the loop."""


# -- lists


async def add(call: Call) -> Any:
    """POST /projects/{id}/tasks: one task, or several."""
    project = call.params["id"]
    call.validate(ProjectName, {"projectId": project})
    raw = await call.parsed()
    if isinstance(raw, list):
        raw = {"tasks": raw}
    is_many = isinstance(raw, dict) and "tasks" in raw
    if is_many:
        body = call.validate(ItemsBody, raw)
        items, before = body.tasks, body.before
        for at, item in enumerate(items):
            if item.before is not None:
                raise _bad(f"tasks.{at}.before", "say it once, for all of them")
        pairs = list(zip(items, raw["tasks"], strict=True))
        default, given = body.agentId or project, body.idempotencyKey
    else:
        one = call.validate(ItemBody, raw)
        pairs, before, default, given = [(one, raw)], one.before, project, one.idempotencyKey
    requests = [
        await _request(call, item, default, f"tasks.{at}." if is_many else "")
        for at, (item, _) in enumerate(pairs)
    ]
    whole = keyed(call, requests[0], given, _told(raw)).plan
    is_one_key = whole.idempotency is not None
    for at, (item, said) in enumerate(pairs):
        if is_one_key:
            _check_no_key(item if is_many else None, at)
            plan = requests[at].plan._replace(idempotency=whole.idempotency, digest=whole.digest)
            requests[at] = requests[at]._replace(plan=plan)
        elif item.idempotencyKey is not None:
            requests[at] = keyed(call, requests[at], item.idempotencyKey, _told(said))
    call.caller.check_agents([project, *(request.agent for request in requests)])
    added = await call.bridge.projects.add(
        project, tuple(requests), before, call.by, is_one_key=is_one_key
    )
    rows = await _added_rows(call, project, added, requests, is_one_key=is_one_key)
    answer = {"projectId": project, **({"tasks": rows} if is_many else rows[0])}
    is_known = all(each.known for each in added)
    if is_known and is_one_key:
        answer["idempotent"] = True
    return call.json(answer, status=200 if is_known else 201)


def _check_no_key(item: ItemBody | None, at: int) -> None:
    if item is not None and item.idempotencyKey is not None:
        raise _bad(f"tasks.{at}.idempotencyKey", "the whole request has a key")


async def _added_rows(
    call: Call,
    project: str,
    added: list[ItemAdded],
    requests: list[Request],
    *,
    is_one_key: bool,
) -> list[dict[str, Any]]:
    """Say of each task what it is now, and natively why it will wait when its turn comes."""
    states = await _states_now(call, project, [each.item for each in added if each.known])
    rows: list[dict[str, Any]] = []
    for each, request in zip(added, requests, strict=False):  # a known key may stand for fewer
        row = {"taskId": each.item, "state": states.get(each.item, "pending")}
        reason = None if each.known or call.dialect else why_waits(call, request, each.executor)
        if reason is not None:
            row["waitReason"] = reason
        rows.append({**row, "idempotent": True} if each.known and not is_one_key else row)
    return rows


async def _states_now(call: Call, project: str, items: list[str]) -> dict[str, str]:
    """Give the states of items that were added before, in the words of their list."""
    if not items:
        return {}
    words = dialect.STATES if call.dialect else {}

    def show(found: Project) -> dict[str, str]:
        states = {each.task: words.get(each.state, each.state) for each in found.done}
        states |= {each.id: "pending" for each in found.items}
        return states | ({found.taken.id: "in_progress"} if found.taken is not None else {})

    states = await call.sight.projects.show(project, show)
    for item in items:
        if item not in states:
            try:
                state = await call.sight.show_task(item, lambda task: task.state.value)
            except NotFound:
                state = "removed"
            states[item] = words.get(state, state)
    return states


def _told(raw: dict[str, Any]) -> dict[str, Any]:
    """Give what a repeat under an idempotency key must say, too: all but the place."""
    return {name: value for name, value in raw.items() if name != "before"}


async def _request(call: Call, item: ItemBody, agent: str, at: str) -> Request:
    """Read an item, which stands in the field `at`. Raises InvalidRequest or CallbackRefused."""
    await call.check_callback(item.callbackUrl, f"{at}callbackUrl")
    request = native_request(item, item.agentId or agent, call.by)
    return request._replace(dedup=dedup_of(item.dedup))


async def list_tasks(call: Call) -> Any:
    """GET /projects/{id}/tasks: what was done lately, what runs, and what is to come in order."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    at = call.query_int("cursor", default=0, low=0, high=PLACES_MAX)

    may_see = call.sight.may_see
    words = dialect.STATES if call.dialect else {}

    def show(project: Project) -> dict[str, Any]:
        rows: list[Deferred] = []
        size, place = 0, at
        for item in project.items[at : at + limit]:
            if may_see(item.agent):
                size += item.size
                if rows and size > LIST_BYTES_MAX:
                    break
                rows.append(item_view(item, place))
            place += 1
        taken = project.taken
        current = taken if taken is not None and may_see(taken.agent) else None
        page: dict[str, Any] = {
            "projectId": project.id,
            "tasks": rows,
            "count": len(rows),
            "remaining": len(project.items),
            "current": item_view(current, None, "in_progress") if current is not None else None,
            "done": [done_view(each, words) for each in project.done if may_see(each.agent)],
        }
        return page | ({"nextCursor": str(place)} if place < len(project.items) else {})

    return call.json(await call.sight.projects.show(call.params["id"], show))


async def get_task(call: Call) -> Any:
    """GET /projects/{id}/tasks/{task}: what is on the list, runs, or was done lately."""
    task, may_see = call.params["task"], call.sight.may_see
    words = dialect.STATES if call.dialect else {}

    def show(project: Project) -> dict[str, Any] | Deferred:
        return listed_view(project, task, may_see, words)

    return call.json(await call.sight.projects.show(call.params["id"], show))


async def edit(call: Call) -> Any:
    """PATCH /projects/{id}/tasks/{task}: other values, or another place."""
    body = await call.body(ItemPatch)
    await call.check_callback(body.callbackUrl)
    project, item = call.params["id"], call.params["task"]
    await call.bridge.projects.edit(
        project, item, body.change(), moves=body.moves, place=body.place, by=call.by
    )
    return call.json({"projectId": project, "taskId": item, "state": "pending"})


async def remove(call: Call) -> Any:
    """DELETE /projects/{id}/tasks/{task}."""
    body = await call.body(ReasonBody, optional=True)
    project, item = call.params["id"], call.params["task"]
    await call.bridge.projects.remove(project, item, body.reason, call.by)
    return call.json({"projectId": project, "taskId": item, "state": "removed"})


# -- projects


async def list_all(call: Call) -> Any:
    """GET /projects."""
    limit = call.query_int("limit", default=PAGE_ROWS, low=1, high=PAGE_ROWS_MAX)
    at = call.query_int("cursor", default=0, low=0, high=PLACES_MAX)
    rows, is_more = await call.sight.projects.page(at, limit, _seen(call, project_row))
    page: dict[str, Any] = {"projects": rows, "count": len(rows)}
    return call.json(page | ({"nextCursor": str(at + limit)} if is_more else {}))


async def get_one(call: Call) -> Any:
    """GET /projects/{id}."""
    return call.json(await call.sight.projects.show(call.params["id"], _seen(call, project_view)))


async def create(call: Call) -> Any:
    """PUT /projects/{id}: an empty one, if there is none of that name."""
    project = call.params["id"]
    call.validate(ProjectName, {"projectId": project})
    call.caller.check_agents([project])
    is_new = await call.bridge.projects.create(project, call.by)
    shown = await call.sight.projects.show(project, _seen(call, project_view))
    return call.json(shown, status=201 if is_new else 200)


async def delete(call: Call) -> Any:
    """DELETE /projects/{id}."""
    body = await call.body(ReasonBody, optional=True)
    project = call.params["id"]
    count = await call.bridge.projects.delete(project, body.reason, call.by)
    return call.json({"projectId": project, "state": "deleted", "removed": count})


async def status(call: Call) -> Any:
    """GET /projects/{id}/queue/status."""
    return call.json(await call.sight.projects.show(call.params["id"], _seen(call, status_view)))


# -- runs


async def list_runs(call: Call) -> Any:
    """GET /projects/{id}/runs: the last ones, newest first."""
    rows = await call.sight.projects.show(call.params["id"], _seen(call, runs_view))
    return call.json({"projectId": call.params["id"], "runs": rows, "count": len(rows)})


async def get_run(call: Call) -> Any:
    """GET /projects/{id}/runs/{run}: at once, or with waitMs when it has ended; with its tasks."""
    project, run = call.params["id"], call.params["run"]
    sight = call.sight.projects
    wait_ms = call.query_int("waitMs", default=0, low=0, high=WAIT_MS_MAX)
    is_over = partial(sight.show_run, project, run, lambda run: run.is_over)
    if wait_ms and not await is_over():
        await until(call, project, run, wait_ms, is_over)
    shown = await sight.show_run(project, run, _seen(call, run_view))
    return call.json({**shown, "tasks": await sight.run_tasks(run)})


async def run_events(call: Call) -> Any:
    """GET /projects/{id}/runs/{run}/events."""
    after = call.query_int("after", default=0, low=0, high=SEQ_MAX)
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    found, more = await call.sight.projects.run_records(
        call.params["id"], call.params["run"], after, limit
    )
    body = b'{"events":[%b]' % b",".join(found)
    if more is not None:
        body += b',"next":%d' % more
    return call.raw(body + b"}")


async def run(call: Call) -> Any:
    """POST /projects/{id}/run."""
    body = await call.body(RunBody, optional=True)
    answer = await _run(call, call.params["id"], body, body.taskId)
    return call.json(answer, status=202)


async def stop(call: Call) -> Any:
    """POST /projects/{id}/queue/stop: the running task may end, and no other begins."""
    body = await call.body(ReasonBody, optional=True)
    return call.json(await _stop(call, call.params["id"], body.reason))


async def force_stop(call: Call) -> Any:
    """POST /projects/{id}/queue/force-stop: whatever runs is cut off."""
    body = await call.body(ReasonBody, optional=True)
    return call.json(await _force_stop(call, call.params["id"], body.reason))


async def _run(
    call: Call, project: str, body: RunBody | RunManyBody, item: str | None = None
) -> dict[str, Any]:
    made = await call.bridge.projects.run(project, body.mode, item, call.by, body.reason)
    state = await call.sight.projects.show_run(project, made, lambda run: run.state)
    return {"success": True, "runId": made, "projectId": project, "mode": body.mode, "state": state}


async def _stop(call: Call, project: str, reason: str) -> dict[str, Any]:
    await call.bridge.projects.stop(project, reason, force=False, by=call.by)
    return {"success": True}


async def _force_stop(call: Call, project: str, reason: str) -> dict[str, Any]:
    """Cut off what runs, wait for it to be gone, and name what is not."""
    stopping = await call.bridge.projects.stop(project, reason, force=True, by=call.by)
    left = await _until_gone(call, project, stopping) if stopping.runs else []
    lasting = {run for run, _ in left}
    unsure = await call.sight.projects.show_unconfirmed(stopping.tasks) if stopping.tasks else []
    more = {"unconfirmed": _runs_and_tasks(unsure)} if unsure else {}
    return {
        "success": not left,
        "killedRuns": [run for run in stopping.runs if run not in lasting],
        "stillRunning": _runs_and_tasks(left),
        **more,
    }


def _runs_and_tasks(named: list[tuple[str, str | None]]) -> list[dict[str, str | None]]:
    return [{"runId": run, "taskId": task} for run, task in named]


async def _until_gone(call: Call, project: str, stopping: Stopping) -> list[tuple[str, str | None]]:
    """Wait until nothing of some runs is left, but not for ever; give what is left then."""
    wait_s = call.bridge.settings.projects.kill_wait_ms / 1000
    runs, sight = stopping.runs, call.sight.projects
    share = call.caller.share_for(project)
    with (
        call.namespace.watches.on(share, *runs, *stopping.tasks) as changed,
        call.staying(share, changed.set),
    ):
        try:
            async with asyncio.timeout(wait_s):
                while not call.must_end:
                    changed.clear()
                    call.check_welcome()
                    left = await sight.show_left(project, runs)
                    if not left:
                        return left
                    await changed.wait()
        except TimeoutError:
            pass
    return await sight.show_left(project, runs)


# -- several at once


async def run_many(call: Call) -> Any:
    """POST /projects/run."""
    body = await call.body(RunManyBody)
    return await _each(call, body.projects, lambda project: _run(call, project, body))


async def stop_many(call: Call) -> Any:
    """POST /projects/stop."""
    body = await call.body(StopManyBody)
    return await _each(call, body.projects, lambda project: _stop(call, project, body.reason))


async def force_stop_many(call: Call) -> Any:
    """POST /projects/force-stop."""
    body = await call.body(StopManyBody)
    return await _each(call, body.projects, lambda project: _force_stop(call, project, body.reason))


async def _each(
    call: Call, projects: list[str], do: Callable[[str], Awaitable[dict[str, Any]]]
) -> Any:
    """Answer for each project on its own, in their order."""

    async def one(project: str) -> dict[str, Any]:
        try:
            return {"projectId": project, **await do(project)}
        except (RequestError, HttpProblem) as error:
            problem = dialect.problem if call.dialect else native_body
            told = problem(error, call.request_id)
            return {"projectId": project, "success": False, **told}

    named = list(dict.fromkeys(projects))
    rows = await asyncio.gather(*map(one, named))
    return call.json({"projects": list(rows), "success": all(row["success"] for row in rows)})


def _seen(call: Call, view: Callable[[T, MaySee], R]) -> Callable[[T], R]:
    """Show something as its caller may see it."""
    return lambda found: view(found, call.sight.may_see)


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

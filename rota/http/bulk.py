"""What is asked of many tasks, chosen by a filter: find them, and change them a slice at a time.

Tasks in memory are looked through in slices, the newest first; those that are found go to the
BulkActor in slices, the next when the last is durable. The loop has its turns in between, however
many there are. Those that wait go first, and those in flight last: else each slot that is freed on
the way would start another one, only to be cut off. Failed tasks are found by the log's index of
failures, as dead letters are, and each is given a new life by the same code as one alone.

Nothing of it is kept. If the server stops, or the caller leaves or loses its token, what was done
is done, and the same again goes on: who is as asked for already is not meant.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rota.config import SEQ_MAX
from rota.domain.bulk import LIVE, Filter, is_meant
from rota.domain.task import IN_FLIGHT
from rota.errors import InvalidRequest, RequestError
from rota.http.failures import SLICE_FAILURES
from rota.http.models import moment_us
from rota.http.namespaces import OPERATIONS_MAX
from rota.http.presence import connection_of
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractContextManager

    from rota.domain.bulk import Change
    from rota.domain.task import Task
    from rota.http.bulk_models import BulkBody, LiveBody, RetryManyBody
    from rota.http.call import Call

T = TypeVar("T")

SLICE_TASKS = 100
"""So many tasks are changed in one step, and one commit."""
FILTERS = ("agentId", "type", "state", "batchId", "workflowId", "key", "code")
AGES = ("olderThanMs", "createdBefore")


class Done(NamedTuple):
    """What became of an operation so far."""

    matched: int = 0
    changed: int = 0
    refused: dict[str, int] = {}  # noqa: RUF012 - replaced, never changed
    more: bool = False

    def and_(self, matched: int, changed: int, refused: dict[str, int]) -> Done:
        codes = {**self.refused}
        for code, count in refused.items():
            codes[code] = codes.get(code, 0) + count
        return Done(self.matched + matched, self.changed + changed, codes)

    def answer(self, *, dry_run: bool) -> dict[str, Any]:
        return {**self._asdict(), "dryRun": dry_run}


def filter_of(call: Call, body: LiveBody | RetryManyBody) -> Filter:
    """Say which tasks a body means. Raises InvalidRequest if it says nothing, or twice."""
    said = [name for name in (*FILTERS, *AGES) if getattr(body, name, None) is not None]
    if not said and not body.all:
        names = ", ".join(name for name in (*FILTERS, *AGES) if hasattr(body, name))
        msg = f'say which are meant: by {names}; or all with "all": true'
        raise InvalidRequest(msg, details={"field": "all"})
    if said and body.all:
        msg = f"field 'all': give either that or {said[0]}"
        raise InvalidRequest(msg, details={"field": "all"})
    if body.olderThanMs is not None and body.createdBefore is not None:
        msg = "field 'createdBefore': give either that or olderThanMs"
        raise InvalidRequest(msg, details={"field": "createdBefore"})
    before: int | None = None
    if body.createdBefore is not None:
        before = moment_us(body.createdBefore)
    elif body.olderThanMs is not None:
        before = call.now() - body.olderThanMs * 1000
    return Filter(
        body.states() or LIVE,
        body.agentId,
        body.type,
        body.batchId,
        body.workflowId,
        body.key,
        before,
    )


def _one_operation(call: Call) -> AbstractContextManager[None]:
    msg = f"{OPERATIONS_MAX} operations on many tasks run already, or as many of yours as may"
    msg += "; try again when one ends"
    return call.holding(call.namespace.operations, "too_many_operations", msg)


async def change_all(call: Call, body: BulkBody, meant: Filter, change: Change) -> Done:
    """Change what is meant, or only count it. Raises HttpProblem, or what ends it."""
    with _one_operation(call):
        found = await _found(call, meant, change)
        if body.dryRun:
            return Done(len(found))
        done = Done()
        most = body.limit
        for ids in _slices(found, most):
            _check_wanted(call)
            changed = await call.bridge.change(ids, meant, change, call.by)
            done = done.and_(len(ids), changed.changed, changed.refused)
        return done._replace(more=most is not None and len(found) > most)


async def _found(call: Call, meant: Filter, change: Change) -> list[str]:
    """Name the tasks that are meant, in the order in which they are to be changed."""
    waiting: list[str] = []
    in_flight: list[str] = []

    def tell(task: Task) -> None:
        if is_meant(task, meant, change):
            (in_flight if task.state in IN_FLIGHT else waiting).append(task.id)

    async def gather() -> list[str]:
        waiting.clear()
        in_flight.clear()
        await call.sight.each_task(tell)
        return [*reversed(waiting), *reversed(in_flight)]

    return await call.sight.gathered(gather, lambda found: found)


def _slices(found: list[str], most: int | None) -> Iterable[list[str]]:
    end = len(found) if most is None else min(most, len(found))
    return (found[at : min(at + SLICE_TASKS, end)] for at in range(0, end, SLICE_TASKS))


def _check_wanted(call: Call) -> None:
    """End it if its caller has left, or is no longer welcome. Raises HttpProblem."""
    call.check_welcome()
    connection = connection_of(call.request)
    if connection.is_gone or connection.at_eof:  # who hangs up does that first
        raise HttpProblem(499, "client_left", "the client has left")


# -- new lives


async def retry_all(call: Call, body: RetryManyBody, meant: Filter) -> Done:
    """Give all failed tasks that are meant new lives, newest failure first, or count them."""
    done, at, most = Done(), SEQ_MAX, body.limit
    with _one_operation(call):
        while True:
            _check_wanted(call)
            look = partial(call.sight.failed, at, SLICE_FAILURES)
            page = await (call.sight.gathered(look, lambda page: page) if body.dryRun else look())
            ids = [task.id for _, task in page if task is not None and _fits(task, body, meant)]
            if body.dryRun:
                done = done.and_(len(ids), 0, {})
            else:
                done = await _retry(call, ids, most, done)
            if done.more or len(page) < SLICE_FAILURES:
                return done
            at = page[-1][0]


def _fits(task: Task, body: RetryManyBody, meant: Filter) -> bool:
    return meant.matches(task) and body.code in (None, task.error_code)


async def _retry(call: Call, ids: list[str], most: int | None, done: Done) -> Done:
    """Try these, until as many live again as may."""
    while ids:
        room = len(ids) if most is None else most - done.changed
        if room <= 0:
            return done._replace(more=True)
        some, ids = ids[:room], ids[room:]
        refused: dict[str, int] = {}
        for found in await each_of(some, lambda task_id: call.bridge.retry(task_id, call.by)):
            if isinstance(found, RequestError):
                refused[found.code] = refused.get(found.code, 0) + 1
        done = done.and_(len(some), len(some) - sum(refused.values()), refused)
    return done


async def each_of(ids: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> list[T | RequestError]:
    """Ask for each of a few; give what became of it. Raises what is not about one of them."""

    async def one(task_id: str) -> T | RequestError:
        try:
            return await ask(task_id)
        except RequestError as error:
            return error

    return list(await asyncio.gather(*map(one, ids)))

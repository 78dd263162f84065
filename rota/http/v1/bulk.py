"""/v1/tasks/cancel, /retry and /reprioritise: many tasks at once, chosen by a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.bulk import CANCEL, REPRIORITISE, Change
from rota.http.bulk import change_all, filter_of, retry_all
from rota.http.bulk_models import CancelManyBody, ReprioritiseManyBody, RetryManyBody

if TYPE_CHECKING:
    from rota.http.call import Call


async def cancel(call: Call) -> Any:
    """POST /v1/tasks/cancel."""
    body = await call.body(CancelManyBody)
    change = Change(CANCEL, reason=body.reason)
    done = await change_all(call, body, filter_of(call, body), change)
    return call.json(done.answer(dry_run=body.dryRun))


async def reprioritise(call: Call) -> Any:
    """POST /v1/tasks/reprioritise."""
    body = await call.body(ReprioritiseManyBody)
    change = Change(REPRIORITISE, priority=int(body.priority))
    done = await change_all(call, body, filter_of(call, body), change)
    return call.json(done.answer(dry_run=body.dryRun))


async def retry(call: Call) -> Any:
    """POST /v1/tasks/retry."""
    body = await call.body(RetryManyBody)
    done = await retry_all(call, body, filter_of(call, body))
    return call.json(done.answer(dry_run=body.dryRun))

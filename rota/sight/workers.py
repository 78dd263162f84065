"""The workers as they are at this moment: who was heard of, waits, and holds what.

Who was heard of is no fact (`actors/workers.py`). What a worker holds is: it is shown when durable.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rota.actors.dispatcher import DispatcherActor
from rota.actors.leases import LeasesActor
from rota.actors.runtime import body_of
from rota.domain.leases import named_by
from rota.domain.task import TaskState
from rota.errors import NotFound
from rota.logs import ERROR_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.actors.system import Shard
    from rota.domain.leases import Lease
    from rota.domain.wants import Wants
    from rota.sight.history import MaySee

LEASES_SHOWN_MAX = 100


class WorkerRow(NamedTuple):
    """A worker; of its leases the first are named. Who holds none owes no heartbeat."""

    worker: str
    seen_at: int
    delay_us: int | None
    is_waiting: bool
    wants: Wants | None
    holds: int
    leases: list[tuple[int, Lease]]


def workers_of(
    shard: Shard, may_see: MaySee | None, at: int, limit: int
) -> tuple[list[WorkerRow], bool]:
    leases, dispatcher = body_of(shard.leases), body_of(shard.dispatcher)
    if not isinstance(leases, LeasesActor) or not isinstance(dispatcher, DispatcherActor):
        return [], False  # the log has failed, and nobody is served
    now = shard.journal.now()
    held: dict[str, list[tuple[int, Lease]]] = {}
    for token, lease in leases.live.items():
        if may_see is None or may_see(lease.agent):
            held.setdefault(lease.worker, []).append((token, lease))
    names = dict.fromkeys([*reversed(leases.workers.by_name), *held])
    seen = (name for name in names if may_see is None or name in held or _may(shard, name, may_see))
    rows = []
    for name in islice(seen, at, at + limit + 1):
        one, own = leases.workers.by_name.get(name), held.get(name, [])
        last = max([lease.seen_at for _, lease in own] + ([one.seen_at] if one is not None else []))
        delay_us = max((max(each.gap_us, now - each.seen_at) for _, each in own), default=None)
        wants = one.wants if one is not None else None
        waits = dispatcher.waits(name)
        rows.append(WorkerRow(name, last, delay_us, waits, wants, len(own), own[:LEASES_SHOWN_MAX]))
    return rows[:limit], len(rows) > limit


class Stop(NamedTuple):
    """A lease that its worker is to stop working on.

    Without `expires_at` it is over. Else a force-stop waits for the worker to say that it stopped.
    If its attempt has failed, `code` and `error` say why.
    """

    lease: str
    state: str | None = None
    expires_at: int | None = None
    code: str | None = None
    error: str | None = None


def stops_of(
    shard: Shard, may_see: MaySee | None, worker: str, names: Iterable[str]
) -> dict[str, Stop]:
    """Say which of these leases are not this worker's to work on."""
    state, found = shard.state, {}
    for name in names:
        try:
            task_id, token = named_by(name)
        except NotFound:
            continue
        task = state.tasks.get(task_id)
        if task is None or (may_see is not None and not may_see(task.agent)):
            found[name] = Stop(name)
        elif task.token != token or not task.is_leased or task.worker != worker:
            found[name] = Stop(name, task.state.value)
            if task.token == token and task.state in (TaskState.FAILED, TaskState.SCHEDULED):
                why = (task.error or "")[:ERROR_CHARS_MAX]
                found[name] = found[name]._replace(code=task.error_code, error=why)
        elif task_id in state.projects.killing:
            found[name] = Stop(name, task.state.value, task.expires_at)
    return found


def may_serve(shard: Shard, agent: str, action: str, requires: str) -> bool:
    """Whether a live worker takes tasks of this kind; while nobody can tell, one may."""
    leases = body_of(shard.leases)
    if not isinstance(leases, LeasesActor):
        return True
    return leases.workers.may_serve(agent, action, requires, shard.journal.now())


def _may(shard: Shard, name: str, may_see: MaySee) -> bool:
    """Whether a worker came for agents that may all be seen."""
    one = body_of(shard.leases).workers.by_name.get(name)
    if one is None or one.wants is None:
        return False
    return all(
        each.agents is not None and all(map(may_see, each.agents)) for each in one.wants.filters
    )

"""From the log to a state: the newest snapshot that fits, and the fold of what came after.

Start, recovery from a failed disk, time travel and audit all come through here. A snapshot is
used only if its digest is the log's own at that seq; otherwise an older one, or none, is.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.domain.batch import Batch
from rota.domain.events import BatchFinished, BatchSubmitted, TaskRejected, TaskSubmitted
from rota.domain.fold import born, carry_over, evolve
from rota.eventlog.codec import decode, kind_at_a_glance
from rota.eventlog.replay import replay, replay_task, stored_of
from rota.projections.state import SNAPSHOT_VERSION, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.task import Task
    from rota.eventlog.port import EventLog
    from rota.projections.steps import Steps

BIRTHS = (TaskSubmitted, TaskRejected)


def rebuild(
    log: EventLog,
    *,
    until_seq: int | None = None,
    until_at: int | None = None,
    use_snapshots: bool = True,
    progress: Callable[[int], None] | None = None,
) -> State:
    """Give the state after the whole log, or at a seq or moment. Raises LogCorrupt."""
    with _no_collections():
        state = State()
        if use_snapshots and until_at is None:
            state = _from_snapshot(log, until_seq) or state
        apply = state.apply
        for record in replay(
            log, state.seq, until_seq=until_seq, until_at=until_at, progress=progress
        ):
            apply(record)
        return state


@contextmanager
def _no_collections() -> Iterator[None]:
    """Hold the garbage collector: a fold makes much that stays and nothing that is cyclic."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _from_snapshot(log: EventLog, until_seq: int | None) -> State | None:
    for snapshot in log.load_snapshots():
        if snapshot.version != SNAPSHOT_VERSION:
            continue
        if until_seq is not None and snapshot.seq > until_seq:
            continue
        at = log.read(snapshot.seq - 1, 1)
        if not at or at[0].digest != snapshot.digest:
            continue
        try:
            return State.load(snapshot.blob)
        except (ValueError, KeyError, TypeError):
            continue
    return None


def task_from_log(log: EventLog, task_id: str, steps: Steps | None = None) -> Task | None:
    """Rebuild one task from its own records, for those that have left memory.

    Its moments are told by the clock as it is after `steps`, like those of a task in memory.
    """
    task: Task | None = None
    before = 0
    report = b""
    for item in stored_of(log, task_id):
        kind = kind_at_a_glance(item.body)
        if kind == b"task_logged":
            continue  # lines are counted only while a task lives
        if kind == b"task_progressed":
            report = item.body
            continue
        record = decode(item.body)
        if task is None:
            if not isinstance(record.event, BIRTHS):
                return None  # a batch's id
            task = born(record)
        else:
            if steps is not None and (by_us := steps.since(before, item.seq)):
                carry_over(task, by_us)
            evolve(task, record)
        before = item.seq
    if task is not None and steps is not None and (by_us := steps.since(before)):
        carry_over(task, by_us)
    if task is not None and report:
        evolve(task, decode(report))
    return task


def batch_from_log(log: EventLog, batch_id: str, steps: Steps | None = None) -> Batch | None:
    """Rebuild a finished batch from its own records, for those that have left memory."""
    batch: Batch | None = None
    before = 0
    for record in replay_task(log, batch_id):
        event = record.event
        if batch is not None and steps is not None:
            batch.carry_over(steps.since(before, record.seq))
        before = record.seq
        if isinstance(event, BatchSubmitted):
            batch = Batch(record)
        elif isinstance(event, BatchFinished) and batch is not None:
            batch.finished_at = record.at
            batch.fates = {
                "succeeded": event.succeeded,
                "failed": event.failed,
                "cancelled": event.cancelled,
            }
    if batch is not None and steps is not None:
        batch.carry_over(steps.since(before))
    return batch

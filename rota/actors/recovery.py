"""From the log to a state: the newest snapshot that fits, and the fold of what came after.

Start, recovery from a failed disk, time travel and audit all come through here. A snapshot is
used only if its digest is the log's own at that seq; otherwise an older one, or none, is. Nor is it
used if the records after it are no legal moves from what it says: then all of them are folded.
"""

from __future__ import annotations

import gc
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rota.domain.batch import FATES, Batch
from rota.domain.events import TaskRejected, TaskSubmitted
from rota.domain.fold import born, carry_over, evolve
from rota.domain.task import Task
from rota.domain.workflow import Workflow
from rota.domain.workflow_events import (
    BatchFinished,
    BatchSubmitted,
    WorkflowEnded,
    WorkflowSubmitted,
    WorkflowTripped,
)
from rota.errors import IllegalMove, LogUnusable
from rota.eventlog.codec import decode, kind_at_a_glance
from rota.eventlog.damage import damaged
from rota.eventlog.replay import replay, replay_task, stored_of
from rota.projections.state import SNAPSHOT_VERSION, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain.events import Record
    from rota.eventlog.port import Head, LogReader
    from rota.projections.steps import Steps

logger = logging.getLogger("rota.recovery")

REBUILDS_MAX = 3
BIRTHS = (TaskSubmitted, TaskRejected)


def rebuild(
    log: LogReader,
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
        apply, began = state.apply, state.seq
        try:
            for record in replay(
                log, began, until_seq=until_seq, until_at=until_at, progress=progress
            ):
                apply(record)
        except IllegalMove as error:
            if not began:
                raise damaged(f"record {error.seq} does not fold: {error}", error.seq) from error
            logger.warning("no use is made of the snapshot at %d: after it, %s", began, error)
            return rebuild(log, until_seq=until_seq, use_snapshots=False, progress=progress)
        return state


def rebuild_whole(
    log: LogReader,
    *,
    progress: Callable[[int], None] | None = None,
    folded: Callable[[], None] | None = None,
) -> tuple[State, Head]:
    """Give the state after the whole log, and the head that it is the state after.

    `folded` is called before the garbage collector may look at what was made.
    """
    for _ in range(REBUILDS_MAX):
        with _no_collections():
            state = rebuild(log, progress=progress)
            head = log.head()
            if head.seq == state.seq:  # else a write that failed was there and is not, or not yet
                if folded is not None:
                    folded()
                return state, head
    msg = f"the log ends at {head.seq}, and then again elsewhere"
    raise LogUnusable(msg, hint="check the disk's health")


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


def _from_snapshot(log: LogReader, until_seq: int | None) -> State | None:
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


def task_from_log(
    log: LogReader,
    task_id: str,
    steps: Steps | None = None,
    *,
    is_whole: bool = False,
    until_seq: int | None = None,
) -> Task | None:
    """Rebuild one task from its own records, for those that have left memory.

    Its moments are told by the clock as it is after `steps`, like those of a task in memory. What
    it said is left out but for its last report: it counts only while a task lives, and a whole one
    may live again. With `until_seq` it is as it was after that record, if it was there.
    """
    task: Task | None = None
    before = 0
    report = b""
    for item in stored_of(log, task_id):
        if until_seq is not None and item.seq > until_seq:
            break
        kind = kind_at_a_glance(item.body)
        if kind.startswith(b"project_task_"):
            continue  # what it was before it was a task
        if kind == b"task_logged" and not is_whole:
            continue
        if kind == b"task_progressed" and not is_whole:
            report = item.body
            continue
        record: Record[Any] = decode(item.body)
        if task is None:
            if not isinstance(record.event, BIRTHS):
                return None  # a batch's id
            task = born(record)
        else:
            move_on(task, record, steps, before)
        before = item.seq
    if task is not None:
        _carry_over(task, steps, before)
    if task is not None and report:
        evolve(task, decode(report))
    return task


def move_on(task: Task, record: Record[Any], steps: Steps | None, before: int) -> None:
    """Fold the next record of a task, whose moments were told by the clock of record `before`."""
    _carry_over(task, steps, before, record.seq)
    evolve(task, record)


def _carry_over(
    subject: Task | Batch, steps: Steps | None, before: int, until: int | None = None
) -> None:
    """Tell its moments by the clock as it was set after one record, up to and with another."""
    for step in steps.taken(before, until) if steps is not None else ():
        if isinstance(subject, Task):
            carry_over(subject, step.by_us, step.kept_until)
        else:
            subject.carry_over(step.by_us, step.kept_until)


def batch_from_log(log: LogReader, batch_id: str, steps: Steps | None = None) -> Batch | None:
    """Rebuild a finished batch or workflow that has left memory from its own records."""
    batch: Batch | None = None
    before = 0
    for record in replay_task(log, batch_id):
        event = record.event
        if batch is not None:
            _carry_over(batch, steps, before, record.seq)
        before = record.seq
        if isinstance(event, BatchSubmitted):
            batch = Batch(record)
        elif isinstance(event, WorkflowSubmitted):
            batch = Workflow(record)
        elif isinstance(event, WorkflowTripped) and isinstance(batch, Workflow):
            batch.on_tripped(event)
        elif isinstance(event, WorkflowEnded) and isinstance(batch, Workflow):
            batch.on_ended(record)
            batch.tasks = event.tasks
            batch.fates = _fates(event)
        elif isinstance(event, BatchFinished) and batch is not None:
            batch.finished_at, batch.finished_seq = record.at, record.seq
            batch.fates = _fates(event)
    if batch is not None:
        _carry_over(batch, steps, before)
    return batch


def _fates(event: BatchFinished | WorkflowEnded) -> dict[str, int]:
    return {fate: getattr(event, fate) for fate in FATES}

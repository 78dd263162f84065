"""A task as it was: after a record, or at a moment.

Its own records are folded up to there, which takes as long as its history is. Its moments are told
by the clock as it was set then. What a blocked task still waited for is not in its own records: the
records of its parents are looked at, too.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.actors.recovery import move_on, task_from_log
from rota.clock import rfc3339
from rota.domain.task import BLOCKED
from rota.errors import InvalidRequest, NotFound
from rota.eventlog.codec import decode, kind_at_a_glance
from rota.eventlog.replay import stored_of

if TYPE_CHECKING:
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.eventlog.port import LogReader
    from rota.projections.steps import Steps


SUCCESS = b"task_succeeded"


class Moment(NamedTuple):
    """When: after the record `seq`, or else at the time `at`, in microseconds."""

    seq: int | None
    at: int = 0

    def __str__(self) -> str:
        return f"seq {self.seq}" if self.seq is not None else rfc3339(self.at)


class Present(NamedTuple):
    """What `at` goes back from: the last record that counts, the steps up to it, and the time."""

    seq: int
    steps: Steps
    now: int


def task_at(log: LogReader, present: Present, task_id: str, moment: Moment) -> Task:
    """Fold a task up to a moment; in any thread. Raises NotFound or InvalidRequest."""
    seq = _seq_of(log, present, moment)
    then = present.steps.until(seq)
    task = task_from_log(log, task_id, then, until_seq=seq)
    if task is None:
        if task_from_log(log, task_id) is None:
            raise NotFound("task not found")
        raise NotFound(f"task not found: there was none yet at {moment}")
    if task.state is BLOCKED:
        task.waits = {each for each in task.waits or () if not _is_met(log, each, seq)}
    return task


class Followed:
    """A copy of a task as it is, and as it becomes by its records; `seq` is the last of them."""

    def __init__(self, log: LogReader, present: Present, task_id: str) -> None:
        """Fold it; in any thread. Raises NotFound."""
        seqs = [each.seq for each in stored_of(log, task_id) if each.seq <= present.seq]
        self.seq = seqs[-1] if seqs else 0
        task = task_from_log(log, task_id, present.steps, until_seq=self.seq)
        if task is None:
            raise NotFound("task not found")
        self.task = task
        self._told = present.seq  # by whose clock its moments are told

    def add(self, record: Record[Any], steps: Steps) -> None:
        move_on(self.task, record, steps, self._told)
        self.seq = record.seq
        self._told = max(self._told, record.seq)


def _seq_of(log: LogReader, present: Present, moment: Moment) -> int:
    """Give the last record up to a moment. Raises InvalidRequest for one that has not come."""
    head = log.head().seq
    if moment.seq is None:
        if moment.at > max(present.now, present.steps.latest):
            raise _ahead(f"{moment} has not come yet")
        return seq_at(log, min(head, present.seq), present.steps, moment.at)
    if moment.seq > head:
        raise _ahead(f"the log ends at seq {head}, before {moment.seq}")
    return moment.seq


def seq_at(log: LogReader, head: int, steps: Steps, at: int) -> int:
    """Give the last seq whose record is dated `at` or before; bisected between the steps.

    Records are dated by the clock as it was set then, and between two steps their dates never go
    back. Of more steps than are kept, a record before those that are kept is found that is not
    later than `at`, with one after it that is.
    """

    def moment_of(seq: int) -> int:
        return decode(log.read(seq - 1, 1)[0].body).at

    seqs, end = range(1, head + 1), head
    for step in reversed(steps.last):
        if step.seq <= head:
            if step.now <= at:
                return bisect_right(seqs, at, lo=step.seq, hi=end, key=moment_of)
            end = step.seq - 1
    return bisect_right(seqs, at, hi=end, key=moment_of)


def _ahead(problem: str) -> InvalidRequest:
    msg = f"query parameter 'at': {problem}"
    return InvalidRequest(msg, code="seq_beyond_head", details={"field": "at"})


def _is_met(log: LogReader, parent: str, seq: int) -> bool:
    """Whether a parent had succeeded by then: for good, so that nothing needs to be folded."""
    for item in stored_of(log, parent):
        if item.seq > seq:
            return False
        if kind_at_a_glance(item.body) == SUCCESS:
            return True
    return False

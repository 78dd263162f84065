"""Which tasks the failure of one has cancelled, read from the log in any thread.

No index leads from a task to its dependents, but what a failure dooms is cancelled soon after it,
a slice at a time, each with the parent's name in its reason. So the records after each of the
task's ends are looked through, until so many in a row tell of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.dead import DEPENDENTS_MAX
from rota.domain.dependencies import DOOMED
from rota.domain.dependencies import doomed_by as parent_in
from rota.domain.events import TaskCancelled
from rota.eventlog.codec import decode, kind_at_a_glance
from rota.eventlog.replay import stored, stored_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.eventlog.port import LogReader

QUIET_RECORDS = 5000
SCAN_RECORDS = 100_000
_ENDS = (b"task_failed", b"task_expired", b"task_cancelled")
_CANCELLED = b"task_cancelled"


def doomed_by(log: LogReader, task_id: str) -> list[tuple[str, str]]:
    """Give the tasks, and their agents, that failures of one cancelled, each after its parents."""
    ends = [item.seq for item in stored_of(log, task_id) if kind_at_a_glance(item.body) in _ENDS]
    found: dict[str, str] = {}
    dead = {task_id}
    looked_to = looks = 0
    for end in ends:
        quiet = 0
        for seq, event in _cancellations(log, max(end, looked_to)):
            looked_to, looks = seq, looks + 1
            quiet += 1
            if event is not None and parent_in(event.reason) in dead and event.task not in found:
                quiet = 0
                dead.add(event.task)
                found[event.task] = event.agent
            if len(found) >= DEPENDENTS_MAX or looks >= SCAN_RECORDS:
                return list(found.items())
            if quiet >= QUIET_RECORDS:
                break
    return list(found.items())


def _cancellations(log: LogReader, after: int) -> Iterator[tuple[int, TaskCancelled | None]]:
    """Go through the records; of those that a failed dependency cancelled, give the event."""
    for item in stored(log, after):
        event = None
        if kind_at_a_glance(item.body) == _CANCELLED:
            decoded = decode(item.body).event
            if isinstance(decoded, TaskCancelled) and decoded.code == DOOMED:
                event = decoded
        yield item.seq, event

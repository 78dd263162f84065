"""What was recorded: pages of records, read from the log in any thread.

Pages are bounded in records and in bytes. A scan for some kinds or one agent looks at a bounded
number of records and says how far it came. It goes in slices, each of which is a read of its own,
so that others have their turns in between (actors/readers.py). The records of one task are found by
their index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.events import TaskSubmitted
from rota.errors import InvalidRequest, NotFound
from rota.eventlog.codec import decode
from rota.eventlog.heading import heading_of
from rota.eventlog.replay import replay_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.domain.plan import Plan
    from rota.eventlog.heading import Heading
    from rota.eventlog.port import LogReader, Stored

    MaySee = Callable[[str | None], bool]

__all__ = ["ANYTHING", "Page", "Scan", "Wanted", "belongings_of", "records_of", "replay_task"]

SCAN_MAX = 20_000
SLICE_RECORDS = 500
"""So many are looked at before others' reads have their turns."""
SCAN_ROWS = 100
PAGE_BYTES = 1 << 20


class Wanted(NamedTuple):
    """What a reader wants: records of these kinds, this task, agent and project; None is any.

    Of those it gets the ones whose agent it `may_see`, or whose project if they have no agent: all
    of them, if that is None.
    """

    kinds: frozenset[str] | None = None
    task: str | None = None
    agent: str | None = None
    may_see: MaySee | None = None
    project: str | None = None

    def matches(self, about: Heading) -> bool:
        kind, task, agent, project = about
        return (
            (self.kinds is None or kind in self.kinds)
            and (self.task is None or task == self.task)
            and (self.agent is None or agent == self.agent)
            and (self.project is None or project == self.project)
            and (self.may_see is None or self.may_see(agent or project or None))
        )


ANYTHING = Wanted()


class Page(NamedTuple):
    """Some records; how far was looked for them, whether that is all, and the end of the log."""

    found: list[Stored]
    next: int
    is_cut: bool
    head: int


def check_after(after: int, head: int) -> None:
    """Refuse a seq that the log has not come to. Raises InvalidRequest.

    Nobody can have read that far: the reader knows another log, or this one before it was restored
    from a copy. Waiting would be silence until the log has caught up, and then a gap.
    """
    if after > head:
        msg = f"the log ends at seq {head}, before {after}"
        hint = "these are another log's numbers, or this one was restored: begin anew"
        details = {"after": after, "head": head}
        raise InvalidRequest(msg, code="seq_beyond_head", details=details, hint=hint)


class Scan:
    """Looks through the log for up to `limit` records that are wanted, a slice at a time."""

    def __init__(self, after: int, limit: int, wanted: Wanted) -> None:
        self._after, self._limit, self._wanted = after, limit, wanted
        self._found: list[Stored] = []
        self._looked = self._size = 0

    def go_on(self, log: LogReader) -> Page | None:
        """Look through the next slice, in any thread; give the page once it is made.

        Raises InvalidRequest.
        """
        head = log.head().seq
        check_after(self._after, head)
        if self._wanted == ANYTHING:
            self._found = log.read(self._after, self._limit, PAGE_BYTES)
            self._after = self._found[-1].seq if self._found else self._after
        elif not self._is_made(log, head):
            return None
        return Page(self._found, self._after, bool(self._found), head)

    def _is_made(self, log: LogReader, head: int) -> bool:
        """Look through a slice; say whether that was the last. Know how far it was looked."""
        task, until = self._wanted.task, min(self._looked + SLICE_RECORDS, SCAN_MAX)
        while self._looked < until:
            if task is None:
                rows = log.read(self._after, SCAN_ROWS, PAGE_BYTES)
            else:
                rows = log.read_task(task, SCAN_ROWS, self._after, PAGE_BYTES)
            if not rows:
                self._after = max(self._after, head)
                return True
            for item in rows:
                if self._wanted.matches(heading_of(item.body)):
                    self._found.append(item)
                    self._size += len(item.body)
                    if len(self._found) == self._limit or self._size > PAGE_BYTES:
                        self._after = item.seq
                        return True
            self._looked += len(rows)
            self._after = rows[-1].seq
        return self._looked >= SCAN_MAX


def check_seen(log: LogReader, task_id: str, may_see: MaySee) -> None:
    """Refuse a task whose first record may not be seen, as if there were none. Raises NotFound."""
    first = log.read_task(task_id, 1)
    if not first or not may_see(heading_of(first[0].body).agent or None):
        raise NotFound("task not found")


def records_of(log: LogReader, task_id: str, after: int, limit: int) -> Page:
    """Give up to `limit` records of one task. Raises NotFound or InvalidRequest."""
    head = log.head().seq
    check_after(after, head)
    found = log.read_task(task_id, limit, after, PAGE_BYTES)
    if not found and not log.has_task(task_id):
        raise NotFound("task not found")
    is_cut = len(found) == limit or sum(len(each.body) for each in found) > PAGE_BYTES
    return Page(found, found[-1].seq if found else after, is_cut, head)


class Belongs(NamedTuple):
    """The batch and the workflow that a task is of."""

    batch: str | None = None
    workflow: str | None = None


def belongs(plan: Plan | None) -> Belongs:
    return Belongs(plan.batch, plan.workflow) if plan is not None else Belongs()


def belongings_of(log: LogReader, task_ids: Sequence[str]) -> dict[str, Belongs]:
    """Give what tasks are of by one record each: a task's history may be long."""
    found: dict[str, Belongs] = {}
    for task_id in task_ids:
        first = log.read_task(task_id, 1)
        born: Any = decode(first[0].body).event if first else None
        found[task_id] = belongs(born.plan if isinstance(born, TaskSubmitted) else None)
    return found

"""What projects are made of: items, runs, what was done, and what it all comes to.

What is decided about them is in project_lists.py and project.py; here they only take in what was
recorded. Each can be written as a row, for a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from rota.domain.intake import PRIORITY
from rota.domain.packed import text_of
from rota.domain.shares import share_of
from rota.domain.stored import read_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.domain import events as e
    from rota.domain.intake import Request

SINGLE, LOOP = "single", "loop"
PENDING, IN_PROGRESS, COMPLETED, FAILED = "pending", "in_progress", "completed", "failed"
ENDED = (COMPLETED, FAILED)

SINGLE_DONE, EMPTY, STOPPED = "single_done", "empty", "stopped"
TASK_FAILED, TASK_CANCELLED, TASK_GONE = "task_failed", "task_cancelled", "task_gone"
FORCE_STOPPED, RUN_TIMEOUT = "force_stopped", "run_timeout"
STOP_REASONS = (
    SINGLE_DONE, EMPTY, STOPPED, TASK_FAILED, TASK_CANCELLED, TASK_GONE, FORCE_STOPPED, RUN_TIMEOUT,
)  # fmt: skip

RUNS_KEPT = 10
"""So many runs of a project are in memory, the last ones."""
DONE_KEPT = 20
"""So many of the tasks that its runs have ended are shown with a project."""
KEY_BYTES = 150
"""About what the id of an item takes that is kept with an idempotency key."""
ERROR_CHARS_KEPT = 300
"""So much of an error is kept with a run, and with what was done; the task has all of it."""


class Item:
    """What is on a list: a request that becomes a task under the same id.

    One that is `held` is a task already. The request is kept as it is written; its agent is at
    hand.
    """

    __slots__ = ("added_at", "agent", "by", "held", "id", "priority", "request_json")

    def __init__(
        self,
        item_id: str,
        request: Mapping[str, Any],
        by: str,
        added_at: int,
        *,
        held: bool | None = None,
    ) -> None:
        self.id = item_id
        self.agent: str = request["agent"]
        self.priority: int = request.get("priority", PRIORITY)
        self.request_json = text_of(request)
        self.by = by
        self.added_at = added_at
        self.held = held

    @property
    def size(self) -> int:
        return len(self.request_json)

    def with_priority(self, priority: int) -> Item:
        """Give the same, more or less urgent."""
        written = {**self.written, "priority": priority}
        return Item(self.id, written, self.by, self.added_at, held=self.held)

    @property
    def owner(self) -> str:
        """Name the caller whose shares it takes of what there is room for."""
        return share_of(self.by, self.agent)

    @property
    def written(self) -> dict[str, Any]:
        """Give the request as its record has it."""
        said: dict[str, Any] = orjson.loads(self.request_json)
        return said

    @property
    def request(self) -> Request:
        return read_request(self.written, self.by)

    def carried_over(self, by_us: int, now: int) -> Item:
        """Give the same by a clock that was set by so much."""
        other = copy(self)
        other.added_at = min(self.added_at + by_us, now)
        return other

    def to_row(self) -> list[Any]:
        return [self.id, orjson.Fragment(self.request_json), self.by, self.added_at, self.held]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Item:
        return cls(*row[:4], held=row[4])


class _Row:
    """What is written as a row of its fields."""

    __slots__: tuple[str, ...] = ()

    def to_row(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        made = cls.__new__(cls)
        for name, value in zip(cls.__slots__, row, strict=True):
            setattr(made, name, value)
        return made


class Run(_Row):
    """One start of a project, until it has ended.

    `item` is the one that it was told to begin with. `task` is the one that it has selected and
    that has not ended; `fate` and `error` are those of the last that has. `item_agent` is the agent
    of the first, `agent` that of the others: who may not see it is shown neither. `stop` is None,
    "stop" or "force".
    """

    __slots__ = (
        "agent",
        "by",
        "completed",
        "ended_at",
        "error",
        "fate",
        "id",
        "item",
        "item_agent",
        "mode",
        "project",
        "queued_at",
        "reason",
        "seq",
        "started_at",
        "state",
        "stop",
        "stop_at",
        "taken",
        "task",
    )

    def __init__(self, record: e.Record[e.RunQueued], item_agent: str | None) -> None:
        event = record.event
        self.id, self.project, self.mode, self.item = event[:4]
        self.agent = self.item_agent = item_agent
        self.by, self.seq = record.by, record.seq
        self.queued_at = record.at
        self.started_at = self.ended_at = self.stop_at = 0
        self.state = PENDING
        self.stop: str | None = None
        self.task: str | None = None
        self.taken = self.completed = 0
        self.fate: str | None = None
        self.error: str | None = None
        self.reason: str | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def duration_us(self) -> int:
        """Say how long it was in progress, if it has ended."""
        return max(0, self.ended_at - self.started_at) if self.started_at else 0

    def on_stop_requested(self, record: e.Record[e.RunStopRequested]) -> None:
        self.stop = "force" if record.event.force else self.stop or "stop"
        self.stop_at = self.stop_at or record.at
        if record.event.code is not None:
            self.reason, self.error = record.event.code, cut(record.event.reason)

    def on_ended(self, record: e.Record[e.RunEnded]) -> None:
        """Be what the record says: who rebuilds it from its records has little else."""
        event = record.event
        self.state, self.reason, self.ended_at = event.state, event.reason, record.at
        self.completed, self.error, self.task = event.completed, cut(event.error), None

    def carry_over(self, by_us: int, now: int) -> None:
        """Tell its moments by a clock that was set by so much."""
        for name in ("queued_at", "started_at", "stop_at", "ended_at"):
            at = getattr(self, name)
            if at:
                setattr(self, name, min(at + by_us, now))


class Figures(_Row):
    """What the runs of a project come to."""

    __slots__ = ("completed", "failed", "longest_us", "reasons", "starts", "total_us")

    def __init__(self) -> None:
        self.starts = self.completed = self.failed = 0
        self.total_us = self.longest_us = 0
        self.reasons: dict[str, int] = {}

    def on_ended(self, run: Run) -> None:
        if run.state == COMPLETED:
            self.completed += 1
        else:
            self.failed += 1
        self.total_us += run.duration_us
        self.longest_us = max(self.longest_us, run.duration_us)
        reason = run.reason or ""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    @property
    def ended(self) -> tuple[int, int]:
        """Say how many runs have ended, and how long they were in progress together."""
        return self.completed + self.failed, self.total_us


class Done(NamedTuple):
    """A task of a project that has ended, as the project remembers it."""

    task: str
    state: str
    run: str
    ended_at: int
    error: str | None = None
    agent: str | None = None
    action: str = ""


class Keyed(NamedTuple):
    """The items of one request under an idempotency key, in its order.

    Each says whether it is on the list, runs, or is among what was done; the key is forgotten when
    none is.
    """

    digest: str | None
    items: dict[str, bool]

    def weight(self, key: str) -> int:
        return len(self.items) * weight_of_key(key)


class Project:
    """An ordered list, its runs and what they come to.

    `taken` is the item that the run has selected and whose task has not ended; `bytes` counts it,
    what is on the list, and the keys. `keys` are the idempotency keys of those who added items, by
    their names and the key.
    """

    __slots__ = ("bytes", "created_at", "done", "figures", "id", "items", "keys", "runs", "taken")

    def __init__(self, project_id: str, created_at: int) -> None:
        self.id = project_id
        self.created_at = created_at
        self.items: list[Item] = []
        self.taken: Item | None = None
        self.bytes = 0
        self.runs: list[Run] = []
        self.done: list[Done] = []
        self.figures = Figures()
        self.keys: dict[tuple[str, str], Keyed] = {}

    @property
    def run(self) -> Run | None:
        """Give the run that has not ended, if there is one."""
        return self.runs[-1] if self.runs and not self.runs[-1].is_over else None

    def find(self, item_id: str) -> Item | None:
        return next((item for item in self.items if item.id == item_id), None)

    def put(self, item: Item, before: str | None) -> None:
        """Put an item on the list, before another if that is as urgent."""
        self.items.insert(place_in(self.items, item.priority, before), item)


def place_in(items: Sequence[Item], priority: int, before: str | None) -> int:
    """Give the place on a list of what is so urgent: before an item, or after all as urgent.

    Lists are in the order of priority, so it goes no further than among those of its own.
    """
    first = bisect_left(items, priority, key=lambda item: item.priority)
    last = bisect_right(items, priority, key=lambda item: item.priority)
    at = next((at for at, item in enumerate(items) if item.id == before), last)
    return min(max(at, first), last)


def weight_of_key(key: str) -> int:
    """Give about how many bytes of memory a key takes for each item that it stands for."""
    return KEY_BYTES + len(key)


def cut(error: str | None) -> str | None:
    """Give so much of an error as is kept."""
    return error[:ERROR_CHARS_KEPT] if error is not None else None

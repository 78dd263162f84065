"""The keys that clients gave: idempotency keys and dedup keys, and which task each stands for.

A key belongs to the principal who used it. An idempotency key is held until `IDEMPOTENCY_US` after
its task or batch has ended, a dedup key while its task is active and until its own `until`. Both
are forgotten by the time of the records, so a replay holds what the live server held. Moments are
kept less the `shift` of the clock: a step of it changes none of them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.batch import Batch
    from rota.domain.events import Record
    from rota.domain.task import Plan, Task

IDEMPOTENCY_US = 24 * 3600 * 1_000_000

Name = tuple[str, str, str]
"""(kind, principal, key)"""


class Held(NamedTuple):
    """What a key stands for; `ends` is when it is free again, 0 while that is not known."""

    subject: str
    digest: str | None = None
    until: int = 0
    ends: int = 0


class Keys:
    """The keys that are held."""

    def __init__(self) -> None:
        """Start with none."""
        self.held: dict[Name, Held] = {}
        self.ending: list[tuple[int, Name]] = []
        self.shift = 0

    def find(self, name: Name, now: int) -> Held | None:
        """Give what holds a key at this moment."""
        held = self.held.get(name)
        is_held = held is not None and (not held.ends or now - self.shift < held.ends)
        return held if is_held else None

    def rival(self, task: Task, now: int) -> tuple[str, str] | None:
        """Give the dedup key of a task and who else holds it, if anybody does."""
        key = task.plan.dedup if task.plan is not None else None
        held = self.find(dedup(task.by, key), now) if key is not None else None
        return (key or "", held.subject) if held is not None and held.subject != task.id else None

    def on_submitted(self, record: Record, task: Task) -> None:
        """Hold the keys of a new task."""
        plan = task.plan
        if plan is None:
            return
        if plan.idempotency is not None:
            self.held[idempotency(record.by, plan.idempotency)] = Held(task.id, plan.digest)
        if plan.dedup is not None:
            held = Held(task.id, None, self._until(plan))
            self.held[dedup(record.by, plan.dedup)] = held

    def _until(self, plan: Plan) -> int:
        return plan.dedup_until - self.shift if plan.dedup_until else 0

    def on_ended(self, record: Record, task: Task) -> None:
        """Say when the keys of a task that ended are free again."""
        plan = task.plan
        if plan is None:
            return
        if plan.idempotency is not None:
            self._end(idempotency(task.by, plan.idempotency), task.id, record.at + IDEMPOTENCY_US)
        if plan.dedup is not None:
            self._end(dedup(task.by, plan.dedup), task.id, record.at)

    def on_revived(self, record: Record, task: Task) -> None:
        """Hold the keys of a task that lives again, unless somebody else has them now."""
        del record
        plan = task.plan
        if plan is None:
            return
        if plan.idempotency is not None:
            self._hold_again(idempotency(task.by, plan.idempotency), Held(task.id, plan.digest))
        if plan.dedup is not None:
            self._hold_again(dedup(task.by, plan.dedup), Held(task.id, None, self._until(plan)))

    def _hold_again(self, name: Name, fresh: Held) -> None:
        held = self.held.get(name)
        if held is None or held.subject == fresh.subject:
            self.held[name] = fresh

    def on_batch(self, record: Record) -> None:
        """Hold the key of a new batch."""
        event: e.BatchSubmitted = record.event  # type: ignore[assignment]
        if event.idempotency is not None:
            name = idempotency(record.by, event.idempotency)
            self.held[name] = Held(event.batch, event.digest)

    def on_batch_finished(self, record: Record, batch: Batch) -> None:
        """Say when the key of a finished batch is free again."""
        if batch.idempotency is not None:
            name = idempotency(batch.by, batch.idempotency)
            self._end(name, batch.id, record.at + IDEMPOTENCY_US)

    def on_batch_revived(self, batch: Batch) -> None:
        """Hold the key of a batch on, of which a task lives again."""
        if batch.idempotency is not None:
            name = idempotency(batch.by, batch.idempotency)
            held = self.held.get(name)
            if held is not None and held.subject == batch.id:
                self.held[name] = held._replace(ends=0)

    def _end(self, name: Name, subject: str, ends: int) -> None:
        held = self.held.get(name)
        if held is None or held.subject != subject:
            return
        ends = max(ends - self.shift, held.until)
        self.held[name] = held._replace(ends=ends)
        heappush(self.ending, (ends, name))

    def forget(self, now: int) -> None:
        """Drop the keys that are free again."""
        while self.ending and self.ending[0][0] <= now - self.shift:
            ends, name = heappop(self.ending)
            held = self.held.get(name)
            if held is not None and held.ends == ends:
                del self.held[name]

    def dump(self) -> list[list[Any]]:
        """Give everything for a snapshot."""
        return [[*name, *held] for name, held in self.held.items()]

    def load(self, rows: list[list[Any]]) -> None:
        """Take over what `dump` gave."""
        for kind, by, key, *held in rows:
            self.held[kind, by, key] = Held(*held)
        self.ending = [(held.ends, name) for name, held in self.held.items() if held.ends]
        heapify(self.ending)


def idempotency(by: str, key: str | None) -> Name:
    """Name an idempotency key."""
    return ("idempotency", by, key or "")


def dedup(by: str, key: str | None) -> Name:
    """Name a dedup key."""
    return ("dedup", by, key or "")

"""A batch: tasks that were submitted together, and how many of them have ended in which way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rota.domain import events as e

if TYPE_CHECKING:
    from rota.domain.events import Record

FATES = ("succeeded", "failed", "cancelled")


class Batch:
    """Tasks that were submitted together."""

    __slots__ = (
        "by",
        "callback",
        "created_at",
        "dialect",
        "fates",
        "finished_at",
        "finished_seq",
        "id",
        "idempotency",
        "parallelism",
        "tasks",
    )

    def __init__(self, record: Record[e.BatchSubmitted]) -> None:
        event = record.event
        self.id = event.batch
        self.tasks = event.tasks
        self.dialect = event.dialect
        self.parallelism = event.parallelism
        self.callback = event.callback
        self.idempotency = event.idempotency
        self.by = record.by
        self.created_at = record.at
        self.finished_at = self.finished_seq = 0
        self.fates = dict.fromkeys(FATES, 0)

    @property
    def left(self) -> int:
        """Count the tasks that have not ended."""
        return len(self.tasks) - sum(self.fates.values())

    def carry_over(self, by_us: int, kept_until: int = 0) -> None:
        """Tell its moments by a clock that was set by so much; not those up to `kept_until`."""
        if self.created_at > kept_until:
            self.created_at += by_us
        if self.finished_at > kept_until:
            self.finished_at += by_us

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """Name what one is made of, in the order of a row."""
        return cls.__slots__

    def to_row(self) -> list[Any]:
        return [getattr(self, name) for name in self.fields()]

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        batch = cls.__new__(cls)
        for name, value in zip(cls.fields(), row, strict=True):
            setattr(batch, name, value)
        return batch


def decide_finish(batch: Batch | None) -> e.BatchFinished | None:
    """Finish a batch, once, when all of its tasks have ended."""
    if batch is None or batch.finished_at or batch.left:
        return None
    return e.BatchFinished(batch.id, *(batch.fates[fate] for fate in FATES))

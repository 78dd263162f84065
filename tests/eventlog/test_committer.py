"""The committer: one thread, groups, and silence after a failure."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from support.builders import batch, head_of
from support.eventlog_suite import snapshot

from rota.errors import LogUnusable
from rota.eventlog.committer import (
    GROUP_RECORDS_MAX,
    CommitFailed,
    Committed,
    Committer,
    Resume,
    Run,
    Wake,
    keep,
)
from rota.eventlog.memory_store import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.eventlog.port import Snapshot, Stored


class FickleLog(MemoryLog):
    """A log that can be told to fail, and remembers the sizes of its groups."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.groups: list[int] = []

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        if self.failing:
            msg = "no space left"
            raise LogUnusable(msg)
        super().append(records, expected_seq, epoch)
        self.groups.append(len(records))

    def save_snapshot(self, snapshot: Snapshot) -> None:
        if self.failing:
            msg = "no space left"
            raise LogUnusable(msg)
        super().save_snapshot(snapshot)


class Line:
    """A running committer and what it reported."""

    def __init__(self) -> None:
        self.log = FickleLog()
        self.outbox: deque[list[Stored]] = deque()
        self.reports: list[Committed | CommitFailed] = []
        self.ref = Committer.start(self.log, self.log.claim(), self.outbox, self.reports.append)

    def settle(self) -> None:
        """Wait until everything told so far has been handled."""
        passed = threading.Event()
        self.ref.tell(Run(passed.set))
        assert passed.wait(10)

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.ref.tell(message)
        self.settle()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.ref.stop()


def test_everything_that_waits_is_one_group(line: Line) -> None:
    line.outbox.extend([record] for record in batch(50))
    line.tell(Wake(), Wake(), Wake())
    assert line.log.groups == [50]
    assert line.reports == [Committed(50, 50)]


def test_a_group_has_a_largest_size_and_the_rest_follows(line: Line) -> None:
    records = batch(GROUP_RECORDS_MAX + 10)
    line.outbox.extend([record] for record in records)
    line.tell(Wake())
    line.settle()
    assert line.log.groups == [GROUP_RECORDS_MAX, 10]
    assert line.log.head() == head_of(records)


def test_after_a_failure_nothing_is_written_until_it_is_told_to_go_on(line: Line) -> None:
    line.log.failing = True
    line.outbox.append(batch(1))
    line.tell(Wake())
    [failure] = line.reports
    assert isinstance(failure, CommitFailed)
    line.log.failing = False
    line.outbox.append(batch(1))
    line.tell(Wake())
    assert line.log.head().seq == 0, "no record is written after a hole"
    line.tell(Resume(line.log.claim()))
    line.outbox.append(batch(2))
    line.tell(Wake())
    assert line.log.head().seq == 2
    assert line.reports[1:] == [Committed(2, 2)]


def test_a_writer_that_was_replaced_reports_a_failure(line: Line) -> None:
    line.log.claim()
    line.outbox.append(batch(1))
    line.tell(Wake())
    [failure] = line.reports
    assert isinstance(failure, CommitFailed)
    assert "epoch 1 refused" in str(failure.error)


@pytest.mark.parametrize("failing", [False, True])
def test_a_snapshot_is_kept_or_not_and_whoever_waits_for_it_is_told(
    line: Line, *, failing: bool
) -> None:
    line.log.failing = failing
    told: list[bool] = []
    keep(line.log, snapshot(3), lambda: told.append(True))
    assert [s.seq for s in line.log.load_snapshots()] == ([] if failing else [3])
    assert told == [True]
    assert line.reports == []

"""The port's conformance suite: what every event log must do, whoever implements it.

A test class inherits from `EventLogSuite` and says how a log is opened. `durable` tells whether
the log outlives being closed; `damage_newest_snapshot` is how this log's snapshots are broken.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import pytest
from support.builders import batch, chained, head_of, history, records_of, submitted

from rota.domain.events import TaskExpired, TaskFailed
from rota.errors import LogUnusable
from rota.eventlog.codec import subject_of
from rota.eventlog.port import Head, Snapshot
from rota.eventlog.replay import PAGE_RECORDS, replay, replay_task, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rota.eventlog.port import EventLog


FAILURES = (TaskFailed, TaskExpired)


def snapshot(seq: int, blob: bytes = b"state", version: int = 1) -> Snapshot:
    """Make a snapshot that says it is of `seq`."""
    return Snapshot(seq, bytes([seq % 256]) * 32, version, blob)


class EventLogSuite:
    """Inherit, and say how to open."""

    durable = True

    def open(self, folder: Path) -> EventLog:
        """Open the log that lives in `folder`."""
        raise NotImplementedError

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        log = self.open(tmp_path / "data")
        yield log
        log.close()

    # -- an empty log

    def test_an_empty_log_stands_before_its_first_record(self, log: EventLog) -> None:
        assert log.head() == Head(0, bytes(32))
        assert log.read(0, 10) == []
        assert log.read_task("t1", 10) == []
        assert not log.has_task("t1")
        assert log.load_snapshots() == []
        assert log.epoch() == 0

    # -- appending and reading

    def test_what_was_appended_is_read_back_in_order(self, log: EventLog) -> None:
        records = batch(5)
        log.append(records[:2], 0, 0)
        log.append(records[2:], 2, 0)
        found = log.read(0, 10)
        assert [(r.seq, r.digest, r.body) for r in found] == [
            (r.seq, r.digest, r.body) for r in records
        ]
        assert log.head() == head_of(records)

    def test_reading_goes_by_pages(self, log: EventLog) -> None:
        log.append(batch(10), 0, 0)
        assert [r.seq for r in log.read(0, 3)] == [1, 2, 3]
        assert [r.seq for r in log.read(3, 3)] == [4, 5, 6]
        assert [r.seq for r in log.read(9, 3)] == [10]

    def test_reading_before_the_beginning_begins_at_the_beginning(self, log: EventLog) -> None:
        log.append(batch(2), 0, 0)
        assert [r.seq for r in log.read(-5, 10)] == [1, 2]

    def test_reading_at_and_beyond_the_head_gives_nothing(self, log: EventLog) -> None:
        log.append(batch(3), 0, 0)
        assert log.read(3, 10) == []
        assert log.read(4, 10) == []
        assert log.read(10**9, 10) == []

    def test_reading_nothing_gives_nothing(self, log: EventLog) -> None:
        log.append(batch(3), 0, 0)
        assert log.read(0, 0) == []

    def test_a_replay_crosses_pages_without_losing_or_repeating(self, log: EventLog) -> None:
        count = PAGE_RECORDS + 7
        log.append(batch(count), 0, 0)
        assert [r.seq for r in replay(log)] == list(range(1, count + 1))
        assert [r.seq for r in stored(log, 3, 5)] == [4, 5]

    def test_a_replay_stops_at_a_seq_or_at_a_moment(self, log: EventLog) -> None:
        records = records_of([submitted(f"t{n}") for n in range(6)], step=1000)
        log.append(chained(records), 0, 0)
        assert [r.seq for r in replay(log, until_seq=4)] == [1, 2, 3, 4]
        assert [r.seq for r in replay(log, until_at=records[2].at)] == [1, 2, 3]

    # -- the index of tasks

    def test_the_records_of_a_task_are_found_oldest_first(self, log: EventLog) -> None:
        records = history(seed=3, length=300)
        log.append(chained(records), 0, 0)
        subjects = {subject for r in records if (subject := subject_of(r.event)) is not None}
        assert len(subjects) > 10
        for subject in subjects:
            own = [r.seq for r in records if subject_of(r.event) == subject]
            assert [r.seq for r in log.read_task(subject, 1000)] == own
            assert [r.seq for r in replay_task(log, subject)] == own
            assert log.has_task(subject)
        assert log.known_of([*subjects, "nobody", "", "x" * 5000]) == subjects

    def test_the_records_of_a_task_are_read_a_page_at_a_time(self, log: EventLog) -> None:
        log.append(chained(records_of([submitted(t) for t in ("t1", "t2", "t1", "t1")])), 0, 0)
        assert [r.seq for r in log.read_task("t1", 2)] == [1, 3]
        assert [r.seq for r in log.read_task("t1", 2, after=1)] == [3, 4]
        assert [r.seq for r in log.read_task("t1", 2, after=2)] == [3, 4]
        assert log.read_task("t1", 2, after=4) == []
        assert [r.seq for r in replay_task(log, "t1", after=3)] == [4]

    def test_unknown_tasks_have_no_records(self, log: EventLog) -> None:
        log.append(batch(3), 0, 0)
        for odd in ("nobody", "", "t", "x" * 5000, "t1\0", "é"):
            assert log.read_task(odd, 10) == []
            assert not log.has_task(odd)

    def test_the_last_of_the_ids_in_a_range_is_found(self, log: EventLog) -> None:
        assert log.last_subject("a", "z") == ""
        log.append(chained(records_of([submitted(t) for t in ("b1", "b7", "c", "b3")])), 0, 0)
        assert [log.last_subject(*each) for each in (("b", "c"), ("b", "z"))] == ["b7", "c"]
        assert [log.last_subject("b", end) for end in ("b7", "b10", "b1", "a")] == [
            "b3",
            "b1",
            "",
            "",
        ]
        assert log.last_subject("c1", "z") == ""

    # -- the index of failures

    def test_failures_are_found_newest_first_a_page_at_a_time(self, log: EventLog) -> None:
        records = history(seed=4, length=600)
        log.append(chained(records), 0, 0)
        failed = [(r.seq, r.event.task) for r in records if isinstance(r.event, FAILURES)][::-1]
        assert len(failed) > 5
        assert {type(r.event) for r in records} >= set(FAILURES)
        assert log.failed_before(10**9, 1000) == failed
        assert log.failed_before(1 << 70, 2) == failed[:2]
        assert log.failed_before(failed[2][0], 2) == failed[3:5]
        assert log.failed_before(failed[2][0] + 1, 2) == failed[2:4]
        assert log.failed_before(failed[-1][0], 10) == []
        assert log.failed_before(0, 10) == log.failed_before(-1, 10) == []
        assert log.failed_before(10**9, 0) == []

    def test_a_refused_append_adds_no_failure(self, log: EventLog) -> None:
        records = chained(history(seed=4, length=600))
        with pytest.raises(LogUnusable):
            log.append(records, 7, 0)
        assert log.failed_before(10**9, 10) == []

    # -- one writer, one order

    def test_an_append_is_all_or_nothing(self, log: EventLog) -> None:
        first = batch(2)
        log.append(first, 0, 0)
        again = [*batch(2, head_of(first)), first[0]]
        with pytest.raises(LogUnusable):
            log.append(again, 2, 0)
        assert log.head() == head_of(first)
        assert not log.has_task("t3")
        log.append(batch(1, head_of(first)), 2, 0)
        assert log.head().seq == 3

    @pytest.mark.parametrize("expected", [0, 1, 3, 99])
    def test_an_append_after_another_seq_than_the_head_is_refused(
        self, log: EventLog, expected: int
    ) -> None:
        first = batch(2)
        log.append(first, 0, 0)
        with pytest.raises(LogUnusable, match="the log is at 2"):
            log.append(batch(1, Head(expected, bytes(32))), expected, 0)
        assert log.head() == head_of(first)

    def test_a_writer_is_refused_once_another_has_claimed_the_log(self, log: EventLog) -> None:
        old = log.claim()
        log.append(batch(1), 0, old)
        new = log.claim()
        assert (old, new, log.epoch()) == (1, 2, 2)
        head = log.head()
        with pytest.raises(LogUnusable, match="epoch 1 refused"):
            log.append(batch(1, head), 1, old)
        with pytest.raises(LogUnusable, match="epoch 3 refused"):
            log.append(batch(1, head), 1, 3)
        assert log.head() == head
        log.append(batch(1, head), 1, new)
        assert log.head().seq == 2

    # -- the chain

    def test_digests_chain_as_the_format_says(self, log: EventLog) -> None:
        """digest(n) = blake2b-256(digest(n-1) + body(n)), and 32 zero bytes before the first."""
        log.append(chained(history(seed=5, length=120)), 0, 0)
        digest = b"\0" * 32
        for record in log.read(0, 1000):
            digest = blake2b(digest + record.body, digest_size=32).digest()
            assert record.digest == digest
        assert log.head().digest == digest

    def test_reopening_keeps_head_and_records_and_goes_on(self, log: EventLog) -> None:
        first = batch(4)
        log.append(first, 0, 0)
        assert log.reopen() == head_of(first)
        second = batch(3, log.head())
        log.append(second, 4, 0)
        assert [r.digest for r in log.read(0, 10)] == [r.digest for r in first + second]

    def test_the_chain_goes_on_after_the_log_was_closed(self, tmp_path: Path) -> None:
        if not self.durable:
            return
        folder = tmp_path / "again"
        head = Head(0, bytes(32))
        for round_ in range(1, 4):
            log = self.open(folder)
            assert log.head() == head
            epoch = log.claim()
            assert epoch == round_
            records = batch(3, head)
            log.append(records, head.seq, epoch)
            head = head_of(records)
            log.close()
        log = self.open(folder)
        assert [r.seq for r in log.read(0, 100)] == list(range(1, 10))
        assert log.head() == head
        log.close()

    # -- snapshots

    def test_snapshots_come_newest_first_and_only_two_are_kept(self, log: EventLog) -> None:
        for seq in (10, 20, 30):
            log.save_snapshot(snapshot(seq, b"blob%d" % seq))
        assert log.load_snapshots() == [snapshot(30, b"blob30"), snapshot(20, b"blob20")]

    def test_a_snapshot_of_the_same_seq_replaces_the_older_one(self, log: EventLog) -> None:
        log.save_snapshot(snapshot(10, b"first"))
        log.save_snapshot(snapshot(10, b"second"))
        assert log.load_snapshots()[0] == snapshot(10, b"second")

    def test_an_empty_snapshot_is_a_snapshot(self, log: EventLog) -> None:
        log.save_snapshot(snapshot(1, b""))
        assert log.load_snapshots() == [snapshot(1, b"")]

    def test_snapshots_leave_the_records_alone(self, log: EventLog) -> None:
        records = batch(3)
        log.append(records, 0, 0)
        log.save_snapshot(snapshot(3))
        assert log.head() == head_of(records)
        assert len(log.read(0, 10)) == 3

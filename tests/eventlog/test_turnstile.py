"""Readers in other threads while the log is opened anew, grown or closed: nobody crashes, nobody is
told something wrong, and nobody waits for ever.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.builders import batch, head_of

from rota.errors import LogUnusable
from rota.eventlog import lmdb_store, turnstile
from rota.eventlog.lmdb_store import LmdbLog

if TYPE_CHECKING:
    from pathlib import Path

READERS = 2


class Reader(threading.Thread):
    """Reads until it is told to stop; keeps what it was refused with."""

    def __init__(self, log: LmdbLog) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.ends = threading.Event()
        self.reads = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        while not self.ends.wait(0.001):
            try:
                seqs = [record.seq for record in self.log.read(0, 50)]
                if seqs != list(range(1, 51)) or self.log.head().seq < 200:
                    self.wrong.append(seqs)
            except LogUnusable:
                pass
            except BaseException as error:  # noqa: BLE001 - any other is the test's failure
                self.wrong.append(error)
            self.reads += 1


def test_readers_in_threads_survive_reopening_and_growing(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 20)
    first = batch(200, size=1000)
    log.append(first, 0, 0)
    head = head_of(first)
    readers = [Reader(log) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for _ in range(12):
        assert log.reopen().seq == head.seq
        more = batch(50, head, size=2000)
        log.append(more, head.seq, 0)
        head = head_of(more, head)
    for reader in readers:
        reader.ends.set()
        reader.join(10)
    assert all(reader.reads for reader in readers)
    assert [reader.wrong for reader in readers] == [[]] * READERS
    assert log._map_bytes > 1 << 20, "the map was grown under them"
    log.close()


def test_reopening_waits_for_who_reads_and_who_comes_then_waits_for_it(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 20)
    log.append(batch(3), 0, 0)
    reading = log._reading()
    reading.__enter__()
    reopening = threading.Thread(target=log.reopen, daemon=True)
    reopening.start()
    reopening.join(0.1)
    assert reopening.is_alive(), "a transaction is under way"
    heads: list[Any] = []
    late = threading.Thread(target=lambda: heads.append(log.head().seq), daemon=True)
    late.start()
    late.join(0.1)
    assert heads == []
    reading.__exit__(None, None, None)
    reopening.join(10)
    late.join(10)
    assert heads == [3]
    log.close()


def test_who_wants_to_read_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turnstile, "READER_WAITS_S", 0.01)
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 20)
    with log.turnstile.alone() as is_alone, pytest.raises(LogUnusable, match="opened anew"):
        assert is_alone
        log.head()
    assert log.head().seq == 0
    log.close()


def test_closing_does_not_wait_for_a_read_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_store, "CLOSE_S", 0.01)
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 20)
    log.append(batch(3), 0, 0)
    with log._reading() as txn:
        log.close()
        assert txn.stat(log._db["events"])["entries"] == 3, "its transaction is still whole"
    with pytest.raises(LogUnusable):
        log.head()

"""The index of failures is whole whoever wrote the log: it is made where it is missing, made again
where an older rota wrote past it, and a reader that may not write scans instead.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import lmdb
from support.builders import chained, failed, head_of, history, records_of, submitted

from rota.eventlog import failed_index
from rota.eventlog.lmdb_store import LmdbLog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rota.eventlog.port import Stored

ALL = 10**9


def written(folder: Path) -> tuple[list[Stored], list[tuple[int, str]]]:
    """Write a log; give its records and its failures, newest first."""
    records = chained(history(seed=21, length=900))
    log = LmdbLog(folder, map_bytes=64 << 20)
    log.append(records, 0, log.claim())
    failures = log.failed_before(ALL, 1000)
    log.close()
    assert len(failures) > 10
    return records, failures


def open_raw(folder: Path) -> lmdb.Environment:
    """Open the environment behind the log's back."""
    return lmdb.open(str(folder), max_dbs=8, map_size=64 << 20, lib_version=0)


def without_index(folder: Path) -> None:
    """Make it a log of an earlier rota."""
    with open_raw(folder) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(b"failed", txn=txn))
        txn.delete(failed_index.INDEXED, db=env.open_db(b"meta", txn=txn))


def test_a_log_written_without_the_index_is_indexed_when_it_is_opened(tmp_path: Path) -> None:
    _, failures = written(tmp_path)
    without_index(tmp_path)
    log = LmdbLog(tmp_path)
    assert log.failed_before(ALL, 1000) == failures
    log.close()
    log = LmdbLog(tmp_path, readonly=True)
    assert log.failed_before(ALL, 1000) == failures
    log.close()


def test_an_index_that_is_not_there_is_made_whatever_the_epoch_says(tmp_path: Path) -> None:
    _, failures = written(tmp_path)
    with open_raw(tmp_path) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(b"failed", txn=txn))
    with closing(LmdbLog(tmp_path)) as log:
        assert log.failed_before(ALL, 1000) == failures


def test_a_reader_scans_a_log_without_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, failures = written(tmp_path)
    without_index(tmp_path)
    monkeypatch.setattr(failed_index, "SCAN_RECORDS", 7)
    log = LmdbLog(tmp_path, readonly=True)
    assert log.failed_before(ALL, 1000) == failures
    assert log.failed_before(failures[3][0], 2) == failures[4:6]
    assert log.failed_before(0, 5) == []
    log.close()


def test_what_an_older_rota_wrote_past_the_index_is_indexed_too(tmp_path: Path) -> None:
    """An older rota raises the epoch and appends, and knows nothing of the index."""
    records, failures = written(tmp_path)
    more = chained(
        records_of([submitted("late"), failed("late")], after=records[-1].seq),
        head_of(records),
    )
    with open_raw(tmp_path) as env, env.begin(write=True) as txn:
        txn.put(b"epoch", b"2", db=env.open_db(b"meta", txn=txn))
        events = env.open_db(b"events", txn=txn)
        for each in more:
            txn.put(each.seq.to_bytes(8, "big"), each.digest + each.body, db=events)
    late = [(more[-1].seq, "late")]
    for readonly in (True, False, True):
        log = LmdbLog(tmp_path, readonly=readonly)
        assert log.failed_before(ALL, 1000) == late + failures
        log.close()

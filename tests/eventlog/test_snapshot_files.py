"""Snapshots are files beside the log: private, two of them, and used only if they are whole. Damage
is done to the real files, as a power cut or a disk would do it.
"""

from __future__ import annotations

import random
import stat
from typing import TYPE_CHECKING

import lmdb
import pytest
from support.builders import chained, fold, history
from support.eventlog_suite import snapshot

from rota.actors.recovery import rebuild
from rota.errors import LogUnusable
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.snapshot_files import HEADER
from rota.projections.state import SNAPSHOT_VERSION

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with snapshots of its half and of three quarters."""
    folder = tmp_path / "data"
    played = history(seed=13, length=200)
    records = chained(played)
    log = LmdbLog(folder, map_bytes=64 << 20)
    log.append(records, 0, 0)
    for cut in (100, 150):
        made = snapshot(cut, fold(played[:cut]).dump(), SNAPSHOT_VERSION)
        log.save_snapshot(made._replace(digest=records[cut - 1].digest))
    log.close()
    return folder


DIGEST = fold(history(seed=13, length=200)).digest()


def newest(folder: Path) -> Path:
    return max((folder / "snapshots").iterdir())


def start_of(folder: Path) -> tuple[int, str]:
    """Rebuild; give the snapshot it began from, and what it came to."""
    log = LmdbLog(folder)
    state = rebuild(log)
    log.close()
    return state.snapshot_seq, state.digest()


def test_a_start_uses_the_newest(folder: Path) -> None:
    assert start_of(folder) == (150, DIGEST)


def test_the_files_are_private(folder: Path) -> None:
    assert stat.S_IMODE((folder / "snapshots").stat().st_mode) == 0o700
    for path in (folder / "snapshots").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kept", [0, 1, HEADER.size - 1, HEADER.size, 500, -1])
def test_a_torn_one_is_dropped_and_the_older_one_used(folder: Path, kept: int) -> None:
    path = newest(folder)
    path.write_bytes(path.read_bytes()[:kept])
    reading = LmdbLog(folder, readonly=True)
    assert [s.seq for s in reading.load_snapshots()] == [100]
    reading.close()
    assert path.exists(), "a reader deletes nothing"
    assert start_of(folder) == (100, DIGEST)
    assert not path.exists()


@pytest.mark.parametrize("hole", [(0, 60), (100, 4096)])
def test_one_with_zeros_where_data_should_be_is_not_used(
    folder: Path, hole: tuple[int, int]
) -> None:
    """The name may be durable and the data not: then a file system gives zeros."""
    path = newest(folder)
    raw = bytearray(path.read_bytes())
    raw[slice(*hole)] = bytes(len(raw[slice(*hole)]))
    path.write_bytes(raw)
    assert start_of(folder) == (100, DIGEST)


def test_flipped_bits_are_noticed_wherever_they_are(folder: Path) -> None:
    path = newest(folder)
    good = path.read_bytes()
    dice = random.Random(7)
    for at in [*range(HEADER.size), *(dice.randrange(len(good)) for _ in range(30))]:
        bad = bytearray(good)
        bad[at] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        log = LmdbLog(folder, readonly=True)
        assert [s.seq for s in log.load_snapshots()] == [100], at
        log.close()


def test_without_any_the_log_alone_gives_the_same_state(folder: Path) -> None:
    for path in (folder / "snapshots").iterdir():
        path.unlink()
    assert start_of(folder) == (0, DIGEST)


def test_what_is_no_snapshot_is_left_alone(folder: Path) -> None:
    (folder / "snapshots" / "notes.txt").write_text("mine")
    assert start_of(folder) == (150, DIGEST)
    assert (folder / "snapshots" / "notes.txt").exists()


def test_one_of_another_history_is_not_used(folder: Path) -> None:
    log = LmdbLog(folder)
    made = log.load_snapshots()[0]
    log.save_snapshot(made._replace(seq=160))
    log.save_snapshot(made._replace(seq=10_000))
    assert rebuild(log).digest() == DIGEST
    log.close()


def test_what_was_left_half_written_goes_with_the_next(folder: Path) -> None:
    torn = folder / "snapshots" / "00000000000000000160.tmp"
    torn.write_bytes(b"half")
    log = LmdbLog(folder)
    log.save_snapshot(snapshot(170))
    log.close()
    assert sorted(p.name for p in (folder / "snapshots").iterdir()) == [
        "00000000000000000150.snap",
        "00000000000000000170.snap",
    ]


def test_a_place_that_takes_no_files_is_said_to_be_one(folder: Path) -> None:
    for path in (folder / "snapshots").iterdir():
        path.unlink()
    (folder / "snapshots").rmdir()
    (folder / "snapshots").write_text("a file")
    log = LmdbLog(folder)
    with pytest.raises(LogUnusable, match="the snapshot cannot be written"):
        log.save_snapshot(snapshot(1))
    assert log.load_snapshots() == []
    log.close()


def test_those_an_earlier_rota_kept_among_the_records_make_room(folder: Path) -> None:
    options = {"max_dbs": 8, "map_size": 64 << 20, "lib_version": 0}
    with lmdb.open(str(folder), **options) as env, env.begin(write=True) as txn:
        txn.put(bytes(8), bytes(4 << 20), db=env.open_db(b"snapshots", txn=txn))
    size = (folder / "data.mdb").stat().st_size
    log = LmdbLog(folder)
    assert rebuild(log).digest() == DIGEST
    log.claim()
    log.close()
    with lmdb.open(str(folder), **options) as env, env.begin(write=True) as txn:
        assert txn.stat(env.open_db(b"snapshots", txn=txn))["entries"] == 0
        txn.put(b"x", bytes(3 << 20), db=env.open_db(b"meta", txn=txn))
    assert (folder / "data.mdb").stat().st_size < size + (1 << 20), "its pages are used again"

"""What only the log on disk must do: own its folder, say what is wrong with it, grow, and locate
every broken bit. Damage is done to the real file, as a disk would do it.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import lmdb
import pytest
from support.builders import batch, chained, head_of, history

from rota.actors.recovery import rebuild
from rota.domain.events import TaskFailed
from rota.errors import LogCorrupt, LogLocked, LogTooNew, LogUnusable
from rota.eventlog.codec import subject_of
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import FORMAT_VERSION, Head, Snapshot, Stored
from rota.eventlog.replay import replay

if TYPE_CHECKING:
    from pathlib import Path

FLIPS = 200
SEQ = struct.Struct(">Q")


def write_log(folder: Path, records: list[Stored]) -> None:
    """Write a log and close it."""
    log = LmdbLog(folder, map_bytes=64 << 20)
    log.append(records, 0, 0)
    log.close()


def open_raw(folder: Path) -> lmdb.Environment:
    """Open the environment behind the log's back."""
    return lmdb.open(str(folder), max_dbs=8, map_size=64 << 20, lib_version=0)


def seqs_until_broken(log: LmdbLog) -> tuple[list[int], int]:
    """Replay until the log refuses; give what came before, and the seq it names."""
    seen: list[int] = []
    with pytest.raises(LogCorrupt) as caught:
        seen.extend(record.seq for record in replay(log))
    return seen, caught.value.seq


# -- the folder ----------------------------------------------------------------------------------


def test_a_new_folder_is_closed_to_others_and_so_are_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    write_log(folder, batch(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    assert modes == {"data.mdb": 0o600, "lock.mdb": 0o600, "lock": 0o600}


def test_a_second_opener_is_told_who_has_the_folder(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data")
    with pytest.raises(LogLocked, match="another rota server") as caught:
        LmdbLog(tmp_path / "data")
    assert "--data-dir" in caught.value.hint
    log.append(batch(1), 0, 0)
    log.close()
    LmdbLog(tmp_path / "data").close()


def test_another_process_is_told_the_process_that_has_the_folder(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from rota.eventlog.lmdb_store import LmdbLog\n"
        "log = LmdbLog(sys.argv[1])\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.read()\n"
        "log.close()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        pid = holder.stdout.readline().strip()
        with pytest.raises(LogLocked, match=f"process {pid}"):
            LmdbLog(tmp_path / "data")
        holder.communicate()
    assert holder.returncode == 0
    LmdbLog(tmp_path / "data").close()


def test_the_folder_is_free_again_when_its_process_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from rota.eventlog.lmdb_store import LmdbLog\n"
        "log = LmdbLog(sys.argv[1])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")], check=False)
    assert done.returncode < 0
    LmdbLog(tmp_path / "data").close()


def test_a_newer_format_is_refused_by_number(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_log(folder, batch(1))
    newer = FORMAT_VERSION + 1
    with open_raw(folder) as env, env.begin(write=True) as txn:
        txn.put(b"format", b"%d" % newer, db=env.open_db(b"meta", txn=txn))
    with pytest.raises(LogTooNew, match=f"has format {newer}; this rota reads up to"):
        LmdbLog(folder)


def test_a_format_that_is_no_number_is_damage_and_said_to_be(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_log(folder, batch(1))
    with open_raw(folder) as env, env.begin(write=True) as txn:
        txn.put(b"format", b"\xff\x00", db=env.open_db(b"meta", txn=txn))
    with pytest.raises(LogCorrupt, match="does not say its format"):
        LmdbLog(folder)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_where_the_folder_should_be_is_said_to_be_one(tmp_path: Path, below: str) -> None:
    (tmp_path / "data").write_text("I am a file")
    with pytest.raises(LogUnusable, match=r"cannot use the data folder .*data") as caught:
        LmdbLog(tmp_path / "data" / below)
    assert "writable" in caught.value.hint


def test_a_file_system_that_is_read_only_is_said_to_be(tmp_path: Path) -> None:
    """/proc takes no folders from anybody, root included."""
    del tmp_path
    with pytest.raises(LogUnusable, match="cannot use the data folder /proc/"):
        LmdbLog("/proc/self/rota-data")


@pytest.mark.parametrize("content", [b"garbage " * 4096, b"\0" * 8192, b"short"])
def test_a_file_that_is_no_log_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "data.mdb").write_bytes(content)
    with pytest.raises(LogCorrupt, match="the log in") as caught:
        LmdbLog(folder)
    assert "restore" in caught.value.hint
    assert (folder / "data.mdb").read_bytes() == content, "a refusal leaves the file alone"


def test_reading_only_needs_a_log_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(LogUnusable, match="there is no log in"):
        LmdbLog(tmp_path / "none", readonly=True)
    assert not (tmp_path / "none").exists()


def test_reading_only_sees_the_records_and_writes_none(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    records = batch(3)
    write_log(folder, records)
    log = LmdbLog(folder, readonly=True)
    assert log.head() == head_of(records)
    with pytest.raises(LogUnusable):
        log.append(batch(1, log.head()), 3, 0)
    log.close()


def test_a_network_file_system_is_refused_unless_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.eventlog.data_folder._filesystem_of", lambda _: "nfs4")
    with pytest.raises(LogUnusable, match="is on nfs4"):
        LmdbLog(tmp_path / "data")
    LmdbLog(tmp_path / "data", allow_network_fs=True).close()


# -- size ----------------------------------------------------------------------------------------


def test_a_full_map_grows_and_loses_nothing(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 17)
    head = Head(0, bytes(32))
    for _ in range(40):
        records = batch(5, head, size=2000)
        log.append(records, head.seq, 0)
        head = head_of(records)
    log.append(batch(1, head, size=3 << 20), head.seq, 0)
    assert (tmp_path / "data" / "data.mdb").stat().st_size > 3 << 20
    assert [r.seq for r in replay(log)] == list(range(1, 202))
    log.close()
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 17)
    assert log.head().seq == 201
    assert [r.seq for r in replay(log)] == list(range(1, 202))
    log.append(batch(1, log.head(), size=1 << 20), 201, 0)
    log.close()


def test_a_page_of_large_records_is_cut_short_and_goes_on(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 26)
    log.append(batch(30, size=1 << 20), 0, 0)
    first = log.read(0, 1000)
    assert 1 <= len(first) < 30
    assert [r.seq for r in replay(log)] == list(range(1, 31))
    log.close()


# -- damage --------------------------------------------------------------------------------------


def places_of(data: bytes, value: bytes) -> list[int]:
    """Find every place in the file that holds this value (old pages may hold copies)."""
    found, at = [], data.find(value)
    while at >= 0:
        found.append(at)
        at = data.find(value, at + 1)
    return found


def test_every_flipped_bit_is_located(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    records = chained(history(seed=11, length=400))
    write_log(folder, records)
    data = folder / "data.mdb"
    whole = data.read_bytes()
    dice = random.Random(42)
    for _ in range(FLIPS):
        victim = dice.choice(records)
        value = victim.digest + victim.body
        bit = dice.randrange(len(value) * 8)
        broken = bytearray(whole)
        places = places_of(whole, value)
        assert places
        for place in places:
            broken[place + bit // 8] ^= 1 << bit % 8
        data.write_bytes(broken)
        log = LmdbLog(folder, map_bytes=64 << 20)
        with pytest.raises(LogCorrupt, match=f"record {victim.seq} ") as caught:
            log.read(0, len(records))
        assert caught.value.seq == victim.seq
        with pytest.raises(LogCorrupt) as caught:
            log.read(victim.seq - 1, 1)
        assert caught.value.seq == victim.seq
        assert "rota verify" in caught.value.hint
        log.close()
    data.write_bytes(whole)
    log = LmdbLog(folder, map_bytes=64 << 20)
    assert len(log.read(0, 10_000)) == len(records)
    log.close()


@pytest.mark.parametrize("seq", [1, 2, 200, 399, 400])
def test_a_replay_and_a_start_stop_at_the_broken_record(tmp_path: Path, seq: int) -> None:
    folder = tmp_path / "data"
    records = chained(history(seed=12, length=400)[:400])
    write_log(folder, records)
    with open_raw(folder) as env, env.begin(write=True) as txn:
        db = env.open_db(b"events", txn=txn)
        value = bytearray(txn.get(SEQ.pack(seq), db=db) or b"")
        value[-3] ^= 4
        txn.put(SEQ.pack(seq), bytes(value), db=db)
    log = LmdbLog(folder)
    assert seqs_until_broken(log) == ([], seq), "a broken page gives nothing of itself"
    with pytest.raises(LogCorrupt) as caught:
        rebuild(log)
    assert caught.value.seq == seq
    log.close()


def test_a_broken_record_is_told_to_whoever_reads_its_task(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_log(folder, batch(5))
    with open_raw(folder) as env, env.begin(write=True) as txn:
        db = env.open_db(b"events", txn=txn)
        value = bytearray(txn.get(SEQ.pack(3), db=db) or b"")
        value[-3] ^= 4
        txn.put(SEQ.pack(3), bytes(value), db=db)
    log = LmdbLog(folder)
    assert len(log.read_task("t2", 10)) == 1
    with pytest.raises(LogCorrupt, match="record 3"):
        log.read_task("t3", 10)
    log.close()


def test_a_record_that_is_about_another_task_than_the_index_says_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    records = history(seed=4, length=300)
    write_log(folder, chained(records))
    with open_raw(folder) as env, env.begin(write=True) as txn:
        by_task = env.open_db(b"by_task", txn=txn, dupsort=True)
        dead = env.open_db(b"failed", txn=txn)
        seq, own = next((r.seq, r.event.task) for r in records if isinstance(r.event, TaskFailed))
        other = next(t for r in records if (t := subject_of(r.event)) not in (None, own))
        txn.put(other.encode(), SEQ.pack(seq), db=by_task)
        txn.put(SEQ.pack(seq), other.encode(), db=dead)
    log = LmdbLog(folder)
    wrong = f"record {seq} is not about task {other}, as an index says"
    for read in (lambda: log.read_task(other, 10, seq - 1), lambda: log.failed_before(seq + 1, 1)):
        with pytest.raises(LogCorrupt, match=wrong):
            read()
    assert seq in [each.seq for each in log.read_task(own, 1000)]
    log.close()


@pytest.mark.parametrize("seq", [1, 2, 50, 99])
def test_a_removed_record_is_located(tmp_path: Path, seq: int) -> None:
    folder = tmp_path / "data"
    write_log(folder, batch(100))
    with open_raw(folder) as env, env.begin(write=True) as txn:
        assert txn.delete(SEQ.pack(seq), db=env.open_db(b"events", txn=txn))
    missing = f"record {seq} is missing|records are missing: there are 99, and one numbered 100"
    with pytest.raises(LogCorrupt, match=missing):
        LmdbLog(folder)
    log = LmdbLog(folder, readonly=True)
    assert seqs_until_broken(log)[1] == seq
    with pytest.raises(LogCorrupt, match=f"record {seq} is missing"):
        log.read(seq, 1)
    with pytest.raises(LogCorrupt, match=f"record {seq} is not found, which the index"):
        log.read_task(f"t{seq}", 10)
    log.close()


def test_two_records_that_changed_places_are_located(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_log(folder, batch(10))
    with open_raw(folder) as env, env.begin(write=True) as txn:
        db = env.open_db(b"events", txn=txn)
        four, five = txn.get(SEQ.pack(4), db=db), txn.get(SEQ.pack(5), db=db)
        txn.put(SEQ.pack(4), five or b"", db=db)
        txn.put(SEQ.pack(5), four or b"", db=db)
    log = LmdbLog(folder)
    assert seqs_until_broken(log)[1] == 4
    log.close()


def test_a_file_cut_short_is_refused_without_a_crash(tmp_path: Path) -> None:
    """In a process of its own: reading a mapped page that is not there kills."""
    folder = tmp_path / "data"
    write_log(folder, batch(400, size=500))
    data = folder / "data.mdb"
    whole = data.read_bytes()
    code = (
        "import sys\n"
        "from rota.errors import LogError\n"
        "from rota.eventlog.lmdb_store import LmdbLog\n"
        "from rota.eventlog.replay import replay\n"
        "try:\n"
        "    print('read', len(list(replay(LmdbLog(sys.argv[1])))))\n"
        "except LogError as error:\n"
        "    print(error.code)\n"
    )
    for part in (0.25, 0.5, 0.9):
        data.write_bytes(whole[: int(len(whole) * part) // 4096 * 4096])
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"killed by signal {-done.returncode}"
        assert done.stdout.strip() in ("log_unusable", "log_corrupt")


def test_snapshots_without_their_log_are_no_empty_log(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data")
    log.save_snapshot(Snapshot(5, bytes(32), 1, b"state"))
    log.close()
    (tmp_path / "data" / "data.mdb").unlink()
    with pytest.raises(LogCorrupt, match=r"no data\.mdb") as caught:
        LmdbLog(tmp_path / "data")
    assert "restore" in caught.value.hint
    assert not (tmp_path / "data" / "data.mdb").exists()


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "reading only"),
        (errno.EACCES, "owner and mode"),
        (errno.ENOTDIR, "exists and is writable"),
    ],
)
def test_a_folder_that_cannot_be_used_comes_with_the_advice_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("rota.eventlog.data_folder._make", fail)
    with pytest.raises(LogUnusable, match=os.strerror(number)) as caught:
        LmdbLog(tmp_path / "data")
    assert advice in caught.value.hint

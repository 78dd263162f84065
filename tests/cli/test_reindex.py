"""`rota reindex` makes a log anew whose records are good, and `rota verify` says when it is of use.

Where damage is in the way to the records, or in an index, nothing is lost. Bits are flipped all
over a log: whatever a server or a read stumbles over, verify has said.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from support.builders import cancelled, chained, failed, head_of, records_of, submitted

from rota.domain.events import TaskLogged
from rota.errors import LogCorrupt
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.replay import stored, stored_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rota.domain.events import Event
    from rota.eventlog.port import Stored

PAGE = 4096
TASKS = 250
FLIPS = 120
KILLS = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log with every kind of page: trees of two levels, large values, many of one key."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    with closing(LmdbLog(folder, map_bytes=64 << 20)) as log:
        epoch, head = log.claim(), log.head()
        for n in range(TASKS):
            large = {"pad": "x" * 9000} if n % 100 == 7 else None
            events: list[Event] = [submitted(f"t{n}", params=large)]
            events += [TaskLogged("t0", "a1", ["a line"])] * 2
            if n:
                events.append(failed(f"t{n}") if n % 2 else cancelled(f"t{n}"))
            records = chained(records_of(events, after=head.seq), head)
            log.append(records, head.seq, epoch)
            head = head_of(records, head)
    return folder


@pytest.fixture
def folder(tmp_path: Path, whole: Path) -> Path:
    copy = tmp_path / "data"
    copy.mkdir()
    shutil.copy(whole / "data.mdb", copy)
    return copy


def rota(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rota", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def change(folder: Path, old: bytes, at: int, bit: int) -> None:
    """Flip a bit of the last occurrence of something in the file."""
    data = bytearray((folder / "data.mdb").read_bytes())
    data[data.rindex(old) + at] ^= bit
    (folder / "data.mdb").write_bytes(data)


def contents(folder: Path) -> tuple[list[Stored], list[list[Stored]], list[tuple[int, str]]]:
    with closing(LmdbLog(folder, readonly=True)) as log:
        tasks = [list(stored_of(log, f"t{n}")) for n in range(TASKS)]
        return list(stored(log)), tasks, log.failed_before(1 << 62, 10_000)


def key_of(whole: Path, seq: int) -> bytes:
    """Give how a record begins in the file, from its key on."""
    with closing(LmdbLog(whole, readonly=True)) as log:
        return seq.to_bytes(8, "big") + log.read(seq - 1, 1)[0].digest


def verify_then_mend(whole: Path, folder: Path, said: str) -> None:
    """Verify names the damage and advises reindex, after which all is as it was."""
    end = len(contents(whole)[0])
    done = rota("verify", "--data-dir", folder)
    assert done.returncode == 4, done.stderr
    assert said in done.stderr
    assert f"all {end} records are good" in done.stderr
    assert "`rota reindex` makes the log anew" in done.stderr
    assert "restore" not in done.stderr
    done = rota("reindex", "--data-dir", folder)
    assert done.returncode == 0, done.stderr
    assert f"made the indexes of {end} events anew" in done.stdout
    assert contents(folder) == contents(whole)
    done = rota("verify", "--data-dir", folder)
    assert done.returncode == 0, done.stderr
    LmdbLog(folder).close()


def test_a_node_that_a_server_refuses_is_seen_by_verify_and_mended(
    whole: Path, folder: Path
) -> None:
    change(folder, b"\3\0t78", -2, 1)  # the flags of a node in the index of tasks
    with pytest.raises(LogCorrupt, match="in the tree by_task") as caught:
        LmdbLog(folder)
    assert "`rota reindex` mends the log" in caught.value.hint
    verify_then_mend(whole, folder, "in the tree by_task, is not what it should be")


@pytest.mark.parametrize("bit", [1, 2, 128])
def test_a_record_with_another_ones_key_is_told_from_a_damaged_index(
    whole: Path, folder: Path, bit: int
) -> None:
    change(folder, key_of(whole, 100), 7, bit)
    with closing(LmdbLog(folder, readonly=True)) as log:
        with pytest.raises(LogCorrupt, match=f"record 100 has the key {100 ^ bit}") as caught:
            list(stored(log))
        assert caught.value.seq == 100
    verify_then_mend(whole, folder, "in the tree events, has keys that are not in order")


def test_a_damaged_branch_and_a_list_of_free_pages_are_mended(whole: Path, folder: Path) -> None:
    data = bytearray((folder / "data.mdb").read_bytes())
    for page in range(2 * PAGE, len(data), PAGE):
        if data[page + 10] == 1:  # a branch: its second key
            place = int.from_bytes(data[page + 18 : page + 20], "little")
            data[page + place + 8] ^= 0x40
    (folder / "data.mdb").write_bytes(data)
    verify_then_mend(whole, folder, "has keys that are not in order")


def test_a_damaged_record_is_not_made_good(whole: Path, folder: Path) -> None:
    change(folder, key_of(whole, 100), 60, 1)
    before = (folder / "data.mdb").read_bytes()
    done = rota("verify", "--data-dir", folder)
    assert done.returncode == 4
    assert "record 100 does not match its digest" in done.stderr
    assert "restore the data folder from a copy" in done.stderr
    done = rota("reindex", "--data-dir", folder)
    assert done.returncode == 1
    assert "record 100 does not match its digest" in done.stderr
    assert (folder / "data.mdb").read_bytes() == before
    assert not (folder / "new").exists()


def test_it_refuses_while_a_server_uses_the_folder_and_where_there_is_none(
    folder: Path, tmp_path: Path
) -> None:
    with closing(LmdbLog(folder)) as log:
        done = rota("reindex", "--data-dir", folder)
        assert done.returncode == 1
        assert "another rota server" in done.stderr
        assert rota("verify", "--data-dir", folder).returncode == 0
        assert log.head().seq
    done = rota("reindex", "--data-dir", tmp_path / "none")
    assert done.returncode == 1
    assert "there is no log in" in done.stderr
    assert not (tmp_path / "none").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from rota.eventlog.reindex import reindex
left = int(sys.argv[2])
def hook(event, args):
    global left
    if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "open", "shutil.rmtree"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
reindex(Path(sys.argv[1]), lambda *_: None)
"""


def killed_at(folder: Path, step: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(step)], check=False
    ).returncode


def test_a_kill_at_any_step_leaves_a_log_that_is_whole(
    whole: Path, folder: Path, tmp_path: Path
) -> None:
    """Killed before each change of a name or a folder: the old file is there, or the new one."""
    right = contents(whole)
    for step in range(1, 200):
        ended = killed_at(folder, step)
        assert ended in (0, -signal.SIGKILL)
        assert contents(folder) == right, step
        with closing(LmdbLog(folder)) as log:
            assert log.head().seq == len(right[0])
        assert not (folder / "new").exists(), "a server clears away what was left"
        if not ended:
            break
    assert step > KILLS
    for n in range(1, KILLS):  # and in the middle of what is written
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), "0"],
            env={**os.environ, "ROTA_CRASH_AT": f"commit.{('begin', 'written', 'synced')[n % 3]}"},
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        assert contents(folder) == right


def flips(whole: Path, folder: Path, first: int, end: int) -> Iterator[tuple[int, str, str]]:
    """Give (seed, what, what came of it), starting the program anew after each death."""
    while first < end:
        done = subprocess.run(
            [sys.executable, "-m", "support.flips", whole, folder, f"{first}-{end}", str(TASKS)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode <= 0, done.stderr
        lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
        for seed, what, said in lines:
            if said != "begins":
                yield int(seed), what, said
        if not done.returncode:
            return
        seed, what, _ = lines[-1]
        yield int(seed), what, f"killed by {-done.returncode}"
        first = int(seed) + 1


def test_whatever_a_server_stumbles_over_verify_has_said(whole: Path, tmp_path: Path) -> None:
    said: dict[int, str] = {}
    bad = 0
    for seed, what, became in flips(whole, tmp_path, 1, FLIPS):
        if what == "verify":
            said[seed] = became
            assert became == "good" or became.startswith("corrupt"), (seed, became)
        elif became != "good":
            bad += 1
            assert said[seed] != "good", (seed, became)
    assert said.pop(0) == "good", "what is whole"
    assert len(said) == FLIPS - 1
    assert bad > FLIPS // 10


def test_a_database_of_another_name_is_damage_and_is_mended(whole: Path, folder: Path) -> None:
    file = folder / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"\6\0failed", b"\6\0faimed"))
    with pytest.raises(LogCorrupt, match="it has a database"):
        LmdbLog(folder)
    verify_then_mend(whole, folder, "which is not one of rota's")


def test_the_files_keep_their_owner_and_mode(folder: Path) -> None:
    """Root mends what another user's server must open."""
    owner = (12345, 12346) if not os.geteuid() else (os.geteuid(), os.getegid())
    LmdbLog(folder).close()
    (folder / "lock").unlink()
    (folder / "lock.mdb").unlink()
    os.chown(folder / "data.mdb", *owner)
    (folder / "data.mdb").chmod(0o640)
    for command in ("verify", "reindex", "verify"):
        done = rota(command, "--data-dir", folder)
        assert done.returncode == 0, done.stderr
        for path in folder.iterdir():
            found = path.stat()
            assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (*owner, 0o640), path

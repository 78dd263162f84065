"""Damaged pages, torn copies, files cut short: `rota verify` and `rota replay` never die of them,
say in a sentence what is wrong, and never call a log good whose records are not all there. A server
says so before it starts, and is not killed either.

Each damage is done to the file of a real log of some megabytes, with all kinds of pages: branches,
leaves, large values, many values of one key.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from support.builders import cancelled, chained, head_of, records_of, submitted

from rota.domain.events import TaskLogged
from rota.errors import LogCorrupt, LogError
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.page_check import PageCheck
from rota.eventlog.replay import stored

if TYPE_CHECKING:
    from pathlib import Path

    from rota.domain.events import Event

PAGE = 4096
RECORDS = 6000
ROUNDS = 40


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with every kind of page."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    log = LmdbLog(folder, map_bytes=64 << 20)
    epoch, head, events = log.claim(), log.head(), list[Any]()
    for n in range(RECORDS // 2):
        large = {"pad": "x" * 9000} if n % 500 == 7 else None
        then = TaskLogged("t1", "a1", ["a line"]) if n % 3 else cancelled(f"t{n}")
        events += [submitted(f"t{n}", params=large), then]
    for at in range(0, RECORDS, 100):
        part: list[Event] = events[at : at + 100]
        records = chained(records_of(part, after=head.seq), head)
        log.append(records, head.seq, epoch)
        head = head_of(records, head)
    log.close()
    return folder


def zero(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(2, len(data) // PAGE) * PAGE
    data[at : at + PAGE] = bytes(PAGE)


def noise(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(2, len(data) // PAGE) * PAGE
    data[at : at + PAGE] = dice.randbytes(PAGE)


def ones(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(2, len(data) // PAGE) * PAGE
    data[at : at + PAGE] = b"\xff" * PAGE


def header(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(2, len(data) // PAGE) * PAGE + 8
    data[at : at + 8] = dice.randbytes(8)


def places(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(2, len(data) // PAGE) * PAGE + 16
    data[at : at + 40] = dice.randbytes(40)


def swap(data: bytearray, dice: random.Random) -> None:
    pages = len(data) // PAGE
    a, b = dice.randrange(2, pages) * PAGE, dice.randrange(2, pages) * PAGE
    data[a : a + PAGE], data[b : b + PAGE] = data[b : b + PAGE], data[a : a + PAGE]


def many(data: bytearray, dice: random.Random) -> None:
    for _ in range(20):
        dice.choice((zero, noise, header, places, swap))(data, dice)


def bits(data: bytearray, dice: random.Random) -> None:
    for _ in range(50):
        data[dice.randrange(2 * PAGE, len(data))] ^= 1 << dice.randrange(8)


def meta(data: bytearray, dice: random.Random) -> None:
    at = dice.choice((0, PAGE)) + dice.randrange(0, 160, 8)
    data[at : at + 8] = dice.randbytes(8)


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def cut_page(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data) // PAGE) * PAGE :]


def cut_to_zeros(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(2 * PAGE, len(data))
    data[at:] = bytes(len(data) - at)


DAMAGES = [zero, noise, ones, header, places, swap, many, bits, meta, cut, cut_page, cut_to_zeros]


def damaged(whole: Path, folder: Path, how: Any, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    data = bytearray((whole / "data.mdb").read_bytes())
    how(data, random.Random(f"{how.__name__}:{seed}"))
    (folder / "data.mdb").write_bytes(data)


def rota(*args: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rota", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


READ = """
import sys
from rota.errors import LogError
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.replay import stored
try:
    log = LmdbLog(sys.argv[1], readonly=True)
    count = sum(1 for _ in stored(log, 0, log.head().seq))
except LogError as error:
    count = 0
print(count)
"""


def intact(folder: Path) -> bool:
    """Whether every record can be read, in a process that may die of it."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and int(done.stdout) == RECORDS


@pytest.mark.parametrize("how", DAMAGES, ids=lambda how: how.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_verify_says_what_is_wrong_and_is_not_killed(
    tmp_path: Path, whole: Path, how: Any, seed: int
) -> None:
    damaged(whole, tmp_path / "data", how, seed)
    done = rota("verify", "--data-dir", tmp_path / "data")
    assert done.returncode in (0, 4), (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert "verification failed: " in done.stderr
        assert ("restore" in done.stderr) != (f"all {RECORDS} records are good" in done.stderr)
    else:
        assert f"verified {RECORDS} events" in done.stdout
        assert intact(tmp_path / "data")


def test_a_whole_log_is_found_whole(whole: Path) -> None:
    assert rota("verify", "--data-dir", whole).returncode == 0
    check = PageCheck(whole / "data.mdb")
    assert check.look(60)
    assert check.pages > 100


def test_a_log_with_many_free_pages_is_found_whole(tmp_path: Path) -> None:
    """A reader that stays keeps each commit's freed pages on a list of their own, in a tree."""
    with closing(LmdbLog(tmp_path / "data", map_bytes=64 << 20)) as log:
        epoch, head = log.claim(), log.head()
        with log._reading():
            for n in range(600):
                records = chained(records_of([submitted(f"t{n}")], after=head.seq), head)
                log.append(records, head.seq, epoch)
                head = head_of(records, head)
        assert PageCheck(tmp_path / "data" / "data.mdb").look(60)


def test_a_death_by_a_damaged_page_names_the_last_record_that_was_good(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever page it takes, what was read before it is named exactly."""
    from rota.cli import shield

    folder = tmp_path / "data"
    folder.mkdir()
    code = (
        "import rota.eventlog.lmdb_store as s\n"
        "read = s.LmdbLog.read\n"
        "def dying(self, after, limit):\n"
        "    if after < 4321 <= after + limit:\n"
        "        import os, signal; os.kill(os.getpid(), signal.SIGBUS)\n"
        "    return read(self, after, limit)\n"
        "s.LmdbLog.read = dying\n"
        "in_order = s.LmdbLog.in_order\n"
        "def dying_as_well(self, *given, **more):\n"
        "    for item in in_order(self, *given, **more):\n"
        "        if item.seq == 4321: dying(self, 4320, 1)\n"
        "        yield item\n"
        "s.LmdbLog.in_order = dying_as_well\n"
    )
    monkeypatch.setattr(shield, "_CHILD", code + shield._CHILD)
    shutil.copy(whole / "data.mdb", folder)
    with pytest.raises(
        LogCorrupt, match="killed by SIGBUS; record 4320 is the last good"
    ) as caught:
        shield.shielded("verify", folder, {}, kept=None)
    assert caught.value.seq == 4321


@pytest.mark.parametrize("number", [9, 15])
def test_a_reader_that_somebody_killed_is_no_proof_of_damage(
    whole: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    from rota.cli import shield

    code = f"import os; os.kill(os.getpid(), {number})"
    monkeypatch.setattr(shield, "_CHILD", code)
    with pytest.raises(Exception, match="the process that read the log ended") as caught:
        shield.shielded("verify", whole, {}, kept=None)
    assert not isinstance(caught.value, LogCorrupt)


@pytest.mark.parametrize("length", [0, 1, PAGE, 2 * PAGE - 1])
def test_a_file_that_holds_nothing_is_no_empty_log(tmp_path: Path, length: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "data.mdb").write_bytes(bytes(length))
    for readonly in (True, False):
        with pytest.raises(LogCorrupt, match="the log in") as caught:
            LmdbLog(folder, readonly=readonly)
        assert "restore" in caught.value.hint
    assert (folder / "data.mdb").read_bytes() == bytes(length)
    assert rota("verify", "--data-dir", folder).returncode == 4
    done = rota("serve", "--port", "0", "--data-dir", folder)
    assert done.returncode == 1
    assert "restore the data folder" in done.stderr


@pytest.mark.parametrize("how", DAMAGES, ids=lambda how: how.__name__)
def test_the_look_at_the_pages_kills_nobody_and_finds_some_of_it(
    tmp_path: Path, whole: Path, how: Any
) -> None:
    """It is plain reading: it can be done here, in this very process."""
    folder = tmp_path / "data"
    caught = 0
    for seed in range(ROUNDS):
        damaged(whole, folder, how, seed)
        try:
            assert PageCheck(folder / "data.mdb").look(60)
        except LogError:
            caught += 1
    assert caught


@pytest.mark.parametrize("page", [0, 1])
def test_a_log_does_not_silently_fall_back_to_what_it_was_a_commit_ago(
    tmp_path: Path, whole: Path, page: int
) -> None:
    """Of two meta pages the one with the higher number counts: a damaged number hides a commit."""
    folder = tmp_path / "data"
    folder.mkdir()
    data = bytearray((whole / "data.mdb").read_bytes())
    at = page * PAGE + 144
    assert int.from_bytes(data[at : at + 8], "little") > 60, "the number of a transaction"
    data[at : at + 8] = bytes(8)
    (folder / "data.mdb").write_bytes(data)
    for readonly in (True, False):
        with pytest.raises(LogCorrupt, match="do not follow each other"):
            LmdbLog(folder, readonly=readonly)


def test_replay_says_what_is_wrong_and_is_not_killed(tmp_path: Path, whole: Path) -> None:
    for seed in range(3):
        damaged(whole, tmp_path / "data", many, seed)
        done = rota("replay", "--no-snapshots", "--data-dir", tmp_path / "data")
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        assert done.returncode == 0 or "error: " in done.stderr
        assert "Traceback" not in done.stderr


def test_a_folder_that_was_made_is_synced_and_so_is_the_one_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("rota.eventlog.data_folder.sync_folder", synced.append)
    monkeypatch.setattr("rota.eventlog.lmdb_environment.sync_folder", synced.append)
    folder = tmp_path / "a" / "b"
    log = LmdbLog(folder)
    assert [r.seq for r in stored(log)] == []
    log.close()
    assert {tmp_path, tmp_path / "a", folder} == set(synced)
    assert synced[-1] == folder, "once its file is there"


def page_of(whole: Path, text: bytes) -> int:
    """Give the last page of the file that holds a text."""
    return (whole / "data.mdb").read_bytes().rindex(text) // PAGE


def test_a_page_that_storage_complains_of_leaves_the_last_good_record_named(
    tmp_path: Path, whole: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    data = bytearray((whole / "data.mdb").read_bytes())
    at = page_of(whole, b'"t2999"') * PAGE
    data[at + 10 : at + 12] = b"\0\0"  # no kind of page at all
    (folder / "data.mdb").write_bytes(data)
    done = rota("verify", "--data-dir", folder)
    assert done.returncode == 4
    found = re.search(r"in the tree events, .*; record (\d+) is the last good one", done.stderr)
    assert found, done.stderr
    assert RECORDS - 100 < int(found[1]) < RECORDS


def test_a_file_that_is_cut_short_is_said_to_be_unread(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    data = (whole / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data[: len(data) // PAGE // 2 * PAGE])
    done = rota("verify", "--data-dir", folder)
    assert done.returncode == 4
    assert "cut short; no record could be read" in done.stderr


def test_an_index_that_names_what_is_not_there_is_what_is_damaged(
    tmp_path: Path, whole: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    data = bytearray((whole / "data.mdb").read_bytes())
    at = data.rindex(b"t2999" + (5999).to_bytes(8, "big")) + 5  # in the index: task, then seq
    data[at + 5] ^= 0xEB
    (folder / "data.mdb").write_bytes(data)
    done = rota("verify", "--data-dir", folder)
    assert done.returncode == 4
    assert f"the index is damaged, all {RECORDS} records are good" in done.stderr

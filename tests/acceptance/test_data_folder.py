"""The data folder: who may have it, what is in it, and what stops a start.

A server that cannot use its folder says why and what to do, and ends with exit code 1; it never
goes on with half a history, and it never touches a folder that another server has.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import pytest
from support.builders import chained, records_of, submitted
from support.kill_harness import (
    Ledger,
    audited,
    client,
    config,
    get,
    has_verify_command,
    rota,
    serving,
    submit,
)
from support.server_process import ServerFailed, ServerProcess

from rota.domain import events as e
from rota.eventlog.chain import extend
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import Stored

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(folder: Path, *words: str) -> str:
    """A server does not start on this folder, and says these words in one clear line."""
    server = ServerProcess(folder)
    with pytest.raises(ServerFailed) as failed:
        server.start()
    output = failed.value.output
    assert failed.value.returncode == 1, output
    assert "Traceback" not in output, output
    for word in words:
        assert word in output, output
    return output


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder whose server was killed, so that no snapshot hides its records; and its tasks."""
    folder = tmp_path_factory.mktemp("killed") / "data"

    async def main() -> list[str]:
        async with serving(folder, config()) as server, client() as session:
            tasks = [await submit(session, server.url, action="browse") for _ in range(8)]
            await asyncio.to_thread(server.kill)
        return tasks

    return folder, asyncio.run(main())


@pytest.fixture
def folder(killed: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """A copy of that folder, to be damaged."""
    return Path(shutil.copytree(killed[0], tmp_path / "data"))


def change(folder: Path, database: bytes, key: bytes, new: Callable[[bytes], bytes]) -> None:
    """Change one value in the file, behind rota's back."""
    with lmdb.open(str(folder), max_dbs=8, map_size=1 << 30, lib_version=0) as env:
        db = env.open_db(database, create=False)
        with env.begin(write=True) as txn:
            txn.put(key, new(bytes(txn.get(key, db=db))), db=db)


def flip(value: bytes) -> bytes:
    """Flip one bit near the end."""
    return value[:-3] + bytes([value[-3] ^ 1]) + value[-2:]


# -- one server for one folder -------------------------------------------------------------------


def test_a_second_server_on_the_same_folder_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        async with serving(folder) as server, client() as session:
            task = await submit(session, server.url)
            await asyncio.to_thread(
                refused, folder, "another rota server", str(server.pid), "--data-dir"
            )
            await get(session, f"{server.url}/v1/tasks/{task}")
            await submit(session, server.url)
            assert await asyncio.to_thread(server.stop) == 0
        audit = audited(folder)
        assert audit.kinds["server_started"] == 1, "the second wrote nothing"

    asyncio.run(main())


def test_a_folder_is_free_again_as_soon_as_its_server_is_killed(
    folder: Path, killed: tuple[Path, list[str]]
) -> None:
    ledger = Ledger()
    ledger.acknowledged.update(killed[1])
    with ServerProcess(folder):
        pass
    assert audited(folder, ledger).kinds["server_started"] == 2


# -- what stops a start --------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [1, 5, 9])
def test_a_broken_record_stops_the_start_and_is_named(folder: Path, seq: int) -> None:
    change(folder, b"events", seq.to_bytes(8, "big"), flip)
    refused(folder, f"record {seq} ", "restore the data folder")
    if seq == 5 and has_verify_command():
        done = rota("verify", "--data-dir", str(folder))
        assert done.returncode != 0
        assert str(seq) in done.stdout + done.stderr


def test_a_missing_record_stops_the_start_and_is_named(folder: Path) -> None:
    with lmdb.open(str(folder), max_dbs=8, map_size=1 << 30, lib_version=0) as env:
        db = env.open_db(b"events", create=False)
        with env.begin(write=True) as txn:
            assert txn.delete((4).to_bytes(8, "big"), db=db)
    refused(folder, "record 4 is missing", "restore the data folder")


def test_a_broken_snapshot_is_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        async with serving(folder) as server, client() as session:
            task = await submit(session, server.url, action="browse")
            assert await asyncio.to_thread(server.stop) == 0
        seq = audited(folder).check_snapshots()
        assert seq, "a snapshot was taken"
        [kept] = (folder / "snapshots").iterdir()
        kept.write_bytes(flip(kept.read_bytes()))
        async with serving(folder) as server, client() as session:
            view = await get(session, f"{server.url}/v1/tasks/{task}")
            assert view["state"] == "ready"

    asyncio.run(main())


def test_a_log_of_a_newer_format_is_refused(folder: Path) -> None:
    change(folder, b"meta", b"format", lambda _: b"99")
    refused(folder, "format 99", "newer")


def test_a_record_of_a_kind_from_the_future_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    log = LmdbLog(folder)
    epoch = log.claim()
    records = chained(records_of([submitted("t1"), e.AgentPaused("a1")]))
    body = records[1].body.replace(b'"kind":"agent_paused"', b'"kind":"agent_praised"')
    assert body != records[1].body
    praised = Stored(2, extend(records[0].digest, body), body)
    log.append([records[0], praised], 0, epoch)
    log.close()
    refused(folder, "record 2", "agent_praised", "newer")


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "data.mdb").write_bytes(b"this is no log" * 1000)
    refused(folder, "is not one of a log", str(folder))
    assert (folder / "data.mdb").read_bytes() == b"this is no log" * 1000, "it is left alone"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_created_is_a_clear_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    server = ServerProcess(tmp_path / "data", args=("--data-dir", str(tmp_path / place)))
    with pytest.raises(ServerFailed) as failed:
        server.start()
    output = failed.value.output
    assert failed.value.returncode in (1, 2), output
    assert str(tmp_path / place) in output
    assert "Traceback" not in output, output
    assert (tmp_path / "file").read_text() == "in the way"


# -- permissions ---------------------------------------------------------------------------------


def test_nobody_else_may_look_into_the_folder_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    before = os.umask(0)
    try:
        server = ServerProcess(folder)
        server.start()
    finally:
        os.umask(before)
    assert server.stop() == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = sorted(path.name for path in folder.iterdir())
    assert {"data.mdb", "lock.mdb"} <= set(files), files
    for path in folder.rglob("*"):
        mode = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode, path

"""One failed write of LMDB's meta page: LMDB then refuses everything, reads too, until it is opened
anew. That is what happens: nothing is lost, the server goes on, nobody is told to restore anything.

The failure is a real one: the descriptor that meta pages are written through is made to lead to
/dev/full, behind LMDB's back.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import lmdb
import pytest
from support.builders import batch, head_of
from support.shards import build, stop, submit, until

from rota.actors import failover
from rota.actors.failover import Phase
from rota.actors.recovery import rebuild
from rota.domain.events import ServerStarted
from rota.errors import LogError, LogUnusable, StorageUnavailable
from rota.eventlog.codec import decode
from rota.eventlog.lmdb_store import LmdbLog


def break_meta(folder: Path) -> None:
    """Let the next write of a meta page fail."""
    data = folder / "data.mdb"
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found = entry.readlink() == data
            flags = int(Path(f"/proc/self/fdinfo/{entry.name}").read_text().split()[3], 8)
        except OSError:
            continue
        if found and flags & os.O_DSYNC:
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, int(entry.name))
            os.close(full)
            return
    pytest.fail("no descriptor for meta pages was found")


def test_a_panic_is_an_error_of_the_disk_and_over_when_the_log_is_reopened(tmp_path: Path) -> None:
    log = LmdbLog(tmp_path / "data", map_bytes=64 << 20)
    first = batch(5)
    log.append(first, 0, 0)
    break_meta(tmp_path / "data")
    with pytest.raises(LogUnusable) as caught:
        log.append(batch(1, head_of(first)), 5, 0)
    assert "restore" not in str(caught.value)
    with pytest.raises(LogUnusable, match="cannot be read") as caught:
        log.read(0, 10)
    assert isinstance(caught.value.__cause__, lmdb.PanicError)
    assert "restore" not in str(caught.value)
    assert log.reopen() == head_of(first)
    log.append(batch(2, head_of(first)), 5, 0)
    assert [r.seq for r in log.read(0, 10)] == list(range(1, 8))
    log.close()


async def _panic(folder: Path, times: int) -> None:
    fatal: list[LogError] = []
    shard = build(LmdbLog(folder, map_bytes=64 << 20), on_fatal=fatal.append)
    shard.start()
    acknowledged: list[str] = []
    for _ in range(times):
        acknowledged += [await submit(shard) for _ in range(5)]
        break_meta(folder)
        with pytest.raises(StorageUnavailable):
            await submit(shard)
        await until(lambda: not shard.degraded, "it goes on by itself")
    acknowledged += [await submit(shard) for _ in range(5)]
    assert fatal == []
    await until(lambda: shard.state.slots.total + shard.state.backlog.total == 0, "all ends")
    await stop(shard)
    again = LmdbLog(folder)
    kinds = [type(decode(stored.body).event) for stored in again.read(0, 10_000)]
    assert kinds.count(ServerStarted) == 1 + times, "it was degraded, and came back, each time"
    state = rebuild(again, use_snapshots=False)
    assert state.digest() == shard.state.digest(), "the state is the fold of the log"
    assert all(state.tasks.get(task).state == "succeeded" for task in acknowledged)  # type: ignore[union-attr]
    again.close()


def test_a_scheduler_survives_panics_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    asyncio.run(_panic(tmp_path / "data", 3))


class Reluctant(LmdbLog):
    """A log that cannot be opened again the first few times, not even for reading."""

    left = 0

    def _open(self) -> None:
        if self.left > 0:
            self.left -= 1
            msg = "cannot open the log: Input/output error"
            raise LogUnusable(msg)
        super()._open()


async def _unreadable(folder: Path) -> None:
    log = Reluctant(folder, map_bytes=64 << 20)
    shard = build(log)
    shard.start()
    task = await submit(shard)
    log.left = 3
    break_meta(folder)
    lost = asyncio.create_task(submit(shard))
    with pytest.raises(StorageUnavailable):
        await lost
    assert shard.failover.phase is Phase.REBUILDING
    for look in (lambda: shard.state.tasks.get(task), lambda: shard.archive.task_here(task)):
        with pytest.raises(StorageUnavailable):
            look()
    with pytest.raises(StorageUnavailable):
        await submit(shard)
    seen: list[Any] = []
    shard.failover.when_readable(lambda: seen.append(shard.archive.task_here(task)))
    await until(lambda: not shard.degraded, "it goes on when it can be opened")
    assert [found.id for found in seen] == [task]
    await stop(shard)


def test_nothing_is_shown_and_nothing_taken_while_there_is_no_state_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    asyncio.run(_unreadable(tmp_path / "data"))


async def _folds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folds: list[int] = []
    whole = failover.rebuild_whole

    def counted(*args: Any, **options: Any) -> Any:
        found = whole(*args, **options)
        folds.append(found[1].seq)
        return found

    monkeypatch.setattr(failover, "rebuild_whole", counted)
    log = LmdbLog(folder, map_bytes=64 << 20)
    shard = build(log)
    shard.start()
    await submit(shard)
    reopen, left = log.reopen, [3]

    def full() -> Any:
        found = reopen()
        if left[0]:
            left[0] -= 1
            msg = "the log does not accept writes: No space left on device"
            raise LogUnusable(msg)
        return found

    monkeypatch.setattr(log, "reopen", full)
    break_meta(folder)
    with pytest.raises(StorageUnavailable):
        await submit(shard)
    await until(lambda: shard.failover.phase is Phase.READ_ONLY, "it can be read")
    shown = shard.state
    await until(lambda: not shard.degraded, "it goes on")
    assert shard.state is shown
    assert len(folds) == 1
    await stop(shard)


def test_the_log_is_folded_once_if_it_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    asyncio.run(_folds(tmp_path / "data", monkeypatch))

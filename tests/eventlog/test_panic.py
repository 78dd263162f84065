"""One failed write of LMDB's meta page: LMDB then refuses everything, reads too, until it is opened
anew. That is what happens: nothing is lost, the server goes on, nobody is told to restore anything.

The failure is a real one: the descriptor that meta pages are written through is made to lead to
/dev/full, behind LMDB's back.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
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
from rota.eventlog import lmdb_store, turnstile
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


def test_a_panic_is_an_error_of_the_disk_and_over_when_the_log_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turnstile, "READER_WAITS_S", 0.01)
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


class Failing:
    """Lets every write of a meta page fail, also after the log was opened anew."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.breaks, self.probes = folder, False, 0
        self._patch = patch
        self._open = lmdb_store.open_environment
        patch.setattr(lmdb_store, "open_environment", self.opened)

    def opened(self, folder: Path, map_bytes: int, *, readonly: bool) -> Any:
        found = self._open(folder, map_bytes, readonly=readonly)
        if self.breaks and not readonly:
            self.probes += 1
            break_meta(folder)
        return found


async def _read_on(folder: Path, failing: Failing, patch: pytest.MonkeyPatch) -> None:
    """Read without a pause, in a thread, while LMDB panics again and again."""
    shard = build(log := LmdbLog(folder, map_bytes=64 << 20))
    shard.start()
    tasks = [await submit(shard) for _ in range(20)]
    wrong: list[Any] = []
    ends, reads = threading.Event(), [0]

    def read() -> None:
        while not ends.is_set():
            try:
                if not log.known_of(tasks) or log.read(0, 10)[0].seq != 1:
                    wrong.append("not what was written")
            except LogError as error:
                wrong.append(error)
            reads[0] += 1

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    failing.breaks = True
    break_meta(folder)
    with pytest.raises(StorageUnavailable):
        await submit(shard)
    await until(lambda: shard.failover.phase is Phase.READ_ONLY, "it can be read")
    tried = failing.probes
    assert all(shard.archive.task_here(task) for task in tasks)
    await until(lambda: failing.probes > tried + 20, "writing is tried again and again")
    assert all(shard.archive.task_here(task) for task in tasks)
    patch.setattr(failing, "breaks", False)
    await until(lambda: not shard.degraded, "it goes on")
    ends.set()
    reader.join(10)
    assert await submit(shard)
    await stop(shard)
    assert (wrong, reads[0] > tried) == ([], True)


def test_reads_go_on_while_the_meta_page_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    monkeypatch.setattr(failover, "REOPEN_US_MAX", 1000)
    failing = Failing(tmp_path / "data", monkeypatch)
    asyncio.run(_read_on(tmp_path / "data", failing, monkeypatch))


def test_a_log_can_be_read_whichever_step_of_opening_it_anew_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path / "data", monkeypatch)
    log = LmdbLog(tmp_path / "data", map_bytes=64 << 20)
    first = batch(5)
    log.append(first, 0, 0)

    def check(step: Any) -> None:
        with pytest.raises(LogUnusable):
            step()
        assert [r.seq for r in log.read(0, 10)] == [1, 2, 3, 4, 5]
        with pytest.raises(LogUnusable):
            log.append(batch(1, head_of(first)), 5, log.epoch())

    failing.breaks = True
    check(log.reopen)
    failing.breaks, opened = False, failing.opened

    def refused(folder: Path, map_bytes: int, *, readonly: bool) -> Any:
        if not readonly:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(folder, map_bytes, readonly=True)

    with monkeypatch.context() as patch:
        patch.setattr(lmdb_store, "open_environment", refused)
        check(log.reopen)
    assert log.reopen() == head_of(first)
    break_meta(tmp_path / "data")
    check(log.claim)
    assert log.reopen() == head_of(first)
    log.append(batch(1, head_of(first)), 5, log.claim())
    log.close()


class Reluctant(LmdbLog):
    """A log that cannot be opened again the first few times, not even for reading."""

    left = 0

    def _open(self, *, readonly: bool) -> None:
        if self.left > 0:
            self.left -= 1
            msg = "cannot open the log: Input/output error"
            raise LogUnusable(msg)
        super()._open(readonly=readonly)


async def _unreadable(folder: Path) -> None:
    log = Reluctant(folder, map_bytes=64 << 20)
    shard = build(log)
    shard.start()
    task = await submit(shard)
    log.left = 4
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

"""A disk that fills up: appends fail with clear words, nothing acknowledged is lost, and writing
goes on when there is room again.

The disk is filled by RLIMIT_FSIZE, which no writer can exceed, in a process of its own (the limit
holds for a whole process). The n-th failing write is played by a log that fails when it is told
to, before or after it has really written: a failed sync may have persisted or not.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from support.shards import Answer, build, stop, submit, until

from rota.actors import failover
from rota.actors import messages as m
from rota.actors.recovery import rebuild
from rota.domain.intake import Request
from rota.errors import LogUnusable, StorageUnavailable
from rota.eventlog.committer import CommitFailed
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.replay import replay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rota.eventlog.port import Stored

# -- a real full disk ----------------------------------------------------------------------------

ALONE = """
    import resource, sys
    from pathlib import Path
    from rota.errors import LogUnusable
    from rota.eventlog.lmdb_store import LmdbLog
    from rota.eventlog.port import Head
    from support.builders import batch, head_of

    folder = Path(sys.argv[1])
    log = LmdbLog(folder, map_bytes=64 << 20)
    epoch = log.claim()
    head = log.head()
    for _ in range(10):
        records = batch(5, head, size=1000)
        log.append(records, head.seq, epoch)
        head = head_of(records)
    size = (folder / "data.mdb").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_000, hard))
    try:
        while True:
            records = batch(5, head, size=1000)
            log.append(records, head.seq, epoch)
            head = head_of(records)
    except LogUnusable as error:
        assert "does not accept writes" in str(error), error
        assert "free space" in error.hint, error.hint
    assert [r.seq for r in log.read(0, 10_000)] == list(range(1, head.seq + 1))
    try:
        log.reopen()
    except LogUnusable as error:
        assert "does not accept writes" in str(error), error
    else:
        raise SystemExit("reopened on a full disk")
    assert log.head() == head, "reads go on"
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.reopen() == head, (log.head(), head)
    records = batch(5, head, size=1000)
    log.append(records, head.seq, epoch)
    log.close()
    log = LmdbLog(folder)
    assert log.head() == head_of(records)
    assert [r.seq for r in log.read(0, 10_000)] == list(range(1, head.seq + 6))
    print("kept", head.seq)
"""

WHOLE = """
    import asyncio, logging, resource, sys
    from pathlib import Path
    from rota.actors import messages as m
    from rota.actors.failover import Phase
    from rota.domain.task import TERMINAL
    from rota.actors.recovery import rebuild
    from rota.errors import StorageUnavailable
    from rota.eventlog.lmdb_store import LmdbLog
    from eventlog_disk_full import Answer, build, stop, submit, until

    logging.disable(logging.CRITICAL)
    folder = Path(sys.argv[1])

    async def main():
        shard = build(LmdbLog(folder, map_bytes=64 << 20))
        shard.start()
        kept = [await submit(shard, params={"pad": "x" * 1000}) for _ in range(20)]
        size = (folder / "data.mdb").stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, hard))
        refused = 0
        for _ in range(200):
            try:
                kept.append(await submit(shard, params={"pad": "x" * 20_000}))
            except StorageUnavailable as error:
                refused += 1
                assert error.status == 503 and error.code == "storage_unavailable"
                if refused > 20:
                    break
        assert refused > 20, refused
        assert shard.degraded, "it says that it is degraded"
        await until(lambda: shard.failover.phase is Phase.READ_ONLY, "it can be read")
        durable = {task for task in kept if shard.state.tasks.get(task) is not None}
        assert durable == set(kept), "reads go on, and nothing acknowledged is gone"
        assert shard.archive.task_here(kept[0]) is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await until(lambda: not shard.degraded, "it resumes by itself")
        kept += [await submit(shard) for _ in range(10)]
        await until(
            lambda: all(shard.state.tasks.get(t).state in TERMINAL for t in kept), "all of it runs"
        )
        await stop(shard)
        log = LmdbLog(folder)
        state = rebuild(log, use_snapshots=False)
        assert state.digest() == rebuild(log).digest() == shard.state.digest()
        assert all(state.tasks.get(task).state == "succeeded" for task in kept)
        log.close()
        print("kept", len(kept))

    asyncio.run(main())
"""


def run_alone(code: str, folder: Path) -> str:
    """Run code in a process of its own that can import the tests' support."""
    here = __file__
    setup = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('eventlog_disk_full', {here!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['eventlog_disk_full'] = module\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "spec.loader.exec_module(module)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", setup + textwrap.dedent(code), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_log_on_a_full_disk_refuses_clearly_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    assert "kept" in run_alone(ALONE, tmp_path / "data")


def test_a_scheduler_on_a_full_disk_serves_reads_and_resumes_by_itself(tmp_path: Path) -> None:
    assert "kept" in run_alone(WHOLE, tmp_path / "data")


# -- the n-th write fails ------------------------------------------------------------------------


class FailingLog:
    """A real log whose n-th append fails, with or without having written."""

    def __init__(self, log: LmdbLog, nth: int, *, written: bool) -> None:
        self._log = log
        self._left = nth
        self._written = written
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        self._left -= 1
        if self._left == 0:
            self.failed = True
            if self._written:
                self._log.append(records, expected_seq, epoch)
            msg = "the log does not accept writes: Input/output error"
            raise LogUnusable(msg)
        self._log.append(records, expected_seq, epoch)


async def _lose_nothing(folder: Path, nth: int, *, written: bool) -> None:
    log = FailingLog(LmdbLog(folder, map_bytes=64 << 20), nth, written=written)
    shard = build(log)
    shard.start()
    acknowledged: list[str] = []
    refused = 0

    async def client(number: int) -> None:
        nonlocal refused
        for _ in range(6):
            try:
                acknowledged.append(await submit(shard, f"agent-{number}"))
            except StorageUnavailable:
                refused += 1

    await asyncio.gather(*(client(n) for n in range(4)))
    async with asyncio.timeout(20):
        while not (log.failed and refused and not shard.degraded):
            try:
                acknowledged.append(await submit(shard))
            except StorageUnavailable:
                refused += 1
    await until(lambda: shard.state.slots.total + shard.state.backlog.total == 0, "all ends")
    await stop(shard)
    again = LmdbLog(folder)
    state = rebuild(again, use_snapshots=False)
    assert state.digest() == shard.state.digest(), "the state is the fold of the log"
    assert [r.seq for r in replay(again)] == list(range(1, again.head().seq + 1))
    for task in acknowledged:
        found = state.tasks.get(task)
        assert found is not None, f"{task} was acknowledged and is lost"
        assert found.state == "succeeded"
    if not written:
        assert len(state.tasks) == len(acknowledged), "nothing refused was stored"
    again.close()


@pytest.mark.parametrize("written", [False, True], ids=["not-written", "written"])
@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 21])
def test_nothing_acknowledged_is_lost_when_the_nth_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, *, written: bool
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    asyncio.run(_lose_nothing(tmp_path / "data", nth, written=written))


# -- who waits is answered -----------------------------------------------------------------------


class BrokenLog(FailingLog):
    """A log that fails every append and every reopening from the first failure on."""

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        if self.failed or self._left <= 0:
            self.failed = True
            msg = "the log does not accept writes: No space left on device"
            raise LogUnusable(msg)
        self._left -= 1
        self._log.append(records, expected_seq, epoch)

    def reopen(self) -> Any:
        msg = "the log does not accept writes: No space left on device"
        raise LogUnusable(msg)


def test_a_request_that_arrives_with_the_failure_is_answered_too(tmp_path: Path) -> None:
    """Its message lies in an inbox when the actors are dropped; its sender still waits."""

    async def main() -> None:
        shard = build(BrokenLog(LmdbLog(tmp_path / "data", map_bytes=64 << 20), 1, written=False))
        shard.start()
        await until(lambda: shard.journal.durable_seq > 0, "it started")
        answer = Answer()
        shard.admission.tell(m.SubmitTasks((Request("a1", "echo", "builtin"),), answer))
        shard.on_report(CommitFailed(LogUnusable("No space left on device")))
        with pytest.raises(StorageUnavailable):
            await asyncio.wait_for(answer.future, 2)
        shard.close()

    asyncio.run(main())


def test_submitting_while_the_log_is_closed_for_reopening_is_storage_unavailable(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        log = BrokenLog(LmdbLog(tmp_path / "data", map_bytes=64 << 20), 1, written=False)

        def has_task(task_id: str) -> bool:
            del task_id
            msg = "the log is being reopened"
            raise LogUnusable(msg)

        shard = build(log)
        shard.start()
        await until(lambda: shard.journal.durable_seq > 0, "it started")
        with pytest.raises(StorageUnavailable):
            await submit(shard)
        assert shard.degraded
        log.has_task = has_task  # type: ignore[attr-defined]
        with pytest.raises(StorageUnavailable):
            await submit(shard)
        shard.close()

    asyncio.run(main())


def test_stopping_ends_even_if_the_last_records_cannot_be_written(tmp_path: Path) -> None:
    async def main() -> None:
        shard = build(BrokenLog(LmdbLog(tmp_path / "data", map_bytes=64 << 20), 1, written=False))
        shard.start()
        await until(lambda: shard.journal.durable_seq > 0, "it started")
        done = asyncio.Event()
        shard.finish(done.set)
        await asyncio.wait_for(done.wait(), 2)
        shard.close()

    asyncio.run(main())

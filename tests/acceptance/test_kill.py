"""A loaded server is killed with SIGKILL at random moments and started again on the same folder.

Nothing acknowledged may be lost, nothing may end twice, no cap may be exceeded, and what the
server shows after each restart must be the fold of its log.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from support.kill_harness import KillRounds, hooks, until, verify

from rota.actors.host import AsyncioHost, ThreadLine
from rota.actors.system import Shard
from rota.clock import SystemClock
from rota.config import Settings
from rota.domain.commands import Limits
from rota.domain.intake import Request
from rota.errors import Conflict
from rota.eventlog.lmdb_store import LmdbLog
from rota.executors.runner import AsyncRunner
from rota.http.bridge import Bridge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rota.eventlog.port import Stored

VERIFY_EVERY = 5


def test_nothing_acknowledged_is_lost_or_done_twice_when_the_server_is_killed_again_and_again(
    tmp_path: Path, kill_rounds: int, kill_seed: int
) -> None:
    async def main() -> None:
        async with hooks(every_nth_fails=20) as target:
            run = KillRounds(tmp_path / "data", kill_seed, target)
            try:
                for number in range(1, kill_rounds + 1):
                    await run.round()
                    if number % VERIFY_EVERY == 0:
                        await asyncio.to_thread(verify, run.audit.folder)
                await run.finish()
            finally:
                if run.server.returncode is None:
                    await asyncio.to_thread(run.server.kill)
            verify(run.audit.folder)
            audit, ledger = run.audit, run.ledger
            print(
                f"{kill_rounds} kills ({run.killed_while_starting} while starting), "
                f"{audit.seq} events, {len(ledger.acknowledged)} tasks acknowledged, "
                f"{len(ledger.cancelled)} cancels, {ledger.refused} refused, "
                f"{audit.kinds['attempt_interrupted']} attempts interrupted, "
                f"{audit.kinds['delivery_succeeded']} callbacks; peak {audit.peak_inflight}"
            )
            if kill_rounds >= 20:
                assert ledger.refused, "the load must reach the queue caps"
                assert audit.kinds["attempt_interrupted"], "a kill must hit running attempts"
                assert ledger.cancelled
                assert ledger.with_callback

    asyncio.run(main())


class HeldLog(LmdbLog):
    """A log that does not write the end of a task before it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        if any(b'"task_succeeded"' in record.body for record in records):
            self.reached.set()
            assert self.let_go.wait(20)
        super().append(records, expected_seq, epoch)


def test_a_refused_cancel_tells_only_of_an_end_that_a_kill_cannot_take_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        log = HeldLog(tmp_path / "data")
        shard = Shard(
            log,
            AsyncioHost(SystemClock()),
            limits=Limits(),
            line=ThreadLine,
            runner=AsyncRunner({}),
            courier=None,
        )
        shard.start()
        bridge = Bridge(shard, Settings(), None)
        try:
            (admitted,) = await bridge.submit((Request("a1", "echo", "builtin"),))
            await until(log.reached.is_set)
            durable_then: list[bool] = []

            async def cancel() -> None:
                with pytest.raises(Conflict):
                    await bridge.cancel(admitted.task, "", "")
                durable_then.append(shard.journal.durable_seq >= shard.state.seq)

            cancelling = asyncio.create_task(cancel())
            await asyncio.wait([cancelling], timeout=0.1)
            log.let_go.set()
            await cancelling
            assert durable_then == [True], "it was told before it was on the disk"
        finally:
            log.let_go.set()
            await until(lambda: shard.journal.durable_seq >= shard.state.seq)
            shard.close()

    asyncio.run(main())

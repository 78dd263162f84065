"""A loaded server is killed with SIGKILL at random moments and started again on the same folder.

Nothing acknowledged may be lost, nothing may end twice, no cap may be exceeded, and what the
server shows after each restart must be the fold of its log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.kill_harness import KillRounds, hooks, verify

if TYPE_CHECKING:
    from pathlib import Path

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
            print(  # noqa: T201 - shown with -s, for long runs
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

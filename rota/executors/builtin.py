"""Actions that run inside the server: `echo`, `sleep` and `fail`.

They make a fresh server do something at once, and are what tests and benchmarks run. `echo`
gives its params back, `sleep` waits `ms` and says so, `fail` fails with `message`. A task
that needs a tab and names none ends here, in PinchTab's words.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from rota.config import RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.executors.http import too_large
from rota.executors.tab import NO_TAB

if TYPE_CHECKING:
    from rota.executors.port import Attempt, Tell

SLEEP_MS_MAX = 3_600_000


class BuiltinExecutor:
    """Runs the builtin actions."""

    leaves_nothing = True

    def run_now(self, attempt: Attempt) -> Outcome | None:
        """Give the outcome at once, for the actions that need no waiting."""
        if attempt.action == "echo":
            if len(orjson.dumps(attempt.params)) > RESULT_BYTES_MAX:
                return too_large("what came back")
            return Outcome(ok=True, result={"echo": attempt.params})
        if attempt.action == "fail":
            message = str(attempt.params.get("message", "failed as asked"))[:2000]
            return Outcome(ok=False, code="asked_to_fail", error=message)
        if attempt.action == "sleep":
            return None
        if not attempt.tab:  # of PinchTab's, where no tab executor is configured to say so
            return Outcome(ok=False, code="tab_required", error=NO_TAB)
        error = f"there is no builtin action {attempt.action!r}"
        return Outcome(ok=False, code="unknown_action", error=error)

    async def run(self, attempt: Attempt, tell: Tell) -> Outcome:
        del tell  # only `sleep` comes here: all else has its outcome from `run_now`
        ms = attempt.params.get("ms", 0)
        if not isinstance(ms, int | float) or isinstance(ms, bool) or not 0 <= ms <= SLEEP_MS_MAX:
            error = f"params.ms must be a number from 0 to {SLEEP_MS_MAX}"
            return Outcome(ok=False, code="bad_params", error=error)
        await asyncio.sleep(ms / 1000)
        return Outcome(ok=True, result={"sleptMs": ms})

    async def cut_off(self, attempt: Attempt) -> bool:
        del attempt
        return True

    async def close(self) -> None:
        """Nothing to let go of."""

"""Runs attempts on the event loop.

One asyncio task for each attempt; aborting it cancels that task, which closes whatever connection
it has open. An executor that raises has a bug: the attempt fails with its name, nothing else does.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rota.domain.commands import PULL, Outcome
from rota.executors.builtin import BuiltinExecutor
from rota.executors.chat import ChatExecutor
from rota.executors.command import CommandExecutor
from rota.executors.http import HttpExecutor
from rota.executors.tab import TabExecutor
from rota.executors.wards.keepers import Keepers
from rota.executors.wards.leftovers import marks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.config import ExecutorSettings, Settings
    from rota.executors.port import Abort, Attempt, Executor, Gone, Tell

logger = logging.getLogger("rota.executors")

CLOSE_S = 30.0
"""For so long the end of a server waits for what it cut off."""

KINDS: dict[str, type[HttpExecutor]] = {
    "http": HttpExecutor,
    "tab": TabExecutor,
    "chat": ChatExecutor,
}


def build_executors(
    settings: Settings, more: Mapping[str, str] | None = None
) -> dict[str, Executor]:
    """Make the executors that a configuration names; `more` are headers that they send, too.

    Raises ConfigError.
    """
    folder = Path(settings.server.data_dir)
    keepers = Keepers(marks_of(folder))
    hidden = (*map(Path, settings.data_dirs()), *settings.secret_files())

    def made(each: ExecutorSettings) -> Executor:
        if each.kind == "command":
            return CommandExecutor(each, keepers, folder, hidden)
        return KINDS[each.kind](each.url, {**(more or {}), **each.headers}, each.cancel_url)

    return {name: made(each) for name, each in settings.executors.items()}


class AsyncRunner:
    """An `AttemptRunner` on asyncio."""

    def __init__(self, executors: Mapping[str, Executor]) -> None:
        """Run attempts on these executors, and on the builtin one."""
        self._builtin = BuiltinExecutor()
        self._executors: dict[str, Executor] = {"builtin": self._builtin, **executors}
        self._tasks: set[asyncio.Task[bool]] = set()

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> Abort:
        """Start the attempt; builtin actions that need no waiting end at once."""
        if attempt.executor == "builtin":
            outcome = self._builtin.run_now(attempt)
            if outcome is not None:
                ended(outcome)
                return _nothing_to_abort
        task = asyncio.get_running_loop().create_task(self._run(attempt, ended, tell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return partial(_cancel, task)

    def leaves_nothing(self, executor: str) -> bool:
        """Say it of leases, too: what was lent is over with its lease."""
        found = self._executors.get(executor)
        return found.leaves_nothing if found is not None else executor == PULL

    async def _run(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> bool:
        """Run an attempt to its end, or until it is cancelled; say whether it is over for sure."""
        executor = self._executors.get(attempt.executor)
        if executor is None:
            error = f"executor {attempt.executor!r} is not configured"
            ended(Outcome(ok=False, code="no_executor", error=error))
            return True
        try:
            outcome = await executor.run(attempt, tell)
        except asyncio.CancelledError:
            return await executor.cut_off(attempt)
        except Exception as error:
            logger.exception("executor %s raised", attempt.executor)
            text = f"executor raised {type(error).__name__}"
            outcome = Outcome(ok=False, code="executor_fault", error=text)
        ended(outcome)
        return True

    async def close(self) -> None:
        """Abort what runs, and close the executors."""
        for task in self._tasks:
            _cancel(task, "the server ends")
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            if left:
                logger.error("%d attempts cannot be ended; the server ends without them", len(left))
        for executor in self._executors.values():
            await executor.close()


def _cancel(task: asyncio.Task[bool], reason: str, gone: Gone | None = None) -> None:
    if gone is not None:
        task.add_done_callback(lambda done: gone(is_sure=_is_over(done)))
    if not task.cancelling():  # it is asked to stop once
        task.cancel(reason)


def _is_over(done: asyncio.Task[bool]) -> bool:
    """Whether an attempt is over for sure; one that was cancelled had not even begun."""
    return done.cancelled() or (done.exception() is None and done.result())


def _nothing_to_abort(reason: str, gone: Gone | None = None) -> None:
    """Do nothing: the attempt has already ended."""
    del reason
    if gone is not None:
        asyncio.get_running_loop().call_soon(gone)

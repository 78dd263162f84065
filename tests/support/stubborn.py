"""A server whose attempts of one action cannot be killed before the test lets them go.

It stands at the port of executors: `rota/executors/port.py`. What is aborted goes on, and is gone
only when `let_go` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.http_server import Rota

from rota.actors.runtime import body_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.commands import Outcome
    from rota.executors.port import Abort, Attempt, AttemptRunner, Tell
    from rota.server import Server

STUBBORN = "stubborn"
TYPES = {STUBBORN: {"executor": STUBBORN}}
EXECUTORS = {STUBBORN: {"kind": "http", "url": "http://127.0.0.1:9/nobody"}}
"""A configuration has to name an executor for the action; it is never asked."""


class StubbornRunner:
    """An `AttemptRunner` that leaves every other action to a real one."""

    def __init__(self, real: AttemptRunner) -> None:
        """Keep what runs by its task."""
        self._real = real
        self.running: dict[str, Callable[[Outcome], None]] = {}
        self.aborted: list[str] = []
        self._gone: dict[str, Callable[[], None]] = {}

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> Abort:
        """Start an attempt that nothing ends but the test."""
        if attempt.action != STUBBORN:
            return self._real.start(attempt, ended, tell)
        self.running[attempt.task] = ended

        def abort(reason: str, gone: Callable[[], None] | None = None) -> None:
            self.aborted.append(attempt.task)
            if gone is not None:
                self._gone[attempt.task] = gone

        return abort

    def leaves_nothing(self, executor: str) -> bool:
        """Say what the real one does."""
        return self._real.leaves_nothing(executor)

    def let_go(self, task: str) -> None:
        """Let an attempt that was aborted be gone."""
        del self.running[task]
        self._gone.pop(task)()


class StubbornRota(Rota):
    """A server with such a runner."""

    runner: StubbornRunner

    def start(self) -> Rota:
        """Start, and put the runner in the place of the real one."""
        super().start()
        self.inside(self._replace_runner)
        return self

    def _replace_runner(self, server: Server) -> None:
        pool: Any = body_of(server.shard.pool)
        self.runner = pool._runner = StubbornRunner(pool._runner)

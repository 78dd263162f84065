"""A runner whose attempts go by a script; what the script leaves open, the test ends.

A script is a function for each action, from the attempt to what becomes of it: an `Outcome`, an
outcome that comes `Later`, or None for an attempt that runs until the test ends it. Attempts of an
action without a function run until then, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.commands import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.executors.port import Abort, Attempt, Tell
    from rota.testing.host import ManualHost

    Script = Mapping[str, Callable[[Attempt], "Outcome | Later | None"]]


class Later(NamedTuple):
    """An outcome that an attempt comes to after a while."""

    seconds: float
    outcome: Outcome


class Running(NamedTuple):
    """An attempt that runs, and how it tells of itself and of its end."""

    attempt: Attempt
    ended: Callable[[Outcome], None]
    tell: Tell


def succeeded(result: Any = None) -> Outcome:
    """Give the outcome of an attempt that did what it should."""
    return Outcome(ok=True, result=result)


def failed(code: str, error: str = "", *, retryable: bool | None = None) -> Outcome:
    """Give the outcome of an attempt that failed; `retryable` None leaves it to the policy."""
    return Outcome(ok=False, code=code, error=error or code, retryable=retryable)


class ScriptedRunner:
    """An `AttemptRunner` that runs nothing."""

    def __init__(self, host: ManualHost, script: Script | None = None) -> None:
        """Go by the script, and by the host's clock."""
        self._host = host
        self.script: Script = script or {}
        self.running: dict[str, Running] = {}
        self.started: list[Attempt] = []
        self.aborted: list[tuple[str, str]] = []

    def leaves_nothing(self, executor: str) -> bool:
        """Say that all of them are gone."""
        del executor
        return True

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> Abort:
        """Start an attempt, and end it as the script says."""
        running = self.running[attempt.task] = Running(attempt, ended, tell)
        self.started.append(attempt)
        say = self.script.get(attempt.action)
        said = say(attempt) if say is not None else None

        def end(outcome: Outcome) -> None:
            if self.running.get(attempt.task) is running:
                self.end(attempt.task, outcome)

        def abort(reason: str, gone: Callable[[], None] | None = None) -> None:
            if self.running.get(attempt.task) is running:
                del self.running[attempt.task]
            self.aborted.append((attempt.task, reason))
            if gone is not None:
                self._host.call_soon(gone)

        if isinstance(said, Later):
            at_us = self._host.clock.now_us() + round(said.seconds * 1_000_000)
            self._host.call_at(at_us, lambda: end(said.outcome))
        elif said is not None:
            self._host.call_soon(lambda: end(said))
        return abort

    def end(self, task: str, outcome: Outcome) -> None:
        """End the attempt of a task that runs."""
        self.running.pop(task).ended(outcome)

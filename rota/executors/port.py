"""What it takes to execute an attempt.

An `Executor` is one way to run an attempt: an async function from an attempt to an outcome. It
may be cancelled at any await; it never raises for what the task did, it returns an outcome. An
`AttemptRunner` starts attempts on executors and gives back the means to abort them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.commands import Outcome

    Tell = Callable[["Note"], None]


class Attempt(NamedTuple):
    """One execution of one task."""

    task: str
    agent: str
    number: int
    token: int
    executor: str
    action: str
    params: dict[str, Any]
    tab: str | None = None
    ref: str | None = None
    key: str | None = None
    run: str | None = None


class Note(NamedTuple):
    """Something an attempt says of itself while it runs: log lines, or how far it has come."""

    line: str = ""
    level: str = "info"
    progress: Any = None
    lines: tuple[str, ...] = ()


class Executor(Protocol):
    """One way to run an attempt."""

    async def run(self, attempt: Attempt, tell: Tell) -> Outcome:
        """Execute, telling what is worth noting on the way; return what became of it."""
        ...

    async def cut_off(self, attempt: Attempt) -> bool:
        """Say whether nothing is left of an attempt for sure, after its `run` was cancelled."""
        ...

    leaves_nothing: bool
    """Whether nothing is left of its attempts when their server is gone, and another begins."""

    async def close(self) -> None: ...


class Gone(Protocol):
    """What is to be done when an attempt that was cut off is gone."""

    def __call__(self, *, is_sure: bool = True) -> None:
        """Hear of it; if it is not sure, nobody has said that it has stopped."""
        ...


class Abort(Protocol):
    """The means to cut an attempt off that was started."""

    def __call__(self, reason: str, gone: Gone | None = None) -> None:
        """Cut it off, and call `gone` later, once nothing of it is left; which may never be."""
        ...


class AttemptRunner(Protocol):
    """Starts attempts."""

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> Abort:
        """Start the attempt; call `ended` once, later, unless it is aborted first."""
        ...

    def leaves_nothing(self, executor: str) -> bool:
        """Whether nothing is left of an executor's attempts that were interrupted."""
        ...

"""Retention: what has ended leaves memory also while nothing happens.

The fold forgets with every record; between records a one-shot wake-up, set for the oldest that is
due, does the same by the clock (see `State.forget`). Nothing polls: with nothing to forget there is
no wake-up. What the log can tell of is let go of as soon as it is durable; and when much less is
held than before, what is free is given back to the operating system, in the committer's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.heap import give_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal

MUCH_BYTES = 4 << 20
"""What is held is worth giving back when it was more than this, and is half of that."""


class Retention:
    """Sees to it that memory is given back, for one journal."""

    def __init__(
        self,
        journal: Journal,
        archive: Archive,
        call_at: Callable[[int, Callable[[], None]], Any],
        run_aside: Callable[[Callable[[], None]], Any],
    ) -> None:
        """Be woken by `call_at`; have memory given back by `run_aside`."""
        self._journal = journal
        self._archive = archive
        self._call_at = call_at
        self._run_aside = run_aside
        self._most_bytes = 0
        self._due: int | None = None
        self._handle: Any = None
        self._stopped = False

    def committed(self) -> None:
        """Let go of what is durable now, and see when the next is to be forgotten."""
        self._archive.release()
        self._give_back()
        self._set()

    def _give_back(self) -> None:
        """Give memory back if much of what was held is gone."""
        state = self._journal.state
        held = state.tasks.ended_bytes + state.backlog.bytes
        self._most_bytes = max(self._most_bytes, held)
        if self._most_bytes > MUCH_BYTES and held < self._most_bytes // 2:
            self._most_bytes = held
            self._run_aside(give_back)

    def _set(self) -> None:
        state = self._journal.state
        at = state.next_forgetting()
        if at is None or self._stopped:
            return
        due = at - state.steps.shift  # what was set by another clock can be compared, too
        if self._due is not None and self._due <= due:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._due = due
        self._handle = self._call_at(at, self._wake)

    def _wake(self) -> None:
        self._due = self._handle = None
        if not self._stopped and self._journal.failure is None:
            self._journal.state.forget(self._journal.now())
            self._give_back()
            self._set()

    def stop(self) -> None:
        """Forget nothing any more: the state is another's."""
        self._stopped = True

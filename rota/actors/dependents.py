"""Dependencies: lets blocked tasks go, or cancels them.

In: news that something is due. Out: `task_released`, `task_delayed`, and `task_cancelled` for
those whose dependency failed or was cancelled, which may make more due. What is due is in the
projection; it is settled a slice at a time with the loop's turns in between, so that ten thousand
dependents of one task hold nobody up.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rota.actors.messages import LookAgain, SettleDependents
from rota.actors.runtime import CooperativeActor
from rota.domain.attempts import decide_cancel, decide_release
from rota.domain.dependencies import DOOMED
from rota.domain.task import BLOCKED

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.events import Event

SLICE_TASKS = 100


class DependentsActor(CooperativeActor):
    """Settles what is due."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        call_soon: Callable[[Callable[[], None]], Any],
    ) -> None:
        """Take turns with the rest of the loop by `call_soon`."""
        super().__init__(runtime)
        self._journal = journal
        self._call_soon = call_soon
        self._is_resting = False

    def reset(self) -> None:
        self._is_resting = False
        self.subject = ""

    def on_receive(self, message: Any) -> None:
        """Settle a slice; come back for the rest after the loop had its turn."""
        if type(message) not in (SettleDependents, LookAgain) or self._is_resting:
            return
        due = self._journal.state.graph.due
        before = self._journal.state.seq
        for task_id, reason in list(islice(due.items(), SLICE_TASKS)):
            self.subject = task_id
            event = self._settle(task_id, reason)
            if event is not None:
                self._journal.record(event)
        self.subject = ""
        if due and self._journal.state.seq > before:
            self._is_resting = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_resting = False
        if not self.stopped:
            self.actor_ref.tell(SettleDependents())

    def _settle(self, task_id: str, reason: str) -> Event | None:
        task = self._journal.state.tasks.get(task_id)
        if task is None or task.state is not BLOCKED:
            return None
        if not reason:
            return decide_release(task, self._journal.now())
        return decide_cancel(task, reason, DOOMED)

"""Cutting attempts off for a force-stop: a task keeps its slot until nothing of it is left.

An ordinary abort comes after the task has ended, and nobody waits for what it does. Here the task
ends last: which attempts are cut off is in the projections (`projects.killing`), the runner is told
to once that is durable, and when it says that one is gone the task fails. What cannot be
killed stays, visibly, with its slot. An attempt that ends by itself meanwhile ends its task as
always.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rota.actors.project_messages import AttemptGone, KillAttempts
from rota.domain.project import decide_cut
from rota.domain.task import IN_FLIGHT

if TYPE_CHECKING:
    from pykka import ActorRef

    from rota.actors.journal import Journal
    from rota.errors import RotaError
    from rota.executors.port import Abort

logger = logging.getLogger("rota.pool")

KILLING = (KillAttempts, AttemptGone)
"""What the pool hands on to here."""


class _OnceDurable:
    """Sends a message when everything recorded so far is on disk; not at all if that fails."""

    def __init__(self, ref: ActorRef[Any], message: Any) -> None:
        self._ref = ref
        self._message = message

    def ok(self, value: Any) -> None:
        del value
        self._ref.tell(self._message)

    def fail(self, error: RotaError) -> None:
        """Leave it: the state is rebuilt, and looked at anew."""


class Killing:
    """Cuts off what the worker pool runs."""

    def __init__(
        self, journal: Journal, running: dict[str, tuple[int, Abort]], ref: ActorRef[Any]
    ) -> None:
        """Find what runs in `running`; have the pool, `ref`, told of what is gone."""
        self._journal = journal
        self._running = running
        self._ref = ref

    def on_receive(self, message: KillAttempts | AttemptGone) -> None:
        if type(message) is KillAttempts:
            self._begin(*message)
        elif type(message) is AttemptGone:
            self._gone(*message)

    def _begin(self, tasks: tuple[str, ...], reason: str) -> None:
        """Have the attempts cut off that still run."""
        killing = self._journal.state.projects.killing
        for task_id in tasks:
            held = self._running.get(task_id)
            if held is not None and task_id in killing:
                self._cut_off(task_id, *held, reason)

    def _cut_off(self, task_id: str, token: int, abort: Abort, reason: str) -> None:
        def gone(*, is_sure: bool = True) -> None:
            self._ref.tell(AttemptGone(task_id, token, is_sure))

        try:
            abort(reason, gone)
        except Exception:
            logger.exception("an attempt of %s could not be aborted", task_id)

    def _gone(self, task_id: str, token: int, is_sure: bool) -> None:  # noqa: FBT001 - a message's
        """Fail a task of whose attempt nothing is left, unless it has ended by itself."""
        state = self._journal.state
        task, why = state.tasks.get(task_id), state.projects.why_cut(task_id)
        if task is None or why is None or task.token != token or task.state not in IN_FLIGHT:
            return
        self._journal.record(decide_cut(task, why, is_sure=is_sure), cause=token)

    def look_again(self) -> None:
        """Cut off, once it is durable that it shall be, whatever is not gone yet."""
        tasks = tuple(self._journal.state.projects.killing)
        if tasks:
            again = KillAttempts(tasks, "its run was force-stopped")
            self._journal.answer(_OnceDurable(self._ref, again), None)

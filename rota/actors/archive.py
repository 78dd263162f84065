"""Tasks and batches by id: from memory, or from the log if they have left memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.actors.recovery import batch_from_log, task_from_log

if TYPE_CHECKING:
    from rota.domain.batch import Batch
    from rota.domain.task import Task
    from rota.eventlog.port import EventLog
    from rota.projections.state import State


class Archive:
    """Finds what there is and what there was."""

    def __init__(self, state: State, log: EventLog) -> None:
        """Look into `state` first, then into `log`."""
        self._tasks = state.tasks
        self._batches = state.batches
        self._log = log

    def task(self, task_id: str) -> Task | None:
        """Give a task."""
        task = self._tasks.get(task_id)
        return task if task is not None else task_from_log(self._log, task_id)

    def batch(self, batch_id: str) -> Batch | None:
        """Give a batch."""
        batch = self._batches.get(batch_id)
        return batch if batch is not None else batch_from_log(self._log, batch_id)

    def knows(self, subject: str) -> bool:
        """Whether an id is a task's or a batch's."""
        return subject in self._tasks.by_id or self._log.has_task(subject)

    def either(self, subject: str) -> Task | Batch | None:
        """Give the task or the batch of an id."""
        task = self.task(subject)
        return task if task is not None else self.batch(subject)

"""Many tasks at once: what is asked of them, a slice at a time.

In: the tasks of one slice and what to do with them; another priority for one task. Out:
`task_cancelled` and `task_reprioritised`, one for each. Who is meant is decided anew here, since a
task may have moved on since it was looked for. It holds nothing: whoever asks for many brings one
slice after another, and the next when the last is durable (http/bulk.py).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rota.actors.bulk_messages import Changed, ChangeTasks, ReprioritiseTask
from rota.actors.runtime import CooperativeActor
from rota.domain.bulk import CANCEL, decide_change, decide_priority, is_meant
from rota.domain.project import BEING_KILLED
from rota.errors import NotFound, RequestError

if TYPE_CHECKING:
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.events import Event

MOVED_ON = "conflict"
"""The code of those that ended, or became another, before their slice came: as for one task."""


class BulkActor(CooperativeActor):
    """Does to many tasks what is asked."""

    def __init__(self, runtime: Runtime, journal: Journal) -> None:
        super().__init__(runtime)
        self._journal = journal

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is ChangeTasks:
            self._change(message)
        elif kind is ReprioritiseTask:
            self._reprioritise(message)

    def _change(self, message: ChangeTasks) -> None:
        journal, change = self._journal, message.change
        tasks = journal.state.tasks
        events: list[Event] = []
        refused: Counter[str] = Counter()
        for task_id in message.tasks:
            task = tasks.get(task_id)
            event: Event | None = None
            if task is not None and is_meant(task, message.meant, change):
                if change.how == CANCEL and task_id in journal.state.projects.killing:
                    refused[BEING_KILLED] += 1
                    continue
                event = decide_change(task, change)
            if event is not None:
                events.append(event)
            else:
                refused[MOVED_ON] += 1
        if events:
            journal.record(*events, by=message.by)
        journal.answer(message.reply, Changed(len(events), dict(refused)))

    def _reprioritise(self, message: ReprioritiseTask) -> None:
        task = self._journal.state.tasks.get(message.task)
        try:
            if task is None:
                raise NotFound("task not found", details={"taskId": message.task})
            event = decide_priority(task, message.priority)
        except RequestError as error:
            self._journal.refuse(message.reply, error)
            return
        if event is not None:
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, task.state.value)

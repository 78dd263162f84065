"""What callbacks say: the headers and the body, in the dialect of the task or the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from rota.domain.task import Task
from rota.http import views
from rota.http.dialects import browsermanager, browseros, pinchtab

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.domain.batch import Batch
    from rota.executors.courier import Render

    Find = Callable[[str], Task | None]
    Rendered = tuple[dict[str, str], bytes]


def _native(task: Task) -> Rendered:
    headers = {"X-Rota-Event": f"task.{task.state.value}", "X-Rota-Task-Id": task.id}
    return headers, orjson.dumps(views.native(task))


def _native_batch(batch: Batch, find: Find) -> Rendered:
    view = views.batch_view(batch, [find(task_id) for task_id in batch.tasks])
    headers = {"X-Rota-Event": "batch.finished", "X-Rota-Batch-Id": batch.id}
    return headers, orjson.dumps(view)


_TASKS: dict[str, Callable[[Task], Rendered]] = {
    "native": _native,
    pinchtab.NAME: pinchtab.callback,
    browseros.NAME: browseros.callback,
    browsermanager.NAME: browsermanager.callback,
}
_BATCHES: dict[str, Callable[[Batch, Find], Rendered]] = {
    "native": _native_batch,
    browseros.NAME: browseros.batch_callback,
}


def renderers(find: Find) -> Mapping[str, Render]:
    """Give the renderer of each dialect; `find` finds the tasks of a batch."""
    return {name: _renderer(name, find) for name in _TASKS}


def _renderer(name: str, find: Find) -> Render:
    def render(subject: Task | Batch) -> Rendered:
        if isinstance(subject, Task):
            return _TASKS[name](subject)
        return _BATCHES.get(name, _native_batch)(subject, find)

    return render

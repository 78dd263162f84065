"""A task, batch or workflow that has left memory, as the record that brings it back carries it.

Only what is not empty is written, under the names of the fields, so a field that a later rota adds
is read from an older record as empty. Values are JSON text, as in memory.
"""

from __future__ import annotations

from typing import Any, TypeVar

from rota.domain.batch import FATES, Batch
from rota.domain.task import EMPTY, ROW, Task
from rota.domain.workflow import Workflow

B = TypeVar("B", bound=Batch)

_MARKS = frozenset({"entry", "holds", "waits", "weight"})
"""What the projections write on a task; one that is restored is in none of them."""


def fields_of_task(task: Task) -> dict[str, Any]:
    values = zip(ROW, task.to_row(), strict=True)
    return {name: value for name, value in values if value and name not in _MARKS}


def restored_task(fields: dict[str, Any]) -> Task:
    row = [fields.get(name, EMPTY[name]) for name in ROW]
    return Task.from_row(row)


def fields_of_batch(batch: Batch) -> dict[str, Any]:
    values = zip(batch.fields(), batch.to_row(), strict=True)
    return {name: value for name, value in values if value}


def restored_batch(fields: dict[str, Any]) -> Batch:
    return _restored(Batch, fields)


def restored_workflow(fields: dict[str, Any]) -> Workflow:
    return _restored(Workflow, fields)


def _restored(kind: type[B], fields: dict[str, Any]) -> B:
    empty = {"finished_at": 0, "finished_seq": 0, "by": "", "created_at": 0, "seq": 0}
    empty |= {"ended_as": "", "is_open": False, "is_cancelled": False}
    batch = kind.from_row([fields.get(name, empty.get(name)) for name in kind.fields()])
    batch.tasks = list(batch.tasks or ())  # its own, to count on in
    batch.fates = {**dict.fromkeys(FATES, 0), **(batch.fates or {})}
    return batch

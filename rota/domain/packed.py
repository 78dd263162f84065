"""JSON values as they are kept in memory: their text.

A list of empty lists costs twenty times its text as objects, so params, results and progress are
kept as JSON text and parsed when somebody needs them. What a value weighs is then the length of its
text: exact, cheap, and the same in a replay.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.task import Task

TASK_BYTES = 1000
"""About what a task takes in memory beyond its values."""
DEPENDENCY_BYTES = 250
FRAGMENT_BYTES_MIN = 4096


def packed(value: Any) -> bytes | None:
    """Give the text of a value; None of none."""
    return None if value is None else text_of(value)


def text_of(value: Any) -> bytes:
    """Give the text of a value, to be kept.

    It is copied: what orjson gives keeps the four kilobytes that it was written into.
    """
    return bytes(memoryview(orjson.dumps(value)))


def unpacked(text: bytes | None) -> Any:
    return None if text is None else orjson.loads(text)


class Deferred:
    """A large value of an answer: its size is known at once, it is made when `written` needs it."""

    __slots__ = ("make", "size")

    def __init__(self, size: int, make: Callable[[], Any]) -> None:
        self.size = size
        self.make = make


def spliced(text: bytes | None) -> Any:
    """Give something that is `written` as the value; a large one is not parsed for that."""
    if text is None or len(text) < FRAGMENT_BYTES_MIN:
        return unpacked(text)
    return Deferred(len(text), partial(orjson.Fragment, text))


def written(value: Any) -> bytes:
    """Give the text of a value that may have deferred parts."""
    return orjson.dumps(value, default=_made)


def _made(value: Any) -> Any:
    if isinstance(value, Deferred):
        return value.make()
    raise TypeError


def size_of(task: Task) -> int:
    """Estimate the bytes of what a task was submitted with; they never change."""
    plan, params = task.plan, task.params_json
    size = TASK_BYTES + len(task.callback or "")
    if params is not None:
        size += len(params)
    if plan is not None and plan.depends:
        size += DEPENDENCY_BYTES * len(plan.depends)
    return size


def weight_of(task: Task) -> int:
    """Estimate the bytes of a task that has ended, with what came of it."""
    size = size_of(task) + len(task.error or "")
    if task.result_json is not None:
        size += len(task.result_json)
    if task.error_details is not None:
        size += len(orjson.dumps(task.error_details))
    if task.notes is not None:
        size += len(orjson.dumps(task.notes.progress))
    return size

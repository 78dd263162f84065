"""Decide: what a task waits for, whether that can ever come, and what its parents leave it.

Dependencies are named by id, and inside a batch by `ref:name` or index. A parent that has
succeeded is met; one that failed or was cancelled dooms its dependents; one that is not known is
waited for, unless the task says `onMissing: fail`. A cycle can only close with the task that is
submitted now, so it is looked for then, along what blocked tasks wait for.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from rota.domain import events as e
from rota.domain.attempts import decide_freeing
from rota.domain.placeholders import Filling, inside
from rota.domain.task import BLOCKED, CANCELLED, FAILED, REJECTED, SUCCEEDED
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from rota.domain.task import Task

    Find = Callable[[str], Task | None]
    WaitsOf = Callable[[str], Iterable[str]]

REF, BATCH = "ref:", "bat_"
DOOMED = "dependency_failed"
"""The code of what is cancelled because a dependency of it has failed or was cancelled."""
AT_ONCE_MAX = 100
"""So many dependents are released in the record of the end that they waited for."""
PATH_SHOWN_MAX = 50


class Prospects(NamedTuple):
    """What a task's dependencies mean for it: which it waits for, and which one dooms it."""

    waits: tuple[str, ...]
    doomed_by: Task | None = None


class Items:
    """The items of a batch, by index and by ref."""

    def __init__(self, ids: Sequence[str] = (), refs: Sequence[str | None] = ()) -> None:
        self._ids = ids
        self._refs = refs
        self._places: dict[str, list[int]] = {}
        for at, ref in enumerate(refs):
            if ref is not None:
                self._places.setdefault(ref, []).append(at)

    def at(self, index: int) -> tuple[str, str | None]:
        """Give the id of an item, and the ref that it may have. Raises InvalidRequest."""
        if not 0 <= index < len(self._ids):
            raise _bad(f"there is no item {index} in this batch")
        return self._ids[index], self._refs[index]

    def of_ref(self, name: str) -> str:
        """Give the id of the one item of this ref. Raises InvalidRequest."""
        if not self._ids:
            raise _bad(f"'{REF}{name[:100]}' means an item of a batch, and this is none")
        places = self._places.get(name, [])
        if len(places) != 1:
            what = "no item" if not places else "more than one item"
            raise _bad(f"{what} of this batch has the ref '{name[:100]}'")
        return self._ids[places[0]]

    def check_prefixed(self, depends: Sequence[str | int], is_known: Callable[[str], bool]) -> None:
        """Refuse a name that means an item of this batch as it stands. Raises InvalidRequest.

        No task has that id, so whoever waited for it would wait for ever.
        """
        for each in depends:
            if isinstance(each, int) or each.startswith(REF):
                continue
            if each in self._places and not is_known(each):
                raise _bad(f"there is no task '{each[:100]}'; did you mean '{REF}{each[:100]}'?")
            is_number = each.isascii() and each.isdigit() and len(each) <= len(str(len(self._ids)))
            if is_number and int(each) < len(self._ids) and not is_known(each):
                raise _bad(f"there is no task '{each}'; did you mean {each}, without quotes?")

    def label(self, task_id: str, at: int, *, is_own: bool) -> str:
        """Name an item as its client does: by the id that it chose, its ref or its index."""
        ref = self._refs[at]
        return task_id if is_own else f"{REF}{ref}" if ref is not None else f"item {at}"


def resolve(depends: Sequence[str | int], items: Items | None = None) -> dict[str, str]:
    """Give the ids that are meant, by the names the task knows them under. Raises InvalidRequest.

    `items` are those of its batch.
    """
    found: dict[str, str] = {}
    items = items or Items()
    for each in depends:
        if isinstance(each, int):
            task_id, ref = items.at(each)
            _name(found, str(each), task_id)
            if ref is not None:
                _name(found, ref, task_id)
        elif each.startswith(REF):
            name = each.removeprefix(REF)
            _name(found, name, items.of_ref(name))
        elif each.startswith(BATCH):
            raise _bad(f"'{each[:100]}' is a batch; name its tasks")
        else:
            _name(found, each, each)
    return found


def check_no_batch(depends: Iterable[str | int], batches: Container[str | int]) -> None:
    """Refuse to wait for a batch, which no task ever is. Raises InvalidRequest."""
    for each in depends:
        if each in batches:
            raise _bad(f"'{str(each)[:100]}' is a batch; name its tasks")


def _name(found: dict[str, str], name: str, task_id: str) -> None:
    """Know a task under a name; under its id, or one made from it, if another has the name."""
    if found.setdefault(name, task_id) == task_id:
        return
    names = chain((task_id,), (f"{task_id}#{n}" for n in count(2)))
    while found.setdefault(next(names), task_id) != task_id:
        pass


def decide_dependencies(
    depends: Mapping[str, str], on_missing: str, find: Find, known: frozenset[str] = frozenset()
) -> Prospects:
    """Look at each dependency; `known` are being submitted too. Raises InvalidRequest."""
    waits: dict[str, None] = {}
    doomed_by = None
    for task_id in depends.values():
        parent = None if task_id in known else find(task_id)
        if parent is None:
            if on_missing == "fail" and task_id not in known:
                raise _bad(f"there is no task '{task_id[:100]}'", "missing_dependency", task_id)
            waits[task_id] = None
        elif parent.state is REJECTED:
            raise _bad(f"task '{task_id}' was rejected", "dependency_rejected", task_id)
        elif parent.state is not SUCCEEDED:
            waits[task_id] = None
            if parent.state in (FAILED, CANCELLED) and doomed_by is None:
                doomed_by = parent
    return Prospects(tuple(waits), doomed_by)


def doom_reason(parent: Task) -> str:
    """Say why a dependent of this parent is cancelled."""
    was = "was " if parent.state is CANCELLED else ""
    return f"dependency {parent.id} {was}{parent.state.value}"


def doomed_by(reason: str) -> str:
    """Name the parent in such a reason."""
    return reason.removeprefix("dependency ").partition(" ")[0]


def decide_doom(
    event: e.TaskSubmitted, prospects: Prospects, replaced: Task | None = None
) -> tuple[e.TaskCancelled, ...]:
    """Cancel a task as it comes in that waits for one which has failed or was cancelled.

    `replaced` is cancelled in the same step.
    """
    if replaced is not None and replaced.id in prospects.waits:
        reason = f"dependency {replaced.id} was {CANCELLED.value}"
    elif prospects.doomed_by is not None:
        reason = doom_reason(prospects.doomed_by)
    else:
        return ()
    was = BLOCKED.value
    return (e.TaskCancelled(event.task, event.agent, was, reason, DOOMED),)


def decide_dependents(
    parent: str, children: Iterable[Task], rank_of: Callable[[Task], int], now: int
) -> list[e.TaskReleased | e.TaskDelayed]:
    """Let the dependents go at once that waited for the success of `parent` alone.

    They are recorded with it, so that they are ready before anybody can give its slot away. Of many
    these are the best `AT_ONCE_MAX` by rank; the rest are settled in the next turns of the loop.
    """
    free = [child for child in children if child.waits == {parent}]
    best = nsmallest(AT_ONCE_MAX, free, key=lambda child: (rank_of(child), child.created_seq))
    return [decide_freeing(child, now) for child in best]


def check_cycles(
    edges: Mapping[str, Iterable[str]],
    waits_of: WaitsOf,
    label: Callable[[str], str] = str,
) -> None:
    """Refuse new edges that close a cycle, showing it. Raises InvalidRequest.

    `edges` are the new tasks' dependencies; `waits_of` gives those of tasks that exist; `label`
    names a task as the client knows it.
    """
    done: set[str] = set()
    for start in edges:
        path: dict[str, None] = {}
        stack = [(start, iter(edges[start]))] if start not in done else []
        if stack:
            path[start] = None
        while stack:
            at, rest = stack[-1]
            for task_id in rest:
                if task_id in path:
                    walked = list(path)
                    raise _cycle(list(map(label, [*walked[walked.index(task_id) :], task_id])))
                if task_id not in done:
                    onward = edges[task_id] if task_id in edges else waits_of(task_id)
                    if not onward:
                        done.add(task_id)
                        continue
                    stack.append((task_id, iter(onward)))
                    path[task_id] = None
                    break
            else:
                stack.pop()
                del path[at]
                done.add(at)


def _cycle(path: list[str]) -> InvalidRequest:
    shown = path if len(path) <= PATH_SHOWN_MAX else [*path[:PATH_SHOWN_MAX], "..."]
    msg = f"dependsOn closes a cycle: {' -> '.join(shown)}"
    return InvalidRequest(msg, code="dependency_cycle", details={"path": shown})


def _bad(problem: str, code: str = "bad_request", task_id: str = "") -> InvalidRequest:
    details = {"field": "dependsOn"}
    if task_id:
        details["taskId"] = task_id[:200]
    return InvalidRequest(f"field 'dependsOn': {problem}", code=code, details=details)


# -- results flow ------------------------------------------------------------------------------


class Results(Filling):
    """What a task's parents leave it, put in where its params say `{{name}}`.

    `name` is the parent's id, its ref, or the index that `dependsOn` gave; `{{name.field.0}}`
    reaches into its result. Names that are no dependency's stay as they are.
    """

    def __init__(self, depends: Mapping[str, str], find: Find) -> None:
        """Look parents up by `find` when they are asked for."""
        super().__init__()
        self._tree: dict[str, Any] = {}
        for each, parent in {**{each: each for each in depends.values()}, **depends}.items():
            node = self._tree
            for step in each.split("."):
                node = node.setdefault(step, {})
            node[_HERE] = parent
        self._find = find
        self._known: dict[str, tuple[Any, int]] = {}
        self._meant: dict[str, tuple[str, str]] = {}  # parents and paths by placeholder
        self._values: dict[tuple[str, str], Any] = {}  # what those paths lead to

    def value_of(self, name: str) -> tuple[bool, Any]:
        """Find `name`, or `name.path` inside of it; a path that leads nowhere gives null."""
        if name not in self._meant:
            self._meant[name] = self._parse(name)
        parent, path = self._meant[name]
        if not parent:
            return False, None
        value = self._result_of(parent)
        if path:
            if (parent, path) not in self._values:
                for step in path.split("."):
                    value = inside(value, step)
                    if value is None:
                        break
                self._values[parent, path] = value
            value = self._values[parent, path]
        return True, value

    def _parse(self, name: str) -> tuple[str, str]:
        """Give the parent that a name means, and the path inside of its result."""
        if name.partition(".")[0] not in self._tree:
            return "", ""
        steps = name.split(".")
        node, parent, at = self._tree, "", 0
        for n, step in enumerate(steps, 1):
            node = node.get(step, _NOWHERE)
            if not node:
                break
            if _HERE in node:  # the longest name of a parent counts
                parent, at = node[_HERE], n
        return parent, ".".join(filter(None, steps[at:])) if parent else ""

    def _result_of(self, parent: str) -> Any:
        """Give what a parent left, and count its bytes."""
        if parent not in self._known:
            task = self._find(parent)
            value = task.result if task is not None else None
            self._known[parent] = (value, len(orjson.dumps(value)))
        value, size = self._known[parent]
        self.spend(size)
        return value


_HERE = "."
"""No step of a name: what ends here is a parent's name."""
_NOWHERE: dict[str, Any] = {}

"""Waiting for ends: of one task by a long poll, of many tasks, a batch or a workflow by the feed.

Nobody asks again and again. Who waits for many first notes the end of the log, then looks at each,
then reads what has ended since; so nothing falls between looking and listening.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.client.calls.history import END_KINDS, head_call, stream_at
from rota.client.calls.projects import run_call
from rota.client.calls.tasks import get_call
from rota.client.faces import does
from rota.client.models import ENDED, Batch, Task, Workflow, read_task
from rota.client.paths import path_of
from rota.client.steps import Call, Flow, Json, Next, Sleep, Together, is_passing, pauses
from rota.client.work_models import RUN_ENDED, Run
from rota.clock import monotonic_s
from rota.errors import RotaError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WAIT_S = 60.0
LONG_POLL_S = 25.0
"""How long one request waits for a task: less than most proxies bear."""
GETS_AT_ONCE = 32
LOOK_S = 0.1
"""How often at most a batch is looked at to tell of its progress."""
BUSY_S, BUSY_S_MAX = 0.005, 0.25
ANYTHING: type[Any] = object
"""A result may be any JSON."""


class WaitCalls:
    """For `waitMs` and the feed.

    Each raises WaitTimeout if the end has not come within `timeout_s`; its `last` is what is waited
    for, as it is then.
    """

    @does(Task)
    def wait(self, task_id: str, timeout_s: float = WAIT_S) -> Flow[Json]:
        """Give the task once it has ended, however. Raises NotFound, WaitTimeout."""
        task: Json = yield from _wait(task_id, timeout_s)
        return task

    @does(ANYTHING)
    def result(self, task_id: str, timeout_s: float = WAIT_S) -> Flow[Any]:
        """Wait for the end of a task, and give its result.

        Raises TaskFailed, TaskCancelled or TaskRejected if it has none, with the task and the code
        and message of its error; NotFound, WaitTimeout.
        """
        task = read_task((yield from _wait(task_id, timeout_s)))
        return task.value()

    @does(list[Task])
    def wait_many(
        self,
        task_ids: Iterable[str],
        timeout_s: float = WAIT_S,
        *,
        on_end: Callable[[Task], None] | None = None,
    ) -> Flow[list[Json]]:
        """Give the tasks once all have ended; in order.

        `on_end` is told of each as it ends. Raises NotFound if one does not exist, WaitTimeout.
        """
        ids = list(task_ids)
        feed = _Feed(monotonic_s() + timeout_s, END_KINDS)
        at = (yield head_call())["seq"]
        found: dict[str, Json] = {}
        waited = set(ids)
        fresh = yield from _get_all(list(dict.fromkeys(ids)))
        while True:
            for task in fresh:
                found[task["taskId"]] = task
                if _has_ended(task):
                    waited.discard(task["taskId"])
                    if on_end is not None:
                        on_end(read_task(task))
            if not waited:
                return [found[each] for each in ids]
            event = yield from feed.until(at, lambda event: event.get("task") in waited)
            if event is None:
                found |= {task["taskId"]: task for task in (yield from _get_all(list(waited)))}
                left = [each for each in waited if not _has_ended(found[each])]
                if not left:
                    return [found[each] for each in ids]
                what = f"{len(left)} of {len(ids)} tasks have"
                raise _too_late(what, timeout_s, [found[each] for each in ids])
            at = event["seq"]
            fresh = yield from _get_all([event["task"]])

    @does(Batch)
    def wait_batch(
        self,
        batch_id: str,
        timeout_s: float = WAIT_S,
        *,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Flow[Json]:
        """Give the batch once all of it has ended. Raises NotFound, WaitTimeout.

        `on_progress` is told how many tasks have ended, of how many.
        """
        call = Call("GET", path_of("batches", batch_id), is_safe=True)
        told = END_KINDS if on_progress is not None else ()
        feed = _Feed(monotonic_s() + timeout_s, ("batch_finished", *told))
        at = (yield head_call())["seq"]
        while True:
            looked = monotonic_s()
            batch: Json = yield call
            if on_progress is not None:
                on_progress(ended_of(batch), batch["total"])
            if batch["state"] == "finished":
                return batch
            members = {task["taskId"] for task in batch["tasks"]}

            def concerns(event: Json, members: set[str] = members, looked: float = looked) -> bool:
                if event["kind"] == "batch_finished":
                    return bool(event["data"]["batch"] == batch_id)
                return event.get("task") in members and monotonic_s() - looked >= LOOK_S

            event = yield from feed.until(at, concerns)
            if event is None:
                batch = yield call
                if batch["state"] == "finished":
                    return batch
                raise _too_late(f"batch {batch_id} has", timeout_s, batch)
            at = event["seq"]

    @does(Workflow)
    def wait_workflow(self, workflow_id: str, timeout_s: float = WAIT_S) -> Flow[Json]:
        """Give the workflow once it has ended. Raises NotFound, WaitTimeout."""
        call = Call("GET", path_of("workflows", workflow_id), is_safe=True)
        feed = _Feed(monotonic_s() + timeout_s, ("workflow_ended",))
        at = (yield head_call())["seq"]
        while True:
            flow: Json = yield call
            if "completedAt" in flow:
                return flow
            event = yield from feed.until(at, lambda each: each["data"]["workflow"] == workflow_id)
            if event is None:
                flow = yield call
                if "completedAt" in flow:
                    return flow
                raise _too_late(f"workflow {workflow_id} has", timeout_s, flow)
            at = event["seq"]

    @does(Run)
    def wait_run(self, project: str, run_id: str, timeout_s: float = WAIT_S) -> Flow[Json]:
        """Give a run of a project once it has ended. Raises NotFound, WaitTimeout."""
        run: Json = yield from _poll(
            lambda wait_s: run_call(project, run_id, wait_s=wait_s),
            lambda run: run["state"] in RUN_ENDED,
            run_id,
            timeout_s,
        )
        return run


def _wait(task_id: str, timeout_s: float) -> Flow[Json]:
    return _poll(lambda wait_s: get_call(task_id, wait_s=wait_s), _has_ended, task_id, timeout_s)


def _poll(
    call: Callable[[float], Call], has_ended: Callable[[Json], bool], name: str, timeout_s: float
) -> Flow[Json]:
    end = monotonic_s() + timeout_s
    tries = pauses(BUSY_S, BUSY_S_MAX)
    while True:
        asked = monotonic_s()
        wait_s = min(max(end - asked, 0.0), LONG_POLL_S)
        try:
            found: Json = yield call(wait_s)
        except RotaError as error:
            if error.code not in ("too_many_streams", "too_many_waiting"):
                raise
            found = yield call(0)
        now = monotonic_s()
        if has_ended(found):
            return found
        if now >= end:
            raise _too_late(f"{name} is {found['state']}, and has", timeout_s, found)
        if now < asked + wait_s:  # it could not wait for us
            yield Sleep(min(next(tries), end - now))


def _too_late(what: str, timeout_s: float, last: Any) -> WaitTimeout:
    return WaitTimeout(f"{what} not ended after {timeout_s:g} s", last)


class _Feed:
    """The stream that a wait listens to; it goes on after a broken connection."""

    def __init__(self, end: float, kinds: tuple[str, ...]) -> None:
        self._end = end
        self._open_at = stream_at(kinds=kinds)
        self._is_open = False

    def until(self, after: int, concerns: Callable[[Json], bool]) -> Flow[Json | None]:
        """Give the next event that concerns somebody; None when the time is over."""
        tries = pauses()
        while True:
            left = self._end - monotonic_s()
            if left <= 0:
                return None
            try:
                if not self._is_open:
                    yield self._open_at(after)
                    self._is_open = True
                event: Json | None = yield Next(left)
            except RotaError as error:
                if not is_passing(error):
                    raise
                event = None
            if event is None:
                self._is_open = False
                yield Sleep(min(next(tries), max(self._end - monotonic_s(), 0.0)))
                continue
            after = event["seq"]
            if concerns(event):
                return event


def _has_ended(task: Json) -> bool:
    return task["state"] in ENDED


def _get_all(task_ids: list[str]) -> Flow[list[Json]]:
    answers: list[Json | RotaError] = yield Together(
        [get_call(task_id) for task_id in task_ids], GETS_AT_ONCE
    )
    found: list[Json] = []
    for answer in answers:
        if isinstance(answer, RotaError):
            raise answer
        found.append(answer)
    return found


def ended_of(batch: Json) -> int:
    """Count the tasks of a batch that have ended."""
    counts: dict[str, int] = batch["counts"]
    return sum(counts.get(state, 0) for state in ENDED)

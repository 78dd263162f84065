"""Tasks: submitting them, looking at them, ending them, and what they say while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rota.client.calls.history import END_KINDS, head_call, stream_at
from rota.client.faces import asks, does, iterates
from rota.client.fields import TaskBody
from rota.client.models import ENDED, LogLine, LogPage, Submitted, Task, TaskPage, TaskState
from rota.client.pages import all_rows
from rota.client.paths import keyed_body, listed, path_of, said
from rota.client.steps import Call, Flow, Give, Json, Rows, Together, sifted, stream_rows
from rota.clock import rfc3339
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rota.client.fields import Level, State, TaskFields

SUBMITS_AT_ONCE = 32


class TaskCalls:
    """/v1/tasks."""

    retries: int

    @asks(Submitted)
    def submit(self, /, action: str, agent: str, **fields: Unpack[TaskFields]) -> Call:
        """Submit a task.

        Its fields are those of the API in snake_case, and durations in seconds: params, priority,
        deadline, depends_on, delay_s, timeout_s, retry, idempotency_key and so on. Without such a
        key the client makes one, so that it can send the task again without fear of a second one;
        it does not if `retries` is 0.
        """
        return _submit_call({**fields, "action": action, "agent": agent}, self.retries)

    @does(list[Submitted])
    def submit_many(
        self, tasks: Iterable[TaskBody], /, *, agent: str | None = None, raises: bool = True
    ) -> Flow[list[Json]]:
        """Submit tasks, each on its own and several at once; give their answers, in order.

        A task has the fields of `submit`; `agent` is for those that name none. When all have been
        tried the first refusal is raised, or with `raises=False` each is in the place of its
        answer, with its code and error. To submit all or none, see `submit_batch`.
        """
        named = {"agent": agent} if agent is not None else {}
        calls = [_submit_call({**named, **task}, self.retries) for task in tasks]
        answers: list[Json | RotaError] = yield Together(calls, SUBMITS_AT_ONCE)
        refused = [answer for answer in answers if isinstance(answer, RotaError)]
        if refused and raises:
            raise refused[0]
        return [_shown(answer) for answer in answers]

    @asks(Task)
    def get(self, task_id: str, *, wait_s: float = 0.0, at: int | str | None = None) -> Call:
        """Give one task; with `wait_s` when it has ended, or after so long. Raises NotFound.

        With `at`, a seq or an RFC 3339 moment, it is the task as it was then.
        """
        return get_call(task_id, wait_s=wait_s, at=at)

    @asks(TaskPage)
    def tasks(
        self,
        *,
        agent: str | None = None,
        state: State | Sequence[State] | None = None,
        action: str | None = None,
        batch_id: str | None = None,
        workflow_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call:
        """Give a page of tasks, newest first; `next_cursor` leads to the next one."""
        query = {"agentId": agent, "state": listed(state), "type": action, "batchId": batch_id}
        query |= {"workflowId": workflow_id, "cursor": cursor}
        return Call("GET", "/v1/tasks", {**query, "limit": limit}, is_safe=True)

    @iterates(Task)
    def iter_tasks(
        self,
        *,
        agent: str | None = None,
        state: State | Sequence[State] | None = None,
        action: str | None = None,
        batch_id: str | None = None,
        workflow_id: str | None = None,
    ) -> Rows[Json]:
        """Give all tasks, newest first, asked for a page at a time; filters as of `tasks`."""
        query = {"agentId": agent, "state": listed(state), "type": action, "batchId": batch_id}
        return all_rows("tasks", "/v1/tasks", {**query, "workflowId": workflow_id})

    @asks(TaskState)
    def cancel(self, task_id: str, reason: str = "") -> Call:
        """Cancel a task. Raises NotFound, or Conflict if it has ended."""
        return Call("POST", path_of("tasks", task_id, "cancel"), body={"reason": reason})

    @asks(TaskState)
    def retry(self, task_id: str) -> Call:
        """Give a failed task a new life. Raises NotFound, Conflict, or QueueFull."""
        return Call("POST", path_of("tasks", task_id, "retry"))

    # -- what a task says --------------------------------------------------------------------

    @asks(LogPage)
    def logs(
        self, task_id: str, *, cursor: int | str | None = None, limit: int | None = None
    ) -> Call:
        """Give a page of a task's log, oldest first, after `cursor` lines. Raises NotFound."""
        return _logs_call(task_id, cursor, limit)

    @iterates(LogLine)
    def iter_logs(self, task_id: str) -> Rows[Json]:
        """Give a task's whole log as it is now, asked for a page at a time. Raises NotFound."""
        return all_rows("lines", path_of("tasks", task_id, "logs"), {}, page_rows=None)

    @iterates(LogLine)
    def follow_logs(
        self, task_id: str, *, on_lost: Callable[[str], None] | None = None
    ) -> Rows[Json]:
        """Give a task's log from its first line on, until the task ends. Raises NotFound.

        A lost connection is made again, as `stream` does.
        """
        given = 0
        while True:
            at = (yield head_call())["seq"]
            ended = (yield get_call(task_id))["state"] in ENDED
            lines = (yield _logs_call(task_id, given))["lines"]
            for line in lines:
                yield Give(line)
            given += len(lines)
            if not lines:  # so none was written since `at`
                break
        if ended:
            return
        open_at = stream_at(kinds=("task_logged", *END_KINDS), task_id=task_id)
        yield from sifted(stream_rows(open_at, at, on_lost), _lines_of)

    @asks(TaskState)
    def add_logs(
        self, task_id: str, lines: Iterable[str], *, level: Level = "info", token: int | None = None
    ) -> Call:
        """Add lines to a task's log. Raises NotFound, or Conflict if it has ended.

        With an attempt's `token` also once another attempt runs, with code `stale_attempt`.
        """
        body = said({"lines": list(lines), "level": level, "token": token})
        return Call("POST", path_of("tasks", task_id, "logs"), body=body)

    @asks(TaskState)
    def add_progress(
        self, task_id: str, progress: Json | float | str, *, token: int | None = None
    ) -> Call:
        """Say how far a task has come. Raises as `add_logs` does."""
        body = said({"progress": progress, "token": token})
        return Call("POST", path_of("tasks", task_id, "progress"), body=body)


def get_call(task_id: str, *, wait_s: float = 0.0, at: int | str | None = None) -> Call:
    query = {"waitMs": round(wait_s * 1000) or None, "at": at}
    return Call("GET", path_of("tasks", task_id), query, wait_s=wait_s, is_safe=True)


def _submit_call(fields: Json, retries: int) -> Call:
    body = keyed_body(fields, TaskBody, retries)
    return Call("POST", "/v1/tasks", body=body, is_safe="idempotencyKey" in body)


def _logs_call(task_id: str, cursor: int | str | None = None, limit: int | None = None) -> Call:
    query = {"cursor": cursor, "limit": limit}
    return Call("GET", path_of("tasks", task_id, "logs"), query, is_safe=True)


def _shown(answer: Json | RotaError) -> Json:
    if isinstance(answer, RotaError):
        return said({"code": answer.code, "error": answer.message, "details": answer.details})
    return answer


def _lines_of(event: Json) -> list[Json] | None:
    """Give the lines of an event as `logs` shows them; None at the end of the task."""
    if event["kind"] in END_KINDS:
        return None
    data = event["data"]
    head = {"at": rfc3339(event["at"]), "level": data.get("level", "info")}
    attempt = {"attempt": data["attempt"]} if data.get("attempt") else {}
    return [{**head, "message": text, **attempt} for text in data["lines"]]

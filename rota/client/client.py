"""A small synchronous client of the native API, on the standard library alone.

`RotaClient(url, token=...)` has a method for each thing one asks a server; answers are the parsed
JSON. What the server refuses is raised as the class of rota.errors that it was, with its code,
status and details; a server that cannot be reached is `ServerUnreachable`. Every request has its
own connection and its own time limit, so a client may be shared by threads, and nothing is ever
sent twice. `stream` and `follow_logs` alone reconnect by themselves, from the last event they gave.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rota.client.flows import FlowCalls
from rota.client.pages import PAGE_ROWS, rows_of
from rota.client.paths import path_of, path_of_pause
from rota.client.transport import DEFAULT_URL, Json, Transport
from rota.clock import monotonic_s, rfc3339, sleep_s
from rota.errors import RotaError, ServerUnreachable, ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TIMEOUT_S = 30.0
WAIT_S = 60.0
LONG_POLL_S = 25.0
"""How long one request waits for a task: less than most proxies bear."""
POLL_S = 0.005
POLL_S_MAX = 0.25
RECONNECT_S = 0.1
RECONNECT_S_MAX = 5.0
TERMINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "rejected"})
END_KINDS = ("task_succeeded", "task_failed", "task_expired", "task_cancelled")
"""The kinds of events that end a task."""


class RotaClient(FlowCalls):
    """Talks to one server."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        namespace: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take the server's address. Raises InvalidRequest if it is not one.

        What is not given is taken from ROTA_URL, ROTA_TOKEN and ROTA_NAMESPACE, as by the command
        line.
        """
        environ = os.environ
        address = url or environ.get("ROTA_URL") or DEFAULT_URL
        secret = token if token is not None else environ.get("ROTA_TOKEN")
        name = namespace if namespace is not None else environ.get("ROTA_NAMESPACE")
        self._http = Transport(address, secret or None, timeout_s, name)
        self.url = self._http.url

    # -- tasks -------------------------------------------------------------------------------

    def submit(self, action: str, agent: str, **fields: Any) -> Json:
        """Submit a task; `fields` are the body's others, by their names on the wire.

        Such as params, priority, deadline, dependsOn, delayMs, timeoutMs, retry, idempotencyKey.
        """
        body = {name: value for name, value in fields.items() if value is not None}
        return self._post("/v1/tasks", {"agentId": agent, "action": action, **body})

    def get(self, task_id: str, *, wait_s: float = 0.0, at: int | str | None = None) -> Json:
        """Give one task; with `wait_s` when it has ended, or after so long. Raises NotFound.

        With `at`, a seq or an RFC 3339 moment, it is the task as it was then.
        """
        query = {"waitMs": round(wait_s * 1000) or None, "at": at}
        return self._http.ask("GET", path_of("tasks", task_id), query=query, wait_s=wait_s)

    def tasks(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        action: str | None = None,
        batch: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """Give a page of tasks, newest first; `nextCursor` leads to the next one."""
        query = {"agentId": agent, "state": state, "type": action, "batchId": batch}
        return self._get("/v1/tasks", **query, limit=limit, cursor=cursor)

    def iter_tasks(self, **filters: str | None) -> Iterator[Json]:
        """Give all tasks, newest first, asked for a page at a time; `filters` as of `tasks`."""
        return rows_of("tasks", self.tasks, **filters)

    def cancel(self, task_id: str, reason: str = "") -> Json:
        """Cancel a task. Raises NotFound, or Conflict if it has ended."""
        return self._post(path_of("tasks", task_id, "cancel"), {"reason": reason})

    def retry(self, task_id: str) -> Json:
        """Give a failed task a new life. Raises NotFound, Conflict, or QueueFull."""
        return self._post(path_of("tasks", task_id, "retry"))

    def wait(self, task_id: str, timeout_s: float = WAIT_S) -> Json:
        """Give the task once it has ended, or as it is after `timeout_s`."""
        end = monotonic_s() + timeout_s
        pause = POLL_S
        while True:
            asked = monotonic_s()
            wait_s = min(max(end - asked, 0.0), LONG_POLL_S)
            try:
                task = self.get(task_id, wait_s=wait_s)
            except RotaError as error:
                if error.code != "too_many_streams":
                    raise
                task = self.get(task_id)
            now = monotonic_s()
            if task["state"] in TERMINAL_STATES or now >= end:
                return task
            if now < asked + wait_s:  # it could not wait for us
                sleep_s(min(pause, end - now))
                pause = min(pause * 2, POLL_S_MAX)

    # -- what a task says --------------------------------------------------------------------

    def logs(self, task_id: str, *, cursor: int | None = None, limit: int | None = None) -> Json:
        """Give a page of a task's log, oldest first, after `cursor` lines. Raises NotFound."""
        return self._get(path_of("tasks", task_id, "logs"), cursor=cursor, limit=limit)

    def iter_logs(self, task_id: str) -> Iterator[Json]:
        """Give a task's whole log as it is now, asked for a page at a time. Raises NotFound."""
        cursor: int | None = None
        while True:
            page = self.logs(task_id, cursor=cursor)
            yield from page["lines"]
            if "nextCursor" not in page:
                return
            cursor = int(page["nextCursor"])

    def follow_logs(
        self, task_id: str, *, on_lost: Callable[[str], None] | None = None
    ) -> Iterator[Json]:
        """Give a task's log from its first line on, until the task ends. Raises NotFound.

        A lost connection is made again, as `stream` does.
        """
        given = 0
        while True:
            at = self.head()["seq"]
            ended = self.get(task_id)["state"] in TERMINAL_STATES
            lines = self.logs(task_id, cursor=given)["lines"]
            yield from lines
            given += len(lines)
            if not lines:  # so none was written since `at`
                break
        if ended:
            return
        kinds = ("task_logged", *END_KINDS)
        for event in self.stream(after=at, kinds=kinds, task=task_id, on_lost=on_lost):
            if event["kind"] in END_KINDS:
                return
            yield from _lines_of(event)

    def add_logs(
        self, task_id: str, lines: Iterable[str], *, level: str = "info", token: int | None = None
    ) -> Json:
        """Add lines to a task's log. Raises NotFound, or Conflict if it has ended.

        With an attempt's `token` also once another attempt runs, with code `stale_attempt`.
        """
        body = {"lines": list(lines), "level": level, **_token(token)}
        return self._post(path_of("tasks", task_id, "logs"), body)

    def add_progress(
        self, task_id: str, progress: Json | float | str, *, token: int | None = None
    ) -> Json:
        """Say how far a task has come. Raises as `add_logs` does."""
        body = {"progress": progress, **_token(token)}
        return self._post(path_of("tasks", task_id, "progress"), body)

    # -- batches -----------------------------------------------------------------------------

    def submit_batch(self, tasks: Iterable[Json], /, **fields: Any) -> Json:
        """Submit tasks together, all of them or none.

        A task is a body as of `submit`, which may name its `ref` for others' dependsOn; `fields`
        are the batch's: agentId, parallelism, callbackUrl, idempotencyKey.
        """
        body = {name: value for name, value in fields.items() if value is not None}
        return self._post("/v1/batches", {**body, "tasks": list(tasks)})

    def get_batch(self, batch_id: str) -> Json:
        """Give one batch, with how many of its tasks are in which state. Raises NotFound."""
        return self._get(path_of("batches", batch_id))

    def cancel_batch(self, batch_id: str, reason: str = "") -> Json:
        """Cancel what has not ended of a batch. Raises NotFound, or Conflict if all has."""
        return self._post(path_of("batches", batch_id, "cancel"), {"reason": reason})

    def wait_batch(
        self,
        batch_id: str,
        timeout_s: float = WAIT_S,
        *,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Json:
        """Give the batch once all of it has ended, or as it is after `timeout_s`.

        `on_progress` is told how many tasks have ended, of how many.
        """
        end = monotonic_s() + timeout_s
        pause = POLL_S
        while True:
            batch = self.get_batch(batch_id)
            if on_progress is not None:
                on_progress(ended_of(batch), batch["total"])
            left = end - monotonic_s()
            if batch["state"] == "finished" or left <= 0:
                return batch
            sleep_s(min(pause, left))
            pause = min(pause * 2, POLL_S_MAX)

    # -- history -----------------------------------------------------------------------------

    def task_events(self, task_id: str) -> list[Json]:
        """Give the whole history of one task, oldest first. Raises NotFound."""
        return list(self.iter_task_events(task_id))

    def iter_task_events(self, task_id: str, *, after: int = 0) -> Iterator[Json]:
        """Give the same one by one, after a seq, asked for a page at a time."""
        place: int | None = after
        while place is not None:
            page = self._get(path_of("tasks", task_id, "events"), after=place)
            yield from page["events"]
            place = page.get("next")

    def events(
        self,
        *,
        after: int = 0,
        limit: int | None = None,
        kinds: Iterable[str] = (),
        task: str | None = None,
        agent: str | None = None,
    ) -> Json:
        """Give a page of the history after a seq; the next page is after its `next`."""
        query = {"kind": ",".join(kinds), "task": task, "agentId": agent}
        return self._get("/v1/events", after=after, limit=limit, **query)

    def iter_events(
        self,
        *,
        after: int = 0,
        kinds: Iterable[str] = (),
        task: str | None = None,
        agent: str | None = None,
    ) -> Iterator[Json]:
        """Give the history after a seq to its present end, asked for a page at a time."""
        kinds, is_more = tuple(kinds), True
        while is_more:
            page = self.events(after=after, limit=PAGE_ROWS, kinds=kinds, task=task, agent=agent)
            yield from page["events"]
            after = page["next"]
            is_more = after < page["head"]

    def head(self) -> Json:
        """Give the seq and the digest of the last event."""
        return self._get("/v1/events/head")

    def stream(
        self,
        *,
        after: int | None = None,
        kinds: Iterable[str] = (),
        task: str | None = None,
        agent: str | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> Iterator[Json]:
        """Give events as they happen, from `after` or from now on, for ever.

        A lost connection is made again, from the last event given, as often as it takes; `on_lost`
        is told. Raises if the first one cannot be made, or the server refuses.
        """
        at = self.head()["seq"] if after is None else after
        query = {"kind": ",".join(kinds), "task": task, "agentId": agent}
        connected = False
        pause = RECONNECT_S
        while True:
            try:
                for event in self._http.stream("/v1/events/stream", at, query):
                    connected = True
                    if event is not None:
                        at, pause = event["seq"], RECONNECT_S
                        yield event
                lost = "the server ended the stream"
            except (ServerUnreachable, ShuttingDown) as error:
                if not connected:
                    raise
                lost = error.message
            if on_lost is not None:
                on_lost(lost)
            sleep_s(pause)
            pause = min(pause * 2, RECONNECT_S_MAX)

    # -- the server --------------------------------------------------------------------------

    def pause(
        self, *, agent: str | None = None, action: str | None = None, reason: str = ""
    ) -> Json:
        """Dispatch nothing more of an agent, of a type, or with neither at all."""
        return self._post(f"{path_of_pause(agent, action)}/pause", {"reason": reason})

    def resume(self, *, agent: str | None = None, action: str | None = None) -> Json:
        """Dispatch again what `pause` held back."""
        return self._post(f"{path_of_pause(agent, action)}/resume")

    def scheduler(self) -> Json:
        """Say what is paused."""
        return self._get("/v1/scheduler")

    def agents(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Json:
        """Give a page of agents, by name, with what each has waiting and in flight.

        `state` is busy, waiting, inflight or paused; `nextCursor` leads to the next page.
        """
        return self._get("/v1/agents", state=state, limit=limit, cursor=cursor)

    def change_limits(self, **scheduler: Any) -> Json:
        """Put other limits in force, such as maxInflight=40, until a restart or a reload."""
        return self._post("/v1/config/reload", {"scheduler": scheduler})

    def types(self) -> Json:
        """Give the types of tasks, with their settings and what each has in flight."""
        return self._get("/v1/types")

    def stats(self) -> Json:
        """Give the counters."""
        return self._get("/v1/stats")

    def config(self) -> Json:
        """Give the settings in force, without secrets."""
        return self._get("/v1/config")

    def namespaces(self) -> Json:
        """Give the server's namespaces, and their states."""
        return self._get("/v1/namespaces")

    def health(self) -> Json:
        """Give what the server says of its health."""
        return self._get("/health")

    # -- HTTP --------------------------------------------------------------------------------

    def _get(self, path: str, /, **query: Any) -> Json:
        return self._http.ask("GET", path, query=query)

    def _post(self, path: str, body: Json | None = None) -> Json:
        return self._http.ask("POST", path, body=body)


def ended_of(batch: Json) -> int:
    """Count the tasks of a batch that have ended."""
    return sum(batch["counts"].get(state, 0) for state in TERMINAL_STATES)


def _token(token: int | None) -> Json:
    return {} if token is None else {"token": token}


def _lines_of(event: Json) -> Iterator[Json]:
    """Give the lines of an event as `logs` shows them."""
    data = event["data"]
    head = {"at": rfc3339(event["at"]), "level": data.get("level", "info")}
    attempt = {"attempt": data["attempt"]} if data.get("attempt") else {}
    for text in data["lines"]:
        yield {**head, "message": text, **attempt}

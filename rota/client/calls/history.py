"""What has happened: pages of the history, one task's, and the feed as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.client.faces import asks, does, iterates
from rota.client.models import Event, EventPage, Head
from rota.client.pages import PAGE_ROWS
from rota.client.paths import path_of
from rota.client.steps import Call, Flow, Give, Json, Open, Rows, stream_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.client.fields import View

END_KINDS = ("task_succeeded", "task_failed", "task_expired", "task_cancelled")
"""The kinds of events that end a task."""


class HistoryCalls:
    """/v1/events, /v1/tasks/{id}/events."""

    @does(list[Event])
    def task_events(self, task_id: str) -> Flow[list[Json]]:
        """Give the whole history of one task, oldest first. Raises NotFound."""
        found: list[Json] = []
        place: int | None = 0
        while place is not None:
            page: Json = yield _task_page(task_id, place)
            found += page["events"]
            place = page.get("next")
        return found

    @iterates(Event)
    def iter_task_events(self, task_id: str, *, after: int = 0) -> Rows[Json]:
        """Give the same one by one, after a seq, asked for a page at a time."""
        place: int | None = after
        while place is not None:
            page: Json = yield _task_page(task_id, place)
            for event in page["events"]:
                yield Give(event)
            place = page.get("next")

    @asks(EventPage)
    def events(
        self,
        *,
        after: int = 0,
        limit: int | None = None,
        kinds: Iterable[str] = (),
        task_id: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        view: View | None = None,
    ) -> Call:
        """Give a page of the history after a seq; the next page is after its `next`."""
        query = _wanted(kinds, task_id, agent, project, view)
        return Call("GET", "/v1/events", {"after": after, "limit": limit, **query}, is_safe=True)

    @iterates(Event)
    def iter_events(
        self,
        *,
        after: int = 0,
        kinds: Iterable[str] = (),
        task_id: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        view: View | None = None,
    ) -> Rows[Json]:
        """Give the history after a seq to its present end, asked for a page at a time."""
        query, is_more = _wanted(kinds, task_id, agent, project, view), True
        while is_more:
            asked = {"after": after, "limit": PAGE_ROWS, **query}
            page: Json = yield Call("GET", "/v1/events", asked, is_safe=True)
            for event in page["events"]:
                yield Give(event)
            after = page["next"]
            is_more = after < page["head"]

    @asks(Head)
    def head(self) -> Call:
        """Give the seq and the digest of the last event."""
        return head_call()

    @iterates(Event)
    def stream(
        self,
        *,
        after: int | None = None,
        kinds: Iterable[str] = (),
        task_id: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        view: View | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> Rows[Json]:
        """Give events as they happen, from `after` or from now on, for ever.

        A lost connection is made again, from the last event given, as often as it takes; `on_lost`
        is told. Raises if the first one cannot be made, or the server refuses.
        """
        at: int = (yield head_call())["seq"] if after is None else after
        open_at = stream_at(kinds=kinds, task_id=task_id, agent=agent, project=project, view=view)
        yield from stream_rows(open_at, at, on_lost)


def head_call() -> Call:
    return Call("GET", "/v1/events/head", is_safe=True)


def stream_at(
    *,
    kinds: Iterable[str] = (),
    task_id: str | None = None,
    agent: str | None = None,
    project: str | None = None,
    view: View | None = None,
) -> Callable[[int], Open]:
    """Say which events are wanted; where from is said when the stream is opened."""
    query = _wanted(kinds, task_id, agent, project, view)
    return lambda after: Open("/v1/events/stream", after, query)


def _wanted(
    kinds: Iterable[str],
    task_id: str | None,
    agent: str | None,
    project: str | None,
    view: View | None,
) -> dict[str, str | None]:
    about = {"task": task_id, "agentId": agent, "project": project}
    return {"kind": ",".join(kinds), **about, "view": view}


def _task_page(task_id: str, after: int) -> Call:
    return Call("GET", path_of("tasks", task_id, "events"), {"after": after}, is_safe=True)

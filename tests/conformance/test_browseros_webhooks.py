"""The BrowserOS task queue document: Webhooks and Task Events.

The document's webhooks are sent once and unsigned; rota's are signed, tried again and recorded.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.chat_server import (
    ONCE,
    Chat,
    Hold,
    Status,
    completed,
    ended,
    event,
    moment_us,
    submit,
    submit_batch,
    told,
    with_chat,
)
from support.http_server import WITHIN_S, Rota, Servers, Target, until

from rota.http.dialects.browseros import event_view
from rota.server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Received

    from rota.domain.events import Record

FAILURE = "Chat API returned 500: Internal Server Error"


def only_hook(rota: Rota, hooks: Target, task_id: str) -> Received:
    """The one webhook of a task: when its delivery is recorded, no other can follow."""
    until(lambda: "delivery_succeeded" in rota.kinds(task_id), what="the webhook is delivered")
    (found,) = [request for request in hooks.requests if request.body["taskId"] == task_id]
    return found


# -- Webhooks ------------------------------------------------------------------------------------


def test_completion_is_told_with_exactly_the_documents_body(
    rota: Rota, chat: Chat, hooks: Target
) -> None:
    chat.on("extract", event({"title": "Example Domain"}))
    task_id = submit(rota, "extract", webhookUrl=f"{hooks.url}/hook?a=b")
    task = ended(rota, task_id)
    hook = only_hook(rota, hooks, task_id)
    assert hook.body == {
        "taskId": task_id,
        "state": "completed",
        "result": {"title": "Example Domain"},
        "executionTimeMs": task["executionTimeMs"],
    }
    assert hook.path == "/hook?a=b"
    assert hook.headers["content-type"] == "application/json"
    assert hook.headers["x-browseros-event"] == "task.completed"
    assert task["webhookUrl"] == f"{hooks.url}/hook?a=b"


def test_failure_is_told_with_exactly_the_documents_body(rota: Rota, hooks: Target) -> None:
    task_id = submit(rota, "fail", retryPolicy=ONCE, webhookUrl=hooks.url)
    task = ended(rota, task_id)
    assert only_hook(rota, hooks, task_id).body == {
        "taskId": task_id,
        "state": "failed",
        "error": "Chat API returned 500: Internal Server Error",
        "executionTimeMs": task["executionTimeMs"],
    }


def test_a_cancellation_is_told_too(rota: Rota, chat: Chat, hooks: Target) -> None:
    chat.on("work", Hold("never"))
    task_id = submit(rota, "work", webhookUrl=hooks.url)
    chat.wait_for(1)
    rota.request("DELETE", f"/tasks/{task_id}")
    body = only_hook(rota, hooks, task_id).body
    time_ms = rota.task(task_id)["executionTimeMs"]
    assert body == {"taskId": task_id, "state": "cancelled", "executionTimeMs": time_ms}


def test_a_task_that_never_ran_took_no_time(rota: Rota, hooks: Target) -> None:
    task_id = submit(rota, "work", dependsOn=["never"], webhookUrl=hooks.url)
    rota.request("DELETE", f"/tasks/{task_id}")
    assert only_hook(rota, hooks, task_id).body["executionTimeMs"] == 0


def test_the_time_is_that_of_the_last_attempt(rota: Rota, chat: Chat, hooks: Target) -> None:
    chat.on("try", Status(500))
    chat.on("try", event("better"))
    policy = {"maxRetries": 1, "backoffMs": 50}
    task_id = submit(rota, "try", retryPolicy=policy, webhookUrl=hooks.url)
    body = only_hook(rota, hooks, task_id).body
    (last,) = rota.events(task=task_id, kind="task_succeeded")
    started = rota.events(task=task_id, kind="task_started")[-1]
    assert body["executionTimeMs"] == (last["at"] - started["at"]) // 1000


def test_a_dependent_that_is_cancelled_says_why(rota: Rota, chat: Chat, hooks: Target) -> None:
    chat.on("first", Hold("never"))
    first = submit(rota, "first")
    then = submit(rota, "then", dependsOn=[first], webhookUrl=hooks.url)
    rota.request("DELETE", f"/tasks/{first}")
    body = only_hook(rota, hooks, then).body
    assert (body["state"], body["error"]) == ("cancelled", f"dependency {first} was cancelled")


def test_a_task_without_a_url_tells_nobody(rota: Rota, hooks: Target) -> None:
    completed(rota, submit(rota, "look"), submit(rota, "look", webhookUrl=""))
    assert hooks.requests == []


def test_webhooks_are_signed(serve: Servers, chat: Chat, hooks: Target) -> None:
    config = with_chat(chat)
    config["webhooks"]["secret"] = "the secret"
    rota = serve(config)
    task_id = submit(rota, "look", webhookUrl=hooks.url)
    hook = only_hook(rota, hooks, task_id)
    head = f"{hook.headers['webhook-id']}.{hook.headers['webhook-timestamp']}.".encode()
    body = json.dumps(hook.body, separators=(",", ":"), ensure_ascii=False).encode()
    digest = hmac.digest(b"the secret", head + body, hashlib.sha256)
    assert hook.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_webhooks_are_tried_again_under_the_same_id(rota: Rota, hooks: Target) -> None:
    answers = iter([500, 200])
    hooks.respond = lambda _: (next(answers), b"")
    task_id = submit(rota, "look", webhookUrl=hooks.url)
    until(lambda: "delivery_succeeded" in rota.kinds(task_id), what="the second try succeeds")
    first, second = hooks.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    kinds = rota.kinds(task_id)
    assert kinds.index("delivery_failed") < kinds.index("delivery_succeeded")


@pytest.mark.parametrize("trouble", ["refused", "redirected", "closed"])
def test_a_failed_delivery_does_not_touch_the_task(rota: Rota, hooks: Target, trouble: str) -> None:
    url = "http://127.0.0.1:1/hook" if trouble == "closed" else hooks.url
    hooks.respond = lambda _: (500 if trouble == "refused" else 302, b"no")
    task_id = submit(rota, "look", webhookUrl=url)
    task = ended(rota, task_id)
    until(lambda: "delivery_failed" in rota.kinds(task_id), what="the failure is recorded")
    assert rota.task(task_id) == task
    completed(rota, submit(rota, "next"))


def test_a_receiver_has_ten_seconds_and_no_more(serve: Servers, chat: Chat, hooks: Target) -> None:
    config = with_chat(chat)
    config["webhooks"]["timeout_ms"] = 200
    rota = serve(config)
    hooks.treat_as = {"hold": "for ever"}
    task_id = submit(rota, "look", webhookUrl=hooks.url)
    until(lambda: "delivery_failed" in rota.kinds(task_id), what="the delivery is given up")
    until(lambda: hooks.left, what="the receiver sees rota leave")
    assert serve().get("/v1/config").json["webhooks"]["timeoutMs"] == 10_000


@pytest.mark.parametrize(
    "url",
    ["ftp://example.com/x", "file:///etc/passwd", "hook", "http://", "http://10.0.0.1/", 5, ["x"]],
)
def test_urls_that_may_not_be_called_are_refused(rota: Rota, url: Any) -> None:
    bad = {"instruction": "look", "webhookUrl": url}
    for path, body in (
        ("/tasks", bad),
        ("/tasks/batch", {"tasks": [bad]}),
        ("/tasks/batch", {"tasks": [{"instruction": "look"}], "webhookUrl": url}),
    ):
        answer = rota.post(path, body)
        assert answer.status == 400, answer
    assert rota.get("/tasks/stats").json["total"] == 0


def test_a_webhook_that_is_owed_survives_a_restart(rota: Rota, hooks: Target) -> None:
    answers = iter([500, 200])
    hooks.respond = lambda _: (next(answers), b"")
    task_id = submit(rota, "look", webhookUrl=hooks.url)
    until(lambda: "delivery_failed" in rota.kinds(task_id), what="the first try is in vain")
    rota.restart()
    until(lambda: "delivery_succeeded" in rota.kinds(task_id), what="it is delivered after all")
    assert [request.body["state"] for request in hooks.requests] == ["completed"] * 2


# -- Task Events ---------------------------------------------------------------------------------


def test_created_has_the_fields_of_the_table(rota: Rota) -> None:
    task_id = submit(rota, "look")
    completed(rota, task_id)
    first = told(rota, task=task_id)[0]
    created = rota.task(task_id)["createdAt"]
    assert first == {
        "type": "task.created",
        "taskId": task_id,
        "state": "pending",
        "timestamp": created,
    }


def test_a_good_task_is_created_started_and_completed(rota: Rota) -> None:
    batch_id, (task_id,) = submit_batch(rota, {"instruction": "look"})
    completed(rota, task_id)
    task = rota.task(task_id)
    created, started, done = told(rota, task=task_id)
    assert created["type"] == "task.created"
    assert started == {
        "type": "task.started",
        "taskId": task_id,
        "batchId": batch_id,
        "state": "running",
        "timestamp": task["startedAt"],
    }
    assert done == {
        "type": "task.completed",
        "taskId": task_id,
        "batchId": batch_id,
        "state": "completed",
        "result": {"echo": "look"},
        "timestamp": task["completedAt"],
    }


def test_a_failure_has_the_fields_of_the_table(rota: Rota) -> None:
    batch_id, (task_id,) = submit_batch(rota, {"instruction": "fail", "retryPolicy": ONCE})
    task = ended(rota, task_id)
    *_, failed = told(rota, task=task_id)
    assert failed == {
        "type": "task.failed",
        "taskId": task_id,
        "batchId": batch_id,
        "state": "failed",
        "error": FAILURE,
        "timestamp": task["completedAt"],
    }


def test_a_cancellation_has_the_fields_of_the_table(rota: Rota) -> None:
    task_id = submit(rota, "then", dependsOn=["never"])
    rota.request("DELETE", f"/tasks/{task_id}")
    created, cancelled = told(rota, task=task_id)
    assert created["state"] == "waiting_dependency"
    assert cancelled == {
        "type": "task.cancelled",
        "taskId": task_id,
        "state": "cancelled",
        "timestamp": rota.task(task_id)["completedAt"],
    }


def test_every_attempt_is_told(rota: Rota) -> None:
    task_id = submit(rota, "fail", retryPolicy={"maxRetries": 1, "backoffMs": 1})
    ended(rota, task_id)
    found = [(each["type"], each["state"]) for each in told(rota, task=task_id)]
    assert found == [
        ("task.created", "pending"),
        ("task.started", "running"),
        ("task.failed", "pending"),
        ("task.started", "running"),
        ("task.failed", "failed"),
    ]


def test_the_feed_has_nothing_but_the_documents_events_and_goes_on_page_by_page(
    rota: Rota,
) -> None:
    ids = [submit(rota, f"task {n}") for n in range(4)]
    completed(rota, *ids)
    whole = told(rota)
    assert [each["taskId"] for each in whole if each["type"] == "task.created"] == ids
    assert {each["type"] for each in whole} == {"task.created", "task.started", "task.completed"}
    moments = [moment_us(each["timestamp"]) for each in whole]
    assert moments == sorted(moments)
    paged, after = [], 0
    for _ in range(100):
        page = rota.get(f"/v1/events?view=browseros&after={after}&limit=3").json
        paged += page["events"]
        if page["next"] == after:
            break
        after = page["next"]
    assert paged == whole


def test_an_unknown_view_of_the_events_is_refused(rota: Rota) -> None:
    for path in ("/v1/events", "/v1/events/stream"):
        answer = rota.get(f"{path}?view=greek")
        assert (answer.status, answer.json["details"]) == (400, {"field": "view"})


def test_the_stream_tells_events_as_they_happen_by_their_names(rota: Rota, chat: Chat) -> None:
    chat.on("work", Hold("work"), event("done"))
    with rota.stream("/v1/events/stream?view=browseros") as stream:
        task_id = submit(rota, "work")
        created, started = stream.take(2)
        assert [created.event["type"], started.event["type"]] == ["task.created", "task.started"]
        chat.release("work")
        (done,) = stream.take(1)
    assert done.event == told(rota, task=task_id)[2]
    assert done.event["result"] == "done"


def test_a_frame_of_the_stream_carries_the_name_and_the_place(rota: Rota) -> None:
    completed(rota, submit(rota, "look"))
    with rota.connected() as sock:
        request = (
            b"GET /v1/events/stream?view=browseros&after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        sock.sendall(request)
        seen = b""
        for _ in range(1000):
            seen += sock.recv(1 << 16)
            if b"task.completed" in seen and seen.endswith(b"\n\n\r\n"):
                break
    text = seen.decode()
    for name in ("task.created", "task.started", "task.completed"):
        assert f"\nevent: {name}\ndata: " in text
    assert "event: event" not in text


def test_the_stream_is_resumed_without_loss_or_repeat(rota: Rota) -> None:
    with rota.stream("/v1/events/stream?view=browseros&after=0") as stream:
        first = submit(rota, "first")
        before = stream.take(3)
    second = submit(rota, "second")
    completed(rota, first, second)
    last = {"Last-Event-ID": str(before[-1].id)}
    with rota.stream("/v1/events/stream?view=browseros", **last) as stream:
        after = stream.take(3)
    assert [frame.event for frame in (*before, *after)] == told(rota)


# -- handlers in the process ---------------------------------------------------------------------


class Handling(Rota):
    """A server with event handlers, registered as a program would that embeds it."""

    def __init__(self, folder: Path, config: dict[str, Any], *handlers: Any) -> None:
        super().__init__(folder, config)
        self._handlers = handlers

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        self.server = Server(self._settings)
        for handler in self._handlers:
            self.server.on_event(handler)
        await self.server.start()
        self.port = self.server.port
        self._ready.set()
        await self._leave.wait()
        await self.server.stop(self._grace_s)


def shown(record: Record) -> tuple[str, str] | None:
    """A fact as the document's handlers get it."""
    found = event_view(record, None)
    return None if found is None else (found["type"], found["taskId"])


def test_handlers_are_called_one_after_the_other_in_the_order_of_events(
    chat: Chat, tmp_path: Path
) -> None:
    calls: list[tuple[str, Any]] = []
    depth = threading.Semaphore(1)

    async def slow(record: Record) -> None:
        assert depth.acquire(blocking=False), "two handlers at once"
        await asyncio.sleep(0.001)
        calls.append(("slow", shown(record)))
        depth.release()

    def quick(record: Record) -> None:
        assert depth.acquire(blocking=False), "two handlers at once"
        calls.append(("quick", shown(record)))
        depth.release()

    rota = Handling(tmp_path, with_chat(chat), slow, quick)
    rota.start()
    try:
        ids = [submit(rota, f"task {n}") for n in range(3)]
        completed(rota, *ids)
        last = ("quick", ("task.completed", ids[-1]))
        until(lambda: last in calls, what="the handlers have caught up")
    finally:
        rota.stop()
    assert [name for name, _ in calls] == ["slow", "quick"] * (len(calls) // 2)
    heard = [what for name, what in calls if name == "slow" and what is not None]
    for task_id in ids:
        mine = [kind for kind, about in heard if about == task_id]
        assert mine == ["task.created", "task.started", "task.completed"]
    assert rota.complaints() == []


def test_errors_in_handlers_are_ignored(chat: Chat, tmp_path: Path) -> None:
    heard: list[Any] = []

    def broken(record: Record) -> None:
        raise ValueError(record.seq)

    async def broken_later(record: Record) -> None:
        await asyncio.sleep(0)
        raise OSError(record.seq)

    rota = Handling(
        tmp_path, with_chat(chat), broken, broken_later, lambda r: heard.append(shown(r))
    )
    rota.start()
    try:
        ids = [submit(rota, f"task {n}") for n in range(3)]
        completed(rota, *ids)
        last = ("task.completed", ids[-1])
        until(lambda: last in heard, what="the handler after the broken ones is called")
        assert rota.get("/health").json["status"] == "ok"
    finally:
        rota.stop()
    assert any("an event handler failed" in line for line in rota.log.lines)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_slow_handler_does_not_hold_up_the_tasks(
    chat: Chat,
    tmp_path: Path,
    is_async: bool,  # noqa: FBT001
) -> None:
    go_on = threading.Event()
    heard: list[Any] = []

    def blocks(record: Record) -> None:
        assert go_on.wait(WITHIN_S)
        heard.append(shown(record))

    async def waits(record: Record) -> None:
        while not go_on.is_set():
            await asyncio.sleep(0.005)
        heard.append(shown(record))

    rota = Handling(tmp_path, with_chat(chat), waits if is_async else blocks)
    rota.start()
    try:
        task_id = submit(rota, "look")
        completed(rota, task_id)
        assert heard == []
        go_on.set()
        until(lambda: ("task.completed", task_id) in heard, what="the handler has caught up")
    finally:
        go_on.set()
        rota.stop()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_cannot_end_the_server(
    chat: Chat,
    tmp_path: Path,
    error: type[BaseException],
    is_async: bool,  # noqa: FBT001
) -> None:
    heard: list[Any] = []

    def leaves(_record: Record) -> None:
        raise error

    async def leaves_later(_record: Record) -> None:
        await asyncio.sleep(0)
        raise error

    leaver = leaves_later if is_async else leaves
    rota = Handling(tmp_path, with_chat(chat), leaver, lambda r: heard.append(shown(r)))
    rota.start()
    try:
        ids = [submit(rota, f"task {n}") for n in range(2)]
        completed(rota, *ids)
        until(lambda: ("task.completed", ids[-1]) in heard, what="the others are still called")
    finally:
        rota.stop()


def test_a_handler_is_named_in_the_configuration(
    serve: Servers, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "HEARD = []\n\ndef hear(record):\n    HEARD.append(record)\n"
    (tmp_path / "my_browseros_handlers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    rota = serve(with_chat(chat) | {"server": {"onEvent": ["my_browseros_handlers:hear"]}})
    task_id = submit(rota, "look")
    completed(rota, task_id)
    import my_browseros_handlers  # type: ignore[import-not-found]

    wanted = ("task.completed", task_id)
    until(lambda: wanted in [shown(r) for r in my_browseros_handlers.HEARD], what="it is called")

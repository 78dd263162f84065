"""The BrowserOS task queue document: Task Execution (the request, its answer, time, cancels)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.chat_server import (
    ONCE,
    Chat,
    Cut,
    Flood,
    Hold,
    Status,
    completed,
    ended,
    event,
    lived,
    submit,
    with_chat,
)
from support.http_server import Rota, Servers, until

PLAIN = {
    "isScheduledTask": True,
    "mode": "agent",
    "supportsImages": False,
    "provider": "browseros",
}


def running(rota: Rota, chat: Chat, text: str = "work", **fields: Any) -> str:
    """Submit a task that runs until its text is released."""
    chat.on(text, Hold(text), event("done"))
    task_id = submit(rota, text, **fields)
    until(lambda: text in chat.messages(), what=f"{text!r} runs")
    return task_id


def once(rota: Rota, text: str, **fields: Any) -> dict[str, Any]:
    """Run a task whose first failure is final; give its end."""
    return ended(rota, submit(rota, text, retryPolicy=ONCE, **fields))


# -- How Tasks Run -------------------------------------------------------------------------------


def test_the_instruction_is_posted_to_the_chat_with_exactly_the_documents_body(
    rota: Rota, chat: Chat
) -> None:
    completed(rota, submit(rota, "Navigate to https://example.com"))
    (request,) = chat.requests
    assert request.path == "/chat"
    assert request.headers["content-type"] == "application/json"
    conversation = request.body.pop("conversationId")
    assert UUID(conversation).version == 4
    assert request.body == {"message": "Navigate to https://example.com", **PLAIN}


def test_every_attempt_has_a_new_conversation(rota: Rota, chat: Chat) -> None:
    chat.on("try", Status(500))
    chat.on("try", event("better"))
    completed(rota, submit(rota, "try", retryPolicy={"backoffMs": 1}))
    completed(rota, submit(rota, "other"))
    assert len({request.body["conversationId"] for request in chat.requests}) == 3


def test_llm_config_is_merged_into_the_body_and_overrides_the_provider(
    rota: Rota, chat: Chat
) -> None:
    config = {
        "provider": "openai",
        "model": "gpt",
        "temperature": 0.2,
        "supportsImages": True,
        "options": {"seed": 7},
    }
    completed(rota, submit(rota, "look", llmConfig=config))
    body = chat.requests[0].body
    assert {name: body[name] for name in config} == config
    assert {**PLAIN, **config} == {
        name: body[name] for name in body if name not in ("conversationId", "message")
    }
    assert body["message"] == "look"


def test_llm_config_can_replace_neither_message_nor_conversation(rota: Rota, chat: Chat) -> None:
    config = {"message": "do evil", "conversationId": "mine"}
    completed(rota, submit(rota, "look", llmConfig=config))
    body = chat.requests[0].body
    assert body["message"] == "look"
    assert UUID(body["conversationId"])


@pytest.mark.parametrize(
    "text", ["line\nline", "тест 漢字 🦊", "a" * 100_000, '"\\\t\u0000', "{{x}}"]
)
def test_an_instruction_arrives_as_it_was_given(rota: Rota, chat: Chat, text: str) -> None:
    completed(rota, submit(rota, text))
    assert chat.messages() == [text]


def test_the_chat_is_told_which_task_and_attempt_it_is(rota: Rota, chat: Chat) -> None:
    task_id = submit(rota, "look")
    completed(rota, task_id)
    headers = chat.requests[0].headers
    assert (headers["x-rota-task-id"], headers["x-rota-attempt"]) == (task_id, "1")


def test_without_a_chat_tasks_wait(serve: Servers) -> None:
    rota = serve()
    task_id = submit(rota, "look")
    task = rota.task(task_id)
    assert task["state"] == "pending"
    assert "waits for a worker" in task["waitReason"]
    assert rota.get(f"/v1/tasks/{task_id}").json["executor"] == "pull"


# -- Response Handling ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "result"),
    [
        (event({"text": "a"}) + event({"text": "b"}) + event({"final": True}), {"final": True}),
        (event("only"), "only"),
        (event([1, {"a": None}]), [1, {"a": None}]),
        (event(1) + b"data: [DONE]\n\n", 1),
        (b'data:{"no": "space"}\n\n', {"no": "space"}),
        (b'data: {"no": "end"}', {"no": "end"}),
        (b'event: final\nid: 7\nretry: 10\ndata: {"named": 1}\n\n', {"named": 1}),
        (b': a comment\n\ndata: {"after": 1}\n\n: another\n\n', {"after": 1}),
        (b'data: {"two":\ndata: "lines"}\n\n', {"two": "lines"}),
        (b'data: {"crlf": 1}\r\n\r\n', {"crlf": 1}),
        (event({"good": 1}) + b"data: not json\n\n", {"good": 1}),
        (b"garbage\nmore: garbage\n\n" + event("good"), "good"),
        (event({"text": "ü漢🦊"}), {"text": "ü漢🦊"}),
    ],
)
def test_the_last_data_line_that_is_json_is_the_result(
    rota: Rota, chat: Chat, stream: bytes, result: Any
) -> None:
    chat.on("look", stream)
    task = once(rota, "look")
    assert (task["state"], task["result"]) == ("completed", result)


@pytest.mark.parametrize("value", [None, False, 0, "", {}, []])
def test_an_empty_result_is_a_result(rota: Rota, chat: Chat, value: Any) -> None:
    chat.on("look", event(value))
    task = once(rota, "look")
    assert task["state"] == "completed"
    assert task.get("result") == value


def test_a_stream_in_small_pieces_is_put_together(rota: Rota, chat: Chat) -> None:
    stream = event({"step": 1}) + event({"text": "ü漢🦊"})
    chat.on("look", *(stream[at : at + 1] for at in range(len(stream))))
    assert once(rota, "look")["result"] == {"text": "ü漢🦊"}


def test_a_result_of_almost_a_mebibyte_is_kept(rota: Rota, chat: Chat) -> None:
    text = "x" * ((1 << 20) - 100)
    chat.on("look", event(text))
    assert once(rota, "look")["result"] == text


@pytest.mark.parametrize(
    ("moves", "error"),
    [
        ((Status(500, "Internal Server Error"),), "Chat API returned 500: Internal Server Error"),
        ((Status(500),), "Chat API returned 500: Internal Server Error"),
        ((Status(418, "", "I am a teapot"),), "Chat API returned 418: I am a teapot"),
        ((Status(503, '{"busy": true}'),), 'Chat API returned 503: {"busy": true}'),
        ((Status(301, "gone", headers={"Location": "/x"}),), "Chat API returned 301: gone"),
        ((), "the chat stream ended without an event"),
        ((Status(204),), "the chat stream ended without an event"),
        ((b": only a comment\n\n",), "the chat stream ended without an event"),
        ((b"data: <html>\n\n",), "no data: of the chat stream held JSON; it held <html>"),
        ((b"<html>no stream</html>",), "no data: of the chat stream held JSON; it held <html>"),
        ((event(1), b'data: {"ha', Cut()), "the chat stream broke off after 1 events"),
        ((event({"type": "error", "message": "no credit"}),), "no credit"),
    ],
)
def test_an_answer_that_is_no_result_fails_the_task_and_says_why(
    rota: Rota, chat: Chat, moves: tuple[Any, ...], error: str
) -> None:
    chat.on("look", *moves)
    task = once(rota, "look")
    assert task["state"] == "failed"
    assert task["error"].startswith(error)
    assert "result" not in task


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00\x80",
        b"data: \xff\xfe\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data: " + b"[" * 2000 + b"]" * 2000 + b"\n\n",
        b"data: " + b"x" * (3 << 20),
        b"\n" * 100_000,
        b"data:" * 50_000,
        b"data: {\x00}\n\n",
        b"data: NaN\n\n",
        b'data: "\\ud800"\n\n',
    ],
)
def test_malformed_streams_fail_the_task_and_nothing_else(
    rota: Rota, chat: Chat, data: bytes
) -> None:
    chat.on("look", data)
    task = once(rota, "look")
    assert task["state"] == "failed"
    assert 0 < len(task["error"]) <= 2000
    completed(rota, submit(rota, "next"))


def test_an_error_of_the_chat_is_kept_within_bounds(rota: Rota, chat: Chat) -> None:
    chat.on("look", Status(500, "e" * 1_000_000))
    error = once(rota, "look")["error"]
    assert error.startswith("Chat API returned 500: eee")
    assert len(error) <= 2000


# -- progress ------------------------------------------------------------------------------------


def test_events_are_recorded_as_they_pass_and_can_be_seen(rota: Rota, chat: Chat) -> None:
    chat.on(
        "work",
        event({"step": "open"}),
        Hold("read"),
        event({"step": "read"}),
        Hold("end"),
        event({"title": "Example"}),
    )
    task_id = submit(rota, "work")

    def seen(step: str) -> None:
        until(lambda: rota.task(task_id).get("progress") == {"step": step}, what=step)
        assert rota.task(task_id)["state"] == "running"

    seen("open")
    chat.release("read")
    seen("read")
    assert rota.get(f"/v1/tasks/{task_id}").json["progress"] == {"step": "read"}
    chat.release("end")
    task = ended(rota, task_id)
    assert task["result"] == {"title": "Example"}
    reports = rota.events(task=task_id, kind="task_progressed")
    values = [each["data"]["progress"] for each in reports]
    assert values[:2] == [{"step": "open"}, {"step": "read"}]
    assert [each["data"]["attempt"] for each in reports] == [1] * len(reports)


def test_a_flood_of_events_is_not_a_flood_of_records(rota: Rota, chat: Chat) -> None:
    chat.on("work", b"".join(event({"n": n}) for n in range(20_000)))
    task_id = submit(rota, "work")
    completed(rota, task_id)
    assert rota.task(task_id)["result"] == {"n": 19_999}
    assert 1 <= len(rota.events(task=task_id, kind="task_progressed")) < 100


# -- Timeout -------------------------------------------------------------------------------------


def test_a_task_has_120_seconds_by_default(rota: Rota) -> None:
    task_id = submit(rota, "look")
    assert rota.task(task_id)["timeoutMs"] == 120_000
    assert rota.get(f"/v1/tasks/{task_id}").json["timeoutMs"] == 120_000


@pytest.mark.parametrize("field", ["timeoutMs", "timeout"])
def test_the_timeout_is_configured_per_task(rota: Rota, field: str) -> None:
    assert rota.task(submit(rota, "look", **{field: 30_000}))["timeoutMs"] == 30_000


def test_the_timeout_is_configured_globally(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat, timeoutMs=150))
    chat.on("slow", Hold("never"))
    task = once(rota, "slow")
    assert (task["state"], task["timeoutMs"]) == ("failed", 150)


def test_the_most_is_600_seconds(rota: Rota) -> None:
    assert rota.task(submit(rota, "look", timeoutMs=600_000))["timeoutMs"] == 600_000
    for field in ("timeoutMs", "timeout"):
        answer = rota.post("/tasks", {"instruction": "look", field: 600_001})
        assert answer.status == 400
        assert "600000" in answer.json["error"]
        batch = rota.post("/tasks/batch", {"tasks": [{"instruction": "look", field: 600_001}]})
        assert batch.status == 400


@pytest.mark.parametrize(
    "moves",
    [
        (Hold("never"),),
        (event({"step": 1}), Hold("never")),
        (b"data: {", Hold("never")),
        (Flood(event({"step": 1}), 0.01),),
        (Flood(b": still here\n\n", 0.01),),
        (Flood(b"x", 0.01),),
    ],
    ids=["silent", "stops", "stops in an event", "sends for ever", "comments", "one line"],
)
def test_the_timeout_ends_the_attempt_and_closes_the_connection(
    rota: Rota, chat: Chat, moves: tuple[Any, ...]
) -> None:
    chat.on("slow", *moves)
    task = once(rota, "slow", timeoutMs=300)
    assert task["state"] == "failed"
    assert task["error"] == "attempt timed out after 300 ms"
    chat.wait_until_left("slow")
    completed(rota, submit(rota, "next"))


def test_a_chat_that_sends_without_pause_is_cut_off(rota: Rota, chat: Chat) -> None:
    chat.on("flood", Flood(event({"x": "y" * 60_000})))
    task = ended(rota, submit(rota, "flood", timeoutMs=20_000))
    assert task["state"] == "failed"
    assert "larger than" in task["error"]
    assert task["retryCount"] == 0
    chat.wait_until_left("flood")
    completed(rota, submit(rota, "next"))


# -- Cancellation --------------------------------------------------------------------------------


def test_cancelling_a_running_task_aborts_its_request(rota: Rota, chat: Chat) -> None:
    task_id = running(rota, chat)
    answer = rota.request("DELETE", f"/tasks/{task_id}")
    assert (answer.status, answer.json) == (200, {"taskId": task_id, "state": "cancelled"})
    chat.wait_until_left("work")
    task = rota.task(task_id)
    assert task["state"] == "cancelled"
    assert "result" not in task
    completed(rota, submit(rota, "next"))


def test_cancelling_a_waiting_task_sends_nothing(rota: Rota, chat: Chat) -> None:
    first = running(rota, chat)
    task_id = submit(rota, "never mind")
    assert rota.request("DELETE", f"/tasks/{task_id}").status == 200
    chat.release("work")
    completed(rota, first, submit(rota, "next"))
    assert chat.messages() == ["work", "next"]
    assert lived(rota, task_id) == ["pending", "cancelled"]


def test_a_cancelled_task_stays_cancelled_whatever_the_chat_says(rota: Rota, chat: Chat) -> None:
    chat.on("work", event({"step": 1}), Hold("work"), event("too late"))
    task_id = submit(rota, "work")
    until(lambda: "progress" in rota.task(task_id), what="the chat has begun to answer")
    rota.request("DELETE", f"/tasks/{task_id}")
    chat.release("work")
    completed(rota, submit(rota, "next"))
    assert rota.task(task_id)["state"] == "cancelled"


def test_cancel_is_also_had_by_post(rota: Rota, chat: Chat) -> None:
    task_id = running(rota, chat)
    answer = rota.post(f"/tasks/{task_id}/cancel")
    assert (answer.status, answer.json) == (200, {"taskId": task_id, "state": "cancelled"})


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_an_ended_task_cannot_be_cancelled(rota: Rota, chat: Chat, end: str) -> None:
    chat.on("failed", Status(500))
    chat.on("cancelled", Hold("never"))
    task_id = submit(rota, end, retryPolicy=ONCE)
    if end == "cancelled":
        rota.request("DELETE", f"/tasks/{task_id}")
    task = ended(rota, task_id)
    answer = rota.request("DELETE", f"/tasks/{task_id}")
    assert answer.status == 409
    assert answer.code == "conflict"
    assert answer.json["details"] == {"taskId": task_id, "state": end}
    assert end in answer.json["error"]
    assert rota.task(task_id) == task


@pytest.mark.parametrize("task_id", ["tsk_nobody", "x", "%00", "a%2Fb", "..", "bat_1"])
def test_an_unknown_task_cannot_be_cancelled(rota: Rota, task_id: str) -> None:
    answer = rota.request("DELETE", f"/tasks/{task_id}")
    assert (answer.status, answer.code) == (404, "not_found")
    assert rota.get(f"/tasks/{task_id}").status == 404


def test_many_cancels_of_running_tasks_leave_no_slot_taken(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat, maxConcurrent=4))
    for n in range(40):
        chat.on(f"task {n}", Hold("never"))
    ids = [submit(rota, f"task {n}") for n in range(40)]
    for task_id in ids:
        assert rota.request("DELETE", f"/tasks/{task_id}").status == 200
    completed(rota, submit(rota, "last"))
    assert rota.get("/tasks/stats").json["activeTasks"] == 0
    assert rota.get("/tasks?state=cancelled").json["count"] == 40

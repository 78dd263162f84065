"""The chat executor against a real server: what it sends, and what it makes of the streams."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import pytest
from support.receivers import Answer, Receiver, answer, receiving

from rota.config import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.executors import chat
from rota.executors.chat import ChatExecutor
from rota.executors.port import Attempt

if TYPE_CHECKING:
    from rota.executors.port import Tell

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
WITHIN_S = 30


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def stream(data: bytes) -> bytes:
    """Write a whole answer."""
    return HEAD + chunk(data) + END if data else HEAD + END


def attempt(**params: Any) -> Attempt:
    return Attempt("tsk_1", "ann", 3, 42, "chat", "ask", {"instruction": "buy milk", **params})


async def ask(
    url: str, asked: Attempt, tell: Tell, headers: dict[str, str] | None = None
) -> Outcome:
    """Run one attempt with an executor of its own."""
    executor = ChatExecutor(url, headers)
    try:
        return await asyncio.wait_for(executor.run(asked, tell), WITHIN_S)
    finally:
        await executor.close()


def run(
    reply: bytes | Answer, asked: Attempt | None = None, **options: Any
) -> tuple[Outcome, Receiver]:
    """Run one attempt against a server that replies so."""

    async def go() -> tuple[Outcome, Receiver]:
        async with receiving(reply) as receiver:
            url = receiver.url(path="/chat")
            return await ask(url, asked or attempt(), [].append, **options), receiver

    return asyncio.run(go())


def heard(data: bytes) -> Outcome:
    """What becomes of a stream."""
    return run(stream(data))[0]


# -- what is sent --------------------------------------------------------------------------------


def test_the_request_is_the_documents() -> None:
    outcome, receiver = run(stream(event("done")), headers={"Authorization": "Bearer x"})
    assert outcome == Outcome(ok=True, result="done")
    (request,) = receiver.requests
    assert request.line == "POST /chat HTTP/1.1"
    body = json.loads(request.body)
    assert UUID(body.pop("conversationId")).version == 4
    assert body == {
        "message": "buy milk",
        "isScheduledTask": True,
        "mode": "agent",
        "supportsImages": False,
        "provider": "browseros",
    }
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["x-rota-task-id"] == "tsk_1"


def test_every_attempt_is_a_conversation_of_its_own() -> None:
    executor = ChatExecutor("http://127.0.0.1:1")
    bodies = [executor.body(attempt()) for _ in range(2)]
    assert bodies[0]["conversationId"] != bodies[1]["conversationId"]


def test_llm_config_goes_over_the_defaults_but_not_over_conversation_and_message() -> None:
    config = {
        "provider": "mine",
        "mode": "chat",
        "model": {"name": "m", "heat": 0.5},
        "conversationId": "forged",
        "message": "forged",
    }
    body = ChatExecutor("http://127.0.0.1:1").body(attempt(llmConfig=config))
    assert UUID(body.pop("conversationId")).version == 4
    assert body == {
        "message": "buy milk",
        "isScheduledTask": True,
        "supportsImages": False,
        "provider": "mine",
        "mode": "chat",
        "model": {"name": "m", "heat": 0.5},
    }


@pytest.mark.parametrize("config", [None, {}])
def test_no_llm_config_changes_nothing(config: Any) -> None:
    body = ChatExecutor("http://127.0.0.1:1").body(attempt(llmConfig=config))
    assert body["provider"] == "browseros"
    assert set(body) == {"conversationId", "message", *chat.DEFAULTS}


@pytest.mark.parametrize(
    "params",
    [
        {},
        *({"instruction": wrong} for wrong in ("", " \n\t", None)),
        *({"instruction": "x", "llmConfig": wrong} for wrong in ("x", [], 0, False, 5)),
    ],
)
def test_unusable_params_are_refused_and_nothing_is_sent(params: dict[str, Any]) -> None:
    outcome, receiver = run(stream(event(1)), attempt()._replace(params=params))
    assert (outcome.ok, outcome.code) == (False, "bad_params")
    assert "params." in outcome.error
    assert receiver.connections == 0


@pytest.mark.parametrize(
    ("result", "message"), [(42, "42"), (["x"], '["x"]'), ({"a": 1}, '{"a":1}')]
)
def test_a_result_that_became_the_instruction_is_said_as_json(result: Any, message: str) -> None:
    body = ChatExecutor("http://127.0.0.1:1").body(attempt(instruction=result))
    assert body["message"] == message


# -- good streams --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (event({"step": 1}) + event({"text": "é", "n": None}), {"text": "é", "n": None}),
        (event(1) + b"data: [DONE]\n\n", 1),
        (event(1) + b"data:  [DONE] \n\n", 1),
        (event(1) + b"data: not json\n\n", 1),
        (b"data: not json\n\n" + event(1), 1),
        (event(1) + b": ping\n\n", 1),
        (event(1) + b"data:\n\ndata\n\n", 1),
        (event(1) + b"data: 2", 2),
        (event(1) + b"data: 2\n", 2),
        (event(1) + b"data: 2\r", 2),
        (b"data: 1\ndata: 2\n\n", 2),
        (b'data: {"a": 1}\ndata: {"b": 2}\ndata: [DONE]\n\n', {"b": 2}),
        (event(1) + b"event: end\n", 1),
        (b"\xef\xbb\xbfdata: 1", 1),
        (b"data: null\n\n", None),
        (b"data: [\ndata: 1,\ndata: 2]\n\n", [1, 2]),
        (b'data: {"type": "errors"}\n\n', {"type": "errors"}),
        (event({"type": "error"}) + event("mended"), "mended"),
        (event(["error"]), ["error"]),
    ],
)
def test_the_last_data_that_is_json_is_the_result(data: bytes, result: Any) -> None:
    assert heard(data) == Outcome(ok=True, result=result)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_that_comes_byte_by_byte_is_read_whole(end: bytes) -> None:
    lines = (
        b"\xef\xbb\xbf: hi",
        b"event: x",
        b'data: {"a":',
        b'data: "\xc3\xa9"}',
        b"",
        b"data: [DONE]",
    )
    data = end.join((*lines, b"", b""))

    async def dribble(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for byte in data:
            writer.write(chunk(bytes([byte])))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(END)

    assert run(dribble)[0] == Outcome(ok=True, result={"a": "é"})


def test_streams_without_chunks_and_compressed_ones_are_read() -> None:
    data = event(1) + event(2)
    until_close = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data
    zipped = answer(200, "Content-Encoding: gzip", body=gzip.compress(data))
    for raw in (until_close, answer(201, body=data), zipped):
        assert run(raw)[0] == Outcome(ok=True, result=2)


# -- bad streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b": ping\n\n: ping\n\n",
        b"data\n\n",
        b"data: [DONE]\n\n",
        b"\xef\xbb\xbf",
        b"event: x\nid: 5\nretry: 1\n\n",
    ],
)
def test_an_empty_stream_fails(data: bytes) -> None:
    outcome = heard(data)
    assert (outcome.ok, outcome.code) == (False, "empty_stream")
    assert outcome.error == "the chat stream ended without an event"


@pytest.mark.parametrize(
    "data",
    [
        b"data: hello\n\n",
        b"data: {broken\n\ndata: [DONE]\n\n",
        b"<html>hello</html>",
        b'{"hello": 1}',
        b" data: 1\n\n",
        b"data : hello\n\n",
        b"data: \xff\n\n",
        b'data: "\\ud800"\n\n',
        b"x" * 5000,
    ],
)
def test_a_stream_without_json_fails(data: bytes) -> None:
    outcome = heard(data)
    assert (outcome.ok, outcome.code) == (False, "bad_stream")
    assert outcome.error.startswith("no data: of the chat stream held JSON; it held ")
    assert len(outcome.error) < 300


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_stream_that_breaks_off_fails(head: bytes) -> None:
    async def go() -> Outcome:
        told = asyncio.Event()

        async def break_off(writer: asyncio.StreamWriter) -> None:
            data = event(1) + event(2) + b"data: [DONE]\n\ndata: 3"
            writer.write(head + (chunk(data) if head is HEAD else data))
            await told.wait()

        async with receiving(break_off) as receiver:
            return await ask(receiver.url(), attempt(), lambda _: told.set())

    error = "the chat stream broke off after 2 events"
    assert asyncio.run(go()) == Outcome(ok=False, code="connection", error=error)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage\r\n\r\n",
        HEAD,
        HEAD + b"ZZ\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nshort",
    ],
)
def test_a_broken_answer_is_an_outcome(raw: bytes) -> None:
    outcome = run(raw)[0]
    assert (outcome.ok, outcome.code) == (False, "connection")
    assert outcome.error


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"type": "error", "message": "no credit"}, "no credit"),
        ({"type": "error", "errorText": "no credit"}, "no credit"),
        ({"type": "error", "error": "no credit"}, "no credit"),
        ({"type": "error", "message": " ", "error": {"message": "no credit"}}, "no credit"),
        ({"type": "error", "message": 5, "error": []}, "the chat ended in an error"),
        ({"type": "error", "message": "x" * 5000}, "x" * ERROR_CHARS_MAX),
    ],
)
def test_a_chat_that_ends_in_an_error_fails(value: dict[str, Any], error: str) -> None:
    outcome = heard(event(1) + event(value) + b"data: [DONE]\n\n")
    assert (outcome.ok, outcome.code, outcome.error) == (False, "chat_error", error)
    assert len(json.dumps(outcome.details)) < ERROR_CHARS_MAX + 100


def test_an_error_event_says_whether_to_try_again() -> None:
    value = {"type": "error", "error": {"message": "busy", "code": "BUSY"}, "retryable": True}
    assert heard(event(value)) == Outcome(
        ok=False,
        code="chat_error",
        error="busy",
        details={"body": value, "code": "BUSY"},
        retryable=True,
    )


# -- bad answers ---------------------------------------------------------------------------------


def test_a_bad_status_fails_in_the_documents_words() -> None:
    raw = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
    outcome = run(raw)[0]
    assert outcome.error == "Chat API returned 500: Internal Server Error"
    assert (outcome.ok, outcome.code) == (False, "status_500")
    assert outcome.details == {"status": 500, "body": None}


def test_a_bad_status_fails_with_its_body() -> None:
    body = b'{"error": {"code": "BUSY"}, "retryable": true}'
    raw = answer(503, "Retry-After: 7", body=body)
    assert run(raw)[0] == Outcome(
        ok=False,
        code="status_503",
        error=f"Chat API returned 503: {body.decode()}",
        details={"status": 503, "body": json.loads(body), "code": "BUSY"},
        retry_after_s=7,
        retryable=True,
    )
    assert run(answer(404, body=b" gone\n"))[0].error == "Chat API returned 404: gone"
    assert run(answer(307, "Location: /x"))[0].error == "Chat API returned 307: Whatever"


@pytest.mark.parametrize("reason", [b"", b" ", b" \xff\xfe", b" " + b"x" * 5000])
def test_any_reason_phrase_can_be_written_down(reason: bytes) -> None:
    outcome = run(b"HTTP/1.1 500" + reason + b"\r\nContent-Length: 0\r\n\r\n")[0]
    assert outcome.code == "status_500"
    assert outcome.error.startswith("Chat API returned 500")
    assert len(outcome.error) <= ERROR_CHARS_MAX
    orjson.dumps(outcome.error)


def test_a_long_refusal_is_cut() -> None:
    outcome = run(answer(500, body=b"x" * 100_000))[0]
    assert len(outcome.error) == ERROR_CHARS_MAX
    assert len(json.dumps(outcome.details)) < ERROR_CHARS_MAX + 100


# -- bounds --------------------------------------------------------------------------------------


def test_an_event_at_the_limit_is_kept_and_one_above_it_fails() -> None:
    fits = "x" * (RESULT_BYTES_MAX - 2)
    assert heard(b"\xef\xbb\xbf" + event(fits)).result == fits
    assert heard(event(1) + event(fits + "x") + event(2)).code == "result_too_large"
    assert heard(event(fits + "x")[:-2]).code == "result_too_large"


@pytest.mark.parametrize("levels", [65, 100_000])
def test_a_result_that_is_too_deep_fails_and_an_event_before_it_does_not(levels: int) -> None:
    deep = b"data: " + b"[" * levels + b"]" * levels + b"\n\n"
    assert heard(event(1) + deep).code == "result_too_deep"
    assert heard(deep + event(1)) == Outcome(ok=True, result=1)
    assert (
        heard(b'data: {"type": "error", "x": ' + b"[" * 65 + b"]" * 65 + b"}").code == "chat_error"
    )


def test_a_compressed_flood_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "STREAM_BYTES_MAX", 2 * RESULT_BYTES_MAX)
    bomb = gzip.compress(b": ping\n" * (1 << 20))
    raw = answer(200, "Content-Encoding: gzip", body=bomb)
    assert run(raw)[0].code == "stream_too_large"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b'data: {"x": 1}\n\nevent: error\ndata: {"error": "llm sad"}\n\n', "llm sad"),
        (b'event: error\ndata: {"message": "no credit"}\n\ndata: [DONE]\n\n', "no credit"),
        (b'data: {"x": 1}\n\nevent: error\ndata: boom\n\n', "boom"),
        (b'event: error\ndata: "plain"\n\n', "plain"),
    ],
)
def test_an_event_named_error_at_the_end_is_a_failure(answer: bytes, error: str) -> None:
    outcome, _ = run(stream(answer))
    assert (outcome.ok, outcome.code, outcome.error) == (False, "chat_error", error)


def test_an_error_that_is_not_the_end_is_none() -> None:
    outcome, _ = run(stream(b'event: error\ndata: "hiccup"\n\ndata: {"answer": 1}\n\n'))
    assert outcome == Outcome(ok=True, result={"answer": 1})

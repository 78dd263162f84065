"""The HTTP executor against a real server: what it sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.http_server import Servers, Target, target, until, with_tab
from support.receivers import answer, receiving

from rota.config import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.executors.callback import RETRY_AFTER_MAX_S
from rota.executors.http import HttpExecutor
from rota.executors.port import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def web() -> Iterator[Target]:
    """Something to call."""
    with target() as made:
        yield made


def attempt(**fields: Any) -> Attempt:
    known: dict[str, Any] = {
        "task": "tsk_1",
        "agent": "ann",
        "number": 3,
        "token": 42,
        "executor": "web",
        "action": "scan",
        "params": {},
    }
    return Attempt(**known | fields)


def run(url: str, headers: dict[str, str] | None = None, **fields: Any) -> Outcome:
    """Run one attempt with an executor of its own."""

    async def go() -> Outcome:
        executor = HttpExecutor(url, headers)
        try:
            return await executor.run(attempt(**fields), [].append)
        finally:
            await executor.close()

    return asyncio.run(go())


# -- what is sent --------------------------------------------------------------------------------


def test_the_task_is_sent_whole_with_its_names_in_the_headers(web: Target) -> None:
    outcome = run(f"{web.url}/run/", params={"x": 1}, tab="t", ref="e1")
    assert outcome == Outcome(ok=True, result={"success": True})
    (request,) = web.requests
    assert request.path == "/run"
    assert request.body == {
        "taskId": "tsk_1",
        "agentId": "ann",
        "attempt": 3,
        "action": "scan",
        "params": {"x": 1},
        "tabId": "t",
        "ref": "e1",
    }
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-rota-task-id"] == "tsk_1"
    assert request.headers["x-rota-agent-id"] == "ann"
    assert request.headers["x-rota-attempt"] == "3"
    assert request.headers["x-rota-token"] == "42"


def test_what_is_absent_is_not_sent(web: Target) -> None:
    run(web.url)
    assert set(web.requests[0].body) == {"taskId", "agentId", "attempt", "action", "params"}


def test_configured_headers_are_added(web: Target) -> None:
    run(web.url, {"Authorization": "Bearer x", "X-Mine": "1"})
    assert web.requests[0].headers["authorization"] == "Bearer x"
    assert web.requests[0].headers["x-mine"] == "1"


@pytest.mark.parametrize("agent", ["é", "日本", "a: b", "\u2028"])
def test_agents_of_any_alphabet_fit_into_a_header(web: Target, agent: str) -> None:
    assert run(web.url, agent=agent).ok
    assert web.requests[0].body["agentId"] == agent
    assert web.requests[0].headers["x-rota-agent-id"].isascii()


# -- what becomes of the answer ------------------------------------------------------------------


def answered(web: Target, status: int, body: bytes) -> Outcome:
    web.respond = lambda _: (status, body)
    return run(web.url)


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b'{"a": [1, null]}', {"a": [1, None]}),
        (b"plain text", "plain text"),
        (b"", None),
        (b"null", None),
        (b"0", 0),
        (b'"x"', "x"),
        (b"{broken", "{broken"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'"\\ud800"', '"\\ud800"'),
        (b"NaN", "NaN"),
    ],
)
@pytest.mark.parametrize("status", [200, 201, 299])
def test_json_or_text_is_the_result(web: Target, status: int, body: bytes, result: Any) -> None:
    assert answered(web, status, body) == Outcome(ok=True, result=result)


def typed(kind: str, body: bytes) -> Outcome:
    """Run against a server that says of what kind its answer is."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return raw_answer(head.encode() + body)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "a/b+json"]
)
@pytest.mark.parametrize("body", [b"{broken", b"plain text", b"\xff", b"NaN", b"{} {}"])
def test_what_says_that_it_is_json_and_is_not_fails(kind: str, body: bytes) -> None:
    outcome = typed(kind, body)
    assert (outcome.ok, outcome.code) == (False, "bad_result")
    assert "JSON" in outcome.error


@pytest.mark.parametrize("body", [b"{broken", b"plain text", b"[" * 60 + b"x"])
def test_what_says_that_it_is_text_is_text(body: bytes) -> None:
    assert typed("text/plain", body) == Outcome(ok=True, result=body.decode())


@pytest.mark.parametrize(
    "kind", ["application/json", "application/octet-stream", "", "text/plain", "text/html"]
)
@pytest.mark.parametrize("levels", [65, 1000, 1024, 100_000])
def test_a_result_too_deep_to_be_kept_fails_and_is_not_taken_for_text(
    kind: str, levels: int
) -> None:
    outcome = typed(kind, b"[" * levels + b"]" * levels)
    assert (outcome.ok, outcome.code) == (False, "result_too_deep")


@pytest.mark.parametrize("status", [400, 404, 429, 500, 599])
def test_400_or_more_fails_with_status_and_body(web: Target, status: int) -> None:
    outcome = answered(web, status, b'{"why": "no"}')
    assert (outcome.ok, outcome.code) == (False, f"status_{status}")
    assert str(status) in outcome.error
    assert '{"why": "no"}' in outcome.error
    assert outcome.details == {"status": status, "body": {"why": "no"}}


def test_the_key_of_a_task_is_told(web: Target) -> None:
    run(web.url, key="profile-1")
    run(web.url)
    first, second = (request.body for request in web.requests)
    assert first["key"] == "profile-1"
    assert "key" not in second


def test_an_empty_refusal_says_its_status(web: Target) -> None:
    assert answered(web, 503, b"").error == "executor returned 503"


def test_a_long_refusal_is_cut(web: Target) -> None:
    outcome = answered(web, 500, b"x" * 100_000)
    assert len(outcome.error) < ERROR_CHARS_MAX + 100
    assert len(json.dumps(outcome.details)) < ERROR_CHARS_MAX + 100


@pytest.mark.parametrize("body", [b"x" * (RESULT_BYTES_MAX + 1), b"[" * 65 + b"]" * 65])
def test_a_refusal_that_cannot_be_kept_is_still_a_refusal(web: Target, body: bytes) -> None:
    outcome = answered(web, 503, body)
    assert outcome.code == "status_503"
    assert outcome.details == {"status": 503, "body": body[:ERROR_CHARS_MAX].decode()}


def test_a_redirect_is_not_followed(web: Target) -> None:
    with target() as elsewhere:
        raw = f"HTTP/1.1 307 Away\r\nLocation: {elsewhere.url}/\r\nContent-Length: 0\r\n\r\n"

        async def go() -> Outcome:
            async with receiving(raw.encode()) as receiver:
                executor = HttpExecutor(receiver.url())
                try:
                    return await executor.run(attempt(), [].append)
                finally:
                    await executor.close()

        outcome = asyncio.run(go())
        assert (outcome.ok, outcome.code) == (False, "status_307")
        assert elsewhere.requests == []


def test_a_result_at_the_limit_is_kept_and_one_above_it_fails(web: Target) -> None:
    fits = b"x" * RESULT_BYTES_MAX
    assert answered(web, 200, fits).result == fits.decode()
    outcome = answered(web, 200, fits + b"x")
    assert (outcome.ok, outcome.code, outcome.result) == (False, "result_too_large", None)


def raw_answer(raw: bytes) -> Outcome:
    async def go() -> Outcome:
        async with receiving(raw) as receiver:
            executor = HttpExecutor(receiver.url())
            try:
                return await executor.run(attempt(), [].append)
            finally:
                await executor.close()

    return asyncio.run(go())


def retry_after(text: str, status: int = 503) -> float | None:
    return raw_answer(answer(status, f"Retry-After: {text}")).retry_after_s


def test_a_refusal_says_how_long_to_leave_it_alone() -> None:
    assert retry_after("7") == 7
    assert retry_after("7", 429) == 7
    assert retry_after("7", 301) == 7
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("Fri, 31 Dec 9999 23:59:59 GMT") == RETRY_AFTER_MAX_S
    soon = retry_after(format_datetime(datetime.now(UTC) + timedelta(minutes=30), usegmt=True))
    assert soon is not None
    assert 0 < soon <= 1800


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "\xff"])
def test_a_retry_after_that_cannot_be_read_is_none(text: str) -> None:
    assert retry_after(text) is None
    assert raw_answer(answer(503)).retry_after_s is None


def test_a_good_answer_asks_for_no_pause() -> None:
    assert raw_answer(answer(200, "Retry-After: 7")) == Outcome(ok=True)


@pytest.mark.parametrize(
    ("body", "retryable", "code"),
    [
        ({"retryable": True, "code": "BUSY"}, True, "BUSY"),
        ({"retryable": False, "error": {"code": "GONE"}}, False, "GONE"),
        ({"code": "OUTER", "error": {"code": "INNER"}}, None, "OUTER"),
        ({"code": 5, "error": {"code": "INNER"}}, None, "INNER"),
        ({"code": "x" * 99, "retryable": 1}, None, "x" * 99),
        ({"code": "x" * 100, "retryable": "true"}, None, None),
        ({"code": "", "error": "busy", "retryable": None}, None, None),
        ({"error": {"code": ["x"], "retryable": True}}, None, None),
        ({"retryable": True, "code": "BIG", "why": "x" * 5000}, True, "BIG"),
        ([{"retryable": True, "code": "BUSY"}], None, None),
        ("BUSY", None, None),
    ],
)
def test_a_refusal_says_its_code_and_whether_to_try_again(
    web: Target, body: Any, retryable: Any, code: Any
) -> None:
    outcome = answered(web, 503, orjson.dumps(body))
    assert outcome.code == "status_503"
    assert outcome.retryable is retryable
    assert outcome.details is not None
    assert outcome.details.get("code") == code
    good = answered(web, 200, orjson.dumps(body))
    assert good == Outcome(ok=True, result=body)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 99999 What\r\n\r\n",
    ],
)
def test_a_broken_answer_is_an_outcome(raw: bytes) -> None:
    outcome = raw_answer(raw)
    assert (outcome.ok, outcome.code) == (False, "connection")
    assert outcome.error


def test_a_compressed_flood_is_cut_off() -> None:
    bomb = gzip.compress(b"0" * (64 << 20))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    assert raw_answer(head + bomb).code == "result_too_large"


def test_nobody_at_the_address_is_an_outcome() -> None:
    outcome = run("http://127.0.0.1:1")
    assert (outcome.ok, outcome.code) == (False, "connection")


@pytest.mark.parametrize("levels", [100, 250, 251, 252, 253, 254, 255, 300, 5000])
def test_any_outcome_can_be_written_down(web: Target, levels: int) -> None:
    """A result goes into an event, a snapshot and a list: it needs room for what is around it."""
    for status in (200, 500):
        outcome = answered(web, status, b"[" * levels + b"]" * levels)
        page = {"tasks": [{"error": {"details": {"body": outcome.details or outcome.result}}}]}
        orjson.dumps(page)


def test_deep_results_end_their_tasks_and_do_not_spoil_the_list(
    web: Target, tmp_path: Path
) -> None:
    servers = Servers(tmp_path)
    try:
        rota = servers(with_tab(web))
        for levels in (250, 251, 252, 253, 254, 255):
            deep = "[" * levels + "]" * levels
            task_id = rota.submit(tabId="t", params={"text": deep})
            assert rota.get(f"/tasks/{task_id}").status == 200
            assert rota.ended(task_id)["state"] in ("done", "failed"), levels
            assert rota.get("/tasks").status == 200, levels
            assert rota.get("/v1/tasks").status == 200, levels
    finally:
        servers.close()


# -- cancelling ----------------------------------------------------------------------------------


def test_cancelling_closes_the_connection(web: Target) -> None:
    async def go() -> None:
        class Held(HttpExecutor):
            def body(self, attempt: Attempt) -> dict[str, Any]:
                return {**super().body(attempt), "hold": "for ever"}

        held = Held(web.url)
        task = asyncio.create_task(held.run(attempt(), [].append))
        await asyncio.to_thread(web.wait_for, 1)
        task.cancel("cancelled")
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until, lambda: web.left)
        await held.close()

    asyncio.run(go())

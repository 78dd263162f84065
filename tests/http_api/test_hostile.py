"""Input that nobody sends by mistake: every answer is a 4xx in good form, and nothing is half-done.

One server stands through the whole file, so that what an early test breaks a later one finds; at
the end its state must equal a replay of its log, and it must have logged no traceback.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import random
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from support.http_server import Answer, Rota, Servers, read_all, serving, until

from rota.eventlog.codec import CLASSES
from rota.http.route import CLOSED_DIALECTS, Route
from rota.http.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODY_BYTES_MAX = 1 << 21
DOCUMENTED_503 = {
    "storage_unavailable",
    "shutting_down",
    "too_many_connections",
    "too_many_streams",
    "too_many_bytes",
}


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rota]:
    """The one server; it takes a bit less than the default, so that limits are cheap to reach."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    config = {
        "server": {"body_bytes_max": BODY_BYTES_MAX, "body_timeout_s": 2},
        "scheduler": {"maxQueueSize": 100_000, "maxPerAgent": 100_000},
    }
    with serving(folder, config) as made:
        yield made
        live, replayed = made.digests()
        assert live == replayed
        assert made.complaints() == []


def count(rota: Rota) -> int:
    return int(rota.get("/v1/stats").json["total"]["submitted"])


@pytest.fixture
def nothing_submitted(rota: Rota) -> Iterator[None]:
    """The test submits no task."""
    before = count(rota)
    yield
    assert count(rota) == before


def refused(answer: Answer, status: int = 400) -> dict[str, Any]:
    """Check that an answer is a refusal in good form and of good size; give its body."""
    assert answer.status == status, answer
    body: dict[str, Any] = answer.json
    assert re.fullmatch(r"[a-z0-9_]+", body["code"])
    assert body["error"]
    assert len(answer.body) < 5000
    assert answer.headers["x-request-id"]
    return body


# -- bodies that are not what they should be -----------------------------------------------------

PATHS = ("/v1/tasks", "/tasks", "/tasks/batch")


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("path", [*PATHS, "/v1/config/reload"])
@pytest.mark.parametrize(
    "raw",
    [
        b"{", b" ", b"nonsense", b"{'a': 1}", b'{"a": 1,}', b"\x00", b"\xff\xfe{\x00}\x00",
        b'{"agentId": "\xff"}', b'{"agentId": NaN}', b'{"agentId": Infinity}', b'{"a": 01}',
        b'{"agentId": "\\ud800", "action": "x"}', b'{"\\udfff": 1}', b"{}{}", b'"' + b"x" * 1000,
        b'\xef\xbb\xbf{"agentId": "a", "action": "b"}', b'{"agentId": "a\nb"}', b"[" * 64,
        '{"agentId": "é", "action": "x"}'.encode("latin-1"),
        '{"agentId": "a", "action": "x"}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_400(rota: Rota, path: str, raw: bytes) -> None:
    assert refused(rota.request("POST", path, raw=raw))["code"] == "invalid_json"


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("path", PATHS)
def test_an_empty_body_is_400_where_one_is_needed(rota: Rota, path: str) -> None:
    assert refused(rota.request("POST", path, raw=b""))["code"] == "invalid_json"


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [[], 0, "x", True, None, [{}], 1.5, {}])
def test_a_body_that_is_not_the_object_asked_for_is_400(rota: Rota, path: str, body: Any) -> None:
    refused(rota.request("POST", path, raw=json.dumps(body).encode()))


WRONG: dict[str, list[Any]] = {
    "agentId": [None, 1, 1.5, True, [], {}, "", " ", "\t", "a\nb", "a\x00b", "\x1b[31m", "x" * 201,
                "a\u2028b", "a\x7f", "a\x85b", "x" * 1_000_000],
    "action": [None, 1, True, [], {}, "", "  ", "a\rb", "a\x00", "x" * 201, "x" * 1_000_000],
    "tabId": [1, True, [], {}, "a\nb", "\x00", "x" * 1001, "x" * 1_000_000],
    "ref": [1, True, [], {}, "a\nb", "\x00", "x" * 1001],
    "params": [1, True, [], "x", [["a", 1]]],
    "priority": [None, 1.5, True, [], {}, "", "urgent", -1, 10**6 + 1, 2**63, 10**30, -(10**30)],
    "deadline": [1, True, [], {}, "", "now", "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z",
                 "2030-02-30T00:00:00Z", "2030-01-01T25:00:00Z", "2030-01-01 00:00:00Z",
                 "2030-01-01T00:00:00", "2030-01-01T00:00:00+99:99", "2030-01-01T00:00:60Z",
                 "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "-001-01-01T00:00:00Z",
                 "2030-01-01T00:00:00Z\n", "٢٠٣٠-01-01T00:00:00Z", "x" * 1_000_000],
    "callbackUrl": [1, True, [], {}, "x", "ftp://a", "http://", "http://a b", "http://a\nb",
                    "http://u:p@example.com", "javascript:alert(1)", "http://example.com:99999",
                    "http://" + "x" * 3000, "http://127.0.0.1", "http://[::1", "http://\udcff"],
    "timeoutMs": [0, -1, 1.5, True, "5", [], 10**12],
    "onInterrupt": ["maybe", 1, True, [], ""],
}  # fmt: skip
NATIVE_ONLY = ("timeoutMs", "onInterrupt")


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_value_is_400_and_names_its_field(rota: Rota, field: str) -> None:
    good = {"agentId": "ann", "action": "waits"}
    for value in WRONG[field]:
        raw = json.dumps({**good, field: value}).encode()
        bodies = [("/v1/tasks", raw)]
        is_absent = field == "priority" and value is None  # in PinchTab's words
        if field not in NATIVE_ONLY and not is_absent:
            bodies.append(("/tasks", raw))
            item = {k: v for k, v in {**good, field: value}.items() if k != "agentId"}
            batch: dict[str, Any] = {"agentId": "ann", "tasks": [item]}
            if field in ("agentId", "callbackUrl"):
                batch = {"agentId": "ann", "tasks": [{"action": "waits"}], field: value}
            bodies.append(("/tasks/batch", json.dumps(batch).encode()))
        for path, body in bodies:
            answer = rota.request("POST", path, raw=body)
            problem = refused(answer)
            named = field if field != "callbackUrl" else "callback"
            assert named in problem["error"] or problem["code"] == "invalid_json", (value, problem)


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("path", ["/v1/tasks", "/tasks"])
@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_deadline_outside_the_calendar_is_400(rota: Rota, path: str, deadline: str) -> None:
    body = {"agentId": "ann", "action": "waits", "deadline": deadline}
    answer = rota.post(path, body)
    assert "deadline" in refused(answer)["error"]


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize(
    "path",
    ["/v1/tasks", "/v1/tasks/tsk_nobody00/cancel", "/v1/agents/ann/pause", "/v1/config/reload"],
)
def test_unknown_fields_in_native_bodies_are_named(rota: Rota, path: str) -> None:
    body: dict[str, Any] = {"agentId": "a", "action": "b"} if path == "/v1/tasks" else {}
    for name in ("colour", "AgentId", "agent_id", "__proto__", "é", ""):
        problem = refused(rota.post(path, {**body, name: 1}))
        assert problem["error"].startswith("unknown field")
        assert name in problem["error"]


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize(
    "route",
    [r for r in ROUTES if r.method != "GET" and r.body is None and r.dialect in CLOSED_DIALECTS],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_a_body_is_refused_where_none_is_taken(rota: Rota, route: Route) -> None:
    path = re.sub(r"{\w+}", "nobody", route.path)
    for said in ({"params": {}}, [], None):
        answer = rota.request(route.method, path, raw=json.dumps(said).encode())
        assert answer.status == 400, answer.body
    answer = rota.request(route.method, path, {"params": {"message": "new"}})
    assert b"unknown field 'params'" in answer.body
    for nothing in (b"", b"{}"):
        assert rota.request(route.method, path, raw=nothing).status != 400


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/config/reload"])
def test_a_huge_field_name_is_not_sent_back(rota: Rota, path: str) -> None:
    refused(rota.post(path, {"x" * 1_000_000: 1, "agentId": "a", "action": "b"}))


@pytest.mark.usefixtures("nothing_submitted")
def test_a_huge_setting_name_is_not_sent_back(rota: Rota) -> None:
    refused(rota.post("/v1/config/reload", {"scheduler": {"x" * 1_000_000: 1}}))


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("levels", [65, 1000, 90_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_400(rota: Rota, levels: int, brackets: tuple[str, str]) -> None:
    opening, closing = brackets
    deep = opening * levels + "1" + closing * levels
    for raw in (deep, f'{{"agentId":"a","action":"b","params":{{"x":{deep}}}}}'):
        for path in PATHS:
            refused(rota.request("POST", path, raw=raw.encode()))


def test_nesting_as_deep_as_allowed_is_kept_and_shown(rota: Rota) -> None:
    value: Any = 1
    for _ in range(60):
        value = [value]
    task_id = rota.submit("deep", "echo", params={"x": value})
    assert rota.ended(task_id)["result"] == {"echo": {"x": value}}
    assert rota.get("/tasks?agentId=deep").json["count"] == 1


def test_a_megabyte_in_params_is_taken_and_given_back(rota: Rota) -> None:
    params = {"big": "x" * 1_000_000}
    task_id = rota.submit("big", "waits", params=params)
    assert rota.task(task_id)["params"] == params
    rota.post(f"/tasks/{task_id}/cancel")


def test_odd_numbers_and_texts_in_params_come_back_as_json_means_them(rota: Rota) -> None:
    params = {
        "big": 2**63 - 1, "small": -(2**63), "float": 1e308, "tiny": 5e-324, "zero": -0.0,
        "nul": "\x00", "line": "\u2028\r\n", "emoji": "😀", "key\x00": 1, "": "", "é": "é",
    }  # fmt: skip
    task_id = rota.submit("odd", "echo", params=params)
    assert rota.ended(task_id)["result"] == {"echo": params}
    assert rota.events(task=task_id)[0]["data"]["params"] == params


@pytest.mark.parametrize("number", ["1" * 400, "1e400", "-1e400", "123456789012345678901234567890"])
def test_numbers_beyond_all_bounds_are_refused_or_kept_as_numbers(rota: Rota, number: str) -> None:
    raw = f'{{"agentId":"n","action":"echo","params":{{"n":{number}}}}}'.encode()
    answer = rota.request("POST", "/tasks", raw=raw)
    if answer.status == 202:
        kept = rota.ended(answer.json["taskId"])["params"]["n"]
        assert kept == float(number)
    else:
        refused(answer)


def test_the_last_of_duplicate_keys_counts(rota: Rota) -> None:
    raw = b'{"agentId":"first","agentId":"last","action":"waits"}'
    answer = rota.request("POST", "/tasks", raw=raw)
    assert answer.status == 202
    assert rota.task(answer.json["taskId"])["agentId"] == "last"


@pytest.mark.parametrize("reason", ["x" * 501, 1, None, "a\nb", ["x"]])
def test_a_wrong_reason_cancels_nothing(rota: Rota, reason: Any) -> None:
    task_id = rota.submit_native(action="waits")
    problem = refused(rota.post(f"/v1/tasks/{task_id}/cancel", {"reason": reason}))
    assert "reason" in problem["error"]
    assert rota.task(task_id)["state"] == "queued"


# -- sizes, types, encodings, methods ------------------------------------------------------------


def sized(size: int) -> bytes:
    head, tail = b'{"agentId":"a","action":"waits","params":{"x":"', b'"}}'
    return head + b"y" * (size - len(head) - len(tail)) + tail


def chunked(body: bytes, size: int = 1 << 16) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + framed + b"0\r\n\r\n"


def exchange(rota: Rota, data: bytes) -> tuple[int, bytes]:
    """Send bytes and read one answer: its status and body."""
    with rota.connected() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        response = http.client.HTTPResponse(sock)
        response.begin()
        return response.status, response.read()


def test_a_body_at_the_limit_is_taken_and_one_above_it_is_413(rota: Rota) -> None:
    before = count(rota)
    assert rota.request("POST", "/tasks", raw=sized(BODY_BYTES_MAX)).status == 202
    assert exchange(rota, chunked(sized(BODY_BYTES_MAX)))[0] == 202
    head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    assert exchange(rota, head % (BODY_BYTES_MAX + 1))[0] == 413
    status, body = exchange(rota, chunked(sized(BODY_BYTES_MAX + 1)))
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert exchange(rota, head % 10**18)[0] == 413
    assert count(rota) == before + 2


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x", "",
             "application/jsonx", "text/json"],
)  # fmt: skip
def test_other_content_types_are_415(rota: Rota, kind: str) -> None:
    for path in PATHS:
        answer = rota.request("POST", path, {"agentId": "a", "action": "b"}, {"Content-Type": kind})
        assert refused(answer, 415)["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_by_any_spelling_is_taken(rota: Rota, kind: str) -> None:
    body = {"agentId": "a", "action": "waits"}
    assert rota.request("POST", "/tasks", body, {"Content-Type": kind}).status == 202


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x"])
def test_encoded_bodies_are_415(rota: Rota, encoding: str) -> None:
    raw = gzip.compress(b'{"agentId":"a","action":"waits"}')
    answer = rota.request("POST", "/tasks", raw=raw, headers={"Content-Encoding": encoding})
    assert refused(answer, 415)["code"] == "unsupported_encoding"


@pytest.mark.usefixtures("nothing_submitted")
def test_wrong_methods_are_405_and_told_which_are_right(rota: Rota) -> None:
    paths: dict[str, set[str]] = {}
    for route in ROUTES:
        found = paths.setdefault(route.path.replace("{id}", "x"), set())
        found |= (
            {"GET", "HEAD"} if route.method == "GET" and not route.is_stream else {route.method}
        )
    for path in paths:  # a fixed path hides a pattern only for its own methods
        paths[path] |= paths.get(f"{path.rpartition('/')[0]}/x", set())
    assert "HEAD" in paths["/v1/tasks"]
    for path, methods in paths.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - methods:
            answer = rota.request(method, path)
            if path.startswith(("/api/", "/ws/")):
                assert (answer.status, answer.json["code"]) == (405, -1405)
            elif path.startswith("/projects"):
                assert (answer.status, answer.json["error"]) == (405, "method-not-allowed")
            else:
                assert refused(answer, 405)["code"] == "method_not_allowed"
            assert set(re.split(r",\s*", answer.headers["allow"])) == methods


# -- slow and broken connections -----------------------------------------------------------------


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize(
    "start",
    [
        b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"POST /v1/agents/a/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        b"POST /v1/tasks/x/cancel HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_body_that_does_not_come_is_408(rota: Rota, start: bytes) -> None:
    began = time.monotonic()
    status, body = exchange(rota, start)
    assert (status, json.loads(body)["code"]) == (408, "body_timeout")
    assert 0.2 < time.monotonic() - began < 3


@pytest.mark.usefixtures("nothing_submitted")
def test_a_body_that_trickles_is_408_too(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        sock.settimeout(0.05)
        end = time.monotonic() + 5
        answer = b""
        while not answer and time.monotonic() < end:
            sock.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                answer = sock.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408")


def test_a_slow_body_holds_up_nobody_else(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        began = time.monotonic()
        assert rota.get("/health").status == 200
        assert time.monotonic() - began < 0.25


def test_a_client_that_waits_for_100_continue_gets_it(rota: Rota) -> None:
    body = b'{"agentId":"patient","action":"waits"}'
    head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with rota.connected() as sock:
        sock.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert sock.recv(65536).startswith(b"HTTP/1.1 100"), "no 100 Continue"
        sock.sendall(body)
        assert sock.recv(65536).startswith(b"HTTP/1.1 202")


def test_pipelined_requests_are_answered_in_order(rota: Rota) -> None:
    names = [f"pipe-{n}" for n in range(20)]
    data = b"".join(
        f"GET /nowhere/{n} HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: {n}\r\n\r\n".encode()
        for n in names[:-1]
    )
    data += f"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: {names[-1]}\r\n".encode()
    found = rota.raw(data + b"Connection: close\r\n\r\n")
    assert re.findall(rb"X-Request-ID: (\S+)", found) == [name.encode() for name in names]


def test_pipelined_submissions_are_each_submitted_once(rota: Rota) -> None:
    before = count(rota)
    body = b'{"agentId":"pipe","action":"waits"}'
    one = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    found = rota.raw((one % (len(body), body)) * 9 + last % (len(body), body))
    assert found.count(b"HTTP/1.1 202") == 10
    assert count(rota) == before + 10


def test_half_closed_connections_get_their_answers(rota: Rota) -> None:
    before = count(rota)
    body = b'{"agentId":"half","action":"waits"}'
    for n in range(20):
        with rota.connected() as sock:
            head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            sock.sendall(head % len(body) + body[: len(body) - n % 2])
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock).startswith(b"HTTP/1.1 400" if n % 2 else b"HTTP/1.1 202")
    assert count(rota) == before + 10


@pytest.mark.usefixtures("nothing_submitted")
def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error_of_ours(serve: Servers) -> None:
    rota = serve()
    for _ in range(5):
        with rota.connected() as sock:
            sock.sendall(b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
            until(lambda: rota.inside(lambda server: len(server._http.server.connections)) == 1)
            assert rota.get("/health/live").status == 200
    until(lambda: rota.inside(lambda server: len(server._http.server.connections)) == 0)
    assert [line for line in rota.log.lines if "Traceback" in line] == []


def test_connections_that_are_reset_leave_nothing_open(rota: Rota) -> None:
    body = b'{"agentId":"reset","action":"waits"}'
    for _ in range(50):
        with rota.connected() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            sock.sendall(head % len(body) + body)

    def open_now() -> int:
        return rota.inside(lambda server: len(server._http.server.connections))

    until(lambda: open_now() <= 12, what="the connections are gone")  # lingering ones of others


# -- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/%2e%2e", "/tasks/%00", "/tasks/" + "x" * 7000, "/tasks//cancel", "/tasks/",
        "//tasks", "/v1/../v1/tasks", "/tasks/%2F", "/TASKS", "/tasks/%zz", "/tasks/%ff",
        "/tasks;x=1", "/tasks/%ed%a0%80", "/tasks/..%2f..%2fetc%2fpasswd", "/v1/tasks/%20/events",
        "/v1/tasks/" + "%f0%9f%98%80" * 200, "/v1/tasks//events", "/v1/tasks/a/b/c/d", "/.",
        "/%2e%2e/%2e%2e/etc/passwd", "/v1", "/v1/", "/docs/", "/tasks/batch/cancel/x", "/%",
        "/v1/tasks/tsk_%0d%0aSet-Cookie:x", "/*",
    ],
)  # fmt: skip
def test_odd_paths_are_404(rota: Rota, path: str) -> None:
    assert refused(rota.get(path), 404)["code"] == "not_found"


@pytest.mark.parametrize(
    "query",
    ["agentId=%ff%00", "agentId=" + "x" * 5000, "a=1&a=2&a", "&&&=", "limit=5&limit=x", "%00=%00",
     "agentId=" + quote("é\u2028😀")],
)  # fmt: skip
def test_odd_queries_find_nothing(rota: Rota, query: str) -> None:
    answer = rota.get(f"/tasks?{query}")
    assert answer.status == 200
    assert answer.json["count"] >= 0


@pytest.mark.parametrize("size", [9_000, 100_000])
def test_very_long_paths_and_headers_are_refused(rota: Rota, size: int) -> None:
    long = b"x" * size
    for data in (
        b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % long,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: %b\r\n\r\n" % long,
    ):
        assert re.match(rb"HTTP/1\.[01] 4\d\d ", rota.raw(data))


def test_an_absolute_request_target_is_understood(rota: Rota) -> None:
    data = (
        b"GET http://localhost/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert rota.raw(data).startswith(b"HTTP/1.1 200")


# -- bytes ---------------------------------------------------------------------------------------

GARBAGE = [
    b"\x00" * 100, b"garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"\r\n" * 100, b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    b"POST /tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET \xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n : x\r\n\r\n", b"GET / HTTP/1.1\nHost: a\n\n",
]  # fmt: skip


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_is_answered_with_a_4xx_or_hung_up_on(rota: Rota, data: bytes) -> None:
    with rota.connected() as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        found = read_all(sock)
    assert found == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", found), found[:100]
    assert rota.get("/health/live").status == 200


def test_garbage_does_not_fill_the_log_with_tracebacks(serve: Servers) -> None:
    rota = serve()
    for data in GARBAGE:
        with rota.connected() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
    assert [line for line in rota.log.lines if "Traceback" in line] == []


def test_the_answer_to_garbage_carries_a_request_id_and_a_code(rota: Rota) -> None:
    found = rota.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert re.search(rb"(?i)\r\nx-request-id: \S+", head)
    assert json.loads(body)["code"]


# -- fuzz ----------------------------------------------------------------------------------------


class Fuzz:
    """Draws requests: mostly well-formed, with typed fields gone wrong here and there."""

    def __init__(self, seed: int, task_ids: list[str]) -> None:
        self.dice = random.Random(seed)
        self.task_ids = task_ids

    def text(self) -> str:
        dice = self.dice
        alphabet = "abcXYZ019 _-./%?#&=\\\"'<>\t\n\x00\x1b\u2028éß日😀"
        return "".join(dice.choices(alphabet, k=dice.choice([0, 1, 3, 8, 40, 300])))

    def value(self, depth: int = 0) -> Any:
        dice = self.dice
        kind = dice.randrange(9 if depth < 4 else 6)
        if kind == 0:
            return dice.choice([None, True, False])
        if kind == 1:
            return dice.choice([0, 1, -1, 5, 10**6, 2**31, 2**53, -(2**63), 2**64, 10**25])
        if kind == 2:
            return dice.choice([0.0, -0.5, 1e-300, 1e300, 3.5])
        if kind <= 5:
            return self.text()
        if kind == 6:
            return [self.value(depth + 1) for _ in range(dice.randrange(4))]
        return {self.text(): self.value(depth + 1) for _ in range(dice.randrange(4))}

    def field(self, name: str) -> Any:
        dice = self.dice
        if dice.random() < 0.15:
            return self.value()
        if name == "tasks":
            return [self.item() for _ in range(dice.choice([0, 1, 3, 51]))]
        good: dict[str, list[Any]] = {
            "agentId": ["ann", "bob", "agent " + str(dice.randrange(5)), "日本"],
            "action": ["echo", "sleep", "fail", "waits", "click"],
            "tabId": ["t1", "..", ""],
            "ref": ["e1", ""],
            "params": [{}, {"ms": 1}, {"message": "no"}, {"x": self.value()}],
            "priority": [0, 5, "high", "low"],
            "deadline": ["2020-01-01T00:00:00Z", "2026-13-01T00:00:00Z", self.soon(),
                         f"{dice.choice(['0001', '9999'])}-12-31T23:59:59{dice.choice('+-')}12:00"],
            "callbackUrl": ["http://127.0.0.1/x", "ftp://x", "https://[bad", "http://0x7f.1/"],
            "timeoutMs": [1, 1000],
            "onInterrupt": ["fail", "retry"],
            "reason": ["because", ""],
            "scheduler": [{dice.choice(["maxInflight", "resultTTLSec", "maxQueueSize", "workerCount",
                                        "x"]): dice.choice([0, 3, 50, 1000, -1, "x"])}],
        }  # fmt: skip
        return dice.choice(good[name])

    def soon(self) -> str:
        at = time.gmtime(time.time() + self.dice.choice([1, 5, 60, 10**7, 10**9]))
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", at)

    def item(self) -> Any:
        names = ("action", "tabId", "ref", "params", "priority", "deadline")
        return {name: self.field(name) for name in names if self.dice.random() < 0.5}

    def body(self, path: str) -> bytes | None:
        dice = self.dice
        if dice.random() < 0.1:
            return None
        if dice.random() < 0.1:
            return json.dumps(self.value()).encode()
        if path.endswith("/tasks"):
            body = {name: self.field(name) for name in ("agentId", "action")}
            names = ("tabId", "ref", "params", "priority", "deadline", "callbackUrl", "timeoutMs",
                     "onInterrupt")  # fmt: skip
            body |= {name: self.field(name) for name in names if dice.random() < 0.15}
        elif path.endswith("/batch"):
            body = {name: self.field(name) for name in ("agentId", "tasks")}
        elif path.endswith("/reload"):
            body = {"scheduler": self.field("scheduler")}
        else:
            body = {"reason": self.field("reason")}
        if dice.random() < 0.05:
            body[self.text()] = self.value()
        raw = json.dumps(body).encode()
        if dice.random() < 0.05:
            at = dice.randrange(len(raw))
            raw = raw[:at] + dice.randbytes(2) + raw[at + 1 :]
        return raw

    def query(self) -> str:
        dice = self.dice
        if dice.random() < 0.4:
            return ""
        choices: dict[str, list[Any]] = {
            "agentId": ["ann", self.text()],
            "state": ["done", "ready", "done,failed", "x", ",", self.text()],
            "type": ["echo", self.text()],
            "limit": [1, 10, 1000, 0, -1, "x", 10**30],
            "cursor": [1, 50, 10**18, -1, self.text()],
            "view": ["native", "pinchtab", "x"],
            "after": [0, 5, 10**17, 10**19, "x"],
            "kind": [*CLASSES, "x", self.text()],
            "task": [*self.task_ids[-5:], self.text()],
        }
        names = dice.sample(list(choices), dice.randrange(1, 4))
        pairs = [(name, str(dice.choice(choices[name]))) for name in names]
        return "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs)

    def request(self) -> tuple[str, str, bytes | None]:
        dice = self.dice
        routes = [route for route in ROUTES if route.path != "/v1/events/stream"]
        weights = [3 if route.method == "POST" else 1 for route in routes]
        (route,) = dice.choices(routes, weights)
        ids = [*self.task_ids[-20:], "tsk_nobody00"]
        name = dice.choice(ids) if dice.random() < 0.8 else quote(self.text(), safe="") or "x"
        if "agents" in route.path:
            name = quote(dice.choice(["ann", "bob", self.text() or "x"]), safe="")
        method = route.method if dice.random() < 0.95 else dice.choice(["PUT", "GET", "POST"])
        path = route.path.replace("{id}", name) + self.query()
        return method, path, self.body(route.path) if method == "POST" else None


def test_a_thousand_random_requests_cause_no_5xx(rota: Rota) -> None:
    known = len(rota.complaints())
    fuzz = Fuzz(20260308, [])
    statuses: dict[int, int] = {}
    connection = http.client.HTTPConnection("127.0.0.1", rota.port, timeout=30)
    with contextlib.closing(connection):
        for n in range(1000):
            method, path, body = fuzz.request()
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            raw = response.read()
            shown = (n, method, path[:200], (body or b"")[:300], response.status, raw[:300])
            if response.status >= 500:
                assert response.status == 503, shown
                assert json.loads(raw)["code"] in DOCUMENTED_503, shown
            assert response.getheader("X-Request-ID"), shown
            statuses[response.status] = statuses.get(response.status, 0) + 1
            if response.status == 202:
                found = json.loads(raw)
                made = found.get("tasks", [found])
                fuzz.task_ids += [item["taskId"] for item in made if "taskId" in item]
    assert {200, 202, 400, 404, 405, 409} <= set(statuses), statuses
    live, replayed = rota.digests()
    assert live == replayed
    assert rota.complaints()[known:] == []


def mutated(dice: random.Random) -> bytes:
    """Random bytes, or a good request with a few bytes changed, cut, doubled or swapped."""
    if dice.random() < 0.3:
        return dice.randbytes(dice.choice([1, 5, 50, 500]))
    body = b'{"agentId":"raw","action":"waits","priority":3}'
    seeds = [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /tasks?state=done&limit=3 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
        b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
        b"POST /v1/agents/raw/pause HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    ]
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(data))
        move = dice.randrange(5)
        if move == 0:
            data[at] = dice.randrange(256)
        elif move == 1:
            del data[at : at + dice.randrange(1, 9)]
        elif move == 2:
            data[at:at] = data[at : at + dice.randrange(1, 30)]
        elif move == 3:
            data[at:at] = dice.randbytes(dice.randrange(1, 5))
        else:
            data[at:at] = dice.choice([b"\r\n", b"\x00", b":", b" ", b"%", b"\xff", b"9" * 20])
        if not data:
            data = bytearray(b" ")
    return bytes(data)


def test_five_thousand_mutated_requests_cause_no_5xx(rota: Rota) -> None:
    known = len(rota.complaints())
    began = time.monotonic()
    bad: list[tuple[bytes, bytes]] = []
    sent = [0, 0]

    def attack(number: int) -> None:
        dice = random.Random(number)
        while sent[number] < 2500 and time.monotonic() - began < 40:
            data = mutated(dice)
            with rota.connected(5) as sock, contextlib.suppress(ConnectionError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                found = read_all(sock)
                if re.match(rb"HTTP/1\.[01] (?!503)5\d\d", found) or b"Traceback" in found:
                    bad.append((data, found[:300]))
            sent[number] += 1

    threads = [threading.Thread(target=attack, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bad == []
    assert sent == [2500, 2500]
    assert rota.get("/health").json["status"] == "ok"
    live, replayed = rota.digests()
    assert live == replayed
    assert rota.complaints()[known:] == []

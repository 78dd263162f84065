"""Bytes that a server holds for clients: bodies and answers go when they are done with."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.web_request import BaseRequest
from support.http_server import Rota, Servers, read_all, until
from support.tokens import Guarded, bearer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/tasks HTTP/1.1\r\n" + HOST
LARGE = 2_000_000
TIMES = 20
FEW = 3


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No collection of cycles: what is not freed by itself stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def requests_held() -> int:
    return sum(isinstance(each, BaseRequest) for each in gc.get_objects())


def open_now(rota: Rota) -> int:
    return rota.inside(lambda server: len(server._http.server.connections))


def all_gone(rota: Rota) -> None:
    until(lambda: open_now(rota) == 0, what="the connections are gone")


def answered(sock: socket.socket) -> bytes:
    """Give the beginning of what was answered by now, which stays to be read."""
    try:
        return sock.recv(100, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except (BlockingIOError, ConnectionError):
        return b""


def reset(sock: socket.socket) -> None:
    """Close without a farewell."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def cut(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % (LARGE + 1) + b" " * LARGE)


def half_closed(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % (LARGE + 1) + b" " * LARGE)
        sock.shutdown(socket.SHUT_WR)
        assert b"body_cut_short" in read_all(sock)


def broken_off(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % LARGE + b" " * LARGE)
        sock.sendall(b"XYZ\r\n")
        assert b"bad_http" in read_all(sock)


def large(**fields: Any) -> dict[str, Any]:
    return {"agentId": "a", "action": "waits", "params": {"x": "y" * LARGE}, **fields}


def id_taken(rota: Rota) -> None:
    assert rota.post("/v1/tasks", large(taskId="taken")).status == 409


def duplicate(rota: Rota) -> None:
    body = large(dedup={"key": "k", "ttlMs": 60_000, "mode": "reject"})
    assert rota.post("/v1/tasks", body).status == 409


def not_json(rota: Rota) -> None:
    assert rota.request("POST", "/v1/tasks", raw=b"y" * LARGE).status == 400


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("refused", [cut, half_closed, broken_off, id_taken, duplicate, not_json])
def test_a_body_that_was_refused_is_not_held(
    serve: Servers, refused: Callable[[Rota], None]
) -> None:
    rota = serve()
    dedup = {"key": "k", "ttlMs": 60_000, "mode": "reject"}
    rota.submit_native(action="waits", taskId="taken", dedup=dedup)
    for _ in range(TIMES):
        refused(rota)
    all_gone(rota)
    assert requests_held() <= FEW


@pytest.mark.usefixtures("uncollected")
def test_an_answer_that_was_not_read_to_its_end_is_not_held(serve: Servers) -> None:
    rota = serve()
    task = rota.submit_native(action="waits", params={"x": "y" * 4_000_000})
    for _ in range(TIMES):
        sock = socket.create_connection(("127.0.0.1", rota.port), 10)
        sock.sendall(b"GET /v1/tasks/%b HTTP/1.1\r\n" % task.encode() + HOST + b"\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        reset(sock)
    all_gone(rota)
    assert requests_held() <= FEW


@pytest.mark.usefixtures("uncollected")
def test_what_comes_after_a_refusal_is_not_looked_at(serve: Servers) -> None:
    rota = serve()
    for _ in range(TIMES):
        with rota.connected() as sock, contextlib.suppress(ConnectionError):
            sock.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 1_000_000)
            sock.sendall(b"\r\n\r\n")
    all_gone(rota)

    def held() -> int:
        return sum(type(each).__name__ == "_ErrInfo" for each in gc.get_objects())

    until(lambda: held() <= FEW)


# -- bodies that nobody reads to their end -------------------------------------------------------


def test_the_connection_of_a_body_that_came_too_slowly_is_closed(serve: Servers) -> None:
    rota = serve({"server": {"bodyTimeoutS": 0.2}})
    with rota.connected(5) as sock:
        began = time.monotonic()
        sock.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        found = read_all(sock)
        assert found.startswith(b"HTTP/1.1 408")
        assert b"Connection: close" in found
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("length", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
def test_the_connection_of_a_body_that_nobody_wants_is_closed(
    serve: Servers, length: bytes
) -> None:
    rota = serve({"server": {"tokens": {"me": "x" * 32}}})
    with rota.connected(5) as sock:
        sock.sendall(POST + length + b"\r\n\r\n")
        found = read_all(sock)
        assert found.startswith(b"HTTP/1.1 401")
        assert json.loads(found.partition(b"\r\n\r\n")[2])["code"] == "unauthorized"


def test_the_connection_of_a_small_body_that_nobody_wants_goes_on(serve: Servers) -> None:
    rota = serve()
    with rota.connected(5) as sock:
        sock.sendall(b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 404")
        sock.sendall(b"{}GET /health/live HTTP/1.1\r\n" + HOST + b"\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


def test_who_sends_a_large_body_in_vain_sees_why(serve: Servers) -> None:
    rota = serve({"server": {"tokens": {"me": "x" * 32}}})
    for _ in range(5):
        assert rota.request("POST", "/v1/tasks", raw=b" " * 4_000_000).status == 401
    rota.token = "x" * 32
    for _ in range(5):
        assert rota.request("POST", "/v1/tasks", raw=b" " * 8_000_000).status == 413


# -- all bodies together, all answers together ---------------------------------------------------


def test_bodies_on_their_way_in_are_bounded_together(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.byte_budgets.BODIES_BYTES_MAX", 600_000)
    rota = serve()

    def held() -> int:
        return rota.inside(lambda server: server.app.body_budget.shares.held)

    body = {"agentId": "a", "action": "waits", "params": {"x": "y" * 100_000}}
    for framing in (
        b"Content-Length: 900000\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nDBBA0\r\n",
    ):
        with rota.connected() as sock:
            sock.sendall(POST + framing + b" " * 250_000)
            until(lambda: held() == 250_000)
            refused = rota.post("/v1/tasks", body)
            assert (refused.status, refused.code) == (503, "too_many_bytes")
            assert refused.json["retryable"]
            assert refused.headers["retry-after"]
            rota.submit_native(action="waits", params={"x": "y" * 60_000})
        until(lambda: held() == 0)
        assert rota.post("/v1/tasks", body).status == 202


def test_bodies_of_one_caller_leave_room_for_anothers(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.byte_budgets.BODIES_BYTES_MAX", 500_000)
    guarded = Guarded(serve)
    slow = bearer(guarded.make("slow", "submit", "a"))["Authorization"].encode()
    guarded.make("other", "submit", "b")
    ask = POST + b"Authorization: " + slow + b"\r\nContent-Length: 900000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(guarded.rota.connected()) for _ in range(5)]
        for sock in socks:
            sock.sendall(ask + b" " * 100_000)
        until(lambda: any(answered(sock).startswith(b"HTTP/1.1 503") for sock in socks))
        body = {"agentId": "b", "action": "waits", "params": {"x": "y" * 200_000}}
        assert guarded.ask("other", "POST", "/v1/tasks", body).status == 202


def test_bodies_that_were_only_promised_keep_nobody_out(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.byte_budgets.BODIES_BYTES_MAX", 300_000)
    rota = serve()
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            sock = stack.enter_context(rota.connected())
            sock.sendall(POST + b"Content-Length: 900000\r\n\r\n" + b" " * 1000)
        rota.submit_native(action="waits", params={"x": "y" * 100_000})


def test_answers_that_nobody_reads_are_bounded_together(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.places.UNREAD_BYTES_MAX", 20_000_000)
    rota = serve()
    task = rota.submit_native(action="waits", params={"x": "y" * 4_000_000})
    ask = b"GET /v1/tasks/%b HTTP/1.1\r\n" % task.encode() + HOST + b"Connection: close\r\n\r\n"
    with contextlib.ExitStack() as stack:
        socks = []
        for _ in range(30):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(10)
            sock.connect(("127.0.0.1", rota.port))
            sock.sendall(ask)
            assert sock.recv(10)
            socks.append(sock)
        until(lambda: 1 < open_now(rota) < 15, what="the oldest were hung up on")
        assert len(read_all(socks[-1])) > 4_000_000, "the newest was not"


# -- bodies in crumbs ----------------------------------------------------------------------------


def in_chunks(body: bytes, size: int) -> bytes:
    parts = (body[at : at + size] for at in range(0, len(body), size))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return POST + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def test_a_body_in_very_many_very_small_chunks_is_refused(serve: Servers) -> None:
    rota = serve()
    with rota.connected() as sock:
        sock.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        until(lambda: open_now(rota) == 1)
        sock.sendall(b"1\r\n \r\n" * 10_100)  # no more than is looked at: a reset takes answers
        found = read_all(sock)
        assert found.startswith(b"HTTP/1.1 400")
        assert b"too_many_chunks" in found


@pytest.mark.parametrize(
    ("length", "size"), [(10_000, 1), (1_000_000, 16), (4_000_000, 1000), (4_000_000, 4_000_000)]
)
def test_a_body_in_small_chunks_is_taken(serve: Servers, length: int, size: int) -> None:
    rota = serve()
    body = b'{"agentId":"a","action":"waits","params":{"x":"%b"}}' % (b"\r\n" * (length // 4))
    body = body.replace(b"\r\n", b"\\r\\n") + b"\r\n" * 2
    with rota.connected() as sock:
        sock.sendall(in_chunks(body, size))
        assert sock.recv(100).startswith(b"HTTP/1.1 202")

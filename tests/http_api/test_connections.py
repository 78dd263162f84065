"""Connections: what is not quite HTTP, what does not come, and who gives way to whom."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import random
import re
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Rota, Servers, read_all, serving, until

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = b"Host: localhost\r\n"
ASK = b"GET /health/live HTTP/1.1\r\n" + HOST + b"\r\n"
QUICK = {"server": {"headerTimeoutS": 0.3, "bodyTimeoutS": 0.3}}


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rota]:
    """One server that does not wait long."""
    with serving(tmp_path_factory.mktemp("connections"), QUICK) as made:
        yield made
        assert tracebacks(made) == []


def tracebacks(rota: Rota) -> list[str]:
    return [line for line in rota.log.lines if "Traceback" in line or line.startswith("ERROR")]


def open_now(rota: Rota) -> int:
    return rota.inside(lambda server: len(server._http.server.connections))


def status_of(found: bytes) -> int:
    match = re.match(rb"HTTP/1\.[01] (\d{3}) ", found)
    assert match, found[:100]
    return int(match[1])


# -- what passes a parser and is no request ------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT \r\n\r\n",
        b"CONNECT  HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET http://localhost:99999999/x HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http://[::1/x HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET mailto:a HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_400_and_hung_up_on(rota: Rota, data: bytes) -> None:
    found = rota.raw(data, timeout_s=2)
    assert status_of(found) == 400
    head, _, body = found.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert problem["code"] == "bad_http"
    assert problem["requestId"].encode() in head


def test_a_target_left_out_is_not_taken_for_the_one_before(rota: Rota) -> None:
    found = rota.raw(ASK + b"CONNECT \r\n\r\n", timeout_s=2)
    assert [int(each) for each in re.findall(rb"HTTP/1\.[01] (\d{3}) ", found)] == [200, 400]


@pytest.mark.parametrize("rest", [b"ZZZ\r\n", b"5\r\n{\r\n\r\nXXXX\r\n"])
def test_a_body_that_breaks_off_its_framing_is_400_at_once(serve: Servers, rest: bytes) -> None:
    rota = serve({"server": {"bodyTimeoutS": 30}})
    head = b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    with rota.connected(5) as sock:
        sock.sendall(head)
        until(lambda: open_now(rota) == 1)
        sock.sendall(rest)
        found = read_all(sock)
    assert status_of(found) == 400
    assert found.count(b"HTTP/1.") == 1
    assert tracebacks(rota) == []


def test_what_a_socket_asks_for_in_vain_is_not_logged(serve: Servers) -> None:
    rota = serve({"types": {"x": {}}})
    job = rota.post("/api/jobs", {"jobType": "x"}).json["data"]["jobId"].encode()
    data = b"GET /ws/jobs/" + job + b" HTTP/1.1\r\n" + HOST
    data += b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
    data += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: \xff\r\n\r\n"
    with rota.connected(5) as sock:
        sock.sendall(data)
        assert sock.recv(65536).startswith(b"HTTP/1.1 101")
    assert [line for line in rota.log.lines if "aiohttp" in line] == []


# -- half-closed connections ---------------------------------------------------------------------


def half_closed(rota: Rota, data: bytes) -> bytes:
    with rota.connected(5) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def posted(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n%b" % (size, body)


def test_who_has_closed_their_half_is_still_answered(rota: Rota) -> None:
    body = b'{"agentId":"half","action":"waits"}'
    for _ in range(20):
        found = half_closed(rota, posted(body))
        assert status_of(found) == 202
        task_id = json.loads(found.partition(b"\r\n\r\n")[2])["taskId"]
        assert rota.get(f"/v1/tasks/{task_id}").status == 200


def test_all_that_was_asked_before_closing_a_half_is_answered(rota: Rota) -> None:
    found = half_closed(rota, ASK * 5 + posted(b'{"agentId":"half","action":"waits"}'))
    assert found.count(b"HTTP/1.1 200") == 5
    assert found.count(b"HTTP/1.1 202") == 1


def test_a_body_cut_short_by_closing_a_half_is_400(rota: Rota) -> None:
    found = half_closed(rota, posted(b'{"agentId":', 100))
    assert status_of(found) == 400
    assert b'"body_cut_short"' in found


def test_who_waits_long_with_a_closed_half_does_not_hold_a_place_for_ever(rota: Rota) -> None:
    task_id = rota.submit_native(action="waits")
    began = time.monotonic()
    ask = f"GET /v1/tasks/{task_id}?waitMs=60000 HTTP/1.1\r\n".encode() + HOST + b"\r\n"
    half_closed(rota, ask)
    assert time.monotonic() - began < 5


# -- what does not come --------------------------------------------------------------------------


@pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"\r\n"])
def test_headers_that_do_not_come_end_the_connection(rota: Rota, start: bytes) -> None:
    began = time.monotonic()
    found = rota.raw(start, timeout_s=5)
    assert 0.2 < time.monotonic() - began < 3
    if start:
        assert status_of(found) == 408
        assert b'"header_timeout"' in found
    else:
        assert found == b""


def test_headers_that_trickle_end_the_connection_too(rota: Rota) -> None:
    with rota.connected(5) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
        sock.settimeout(0.05)
        found, end = b"", time.monotonic() + 4
        while not found and time.monotonic() < end:
            sock.sendall(b"X: 1\r\n")
            with contextlib.suppress(TimeoutError):
                found = sock.recv(65536)
        assert status_of(found) == 408


def test_the_time_of_the_next_headers_counts_from_their_first_byte(rota: Rota) -> None:
    with rota.connected(5) as sock:
        sock.sendall(ASK)
        assert status_of(sock.recv(65536)) == 200
        sock.settimeout(0.6)  # longer than headers may take: between requests it may rest
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(5)
        sock.sendall(ASK[:20])
        assert status_of(read_all(sock)) == 408


# -- places --------------------------------------------------------------------------------------


def test_silent_connections_give_way_to_those_who_ask(serve: Servers) -> None:
    rota = serve({"server": {"connections_max": 4, "headerTimeoutS": 60}})
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(rota.connected())
        assert rota.get("/health/live").status == 200
        assert rota.inside(lambda server: len(server._http.server.places)) <= 4


def test_bodies_that_do_not_come_give_way_too(serve: Servers) -> None:
    rota = serve({"server": {"connections_max": 4, "bodyTimeoutS": 60}})
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            sock = stack.enter_context(rota.connected())
            sock.sendall(posted(b"{", 100))
        assert rota.get("/health/live").status == 200


def test_idle_connections_give_way_the_oldest_first(serve: Servers) -> None:
    rota = serve({"server": {"connections_max": 4}})
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(rota.connected(5)) for _ in range(4)]
        for sock in held:
            sock.sendall(ASK)
            assert status_of(sock.recv(65536)) == 200
        assert rota.get("/health/live").status == 200
        assert read_all(held[0]) == b""
        held[3].sendall(ASK)
        assert status_of(held[3].recv(65536)) == 200


def test_an_answer_that_nobody_reads_is_cut_off(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.listener.UNREAD_S", 0.3)
    rota = serve()
    for _ in range(12):
        rota.submit_native(action="waits", params={"x": "y" * 1_000_000})
    with rota.connected() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /v1/tasks HTTP/1.1\r\n" + HOST + b"\r\n")
        until(lambda: open_now(rota) == 1)
        until(lambda: open_now(rota) == 0, what="it was cut off")


def test_connections_that_come_together_are_taken_in_a_few_turns_of_the_loop(
    serve: Servers,
) -> None:
    rota = serve()
    with contextlib.ExitStack() as stack:

        async def turns() -> int:
            for _ in range(100):  # the loop is held up meanwhile
                stack.enter_context(rota.connected())
            for turn in range(1000):
                if len(rota.server._http.server.places) == 100:
                    return turn
                await asyncio.sleep(0)
            return 1000

        assert asyncio.run_coroutine_threadsafe(turns(), rota._loop).result(30) < 20


def test_connections_are_taken_again_once_there_are_descriptors(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.listener.ACCEPT_PAUSE_S", 0.05)
    rota = serve()

    class Short:
        """A listening socket for which there are no descriptors at first."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock, self.fileno, self.close = sock, sock.fileno, sock.close
            self.left = 2

        def accept(self) -> Any:
            if self.left:
                self.left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.sock.accept()

    rota.inside(lambda server: setattr(server._site, "_sock", Short(server._site._sock)))
    assert rota.get("/health/live").status == 200
    assert [line for line in rota.log.lines if "cannot accept" in line]


# -- fuzz ----------------------------------------------------------------------------------------

CASES = 6000
METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"CONNECT", b"TRACE", b"PATCH",
           b"PRI", b"SOURCE", b"M-SEARCH", b"get", b"", b"X" * 50, b"QUERY"]  # fmt: skip
TARGETS = [b"/health/live", b"/v1/tasks", b"/tasks", b"", b"*", b"/", b"//", b"//x:99999/", b"/%",
           b"/%zz", b"/\xff", b"/a b", b"http://localhost/tasks", b"http://localhost:99999/",
           b"http://[::1/", b"http://", b"http:", b":80", b"localhost:80", b"localhost:99999999",
           b"https://u:p@localhost/", b"ftp://localhost/tasks", b"/?\xff=%00", b"/#x", b"/tasks?a#b",
           b"?x", b"\\", b"/" + b"x" * 9000, b"/v1/events/stream", b"/ws/jobs/x", b"[", b"@", b"/\x00",
           b"/v1/tasks/%00/logs", b"/..", b"/v1/agents/%ed%a0%80/pause"]  # fmt: skip
VERSIONS = [b" HTTP/1.1"] * 8 + [b" HTTP/1.0", b"", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/9.9", b" ",
            b" RTSP/1.0", b" ICE/1.0", b" http/1.1", b" HTTP/1.1 x"]  # fmt: skip
HEADERS = [b"Host: localhost", b"Host:", b"Host: \xff", b"Host: a b", b"Host: [::1", b"Host: x:99999",
           b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 5, 5", b"Content-Length: x",
           b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked", b"Connection: close",
           b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"Connection: upgrade",
           b"Upgrade: websocket", b"Upgrade: h2c", b"Upgrade: tcp", b"Sec-WebSocket-Key1: x",
           b"Expect: 100-continue", b"Expect: x", b"Content-Type: application/json", b"Origin: null",
           b"Origin: http://", b"Authorization: Bearer \xff", b"X-Request-ID: \xff", b"Content-Encoding: br",
           b"Idempotency-Key: " + b"k" * 300, b"X: " + b"y" * 9000, b": x", b"a b: c", b"X\x00: 1", b" folded",
           b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Cookie: \x80",
           b"Last-Event-ID: 5", b"Forwarded: for=[", b"Range: bytes=0-", b"Accept: *"]  # fmt: skip
BODIES = [b"", b"{}", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\n\r\n", b"ZZ\r\n",
          b"5\r\nhel", b"0\r\nX: 1\r\n\r\n", b"FFFFFFFFFFFFFFFFF\r\n", b"-1\r\n", b"\x81\x00", ASK,
          b"CONNECT \r\n\r\n", b"0\r\n\r\n" + ASK, b"\x00" * 50, b"5\r\nhelloXX\r\n"]  # fmt: skip


def drawn(dice: random.Random) -> list[bytes]:
    """Draw what a client might send, in one to three pieces."""
    if dice.random() < 0.05:
        data = dice.randbytes(dice.choice([1, 10, 300]))
    else:
        line = dice.choice(METHODS) + b" " + dice.choice(TARGETS) + dice.choice(VERSIONS)
        headers = dice.sample(HEADERS, dice.randrange(5))
        if dice.random() < 0.7:
            headers = [b"Host: localhost", *headers]
        end = b"\r\n" if dice.random() < 0.95 else b"\n"
        data = end.join([line, *headers, b"", b""])
        data = data * dice.choice([1, 1, 1, 2]) + dice.choice(BODIES)
    if data and dice.random() < 0.2:
        at = dice.randrange(len(data))
        data = data[:at] + dice.randbytes(dice.randrange(3)) + data[at + dice.randrange(3) :]
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice([0, 0, 0, 1, 2])))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


async def told(port: int, pieces: list[bytes], *, is_half_closed: bool) -> bytes | None:
    """Send the pieces and read what comes; None if neither an answer nor an end comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = b""
    try:
        async with asyncio.timeout(3):
            with contextlib.suppress(OSError):
                for piece in pieces:
                    writer.write(piece)
                    await asyncio.sleep(0)
                if is_half_closed:
                    writer.write_eof()
                while not found and not reader.at_eof():
                    found += await reader.read(65536)
    except TimeoutError:
        return None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return found


def test_thousands_of_odd_requests_are_each_answered_or_hung_up_on(serve: Servers) -> None:
    rota = serve(QUICK)
    dice = random.Random(1)
    cases = [(drawn(dice), dice.random() < 0.3) for _ in range(CASES)]
    wrong: list[Any] = []

    async def work(mine: Iterator[tuple[list[bytes], bool]]) -> None:
        for pieces, is_half_closed in mine:
            found = await told(rota.port, pieces, is_half_closed=is_half_closed)
            is_good = found == b"" or re.match(rb"HTTP/1\.[01] [1-4]\d\d ", found or b"")
            if not is_good:
                wrong.append((pieces, is_half_closed, (found or b"nothing")[:200]))

    async def run() -> None:
        shared = iter(cases)
        await asyncio.gather(*(work(shared) for _ in range(64)))

    asyncio.run(run())
    assert wrong[:5] == []
    assert tracebacks(rota) == []
    until(lambda: rota.inside(lambda s: len(s._http.server.places)) == 0, what="all are gone")

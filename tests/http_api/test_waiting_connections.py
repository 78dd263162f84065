"""Connections that wait give way, and leave room for health and for administrators."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import read_all, until
from support.leasing import Waiting, take
from support.tokens import OPS, Guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.http_server import Rota, Servers

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /health/live HTTP/1.1\r\n" + HOST + b"\r\n"
Sockets = contextlib.ExitStack
WORKER = {"workerId": "w", "waitMs": 60_000}


def posted(path: str, body: Any, token: str | None = None) -> bytes:
    raw = json.dumps(body).encode()
    bearer = f"Authorization: Bearer {token}\r\n".encode() if token else b""
    head = f"POST {path} HTTP/1.1\r\nContent-Length: {len(raw)}\r\n".encode()
    return head + HOST + bearer + b"\r\n" + raw


def asked(rota: Rota, stack: Sockets, data: bytes) -> socket.socket:
    """Open a connection, and send a request that is not answered soon."""
    sock = stack.enter_context(rota.connected())
    sock.sendall(data)
    return sock


def open_now(rota: Rota) -> int:
    return rota.inside(lambda server: len(server._http.server.connections))


def waiting(rota: Rota) -> int:
    """Count the connections that wait."""
    return rota.inside(lambda server: server._http.server.places.waiting.held)


@pytest.fixture
def served(serve: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Rota, int], int]]:
    """Have many connections served while the test lasts: the host of a callback is looked at."""
    del serve  # whose servers are stopped after this has ended
    is_over, seen = threading.Event(), [0]

    async def look(*_: Any) -> None:
        seen[0] += 1
        while not is_over.is_set():
            await asyncio.sleep(0.01)

    monkeypatch.setattr("rota.executors.guard.CallbackGuard.check_at_submission", look)
    with contextlib.ExitStack() as stack:

        def serve_many(rota: Rota, count: int) -> int:
            task = {"agentId": "a", "action": "waits", "callbackUrl": "http://a.example/"}
            for _ in range(count):
                asked(rota, stack, posted("/v1/tasks", task, rota.token))
            return until(lambda: seen[0] == count and count, what="all are looked at")

        yield serve_many
        is_over.set()


# -- shares --------------------------------------------------------------------------------------


def test_a_token_that_waits_for_tasks_leaves_places_to_others(serve: Servers) -> None:
    guarded = Guarded(serve, {"server": {"connectionsMax": 8}})
    guarded.make("greedy", "work", "*")
    guarded.make("modest", "admin")
    rota = guarded.rota
    with contextlib.ExitStack() as stack:
        for at in range(4):
            asked(rota, stack, posted("/v1/leases", WORKER, guarded.tokens["greedy"]))
            until(lambda at=at: waiting(rota) == at + 1)
        for _ in range(8):
            answer = guarded.ask("greedy", "POST", "/v1/leases", WORKER)
            assert (answer.status, answer.code) == (429, "too_many_waiting")
            assert answer.headers["retry-after"]
        at_once = {"workerId": "w", "waitMs": 0}
        assert guarded.ask("greedy", "POST", "/v1/leases", at_once).status == 200
        modest = Waiting(guarded.client("modest"), "m", types=["x"])
        rota.submit_native("ann", "x")
        assert len(modest.given()) == 1
        assert waiting(rota) == 4
        guarded.revoke("greedy")
        until(lambda: waiting(rota) == 0, what="all of its requests are answered")


def test_all_that_wait_count_together(serve: Servers) -> None:
    rota = serve({"server": {"connectionsMax": 4}})
    task = rota.submit_native("ann", "waits")
    with rota.stream("/v1/events/stream?agentId=ann"), contextlib.ExitStack() as stack:
        asked(
            rota, stack, b"GET /v1/tasks/%b?waitMs=60000 HTTP/1.1\r\n%b\r\n" % (task.encode(), HOST)
        )
        until(lambda: waiting(rota) == 2)
        for path in ("/v1/events/stream?agentId=ann", f"/v1/tasks/{task}?waitMs=60000"):
            answer = rota.get(path)
            assert (answer.status, answer.code) == (429, "too_many_waiting")
    until(lambda: waiting(rota) == 0, what="all have left")


# -- who gives way -------------------------------------------------------------------------------


def lease(rota: Rota, n: int) -> bytes:
    del rota
    return posted("/v1/leases", {"workerId": f"w{n}", "waitMs": 60_000})


def settle(rota: Rota, n: int) -> bytes:
    del rota
    body = {"workerId": f"w{n}", "outcomes": [], "lease": {"waitMs": 60_000}}
    return posted("/v1/leases/settle", body)


def heartbeat(rota: Rota, n: int) -> bytes:
    rota.submit_native("ann", "waits")
    [lease] = take(rota, f"w{n}")
    body = {"token": lease["token"], "waitMs": 60_000}
    return posted(f"/v1/leases/{lease['leaseId']}/heartbeat", body)


def task(rota: Rota, n: int) -> bytes:
    path = f"/v1/tasks/{rota.submit_native(f'a{n}', 'waits')}?waitMs=60000"
    return f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n"


def job(rota: Rota, n: int) -> bytes:
    path = f"/api/jobs/{rota.submit_native(f'a{n}', 'waits')}?waitMs=60000"
    return f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n"


def stream(rota: Rota, n: int) -> bytes:
    del rota
    return f"GET /v1/events/stream?agentId=a{n} HTTP/1.1\r\n".encode() + HOST + b"\r\n"


def job_socket(rota: Rota, n: int) -> bytes:
    path = f"/ws/jobs/{rota.submit_native(f'a{n}', 'waits')}"
    upgrade = b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    return f"GET {path} HTTP/1.1\r\n".encode() + HOST + upgrade + key + b"\r\n"


def force_stop(rota: Rota, n: int) -> bytes:
    project = f"/v1/projects/p{n}"
    rota.post(f"{project}/tasks", {"action": "pulled"})
    assert rota.post(f"{project}/run", {"mode": "single"}).status == 202
    until(lambda: rota.post("/v1/leases", {"workerId": "w"}).json["leases"])
    return posted(f"{project}/queue/force-stop", {})


@pytest.mark.parametrize(
    "waits", [lease, settle, heartbeat, task, job, stream, job_socket, force_stop]
)
def test_who_waits_is_answered_early_when_all_places_are_taken(
    serve: Servers, waits: Callable[[Rota, int], bytes]
) -> None:
    rota = serve({"server": {"connectionsMax": 3}, "projects": {"killWaitMs": 60_000}})
    requests = [waits(rota, n) for n in range(3)]
    with contextlib.ExitStack() as stack:
        socks = []
        for n, request in enumerate(requests):
            socks.append(asked(rota, stack, request))
            until(lambda n=n: waiting(rota) == n + 1)
        assert rota.get("/health/live").status == 200
        found = read_all(socks[0])
        assert found.startswith((b"HTTP/1.1 200", b"HTTP/1.1 101")), found
        if waits is lease:
            assert found.endswith(b'{"leases":[]}')
        if waits is stream:
            assert found.endswith(b"0\r\n\r\n")
        assert waiting(rota) == 2
        assert rota.get("/health/live").status == 200  # the place of who has asked before
        assert waiting(rota) == 2


def test_a_stream_that_is_not_read_is_closed(serve: Servers) -> None:
    rota = serve({"server": {"connectionsMax": 2}})
    for _ in range(12):
        rota.submit_native(action="waits", params={"x": "y" * 1_000_000})
    with rota.connected() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /v1/events/stream?after=0 HTTP/1.1\r\n" + HOST + b"\r\n")
        until(lambda: waiting(rota) == 1)
        with Sockets() as stack:
            asked(rota, stack, task(rota, 1))
            until(lambda: waiting(rota) == 2)
            assert rota.get("/health/live").status == 200
            until(lambda: open_now(rota) == 1, what="only the other is left")


# -- above the limit -----------------------------------------------------------------------------


def test_health_and_administrators_are_served_while_all_others_are_refused(
    serve: Servers, served: Callable[[Rota, int], int]
) -> None:
    guarded = Guarded(serve, {"server": {"connectionsMax": 3}})
    rota = guarded.rota
    guarded.make("dev", "submit", "*")
    served(rota, 3)
    answer = guarded.ask("dev", "GET", "/v1/tasks")
    assert (answer.status, answer.code) == (503, "too_many_connections")
    assert answer.json["retryable"] is True
    assert answer.headers["retry-after"]
    assert answer.headers["x-request-id"] == answer.json["requestId"]
    assert rota.raw(HEALTH).startswith(b"HTTP/1.1 200"), "and closed"
    assert rota.get("/v1/scheduler").status == 200
    lease = {"workerId": "w", "waitMs": 60_000}
    assert rota.post("/v1/leases", lease).json == {"leases": []}, "nobody waits above the limit"
    task = rota.submit_native("ann", "waits")
    assert rota.get(f"/v1/tasks/{task}?waitMs=60000").json["state"] == "ready"
    guarded.revoke("dev")
    assert guarded.ask("dev", "GET", "/v1/tasks").status == 401


def test_without_tokens_health_is_told_and_all_else_refused(
    serve: Servers, served: Callable[[Rota, int], int]
) -> None:
    rota = serve({"server": {"connectionsMax": 2}})
    served(rota, 2)
    assert rota.get("/health").status == 200
    assert (answer := rota.get("/v1/tasks")).status == 503, answer


def test_who_says_nothing_above_the_limit_keeps_nobody_out(
    serve: Servers, served: Callable[[Rota, int], int]
) -> None:
    rota = serve({"server": {"connectionsMax": 1, "headerTimeoutS": 60, "tokens": {"ops": OPS}}})
    rota.token = OPS
    served(rota, 1)
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(rota.connected())
        assert rota.get("/v1/scheduler").status == 200
        assert rota.get("/health/live").status == 200
        until(lambda: open_now(rota) < 300, what="the first that came were closed")

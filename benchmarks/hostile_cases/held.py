"""What does a server hold of bodies and answers that come to nothing?

Bodies cut short, bodies refused with 409, headers of ten megabytes and answers that nobody reads:
how much the process has grown by afterwards. And bodies in chunks of one byte: the longest wait of
others meanwhile.
"""

import contextlib
import socket
import time

from common import RawClient, request_bytes, rota_server, temp_folder
from watch import memory_mb, stalls

TIMES = 40
BODY_BYTES = 4 << 20
HEADER_BYTES = 10_000_000
UNREAD = 100
CRUMBS = 600_000
TIMEOUT_S = 30
"""Longer than an answer waits for room (rota.http.byte_budgets.WAIT_S), which is refused then."""
HOST = b"Host: localhost\r\n"
POST = b"POST /v1/tasks HTTP/1.1\r\n" + HOST


def cases():
    """Waste the server's memory and time."""
    growing = {
        f"{TIMES} bodies of 4 MB cut short": (_cut, 60),
        f"{TIMES} bodies of 4 MB refused with 409": (_taken, 60),
        f"{TIMES} headers of 10 MB": (_headers, 60),
        f"{UNREAD} answers of 4 MB that nobody reads": (_unread, 350),
    }
    for what, (harm, bound) in growing.items():
        with temp_folder() as folder, rota_server(folder) as (port, process):
            body = {"agentId": "a", "action": "waits", "taskId": "taken"}
            body["params"] = {"x": "y" * (BODY_BYTES - 1000)}
            client = RawClient(port)
            status, _ = client.call(request_bytes("/v1/tasks", body))
            assert status == 202, status
            client.close()
            before = memory_mb(process.pid)
            with contextlib.ExitStack() as stack:
                harm(port, body, stack)
                time.sleep(1)
                yield f"{what}: grown by", memory_mb(process.pid) - before, "MB", bound
    with temp_folder() as folder, rota_server(folder) as (port, _):
        request = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * CRUMBS
        for count in (1, 20):
            with stalls(port) as waits, contextlib.ExitStack() as stack:
                time.sleep(0.2)
                for _ in range(count):
                    sock = _connected(port, stack)
                    with contextlib.suppress(OSError):
                        sock.sendall(request)
                time.sleep(0.5)
            yield f"{count} x {CRUMBS:,} chunks of one byte", max(waits), "ms", 100


def _connected(port, stack):
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT_S))


def _cut(port, _, stack):
    del stack
    for _ in range(TIMES):
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
            sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % BODY_BYTES)
            sock.sendall(b" " * (BODY_BYTES - 300))


def _taken(port, body, stack):
    del stack
    client = RawClient(port)
    for _ in range(TIMES):
        status, _ = client.call(request_bytes("/v1/tasks", body))
        assert status == 409, status
    client.close()


def _headers(port, _, stack):
    for _ in range(TIMES):
        with contextlib.suppress(OSError):
            sock = _connected(port, stack)
            sock.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"y" * HEADER_BYTES)


def _unread(port, _, stack):
    for _ in range(UNREAD):
        sock = stack.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(TIMEOUT_S)
        sock.connect(("127.0.0.1", port))
        sock.sendall(b"GET /v1/tasks/taken HTTP/1.1\r\n" + HOST + b"\r\n")
        sock.recv(10)

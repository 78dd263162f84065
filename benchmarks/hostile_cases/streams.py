"""Streams of events: what many readers, idle ones, and ones that do not read, cost the others.

The rates are those of small tasks over a few connections, with and without streams, in one run; the
readers are a process beside the server's, and want a core of their own.
Memory is the process's growth, as the kernel counts it.
"""

import multiprocessing
import selectors
import socket
import time

from common import RawClient, rota_server, run_load, temp_folder
from common import request_bytes as request
from watch import memory_mb

STREAMS = 990
TASKS = 1500
STALLED = 200
RESULTS = 40
RESULT_BYTES = 500_000


def opened(port, count, query="", *, small=False):
    """Open streams, and wait for their greetings."""
    head = f"GET /v1/events/stream{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    found = []
    for _ in range(count):
        sock = socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", port))
        sock.sendall(head)
        found.append(sock)
    if not small:
        for sock in found:
            assert sock.recv(4096).startswith(b"HTTP/1.1 200"), "refused"
    return found


class Readers:
    """Reads from all streams in a process of its own, and throws away what it reads."""

    def __init__(self, sockets):
        self.sockets = sockets
        self.process = multiprocessing.get_context("fork").Process(target=self.run)
        self.process.start()

    def run(self):
        selector = selectors.DefaultSelector()
        for sock in self.sockets:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                key.fileobj.recv(1 << 18)

    def close(self):
        self.process.terminate()
        self.process.join()
        for sock in self.sockets:
            sock.close()


def rate(port):
    """Submit tasks over 8 connections and wait until all have run; give tasks a second."""
    body = {"agentId": "bench", "action": "echo", "params": {"x": 1}}
    begun = completed(port)
    start = time.perf_counter()
    run_load(port, [request("/v1/tasks", body)] * TASKS, 8)
    while completed(port) - begun < TASKS:
        time.sleep(0.002)
    return TASKS / (time.perf_counter() - start)


def completed(port):
    client = RawClient(port)
    try:
        return client.get("/v1/stats")["total"]["completed"]
    finally:
        client.close()


def with_streams(port, query):
    """Give the rate without streams over that with them, in turns."""
    ratios = []
    for _ in range(3):
        alone = rate(port)
        readers = Readers(opened(port, STREAMS, query))
        try:
            ratios.append(alone / rate(port))
        finally:
            readers.close()
        places_free(port)
    return sorted(ratios)[1]


def places_free(port):
    """Give the seconds until all places of streams can be taken again."""
    start = time.perf_counter()
    while time.perf_counter() - start < 120:
        found = []
        try:
            found = opened(port, 1000, "?kind=agent_paused")
        except (AssertionError, OSError):
            time.sleep(0.2)
        else:
            return time.perf_counter() - start
        finally:
            for sock in found:
                sock.close()
    return 120.0


def submit_large(port):
    body = {"agentId": "big", "action": "echo", "params": {"x": "y" * RESULT_BYTES}}
    client = RawClient(port)
    for _ in range(RESULTS):
        assert client.call(request("/v1/tasks", body))[0] == 202
    client.close()


def stalled(port, pid):
    """Give what a reader that does not read costs, in MB, and what of it stays afterwards."""
    submit_large(port)
    client = RawClient(port)
    page = {"next": 0, "head": 1}
    while page["next"] < page["head"]:  # the log's own pages are in memory once they were read
        page = client.get(f"/v1/events?limit=1000&after={page['next']}")
    client.close()
    before = memory_mb(pid)
    found = []
    most = before
    for _ in range(STALLED // 50):
        found += opened(port, 50, "?after=0", small=True)
        for _ in range(15):
            time.sleep(0.2)
            most = max(most, memory_mb(pid))
    for sock in found:
        sock.close()
    time.sleep(3)
    return (most - before) / STALLED, (memory_mb(pid) - before) / STALLED


def cases():
    """Measure, each against its bound."""
    with temp_folder() as folder, rota_server(folder) as (port, _):
        rate(port)
        unfiltered = with_streams(port, "")
        yield f"tasks/s without over with {STREAMS} streams", unfiltered, "x", 4
        idle = with_streams(port, "?task=tsk_nobody")
        yield f"the same, {STREAMS} streams whose filter matches nothing", idle, "x", 1.2
        found = opened(port, 1000, "?agentId=nobody")
        for sock in found:
            sock.close()
        yield "1,000 streams that left make room within", places_free(port), "s", 5
    with temp_folder() as folder, rota_server(folder) as (port, process):
        each, _ = stalled(port, process.pid)
        _, left = stalled(port, process.pid)  # what the first ones have left is used again
        yield f"memory of a reader that does not read ({STALLED} of them)", each, "MB", 1
        yield "of which stays when as many more have left", left, "MB", 0.2

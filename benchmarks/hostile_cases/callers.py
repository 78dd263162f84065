"""Can one caller take what all callers share?

Each case has a caller with a token of its own that takes all it can, as an audit did: lease
requests that wait, pages of the log with a rare filter. Beside it somebody else asks for something
small: how long that takes, and what the server has grown by.
"""

import contextlib
import socket
import threading
import time

import orjson
from common import percentile, temp_folder
from watch import memory_mb

from hostile_cases._configured import configured
from hostile_cases.connections import POLITE, Crowd, allow_sockets, polite

ADMIN = "operator-" + "o" * 24
TASKS = 10_000
POLLS = 5100
FEEDS = 32
SECONDS = 8
READS = 200


def cases():
    """Take all there is, in several ways."""
    yield from _polls()
    yield from _feeds()


class Client:
    """A connection that waits for each answer."""

    def __init__(self, port, token):
        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")
        self.token = token

    def call(self, method, path, body=None):
        self.sock.sendall(asked(method, path, self.token, body))
        status = int(self.file.readline().split()[1])
        length = 0
        while (line := self.file.readline().lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        return status, self.file.read(length)

    def close(self):
        self.file.close()
        self.sock.close()


def asked(method, path, token, body=None):
    raw = orjson.dumps(body) if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def made(client, name, role):
    """Make a token; give its secret."""
    body = {"name": name, "role": role, "agents": ["*"]}
    status, answer = client.call("POST", "/v1/tokens", body)
    assert status == 201, answer
    return orjson.loads(answer)["token"]


@contextlib.contextmanager
def server(**more):
    """A server with an operator, its process, and a connection of the operator's."""
    with temp_folder() as folder:
        tables = {"server": {"tokens": {"operator": ADMIN}}, **more}
        with configured(folder, **tables) as (port, process):
            operator = Client(port, ADMIN)
            yield port, process, operator
            operator.close()


def timed(client, path, count, pause_s=0.02):
    """Ask for something small again and again; give how long each took, in ms."""
    waits = []
    for _ in range(count):
        start = time.perf_counter()
        status, answer = client.call("GET", path)
        assert status == 200, (status, answer)
        waits.append((time.perf_counter() - start) * 1000)
        time.sleep(pause_s)
    return waits


def _polls():
    """Wait for tasks over more connections than there are, and come back when one is closed."""
    allow_sockets()
    with server() as (port, process, operator):
        greedy, other = made(operator, "greedy", "work"), made(operator, "other", "work")
        before = memory_mb(process.pid)
        poll = {"workerId": "greedy", "agents": ["a"], "waitMs": 60_000}
        what = f"{POLLS:,} lease requests of one token"
        with Crowd(port, asked("POST", "/v1/leases", greedy, poll), POLLS):
            time.sleep(3)
            waits = [polite(port) for _ in range(POLITE)]
            yield f"{what}: health, p50", percentile(waits, 50), "ms", 500
            yield f"{what}: health, slowest", max(waits), "ms", 2000
            worker, again = Client(port, other), Client(port, ADMIN)
            start = time.perf_counter()
            for _ in range(10):
                task = {"agentId": "b", "action": "waits"}
                status, answer = again.call("POST", "/v1/tasks", task)
                assert status == 202, answer
                wanted = {"workerId": "other", "agents": ["b"], "waitMs": 10_000}
                status, answer = worker.call("POST", "/v1/leases", wanted)
                assert status == 200, answer
                assert orjson.loads(answer)["leases"], answer
            took = (time.perf_counter() - start) * 100
            yield f"{what}: another worker's task", took, "ms", 500
            yield f"{what}: grown by", memory_mb(process.pid) - before, "MB", 250
            start = time.perf_counter()
            last = Client(port, ADMIN)
            status, answer = last.call("DELETE", "/v1/tokens/greedy")
            assert status == 200, answer
            last.close()
            yield f"{what}: its revocation", (time.perf_counter() - start) * 1000, "ms", 1000
            worker.close()
            again.close()


def _feeds():
    """Page the feed with a filter that nearly nothing matches, over many connections at once."""
    with server() as (port, _, operator):
        greedy, other = made(operator, "greedy", "submit"), made(operator, "other", "submit")
        for _ in range(TASKS // 500):
            tasks = [{"agentId": "a", "action": "echo"}] * 500
            status, answer = operator.call("POST", "/v1/batches", {"tasks": tasks})
            assert status == 202, answer
        while orjson.loads(operator.call("GET", "/v1/stats")[1])["queue"]["inflight"]:
            time.sleep(0.1)
        reader = Client(port, other)
        alone = timed(reader, "/v1/events?limit=10", 100)
        over = threading.Event()

        def page():
            client = Client(port, greedy)
            while not over.is_set():
                client.call("GET", "/v1/events?kind=agent_paused")
            client.close()

        threads = [threading.Thread(target=page) for _ in range(FEEDS)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        waits = timed(reader, "/v1/events?limit=10", READS)
        over.set()
        for thread in threads:
            thread.join()
        what = f"{FEEDS} connections page a rare filter: another's read of the log"
        yield f"{what}, p50 (alone {percentile(alone, 50):.1f})", percentile(waits, 50), "ms", 30
        yield f"{what}, p99", percentile(waits, 99), "ms", 150

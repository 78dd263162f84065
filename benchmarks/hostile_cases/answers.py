"""Answers that are asked for and not read: what they hold, and how long others wait beside them."""

import contextlib
import socket
import threading
import time

import orjson
from common import percentile
from watch import memory_mb

from hostile_cases.callers import ADMIN, Client, asked, made, server, timed

CONNECTIONS = 600
STRINGS = 99_000
STRING_CHARS = 33
READS = 200


def cases():
    """Ask for one large schedule and one large task over many connections at once."""
    params = {"x": ["y" * STRING_CHARS] * STRINGS}
    task = {"agentId": "a", "action": "waits", "params": params}
    with server() as (port, process, operator):
        greedy, other = made(operator, "greedy", "submit"), made(operator, "other", "submit")
        owner = Client(port, greedy)
        schedule = {"name": "large", "cron": "0 0 1 1 *", "task": task}
        status, answer = owner.call("POST", "/v1/schedules", schedule)
        assert status == 201, answer
        status, answer = owner.call("POST", "/v1/tasks", task)
        assert status == 202, answer
        large = f"/v1/tasks/{orjson.loads(answer)['taskId']}"
        status, answer = owner.call("POST", "/v1/tasks", {"agentId": "b", "action": "waits"})
        small = f"/v1/tasks/{orjson.loads(answer)['taskId']}"
        for path, what in (("/v1/schedules/large", "schedule"), (large, "task")):
            size = len(owner.call("GET", path)[1])
            of = f"{CONNECTIONS} unread answers with a {what} of {size / 1e6:.1f} MB"
            for name, figure, unit, bound in _unread(port, process.pid, path, greedy, other, small):
                yield f"{of}: {name}", figure, unit, bound


def _unread(port, pid, path, greedy, other, small):
    """Ask over all connections, and measure what somebody else notices."""
    before = memory_mb(pid)
    sizes, lives = [before], []
    live, reader = Client(port, ADMIN), Client(port, other)
    beside = (
        lambda: sizes.append(memory_mb(pid)),
        lambda: lives.extend(timed(live, "/health/live", 1, 0)),
    )
    with contextlib.ExitStack() as stack:
        for each in beside:
            stack.enter_context(_again_and_again(each))
        socks = [stack.enter_context(_unreading(port)) for _ in range(CONNECTIONS)]
        for sock in socks:
            sock.sendall(asked("GET", path, greedy))
        reads = timed(reader, small, READS)
    live.close()
    reader.close()
    time.sleep(2)
    yield "memory at most", max(sizes) - before, "MB", 300
    for who, waits in (("another's read of a small task", reads), ("/health/live", lives)):
        yield f"{who}, p50", percentile(waits, 50), "ms", 30
        yield f"{who}, p99", percentile(waits, 99), "ms", 300
        yield f"{who}, slowest", max(waits), "ms", 1000
    yield "memory that stays", memory_mb(pid) - before, "MB", 100


def _unreading(port):
    """Give a connection whose buffer takes next to nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    return sock


@contextlib.contextmanager
def _again_and_again(do):
    """Do something every 10 ms beside the rest."""
    over = threading.Event()

    def run():
        while not over.wait(0.01):
            do()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

"""Can somebody who only holds connections keep everybody else out?

Five thousand sockets, as many as the server takes, that say nothing, say half a request, or promise
a body; whoever is hung up on comes back at once. Beside them a polite client connects, asks one
thing, and leaves, again and again. Then five thousand times twelve bytes that are no request: how
many of those connections are left afterwards.
"""

import contextlib
import resource
import selectors
import socket
import threading
import time
from pathlib import Path

from common import RawClient, percentile, request_bytes, rota_server, temp_folder

SOCKETS = 5000
POLITE = 100
HOST = b"HTTP/1.1\r\nHost: localhost\r\n"
OPENINGS = {
    "silent": b"",
    "half a request": b"GET /health " + HOST + b"X-",
    "a body that never comes": b"POST /tasks " + HOST + b"Content-Length: 9\r\n\r\n",
}
NO_REQUEST = b"CONNECT \r\n\r\n"


class Crowd:
    """Sockets that are opened again as soon as they are closed."""

    def __init__(self, port, opening, count=SOCKETS):
        self.port = port
        self.count = count
        self.opening = opening
        self.selector = selectors.DefaultSelector()
        self.reopened = 0
        self.over = threading.Event()
        self.full = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def open(self):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", self.port))
        self.selector.register(sock, selectors.EVENT_WRITE)

    def run(self):
        for n in range(self.count):
            self.open()
            if n % 100 == 0:
                self.turn(0)
        while not self.over.is_set():
            self.turn(0.01)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def turn(self, wait_s):
        opened = 0
        for key, mask in self.selector.select(wait_s):
            sock = key.fileobj
            try:
                if mask & selectors.EVENT_WRITE:
                    if self.opening:
                        sock.send(self.opening)
                    self.selector.modify(sock, selectors.EVENT_READ)
                    opened += 1
                    continue
                if sock.recv(4096):
                    continue
            except OSError:
                pass
            self.selector.unregister(sock)
            sock.close()
            self.reopened += 1
            self.open()
        if not opened:
            self.full.set()

    def __enter__(self):
        self.thread.start()
        self.full.wait(30)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(30)


def polite(port):
    """Connect, ask, leave; give how long that took, in ms, or a minute if it was refused."""
    start = time.perf_counter()
    client = None
    try:
        client = RawClient(port)
        status, _ = client.call(request_bytes("/health/live", None, "GET"))
    except (OSError, ValueError):
        status = 0
    finally:
        if client is not None:
            client.close()
    return (time.perf_counter() - start) * 1000 if status == 200 else 60_000.0


def allow_sockets():
    """Let this process, and the servers that it starts, open so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOCKETS + 2000
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))


def cases():
    allow_sockets()
    for what, opening in OPENINGS.items():
        with temp_folder() as folder, rota_server(folder) as (port, _):
            with Crowd(port, opening) as crowd:
                time.sleep(1)
                waits = []
                for _ in range(POLITE):
                    waits.append(polite(port))
                    time.sleep(0.02)
            title = f"5,000 sockets, {what}: a polite request"
            yield f"{title}, p50", percentile(waits, 50), "ms", 1000
            yield f"{title}, slowest (reopened {crowd.reopened})", max(waits), "ms", 1000
    with temp_folder() as folder, rota_server(folder) as (port, process):
        before = descriptors(process.pid)
        with contextlib.ExitStack() as stack:
            for _ in range(SOCKETS):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
                sock.sendall(NO_REQUEST)
            time.sleep(1)
            left = descriptors(process.pid) - before
        yield "5,000 CONNECTs without a target: connections left after 1 s", left, "", 50


def descriptors(pid):
    """Count what a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))

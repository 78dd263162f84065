"""What does an executor that never stops sending `103` do to everybody else?

It takes an attempt and floods its connection; beside it /health/live is asked all the time. The
same for `100`, for whole answers after the first, and for a body in chunks of one byte.
"""

import socket
import threading
import time

from common import RawClient, request_bytes, temp_folder
from watch import stalls

from hostile_cases._configured import configured

FLOOD_S = 3.0
FLOODS = {
    "103": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "100": b"HTTP/1.1 100 Go on\r\n\r\n",
    "whole answers": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


class Flooder:
    """Takes any request, and answers with one piece again and again."""

    def __init__(self, piece, first=b""):
        self.piece, self.first = piece * 20_000, first
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(0.2)
        self.port = self.socket.getsockname()[1]
        self.end = time.monotonic() + FLOOD_S
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while time.monotonic() < self.end:
            try:
                connection, _ = self.socket.accept()
            except TimeoutError:
                continue
            connection.settimeout(0.5)
            try:
                connection.recv(1 << 16)
                connection.sendall(self.first)
                while time.monotonic() < self.end:
                    connection.sendall(self.piece)
            except OSError:
                pass
            finally:
                connection.close()

    def close(self):
        self.thread.join(30)
        self.socket.close()


def worst_stall(piece, first=b""):
    flooder = Flooder(piece, first)
    executors = {"flood": {"kind": "http", "url": f"http://127.0.0.1:{flooder.port}/"}}
    types = {"flood": {"executor": "flood", "timeoutMs": 60_000}}
    with temp_folder() as folder, configured(folder, executors=executors, types=types) as (port, _):
        client = RawClient(port)
        with stalls(port) as waits:
            request = request_bytes("/v1/tasks", {"agentId": "a", "action": "flood", "params": {}})
            while time.monotonic() < flooder.end:
                client.call(request)
                time.sleep(0.1)
        client.close()
    flooder.close()
    return max(waits)


def cases():
    for name, piece in FLOODS.items():
        yield f"longest stall while an executor floods {name}", worst_stall(piece), "ms", 100
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    stall = worst_stall(b"1\r\nx\r\n", head)
    yield "longest stall while it sends chunks of one byte", stall, "ms", 250

"""What a server's process looks like from outside: memory, CPU, descriptors, stalls."""

import contextlib
import threading
import time
from pathlib import Path

from common import RawClient, request_bytes


def memory_mb(pid):
    """Give the memory that is the process's own; the log's mapped pages are the system's cache."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the server is gone")


def disk_mb(folder):
    """Give what a folder takes up on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


@contextlib.contextmanager
def stalls(port, path="/health/live", every_s=0.005):
    """Ask one small thing again and again beside whatever happens; gives the waits, in ms."""
    waits = []
    over = threading.Event()

    def ask():
        client = RawClient(port)
        request = request_bytes(path, None, "GET")
        while not over.is_set():
            start = time.perf_counter()
            client.call(request)
            waits.append((time.perf_counter() - start) * 1000)
            time.sleep(every_s)
        client.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join(60)

"""What every benchmark shares: floors, raw clients, servers to start, tables to print.

A figure on a noisy machine means little by itself, so each benchmark measures its floor in the same
run and reports the ratio. Clients are raw sockets with prepared bytes: they must not be what is
measured. Servers run in processes of their own, on loopback, in a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lmdb
import orjson
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent


def percentile(values, q):
    """Give the q-th percentile by rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q / 100))]


def request_bytes(path, body, method="POST"):
    """Prepare a request once."""
    raw = orjson.dumps(body) if body is not None else b""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


class RawClient:
    """A blocking keep-alive connection that sends prepared bytes."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def call(self, request):
        """Send, and give (status, body)."""
        self.sock.sendall(request)
        return self.receive()

    def receive(self):
        """Read one answer."""
        buffer = self.buffer
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            buffer += self.sock.recv(1 << 16)
        head = buffer[:end].lower()
        at = head.index(b"content-length:") + 15
        stop = head.find(b"\r\n", at)
        length = int(head[at : stop if stop > 0 else len(head)])
        buffer = buffer[end + 4 :]
        while len(buffer) < length:
            buffer += self.sock.recv(1 << 16)
        self.buffer = buffer[length:]
        return int(head[9:12]), buffer[:length]

    def get(self, path):
        """GET and parse."""
        status, body = self.call(request_bytes(path, None, "GET"))
        assert status == 200, (status, body)
        return orjson.loads(body)

    def close(self):
        """Close the connection."""
        self.sock.close()


class _Pump(asyncio.Protocol):
    """One connection of a closed-loop load: send, wait, send again, `depth` deep."""

    def __init__(self, load):
        self.load = load
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        request = self.load.take()
        if request is None:
            self.transport.close()
        else:
            self.transport.write(request)

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.index(b"content-length:") + 15
            stop = head.find(b"\r\n", at)
            size = end + 4 + int(head[at : stop if stop > 0 else len(head)])
            if len(self.buffer) < size:
                return
            self.load.answered(int(head[9:12]))
            self.buffer = self.buffer[size:]
            self.send()

    def connection_lost(self, exc):
        self.load.closed()


class Load:
    """A bounded number of requests over some keep-alive connections."""

    def __init__(self, requests, connections):
        self.left = iter(requests)
        self.connections = connections
        self.statuses = {}

    def take(self):
        return next(self.left, None)

    def answered(self, status):
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def closed(self):
        self.open -= 1
        if not self.open:
            self.done.set_result(None)

    async def run(self, port):
        """Run it; give the seconds it took."""
        loop = asyncio.get_running_loop()
        self.done = loop.create_future()
        self.open = self.connections
        start = time.perf_counter()
        for _ in range(self.connections):
            await loop.create_connection(lambda: _Pump(self), "127.0.0.1", port)
        await asyncio.wait_for(self.done, 300)
        return time.perf_counter() - start


def run_load(port, requests, connections=64):
    """Run a load to its end; give (seconds, statuses)."""
    import uvloop

    load = Load(requests, connections)
    seconds = uvloop.run(load.run(port))
    return seconds, load.statuses


@contextlib.contextmanager
def temp_folder():
    """A folder on the disk that the data would be on (ROTA_BENCH_DIR, or the system's)."""
    folder = tempfile.mkdtemp(prefix="rota-bench-", dir=os.environ.get("ROTA_BENCH_DIR"))
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def rota_server(folder, *, webhooks=None, **scheduler):
    """A real server with room for the load; gives its port and process."""
    scheduler = {
        "maxQueueSize": 10_000_000,
        "maxPerAgent": 10_000_000,
        "maxInflight": 10_000,
        "maxPerAgentInflight": 10_000,
        "workerCount": 10_000,
        **scheduler,
    }
    config = folder / "bench.json"
    config.write_text(json.dumps({"scheduler": scheduler, "webhooks": webhooks or {}}))
    command = [sys.executable, "-m", "rota", "serve", "--port", "0"]
    command += ["--data-dir", str(folder / "data"), "--config", str(config)]
    with _process(command) as (port, process):
        yield port, process


@contextlib.contextmanager
def echo_server():
    """The floor of HTTP: aiohttp and uvloop, parse the body and answer, store nothing."""
    with _process([sys.executable, str(HERE / "floor_server.py")]) as (port, process):
        yield port, process


@contextlib.contextmanager
def _process(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if "http://127.0.0.1:" in line:
                digits = line.split("http://127.0.0.1:")[1]
                port = int("".join(c for c in digits[:5] if c.isdigit()))
                break
        else:
            raise SystemExit("the server did not start")
        yield port, process
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def echo_round_trip(port, body, count=2000, pause=0.0):
    """Measure one-at-a-time round trips to the floor server, in seconds."""
    client = RawClient(port)
    request = request_bytes("/v1/tasks", body)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        client.call(request)
        times.append(time.perf_counter() - start)
        time.sleep(pause)
    client.close()
    return times[count // 10 :]


def synced_commits(folder, count=500, size=300, pause=0.0):
    """Measure LMDB commits of one record each, default flags, in seconds."""
    folder.mkdir(exist_ok=True)
    env = lmdb.open(str(folder / "floor"), map_size=1 << 30, max_dbs=2, lib_version=0)
    database = env.open_db(b"events")
    times = []
    for n in range(count):
        start = time.perf_counter()
        with env.begin(write=True) as txn:
            txn.put(struct.pack(">Q", n), bytes(size), db=database, append=True)
        times.append(time.perf_counter() - start)
        time.sleep(pause)
    env.close()
    return times[count // 10 :]


def median(values):
    """Give the median."""
    return statistics.median(values)


def machine():
    """Say what this was measured on."""
    model = "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":")[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def arguments(description, **options):
    """Parse the command line that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    for name, (default, text) in options.items():
        kind = type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({default})")
    return parser.parse_args()


def report(title, rows, *, as_json):
    """Print rows of (what, value, unit, goal, met); met is None where there is no goal."""
    if as_json:
        keys = ("what", "value", "unit", "goal", "met")
        found = [dict(zip(keys, row, strict=True)) for row in rows]
        print(json.dumps({"benchmark": title, "machine": machine(), "rows": found}))
        return
    table = Table(title=title, title_justify="left")
    for column in ("what", "value", "goal", ""):
        table.add_column(column, justify="right" if column == "value" else "left")
    for what, value, unit, goal, met in rows:
        shown = f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"
        mark = "" if met is None else "met" if met else "[bold red]missed[/]"
        table.add_row(what, f"{shown} {unit}", goal, mark)
    Console().print(table)

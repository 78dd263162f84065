"""`rota bench`: a quick load, and how a server bears it.

Submits `echo` tasks over a few connections, each sending its next when the last was acknowledged,
after a few sent one at a time; then reads from the history when each was started and ended. The
dispatch latency is from the moment a request is sent to the task's start, so both must be on one
machine's clock. Bounded in tasks and in time. Without --url it loads a server of its own, on a
free port of loopback, over a temporary folder.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click
import orjson
import uvloop

from rota.cli.output import json_option, note, print_json, print_table
from rota.cli.server_options import token_option
from rota.client.calls.history import END_KINDS
from rota.client.sync_client import JsonClient
from rota.clock import SystemClock, monotonic_s, perf_s
from rota.errors import QueueFull, RequestError, RotaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TASKS = 2000
TASKS_MAX = 1_000_000
CONNECTIONS = 16
SECONDS = 30.0
DRAIN_S = 30.0
REST_TASKS = 200
AGENTS = 20
START_S = 30.0
REFUSED_PAUSE_S = 0.02
FEED_PAUSE_S = 0.02
LIMITS = {
    "maxQueueSize": TASKS_MAX,
    "maxPerAgent": TASKS_MAX,
    "maxInflight": 1000,
    "maxPerAgentInflight": 1000,
    "workerCount": 1000,
}
_LISTENING = re.compile(r"listening on (http://\S+)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Latency(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    max: float


class Connection:
    """One kept connection that sends a request when the last was answered."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
    ) -> None:
        """Send `head` (the headers that are always the same) with every request."""
        self._reader = reader
        self._writer = writer
        self._head = head

    @classmethod
    async def open(cls, url: str, token: str | None) -> Connection:
        """Connect. Raises OSError."""
        parts = urlsplit(url)
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(
            parts.hostname, port, ssl=secure, limit=1 << 26
        )
        head = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        return cls(reader, writer, head.encode())

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Give the status and the parsed answer to one request."""
        line = f"{method} {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode()
        self._writer.write(line + self._head + b"\r\n" + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        answer = await self._reader.readexactly(int(length[1]) if length else 0)
        return int(head[9:12]), orjson.loads(answer)

    def close(self) -> None:
        self._writer.close()


class Load:
    """One run against one server."""

    def __init__(self, url: str, token: str | None, *, tasks: int, seconds: float) -> None:
        """Send up to `tasks`, for up to `seconds`."""
        self._url = url
        self._token = token
        self._left = tasks
        self._until = monotonic_s() + seconds
        self._clock = SystemClock()
        self._number = 0
        self.sent: dict[str, int] = {}
        self.started: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.refused = 0

    async def send(self, connections: int, tasks: int) -> float:
        """Send `tasks` over so many connections; give the seconds until the last was answered."""
        self._left = tasks
        lines = [await Connection.open(self._url, self._token) for _ in range(connections)]
        began = perf_s()
        try:
            async with asyncio.TaskGroup() as group:
                for line in lines:
                    group.create_task(self._send_on(line))
        finally:
            for line in lines:
                line.close()
        return perf_s() - began

    async def _send_on(self, line: Connection) -> None:
        while self._left > 0 and monotonic_s() < self._until:
            self._left -= 1
            self._number += 1
            agent = f"bench-{self._number % AGENTS}"
            body = b'{"agentId":"%b","action":"echo","params":{"n":%d}}' % (
                agent.encode(),
                self._number,
            )
            at = self._clock.now_us()
            status, answer = await line.ask("POST", "/v1/tasks", body)
            if status == QueueFull.status:
                self.refused += 1
                self._left += 1
                await asyncio.sleep(REFUSED_PAUSE_S)
            elif status >= 400:
                msg = f"the server refused a task: {answer.get('error')}"
                raise RequestError(msg, code=answer.get("code"))
            else:
                self.sent[answer["taskId"]] = at

    async def follow(self, after: int) -> int:
        """Read the history after a seq until every task sent has ended; give where it was then."""
        line = await Connection.open(self._url, self._token)
        until = monotonic_s() + DRAIN_S
        try:
            while len(self.ended) < len(self.sent) and monotonic_s() < until:
                _, page = await line.ask("GET", f"/v1/events?after={after}&limit=1000")
                for event in page["events"]:
                    self._take(event)
                if not page["events"]:
                    await asyncio.sleep(FEED_PAUSE_S)
                after = page["next"]
        finally:
            line.close()
        return after

    def _take(self, event: dict[str, Any]) -> None:
        task, kind = event.get("task"), event["kind"]
        if task not in self.sent:
            return
        if kind == "task_started":
            self.started.setdefault(task, event["at"])
        elif kind in END_KINDS:
            self.ended[task] = event["at"]

    def latency(self, tasks: list[str]) -> Latency | None:
        """Give the dispatch latency of these tasks."""
        waits = sorted(
            (self.started[task] - self.sent[task]) / 1000 for task in tasks if task in self.started
        )
        if not waits:
            return None
        last = len(waits) - 1
        shown = (waits[round(last * 0.5)], waits[round(last * 0.99)], waits[last])
        return Latency(*(round(wait, 3) for wait in shown))


async def run(
    url: str, token: str | None, *, tasks: int, connections: int, seconds: float
) -> dict[str, Any]:
    after = (await asyncio.to_thread(JsonClient(url, token=token, namespace="").head))["seq"]
    load = Load(url, token, tasks=tasks, seconds=seconds)
    await load.send(1, min(REST_TASKS, max(1, tasks // 10)))
    after = await load.follow(after)
    resting = list(load.sent)
    took_s = await load.send(connections, tasks)
    await load.follow(after)
    loaded = list(load.sent)[len(resting) :]
    ends = [load.ended[task] for task in loaded if task in load.ended]
    began = min((load.sent[task] for task in loaded), default=0)
    whole_s = (max(ends, default=began) - began) / 1e6
    figures: dict[str, Any] = {
        "url": url,
        "tasks": len(loaded),
        "connections": connections,
        "seconds": round(took_s, 3),
        "refused": load.refused,
        "unfinished": len(loaded) - len(ends),
        "submissionsPerSecond": round(len(loaded) / took_s, 1),
        "tasksPerSecond": round(len(ends) / whole_s, 1) if whole_s > 0 else 0.0,
    }
    for name, some in (("dispatchMs", loaded), ("dispatchAtRestMs", resting)):
        found = load.latency(some)
        if found is not None:
            figures[name] = found._asdict()
    return figures


@asynccontextmanager
async def own_server() -> AsyncIterator[str]:
    """Start a server over a temporary folder; give its address; stop it and clean up."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        config = Path(folder, "bench.json")
        config.write_text(json.dumps({"scheduler": LIMITS}))  # noqa: ASYNC240 - a hundred bytes
        options = ("--port", "0", "--data-dir", str(Path(folder, "data")), "--config", str(config))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rota", "serve", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield await asyncio.wait_for(_address(process), START_S)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        found = _LISTENING.search(line.decode())
        if found:
            return found[1]
    msg = "the server to be measured did not start"
    raise RotaError(msg, hint="see why with: rota serve --port 0")


async def _bench(url: str | None, token: str | None, **bounds: Any) -> dict[str, Any]:
    if url is not None:
        return await run(url, token, **bounds)
    async with own_server() as own:
        return await run(own, None, **bounds)


@click.command("bench")
@click.option("--url", help="Server to load; without it, a fresh one over a temporary folder.")
@token_option
@click.option("--tasks", type=click.IntRange(1, TASKS_MAX), default=TASKS, show_default=True)
@click.option("--connections", type=click.IntRange(1, 1000), default=CONNECTIONS, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=SECONDS,
    show_default=True,
    help="Send for no longer than this.",
)
@json_option
def bench_command(
    *,
    url: str | None,
    token: str | None,
    tasks: int,
    connections: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure submissions, tasks and dispatch latency.

    The tasks are `echo`, spread over a few agents. A server given by --url really runs them, and
    keeps them in its log. The temporary folder is made in TMPDIR: what is measured is that disk.

    \b
    Examples:
      rota bench
      rota bench --url http://127.0.0.1:9867 --tasks 10000 --connections 32 --json
    """
    bounds = {"tasks": tasks, "connections": connections, "seconds": seconds}
    try:
        figures = uvloop.run(_bench(url, token, **bounds))
    except* RotaError as group:
        raise _first(group) from None
    except* (OSError, asyncio.IncompleteReadError, TimeoutError) as group:
        msg = f"lost the server: {_first(group)}"
        raise RotaError(msg, hint="see what it says of it; `rota serve` logs to stderr") from None
    if as_json:
        print_json(figures)
    else:
        print_table(("figure", "value"), list(rows(figures)))
    if figures["unfinished"]:
        note(f"{figures['unfinished']} tasks had not ended {DRAIN_S:g} s after the last was sent")


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    """Give the first error that is not itself a group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    shown = [
        ("tasks", f"{figures['tasks']} over {figures['connections']} connections"),
        ("submissions/s", f"{figures['submissionsPerSecond']:,.0f}"),
        ("end-to-end tasks/s", f"{figures['tasksPerSecond']:,.0f}"),
    ]
    for name, label in (("dispatchMs", "under load"), ("dispatchAtRestMs", "one at a time")):
        if name in figures:
            p50, p99, most = (f"{figures[name][key]:.2f}" for key in ("p50", "p99", "max"))
            shown.append((f"dispatch, {label}", f"p50 {p50} ms, p99 {p99} ms, max {most} ms"))
    if figures["refused"]:
        shown.append(("refused, sent again", str(figures["refused"])))
    return shown

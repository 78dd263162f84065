"""Real servers for tests over HTTP: rota itself, and what it calls.

`Rota` runs the production server in a thread with its own event loop, a real LMDB and a port of
its own; `RotaProcess` runs it as `python -m rota serve`. `Target` is an HTTP server that stands
for a browser or a webhook receiver: it keeps every request and does what the request's own body
asks of it. Waiting is always for a condition, with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import uvloop

from rota.actors.recovery import rebuild
from rota.config import parse_settings, with_presets
from rota.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.clocks import SetClock

T = TypeVar("T")

WITHIN_S = 10.0
TICK_S = 0.005
ROOT = Path(__file__).parents[2]


def until(look: Callable[[], T | None], *, within_s: float = WITHIN_S, what: str = "") -> T:
    """Look again and again until what is seen is true; give it back."""
    end = time.monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < end, f"not within {within_s} s: {what or look}; last saw {seen!r}"
        time.sleep(TICK_S)


# -- clients -------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        return str(self.json["code"])


class Frame(NamedTuple):
    """One server-sent event."""

    id: int
    event: dict[str, Any]


class Client:
    """Talks to a server on the loopback, one connection a request."""

    port: int
    token: str | None = None

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Answer:
        """Ask, with `body` as JSON or `raw` as it is."""
        sent = {"Content-Type": "application/json"} if body is not None or raw is not None else {}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        sent |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = raw if raw is not None else None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """GET."""
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """POST."""
        return self.request("POST", path, body, headers)

    # -- PinchTab's paths

    def submit(self, agent: str = "ann", action: str = "click", **fields: Any) -> str:
        """Submit by PinchTab's path; give the task's id."""
        answer = self.post("/tasks", {"agentId": agent, "action": action, **fields})
        assert answer.status == 202, answer
        return str(answer.json["taskId"])

    def task(self, task_id: str) -> dict[str, Any]:
        """One task, as PinchTab shows it."""
        answer = self.get(f"/tasks/{task_id}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        return found

    def when(self, task_id: str, *states: str) -> dict[str, Any]:
        """Wait until the task is in one of these states."""

        def look() -> dict[str, Any] | None:
            task = self.task(task_id)
            return task if task["state"] in states else None

        return until(look, what=f"{task_id} is {' or '.join(states)}")

    def ended(self, task_id: str) -> dict[str, Any]:
        """Wait until the task has ended."""
        return self.when(task_id, "done", "failed", "cancelled", "rejected")

    # -- the native API

    def submit_native(self, agent: str = "ann", action: str = "echo", **fields: Any) -> str:
        """Submit by the native API; give the task's id."""
        answer = self.post("/v1/tasks", {"agentId": agent, "action": action, **fields})
        assert answer.status == 202, answer
        return str(answer.json["taskId"])

    def events(self, **query: Any) -> list[dict[str, Any]]:
        """The history, oldest first (its first thousand events)."""
        asked = {"limit": 1000, **query}
        path = "/v1/events?" + "&".join(f"{name}={value}" for name, value in asked.items())
        found: list[dict[str, Any]] = self.get(path).json["events"]
        return found

    def kinds(self, task_id: str) -> list[str]:
        """What happened to a task, in order."""
        return [event["kind"] for event in self.events(task=task_id)]

    @contextlib.contextmanager
    def stream(self, path: str = "/v1/events/stream", **headers: str) -> Iterator[Stream]:
        """Follow the stream of events."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield Stream(response)
        finally:
            connection.close()

    # -- bytes

    @contextlib.contextmanager
    def connected(self, timeout_s: float = 10.0) -> Iterator[socket.socket]:
        """A bare connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout_s) as sock:
            yield sock

    def raw(self, data: bytes, *, timeout_s: float = 10.0) -> bytes:
        """Send bytes and read to the end of the connection."""
        with self.connected(timeout_s) as sock:
            sock.sendall(data)
            return read_all(sock)


class Stream:
    """The frames of a stream, one by one."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        """Read from `response`."""
        self._response = response
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def __iter__(self) -> Iterator[Frame]:
        """Give frames as they come."""
        seq = 0
        while line := self._response.readline():
            if line.startswith(b"id: "):
                seq = int(line[4:])
            elif line.startswith(b"data: "):
                yield Frame(seq, json.loads(line[6:]))

    def take(self, count: int) -> list[Frame]:
        """Give the next so many frames."""
        frames = iter(self)
        return [next(frames) for _ in range(count)]


def read_all(sock: socket.socket) -> bytes:
    """Read until the other side closes (or resets) the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while chunk := sock.recv(1 << 16):
            found += chunk
    return found


# -- rota ----------------------------------------------------------------------------------------


class _LogLines(logging.Handler):
    """Keeps what was logged, with tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self.lines.append(text)


class Rota(Client):
    """A server in this process, in a thread of its own."""

    def __init__(
        self, folder: Path, config: dict[str, Any] | None = None, clock: SetClock | None = None
    ) -> None:
        """Take its configuration as it would stand in a JSON file."""
        self.clock = clock
        self.folder = folder
        self.config = config or {}
        self.config_path: Path | None = None
        self.log = _LogLines()

    def write_config(self, config: dict[str, Any] | str) -> Path:
        """Write the configuration file (its whole content at once, as editors do)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path = self.folder / "rota.json"
        fresh = self.folder / "rota.json.new"
        fresh.write_text(config if isinstance(config, str) else json.dumps(config))
        fresh.replace(self.config_path)
        return self.config_path

    def start(self) -> Rota:
        """Start, and come back when it listens and its start is durable."""
        settings = parse_settings(with_presets(self.config))
        over = {"port": 0, "data_dir": str(self.folder / "data"), "map_bytes": 1 << 28}
        self._settings = settings.model_copy(
            update={"server": settings.server.model_copy(update=over)}
        )
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rota-under-test")
        logging.getLogger().addHandler(self.log)
        self._thread.start()
        assert self._ready.wait(30)
        if self._failure is not None:
            logging.getLogger().removeHandler(self.log)
            raise self._failure
        until(self.is_settled, what="the start is durable")
        return self

    def is_settled(self) -> bool:
        """Whether everything that was recorded is durable."""
        return self.inside(lambda s: s.shard.journal.durable_seq == s.shard.state.seq)

    def stop(self, grace_s: float = 0.0) -> None:
        """Stop in order."""
        self._grace_s = grace_s
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(60)
        logging.getLogger().removeHandler(self.log)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def restart(self) -> None:
        """Stop and start again over the same folder."""
        self.stop()
        self.start()

    def _run(self) -> None:
        interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            self._failure = error
        finally:
            sys.setswitchinterval(interval)
            gc.set_threshold(*thresholds)
            gc.unfreeze()
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        if self.clock is not None:
            self.clock.begin_anew()
        self.server = Server(self._settings, self.config_path, self.clock)
        self._made(self.server)
        await self.server.start()
        self.port = self.server.port
        self._ready.set()
        await self._leave.wait()
        await self.server.stop(self._grace_s)

    def _made(self, server: Server) -> None:
        """Do what is to be done with a server before it starts."""

    def inside(self, look: Callable[[Server], T]) -> T:
        """Call a function on the server's own loop."""

        async def call() -> T:
            return look(self.server)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)

    def digests(self) -> tuple[str, str]:
        """The fingerprints of the living state and of a replay of the whole log."""

        def look(server: Server) -> tuple[str, str] | None:
            state = server.shard.state
            if server.shard.journal.durable_seq != state.seq:
                return None
            replayed = rebuild(server.shard.log, use_snapshots=False)
            if not state.is_as_told:  # something was forgotten since the last record
                replayed.forget(state._forgot_us + state.steps.shift)
            return state.digest(), replayed.digest()

        return until(lambda: self.inside(look), what="everything is durable")

    def complaints(self) -> list[str]:
        """What was logged that tells of a bug: tracebacks and failed actors.

        What aiohttp says of bytes that are not HTTP has a test of its own.
        """
        marks = ("Traceback", "a handler failed", " failed on ", "an effect failed", "Unhandled")
        found = [line for line in self.log.lines if any(mark in line for mark in marks)]
        return [line for line in found if "aiohttp.http_exceptions." not in line]


def look(rota: Client, task_id: str) -> dict[str, Any]:
    """Give a task as the native API shows it."""
    found: dict[str, Any] = rota.get(f"/v1/tasks/{task_id}").json
    return found


def ended(rota: Client, task_id: str) -> dict[str, Any]:
    """Wait until a task has ended; give it as the native API shows it."""
    found: dict[str, Any] = rota.get(f"/v1/tasks/{task_id}?waitMs=15000").json
    assert found["state"] in ("succeeded", "failed", "cancelled"), found
    return found


@contextlib.contextmanager
def serving(folder: Path, config: dict[str, Any] | None = None) -> Iterator[Rota]:
    """Run a server for the length of a block."""
    rota = Rota(folder, config).start()
    try:
        yield rota
    finally:
        rota.stop()


class RotaProcess(Client):
    """A server as people run it: `python -m rota serve`."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        """Write its configuration file."""
        self.folder = folder
        self.config_path = folder / "rota.json"
        self.config_path.write_text(json.dumps(config))
        self.output = folder / "output.txt"

    def start(self) -> None:
        """Start it, and wait until it says where it listens."""
        command = [sys.executable, "-m", "rota", "serve", "--port", "0"]
        command += ["--data-dir", str(self.folder / "data"), "--config", str(self.config_path)]
        with self.output.open("ab") as output:
            already = self.output.stat().st_size
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

        def look() -> int:
            assert self._process.poll() is None, self.output.read_text()
            text = self.output.read_bytes()[already:].decode()
            found = re.search(r"127\.0\.0\.1:(\d+)", text)
            return int(found[1]) if found else 0

        self.port = until(look, within_s=30, what="the server says where it listens")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; give its exit status."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(30)


@contextlib.contextmanager
def running_process(folder: Path, config: dict[str, Any]) -> Iterator[RotaProcess]:
    """Run a process for the length of a block."""
    process = RotaProcess(folder, config)
    process.start()
    try:
        yield process
    finally:
        process.end()


# -- what rota calls -----------------------------------------------------------------------------


class Received(NamedTuple):
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def tag(self) -> Any:
        """The mark that a test put on the task."""
        return self.body.get("tag")


class Target:
    """An HTTP server for rota to call.

    A request says in its body how it wants to be treated: `hold: "name"` is answered when the
    test releases that name (or never, if the caller leaves), `status`, `text` and `json` choose
    the answer. Anything else gets 200 `{"success": true}`. A test can say so for all requests by
    `treat_as` (only `hold`) and `respond`.
    """

    def __init__(self) -> None:
        """Nothing has come in yet."""
        self.requests: list[Received] = []
        self.left: list[Received] = []
        self.respond: Callable[[Received], tuple[int, bytes]] | None = None
        self.treat_as: dict[str, Any] = {}
        self._released: set[str] = set()
        self._closing = False
        target = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                with contextlib.suppress(ConnectionError):
                    target._take(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                del format, args

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                del request, client_address

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="target"
        )
        self._thread.start()

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Received(handler.path, headers, json.loads(raw) if raw else {})
        self.requests.append(request)
        hold = self.treat_as.get("hold") or request.body.get("hold")
        if hold and not self._hold(handler.connection, request, hold):
            handler.close_connection = True
            return
        status, body = self._answer(request)
        head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n\r\n"
        handler.wfile.write(head.encode() + body)

    def _answer(self, request: Received) -> tuple[int, bytes]:
        if self.respond is not None:
            return self.respond(request)
        asked = request.body
        if "text" in asked:
            body = str(asked["text"]).encode()
        else:
            body = json.dumps(asked.get("json", {"success": True})).encode()
        return asked.get("status", 200), body

    def _hold(self, connection: socket.socket, request: Received, name: str) -> bool:
        """Wait for the release; False if the caller left before it."""
        while name not in self._released:
            if self._closing:
                return False
            ready, _, _ = select.select([connection], [], [], 0.01)
            if ready and not connection.recv(1, socket.MSG_PEEK):
                self.left.append(request)
                return False
        return True

    def release(self, name: str) -> None:
        """Answer the requests that are held under this name, now and later."""
        self._released.add(name)

    def tags(self) -> list[Any]:
        """The marks of the requests, in the order in which they came."""
        return [request.tag for request in list(self.requests)]

    def wait_for(self, count: int) -> list[Received]:
        """Wait until so many requests have come in."""
        until(lambda: len(self.requests) >= count, what=f"{count} requests")
        return list(self.requests)

    def close(self) -> None:
        """End it."""
        self._closing = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@contextlib.contextmanager
def target() -> Iterator[Target]:
    """Run a target for the length of a block."""
    made = Target()
    try:
        yield made
    finally:
        made.close()


class Servers:
    """Starts servers for one test and looks after them: none may have logged a bug."""

    def __init__(self, folder: Path) -> None:
        """Keep their data under `folder`."""
        self._folder = folder
        self._made: list[Rota] = []

    def __call__(self, config: dict[str, Any] | None = None) -> Rota:
        """Start one."""
        return self.adopt(Rota(self._folder / f"rota-{len(self._made)}", config))

    def adopt(self, rota: Rota) -> Rota:
        """Start one that the test has made."""
        rota.start()
        self._made.append(rota)
        return rota

    def close(self) -> None:
        """Stop them, and see what they logged."""
        for rota in self._made:
            rota.stop()
        found = [line for rota in self._made for line in rota.complaints()]
        assert not found, "\n".join(found)


# -- configurations ------------------------------------------------------------------------------


def with_tab(tab: Target, **scheduler: Any) -> dict[str, Any]:
    """Configure a tab executor at `tab`, and let callbacks go to the loopback."""
    return {
        "scheduler": {"enabled": True, **scheduler},
        "executors": {"tab": {"kind": "tab", "url": tab.url}},
        "webhooks": {"allow_hosts": ["127.0.0.1"]},
    }

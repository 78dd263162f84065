"""A BrowserManager agent for tests: the server, the browser that runs its jobs, who watches them.

`Agent` is a real server with the preset `browsermanager`. `Browser` is the HTTP executor of all its
types of jobs; a job's own payload says how its attempts go. `Watcher` follows a job by WebSocket.
The last two have threads and loops of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import uvloop
from aiohttp import web
from support.clocks import passing
from support.http_server import ROOT, WITHIN_S, Answer, Client, Rota, Servers, until

from rota.config import with_presets
from rota.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.clocks import Passing

TYPES = tuple(PRESETS["browsermanager"]["types"])
ENDS = ("succeeded", "failed", "canceled")
SOON: dict[str, Any] = {"baseMs": 5, "jitterMs": 5}
"""A retry policy's beginning, for tests that see every attempt."""
_PROFILES = itertools.count()
BUSY: dict[str, Any] = {"status": 500, "json": {"code": "resource_busy"}}
"""An answer that every type but the strict ones tries again."""


def moment(text: str) -> datetime:
    """Read a timestamp of the API."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text), text
    return datetime.fromisoformat(text)


@contextlib.contextmanager
def later(**delta: float) -> Iterator[Passing]:
    """Let the clocks of this process's servers go on from so much later."""
    with passing(timedelta(**delta).total_seconds()) as passed:
        yield passed


# -- the server ----------------------------------------------------------------------------------


class Jobs(Client):
    """Talks to a server in BrowserManager's words."""

    def ok(self, answer: Answer) -> dict[str, Any]:
        """Look at the envelope of a success; give its data."""
        assert answer.status == 200, answer
        found = answer.json
        assert list(found) == ["code", "msg", "data", "requestId"]
        assert (found["code"], found["msg"]) == (0, "success")
        assert found["requestId"] == answer.headers["x-request-id"]
        data: dict[str, Any] = found["data"]
        return data

    def refused(self, answer: Answer, status: int) -> dict[str, Any]:
        """Look at the envelope of an error; give all of it."""
        assert answer.status == status, answer
        found: dict[str, Any] = answer.json
        assert list(found) == ["code", "msg", "data", "requestId"], found
        assert type(found["code"]) is int
        assert found["code"] < 0
        assert type(found["msg"]) is str
        assert found["msg"]
        assert found["requestId"] == answer.headers["x-request-id"]
        return found

    def enqueue(self, job_type: str = "proxy_test", *do: dict[str, Any], **fields: Any) -> str:
        """Enqueue a job whose attempts go as `do` says; give its id."""
        payload = {"do": list(do), **fields.pop("payload", {})}
        body = {"jobType": job_type, "payload": payload, **fields}
        if job_type in ("browser_start", "browser_stop"):  # which are nobody's without a profile
            body.setdefault("profileId", f"profile-{next(_PROFILES)}")
        data = self.ok(self.post("/api/jobs", body))
        assert data["status"] == "queued"
        return str(data["jobId"])

    def job(self, job_id: str) -> dict[str, Any]:
        """One job."""
        return self.ok(self.get(f"/api/jobs/{job_id}"))

    def wait(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """Poll until the job has one of these statuses."""

        def look() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] in statuses else None

        return until(look, what=f"{job_id} is {' or '.join(statuses)}")

    def finish(self, job_id: str) -> dict[str, Any]:
        """Poll until the job has ended."""
        return self.wait(job_id, *ENDS)

    def listed(self, query: str = "") -> list[str]:
        """The ids of the jobs of a page, newest first."""
        return [job["jobId"] for job in self.ok(self.get(f"/api/jobs{query}"))["jobs"]]

    def history(self, job_id: str) -> list[dict[str, Any]]:
        """The events of a job."""
        found: list[dict[str, Any]] = self.get(f"/v1/tasks/{job_id}/events").json["events"]
        return found

    def failures(self, job_id: str) -> list[dict[str, Any]]:
        """The failures of a job that were followed by a pause, waited for if there is none yet."""
        return until(
            lambda: [e for e in self.history(job_id) if e["kind"] == "attempt_failed"],
            what=f"{job_id} has failed once",
        )

    def lines(self, job_id: str) -> list[str]:
        """The messages of a job's log."""
        return [line["message"] for line in self.ok(self.get(f"/api/jobs/{job_id}/logs"))["lines"]]

    def together(self, ask: Callable[[int], Answer], count: int) -> list[Answer]:
        """Ask so many times at once."""
        with ThreadPoolExecutor(min(count, 100)) as threads:
            return list(threads.map(ask, range(count)))


class Agent(Rota, Jobs):
    """A server with the preset, in this process."""

    @contextlib.contextmanager
    def commits_held(self) -> Iterator[None]:
        """Let nothing become durable for the length of a block."""
        gate, reached = threading.Event(), threading.Event()

        def hold() -> None:
            reached.set()
            gate.wait(WITHIN_S)

        self.inside(lambda server: server.shard._line.run(hold))
        assert reached.wait(WITHIN_S)
        try:
            yield
        finally:
            gate.set()

    def state_inside(self, job_id: str) -> str:
        """The state that a job has in memory, durable or not."""
        return self.inside(lambda server: server.shard.state.tasks.by_id[job_id].state.value)


class AgentProcess(Jobs):
    """`python -m rota serve --preset browsermanager`, with or without a file."""

    def __init__(self, folder: Path, config: Path | None = None) -> None:
        """Start it, and wait until it says where it listens."""
        self._output = folder / "output.txt"
        command = [sys.executable, "-m", "rota", "serve", "--port", "0"]
        command += ["--data-dir", str(folder / "data"), "--preset", "browsermanager"]
        command += ["--config", str(config)] if config is not None else []
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )

        def look() -> int:
            assert self._process.poll() is None, self._output.read_text()
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self._output.read_text())
            return int(found[1]) if found else 0

        self.port = until(look, within_s=30, what="the server says where it listens")

    def end(self) -> None:
        """Stop it in good order."""
        self._process.terminate()
        assert self._process.wait(30) == 0, self._output.read_text()


@contextlib.contextmanager
def agent_process(folder: Path, config: Path | None = None) -> Iterator[AgentProcess]:
    """Run a process for the length of a block."""
    process = AgentProcess(folder, config)
    try:
        yield process
    finally:
        process.end()


def settings_for(browser: Browser, **tables: Any) -> dict[str, Any]:
    """The preset, with all jobs run by `browser`, under these tables of a file.

    The type `*` stands for all.
    """
    own = dict(tables.pop("types", {}))
    every = own.pop("*", {})
    names = dict.fromkeys((*TYPES, *own))
    types = {name: {"executor": "browser", **every, **own.get(name, {})} for name in names}
    executors = {"browser": {"kind": "http", "url": browser.url}}
    return with_presets({"executors": executors, "types": types, **tables}, ("browsermanager",))


# -- what runs the jobs --------------------------------------------------------------------------


class Run(NamedTuple):
    """An attempt as the browser got it."""

    job: str
    type: str
    attempt: int
    payload: dict[str, Any]

    @property
    def profile(self) -> str:
        """The profile, if the payload names it."""
        return str(self.payload.get("id", ""))


class Browser:
    """Runs jobs as their payload says.

    `do` in the payload is a list of steps: the n-th attempt takes the n-th, further ones the last.
    A step may `hold` until its name is released, `drop` the connection, or choose `status`,
    `headers` and `json` (or `text`) of the answer; nothing chosen is 200 `{"debugPort": 9222}`.
    Callbacks to /told are kept.
    """

    def __init__(self) -> None:
        """Listen on the loopback."""
        self.runs: list[Run] = []
        self.left: list[Run] = []
        self.told: list[tuple[dict[str, str], Any]] = []
        self.peak: Counter[str] = Counter()
        self._active: list[Run] = []
        self._released: dict[str, asyncio.Event] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), name="browser")
        self._thread.start()
        assert self._ready.wait(WITHIN_S)

    async def _serve(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_post("/run", self._take)
        app.router.add_post("/told", self._hear)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/run"
        self._ready.set()
        await self._leave.wait()
        await runner.cleanup()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        said = await request.json()
        run = Run(said["taskId"], said["action"], said["attempt"], said["params"])
        self.runs.append(run)
        self._active.append(run)
        for name in ("all", run.type, f"profile {run.profile}"):
            self.peak[name] = max(self.peak[name], self._count(name))
        try:
            steps = run.payload.get("do") or [{}]
            step = steps[min(run.attempt, len(steps)) - 1]
            if "hold" in step:
                await self._gate(step["hold"]).wait()
            return self._answer(request, step)
        except asyncio.CancelledError:
            self.left.append(run)
            raise
        finally:
            self._active.remove(run)

    async def _hear(self, request: web.Request) -> web.StreamResponse:
        self.told.append((dict(request.headers), await request.json()))
        return web.Response()

    @staticmethod
    def _answer(request: web.Request, step: dict[str, Any]) -> web.StreamResponse:
        if step.get("drop") and request.transport is not None:
            request.transport.abort()
        status, headers = step.get("status", 200), step.get("headers", {})
        if "text" in step:
            return web.Response(text=step["text"], status=status, headers=headers)
        return web.json_response(
            step.get("json", {"debugPort": 9222}), status=status, headers=headers
        )

    def _count(self, name: str) -> int:
        own = [run for run in self._active if name in ("all", run.type, f"profile {run.profile}")]
        return len(own)

    def _gate(self, name: str) -> asyncio.Event:
        return self._released.setdefault(name, asyncio.Event())

    def release(self, *names: str) -> None:
        """Let the attempts go on that are held under these names, now and later."""
        for name in names:
            self._loop.call_soon_threadsafe(lambda name=name: self._gate(name).set())

    def of(self, job_id: str) -> list[Run]:
        """The attempts of a job."""
        return [run for run in list(self.runs) if run.job == job_id]

    def wait_busy(self, count: int) -> None:
        """Wait until so many attempts are in progress."""
        until(lambda: len(self._active) == count, what=f"{count} attempts in progress")

    def wait_for(self, count: int) -> list[Run]:
        """Wait until so many attempts have come in."""
        until(lambda: len(self.runs) >= count, what=f"{count} attempts")
        return list(self.runs)

    def wait_left(self, job_id: str) -> None:
        """Wait until the caller has hung up on an attempt of a job."""
        until(lambda: any(run.job == job_id for run in self.left), what=f"{job_id} hung up")

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()


class Agents(Servers):
    """Starts agents for one test, all with one browser, and looks after them."""

    def __init__(self, folder: Path) -> None:
        """Keep their data under `folder`."""
        super().__init__(folder)
        self.browser = Browser()

    def start(self, config: Path | None = None, **tables: Any) -> Agent:
        """Start one: the preset under these tables; reloads read the file `config`."""
        folder = self._folder / f"agent-{len(self._made)}"
        agent = Agent(folder, settings_for(self.browser, **tables))
        agent.config_path = config
        self.adopt(agent)
        return agent

    def close(self) -> None:
        """Stop them, and see what they logged."""
        try:
            super().close()
        finally:
            self.browser.close()


@contextlib.contextmanager
def agents_under(folder: Path) -> Iterator[Agents]:
    """Look after agents for the length of a block."""
    agents = Agents(folder)
    try:
        yield agents
    finally:
        agents.close()


# -- who watches ---------------------------------------------------------------------------------


class Watcher:
    """Follows a job by WebSocket until the server closes, or until told to leave."""

    def __init__(self, client: Client, job_id: str) -> None:
        """Connect."""
        self.messages: list[dict[str, Any]] = []
        self.closed = threading.Event()
        self.close_code: int | None = None
        self._url = f"ws://localhost:{client.port}/ws/jobs/{job_id}"
        self._token = client.token
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._follow()), name="watcher")
        self._thread.start()
        assert self._ready.wait(WITHIN_S)

    async def _follow(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.ws_connect(self._url) as socket,
            ):
                self._socket = socket
                self._ready.set()
                reading = asyncio.ensure_future(self._read(socket))
                leaving = asyncio.ensure_future(self._leave.wait())
                await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
                reading.cancel()
                leaving.cancel()
        finally:
            self._ready.set()

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            self.messages.append(message.json())
        self.close_code = socket.close_code
        self.closed.set()

    def say(self, text: str) -> None:
        """Send the server something."""
        asyncio.run_coroutine_threadsafe(self._socket.send_str(text), self._loop).result(WITHIN_S)

    def first(self) -> dict[str, Any]:
        """Wait for the first message."""
        return until(lambda: self.messages[0] if self.messages else None, what="a message")

    def all(self) -> list[dict[str, Any]]:
        """Wait until the server has closed; give every message."""
        assert self.closed.wait(WITHIN_S), f"not closed; got {self.messages}"
        return self.messages

    def leave(self) -> None:
        """Go away."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def watching(client: Client, job_id: str) -> Iterator[Watcher]:
    """Watch a job for the length of a block."""
    watcher = Watcher(client, job_id)
    try:
        yield watcher
    finally:
        watcher.leave()

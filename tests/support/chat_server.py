"""A chat endpoint for rota to call, and what tests of the BrowserOS document say to rota.

`Chat` is an aiohttp server in a thread of its own. It keeps every request and answers a message
with what a test has put down for it: a *play*, which is a row of moves (bytes to send, a `Hold`, a
`Cut`, a `Status`, a `Flood`). The n-th request with a message gets its n-th play, the last play is
repeated; a message without one gets a stream of one event, `{"echo": message}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop
from aiohttp import web
from support.http_server import until

from rota.domain.fold import born, evolve
from rota.eventlog.codec import decode
from rota.http.dialects import browseros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.web_request import BaseRequest
    from support.http_server import Client

ONCE = {"maxRetries": 0}
"""A retry policy for failures that shall be final at once."""
ENDS = ("completed", "failed", "cancelled")


class Hold(NamedTuple):
    """Wait until the test releases this name, or the caller leaves."""

    name: str


class Status(NamedTuple):
    """Answer with this and no stream."""

    status: int
    text: str = ""
    reason: str | None = None
    headers: dict[str, str] | None = None


class Cut(NamedTuple):
    """Break the connection off."""


class Flood(NamedTuple):
    """Send these bytes again and again, for ever."""

    data: bytes
    pause_s: float = 0.0


Move = bytes | Hold | Status | Cut | Flood


class Asked(NamedTuple):
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def message(self) -> str:
        """What was asked."""
        return str(self.body["message"])


def event(value: Any) -> bytes:
    """Write a value as a server-sent event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class Chat:
    """A chat endpoint that does as it is told."""

    def __init__(self) -> None:
        """Listen on a free port of the loopback."""
        self.requests: list[Asked] = []
        self.left: list[str] = []
        self.busy = 0
        self.peak = 0
        self._plays: dict[str, list[tuple[Move, ...]]] = {}
        self._asked: Counter[str] = Counter()
        self._gates: dict[str, asyncio.Event] = {}
        self._released: set[str] = set()
        self._closing = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()), name="chat")
        self._thread.start()
        assert self._ready.wait(30)
        self.url = f"http://127.0.0.1:{self.port}/chat"

    # -- what tests say

    def on(self, message: str, *moves: Move) -> None:
        """Put down how this message is answered the next time."""
        self._plays.setdefault(message, []).append(moves)

    def release(self, name: str) -> None:
        """Let those go on that are held under this name, now and later."""
        self._loop.call_soon_threadsafe(self._release, name)

    def messages(self) -> list[str]:
        """What was asked, in order."""
        return [request.message for request in list(self.requests)]

    def wait_for(self, count: int) -> list[Asked]:
        """Wait until so many requests have come in."""
        until(lambda: len(self.requests) >= count, what=f"{count} requests to the chat")
        return list(self.requests)

    def wait_until_left(self, message: str) -> None:
        """Wait until a caller has closed the connection on this message."""
        until(lambda: message in self.left, what=f"the caller leaves {message!r}")

    def close(self) -> None:
        """End it; a second time does nothing."""
        if self._closing:
            return
        self._closing = True
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    # -- what the loop does

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        self._turns: set[asyncio.Task[Any]] = set()
        server = web.Server(self._take, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._leave.wait()
        for turn in self._turns:
            turn.cancel()
        await runner.cleanup()

    def _release(self, name: str) -> None:
        self._released.add(name)
        if name in self._gates:
            self._gates[name].set()

    def _gate(self, name: str) -> asyncio.Event:
        gate = self._gates.setdefault(name, asyncio.Event())
        if name in self._released:
            gate.set()
        return gate

    async def _take(self, request: BaseRequest) -> web.StreamResponse:
        body = json.loads(await request.read())
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.path, headers, body)
        turn = asyncio.current_task()
        assert turn is not None
        self._turns.add(turn)
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        self.requests.append(asked)
        count = self._asked[asked.message]
        self._asked[asked.message] += 1
        plays = self._plays.get(asked.message) or [(event({"echo": asked.message}),)]
        answer = _Turn(self, request)
        try:
            return await answer.perform(plays[min(count, len(plays) - 1)])
        except ConnectionError:
            self._was_left(asked)
            return answer.response or web.Response()
        except asyncio.CancelledError:
            self._was_left(asked)
            raise
        finally:
            self._turns.discard(turn)

    def _was_left(self, asked: Asked) -> None:
        self.free()
        if not self._closing:
            self.left.append(asked.message)

    def free(self) -> None:
        """Count one request less; called before its last bytes go out."""
        self.busy -= 1

    async def pass_gate(self, name: str) -> None:
        """Wait for a release."""
        await self._gate(name).wait()


class _Turn:
    """One request being answered."""

    def __init__(self, chat: Chat, request: BaseRequest) -> None:
        self._chat = chat
        self._request = request
        self.response: web.StreamResponse | None = None

    async def perform(self, moves: tuple[Move, ...]) -> web.StreamResponse:
        for move in moves:
            if isinstance(move, Hold):
                await self._chat.pass_gate(move.name)
            elif isinstance(move, Status):
                self._chat.free()
                return web.Response(
                    status=move.status, reason=move.reason, text=move.text, headers=move.headers
                )
            elif isinstance(move, Cut):
                response = await self._stream()
                self._chat.free()
                if self._request.transport is not None:
                    self._request.transport.close()
                return response
            elif isinstance(move, Flood):
                while True:
                    await self._send(move.data)
                    await asyncio.sleep(move.pause_s)
            else:
                await self._send(move)
        response = await self._stream()
        self._chat.free()
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _send(self, data: bytes) -> None:
        await (await self._stream()).write(data)

    async def _stream(self) -> web.StreamResponse:
        if self.response is None:
            self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await self.response.prepare(self._request)
        return self.response


@contextlib.contextmanager
def chatting() -> Iterator[Chat]:
    """Run a chat endpoint for the length of a block."""
    made = Chat()
    try:
        yield made
    finally:
        made.close()


# -- what tests say to rota ----------------------------------------------------------------------


def with_chat(chat: Chat, **browseros: Any) -> dict[str, Any]:
    """Configure the chat executor, and let webhooks go to the loopback."""
    return {
        "executors": {"chat": {"kind": "chat", "url": chat.url}},
        "browseros": browseros,
        "webhooks": {"allow_hosts": ["127.0.0.1"]},
    }


def submit(rota: Client, instruction: str, **fields: Any) -> str:
    """Submit a BrowserOS task; give its id."""
    answer = rota.post("/tasks", {"instruction": instruction, **fields})
    assert answer.status == 201, answer
    return str(answer.json["taskId"])


def submit_batch(rota: Client, *tasks: dict[str, Any], **fields: Any) -> tuple[str, list[str]]:
    """Submit a BrowserOS batch; give its id and those of its tasks."""
    answer = rota.post("/tasks/batch", {"tasks": list(tasks), **fields})
    assert answer.status == 201, answer
    return str(answer.json["batchId"]), list(answer.json["taskIds"])


def ended(rota: Client, task_id: str) -> dict[str, Any]:
    """Wait until a task has ended; give it."""
    return rota.when(task_id, *ENDS)


def completed(rota: Client, *task_ids: str) -> None:
    """Wait until these tasks have ended; they must have completed."""
    for task_id in task_ids:
        task = ended(rota, task_id)
        assert task["state"] == "completed", task


def told(rota: Client, **query: Any) -> list[dict[str, Any]]:
    """The history in the document's words."""
    return rota.events(view="browseros", **query)


def lived(rota: Client, task_id: str) -> list[str]:
    """The states that a task went through, in the document's words, replayed from its history."""
    history = rota.get(f"/v1/tasks/{task_id}/events").json["events"]
    first, *rest = (decode(json.dumps(each).encode()) for each in history)
    task = born(first)
    words = [browseros.view(task)["state"]]
    for record in rest:
        evolve(task, record)
        word = browseros.view(task)["state"]
        if word != words[-1]:
            words.append(word)
    return words


def moment_us(text: str) -> int:
    """Read a timestamp of the API as microseconds."""
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None, text
    return round(moment.timestamp() * 1_000_000)

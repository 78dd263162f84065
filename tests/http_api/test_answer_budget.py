"""Large answers take room before they are made, each caller a share of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from aiohttp import web
from support.http_server import look, read_all, until
from support.tokens import Guarded

from rota.domain.packed import Deferred, spliced, written
from rota.http import byte_budgets
from rota.http.byte_budgets import SMALL_BYTES, TURN_BYTES, AnswerBudget, AnswerRoom
from rota.http.problems import HttpProblem
from rota.sight.room import VALUE_BYTES, size_of_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http_server import Rota, Servers

LARGE = 4_000_000
"""More than the buffers of a connection take while nothing is read."""
MAKES = {"agentId": "a", "action": "waits", "params": {"x": "y" * LARGE}}
PATHS = {
    "/v1/tasks/large": "task",
    "/v1/tasks/gone": "task that is only in the log",
    "/v1/tasks?limit=1&agentId=large": "list",
    "/v1/schedules/large": "schedule",
    "/projects/large/tasks": "project",
    "/projects/large/tasks/item": "item of a project",
    "/v1/events?kind=task_submitted&agentId=large": "page of the log",
    "/v1/tasks/large/events": "page of a task's records",
    "/tasks/large?view=browsermanager": "task in another dialect",
}


class Shared(Guarded):
    """A server with room for five large answers, so that two of one caller are made at once."""

    def __init__(self, serve: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(byte_budgets, "ANSWERS_BYTES_MAX", 5 * LARGE)
        monkeypatch.setattr(byte_budgets, "WAIT_S", 100)
        super().__init__(serve, {"scheduler": {"resultTTLSec": 1}})
        for name in ("greedy", "other"):
            self.make(name, "submit", "*")

    def budget(self) -> tuple[int, int]:
        """How much is held, and how many wait."""

        def look(server: Any) -> tuple[int, int]:
            budget = server.app.answer_budget
            return budget.shares.held, sum(map(len, budget._waiting.values()))

        return self.rota.inside(look)

    def unread(
        self, path: str, name: str = "greedy"
    ) -> contextlib.AbstractContextManager[socket.socket]:
        """Ask for something and read nothing of the answer yet."""
        return self.asking("GET", path, name)

    @contextlib.contextmanager
    def asking(
        self, method: str, path: str, name: str, body: Any = None
    ) -> Iterator[socket.socket]:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(30)
            sock.connect(("127.0.0.1", self.rota.port))
            raw = orjson.dumps(body) if body is not None else b""
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n"
            sock.sendall(f"{head}Authorization: Bearer {self.tokens[name]}\r\n\r\n".encode() + raw)
            yield sock


def submitted(rota: Rota) -> None:
    """Make something large of each kind."""
    large = {**MAKES, "agentId": "large"}
    assert rota.post("/v1/tasks", {**large, "taskId": "gone"}).status == 202
    assert rota.post("/v1/tasks/gone/cancel").status == 200
    assert rota.post("/v1/tasks", {**large, "taskId": "large"}).status == 202
    schedule = {"name": "large", "cron": "0 0 1 1 *", "task": MAKES}
    assert rota.post("/v1/schedules", schedule).status == 201
    item = {"tasks": [{"taskId": "item", "action": "waits", "params": MAKES["params"]}]}
    assert rota.post("/projects/large/tasks", item).status == 201


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_answers_take_shares_before_they_are_made(
    serve: Servers, monkeypatch: pytest.MonkeyPatch, readers: ThreadPoolExecutor
) -> None:
    shared = Shared(serve, monkeypatch)
    submitted(shared.rota)
    until(
        lambda: shared.rota.inside(
            lambda s: "gone" not in s.app.namespaces.default.bridge.shard.state.tasks.by_id
        )
    )
    for path in PATHS:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(shared.unread(path)) for _ in range(4)]
            until(lambda: shared.budget()[1] == 2, what=path)
            assert shared.budget()[0] <= 2.5 * LARGE, path
            assert shared.client("greedy").get("/v1/stats").status in (200, 403), "small ones pass"
            assert len(shared.client("other").get(path).body) > LARGE, "others have theirs"
            for found in readers.map(read_all, socks):  # whichever have room first
                assert found.startswith(b"HTTP/1.1 200"), (path, found[:300])
                assert len(found) > LARGE, path
        until(lambda: shared.budget() == (0, 0), what=path)


def test_an_answer_that_is_not_read_holds_its_room_and_not_the_kernels(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(serve, monkeypatch)
    task = shared.rota.submit_native(action="waits", params={"x": "y" * 600_000})
    with shared.unread(f"/v1/tasks/{task}") as sock:
        until(lambda: shared.budget()[0] >= 600_000)
        for _ in range(20):
            assert shared.client("other").get(f"/v1/events?task={task}&limit=1").status == 200
        assert shared.budget()[0] >= 600_000
        assert len(read_all(sock)) > 600_000
    until(lambda: shared.budget() == (0, 0))


def test_the_document_of_the_api_takes_room_too(
    serve: Servers, monkeypatch: pytest.MonkeyPatch, readers: ThreadPoolExecutor
) -> None:
    shared = Shared(serve, monkeypatch)
    size = len(shared.rota.get("/openapi.json").body)
    monkeypatch.setattr(byte_budgets, "ANSWERS_BYTES_MAX", 3 * size)
    shared.rota.inside(lambda s: setattr(s.app, "answer_budget", byte_budgets.AnswerBudget()))
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(shared.unread("/openapi.json")) for _ in range(3)]
        until(lambda: shared.budget()[1] == 2, what="one is held, two wait")
        assert all(len(found) > size for found in readers.map(read_all, socks))
    until(lambda: shared.budget() == (0, 0))


def test_who_waits_too_long_for_room_is_told_to_come_again(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(serve, monkeypatch)
    monkeypatch.setattr(byte_budgets, "WAIT_S", 0.2)
    submitted(shared.rota)
    with shared.unread("/v1/tasks/large"), shared.unread("/v1/tasks/large"):
        until(lambda: shared.budget()[0] >= 2 * LARGE)
        refused = shared.client("greedy").get("/v1/schedules/large")
        assert (refused.status, refused.code) == (503, "too_many_bytes")
        assert refused.headers["retry-after"]
    until(lambda: shared.budget() == (0, 0))
    assert shared.client("greedy").get("/v1/schedules/large").status == 200


def test_who_waits_for_room_gives_its_place_to_others_and_has_a_share_of_them(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_budgets, "WAIT_S", 100)
    guarded = Guarded(serve, {"server": {"connectionsMax": 2}})
    for name in ("greedy", "modest", "other"):
        guarded.make(name, "submit", "*")
    large = guarded.rota.submit_native(action="waits", params={"x": "y" * 100_000})
    small = guarded.rota.submit_native(action="waits")

    def waiting() -> int:
        return guarded.rota.inside(lambda s: len(s._http.server.places._waiting))

    def asking(name: str, stack: contextlib.ExitStack) -> socket.socket:
        sock = stack.enter_context(guarded.rota.connected(30))
        token = f"Authorization: Bearer {guarded.tokens[name]}\r\n"
        sock.sendall(f"GET /v1/tasks/{large} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n".encode())
        return sock

    guarded.rota.inside(
        lambda s: s.app.answer_budget.shares.add("all", byte_budgets.ANSWERS_BYTES_MAX)
    )
    with contextlib.ExitStack() as stack:
        first = asking("greedy", stack)
        until(lambda: waiting() == 1)
        refused = guarded.ask("greedy", "GET", f"/v1/tasks/{large}")
        assert (refused.status, refused.code) == (503, "too_many_bytes"), "others' places"
        second = asking("modest", stack)
        until(lambda: waiting() == 2)
        assert guarded.ask("other", "GET", f"/v1/tasks/{small}").status == 200
        assert b'"too_many_bytes"' in read_all(first)
        guarded.revoke("modest")
        assert b'"too_many_bytes"' in second.recv(65536)
        until(lambda: waiting() == 0)
    guarded.rota.inside(
        lambda s: s.app.answer_budget.shares.give_back("all", byte_budgets.ANSWERS_BYTES_MAX)
    )


def test_who_leaves_while_it_waits_is_forgotten(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(serve, monkeypatch)
    submitted(shared.rota)
    with shared.unread("/v1/tasks/large"), shared.unread("/v1/tasks/large") as last:
        with shared.unread("/v1/tasks/large"):
            until(lambda: shared.budget()[1] == 1)
        until(lambda: shared.budget()[1] == 0)
        assert len(read_all(last)) > LARGE


def test_an_answer_that_was_read_is_not_kept_with_its_connection(serve: Servers) -> None:
    rota = serve()
    path = f"/v1/tasks/{rota.submit_native(action='waits', params=MAKES['params'])}"
    with rota.connected(10) as sock, sock.makefile("rb") as file:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        length = 0
        while (line := file.readline().lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        assert len(file.read(length)) > LARGE

        def kept() -> list[web.Response]:
            found = [each for each in gc.get_objects() if isinstance(each, web.Response)]
            return [each for each in found if isinstance(each.body, bytes) and each.body]

        until(lambda: not rota.inside(lambda _: kept()))


@pytest.mark.parametrize("path", ["/v1/leases", "/automechanica/leases", "/v1/leases/settle"])
def test_leases_of_large_tasks_take_a_share(
    serve: Servers, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    shared = Shared(serve, monkeypatch)
    submitted(shared.rota)
    shared.make("worker", "work", "*")
    tasks = [f"lent-{n}" for n in range(4)]
    for name in tasks:
        large = {**MAKES, "action": "big", "taskId": name}
        assert shared.rota.post("/v1/tasks", large).status == 202
    with contextlib.ExitStack() as stack:
        socks = []
        for name in tasks:
            wants = {"types": ["big"], "waitMs": 0}
            body = {"workerId": name, **wants}
            if "automechanica" in path:
                body = {"worker_id": name, "task_types": ["big"], "wait_ms": 0}
            elif "settle" in path:
                body = {"workerId": name, "outcomes": [], "lease": wants}
            sock = stack.enter_context(shared.asking("POST", path, "worker", body))
            socks.append(sock)
        until(lambda: shared.budget()[1] > 0)
        assert shared.budget()[0] <= 2.5 * LARGE
        assert len(shared.client("other").get("/v1/tasks/large").body) > LARGE, "others have theirs"
        for sock in socks:
            assert len(read_all(sock)) > LARGE
    until(lambda: shared.budget() == (0, 0))


def test_tasks_whose_lease_finds_no_room_go_back(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(serve, monkeypatch)
    submitted(shared.rota)
    monkeypatch.setattr(byte_budgets, "WAIT_S", 0.2)
    shared.make("worker", "work", "*")
    shared.rota.submit_native(taskId="lent", action="big", params=MAKES["params"])
    with shared.unread("/v1/tasks/large", "worker"), shared.unread("/v1/tasks/large", "worker"):
        until(lambda: shared.budget()[0] >= 2 * LARGE)
        wants = {"workerId": "w", "types": ["big"], "waitMs": 0}
        refused = shared.client("worker").post("/v1/leases", wants)
        assert (refused.status, refused.code) == (503, "too_many_bytes")
    until(lambda: look(shared.rota, "lent")["state"] == "ready")


# -- alone ---------------------------------------------------------------------------------------


def test_a_view_is_weighed_without_being_made() -> None:
    assert size_of_view(True) == 0
    assert size_of_view({"a": "xyz", "b": [1, "x"]}) == 4 * VALUE_BYTES + 4
    large = spliced(b'"' + b"y" * LARGE + b'"')
    assert isinstance(large, Deferred)
    assert size_of_view({"rows": [{"params": large}]}) == LARGE + 2 + 3 * VALUE_BYTES
    assert orjson.loads(written({"params": large})) == {"params": "y" * LARGE}
    with pytest.raises(TypeError):
        written(object())


class Requests:
    """Requests of some callers, each a task with a room of its own."""

    def __init__(self) -> None:
        self.budget = AnswerBudget()
        self.made: list[str] = []
        self.over = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def _serve(self, owner: str, size: int) -> None:
        room = AnswerRoom(self.budget, owner, lambda *_: contextlib.nullcontext())
        if not room.take(size):
            await room.wait(size)
        self.made.append(owner)
        room.made(size)
        await self.over.wait()

    async def ask(self, owner: str, size: int) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._serve(owner, size))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task

    async def end(self) -> None:
        self.over.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.sleep(0)
        assert self.budget.shares.held == 0
        assert not self.budget._waiting


def test_small_answers_pass_whatever_is_held() -> None:
    async def run() -> None:
        asked = Requests()
        asked.budget.shares.add("other", byte_budgets.ANSWERS_BYTES_MAX)
        await asked.ask("a", SMALL_BYTES)
        assert asked.made == ["a"]
        asked.budget.shares.give_back("other", byte_budgets.ANSWERS_BYTES_MAX)
        await asked.end()

    asyncio.run(run())


def test_large_answers_are_made_one_after_the_other_callers_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        monkeypatch.setattr(byte_budgets, "REST_S_PER_BYTE", 1e-9)
        asked = Requests()
        for owner in ("a", "a", "a", "b", "b", "c"):
            await asked.ask(owner, TURN_BYTES + 1)
        assert asked.made == ["a"], "the others wait for their turns"
        async with asyncio.timeout(10):
            while len(asked.made) < 6:
                await asyncio.sleep(0.001)
        assert asked.made == ["a", "a", "b", "c", "a", "b"]
        await asked.end()

    asyncio.run(run())


def test_an_answer_that_is_larger_than_any_share_is_made_alone() -> None:
    async def run() -> None:
        asked = Requests()
        await asked.ask("a", 2 * byte_budgets.ANSWERS_BYTES_MAX)
        assert asked.made == ["a"]
        assert asked.budget.shares.held == byte_budgets.ANSWERS_BYTES_MAX // 2, "others have theirs"
        await asked.end()

    asyncio.run(run())


def test_a_request_that_is_cancelled_lets_the_next_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        monkeypatch.setattr(byte_budgets, "WAIT_S", 0.05)
        asked, size = Requests(), TURN_BYTES
        asked.budget.shares.most = 2 * size
        first = await asked.ask("a", size)
        waits = await asked.ask("a", size)
        assert asked.made == ["a"]
        with pytest.raises(HttpProblem):
            await waits
        waits = await asked.ask("a", size)
        first.cancel()
        async with asyncio.timeout(10):
            while len(asked.made) < 2:
                await asyncio.sleep(0)
        await asked.end()
        assert not waits.exception()

    asyncio.run(run())

"""Who follows the history: readers that leave, that do not read, that come back; and handlers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Rota, Servers, read_all, until

from rota.errors import InternalFault, LogCorrupt, LogUnusable, StorageUnavailable
from rota.http import catch_up, listener

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.server import Server

GREETING = b": rota event stream\n\n"
LARGE = 300_000


def asked(rota: Rota, path: str, version: str = "1.1", *, buffer: int | None = None) -> Any:
    """Ask on a connection of its own, and leave it open."""
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.settimeout(10)
    sock.connect(("127.0.0.1", rota.port))
    sock.sendall(f"GET {path} HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
    return sock


def streams(rota: Rota) -> int:
    return rota.inside(lambda server: server.app.namespaces.streaming.held)


def watches(rota: Rota) -> int:
    return rota.inside(lambda server: server.app.namespaces.default.watches.watching.held)


def waiting(rota: Rota) -> list[int]:
    """How many bytes wait for each stream's reader."""

    def look(server: Server) -> list[int]:
        found = [
            stream.connection.transport for stream in server.app.namespaces.default.streams._open
        ]
        return [each.get_write_buffer_size() for each in found if each is not None]

    return rota.inside(look)


# -- those who leave -----------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?task=nobody", "?agentId=nobody", "?kind=agent_paused"])
def test_a_reader_that_leaves_a_quiet_server_makes_room_at_once(rota: Rota, query: str) -> None:
    found = [asked(rota, f"/v1/events/stream{query}") for _ in range(3)]
    until(lambda: streams(rota) == 3)
    for sock in found:
        sock.close()
    until(lambda: streams(rota) == 0, within_s=5, what="their places are free")


def test_a_reader_that_leaves_a_busy_server_makes_room_at_once(rota: Rota) -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            rota.submit_native("busy")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        sock = asked(rota, "/v1/events/stream?agentId=nobody")
        until(lambda: streams(rota) == 1)
        sock.close()
        until(lambda: streams(rota) == 0, within_s=5, what="its place is free")
    finally:
        over.set()
        thread.join()


def test_a_long_poll_that_leaves_makes_room_at_once(rota: Rota) -> None:
    task = rota.submit_native(action="waits")
    found = [asked(rota, f"/v1/tasks/{task}?waitMs=60000") for _ in range(3)]
    until(lambda: watches(rota) == 3)
    for sock in found:
        sock.close()
    until(lambda: watches(rota) == 0, within_s=5, what="nobody waits any more")


def test_a_watcher_of_a_job_that_leaves_makes_room_at_once(rota: Rota) -> None:
    task = rota.submit_native(action="waits")
    sock = socket.create_connection(("127.0.0.1", rota.port), 10)
    lines = ("Host: localhost", "Connection: Upgrade", "Upgrade: websocket")
    key = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "")
    sock.sendall("\r\n".join((f"GET /ws/jobs/{task} HTTP/1.1", *lines, *key)).encode())
    until(lambda: watches(rota) == 1)
    sock.close()
    until(lambda: watches(rota) == 0, within_s=5, what="nobody watches any more")


def test_a_task_that_is_cancelled_inside_does_not_end_its_stream_in_good_order(rota: Rota) -> None:
    """A cancellation is passed on, not taken for the reader's leaving."""
    sock = asked(rota, "/v1/events/stream")
    until(lambda: streams(rota) == 1)

    def cancel(server: Server) -> None:
        (stream,) = server.app.namespaces.default.streams._open
        handler: Any = stream.connection._task_handler
        handler.cancel()

    rota.inside(cancel)
    with sock:
        text = read_all(sock)
    assert GREETING in text
    assert not text.endswith(b"0\r\n\r\n")
    until(lambda: streams(rota) == 0)


# -- those who do not read -----------------------------------------------------------------------


def test_a_reader_that_does_not_read_holds_one_piece_and_misses_nothing(rota: Rota) -> None:
    before = rota.get("/v1/events/head").json["seq"]
    large = "x" * LARGE
    for _ in range(8):
        rota.ended(rota.submit_native(params={"x": large}))
    head = rota.get("/v1/events/head").json["seq"]
    paths = [f"/v1/events/stream?after={before}", f"/v1/events/stream?after={before}&agentId=ann"]
    found = [asked(rota, path, "1.0", buffer=65536) for path in paths * 3]
    until(lambda: len(waiting(rota)) == 6 and all(waiting(rota)))
    for _ in range(10):
        rota.submit_native("bob", params={"x": large})
    assert max(waiting(rota)) <= 2 * catch_up.PIECE_BYTES
    last = rota.ended(rota.submit_native("ann"))["taskId"]
    for number, sock in enumerate(found):
        text = bytearray()
        while b'task_succeeded","v":1,"task":"%b"' % last.encode() not in text[-2000:]:
            text += sock.recv(1 << 20)
        lines = bytes(text).split(GREETING)[1].split(b"\n")
        seqs = [int(line[4:]) for line in lines if line.startswith(b"id: ")]
        events = [json.loads(line[6:]) for line in lines if line[:6] == b"data: "]
        assert seqs == [event["seq"] for event in events]
        assert seqs == sorted(set(seqs))
        if number % 2 == 0:
            assert seqs[: head - before] == list(range(before + 1, head + 1))
        else:
            assert {event["agent"] for event in events} == {"ann"}
            assert len(seqs) == 9 * 4
        sock.close()


def test_who_takes_nothing_for_a_while_is_cut_off(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        rota.ended(rota.submit_native(params={"x": "x" * LARGE}))
    monkeypatch.setattr(listener, "UNREAD_S", 0.2)
    with asked(rota, "/v1/events/stream?after=0", buffer=4096):
        until(lambda: streams(rota) == 1)
        until(lambda: streams(rota) == 0, what="it is cut off")


def test_a_page_of_the_feed_is_bounded_in_bytes(rota: Rota) -> None:
    for _ in range(10):
        task = rota.submit_native(params={"x": "x" * LARGE})
    rota.ended(task)
    for query in ("", "&agentId=ann", f"&task={task}"):
        after, found = 0, []
        while True:
            answer = rota.get(f"/v1/events?limit=1000&after={after}{query}")
            assert len(answer.body) < (1 << 20) + 2 * LARGE
            found += [event["seq"] for event in answer.json["events"]]
            if not answer.json["events"]:
                break
            after = answer.json["next"]
        whole = range(1, 1 + answer.json["head"])
        if not query:
            assert found == list(whole)
        elif "agent" in query:
            assert found == list(whole)[1:]
        else:
            assert len(found) == 4


def test_a_page_of_a_tasks_history_is_bounded_in_bytes(rota: Rota) -> None:
    task = rota.submit_native(action="waits", params={"x": "x" * LARGE})
    for _ in range(2):
        lines = ["x" * 1000] * 450
        assert rota.post(f"/v1/tasks/{task}/logs", {"lines": lines}).status == 201
    first = rota.get(f"/v1/tasks/{task}/events").json
    assert [len(first["events"]), first["next"]] == [3, first["events"][-1]["seq"]]
    assert rota.get(f"/v1/tasks/{task}/events?after={first['next']}").json == {"events": []}


# -- forms ---------------------------------------------------------------------------------------


def test_an_old_client_gets_the_stream_without_chunks(rota: Rota) -> None:
    with asked(rota, "/v1/events/stream?after=0", "1.0") as sock:
        task = rota.submit_native()
        text = b""
        while b'task_succeeded","v":1,"task":"%b"' % task.encode() not in text:
            text += sock.recv(1 << 16)
    lines = text.partition(GREETING)[2].split(b"\n")
    assert {line.partition(b":")[0] for line in lines if line} == {b"id", b"event", b"data"}


# -- a log that cannot be read for a while -------------------------------------------------------


def failing(times: int, ask: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that fails so many times before it works."""
    left = [times]

    def call(*args: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise LogUnusable("the log is being reopened")
        return ask(*args)

    return call


def test_a_stream_waits_for_the_log_and_goes_on(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "UNREADABLE_S", 0.01)
    rota.ended(rota.submit_native())

    def fail(server: Server) -> None:
        monkeypatch.setattr(server.shard.log, "read", failing(3, server.shard.log.read))

    rota.inside(fail)
    with rota.stream("/v1/events/stream?after=0") as stream:
        assert [frame.id for frame in stream.take(5)] == [1, 2, 3, 4, 5]


FAILURES = (
    LogUnusable("the log is being reopened"),
    StorageUnavailable("too many wait to read the log"),
    LogCorrupt(1, "a record is not what was written"),
    InternalFault("something else"),
    OSError("and yet something else"),
)


class Hearing(Rota):
    """A server with a handler that keeps what it hears, and a log that fails now and then."""

    def __init__(self, folder: Path, config: dict[str, Any] | None = None) -> None:
        super().__init__(folder, config)
        self.heard: list[int] = []
        self.asked = 0

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        from rota import server as servers

        self.server = servers.Server(self._settings, self.config_path)
        self.server.on_event(lambda record: self.heard.append(record.seq))
        await self.server.start()
        feed = self.server.app.namespaces.default.feed
        entries = feed.entries

        async def failing_page(after: int) -> Any:
            self.asked += 1
            if self.asked % 3:
                raise FAILURES[self.asked % len(FAILURES)]
            return await entries(after)

        feed.entries = failing_page  # type: ignore[method-assign, assignment]
        self.port = self.server.port
        self._ready.set()
        await self._leave.wait()
        await self.server.stop(self._grace_s)


def test_handlers_wait_for_the_log_and_miss_nothing(
    serve: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.http.event_hooks.UNREADABLE_S", 0.002)
    rota = serve.adopt(Hearing(tmp_path / "hearing"))
    assert isinstance(rota, Hearing)
    for _ in range(10):
        rota.ended(rota.submit_native())
    head = rota.get("/v1/events/head").json["seq"]
    until(lambda: rota.heard and rota.heard[-1] == head)
    assert rota.asked > 3
    assert rota.heard == list(range(rota.heard[0], head + 1))


@pytest.mark.parametrize("view", ["native", "browseros"])
def test_a_stream_that_is_behind_waits_while_too_many_read_the_log(
    serve: Servers, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    monkeypatch.setattr("rota.http.catch_up.UNREADABLE_S", 0.01)
    rota = serve({"scheduler": {"resultTTLSec": 3600, "maxEndedTasks": 1}})
    for _ in range(10):
        rota.ended(rota.submit_native())
    told = rota.events(view=view)
    refused = rota.inside(refuse_some)
    with rota.stream(f"/v1/events/stream?after=0&view={view}") as stream:
        assert [frame.event for frame in stream.take(len(told))] == told
    assert len(refused) >= 5


def refuse_some(server: Server) -> list[None]:
    """Have the readers refuse some of what is to be shown."""
    shard: Any = server.shard
    fetch = shard.fetch
    refused: list[None] = []

    def refusing(read: Any, done: Any, failed: Any, is_wanted: Any = None) -> None:
        refused.append(None)
        if len(refused) in (2, 3, 4, 6):  # pages, and what is looked up for one
            asyncio.get_running_loop().call_soon(failed, StorageUnavailable("too many wait"))
        else:
            fetch(read, done, failed, is_wanted)

    shard.fetch = refusing
    return refused

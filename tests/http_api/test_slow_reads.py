"""A read of the log that hangs holds up whoever asked for it, and nobody else."""

from __future__ import annotations

import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import target, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http_server import Rota, Servers

    from rota.server import Server


@pytest.fixture
def rota(serve: Servers) -> Rota:
    kept = {"resultTTLSec": 3600, "maxEndedTasks": 1}
    return serve({"scheduler": kept, "webhooks": {"allow_hosts": ["127.0.0.1"]}})


class Hanging:
    """A log whose reads of one task hang until they are let go."""

    def __init__(self, rota: Rota, task: str) -> None:
        self.task = task
        self.count = 0
        self.go = threading.Event()
        self.is_asked = threading.Event()
        rota.inside(self._hang)

    def _hang(self, server: Server) -> None:
        log: Any = server.shard.log
        read_task = log.read_task

        def hanging(task_id: str, *args: Any) -> Any:
            if task_id == self.task:
                self.count += args[1] == 0  # not the look whether there is another page
                self.is_asked.set()
                assert self.go.wait(30)
            return read_task(task_id, *args)

        log.read_task = hanging


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def gone(rota: Rota, **fields: Any) -> str:
    """Have a task that has left memory."""
    old = rota.submit_native(**fields)
    rota.ended(old)
    rota.ended(rota.submit_native())
    until(lambda: rota.inside(lambda s: s.shard.archive.here(old) is None) or None)
    return old


def test_submissions_and_dispatch_go_on_while_a_read_hangs(
    rota: Rota, readers: ThreadPoolExecutor
) -> None:
    old = gone(rota)
    hanging = Hanging(rota, old)
    asked = readers.submit(rota.get, f"/v1/tasks/{old}")
    depends = readers.submit(
        rota.post, "/v1/tasks", {"agentId": "ann", "action": "echo", "dependsOn": [old]}
    )
    assert hanging.is_asked.wait(10)
    for _ in range(5):
        rota.ended(rota.submit_native())
    assert rota.get("/v1/stats").status == 200
    assert rota.get("/health").json["status"] == "ok"
    assert not asked.done()
    assert not depends.done()
    hanging.go.set()
    assert asked.result(10).json["state"] == "succeeded"
    assert depends.result(10).status == 202


def test_other_callbacks_are_delivered_while_the_read_for_one_hangs(rota: Rota) -> None:
    with target() as hooks:
        hooks.respond = lambda request: (500 if request.path == "/old" else 200, b"")
        old = gone(rota, callbackUrl=f"{hooks.url}/old")
        hanging = Hanging(rota, old)
        assert hanging.is_asked.wait(10), "it is tried again, and has left memory"
        for n in range(5):
            rota.ended(rota.submit_native(callbackUrl=f"{hooks.url}/{n}"))
        until(lambda: rota.get("/v1/stats").json["callbacks"]["delivered"] == 5 or None)
        assert rota.get("/health").json["status"] == "ok"
        hooks.respond = lambda _: (200, b"")
        hanging.go.set()
        until(lambda: rota.get("/v1/stats").json["callbacks"]["delivered"] == 6 or None)


def test_a_read_that_hangs_while_the_log_fails_is_answered_and_nothing_is_lost(
    rota: Rota, readers: ThreadPoolExecutor
) -> None:
    old = gone(rota)
    hanging = Hanging(rota, old)
    asked = [readers.submit(rota.get, f"/v1/tasks/{old}") for _ in range(3)]
    assert hanging.is_asked.wait(10)

    def break_once(server: Server) -> None:
        log: Any = server.shard.log
        append = log.append

        def fail(*args: Any) -> None:
            log.append = append
            msg = "No space left on device"
            raise OSError(msg)

        log.append = fail

    rota.inside(break_once)
    assert rota.post("/v1/tasks", {"agentId": "ann", "action": "echo"}).status == 503
    until(lambda: rota.get("/health").json["status"] == "ok" or None)
    hanging.go.set()
    assert {each.result(10).json["state"] for each in asked} == {"succeeded"}
    rota.ended(rota.submit_native())


def test_more_reads_than_wait_are_refused(
    rota: Rota, readers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.actors.readers.READERS_MAX", 2)  # one of them to show
    monkeypatch.setattr("rota.actors.readers.WAITING_MAX", 2)  # and one of them of one caller
    old = gone(rota)
    hanging = Hanging(rota, old)
    first = readers.submit(rota.get, f"/v1/tasks/{old}")
    assert hanging.is_asked.wait(10)
    second = readers.submit(rota.get, f"/v1/tasks/{old}")
    until(lambda: rota.inside(lambda s: waiting_to_be_shown(s) == 1) or None)
    third = rota.get(f"/v1/tasks/{old}")
    assert (third.status, third.code) == (503, "storage_unavailable")
    assert not first.done()
    hanging.go.set()
    assert (first.result(10).status, second.result(10).status) == (200, 200)


def test_reads_of_clients_that_have_left_hold_up_nobody(
    rota: Rota, readers: ThreadPoolExecutor
) -> None:
    old = gone(rota)
    other = gone(rota)
    hanging = Hanging(rota, old)
    address = ("127.0.0.1", rota.port)
    asking = [socket.create_connection(address) for _ in range(20)]
    for each in asking:
        each.sendall(f"GET /v1/tasks/{old} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    until(lambda: rota.inside(lambda s: waiting_to_be_shown(s) == 18) or None)
    own = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", "taskId": "mine"})
    assert own.status == 202
    for each in asking:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    asked = readers.submit(rota.get, f"/v1/tasks/{other}")
    until(lambda: rota.inside(lambda s: waiting_to_be_shown(s, is_wanted=True) == 1) or None)
    hanging.go.set()
    assert asked.result(10).json["state"] == "succeeded"
    assert hanging.count == 2


def waiting_to_be_shown(server: Server, *, is_wanted: bool | None = None) -> int:
    readers: Any = server.shard.fetch.__self__  # type: ignore[attr-defined]
    waiting = [each for queue in readers._to_show.values() for each in queue]
    return sum(1 for each in waiting if is_wanted in (None, each.is_wanted()))

"""While the state is rebuilt after a failed write: health is answered, changes are refused at once,
and reads wait a little, and never see a fact that was rolled back.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until

from rota.actors import failover
from rota.errors import LogUnusable
from rota.sight import showing

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.http_server import Rota

    from rota.server import Server

BODY = {"agentId": "ann", "action": "waits"}


@pytest.fixture
def go_on(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the next write fail, and the rebuilding after it wait for this to be called."""
    held, whole = threading.Event(), failover.rebuild_whole

    def slow(*args: Any, **options: Any) -> Any:
        assert held.wait(30)
        return whole(*args, **options)

    monkeypatch.setattr(failover, "rebuild_whole", slow)
    monkeypatch.setattr(failover, "REOPEN_US", 1000)

    def break_once(server: Server) -> None:
        append = server.shard.log.append

        def fail(*_: Any) -> None:
            server.shard.log.append = append  # type: ignore[method-assign]
            raise LogUnusable("Input/output error")

        server.shard.log.append = fail  # type: ignore[method-assign]

    rota.inside(break_once)
    return held.set


def test_only_what_is_in_the_log_is_ever_seen(rota: Rota, go_on: Callable[[], None]) -> None:
    answer = rota.post("/v1/tasks", BODY)
    assert (answer.status, answer.code) == (503, "storage_unavailable")
    begun = time.perf_counter()
    health = rota.get("/health").json
    assert (health["status"], health["db"]) == ("degraded", "unavailable")
    assert health["queue"] == {"queued": None, "running": None, "max_concurrent": None}
    assert b'rota_degraded{namespace="default"} 1.0' in rota.get("/metrics").body
    assert rota.post("/v1/tasks", BODY).status == 503
    assert rota.post("/v1/agents/ann/pause", {}).status == 503
    assert time.perf_counter() - begun < showing.REBUILT_S, "none of them waited"
    seen: list[Any] = []
    reader = threading.Thread(target=lambda: seen.append(rota.get("/v1/tasks")))
    reader.start()
    time.sleep(0.2)
    assert not seen, "it waits"
    go_on()
    reader.join(10)
    assert (seen[0].status, seen[0].json["tasks"]) == (200, [])
    until(lambda: rota.get("/health").json["status"] == "ok")
    assert rota.post("/v1/tasks", BODY).status == 202
    assert rota.get("/health").json["queue"]["queued"] == 1


def test_a_read_that_waited_long_enough_is_refused(
    rota: Rota, go_on: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "REBUILT_S", 0.1)
    assert rota.post("/v1/tasks", BODY).status == 503
    for path in ("/v1/tasks", "/v1/agents", "/v1/stats", "/tasks", "/v1/tasks/tsk_none"):
        answer = rota.get(path)
        assert (answer.status, answer.code) == (503, "storage_unavailable"), path
    go_on()
    until(lambda: rota.get("/v1/tasks").status == 200)


@pytest.fixture
def token(rota: Rota) -> str:
    """A token in the log, made while it takes writes."""
    return str(rota.post("/v1/tokens", {"name": "ops", "role": "admin"}).json["token"])


def test_a_token_is_neither_unknown_nor_needless_meanwhile(
    rota: Rota, token: str, go_on: Callable[[], None]
) -> None:
    assert rota.get("/v1/tasks").status == 401
    rota.token = token
    assert rota.post("/v1/tasks", BODY).status == 503
    assert rota.post("/v1/tasks", BODY).code == "storage_unavailable"
    rota.token = None
    for method in ("GET", "POST"):
        assert rota.request(method, "/v1/tasks").status == 401
    rota.token = token
    seen: list[Any] = []
    reader = threading.Thread(target=lambda: seen.append(rota.get("/v1/tasks")))
    reader.start()
    go_on()
    reader.join(10)
    assert seen[0].status == 200
    until(lambda: rota.post("/v1/tasks", BODY).status == 202)
    rota.token = "rota_" + "x" * 43
    assert rota.get("/v1/tasks").status == 401

"""Two namespaces in one server: nothing of one shows in the other, and neither needs the other."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from support.http_server import Answer, Client, Rota, Servers, Stream, Target, until

from rota.actors import failover
from rota.errors import ConfigError, LogCorrupt, LogLocked, LogUnusable
from rota.eventlog.port import Head
from rota.server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from rota.actors.system import Shard
    from rota.domain.events import Record

OPS, TEAM = "ops-token-" + "o" * 20, "team-token-" + "t" * 20
TASK = {"agentId": "ann", "action": "waits"}


class In(Client):
    """A client of one namespace."""

    def __init__(self, rota: Client, namespace: str, token: str | None = None) -> None:
        self._rota, self.namespace, self.token = rota, namespace, token

    @property
    def port(self) -> int:  # type: ignore[override]
        return self._rota.port

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Answer:
        named = {"X-Rota-Namespace": self.namespace, **(headers or {})}
        return super().request(method, path, body, named, raw=raw)


@pytest.fixture
def rota(serve: Servers) -> Rota:
    return serve({"namespaces": {"team-a": {}}})


@pytest.fixture
def both(rota: Rota) -> tuple[In, In]:
    return In(rota, "default"), In(rota, "team-a")


def shard_of(server: Server, name: str = "team-a") -> Shard:
    return server.namespaces()[name]


# -- which one is meant --------------------------------------------------------------------------


def test_the_default_is_meant_where_none_is_named(rota: Rota, both: tuple[In, In]) -> None:
    task = rota.submit_native()
    assert both[0].get(f"/v1/tasks/{task}").status == 200
    assert both[1].get(f"/v1/tasks/{task}").code == "not_found"
    assert rota.request("GET", f"/v1/tasks/{task}", headers={"X-Rota-Namespace": ""}).status == 200


def test_one_may_be_named_by_the_query_where_no_header_can_be_sent(
    rota: Rota, both: tuple[In, In]
) -> None:
    task = both[1].submit_native()
    assert rota.get(f"/v1/tasks/{task}?namespace=team-a").status == 200
    assert rota.get(f"/v1/tasks/{task}?view=native&namespace=default").status == 404
    assert both[1].get(f"/v1/tasks/{task}?namespace=team-a").status == 200
    answer = both[1].get(f"/v1/tasks/{task}?namespace=default")
    assert (answer.status, answer.json["details"]) == (400, {"field": "namespace"})


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("namespace=team-a&namespace=default", (), 400),
        ("namespace=team-a&%6eamespace=default", (), 400),
        ("namespace=team-a", ("default",), 400),
        ("", ("team-a", "default"), 400),
        ("", ("team-a", "team-a"), 200),
        ("", ("", "team-a"), 200),
        ("namespace=team-a&namespace=team-a", ("team-a",), 200),
        ("%6eamespace=team-a", (), 200),
        ("namespace=team%2Da", (), 200),
    ],
)
def test_a_request_names_one_at_most(
    rota: Rota, both: tuple[In, In], query: str, headers: tuple[str, ...], status: int
) -> None:
    task = both[1].submit_native("ann", "waits")
    lines = [f"GET /v1/tasks/{task}?{query} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"X-Rota-Namespace: {name}" for name in headers]
    answer = rota.raw("\r\n".join([*lines, "", ""]).encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    if status == 400:
        assert b"the request names different namespaces" in answer


@pytest.mark.parametrize("path", ["/v1/tasks", "/tasks", "/api/jobs", "/health", "/metrics"])
def test_one_that_is_not_there_is_not_found(rota: Rota, path: str) -> None:
    answer = In(rota, "team-b").get(path)
    assert answer.status == 404
    if path != "/api/jobs":  # whose document has numbers for codes
        assert answer.code == "namespace_not_found"
    assert b"there is no namespace 'team-b'" in answer.body
    assert rota.get(f"{path}?namespace=../x").status == 404


def test_a_server_with_one_namespace_knows_no_other(serve: Servers) -> None:
    rota = serve()
    assert In(rota, "default").submit_native()
    assert In(rota, "team-a").post("/v1/tasks", TASK).code == "namespace_not_found"
    (only,) = rota.get("/v1/namespaces").json["namespaces"]
    assert (only["name"], only["state"]) == ("default", "running")
    assert "namespaces" not in rota.get("/health").json
    assert rota.get("/health/ready").json == {"status": "ok"}


@pytest.mark.parametrize("path", ["/health", "/v1/tasks", "/tasks", "/api/jobs"])
def test_a_name_that_is_no_text_is_not_found_and_not_logged(rota: Rota, path: str) -> None:
    before = len(rota.log.lines)
    for said in (b"\xff\xfe", b"team-a\xff", b"\xed\xa0\x80"):
        head = b"GET %s HTTP/1.1\r\nHost: localhost\r\n" % path.encode()
        with rota.connected() as sock:
            sock.sendall(head + b"X-Rota-Namespace: " + said + b"\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 404 "), answer
        shown = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert "there is no namespace '" in shown.get("error", shown.get("msg"))
    assert len(rota.log.lines) == before


@pytest.mark.parametrize(
    "query", [b"view=\xff", b"view=%ff", b"cursor=\xff\xfe", b"state=\xff", b"agentId=\xff"]
)
def test_a_query_that_is_no_text_breaks_nothing(rota: Rota, query: bytes) -> None:
    task = rota.submit_native("ann", "waits").encode()
    for path in (b"/v1/tasks", b"/tasks", b"/v1/tasks/" + task, b"/api/jobs", b"/v1/events"):
        with rota.connected() as sock:
            head = b"GET %s?%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            sock.sendall(head % (path, query))
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.split(b" ")[1][:1] in (b"2", b"4"), answer


# -- side by side --------------------------------------------------------------------------------


def test_the_same_ids_and_keys_stand_for_different_tasks(both: tuple[In, In]) -> None:
    for at, one in enumerate(both):
        wanted = {**TASK, "taskId": "wanted-1", "params": {"at": at}}
        assert one.post("/v1/tasks", wanted).status == 202
        keyed = {**TASK, "idempotencyKey": "once", "params": {"at": at}}
        first = one.post("/v1/tasks", keyed)
        assert "idempotent" not in first.json
        again = one.post("/v1/tasks", keyed)
        assert (again.json["taskId"], again.json["idempotent"]) == (first.json["taskId"], True)
        dedup = {**TASK, "dedup": {"key": "one"}, "params": {"at": at}}
        assert one.post("/v1/tasks", dedup).status == 202
    shown = [one.get("/v1/tasks/wanted-1").json["params"] for one in both]
    assert shown == [{"at": 0}, {"at": 1}]
    assert both[0].post("/v1/tasks/wanted-1/cancel").status == 200
    states = [one.get("/v1/tasks/wanted-1").json["state"] for one in both]
    assert states == ["cancelled", "ready"]


def test_lists_stats_agents_and_histories_are_of_one(both: tuple[In, In]) -> None:
    first, second = both
    tasks = [second.submit_native() for _ in range(3)]
    for task in tasks:
        until(lambda task=task: second.get(f"/v1/tasks/{task}").json["state"] == "succeeded")
    assert first.get("/v1/tasks").json == {"tasks": [], "count": 0}
    assert second.get("/v1/tasks").json["count"] == 3
    assert first.get("/v1/agents").json["count"] == 0
    assert first.get("/v1/stats").json["total"]["submitted"] == 0
    assert second.get("/v1/stats").json["total"]["submitted"] == 3
    assert [event["kind"] for event in first.events()] == ["server_started"]
    assert len(second.events()) == 1 + 3 * 4
    assert first.get("/tasks").json["count"] == 0
    heads = [one.get("/v1/events/head").json for one in both]
    assert heads[0]["seq"] == 1
    assert heads[1]["seq"] == 13


def test_pauses_of_one_hold_up_nobody_else(both: tuple[In, In]) -> None:
    first, second = both
    assert second.post("/v1/agents/ann/pause", {}).status == 200
    assert second.post("/v1/scheduler/pause", {}).status == 200
    assert second.post("/v1/types/echo/pause", {}).status == 200
    done, waits = first.submit_native(), second.submit_native()
    until(lambda: first.get(f"/v1/tasks/{done}").json["state"] == "succeeded")
    assert second.get(f"/v1/tasks/{waits}").json["state"] == "ready"
    assert first.get("/v1/scheduler").json["paused"] is False
    assert second.get("/v1/scheduler").json["pausedAgents"] == ["ann"]
    for path in ("/v1/scheduler/resume", "/v1/types/echo/resume", "/v1/agents/ann/resume"):
        assert second.post(path).status == 200
    until(lambda: second.get(f"/v1/tasks/{waits}").json["state"] == "succeeded")


def test_limits_are_of_one_and_may_be_changed_for_one(serve: Servers) -> None:
    rota = serve(
        {
            "scheduler": {"maxQueueSize": 3, "maxPerAgent": 3},
            "namespaces": {"team-a": {"scheduler": {"maxQueueSize": 1}}},
        }
    )
    first, second = In(rota, "default"), In(rota, "team-a")
    assert second.post("/v1/tasks", TASK).status == 202
    assert second.post("/v1/tasks", TASK).code == "queue_full"
    assert [first.post("/v1/tasks", TASK).status for _ in range(4)] == [202, 202, 202, 429]
    scheduler = second.get("/v1/config").json["scheduler"]
    assert (scheduler["maxQueueSize"], scheduler["maxPerAgent"]) == (1, 3)
    answer = second.post("/v1/config/reload", {"scheduler": {"maxQueueSize": 2}})
    assert answer.json["changed"] == ["maxQueueSize"]
    assert second.post("/v1/tasks", TASK).status == 202
    assert first.post("/v1/tasks", TASK).code == "queue_full"
    assert first.get("/v1/config").json["scheduler"]["maxQueueSize"] == 3


def test_each_may_have_a_strategy_of_its_own(serve: Servers) -> None:
    rota = serve({"namespaces": {"team-a": {"scheduler": {"strategy": "priority-fifo"}}}})
    names = [
        In(rota, each).get("/v1/config").json["scheduler"]["strategy"]
        for each in ("default", "team-a")
    ]
    assert names == ["fair-fifo", "priority-fifo"]


def test_a_stream_gets_the_events_of_its_own(rota: Rota, both: tuple[In, In]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", rota.port, timeout=10)
    connection.request("GET", "/v1/events/stream?namespace=team-a&kind=task_submitted")
    with both[0].stream() as other:
        mine = Stream(connection.getresponse())
        first, second = both[0].submit_native(), both[1].submit_native()
        assert mine.take(1)[0].event["task"] == second
        assert other.take(1)[0].event["task"] == first
    connection.close()
    until(lambda: rota.inside(lambda server: server.app.namespaces.streaming.held) == 0)


def test_a_wait_for_a_task_is_not_ended_by_its_namesake(both: tuple[In, In]) -> None:
    for one in both:
        assert one.post("/v1/tasks", {**TASK, "taskId": "same-1"}).status == 202
    begun = time.monotonic()
    assert both[0].post("/v1/tasks/same-1/cancel").status == 200
    waited = both[1].get("/v1/tasks/same-1?waitMs=300").json
    assert (waited["state"], time.monotonic() - begun > 0.25) == ("ready", True)


def test_a_websocket_finds_its_job_by_the_query(serve: Servers) -> None:
    rota = serve({"types": {"proxy_test": {}}, "namespaces": {"team-a": {}}})
    second = In(rota, "team-a")
    job = second.post("/api/jobs", {"jobType": "proxy_test", "payload": {}}).json["data"]
    path = f"/ws/jobs/{job['jobId']}"
    lines = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    lines += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    with rota.connected() as sock:
        sock.sendall(f"GET {path}?namespace=team-a HTTP/1.1\r\n{lines}".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 101")
    with rota.connected() as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\n{lines}".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 404")


def test_metrics_say_of_which_they_are(rota: Rota, both: tuple[In, In]) -> None:
    both[1].submit_native("ann", "waits")
    text = rota.get("/metrics").body.decode()
    assert 'rota_tasks_waiting{namespace="default"} 0.0' in text
    assert 'rota_tasks_waiting{namespace="team-a"} 1.0' in text
    assert text.count("# TYPE rota_tasks_waiting ") == 1
    mine = both[1].get("/metrics").body.decode()
    assert 'namespace="default"' not in mine
    assert 'rota_tasks_waiting{namespace="team-a"} 1.0' in mine


def test_callbacks_and_attempts_say_of_which_they_are(
    serve: Servers, tab: Target, hooks: Target
) -> None:
    rota = serve(
        {
            "executors": {"tab": {"kind": "tab", "url": tab.url}},
            "webhooks": {"allow_hosts": ["127.0.0.1"]},
            "namespaces": {"team-a": {}},
        }
    )
    for name in ("default", "team-a"):
        task = {"agentId": "ann", "action": "click", "tabId": "t1", "callbackUrl": hooks.url}
        assert In(rota, name).post("/tasks", task).status == 202
    for target in (tab, hooks):
        sent = {request.headers.get("x-rota-namespace") for request in target.wait_for(2)}
        assert sent == {None, "team-a"}


def test_callbacks_of_the_same_task_have_ids_and_signatures_of_their_own(
    serve: Servers, hooks: Target
) -> None:
    rota = serve(
        {
            "webhooks": {"allow_hosts": ["127.0.0.1"], "secret": "s" * 24},
            "namespaces": {"team-a": {}},
        }
    )
    task = {"agentId": "ann", "action": "echo", "taskId": "nightly", "callbackUrl": hooks.url}
    for name in ("default", "team-a"):
        assert In(rota, name).post("/v1/tasks", task).status == 202
    sent = hooks.wait_for(2)
    ids = {request.headers["webhook-id"] for request in sent}
    (plain,) = [one for one in ids if not one.startswith("team-a.")]
    assert ids == {plain, f"team-a.{plain}"}
    signer = Webhook(b"s" * 24)
    for request in sent:
        body = orjson.dumps(request.body)
        signer.verify(body, dict(request.headers))
        other = "team-a." + plain if request.headers["webhook-id"] == plain else plain
        with pytest.raises(WebhookVerificationError):
            signer.verify(body, {**request.headers, "webhook-id": other})


def test_event_handlers_that_ask_for_it_hear_of_all(tmp_path: Path, serve: Servers) -> None:
    plain: list[int] = []
    told: list[tuple[str, str]] = []

    async def hear(record: Record, namespace: str) -> None:
        told.append((namespace, type(record.event).__name__))

    class Hooked(Rota):
        def _made(self, server: Server) -> None:
            server.on_event(lambda record: plain.append(record.seq))
            server.on_event(hear)

    rota = serve.adopt(Hooked(tmp_path / "hooked", {"namespaces": {"team-a": {}}}))
    In(rota, "team-a").submit_native("ann", "waits")
    rota.submit_native("ann", "waits")
    until(lambda: ("team-a", "TaskSubmitted") in told and ("default", "TaskSubmitted") in told)
    assert plain == [1, 2]


# -- who may ask ---------------------------------------------------------------------------------


@pytest.fixture
def guarded(serve: Servers) -> Rota:
    return serve(
        {
            "server": {"tokens": {"ops": OPS}},
            "namespaces": {"team-a": {"tokens": {"team": TEAM}}, "team-b": {}},
        }
    )


def test_a_token_that_is_bound_means_its_own_and_may_use_no_other(guarded: Rota) -> None:
    guarded.token = TEAM
    task = guarded.submit_native()
    guarded.token = OPS
    assert guarded.get(f"/v1/tasks/{task}").status == 404
    event = In(guarded, "team-a", OPS).events(task=task)[0]
    assert event["by"] == "team"
    for name in ("default", "team-b", "nowhere"):
        answer = In(guarded, name, TEAM).get("/v1/tasks")
        assert (answer.status, answer.code) == (403, "namespace_forbidden")
        assert answer.json["error"] == "this token is for namespace 'team-a' alone"
    assert In(guarded, "team-a", TEAM).get("/v1/tasks").json["count"] == 1


def test_a_token_that_is_bound_is_told_of_its_own_alone(guarded: Rota) -> None:
    guarded.token = TEAM
    assert [row["name"] for row in guarded.get("/v1/namespaces").json["namespaces"]] == ["team-a"]
    assert b"team-b" not in guarded.get("/metrics").body
    assert b"team-b" not in guarded.get("/v1/config").body
    guarded.token = OPS
    assert guarded.get("/v1/namespaces").json["count"] == 3
    assert b"team-b" in guarded.get("/v1/config").body
    assert TEAM.encode() not in guarded.get("/v1/config").body


def test_a_token_that_is_bound_may_set_no_limits(guarded: Rota) -> None:
    team, ops = In(guarded, "team-a", TEAM), In(guarded, "team-a", OPS)
    before = ops.get("/v1/config").json["scheduler"]
    for body in (None, {}, {"scheduler": {"maxInflight": 1_000_000}}):
        answer = team.post("/v1/config/reload", body)
        assert (answer.status, answer.code) == (403, "namespace_forbidden")
    assert ops.get("/v1/config").json["scheduler"] == before
    assert team.post("/v1/scheduler/pause").status == 200, "its own work is its own"
    answer = ops.post("/v1/config/reload", {"scheduler": {"maxInflight": 3}})
    assert answer.json["changed"] == ["maxInflight"]


@pytest.mark.parametrize("path", ["/health", "/health/ready"])
def test_the_health_of_a_named_one_is_for_who_may_use_it(guarded: Rota, path: str) -> None:
    assert guarded.get(path).status == 200, "without a name anybody may ask"
    for name in ("team-a", "team-b", "default", "nowhere"):
        assert In(guarded, name).get(path).code == "unauthorized"
        assert guarded.get(f"{path}?namespace={name}").code == "unauthorized"
        assert In(guarded, name, "x" * 20).get(path).code == "unauthorized"
    assert In(guarded, "team-b", TEAM).get(path).code == "namespace_forbidden"
    for token in (TEAM, OPS):
        assert In(guarded, "team-a", token).get(path).json["status"] == "ok"
    assert In(guarded, "team-b", OPS).get(path).json["status"] == "ok"


def test_a_token_for_all_may_use_any(guarded: Rota) -> None:
    for name in ("default", "team-a", "team-b"):
        assert In(guarded, name, OPS).get("/v1/tasks").status == 200
    assert guarded.get("/v1/tasks").code == "unauthorized"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"namespaces": {"Team": {}}}, "namespaces.Team"),
        ({"namespaces": {"a_b": {}}}, "namespaces.a_b"),
        ({"namespaces": {"a" * 64: {}}}, "namespaces."),
        ({"namespaces": {"default": {"dataDir": "x"}}}, "server.dataDir"),
        ({"namespaces": {"a": {"scheduler": {"enabled": False}}}}, "one for all namespaces"),
        ({"namespaces": {"a": {"folder": "x"}}}, "no such setting"),
        (
            {"namespaces": {"a": {"tokens": {"x": TEAM}}, "b": {"tokens": {"x": TEAM}}}},
            "the token of namespaces.a.tokens.x",
        ),
        (
            {
                "server": {"tokens": {"x": OPS}},
                "namespaces": {"a": {"tokens": {"x": TEAM}}},
            },
            "taken by server.tokens.x",
        ),
        ({"namespaces": {"a": {"tokens": {"x": "short"}}}}, "shorter than 16"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        Rota(tmp_path, config).start()


# -- when one fails ------------------------------------------------------------------------------


def fill(server: Server) -> None:
    def full(*_: Any) -> None:
        raise LogUnusable("No space left on device")

    log = shard_of(server).log
    log.append = log.reopen = full  # type: ignore[method-assign]


def make_room(server: Server) -> None:
    log = shard_of(server).log
    del log.append, log.reopen


def test_a_full_disk_of_one_stops_nobody_else(
    rota: Rota, both: tuple[In, In], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    first, second = both
    kept = second.submit_native("ann", "waits")
    rota.inside(fill)
    answer = second.post("/v1/tasks", TASK)
    assert (answer.status, answer.code) == (503, "storage_unavailable")
    until(lambda: second.get("/v1/namespaces").json["namespaces"][0]["state"] == "read-only")
    assert first.submit_native()
    assert second.get(f"/v1/tasks/{kept}").json["state"] == "ready"
    assert second.get("/health/ready").status == 503
    assert first.get("/health/ready").json == {"status": "ok"}
    assert list(rota.get("/health/ready").json["unavailable"]) == ["team-a"]
    health = rota.get("/health").json
    assert (health["status"], health["db"]) == ("degraded", "ok")
    assert health["reason"] == "namespace team-a: No space left on device"
    assert health["namespaces"]["default"] == {"state": "running"}
    assert health["namespaces"]["team-a"]["state"] == "read-only"
    assert first.get("/health").json["status"] == "ok"
    assert second.get("/health").json["db"] == "unavailable"
    text = rota.get("/metrics").body
    assert b'rota_degraded{namespace="team-a"} 1.0' in text
    assert b'rota_degraded{namespace="default"} 0.0' in text
    rota.inside(make_room)
    until(lambda: second.post("/v1/tasks", TASK).status == 202, what="it takes tasks again")
    assert rota.get("/health").json["status"] == "ok"
    assert any("namespace team-a: the log failed" in line for line in rota.log.lines)


def lose(server: Server, name: str) -> None:
    """Let a log fail, and come back without what was acknowledged."""
    log = shard_of(server, name).log

    def fail(*_: Any) -> None:
        raise LogUnusable("Input/output error")

    log.append = fail  # type: ignore[method-assign]
    log.reopen = lambda: Head(0, b"")  # type: ignore[method-assign]


def test_one_that_has_lost_what_was_acknowledged_is_closed_and_the_others_go_on(
    rota: Rota, both: tuple[In, In]
) -> None:
    first, second = both
    second.submit_native("ann", "waits")
    rota.inside(lambda server: lose(server, "team-a"))
    assert second.post("/v1/tasks", TASK).status == 503
    until(lambda: rota.inside(lambda s: shard_of(s).failover.phase is failover.Phase.GIVEN_UP))
    for path in ("/v1/tasks", "/v1/stats", "/v1/agents"):
        answer = second.get(path)
        assert (answer.status, answer.code) == (503, "storage_unavailable"), path
        assert "closed: the log ends at 0" in answer.json["error"]
    assert second.post("/v1/agents/ann/pause", {}).status == 503
    found = rota.get("/health").json
    assert found["status"] == "degraded"
    assert found["namespaces"]["team-a"]["state"] == "given up"
    assert second.get("/health").json["queue"]["queued"] is None
    task = first.submit_native()
    until(lambda: first.get(f"/v1/tasks/{task}").json["state"] == "succeeded")
    (line,) = [line for line in rota.log.lines if "is closed, the others go on" in line]
    assert line.startswith("CRITICAL rota.server: namespace team-a")
    assert rota.inside(lambda server: server.failure) is None


def test_the_last_that_is_lost_ends_the_server(rota: Rota, both: tuple[In, In]) -> None:
    for at, one in enumerate(both):
        rota.inside(lambda server, name=one.namespace: lose(server, name))
        assert one.post("/v1/tasks", TASK).status == 503
        until(lambda at=at: rota.inside(lambda s: bool(s.failure)) is (at == 1))
    assert isinstance(rota.inside(lambda server: server.failure), LogCorrupt)


def test_one_that_cannot_be_opened_keeps_all_from_starting_and_is_named(tmp_path: Path) -> None:
    held = Rota(tmp_path / "one", {"namespaces": {"team-a": {}}}).start()
    folder = str(tmp_path / "one" / "data" / "namespaces" / "team-a")
    other = Rota(tmp_path / "two", {"namespaces": {"team-x": {"dataDir": folder}}})
    with pytest.raises(LogLocked, match="^namespace team-x: another rota server"):
        other.start()
    held.stop()
    other.start()
    assert In(other, "team-x").get("/v1/tasks").status == 200
    other.stop()


def test_two_may_not_share_a_folder(tmp_path: Path) -> None:
    config = {"namespaces": {"a": {"dataDir": str(tmp_path / "data")}}}
    with pytest.raises(ConfigError, match="namespace a: its folder is that of default"):
        Rota(tmp_path, config).start()


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ({"a": "data/inside"}, "namespace a: its folder lies inside that of default"),
        ({"a": "."}, "namespace a: its folder has inside it that of default"),
        ({"a": "x", "b": "x/y"}, "namespace b: its folder lies inside that of a"),
        ({"a": "data/namespaces/b/c", "b": None}, "namespace a: its folder lies inside"),
        ({"a": "data/namespaces/b", "b": None}, "namespace b: its folder is that of a"),
        ({"a": "data/namespaces/renamed", "b": "beside"}, ""),
    ],
)
def test_none_may_lie_inside_another(
    tmp_path: Path, folders: dict[str, str | None], words: str
) -> None:
    own = {n: {"dataDir": str(tmp_path / f)} if f else {} for n, f in folders.items()}
    rota = Rota(tmp_path, {"namespaces": own})
    if not words:
        rota.start().stop()
        return
    with pytest.raises(ConfigError, match=words):
        rota.start()


# -- start, stop, reload ---------------------------------------------------------------------------


def test_both_are_there_after_a_restart(rota: Rota, both: tuple[In, In]) -> None:
    tasks = [one.submit_native("ann", "waits", params={"n": one.namespace}) for one in both]
    rota.restart()
    for one, task in zip(both, tasks, strict=True):
        assert one.get(f"/v1/tasks/{task}").json["params"] == {"n": one.namespace}
        kinds = [event["kind"] for event in one.events()]
        assert kinds == ["server_started", "task_submitted", "server_stopped", "server_started"]
    assert (rota.folder / "data" / "namespaces" / "team-a" / "data.mdb").exists()


def test_a_reload_brings_limits_to_all_and_says_what_needs_a_restart(
    tmp_path: Path, serve: Servers
) -> None:
    config: dict[str, Any] = {"namespaces": {"team-a": {"scheduler": {"maxInflight": 5}}}}
    made = Rota(tmp_path / "reloaded", config)
    made.write_config(config)
    rota = serve.adopt(made)
    first, second = In(rota, "default"), In(rota, "team-a")
    config["scheduler"] = {"maxQueueSize": 7}
    config["namespaces"]["team-a"]["scheduler"]["maxInflight"] = 6
    config["namespaces"]["team-b"] = {}
    rota.write_config(config)

    def limits(one: In) -> tuple[int, int]:
        scheduler = one.get("/v1/config").json["scheduler"]
        return scheduler["maxQueueSize"], scheduler["maxInflight"]

    until(lambda: (limits(first), limits(second)) == ((7, 1000), (7, 6)))
    answer = second.post("/v1/config/reload")
    assert (answer.json["changed"], answer.json["needsRestart"]) == ([], ["namespaces"])
    assert In(rota, "team-b").get("/v1/tasks").code == "namespace_not_found"
    assert any("namespaces changed; that needs a restart" in line for line in rota.log.lines)


@pytest.mark.parametrize("by_request", [True, False])
def test_a_reload_while_one_cannot_record_is_taken_over_when_it_can(
    tmp_path: Path, serve: Servers, monkeypatch: pytest.MonkeyPatch, *, by_request: bool
) -> None:
    monkeypatch.setattr(failover, "REOPEN_US", 1000)
    config: dict[str, Any] = {"namespaces": {"team-a": {}, "team-b": {}}}
    rota = Rota(tmp_path / "reloaded", config)
    rota.write_config(config)
    if by_request:
        monkeypatch.setattr(Server, "_watch", _nothing)
    serve.adopt(rota)
    names = ("default", "team-a", "team-b")
    first, second, third = (In(rota, name) for name in names)
    rota.inside(fill)
    assert second.post("/v1/tasks", TASK).status == 503
    until(lambda: second.get("/v1/namespaces").json["namespaces"][0]["state"] == "read-only")
    rota.write_config(
        {
            "scheduler": {"maxQueueSize": 7},
            "types": {"echo": {"timeoutMs": 4321}},
            "namespaces": {"team-a": {"scheduler": {"maxInflight": 6}}, "team-b": {}},
        }
    )
    if by_request:
        answer = first.post("/v1/config/reload")
        assert (answer.status, answer.json["changed"]) == (200, ["maxQueueSize"])
        assert answer.json["needsLog"] == {"team-a": "No space left on device"}
    else:
        said = "namespace team-a takes that over when its log is back: No space left on device"
        until(lambda: any(said in line for line in rota.log.lines))
        line = next(line for line in rota.log.lines if ": reloaded " in line)
        assert line.endswith(": maxQueueSize, maxQueueSize of team-b; the rules of types changed")
    assert third.events()[-1]["kind"] == "config_changed"
    until(lambda: [event["kind"] for event in second.events()] == ["server_started"])
    rota.inside(make_room)
    until(lambda: second.post("/v1/tasks", TASK).status == 202, what="it takes tasks again")
    started = [each for each in second.events() if each["kind"] == "server_started"][-1]
    limits = started["data"]["settings"]
    assert (limits["queued"], limits["inflight"]) == (7, 6), limits
    assert "4321" in json.dumps(started["data"]["rules"])
    assert "needsLog" not in second.post("/v1/config/reload").json


def test_a_reload_of_rules_alone_is_told(tmp_path: Path, serve: Servers) -> None:
    rota = Rota(tmp_path / "reloaded", {})
    rota.write_config({})
    serve.adopt(rota)
    rota.write_config({"types": {"echo": {"timeoutMs": 4321}}})

    def told() -> list[str]:
        return [line.rpartition(": ")[2] for line in rota.log.lines if ": reloaded " in line]

    until(lambda: told() == ["the rules of types changed"])
    rota.write_config({"types": {"echo": {"timeoutMs": 4321}}, "server": {}})
    until(lambda: told()[1:] == ["no limit changed"])


async def _nothing(*_: Any) -> None:
    """Watch no file."""


def test_the_schema_tells_of_the_header_and_the_query(rota: Rota) -> None:
    document = json.loads(rota.get("/openapi.json").body)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            names = {(each["name"], each["in"]) for each in operation["parameters"]}
            assert {("X-Rota-Namespace", "header"), ("namespace", "query")} <= names, path

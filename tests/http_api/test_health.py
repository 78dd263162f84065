"""/health, /metrics, /openapi.json, /docs: is it well, how does it do, what does it offer."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families
from support.http_server import Rota, Servers, until

from rota import __version__
from rota.errors import LogUnusable
from rota.http.routes import ROUTES

if TYPE_CHECKING:
    from rota.server import Server


def test_health_is_ok_and_has_its_documented_shape(rota: Rota) -> None:
    rota.submit_native(action="waits")
    answer = rota.get("/health")
    assert answer.status == 200
    found = answer.json
    assert set(found) == {
        "status", "agent_version", "uptime_seconds", "queue", "browsers", "callbacks", "db", "timestamp",
    }  # fmt: skip
    assert (found["status"], found["db"]) == ("ok", "ok")
    assert found["agent_version"] == __version__
    assert type(found["uptime_seconds"]) is int
    assert found["queue"] == {"queued": 1, "running": 0, "max_concurrent": 1000}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["timestamp"])


def test_live_and_ready_say_ok(rota: Rota) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = rota.get(path)
        assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_a_full_disk_makes_it_degraded_and_read_only_until_there_is_room(rota: Rota) -> None:
    kept = rota.submit_native(action="waits")

    def full(*_: Any) -> None:
        raise LogUnusable("No space left on device")

    def fill(server: Server) -> None:
        server.shard.log.append = server.shard.log.reopen = full

    def make_room(server: Server) -> None:
        del server.shard.log.append, server.shard.log.reopen

    rota.inside(fill)
    body = {"agentId": "ann", "action": "waits"}
    for path in ("/v1/tasks", "/tasks"):
        answer = rota.post(path, body)
        assert (answer.status, answer.code) == (503, "storage_unavailable")
        assert answer.json["retryable"] is True
        assert answer.headers["retry-after"]
    found = until(lambda: (h := rota.get("/health").json)["status"] == "degraded" and h)
    assert found["reason"]
    assert found["db"] == "unavailable"
    assert rota.get("/health/live").status == 200
    ready = rota.get("/health/ready")
    assert (ready.status, ready.json["status"]) == (503, "unavailable")
    assert rota.task(kept)["state"] == "queued"
    assert rota.get("/tasks").json["count"] == 1
    assert b'rota_degraded{namespace="default"} 1.0' in rota.get("/metrics").body
    rota.inside(make_room)
    until(lambda: rota.post("/v1/tasks", body).status == 202, what="writing goes on by itself")
    assert rota.get("/health").json["status"] == "ok"
    assert rota.get("/tasks").json["count"] == 2


def test_a_stopping_server_takes_no_new_work(serve: Servers) -> None:
    rota = serve()
    rota.when(rota.submit_native(action="sleep", params={"ms": 1500}), "running")
    connection = http.client.HTTPConnection("127.0.0.1", rota.port, timeout=10)
    with contextlib.closing(connection):

        def ask(method: str, path: str, body: str | None = None) -> tuple[int, Any]:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

        assert ask("GET", "/health/ready")[0] == 200
        stopping = threading.Thread(target=rota.stop, args=(5.0,))
        stopping.start()
        until(lambda: ask("GET", "/health/ready")[0] == 503, what="it says that it stops")
        status, problem = ask("POST", "/v1/tasks", '{"agentId": "ann", "action": "echo"}')
        assert (status, problem["code"]) == (503, "shutting_down")
    stopping.join(20)
    rota.start()
    (task,) = rota.get("/tasks").json["tasks"]
    assert task["state"] == "done"


def test_metrics_can_be_parsed_and_count(rota: Rota) -> None:
    rota.ended(rota.submit_native())
    rota.ended(rota.submit_native(action="fail"))
    rota.submit_native(action="waits")
    answer = rota.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = {f.name: f for f in text_string_to_metric_families(answer.body.decode())}
    fates = {s.labels["fate"]: s.value for s in families["rota_tasks"].samples}
    assert fates == {
        "submitted": 3, "completed": 1, "failed": 1, "cancelled": 0, "rejected": 0, "expired": 0,
    }  # fmt: skip
    assert families["rota_tasks_waiting"].samples[0].value == 1
    assert families["rota_degraded"].samples[0].value == 0
    assert families["rota_log_seq"].samples[0].value == rota.get("/v1/events/head").json["seq"]
    waits = {s.name: s.value for s in families["rota_dispatch_wait_seconds"].samples}
    assert waits["rota_dispatch_wait_seconds_count"] == 2
    assert all(family.documentation for family in families.values())


def references(value: Any) -> list[str]:
    """Every $ref in a document."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for child in value.values() for ref in references(child)]
    if isinstance(value, list):
        return [ref for child in value for ref in references(child)]
    return []


def test_openapi_is_a_document_whose_references_resolve(rota: Rota) -> None:
    answer = rota.get("/openapi.json")
    assert answer.status == 200
    document = answer.json
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == __version__
    refs = references(document)
    assert refs
    for ref in refs:
        assert ref.startswith("#/"), ref
        found = document
        for part in ref[2:].split("/"):
            found = found[part]
        assert found


def test_openapi_lists_every_route_with_its_parameters(rota: Rota) -> None:
    document = rota.get("/openapi.json").json
    listed = {(m.upper(), path) for path, ms in document["paths"].items() for m in ms}
    assert listed == {(route.method, route.path) for route in ROUTES}
    ids = []
    for path, methods in document["paths"].items():
        for operation in methods.values():
            ids.append(operation["operationId"])
            named = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            assert all(p["required"] for p in operation.get("parameters", ()) if p["in"] == "path")
            assert operation["summary"]
            assert any(re.fullmatch(r"[123]\d\d", status) for status in operation["responses"])
            assert all(r["description"] for r in operation["responses"].values())
    assert len(ids) == len(set(ids))


def test_openapi_says_how_many_tasks_a_batch_may_have(rota: Rota) -> None:
    schemas = rota.get("/openapi.json").json["components"]["schemas"]
    assert schemas["PinchTabBatch"]["properties"]["tasks"]["maxItems"] == 50


def test_every_route_of_the_table_is_served(rota: Rota) -> None:
    for route in ROUTES:
        if route.path == "/v1/events/stream":
            continue
        path = route.path.replace("{id}", "tsk_nobody00")
        answer = rota.request(route.method, path)
        assert answer.status not in (405, 500, 501), (route, answer)
        if answer.status == 404:
            said = answer.json.get("message") or answer.json.get("error") or answer.json["msg"]
            known = ("task", "batch", "job", "token", "lease", "workflow", "project", "schedule")
            said = said.removesuffix(" on this list").partition(" (")[0]
            assert said in [f"{what} not found" for what in known]


def test_the_docs_page_loads_and_needs_nothing_from_elsewhere(rota: Rota) -> None:
    answer = rota.get("/docs")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = answer.body.decode()
    assert "openapi.json" in page
    assert not re.search(r"(src|href)\s*=\s*['\"]?(https?:)?//", page)

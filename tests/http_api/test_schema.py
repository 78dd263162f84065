"""/openapi.json against reality: every route is called, and answers as the document says.

Also HEAD, which is documented by no row: whatever can be got can be asked about.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Answer, Rota, serving

from rota.http.routes import ROUTES, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = {
    "types": {"script_run": {}},
    "scheduler": {"maxQueueSize": 10_000, "maxPerAgent": 10_000},
}
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rota]:
    """One server with something of everything."""
    with serving(tmp_path_factory.mktemp("schema"), CONFIG) as made:
        yield made


@pytest.fixture(scope="module")
def document(rota: Rota) -> dict[str, Any]:
    found: dict[str, Any] = rota.get("/openapi.json").json
    return found


def check(document: dict[str, Any], schema: dict[str, Any], value: Any, at: str = "") -> None:
    """Hold a value against a schema: as much of JSON Schema as the document uses."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return check(document, document["components"]["schemas"][name], value, f"{at}<{name}>")
    if "anyOf" in schema:
        for each in schema["anyOf"]:
            try:
                return check(document, each, value, at)
            except AssertionError:
                continue
        raise AssertionError((at, schema, value))
    if "type" in schema:
        assert isinstance(value, TYPES[schema["type"]]), (at, schema, value)
        assert schema["type"] == "boolean" or not isinstance(value, bool), (at, value)
    assert "enum" not in schema or value in schema["enum"], (at, schema, value)
    assert "const" not in schema or value == schema["const"], (at, schema, value)
    if isinstance(value, dict):
        missing = set(schema.get("required", ())) - set(value)
        assert not missing, (at, missing, value)
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties", not known)
        for key, each in value.items():
            assert key in known or rest is not False, (at, "is not documented", key, each)
            inner = known.get(key, rest)
            if isinstance(inner, dict):
                check(document, inner, each, f"{at}.{key}")
    if isinstance(value, list):
        for n, each in enumerate(value):
            check(document, schema.get("items", {}), each, f"{at}[{n}]")
    return None


def hold(document: dict[str, Any], route: Route, answer: Answer, asked: str = "") -> None:
    """Check that an answer is one that the document tells of."""
    said = document["paths"][route.path][route.method.lower()]["responses"]
    told = said.get(str(answer.status)) or said.get(f"{answer.status // 100}XX")
    assert told is not None, (route.path, answer)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    content = told.get("content")
    if content is None:
        assert answer.body == b"", answer
        return
    assert kind in content, (route.path, kind)
    if kind == "application/json":
        schema = content[kind]["schema"]
        if "anyOf" in schema and "view=" not in asked:
            schema = schema["anyOf"][0]
        check(document, schema, answer.json)


def failed(rota: Rota, path: str = "/v1/tasks") -> str:
    body = {"agentId": "a", "action": "fail", "params": {"message": "no"}}
    task_id = str(rota.post(path, body).json["taskId"])
    rota.ended(task_id)
    return task_id


NATIVE = {"agentId": "a", "action": "waits"}
KEY = {"Idempotency-Key": "once"}


def calls(rota: Rota) -> Iterator[tuple[str, str, str, Any, dict[str, str], int]]:
    """Give for each route what to ask, and what is answered: route, path, body, headers, status."""
    task = rota.submit_native(action="waits", dependsOn=["nobody"], key="k", timeoutMs=5)
    done = rota.submit_native(action="echo", params={"a": 1}, retry={"maxAttempts": 2})
    rota.ended(done)
    made = rota.post("/v1/batches", {"agentId": "a", "tasks": [{"action": "waits"}] * 2}).json
    batch = made["batchId"]
    chats = rota.post("/tasks/batch", {"tasks": [{"instruction": "x"}]}).json["batchId"]
    chat = rota.post("/tasks", {"instruction": "x"}).json["taskId"]
    made = rota.post("/api/jobs", {"jobType": "script_run", "payload": {"x": 1}}).json
    job = made["data"]["jobId"]
    none: dict[str, str] = {}
    yield "POST", "/v1/tasks", "/v1/tasks", NATIVE, KEY, 202
    yield "POST", "/v1/tasks", "/v1/tasks", NATIVE, KEY, 200
    for query in ("", "?limit=1", "?state=succeeded,blocked", "?cursor=5", "?view=browseros"):
        yield "GET", "/v1/tasks", f"/v1/tasks{query}", None, none, 200
    for each in (task, done, job, chat):
        yield "GET", "/v1/tasks/{id}", f"/v1/tasks/{each}?waitMs=0", None, none, 200
    yield "POST", "/v1/tasks/{id}/logs", f"/v1/tasks/{task}/logs", {"lines": ["x"]}, none, 201
    yield (
        "POST",
        "/v1/tasks/{id}/progress",
        f"/v1/tasks/{task}/progress",
        {"progress": 1},
        none,
        201,
    )
    yield "GET", "/v1/tasks/{id}/logs", f"/v1/tasks/{task}/logs", None, none, 200
    yield "GET", "/v1/tasks/{id}/events", f"/v1/tasks/{task}/events?limit=1", None, none, 200
    better = f"/v1/tasks/{task}/reprioritise"
    yield "POST", "/v1/tasks/{id}/reprioritise", better, {"priority": "high"}, none, 200
    for how, more in (("cancel", {}), ("retry", {}), ("reprioritise", {"priority": 1})):
        body = {"agentId": "nobody", "dryRun": True, **more}
        yield "POST", f"/v1/tasks/{how}", f"/v1/tasks/{how}", body, none, 200
    yield "POST", "/v1/tasks/{id}/cancel", f"/v1/tasks/{task}/cancel", {"reason": "x"}, none, 200
    yield "POST", "/v1/tasks/{id}/retry", f"/v1/tasks/{failed(rota)}/retry", None, none, 202
    items = {"agentId": "a", "tasks": [{"action": "waits"}]}
    keyed = {"Idempotency-Key": "batch"}
    yield "POST", "/v1/batches", "/v1/batches", items, keyed, 202
    yield "POST", "/v1/batches", "/v1/batches", items, keyed, 200
    yield "GET", "/v1/batches/{id}", f"/v1/batches/{batch}", None, none, 200
    yield "POST", "/v1/batches/{id}/cancel", f"/v1/batches/{batch}/cancel", None, none, 200
    yield from _lease_calls(rota)
    yield from _flow_calls(rota)
    yield from _project_calls(rota, "/v1/projects")
    yield from _project_calls(rota, "/projects")
    yield from _schedule_calls()
    yield "GET", "/v1/events", "/v1/events?limit=1000", None, none, 200
    yield "GET", "/v1/events/head", "/v1/events/head", None, none, 200
    for name in ("agents", "types", "scheduler", "stats", "config", "namespaces"):
        yield "GET", f"/v1/{name}", f"/v1/{name}", None, none, 200
    yield "GET", "/v1/stats/daily", "/v1/stats/daily?agentId=a", None, none, 200
    yield "GET", "/v1/stats/daily", "/v1/stats/daily", None, none, 200
    for kind, name in (("agents", "zoe"), ("types", "odd")):
        yield "POST", f"/v1/{kind}/{{id}}/pause", f"/v1/{kind}/{name}/pause", {}, none, 200
        yield "POST", f"/v1/{kind}/{{id}}/resume", f"/v1/{kind}/{name}/resume", None, none, 200
    yield "POST", "/v1/scheduler/pause", "/v1/scheduler/pause", {"reason": "x"}, none, 200
    yield "POST", "/v1/scheduler/resume", "/v1/scheduler/resume", None, none, 200
    limits = {"scheduler": {"maxInflight": 20}}
    yield "POST", "/v1/config/reload", "/v1/config/reload", limits, none, 200
    for path in ("/health", "/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs"):
        yield "GET", path, path, None, none, 200
    yield "GET", "/", "/", None, none, 302
    yield "POST", "/tasks", "/tasks", NATIVE, none, 202
    yield "POST", "/tasks", "/tasks", {"instruction": "x"}, {"Idempotency-Key": "chat"}, 201
    yield "POST", "/tasks", "/tasks", {"instruction": "x"}, {"Idempotency-Key": "chat"}, 200
    yield "GET", "/tasks", "/tasks", None, none, 200
    yield "GET", "/tasks/{id}", f"/tasks/{done}", None, none, 200
    yield "DELETE", "/tasks/{id}", f"/tasks/{chat}", None, none, 200
    bare = rota.submit(action="waits", tabId="t1")
    yield "POST", "/tasks/{id}/cancel", f"/tasks/{bare}/cancel", None, none, 200
    yield "POST", "/tasks/{id}/retry", f"/tasks/{failed(rota, '/tasks')}/retry", None, none, 202
    yield "POST", "/tasks/batch", "/tasks/batch", items, none, 202
    yield "POST", "/tasks/batch", "/tasks/batch", {"tasks": [{"instruction": "x"}]}, none, 201
    yield "GET", "/tasks/batch/{id}", f"/tasks/batch/{chats}", None, none, 200
    yield "DELETE", "/tasks/batch/{id}", f"/tasks/batch/{chats}", None, none, 200
    yield "GET", "/tasks/stats", "/tasks/stats", None, none, 200
    yield "GET", "/scheduler/stats", "/scheduler/stats", None, none, 200
    yield "POST", "/api/jobs", "/api/jobs", {"jobType": "script_run"}, none, 200
    yield "GET", "/api/jobs", "/api/jobs?limit=1", None, none, 200
    yield "GET", "/api/jobs/{id}", f"/api/jobs/{job}", None, none, 200
    yield "GET", "/api/jobs/{id}/logs", f"/api/jobs/{job}/logs", None, none, 200
    yield "POST", "/api/jobs/{id}/cancel", f"/api/jobs/{job}/cancel", None, none, 200
    rows, wanted = "/automechanica/tasks", {"agent_name": "a", "task_type": "waits"}
    yield "POST", rows, rows, wanted, {"Idempotency-Key": "row"}, 201
    yield "POST", rows, rows, wanted, {"Idempotency-Key": "row"}, 200
    yield "GET", rows, f"{rows}?status=pending&agent_name=a&limit=1", None, none, 200
    yield "GET", f"{rows}/{{id}}", f"{rows}/{done}", None, none, 200
    yield "GET", "/automechanica/dead", "/automechanica/dead?task_type=x", None, none, 200
    yield from _row_calls(rota)


def _row_calls(rota: Rota) -> Iterator[tuple[str, str, str, Any, dict[str, str], int]]:
    none: dict[str, str] = {}
    base = "/automechanica"
    flow = {"name": "rows", "open": True, "agent_name": "row", "tasks": [{"task_type": "fit"}] * 4}
    yield "POST", f"{base}/workflows", f"{base}/workflows", flow, {"Idempotency-Key": "rows"}, 201
    yield "POST", f"{base}/workflows", f"{base}/workflows", flow, {"Idempotency-Key": "rows"}, 200
    own = rota.get(f"{base}/workflows?name=rows").json["workflows"][0]["workflow_id"]
    yield "GET", f"{base}/workflows", f"{base}/workflows?state=running&limit=1", None, none, 200
    yield "GET", f"{base}/workflows/{{id}}", f"{base}/workflows/{own}", None, none, 200
    ask = {"worker_id": "ada", "agent_names": ["row"], "limit": 4}
    yield "POST", f"{base}/leases", f"{base}/leases", {**ask, "agent_names": ["nobody"]}, none, 200
    leases = rota.post(f"{base}/leases", ask).json["leases"]
    error = {"error_info": {"message": "x"}, "retryable": False}
    said = {"fail": error, "release": {}, "complete": {"result": 1}, "heartbeat": {"lines": ["x"]}}
    for lease, (what, more) in zip(leases, said.items(), strict=True):
        path, body = f"{base}/leases/{lease['lease_id']}/{what}", {"token": lease["token"], **more}
        yield "POST", f"{base}/leases/{{id}}/{what}", path, body, none, 200
    dead = f"{base}/dead/{leases[0]['task']['id']}/revive"
    yield "POST", f"{base}/dead/{{id}}/revive", dead, {"payload": {}}, none, 202
    for how in ("pause", "resume", "close", "cancel"):
        path = f"{base}/workflows/{own}/{how}"
        yield "POST", f"{base}/workflows/{{id}}/{how}", path, {"reason": "x"}, none, 200
    metrics = f"{base}/task_queue_metrics"
    yield "GET", metrics, f"{metrics}?agent_name=row", None, none, 200


def _lease_calls(rota: Rota) -> Iterator[tuple[str, str, str, Any, dict[str, str], int]]:
    none: dict[str, str] = {}
    ask = {"workerId": "ada", "agents": ["lee"], "max": 5}
    for _ in range(5):
        rota.submit_native("lee", "fit", retry={"baseMs": 60_000})
    yield "POST", "/v1/leases", "/v1/leases", {**ask, "agents": ["nobody"]}, none, 200
    leases = rota.post("/v1/leases", ask).json["leases"]
    yield "GET", "/v1/workers", "/v1/workers", None, none, 200
    declared = {"types": [{"type": "fit", "agents": ["nobody"], "timeoutMs": 60_000}]}
    yield "POST", "/v1/types", "/v1/types", declared, none, 200
    said = [{"error": "x"}, {}, {"result": 1}, {"progress": 5, "lines": ["x"]}]
    for lease, what, more in zip(
        leases, ("fail", "release", "complete", "heartbeat"), said, strict=False
    ):
        path, body = f"/v1/leases/{lease['leaseId']}/{what}", {"token": lease["token"], **more}
        yield "POST", f"/v1/leases/{{id}}/{what}", path, body, none, 200
    outcomes = [
        {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
        for lease in leases[3:] + leases[:1]
    ]
    body = {"workerId": "ada", "outcomes": outcomes, "lease": {"agents": ["lee"]}}
    yield "POST", "/v1/leases/settle", "/v1/leases/settle", body, none, 200
    yield "GET", "/v1/workers", "/v1/workers?limit=1", None, none, 200


def _flow_calls(rota: Rota) -> Iterator[tuple[str, str, str, Any, dict[str, str], int]]:
    none: dict[str, str] = {}
    base, keyed = "/v1/workflows", {"Idempotency-Key": "flow"}
    task = {"agentId": "boss", "action": "waits", "params": {"flow": "{{workflow.id}}"}}
    body = {
        "agentId": "a",
        "name": "n",
        "open": True,
        "tasks": [{"action": "fail", "ref": "x"}, {"action": "waits", "dependsOn": ["ref:x"]}],
        "onFailure": "escalate",
        "escalate": {"task": task},
    }
    yield "POST", base, base, body, keyed, 202
    yield "POST", base, base, body, keyed, 200
    flow = rota.get(f"{base}?name=n").json["workflows"][0]["workflowId"]
    dead = rota.get(f"{base}/{flow}").json["tasks"][0]["taskId"]
    rota.ended(dead)
    yield "GET", base, f"{base}?state=running,escalated&limit=1", None, none, 200
    yield "GET", f"{base}/{{id}}", f"{base}/{flow}", None, none, 200
    yield "GET", "/v1/dead", f"/v1/dead?workflowId={flow}", None, none, 200
    yield "POST", "/v1/dead/{id}/revive", f"/v1/dead/{dead}/revive", {"dependents": True}, none, 202
    rota.ended(dead)
    many = {"workflowId": flow, "dependents": True}
    yield "POST", "/v1/dead/revive", "/v1/dead/revive", many, none, 200
    for how in ("pause", "resume", "close"):
        yield "POST", f"{base}/{{id}}/{how}", f"{base}/{flow}/{how}", {"reason": "x"}, none, 200
    made = rota.post(base, {"tasks": [{"agentId": "a", "action": "waits"}]}).json["workflowId"]
    yield "POST", f"{base}/{{id}}/cancel", f"{base}/{made}/cancel", None, none, 200


def _project_calls(
    rota: Rota, base: str
) -> Iterator[tuple[str, str, str, Any, dict[str, str], int]]:
    none: dict[str, str] = {}
    name = base.strip("/").replace("/", "-")
    one, made = f"{base}/{{id}}", f"{base}/{name}"
    keyed = {"Idempotency-Key": name}
    yield "PUT", one, made, None, none, 201
    yield "PUT", one, made, None, none, 200
    yield "POST", f"{one}/tasks", f"{made}/tasks", {"action": "echo"}, keyed, 201
    yield "POST", f"{one}/tasks", f"{made}/tasks", {"action": "echo"}, keyed, 200
    many = {"tasks": [{"action": "waits", "params": {"n": 1}, "key": "k"}] * 4}
    ids = [each["taskId"] for each in rota.post(f"{made}/tasks", many).json["tasks"]]
    yield "POST", f"{one}/tasks", f"{made}/tasks", many, none, 201
    item = f"{one}/tasks/{{task}}"
    yield "GET", item, f"{made}/tasks/{ids[0]}", None, none, 200
    yield "PATCH", item, f"{made}/tasks/{ids[0]}", {"priority": 1, "position": 0}, none, 200
    yield "DELETE", item, f"{made}/tasks/{ids[1]}", None, none, 200
    yield "POST", f"{one}/run", f"{made}/run", {"mode": "loop"}, none, 202
    run = rota.get(f"{made}/queue/status").json["currentRunId"]
    yield "POST", f"{one}/queue/stop", f"{made}/queue/stop", {"reason": "x"}, none, 200
    for rest in ("/tasks?limit=1", "/queue/status", "/runs", ""):
        yield "GET", f"{one}{rest.partition('?')[0]}", f"{made}{rest}", None, none, 200
    yield "GET", f"{one}/runs/{{run}}", f"{made}/runs/{run}", None, none, 200
    yield "GET", f"{one}/runs/{{run}}/events", f"{made}/runs/{run}/events?limit=1", None, none, 200
    yield "GET", base, f"{base}?limit=1", None, none, 200
    yield "POST", f"{one}/queue/force-stop", f"{made}/queue/force-stop", None, none, 200
    for how in ("run", "stop", "force-stop"):
        body = {"projects": [name, "nobody"]}
        yield "POST", f"{base}/{how}", f"{base}/{how}", body, none, 200
    yield "DELETE", one, made, {"reason": "x"}, none, 200


def _schedule_calls() -> Iterator[tuple[str, str, str, Any, dict[str, str], int]]:
    none: dict[str, str] = {}
    base, one, path = "/v1/schedules", "/v1/schedules/{name}", "/v1/schedules/n"
    flow = {"name": "f", "tasks": [{"agentId": "a", "action": "waits", "ref": "x"}]}
    body = {"name": "n", "cron": "0 3 * * *", "workflow": flow, "jitterMs": 5, "overlap": "queue"}
    yield "POST", base, base, body, none, 201
    yield "POST", base, base, body, none, 200
    task = {"agentId": "a", "action": "waits"}
    yield "POST", base, base, {"name": "p", "cron": "@daily", "project": {"id": "x"}}, none, 201
    yield "POST", f"{one}/run", f"{path}/run", None, none, 202
    yield "POST", f"{one}/run", "/v1/schedules/p/run", None, none, 200
    yield "PATCH", one, path, {"task": task, "endAt": "2040-01-01T00:00:00Z"}, none, 200
    yield "POST", f"{one}/pause", f"{path}/pause", {"reason": "x"}, none, 200
    yield "POST", f"{one}/resume", f"{path}/resume", None, none, 200
    for asked in (base, f"{base}?limit=1", f"{base}?makes=project&state=active&agent=x"):
        yield "GET", base, asked, None, none, 200
    yield "GET", one, path, None, none, 200
    yield "GET", f"{one}/history", f"{path}/history?limit=2", None, none, 200
    yield "GET", f"{one}/history", "/v1/schedules/p/history", None, none, 200
    yield "DELETE", one, path, {"reason": "x"}, none, 200


def row(method: str, path: str) -> Route:
    return next(r for r in ROUTES if (r.method, r.path) == (method, path))


def token_calls(rota: Rota) -> Iterator[tuple[Answer, Route]]:
    """Make tokens: from then on every request needs one."""
    made = rota.post("/v1/tokens", {"name": "ops", "role": "admin", "expiresInMs": 60_000})
    assert made.status == 201, made
    yield made, row("POST", "/v1/tokens")
    rota.token = made.json["token"]
    body = {"name": "ann", "role": "submit", "agents": ["ann"]}
    yield rota.post("/v1/tokens", body), row("POST", "/v1/tokens")
    yield rota.get("/v1/tokens"), row("GET", "/v1/tokens")
    yield rota.get("/v1/tokens?limit=1"), row("GET", "/v1/tokens")
    yield rota.request("DELETE", "/v1/tokens/ann"), row("DELETE", "/v1/tokens/{id}")


def test_every_route_answers_as_documented(rota: Rota, document: dict[str, Any]) -> None:
    called = {("GET", "/v1/events/stream"), ("GET", "/ws/jobs/{id}")}
    for method, path, asked, body, headers, status in calls(rota):
        answer = rota.request(method, asked, body, headers)
        assert answer.status == status, (method, asked, answer)
        hold(document, row(method, path), answer, asked)
        called.add((method, path))
    for answer, made in token_calls(rota):
        hold(document, made, answer)
        called.add((made.method, made.path))
    assert {(route.method, route.path) for route in ROUTES} - called == set()


def test_every_route_fails_as_documented(rota: Rota, document: dict[str, Any]) -> None:
    for route in ROUTES:
        path = route.path.replace("{id}", "tsk_nobody00")
        for body in (b"{", b'{"colour":1}', b"[]"):
            for query in ("", "?limit=x&waitMs=x&after=x&cursor=x&view=x&state=x"):
                if route.is_stream and not query:
                    continue
                raw = body if route.method == "POST" else None
                answer = rota.request(route.method, path + query, raw=raw)
                assert answer.status < 500
                hold(document, route, answer)


def test_numbers_in_queries_are_documented_as_numbers(document: dict[str, Any]) -> None:
    found: dict[str, set[str]] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for each in operation.get("parameters", ()):
                if each["in"] == "query":
                    found.setdefault(each["name"], set()).add(each["schema"]["type"])
    for name in ("limit", "after", "waitMs"):
        assert found.pop(name) == {"integer"}
    assert found["agentId"] == {"string"}


def test_whatever_can_be_got_can_be_asked_about(rota: Rota) -> None:
    done = rota.submit_native(action="echo")
    rota.ended(done)
    for route in ROUTES:
        if route.method != "GET" or route.is_stream:
            continue
        for name in (done, "tsk_nobody00"):
            path = route.path.replace("{id}", name)
            got, head = rota.get(path), rota.request("HEAD", path)
            assert head.status == got.status
            assert head.body == b""
            changing = {"date", "x-request-id", "content-length"}
            assert {k: v for k, v in head.headers.items() if k not in changing} == {
                k: v for k, v in got.headers.items() if k not in changing
            }
            assert re.fullmatch(r"\d+", head.headers.get("content-length", "0"))
            assert ("content-length" in head.headers) == bool(got.body)


@pytest.mark.parametrize("path", ["/v1/events/stream", "/ws/jobs/x"])
def test_a_stream_has_no_head(rota: Rota, path: str) -> None:
    answer = rota.request("HEAD", path)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET"

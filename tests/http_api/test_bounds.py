"""Every maximum of the task model is reached once, and one more is refused in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.clocks import SetClock
from support.http_server import Rota
from support.leasing import say, take

from rota.clock import US_PER_S
from rota.config import BATCH_EDGES_MAX, BODY_VALUES_MAX, DEDUP_MS_MAX, WAIT_MS_MAX
from rota.domain.plan import TIMEOUT_MS_MAX
from rota.sections import RETRY_ATTEMPTS_MAX, RETRY_MS_MAX, RETRY_ON_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Servers

MIB = 1 << 20


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server with a large queue."""
    return serve({"scheduler": {"maxQueueSize": 10_000, "maxPerAgent": 10_000}})


def classes(count: int) -> list[str]:
    return [f"code:c{n}" for n in range(count)]


BOUNDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"retry": {"retryOn": classes(RETRY_ON_MAX)}},
        {"retry": {"retryOn": classes(RETRY_ON_MAX + 1)}},
        "retry.retryOn",
    ),
    (
        {"retry": {"maxAttempts": RETRY_ATTEMPTS_MAX}},
        {"retry": {"maxAttempts": RETRY_ATTEMPTS_MAX + 1}},
        "retry.maxAttempts",
    ),
    (
        {"retry": {"baseMs": RETRY_MS_MAX}},
        {"retry": {"baseMs": RETRY_MS_MAX + 1}},
        "retry.baseMs",
    ),
    (
        {"dedup": {"key": "a", "ttlMs": DEDUP_MS_MAX}},
        {"dedup": {"key": "b", "ttlMs": DEDUP_MS_MAX + 1}},
        "dedup.ttlMs",
    ),
    ({"timeoutMs": TIMEOUT_MS_MAX}, {"timeoutMs": TIMEOUT_MS_MAX + 1}, "timeoutMs"),
    (
        {"queueTimeoutMs": TIMEOUT_MS_MAX},
        {"queueTimeoutMs": TIMEOUT_MS_MAX + 1},
        "queueTimeoutMs",
    ),
]


@pytest.mark.parametrize(("most", "over", "field"), BOUNDS, ids=[row[2] for row in BOUNDS])
def test_the_most_is_taken_and_one_more_is_refused(
    rota: Rota, most: dict[str, Any], over: dict[str, Any], field: str
) -> None:
    body = {"agentId": "ann", "action": "waits"}
    assert rota.post("/v1/tasks", {**body, **most}).status == 202
    answer = rota.post("/v1/tasks", {**body, **over})
    assert (answer.status, answer.json["details"]) == (400, {"field": field})


def test_a_batch_has_so_many_dependencies(rota: Rota) -> None:
    def batch(edges: int) -> Any:
        parents = [f"p{n}" for n in range(500)]
        tasks = [{"action": "waits", "dependsOn": parents} for _ in range(edges // 500)]
        tasks.append({"action": "waits", "dependsOn": parents[: edges % 500]})
        return rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks})

    assert batch(BATCH_EDGES_MAX).status == 202
    answer = batch(BATCH_EDGES_MAX + 1)
    assert (answer.status, answer.code) == (400, "too_many_dependencies")
    assert answer.json["details"] == {"dependencies": BATCH_EDGES_MAX + 1, "max": BATCH_EDGES_MAX}


def test_so_many_keys_are_held(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.domain.admission.KEYS_MAX", 2)
    body = {"agentId": "ann", "action": "waits"}
    for key in ("a", "b"):
        assert rota.post("/v1/tasks", {**body, "idempotencyKey": key}).status == 202
    answer = rota.post("/v1/tasks", {**body, "dedup": {"key": "c"}})
    assert (answer.status, answer.code) == (429, "too_many_keys")
    batch = {"agentId": "ann", "tasks": [{"action": "waits"}], "idempotencyKey": "d"}
    assert rota.post("/v1/batches", batch).code == "too_many_keys"
    assert rota.post("/v1/tasks", {**body, "idempotencyKey": "a"}).status == 200
    assert rota.post("/v1/tasks", body).status == 202


def test_a_long_poll_waits_for_so_long(rota: Rota) -> None:
    task = rota.submit_native(action="echo")
    assert rota.get(f"/v1/tasks/{task}?waitMs={WAIT_MS_MAX}").status == 200
    answer = rota.get(f"/v1/tasks/{task}?waitMs={WAIT_MS_MAX + 1}")
    assert (answer.status, answer.json["details"]) == (400, {"field": "waitMs"})


def test_a_body_of_too_many_values_is_413_whatever_its_size(serve: Servers) -> None:
    rota = serve()
    head = b'{"agentId":"a","action":"waits","params":{"x":['
    for item in (b"1,", b"[],", b'"",', b'{"":1},'):
        raw = head + item * BODY_VALUES_MAX + b"1]}}"
        for path in ("/v1/tasks", "/tasks", "/v1/batches", "/tasks/batch"):
            answer = rota.request("POST", path, raw=raw)
            assert (answer.status, answer.json["code"]) == (413, "too_many_values")
            assert str(BODY_VALUES_MAX) in answer.json["error"]
    answer = rota.request("POST", "/api/jobs", raw=head + b"1," * BODY_VALUES_MAX + b"1]}}")
    assert (answer.status, answer.json["data"]["error"]) == (413, "too_many_values")


def test_a_long_text_is_one_value_whatever_stands_in_it(serve: Servers) -> None:
    rota = serve()
    text = ',[{"\\' * (BODY_VALUES_MAX + 1)
    task_id = rota.submit_native(action="waits", params={"text": text})
    assert rota.get(f"/v1/tasks/{task_id}").json["params"]["text"] == text


@pytest.fixture
def clock() -> SetClock:
    """A clock at the beginning of a minute."""
    clock = SetClock()
    clock.ahead_s = 60.0 - clock.wall_us() / US_PER_S % 60
    return clock


@pytest.fixture
def minute(serve: Servers, tmp_path: Path, clock: SetClock) -> Rota:
    """A server whose callers may have little written in a minute."""
    return serve.adopt(Rota(tmp_path / "log", {"scheduler": {"maxLogBytesPerMinute": MIB}}, clock))


def test_one_caller_has_so_much_written_in_a_minute_and_others_go_on(
    minute: Rota, clock: SetClock
) -> None:
    rota = minute
    large = {"action": "waits", "params": {"text": "x" * 300_000}}
    flow = {"tasks": [{"action": "waits", "agentId": "ann"}]}
    lists = "/v1/projects/p/tasks"
    schedule = {"name": "n", "cron": "@daily", "task": {"agentId": "ann", "action": "waits"}}
    assert rota.post("/v1/schedules", schedule).status == 201
    [item] = [rota.post(lists, {"action": "waits", "agentId": "ann"}).json["taskId"]]
    tasks = [rota.submit_native(agentId="ann", **large) for _ in range(2)]
    for method, path, body in (
        ("POST", "/v1/tasks", {"agentId": "ann", "action": "waits"}),
        ("POST", "/tasks", {"agentId": "ann", "action": "waits"}),
        ("POST", "/v1/batches", {"agentId": "ann", "tasks": [{"action": "waits"}]}),
        ("POST", "/v1/workflows", flow),
        ("POST", "/v1/schedules", {**schedule, "name": "m"}),
        ("PATCH", "/v1/schedules/n", {"jitterMs": 5}),
        ("POST", "/v1/schedules/n/run", None),
        ("POST", lists, {"action": "waits", "agentId": "ann"}),
        ("PATCH", f"{lists}/{item}", {"priority": 1}),
    ):
        answer = rota.request(method, path, body)
        assert (answer.status, answer.json["code"]) == (429, "too_much_written"), path
        assert 0 < int(answer.headers["retry-after"]) <= 60
    assert rota.submit_native(agentId="bob", action="waits")
    assert rota.post(f"/v1/tasks/{tasks[0]}/cancel").status == 200
    clock.ahead_s += 61.0
    rota.inside(lambda server: server.shard.timekeeper.look())
    assert rota.submit_native(agentId="ann", action="waits")


def test_a_worker_that_has_much_written_gets_no_more_tasks_for_a_while(minute: Rota) -> None:
    rota = minute
    for _ in range(4):
        rota.submit_native(action="waits")
    leases = take(rota, max=3)
    for lease in leases:
        assert say(rota, lease, "complete", result="x" * 300_000).status == 200
    answer = rota.post("/v1/leases", {"workerId": "ada"})
    assert (answer.status, answer.code) == (429, "too_much_written")
    assert len(take(rota, "bob")) == 1

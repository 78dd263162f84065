"""Which limit holds a task, or keeps a worker waiting, is said; and what holds unless it is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import look
from support.leasing import say, take

if TYPE_CHECKING:
    from support.http_server import Rota, Servers

MIB = 1 << 20


def asked_in_vain(rota: Rota, **wants: Any) -> str | None:
    answer = rota.post("/v1/leases", {"workerId": "late", **wants})
    assert (answer.status, answer.json["leases"]) == (200, [])
    reason: str | None = answer.json.get("waitReason")
    return reason


def test_twenty_workers_of_one_agent_all_get_a_task(rota: Rota) -> None:
    for _ in range(120):
        rota.submit_native("ann", "fit")
    given = [len(take(rota, f"worker-{n}", agents=["ann"])) for n in range(20)]
    assert given == [1] * 20


def test_a_workflow_of_forty_steps_of_three_tasks_is_taken(rota: Rota) -> None:
    tasks = [{"agentId": "ann", "action": "fit"}] * 120
    assert rota.post("/v1/workflows", {"tasks": tasks}).status == 202


@pytest.mark.parametrize(
    ("config", "task", "said"),
    [
        ({"maxInflight": 1}, {}, "maxInflight is reached: 1 in flight"),
        (
            {"maxPerAgentInflight": 1},
            {},
            "maxPerAgentInflight of agent 'ann' is reached: 1 in flight",
        ),
        ({}, {"key": "car-7"}, "maxPerKey of key 'car-7' is reached: 1 in flight"),
    ],
)
def test_who_is_held_by_a_limit_is_told_which(
    serve: Servers, config: dict[str, int], task: dict[str, Any], said: str
) -> None:
    rota = serve({"scheduler": {**config, "stickyMs": 1}})
    rota.submit_native("ann", "fit", **task)
    held = rota.submit_native("ann", "fit", **task)
    [lease] = take(rota)
    assert look(rota, held)["waitReason"] == said
    listed = {row["taskId"]: row for row in rota.get("/v1/tasks").json["tasks"]}
    assert listed[held]["waitReason"] == said
    assert asked_in_vain(rota, agents=["ann"], types=["fit"]) == said
    assert asked_in_vain(rota) == said
    assert asked_in_vain(rota, agents=["bob"]) is None
    assert asked_in_vain(rota, types=["paint"]) is None
    say(rota, lease, "complete")
    assert "is reached" not in look(rota, held)["waitReason"]


def test_what_is_paused_or_full_by_its_type_says_so(serve: Servers) -> None:
    rota = serve({"types": {"fit": {"maxConcurrent": 1}}})
    first, held = rota.submit_native("ann", "fit"), rota.submit_native("bob", "fit")
    [lease] = take(rota, agents=["ann"])
    assert lease["taskId"] == first
    assert look(rota, held)["waitReason"] == "maxConcurrent of type 'fit' is reached: 1 in flight"
    rota.post("/v1/agents/bob/pause")
    assert look(rota, held)["waitReason"] == "agent 'bob' is paused"
    assert asked_in_vain(rota) == "agent 'bob' is paused"
    rota.post("/v1/agents/bob/resume")
    rota.post("/v1/types/fit/pause", {"reason": "rework"})
    assert asked_in_vain(rota) == "type 'fit' is paused: rework"
    rota.post("/v1/scheduler/pause", {"reason": "night"})
    assert asked_in_vain(rota) == look(rota, held)["waitReason"] == "everything is paused: night"


@pytest.mark.parametrize(
    ("path", "name"), [("agents/ann", "agent 'ann'"), ("types/echo", "type 'echo'")]
)
def test_a_submission_is_told_of_the_pause_that_it_meets(rota: Rota, path: str, name: str) -> None:
    rota.post(f"/v1/{path}/pause", {"reason": "night"})
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo"}).json
    assert answer["waitReason"] == f"{name} is paused: night"
    assert look(rota, answer["taskId"])["waitReason"] == answer["waitReason"]
    rota.post(f"/v1/{path}/resume")
    assert "waitReason" not in rota.post("/v1/tasks", {"agentId": "ann", "action": "echo"}).json


def test_attempts_beyond_the_worker_count_say_what_they_wait_for(serve: Servers) -> None:
    rota = serve({"scheduler": {"workerCount": 1}})
    rota.submit_native("ann", "sleep", params={"ms": 60_000})
    held = rota.submit_native("bob", "echo")
    assert look(rota, held)["waitReason"] == "workerCount is reached: 1 in flight"


def test_what_is_in_flight_counts_towards_the_bytes_of_the_queue(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueBytes": 4 * MIB}})  # of which one agent may have half
    large = {"agentId": "ann", "action": "fit", "params": {"text": "x" * MIB}}
    leases = []
    for _ in range(2):
        assert rota.post("/v1/tasks", large).status == 202
        leases += take(rota)
    queue = rota.get("/v1/stats").json["queue"]
    assert (queue["waitingBytes"], queue["inflightBytes"] > 2 * MIB) == (0, True)
    refused = rota.post("/v1/tasks", large)
    assert (refused.status, refused.code) == (429, "queue_full")
    assert "maxQueueBytes" in refused.json["error"]
    say(rota, leases[0], "complete")
    assert rota.post("/v1/tasks", large).status == 202

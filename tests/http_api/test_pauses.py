"""Pauses of the scheduler, of an agent and of a type: what stands still, and what goes on."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from support.http_server import Rota, Servers, Target, ended, until, with_tab


def state(rota: Rota, task_id: str) -> str:
    return str(rota.get(f"/v1/tasks/{task_id}").json["state"])


def scheduler(rota: Rota) -> dict[str, Any]:
    found: dict[str, Any] = rota.get("/v1/scheduler").json
    return found


NOTHING = {"paused": False, "pausedAgents": [], "pausedTypes": []}


# -- the scheduler -------------------------------------------------------------------------------


def test_a_paused_scheduler_takes_tasks_and_starts_none(rota: Rota) -> None:
    assert scheduler(rota) == NOTHING
    answer = rota.post("/v1/scheduler/pause", {"reason": "maintenance"})
    assert (answer.status, answer.json) == (200, {"paused": True})
    assert scheduler(rota) == {**NOTHING, "paused": True, "pauseReason": "maintenance"}
    tasks = [rota.submit_native(agent) for agent in ("ann", "bob", "eve")]
    late = rota.submit_native(delayMs=1)
    until(lambda: state(rota, late) == "ready", what="a delay ends during the pause")
    assert {state(rota, task_id) for task_id in tasks} == {"ready"}
    answer = rota.post("/v1/scheduler/resume")
    assert (answer.status, answer.json) == (200, {"paused": False})
    assert {ended(rota, task_id)["state"] for task_id in [*tasks, late]} == {"succeeded"}
    assert scheduler(rota) == NOTHING


def test_what_runs_when_the_scheduler_is_paused_ends(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab))
    running = rota.submit_native(action="click", tabId="t", params={"hold": "it"})
    child = rota.submit_native(dependsOn=[running])
    tab.wait_for(1)
    rota.post("/v1/scheduler/pause")
    tab.release("it")
    assert ended(rota, running)["state"] == "succeeded"
    until(lambda: state(rota, child) == "ready", what="its dependent is released")
    cancelled = rota.submit_native()
    assert rota.post(f"/v1/tasks/{cancelled}/cancel").status == 200
    rota.post("/v1/scheduler/resume")
    assert ended(rota, child)["state"] == "succeeded"
    assert "task_assigned" not in rota.kinds(cancelled)


def test_pausing_and_resuming_twice_is_one_fact_each(rota: Rota) -> None:
    for verb in ("pause", "pause", "resume", "resume"):
        assert rota.post(f"/v1/scheduler/{verb}").status == 200
        assert rota.post(f"/v1/types/echo/{verb}").status == 200
    kinds = [event["kind"] for event in rota.events()][1:]
    assert kinds == ["scheduler_paused", "type_paused", "scheduler_resumed", "type_resumed"]


def test_pauses_survive_a_restart(rota: Rota) -> None:
    rota.post("/v1/scheduler/pause", {"reason": "all"})
    rota.post("/v1/types/echo/pause", {"reason": "type"})
    rota.post("/v1/agents/ann/pause", {"reason": "agent"})
    task_id = rota.submit_native("ann")
    for _ in range(2):
        rota.restart()
        assert scheduler(rota) == {
            "paused": True, "pauseReason": "all", "pausedAgents": ["ann"], "pausedTypes": ["echo"],
        }  # fmt: skip
    for path in ("scheduler", "types/echo", "agents/ann"):
        assert state(rota, task_id) == "ready"
        rota.post(f"/v1/{path}/resume")
    assert ended(rota, task_id)["state"] == "succeeded"
    rota.restart()
    assert scheduler(rota) == NOTHING


def test_a_server_can_start_paused(serve: Servers) -> None:
    rota = serve({"scheduler": {"startPaused": True}})
    assert scheduler(rota) == {**NOTHING, "paused": True, "pauseReason": "started paused"}
    task_id = rota.submit_native()
    rota.restart()
    assert state(rota, task_id) == "ready"
    assert len(rota.events(kind="scheduler_paused")) == 1
    rota.post("/v1/scheduler/resume")
    assert ended(rota, task_id)["state"] == "succeeded"


def test_a_server_that_starts_paused_does_so_every_time(serve: Servers) -> None:
    rota = serve({"scheduler": {"startPaused": True}})
    rota.post("/v1/scheduler/resume")
    running = rota.submit_native(action="sleep", params={"ms": 60_000})
    until(lambda: state(rota, running) == "running")
    rota.restart()
    assert scheduler(rota)["paused"] is True
    assert state(rota, running) == "ready"
    assert len(rota.events(task=running, kind="task_assigned")) == 1


# -- agents and types ----------------------------------------------------------------------------


def test_a_paused_type_lets_every_other_pass(rota: Rota) -> None:
    answer = rota.post("/v1/types/echo/pause", {"reason": "too loud"})
    assert (answer.status, answer.json) == (200, {"type": "echo", "paused": True})
    held = [rota.submit_native(agent, "echo", priority=0) for agent in ("ann", "bob")]
    assert ended(rota, rota.submit_native("ann", "sleep"))["state"] == "succeeded"
    assert {state(rota, task_id) for task_id in held} == {"ready"}
    (row,) = [r for r in rota.get("/v1/types").json["types"] if r["type"] == "echo"]
    assert (row["paused"], row["pauseReason"], row["inflight"]) == (True, "too loud", 0)
    answer = rota.post("/v1/types/echo/resume")
    assert (answer.status, answer.json) == (200, {"type": "echo", "paused": False})
    assert {ended(rota, task_id)["state"] for task_id in held} == {"succeeded"}


def test_a_type_that_is_resumed_has_its_limit_again(serve: Servers, tab: Target) -> None:
    config = with_tab(tab, workerCount=10)
    rota = serve({**config, "types": {"scan": {"executor": "tab", "maxConcurrent": 2}}})
    rota.post("/v1/types/scan/pause")
    tasks = [rota.submit_native(action="scan", tabId="t", params={"hold": "it"}) for _ in range(4)]
    rota.post("/v1/types/scan/resume")
    tab.wait_for(2)
    rota.post("/v1/types/scan/pause")
    (row,) = [r for r in rota.get("/v1/types").json["types"] if r["type"] == "scan"]
    assert (row["inflight"], row["maxConcurrent"]) == (2, 2)
    tab.release("it")
    until(lambda: rota.get("/v1/tasks?state=succeeded").json["count"] == 2)
    assert rota.get("/v1/tasks?state=ready").json["count"] == 2
    rota.post("/v1/types/scan/resume")
    assert {ended(rota, task_id)["state"] for task_id in tasks} == {"succeeded"}


def test_every_pause_holds_until_its_own_resume(rota: Rota) -> None:
    for path in ("scheduler", "types/echo", "agents/ann"):
        rota.post(f"/v1/{path}/pause")
    task_id = rota.submit_native("ann")
    rota.post("/v1/scheduler/resume")
    assert ended(rota, rota.submit_native("ann-2", "sleep"))["state"] == "succeeded"
    rota.post("/v1/types/echo/resume")
    assert ended(rota, rota.submit_native("bob"))["state"] == "succeeded"
    assert state(rota, task_id) == "ready"
    rota.post("/v1/agents/ann/resume")
    assert ended(rota, task_id)["state"] == "succeeded"


def test_pausing_a_type_that_nobody_uses_is_remembered(rota: Rota) -> None:
    rota.post("/v1/types/unheard-of/pause")
    assert scheduler(rota)["pausedTypes"] == ["unheard-of"]
    assert rota.get("/v1/types").json["types"][-1]["type"] == "unheard-of"


@pytest.mark.parametrize("name", ["a b", "é/ü", "100%", "日本"])
def test_types_with_odd_names_can_be_paused(rota: Rota, name: str) -> None:
    answer = rota.post(f"/v1/types/{quote(name, safe='')}/pause")
    assert (answer.status, answer.json["type"]) == (200, name)


@pytest.mark.parametrize("name", ["%20", "%00", "a%0Ab", "x" * 201])
def test_names_that_no_type_can_have_cannot_be_paused(rota: Rota, name: str) -> None:
    assert rota.post(f"/v1/types/{name}/pause").status == 400
    assert scheduler(rota) == NOTHING


@pytest.mark.parametrize("path", ["scheduler", "types/echo", "agents/ann"])
@pytest.mark.parametrize(
    "body", [{"reason": 1}, {"reason": "x" * 501}, {"reason": "a\nb"}, {"why": "x"}, []]
)
def test_a_bad_reason_pauses_nothing(rota: Rota, path: str, body: Any) -> None:
    answer = rota.post(f"/v1/{path}/pause", body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert scheduler(rota) == NOTHING


def test_a_pause_says_who_did_it_and_why(serve: Servers) -> None:
    rota = serve({"server": {"tokens": {"ops": "t" * 20}}})
    rota.token = "t" * 20
    for path in ("scheduler", "types/echo", "agents/ann"):
        rota.post(f"/v1/{path}/pause", {"reason": "night"})
    events = [event for event in rota.events() if event["kind"].endswith("_paused")]
    assert [(e["by"], e["data"]["reason"]) for e in events] == [("ops", "night")] * 3


def test_paused_types_have_a_bound_of_their_own(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.domain.admission.TYPE_PAUSES_MAX", 2)
    for n in range(3):
        assert rota.post(f"/v1/agents/agent-{n}/pause").status == 200
    for n in range(2):
        assert rota.post(f"/v1/types/type-{n}/pause").status == 200
    refused = rota.post("/v1/types/type-2/pause")
    assert (refused.status, refused.code) == (429, "too_many_pauses")
    assert refused.json["details"]["max"] == 2

"""Follow-ups: a success makes the next task, exactly one, with what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, until

from rota.config import parse_settings
from rota.errors import ConfigError

if TYPE_CHECKING:
    from support.http_server import Rota, Servers


def config(params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    rule = {"type": "embed", "agent": "embedder", "params": params or {}, **more}
    return {"types": {"echo": {"executor": "builtin", "followUp": rule}}}


def submit(rota: Rota, **fields: Any) -> str:
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", **fields})
    assert answer.status == 202, answer
    return str(answer.json["taskId"])


def follower(rota: Rota, agent: str = "embedder") -> dict[str, Any]:
    """Give the one task that follows, as soon as it is there."""
    rows = until(lambda: rota.get(f"/v1/tasks?agentId={agent}").json["tasks"])
    assert len(rows) == 1
    found: dict[str, Any] = rows[0]
    return found


def test_a_success_makes_the_next_task_with_what_came_of_it(serve: Servers) -> None:
    params = {
        "part": "{{result.echo.part}}",
        "text": "part {{result.echo.part}} of {{task.id}}",
        "whole": "{{result}}",
        "asked": "{{task.params.part}}",
        "who": "{{task.agent}}",
    }
    rota = serve(config(params, priority=0))
    task = submit(rota, params={"part": 7})
    ended(rota, task)
    after = follower(rota)
    assert (after["action"], after["priority"], after["state"]) == ("embed", 0, "ready")
    assert after["followsTaskId"] == task
    assert after["params"] == {
        "part": 7,
        "text": f"part 7 of {task}",
        "whole": {"echo": {"part": 7}},
        "asked": 7,
        "who": "ann",
    }
    events = rota.get("/v1/events?limit=1000").json["events"]
    (success,) = [event for event in events if event["kind"] == "task_succeeded"]
    follow = next(event for event in events if event.get("task") == after["taskId"])
    assert follow["seq"] == success["seq"] + 1
    assert follow["cause"] == success["cause"]


def test_a_failure_is_followed_by_nothing(serve: Servers) -> None:
    rota = serve({"types": {"fail": {"executor": "builtin", "followUp": {"type": "embed"}}}})
    ended(rota, submit(rota, action="fail"))
    assert rota.get("/v1/tasks?type=embed").json["count"] == 0


def test_a_full_queue_does_not_refuse_it(serve: Servers) -> None:
    rota = serve({**config(), "scheduler": {"maxQueueSize": 2, "maxPerAgent": 1}})
    rota.post("/v1/tasks", {"agentId": "embedder", "action": "waits"})
    refused = rota.post("/v1/tasks", {"agentId": "embedder", "action": "waits"})
    assert refused.status == 429
    ended(rota, submit(rota))
    until(lambda: rota.get("/v1/tasks?type=embed").json["count"] == 1)


def test_large_results_fill_the_queue_no_further_than_its_bytes(serve: Servers) -> None:
    whole = {"a": "{{result}}", "b": "{{result}}"}
    rule = {"type": "embed", "params": whole}
    rota = serve({"types": {"gen": {"followUp": rule}}, "scheduler": {"maxQueueBytes": 1 << 20}})
    for _ in range(4):
        submit(rota, action="gen")
    for lease in rota.post("/v1/leases", {"workerId": "ada", "max": 4}).json["leases"]:
        done = {"token": lease["token"], "result": "x" * 300_000}
        assert rota.post(f"/v1/leases/{lease['leaseId']}/complete", done).status == 200
    rows = rota.get("/v1/dead").json["dead"]
    assert [row["error"]["code"] for row in rows] == ["bad_params"] * 2
    assert "maxQueueBytes" in rows[0]["error"]["message"]
    assert rota.get("/v1/tasks?type=embed&state=ready").json["count"] == 2


def test_one_that_joins_counts_towards_the_workflow_of_what_it_follows(serve: Servers) -> None:
    rule = {"type": "sleep", "agent": "embedder", "joins": True}
    rota = serve({"types": {"echo": {"executor": "builtin", "followUp": rule}}})
    flow = {"agentId": "ann", "tasks": [{"action": "echo"}]}
    name = rota.post("/v1/workflows", flow).json["workflowId"]
    path = f"/v1/workflows/{name}"
    view = until(lambda: v if "completedAt" in (v := rota.get(path).json) else None)
    assert (view["state"], view["total"], view["counts"]["succeeded"]) == ("completed", 2, 2)


def test_a_dead_one_fails_the_workflow_that_it_joins(serve: Servers) -> None:
    rule = {"type": "fail", "agent": "embedder", "joins": True}
    rota = serve({"types": {"echo": {"executor": "builtin", "followUp": rule}}})
    flow = {"agentId": "ann", "tasks": [{"action": "echo"}]}
    name = rota.post("/v1/workflows", flow).json["workflowId"]
    view = until(
        lambda: v if "completedAt" in (v := rota.get(f"/v1/workflows/{name}").json) else None
    )
    assert (view["state"], view["counts"]["failed"]) == ("failed", 1)


def test_one_that_does_not_join_carries_the_workflows_id_and_does_not_count(serve: Servers) -> None:
    rule = {"type": "held", "agent": "embedder"}
    joins = {"type": "sleep", "agent": "late", "joins": True}
    types = {"echo": {"executor": "builtin", "followUp": rule}, "held": {"followUp": joins}}
    rota = serve({"types": types})
    flow = {"agentId": "ann", "tasks": [{"action": "echo"}]}
    name = rota.post("/v1/workflows", flow).json["workflowId"]
    path = f"/v1/workflows/{name}"
    view = until(lambda: v if "completedAt" in (v := rota.get(path).json) else None)
    assert (view["state"], view["total"]) == ("completed", 1)
    after = follower(rota)
    assert (after["workflowId"], after["state"]) == (name, "ready")
    (lease,) = rota.post("/v1/leases", {"workerId": "ada"}).json["leases"]
    rota.post(f"/v1/leases/{lease['leaseId']}/complete", {"token": lease["token"]})
    last = follower(rota, "late")  # what follows one that does not count has nothing to join
    assert last["workflowId"] == name
    ended(rota, last["taskId"])
    rota.restart()
    again = rota.get(path).json
    assert (again["state"], again["total"]) == ("completed", 1)
    assert len(rota.get(f"/v1/tasks?workflowId={name}").json["tasks"]) == 3


# -- types."*" -----------------------------------------------------------------------------------


def test_every_type_has_the_rules_of_the_star_under_its_own(serve: Servers) -> None:
    every = {"timeoutMs": 5000, "queueTimeoutMs": 60_000, "retry": {"maxAttempts": 3}}
    rota = serve({"types": {"*": every, "scan": {"timeoutMs": 7}, "echo": {"executor": "builtin"}}})
    plain = rota.get(f"/v1/tasks/{submit(rota, action='any')}").json
    own = rota.get(f"/v1/tasks/{submit(rota, action='scan')}").json
    assert (plain["timeoutMs"], plain["queueTimeoutMs"], plain["maxAttempts"]) == (5000, 60_000, 3)
    assert (own["timeoutMs"], own["queueTimeoutMs"], own["maxAttempts"]) == (7, 60_000, 3)
    assert ended(rota, submit(rota))["state"] == "succeeded"
    rows = {row["type"]: row for row in rota.get("/v1/types").json["types"]}
    assert rows["scan"]["retry"] == rows["*"]["retry"]


def test_a_follow_up_of_every_type_is_followed_by_nothing(serve: Servers) -> None:
    rule = {"type": "embed", "agent": "embedder"}
    types = {"*": {"followUp": rule}, "echo": {"executor": "builtin"}, "sleep": {"followUp": False}}
    rota = serve({"types": types})
    ended(rota, submit(rota))
    after = follower(rota)
    for _ in range(2):
        submit(rota, action="sleep", params={"ms": 1})
    leases = rota.post("/v1/leases", {"workerId": "ada", "max": 9}).json["leases"]
    assert sorted(lease["task"]["action"] for lease in leases) == ["embed", "sleep", "sleep"]
    for lease in leases:
        done = {"token": lease["token"]}
        assert rota.post(f"/v1/leases/{lease['leaseId']}/complete", done).status == 200
    assert [row["taskId"] for row in rota.get("/v1/tasks?agentId=embedder").json["tasks"]] == [
        after["taskId"]
    ]


def test_a_limit_of_every_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="maxConcurrent: this is a limit of one type"):
        parse_settings({"types": {"*": {"maxConcurrent": 3}}})


def test_params_that_cannot_be_filled_in_make_a_dead_letter_that_can_be_mended(
    serve: Servers,
) -> None:
    rule = {"type": "sleep", "agent": "embedder", "params": {"ms": "{{result.nothing.here}}"}}
    rota = serve({"types": {"echo": {"executor": "builtin", "followUp": rule}}})
    task = submit(rota)
    assert ended(rota, task)["state"] == "succeeded"
    (row,) = until(lambda: rota.get("/v1/dead").json["dead"])
    assert (row["agentId"], row["error"]["code"]) == ("embedder", "bad_params")
    assert "{{result.nothing.here}}" in row["error"]["message"]
    assert rota.post(f"/v1/dead/{row['taskId']}/revive", {"params": {"ms": 1}}).status == 202
    assert ended(rota, row["taskId"])["state"] == "succeeded"


def test_the_rules_are_recorded_and_a_chain_ends(serve: Servers) -> None:
    types = {
        "echo": {"executor": "builtin", "followUp": {"type": "sleep"}},
        "sleep": {"executor": "builtin", "followUp": {"type": "waits", "agent": "last"}},
    }
    rota = serve({"types": types})
    submit(rota)
    assert follower(rota, "last")["action"] == "waits"
    (started,) = rota.get("/v1/events?kind=server_started").json["events"]
    rules = started["data"]["rules"]["types"]
    assert rules["echo"]["follow_up"] == {"type": "sleep"}


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ({"a": {"followUp": {"type": "a"}}}, "leads back to itself: a -> a"),
        (
            {"a": {"followUp": {"type": "b"}}, "b": {"followUp": {"type": "a"}}},
            "leads back to itself: a -> b -> a",
        ),
        (
            {f"t{n}": {"followUp": {"type": f"t{n + 1}"}} for n in range(20)},
            "goes on too long",
        ),
        ({"a": {"followUp": {"agent": "x"}}}, "types.a.followUp.type"),
        ({"a": {"followUp": {"type": "b", "params": {"x": "{{reslut.y}}"}}}}, "reslut.y"),
        ({"a": {"followUp": {"type": "b", "when": 1}}}, "when"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(types: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_settings({"types": types})

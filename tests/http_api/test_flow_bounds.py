"""The bounds of workflows and dead letters are reached, and one more is refused by code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.http_server import ended, until

from rota.domain import workflow
from rota.http import failures
from rota.sight import doomed

if TYPE_CHECKING:
    import pytest
    from support.http_server import Answer, Rota, Servers

WAITS = {"action": "waits"}


def flow(rota: Rota, *tasks: dict[str, Any], **fields: Any) -> Answer:
    return rota.post("/v1/workflows", {"agentId": "ann", "tasks": list(tasks), **fields})


def begin(rota: Rota, *tasks: dict[str, Any], **fields: Any) -> str:
    answer = flow(rota, *tasks, **fields)
    assert answer.status == 202, answer
    return str(answer.json["workflowId"])


def join(rota: Rota, *flows: str, action: str = "waits") -> Answer:
    """Submit a task of each of these, together."""
    tasks = [{"action": action, "workflowId": each} for each in flows]
    return rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks})


def total(rota: Rota, name: str) -> int:
    return int(rota.get(f"/v1/workflows/{name}").json["total"])


def test_an_escalation_carries_no_more_than_a_few_kilobytes(rota: Rota) -> None:
    task = {"agentId": "ann", "action": "look", "params": {"text": "x" * 4096}}
    answer = flow(rota, WAITS, onFailure="escalate", escalate={"task": task})
    assert (answer.status, "escalate.task.params" in answer.json["error"]) == (400, True)
    task["params"] = {"text": "x" * 4000}
    assert flow(rota, WAITS, onFailure="escalate", escalate={"task": task}).status == 202


def test_a_workflow_is_full(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "JOINED_MAX", 3)
    name = begin(rota, WAITS, WAITS)
    over = join(rota, name, name)
    assert (over.status, over.code) == (429, "workflow_full")
    assert over.json["details"] == {"workflowId": name, "max": 3}
    assert total(rota, name) == 2
    assert join(rota, name).status == 202
    one = rota.post("/v1/tasks", {"agentId": "ann", "action": "waits", "workflowId": name})
    assert (one.status, one.code) == (429, "workflow_full")
    assert total(rota, name) == 3


def test_what_follows_its_tasks_may_exceed_it(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "JOINED_MAX", 1)
    rota = serve(
        {"types": {"echo": {"executor": "builtin", "followUp": {"type": "waits", "joins": True}}}}
    )
    name = begin(rota, {"action": "echo"})
    until(lambda: total(rota, name) == 2)


def test_only_so_many_workflows_go_on_and_an_end_makes_room(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "LIVE_MAX", 2)
    rota = serve()
    first, _ = begin(rota, WAITS), begin(rota, open=True)
    over = flow(rota, WAITS)
    assert (over.status, over.code) == (429, "too_many_workflows")
    rota.post(f"/v1/workflows/{first}/cancel")
    until(lambda: "completedAt" in rota.get(f"/v1/workflows/{first}").json)
    begin(rota, WAITS)
    assert flow(rota, WAITS).code == "too_many_workflows"


def test_workflows_have_only_so_many_tasks_together(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "MEMBERS_MAX", 4)
    first, second = begin(rota, WAITS), begin(rota, WAITS)
    over = flow(rota, WAITS, WAITS, WAITS)
    assert (over.status, over.code) == (429, "too_many_workflow_tasks")
    assert join(rota, first).status == 202
    over = join(rota, first, second)
    assert (over.status, over.code) == (429, "too_many_workflow_tasks")
    assert (total(rota, first), total(rota, second)) == (2, 1)
    assert join(rota, second).status == 202
    assert join(rota, second).code == "too_many_workflow_tasks"


def test_a_look_at_the_dead_goes_through_so_many_and_says_where_to_go_on(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "LOOKS_MAX", 2)
    monkeypatch.setattr(failures, "SLICE_FAILURES", 2)
    wanted = rota.submit_native("ann", "fail")
    ended(rota, wanted)
    for _ in range(5):
        ended(rota, rota.submit_native("bob", "fail"))
    path, pages, found = "/v1/dead?agentId=ann", 0, []
    cursor = ""
    while True:
        page = rota.get(path + cursor).json
        pages += 1
        found += [row["taskId"] for row in page["dead"]]
        if "nextCursor" not in page:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert found == [wanted]
    assert 3 <= pages <= 4


def test_only_so_many_dependents_come_back_at_once(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doomed, "DEPENDENTS_MAX", 2)
    bad = {"action": "sleep", "params": {"ms": "x"}, "ref": "a"}
    child = {"action": "echo", "dependsOn": ["ref:a"]}
    made = flow(rota, bad, child, child, child).json["tasks"]
    dead, *children = [task["taskId"] for task in made]
    for each in children:
        ended(rota, each)
    body = {"params": {"ms": 0}, "dependents": True}
    answer = rota.post(f"/v1/dead/{dead}/revive", body)
    assert answer.status == 202, answer
    assert len(answer.json["dependents"]) == 2
    (left,) = set(children) - set(answer.json["dependents"])
    assert ended(rota, dead)["state"] == "succeeded"
    assert rota.post(f"/v1/dead/{left}/revive").status == 202
    assert ended(rota, left)["state"] == "succeeded"

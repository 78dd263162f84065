"""/v1/workflows: tasks that are one undertaking, which more may join, with a rule for failures."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, look, until, with_tab

from rota.http.work_answers import WorkflowPage, WorkflowSubmitted, WorkflowView

if TYPE_CHECKING:
    from support.http_server import Answer, Rota, Servers, Target

ECHO = {"action": "echo"}
FAIL = {"action": "fail"}
WAITS = {"action": "waits"}
WIDE = {"maxQueueSize": 5000, "maxPerAgent": 5000}


@pytest.fixture
def rota(serve: Servers, hooks: Target) -> Rota:
    """A server that may call back."""
    return serve(with_tab(hooks, **WIDE))


def post(rota: Rota, *tasks: dict[str, Any], **fields: Any) -> Answer:
    return rota.post("/v1/workflows", {"agentId": "ann", "tasks": list(tasks), **fields})


def submit(rota: Rota, *tasks: dict[str, Any], **fields: Any) -> tuple[str, list[str]]:
    """Submit a workflow that must be taken; give its id and its tasks' ids."""
    answer = post(rota, *tasks, **fields)
    assert answer.status == 202, answer
    assert WorkflowSubmitted.model_validate(answer.json, strict=True)
    assert answer.json["state"] == "running"
    return answer.json["workflowId"], [task["taskId"] for task in answer.json["tasks"]]


def join(rota: Rota, flow: str, **fields: Any) -> Answer:
    return rota.post("/v1/tasks", {"agentId": "ann", "workflowId": flow, **fields})


def see(rota: Rota, flow: str) -> dict[str, Any]:
    answer = rota.get(f"/v1/workflows/{flow}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    assert WorkflowView.model_validate(found, strict=True)
    return found


def in_state(rota: Rota, flow: str, state: str) -> dict[str, Any]:
    return until(
        lambda: view if (view := see(rota, flow))["state"] == state else None,
        what=f"{flow} is {state}",
    )


def over(rota: Rota, flow: str) -> dict[str, Any]:
    return until(lambda: view if "completedAt" in (view := see(rota, flow)) else None, what=flow)


def kinds(rota: Rota, flow: str) -> list[str]:
    return [event["kind"] for event in rota.get(f"/v1/tasks/{flow}/events").json["events"]]


# -- how it goes ---------------------------------------------------------------------------------


def test_a_workflow_runs_its_tasks_in_order_and_is_completed(rota: Rota) -> None:
    flow, tasks = submit(rota, ECHO | {"ref": "a"}, ECHO | {"dependsOn": ["ref:a"]}, name="nightly")
    assert flow.startswith("wfl_")
    view = over(rota, flow)
    assert (view["state"], view["name"], view["total"]) == ("completed", "nightly", 2)
    assert view["counts"] == {"succeeded": 2, "failed": 0, "cancelled": 0}
    assert [task["taskId"] for task in view["tasks"]] == tasks
    assert view["edges"] == [{"from": tasks[0], "to": tasks[1]}]
    assert look(rota, tasks[0])["workflowId"] == flow
    listed = rota.get(f"/v1/tasks?workflowId={flow}").json["tasks"]
    assert {task["taskId"] for task in listed} == set(tasks)
    assert kinds(rota, flow) == ["workflow_submitted", "workflow_ended"]


def test_one_failure_makes_it_end_as_failed_when_all_have_ended(rota: Rota) -> None:
    flow, tasks = submit(rota, FAIL, WAITS)
    ended(rota, tasks[0])
    assert see(rota, flow)["state"] == "running"
    rota.post(f"/v1/tasks/{tasks[1]}/cancel", {})
    assert over(rota, flow)["state"] == "failed"
    dead = rota.get(f"/v1/dead?workflowId={flow}").json["dead"]
    assert [(row["taskId"], row["workflowId"]) for row in dead] == [(tasks[0], flow)]


def test_failures_under_the_threshold_are_borne(rota: Rota) -> None:
    flow, _ = submit(rota, FAIL, ECHO, ECHO, failure={"count": 2}, onFailure="cancel")
    view = over(rota, flow)
    assert (view["state"], view["counts"]["failed"]) == ("completed", 1)


def test_an_open_workflow_ends_only_after_it_was_closed(rota: Rota) -> None:
    flow, _ = submit(rota, open=True)
    assert join(rota, flow, action="echo").status == 202
    until(lambda: see(rota, flow)["counts"]["succeeded"] == 1)
    assert (see(rota, flow)["state"], see(rota, flow)["open"]) == ("running", True)
    batch = {"agentId": "bob", "tasks": [ECHO | {"workflowId": flow}, ECHO]}
    assert rota.post("/v1/batches", batch).status == 202
    assert rota.post(f"/v1/workflows/{flow}/close").json["workflowId"] == flow
    view = over(rota, flow)
    assert (view["state"], view["total"]) == ("completed", 2)
    late = join(rota, flow, action="echo")
    assert (late.status, late.code) == (409, "workflow_ended")


def test_what_has_left_memory_is_shown_and_takes_no_more(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxEndedTasks": 1}})
    flow, tasks = submit(rota, ECHO, FAIL, name="n")
    before = over(rota, flow)
    for _ in range(2):
        over(rota, submit(rota, ECHO)[0])
    assert rota.get("/v1/workflows?name=n").json["workflows"] == []
    after = see(rota, flow)
    assert {**after, "tasks": None} == {**before, "tasks": None}
    assert [task["taskId"] for task in after["tasks"]] == tasks
    late = join(rota, flow, action="echo")
    assert (late.status, late.code) == (409, "workflow_ended")
    assert rota.post(f"/v1/workflows/{flow}/cancel").status == 409


def test_a_revived_task_opens_its_workflow_again(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxEndedTasks": 1}})
    bad = {"action": "sleep", "params": {"ms": "x"}, "ref": "a", "delayMs": 50}
    flow, tasks = submit(rota, bad, ECHO | {"dependsOn": ["ref:a"]}, onFailure="cancel")
    assert over(rota, flow)["state"] == "failed"
    over(rota, submit(rota, ECHO)[0])
    answer = rota.post(f"/v1/dead/{tasks[0]}/revive", {"params": {"ms": 1}, "dependents": True})
    assert answer.status == 202, answer
    done = until(lambda: view if (view := see(rota, flow))["state"] == "completed" else None)
    assert done["counts"]["succeeded"] + done["counts"]["cancelled"] == 2
    assert kinds(rota, flow).count("workflow_ended") == 2


# -- rules for failures --------------------------------------------------------------------------


def test_the_rest_is_cancelled_as_soon_as_the_threshold_is_crossed(rota: Rota) -> None:
    flow, tasks = submit(rota, FAIL, FAIL, *[WAITS] * 250, failure={"count": 2}, onFailure="cancel")
    view = over(rota, flow)
    assert view["state"] == "failed"
    assert view["counts"] == {"succeeded": 0, "failed": 2, "cancelled": 250}
    assert look(rota, tasks[5])["error"]["code"] == "workflow_cancelled"
    assert kinds(rota, flow) == ["workflow_submitted", "workflow_tripped", "workflow_ended"]


def test_a_share_is_of_all_tasks(rota: Rota) -> None:
    flow, tasks = submit(rota, FAIL, *[WAITS] * 3, failure={"share": 0.5}, onFailure="cancel")
    ended(rota, tasks[0])
    assert see(rota, flow)["state"] == "running"
    assert join(rota, flow, action="fail").status == 202
    assert join(rota, flow, action="fail").status == 202
    assert over(rota, flow)["state"] == "failed"


def test_a_workflow_pauses_at_its_threshold_and_holds_up_nobody(rota: Rota) -> None:
    flow, tasks = submit(rota, FAIL, ECHO | {"delayMs": 300}, onFailure="pause")
    view = in_state(rota, flow, "paused")
    assert view["pauseReason"] == "1 of 2 tasks failed"
    other = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo"}).json["taskId"]
    assert ended(rota, other)["state"] == "succeeded"
    until(lambda: look(rota, tasks[1])["state"] == "ready")
    rota.post("/v1/tasks", {"agentId": "ann", "action": "echo"})
    assert look(rota, tasks[1])["state"] == "ready"
    assert rota.post(f"/v1/workflows/{flow}/resume").json["state"] == "running"
    assert ended(rota, tasks[1])["state"] == "succeeded"
    assert over(rota, flow)["state"] == "failed"


def test_a_workflow_is_paused_and_resumed_by_hand(rota: Rota) -> None:
    flow, tasks = submit(rota, ECHO | {"delayMs": 200}, ECHO | {"delayMs": 200})
    paused = rota.post(f"/v1/workflows/{flow}/pause", {"reason": "hold on"})
    assert (paused.status, paused.json["state"]) == (200, "paused")
    assert see(rota, flow)["pauseReason"] == "hold on"
    until(lambda: all(look(rota, task)["state"] == "ready" for task in tasks))
    rota.post(f"/v1/workflows/{flow}/resume")
    assert over(rota, flow)["state"] == "completed"


def test_an_escalation_submits_its_task_once_with_the_workflow_in_it(rota: Rota) -> None:
    params = {"flow": "{{workflow.id}}", "failed": "{{workflow.failed}}"}
    task = {"agentId": "boss", "action": "echo", "params": params}
    flow, tasks = submit(
        rota, FAIL, FAIL, WAITS, name="n", onFailure="escalate", escalate={"task": task}
    )
    view = in_state(rota, flow, "escalated")
    raised = ended(rota, view["escalationTaskId"])
    assert raised["agentId"] == "boss"
    assert raised["result"]["echo"]["flow"] == flow
    assert isinstance(raised["result"]["echo"]["failed"], int)
    rota.post(f"/v1/tasks/{tasks[2]}/cancel", {})
    assert over(rota, flow)["state"] == "escalated"
    assert kinds(rota, flow).count("workflow_tripped") == 1
    assert len(rota.get("/v1/tasks?agentId=boss").json["tasks"]) == 1


def test_an_escalation_calls_back_and_so_does_the_end(rota: Rota, hooks: Target) -> None:
    flow, tasks = submit(
        rota,
        FAIL,
        WAITS,
        onFailure="escalate",
        escalate={"callback": f"{hooks.url}/raise"},
        callbackUrl=f"{hooks.url}/end",
    )
    first = until(lambda: next(iter(hooks.requests), None))
    assert (first.path, first.body["state"]) == ("/raise", "escalated")
    rota.post(f"/v1/tasks/{tasks[1]}/cancel", {})
    second = until(lambda: hooks.requests[1] if len(hooks.requests) > 1 else None)
    assert second.path == "/end"
    assert (second.body["workflowId"], second.body["state"]) == (flow, "escalated")
    assert second.body["counts"] == {"succeeded": 0, "failed": 1, "cancelled": 1}
    assert second.headers["x-rota-event"] == "workflow.escalated"


# -- what people do ------------------------------------------------------------------------------


def test_a_cancelled_workflow_is_cancelled_whole(rota: Rota) -> None:
    flow, tasks = submit(rota, *[WAITS] * 3, open=True)
    answer = rota.post(f"/v1/workflows/{flow}/cancel", {"reason": "not needed"})
    assert (answer.status, answer.json) == (200, {"workflowId": flow, "state": "cancelled"})
    assert over(rota, flow)["state"] == "cancelled"
    assert look(rota, tasks[0])["error"]["message"] == "not needed"
    again = rota.post(f"/v1/workflows/{flow}/cancel")
    assert (again.status, again.code) == (409, "workflow_ended")


def test_workflows_are_listed_by_state_and_name(rota: Rota) -> None:
    done, _ = submit(rota, ECHO, name="a")
    over(rota, done)
    first, _ = submit(rota, WAITS, name="b")
    second, _ = submit(rota, WAITS, name="b")

    def ids(query: str) -> list[str]:
        page = rota.get(f"/v1/workflows?{query}").json
        assert WorkflowPage.model_validate(page, strict=True)
        return [row["workflowId"] for row in page["workflows"]]

    assert ids("") == [second, first, done]
    assert ids("state=completed") == [done]
    assert ids("name=b") == [second, first]
    page = rota.get("/v1/workflows?limit=2").json
    assert ids(f"limit=2&cursor={page['nextCursor']}") == [done]
    assert rota.get("/v1/workflows?state=done").status == 400


def test_a_repeat_under_its_key_is_the_same_workflow(rota: Rota) -> None:
    first = post(rota, WAITS, idempotencyKey="k")
    again = post(rota, WAITS, idempotencyKey="k")
    assert (first.status, again.status) == (202, 200)
    assert again.json["workflowId"] == first.json["workflowId"]
    assert again.json["idempotent"] is True
    assert post(rota, ECHO, idempotencyKey="k").status == 422


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"tasks": []},
        {"failure": {}},
        {"failure": {"count": 1, "share": 0.5}},
        {"failure": {"count": 0}},
        {"failure": {"share": 2.0}},
        {"onFailure": "shout"},
        {"onFailure": "escalate"},
        {"escalate": {"callback": "http://127.0.0.1/"}},
        {"onFailure": "escalate", "escalate": {}},
        {
            "onFailure": "escalate",
            "escalate": {"task": {"agentId": "a", "action": "b", "params": {"x": "{{result}}"}}},
        },
        {"tasks": [ECHO | {"workflowId": "wfl_x"}]},
        {"what": 1},
    ],
)
def test_what_cannot_be_meant_is_refused(rota: Rota, fields: dict[str, Any]) -> None:
    answer = rota.post("/v1/workflows", {"agentId": "ann", "tasks": [WAITS], **fields})
    assert answer.status == 400, answer
    assert rota.get("/v1/workflows").json["count"] == 0


def test_a_workflow_of_a_thousand_tasks_with_a_cycle_is_refused(rota: Rota) -> None:
    ring = [WAITS | {"dependsOn": [(at + 1) % 1000]} for at in range(1000)]
    answer = post(rota, *ring)
    assert (answer.status, answer.code) == (400, "dependency_cycle")
    assert rota.get("/v1/workflows").json["count"] == 0


def test_a_workflow_that_is_not_there_is_not_found(rota: Rota) -> None:
    batch = rota.post("/v1/batches", {"agentId": "ann", "tasks": [WAITS]}).json["batchId"]
    for name in ("wfl_none", batch, "tsk_none"):
        assert rota.get(f"/v1/workflows/{name}").status == 404
        assert rota.post(f"/v1/workflows/{name}/cancel").status == 404
        answer = join(rota, name, action="echo")
        assert (answer.status, answer.code) == (404, "not_found")
    flow, _ = submit(rota, WAITS)
    assert rota.get(f"/v1/batches/{flow}").status == 404
    assert rota.post(f"/v1/batches/{flow}/cancel").status == 404


def test_a_workflow_may_have_an_id_of_the_clients(rota: Rota) -> None:
    own = str(uuid.uuid4())
    body = {"workflowId": own, "agentId": "ann", "tasks": [{"action": "waits"}]}
    made = rota.post("/v1/workflows", body)
    assert (made.status, made.json["workflowId"]) == (202, own)
    task = made.json["tasks"][0]["taskId"]
    again = rota.post("/v1/workflows", body)
    assert (again.status, again.code) == (409, "id_taken")
    assert again.json["details"] == {"workflowId": own}
    as_task = rota.post("/v1/tasks", {"agentId": "ann", "action": "waits", "taskId": own})
    assert (as_task.status, as_task.code) == (409, "id_taken")
    rota.submit_native("ann", "waits", taskId="mine")
    assert rota.post("/v1/workflows", {**body, "workflowId": "mine"}).code == "id_taken"
    twice = {**body, "workflowId": "new", "tasks": [{"action": "waits", "taskId": "new"}]}
    assert rota.post("/v1/workflows", twice).code == "id_taken"
    rota.restart()
    assert rota.get(f"/v1/workflows/{own}").json["tasks"][0]["taskId"] == task
    assert rota.post("/v1/workflows", body).code == "id_taken"
    rota.post(f"/v1/workflows/{own}/cancel")
    assert rota.post("/v1/workflows", body).code == "id_taken"


def test_a_repeat_under_a_key_gives_the_workflow_of_the_clients_id(rota: Rota) -> None:
    body = {"workflowId": "wf", "open": True, "idempotencyKey": "once"}
    first, second = (rota.post("/v1/workflows", body) for _ in range(2))
    assert (first.status, second.status) == (202, 200)
    assert first.json["workflowId"] == second.json["workflowId"] == "wf"


def test_a_refused_workflow_leaves_its_id_free(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    waits = rota.submit_native("ann", "waits")
    body = {"workflowId": "wf", "agentId": "ann", "tasks": [{"action": "waits"}]}
    assert rota.post("/v1/workflows", body).status == 429
    rota.post(f"/v1/tasks/{waits}/cancel")
    assert rota.post("/v1/workflows", body).status == 202


@pytest.mark.parametrize("own", ["wfl_1", "tsk_1", "", "a/b", 5])
def test_a_workflows_own_id_must_not_be_rotas(rota: Rota, own: Any) -> None:
    answer = rota.post("/v1/workflows", {"workflowId": own, "open": True})
    assert (answer.status, answer.json["details"]) == (400, {"field": "workflowId"})

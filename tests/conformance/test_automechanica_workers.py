"""AutoMechanica's document where workers, workflows and follow-ups come in: sections 3, 4, 6, 8-10, 12, 13.

Every test talks to a real server with the preset over HTTP, as a worker on any machine would.
Headings are the document's.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until

from rota.clock import parse_rfc3339
from rota.presets import layered

if TYPE_CHECKING:
    from support.http_server import Rota, Servers, Target

WORKER = "host-17-4242"
FLOWS = "/automechanica/workflows"
FAR = "2999-01-01T00:00:00Z"
FITMENT: dict[str, Any] = {
    "agent_name": "FitmentAgent",
    "task_type": "generate_fitment",
    "payload": {"sku": "BRK-1"},
}


def preset(**changes: Any) -> dict[str, Any]:
    return layered(changes, ("automechanica",))


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server with the document's values."""
    return serve(preset())


@pytest.fixture
def quick(serve: Servers) -> Rota:
    """A server with the document's values, but quick to try again."""
    return serve(preset(defaults={"retry": {"baseMs": 1}}))


def created(rota: Rota, **changes: Any) -> str:
    answer = rota.post("/automechanica/tasks", {**FITMENT, **changes})
    assert answer.status == 201, answer
    return str(answer.json["id"])


def row_of(rota: Rota, task_id: str) -> dict[str, Any]:
    row: dict[str, Any] = rota.get(f"/automechanica/tasks/{task_id}").json
    return row


def flow_of(rota: Rota, workflow_id: str) -> dict[str, Any]:
    flow: dict[str, Any] = rota.get(f"{FLOWS}/{workflow_id}").json
    return flow


def leased(rota: Rota, worker: str = WORKER, **fields: Any) -> list[dict[str, Any]]:
    answer = rota.post("/automechanica/leases", {"worker_id": worker, **fields})
    assert answer.status == 200, answer
    leases: list[dict[str, Any]] = answer.json["leases"]
    return leases


def outcome(rota: Rota, lease: dict[str, Any], what: str, **fields: Any) -> Any:
    path = f"/automechanica/leases/{lease['lease_id']}/{what}"
    return rota.post(path, {"token": lease["token"], **fields})


def failed(rota: Rota, lease: dict[str, Any], **fields: Any) -> Any:
    return outcome(rota, lease, "fail", error_info={"message": "no such part"}, **fields)


# -- 3. Task Lifecycle ----------------------------------------------------------------------------


def test_pending_leased_running_completed(rota: Rota) -> None:
    task_id = created(rota)
    assert row_of(rota, task_id)["status"] == "pending"
    (lease,) = leased(rota)
    assert row_of(rota, task_id)["status"] == "leased"
    assert outcome(rota, lease, "heartbeat").status == 200
    assert row_of(rota, task_id)["status"] == "running"
    assert outcome(rota, lease, "complete", result={"fits": True}).status == 200
    row = row_of(rota, task_id)
    assert (row["status"], row["attempts"]) == ("completed", 0)
    assert (row["lease_owner"], row["lease_expires_at"]) == (None, None)


# -- 4. Leasing System ----------------------------------------------------------------------------


def test_a_lease_has_its_owner_and_thirty_seconds(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    assert (lease["task"]["id"], lease["lease_ms"]) == (task_id, 30_000)
    row = row_of(rota, task_id)
    assert row == lease["task"]
    assert (row["lease_owner"], row["status"]) == (WORKER, "leased")
    held_us = parse_rfc3339(row["lease_expires_at"]) - parse_rfc3339(row["updated_at"])
    assert held_us == 30_000_000


def test_the_most_urgent_row_of_all_agents_is_leased_first_then_the_oldest(rota: Rota) -> None:
    asked = (("AnalyticsAgent", 3), ("SeoAgent", 2), ("FitmentAgent", 2), ("FitmentAgent", 0))
    low, older, younger, critical = (created(rota, agent_name=a, priority=n) for a, n in asked)
    found = [leased(rota)[0]["task"]["id"] for _ in asked]
    assert found == [critical, older, younger, low]


def test_a_heartbeat_extends_the_lease(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    beat = outcome(rota, lease, "heartbeat", lease_ms=60_000).json
    assert beat["lease_expires_at"] > lease["task"]["lease_expires_at"]
    assert (beat["status"], beat["cancel_requested"]) == ("running", False)
    assert row_of(rota, task_id)["lease_expires_at"] == beat["lease_expires_at"]
    assert rota.post(f"/v1/tasks/{task_id}/cancel").status == 200
    assert outcome(rota, lease, "heartbeat").json["cancel_requested"] is True


def test_a_heartbeat_tells_of_other_leases_to_stop(rota: Rota) -> None:
    created(rota)
    (lease,) = leased(rota)
    beat = outcome(rota, lease, "heartbeat", wait_ms=60_000, holds=["lse_1_never"]).json
    assert beat["stop"] == [{"lease_id": "lse_1_never"}]


def test_no_task_is_leased_twice(rota: Rota) -> None:
    ids = {created(rota) for _ in range(8)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: leased(rota, f"host-{n}"), range(8)))
    assert sorted(lease["task"]["id"] for leases in found for lease in leases) == sorted(ids)


def test_a_silent_worker_loses_its_task_and_its_result_is_refused(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota, lease_ms=1000)
    until(lambda: row_of(rota, task_id)["status"] == "pending", what="the lease expired")
    assert row_of(rota, task_id)["error_info"]["code"] == "lease_expired"
    late = outcome(rota, lease, "complete")
    assert (late.status, late.code) == (409, "stale_attempt")
    assert late.json["details"]["state"] == "pending"
    (again,) = leased(rota, "host-18-1")
    assert outcome(rota, again, "complete").status == 200
    today = rota.get("/automechanica/task_queue_metrics").json["task_queue_metrics"][-1]
    assert today["worker_heartbeat_delay"] >= 1000


def test_leases_go_by_priority_and_then_by_age(rota: Rota) -> None:
    low, first, second = (created(rota, priority=n) for n in (3, 0, 0))
    assert [lease["task"]["id"] for lease in leased(rota, limit=3)] == [first, second, low]


# -- 5. Backoff Rules -----------------------------------------------------------------------------


def test_a_failed_attempt_waits_five_seconds(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    answer = failed(rota, lease).json
    row = row_of(rota, task_id)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert row["error_info"]["message"] == "no such part"
    assert (answer["status"], answer["available_at"]) == ("pending", row["available_at"])
    assert parse_rfc3339(row["available_at"]) - parse_rfc3339(row["updated_at"]) == 5_000_000
    assert leased(rota) == []


def test_the_third_failure_is_dead(quick: Rota) -> None:
    task_id = created(quick)
    for attempts in (1, 2, 3):
        (lease,) = until(lambda: leased(quick, wait_ms=1000), what="the next attempt")
        assert lease["task"]["attempts"] == attempts - 1
        failed(quick, lease)
        assert row_of(quick, task_id)["attempts"] == attempts
    assert row_of(quick, task_id)["status"] == "dead"


# -- 6. Worker Responsibilities -------------------------------------------------------------------


def test_a_worker_waits_for_work_and_frees_what_it_cannot_do(rota: Rota) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leased, rota, wait_ms=20_000)
        task_id = created(rota)
        (lease,) = waiting.result()
    said = outcome(rota, lease, "release").json
    assert said == {"lease_id": lease["lease_id"], "task_id": task_id, "status": "pending"}
    row = row_of(rota, task_id)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    (worker,) = rota.get("/v1/workers").json["workers"]
    assert worker["workerId"] == WORKER


# -- 8. Dead Letter Queue -------------------------------------------------------------------------


def test_a_dead_task_can_be_revived_with_another_payload(quick: Rota) -> None:
    task_id = created(quick, max_attempts=1)
    (lease,) = leased(quick)
    info = {"code": "no_such_part", "message": "no such part", "details": {"sku": "BRK-1"}}
    assert outcome(quick, lease, "fail", error_info=info).json["status"] == "dead"
    (dead,) = quick.get("/automechanica/dead?agent_name=FitmentAgent").json["tasks"]
    assert (dead["id"], dead["attempts"], dead["error_info"]) == (task_id, 1, info)
    revive = f"/automechanica/dead/{task_id}/revive"
    revived = quick.post(revive, {"payload": {"sku": "BRK-2"}, "dependents": True})
    answer = {"task_id": task_id, "status": "pending", "edited": True, "dependents": []}
    assert (revived.status, revived.json) == (202, answer)
    row = row_of(quick, task_id)
    assert (row["status"], row["attempts"], row["payload"]) == ("pending", 0, {"sku": "BRK-2"})
    again = quick.post(revive)
    assert (again.status, again.json["details"]["state"]) == (409, "pending")
    assert quick.post(f"/v1/tasks/{task_id}/cancel").status == 200
    refused = quick.post(revive)
    assert refused.status == 409
    assert refused.json["error"].startswith("only a dead task can be retried; this one is failed")


def test_a_row_shows_the_policy_that_its_worker_asked_for(serve: Servers) -> None:
    rota = serve({})
    task_id = rota.submit_native("FitmentAgent", "generate_fitment")
    assert row_of(rota, task_id)["max_attempts"] == 1
    assert failed(rota, leased(rota)[0], retryable=True).json["status"] == "pending"
    row = row_of(rota, task_id)
    assert (row["status"], row["attempts"], row["max_attempts"]) == ("pending", 1, 4)
    view = rota.get(f"/v1/tasks/{task_id}").json
    assert (view["maxAttempts"], view["retry"]["maxAttempts"]) == (4, 4)


def test_a_failure_that_no_attempt_can_mend_is_dead_at_once(rota: Rota) -> None:
    task_id = created(rota)
    assert failed(rota, leased(rota)[0], retryable=False).json["status"] == "dead"
    assert row_of(rota, task_id)["attempts"] == 1


# -- 9. Orchestrator → Queue Interaction ----------------------------------------------------------


def test_tasks_join_a_workflow(rota: Rota) -> None:
    own = str(uuid.uuid4())
    made = rota.post(FLOWS, {"workflow_id": own, "name": "catalogue", "open": True})
    assert (made.status, made.json["workflow_id"], made.json["tasks"]) == (201, own, [])
    task_id = created(rota, workflow_id=own)
    assert row_of(rota, task_id)["workflow_id"] == own
    events = rota.get("/v1/events?view=automechanica").json["events"]
    mine = [event for event in events if event["task_id"] == task_id]
    assert {event["workflow_id"] for event in mine} == {own}
    closed = rota.post(f"{FLOWS}/{own}/close")
    assert closed.json == {"workflow_id": own, "state": "running"}
    (lease,) = leased(rota)
    outcome(rota, lease, "complete")
    until(lambda: flow_of(rota, own)["state"] == "completed", what="the workflow is completed")
    (row,) = rota.get(f"{FLOWS}?state=completed&name=catalogue").json["workflows"]
    assert (row["workflow_id"], row["counts"]["completed"]) == (own, 1)


def test_a_workflow_is_submitted_whole_and_its_tasks_give_each_other_results(rota: Rota) -> None:
    fit = {"ref": "fit", **FITMENT, "max_attempts": 1}
    seo = {"agent_name": "SeoAgent", "task_type": "refresh_seo", "depends_on": ["ref:fit"]}
    body = {"tasks": [fit, {**seo, "payload": {"text": "{{fit.text}}"}}], "idempotency_key": "one"}
    made, again = rota.post(FLOWS, body), rota.post(FLOWS, body)
    assert (made.status, again.status) == (201, 200)
    assert made.json["workflow_id"] == again.json["workflow_id"]
    first, second = made.json["tasks"]
    assert (first["agent_name"], first["task_type"]) == ("FitmentAgent", "generate_fitment")
    assert (first["status"], first["ref"], second["status"]) == ("pending", "fit", "pending")
    assert made.json["edges"] == [{"from": first["id"], "to": second["id"]}]
    assert made.json["counts"] == {"pending": 2, "completed": 0, "dead": 0, "failed": 0}
    assert row_of(rota, first["id"])["max_attempts"] == 1
    outcome(rota, leased(rota)[0], "complete", result={"text": "fits"})
    (lease,) = leased(rota, agent_names=["SeoAgent"], wait_ms=5000)
    assert (lease["task"]["id"], lease["task"]["payload"]) == (second["id"], {"text": "fits"})


def test_too_many_failures_escalate_and_the_orchestrator_hears_of_the_end(
    serve: Servers, hooks: Target
) -> None:
    rota = serve(preset(webhooks={"allowHosts": ["127.0.0.1"]}))
    review = {
        "agent_name": "OrchestratorAgent",
        "task_type": "review",
        "payload": {"workflow": "{{workflow.id}}"},
    }
    said = {"failure_threshold": {"count": 1}, "on_failure": "escalate"}
    body = {"tasks": [FITMENT], **said, "escalate": {"task": review}}
    made = rota.post(FLOWS, {**body, "callback_url": f"{hooks.url}/ended"}).json
    assert {name: made[name] for name in said} == said
    assert made["escalate"] == {"task": review}
    failed(rota, leased(rota)[0], retryable=False)
    (lease,) = leased(rota, agent_names=["OrchestratorAgent"], wait_ms=5000)
    assert lease["task"]["payload"] == {"workflow": made["workflow_id"]}
    (request,) = until(lambda: hooks.requests, what="the callback")
    assert request.headers["x-automechanica-event"] == "workflow.escalated"
    assert (request.body["workflow_id"], request.body["state"]) == (
        made["workflow_id"],
        "escalated",
    )
    assert request.body["counts"] == {"completed": 0, "dead": 1, "failed": 0}
    assert request.body["tasks"][0]["status"] == "dead"


def test_a_workflow_is_paused_resumed_and_cancelled(rota: Rota) -> None:
    own = rota.post(FLOWS, {"tasks": [FITMENT]}).json["workflow_id"]
    paused = rota.post(f"{FLOWS}/{own}/pause", {"reason": "stock count"})
    assert paused.json == {"workflow_id": own, "state": "paused"}
    assert leased(rota) == []
    assert rota.post(f"{FLOWS}/{own}/resume").json["state"] == "running"
    assert rota.post(f"{FLOWS}/{own}/cancel").json["state"] == "cancelled"
    (task,) = flow_of(rota, own)["tasks"]
    assert task["status"] == "failed"


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "escalated"])
def test_a_workflow_that_has_ended_refuses_more_and_says_as_what(quick: Rota, state: str) -> None:
    action = "echo" if state == "completed" else "fail"
    body: dict[str, Any] = {"agentId": "FitmentAgent", "tasks": [{"action": action}]}
    if state == "cancelled":
        body["tasks"] = [{"action": "waits"}]
    if state == "escalated":
        body |= {"onFailure": "escalate"}
        body["escalate"] = {"task": {"agentId": "boss", "action": "waits"}}
    flow = quick.post("/v1/workflows", body).json["workflowId"]
    if state == "cancelled":
        quick.post(f"/v1/workflows/{flow}/cancel")
    until(lambda: "completedAt" in quick.get(f"/v1/workflows/{flow}").json, what="its end")
    refused = quick.post("/automechanica/tasks", {**FITMENT, "workflow_id": flow})
    assert (refused.status, refused.code) == (409, "workflow_ended")
    assert refused.json["details"] == {"workflowId": flow, "state": state}
    assert refused.json["error"] == f"the workflow has ended: it is {state}"


# -- 10. Agent → Queue Interaction ----------------------------------------------------------------


def test_a_worker_gets_only_the_agents_and_types_that_it_serves(rota: Rota) -> None:
    created(rota, agent_name="PriceAgent")
    mine = created(rota)
    wanted = {"agent_names": ["FitmentAgent"], "task_types": ["generate_fitment"]}
    (lease,) = leased(rota, **wanted, limit=10)
    assert lease["task"]["id"] == mine
    assert leased(rota, wants=[wanted]) == []


def test_a_result_is_said_as_often_as_it_takes(rota: Rota) -> None:
    created(rota)
    (lease,) = leased(rota)
    first, again = (outcome(rota, lease, "complete", result={"fits": True}) for _ in range(2))
    assert (first.json["status"], "idempotent" in first.json) == ("completed", False)
    assert again.json == {**first.json, "idempotent": True}
    other = outcome(rota, lease, "complete", result={"fits": False})
    assert (other.status, other.code, other.json["details"]["state"]) == (
        409,
        "stale_attempt",
        "completed",
    )


@pytest.mark.parametrize(
    ("path", "body", "field", "guess"),
    [
        ("leases", {"worker_id": "h", "agent_name": ["a"]}, "agent_name", "agent_names"),
        ("leases", {"workerId": "h"}, "workerId", "worker_id"),
        ("leases", {"worker_id": "h", "leaseMs": 1000}, "leaseMs", "lease_ms"),
        ("leases/lse_1_x/fail", {"token": 1, "error": "x"}, "error", "error_info"),
        ("leases/lse_1_x/heartbeat", {"token": 1, "leasems": 1000}, "leasems", "lease_ms"),
        ("leases/lse_1_x/complete", {"token": 1, "resutl": 1}, "resutl", "result"),
        ("dead/tsk_1/revive", {"paylod": {}}, "paylod", "payload"),
        (
            "workflows",
            {"tasks": [], "failure_treshold": {}},
            "failure_treshold",
            "failure_threshold",
        ),
        ("workflows", {"tasks": [{"agentId": "a"}]}, "tasks.0.agentId", "agent_name"),
        ("tasks", {"agentId": "a", "task_type": "x"}, "agentId", "agent_name"),
    ],
)
def test_an_unknown_field_is_refused_with_a_guess(
    rota: Rota, path: str, body: dict[str, Any], field: str, guess: str
) -> None:
    answer = rota.post(f"/automechanica/{path}", body)
    assert (answer.status, answer.json["details"]) == (400, {"field": field})
    assert answer.json["error"] == f"unknown field '{field}'; did you mean '{guess}'?"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("workflows", {"tasks": [{"task_type": "x"}]}, "tasks.0.agent_name"),
        ("workflows", {"tasks": [{**FITMENT, "depends_on": ["ref:no"]}]}, "depends_on"),
        ("workflows", {"tasks": [{**FITMENT, "callback_url": "ftp://x"}]}, "tasks.0.callback_url"),
        ("workflows", {"tasks": [{**FITMENT, "available_at": FAR}]}, "available_at"),
        ("tasks", {**FITMENT, "available_at": FAR}, "available_at"),
        ("tasks", {**FITMENT, "callback_url": "ftp://x"}, "callback_url"),
    ],
)
def test_what_is_wrong_with_a_field_is_told_by_its_own_name(
    rota: Rota, path: str, body: dict[str, Any], field: str
) -> None:
    answer = rota.post(f"/automechanica/{path}", body)
    assert (answer.status, answer.json["details"]["field"]) == (400, field)
    if answer.code != "callback_refused":
        assert f"'{field}'" in answer.json["error"]


@pytest.mark.parametrize("path", ["task_queue_metrics", "workflows"])
def test_an_unknown_query_parameter_is_refused(rota: Rota, path: str) -> None:
    answer = rota.get(f"/automechanica/{path}?agentNam=a")
    assert (answer.status, answer.json["details"]) == (400, {"field": "agentNam"})


# -- 11. Queue Metrics & Instrumentation ----------------------------------------------------------


def test_the_metrics_of_a_day_are_a_row(quick: Rota) -> None:
    created(quick)
    outcome(quick, leased(quick)[0], "complete")
    created(quick, agent_name="PriceAgent")
    failed(quick, leased(quick, agent_names=["PriceAgent"])[0], retryable=False)
    today = quick.get("/automechanica/task_queue_metrics").json["task_queue_metrics"][-1]
    assert (today["tasks_completed"], today["tasks_failed"]) == (1, 1)
    assert today["error_rates_per_agent"]["PriceAgent"] == 1
    path = "/automechanica/task_queue_metrics?agent_name=FitmentAgent"
    (own,) = quick.get(f"{path}&from={today['day']}").json["task_queue_metrics"]
    assert (own["tasks_created"], own["error_rate"]) == (1, 0)


# -- 12. Embedding Integration --------------------------------------------------------------------


def test_a_completed_task_makes_one_embedding_job(serve: Servers) -> None:
    follow_up = {"type": "embed", "agent": "EmbeddingAgent", "params": {"text": "{{result.text}}"}}
    rota = serve(preset(types={"generate_fitment": {"followUp": follow_up}}))
    created(rota)
    (lease,) = leased(rota, agent_names=["FitmentAgent"])
    outcome(rota, lease, "complete", result={"text": "fits"})
    (job,) = leased(rota, agent_names=["EmbeddingAgent"], wait_ms=5000)
    assert (job["task"]["task_type"], job["task"]["payload"]) == ("embed", {"text": "fits"})
    assert leased(rota, agent_names=["EmbeddingAgent"]) == []


# -- 13. Scaling ----------------------------------------------------------------------------------


def test_a_lease_outlives_a_restart_of_the_server(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    rota.restart()
    assert row_of(rota, task_id)["lease_owner"] == WORKER
    assert outcome(rota, lease, "complete").status == 200
    assert row_of(rota, task_id)["status"] == "completed"

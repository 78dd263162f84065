"""AutoMechanica's document where workers, workflows and follow-ups come in: sections 3, 4, 6, 8-10, 12, 13.

Every test talks to a real server with the preset over HTTP, as a worker on any machine would.
Headings are the document's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until

from rota.clock import parse_rfc3339
from rota.presets import layered

if TYPE_CHECKING:
    from support.http_server import Rota, Servers

WORKER = "host-17-4242"
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


def leased(rota: Rota, worker: str = WORKER, **fields: Any) -> list[dict[str, Any]]:
    answer = rota.post("/v1/leases", {"workerId": worker, **fields})
    assert answer.status == 200, answer
    leases: list[dict[str, Any]] = answer.json["leases"]
    return leases


def outcome(rota: Rota, lease: dict[str, Any], what: str, **fields: Any) -> Any:
    return rota.post(f"/v1/leases/{lease['leaseId']}/{what}", {"token": lease["token"], **fields})


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
    assert (lease["taskId"], lease["leaseMs"]) == (task_id, 30_000)
    row = row_of(rota, task_id)
    assert (row["lease_owner"], row["lease_expires_at"]) == (WORKER, lease["expiresAt"])
    held_us = parse_rfc3339(row["lease_expires_at"]) - parse_rfc3339(row["updated_at"])
    assert held_us == 30_000_000


def test_the_most_urgent_row_of_all_agents_is_leased_first_then_the_oldest(rota: Rota) -> None:
    asked = (("AnalyticsAgent", 3), ("SeoAgent", 2), ("FitmentAgent", 2), ("FitmentAgent", 0))
    low, older, younger, critical = (created(rota, agent_name=a, priority=n) for a, n in asked)
    found = [leased(rota)[0]["taskId"] for _ in asked]
    assert found == [critical, older, younger, low]


def test_a_heartbeat_extends_the_lease(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    beat = outcome(rota, lease, "heartbeat", leaseMs=60_000).json
    assert beat["expiresAt"] > lease["expiresAt"]
    assert row_of(rota, task_id)["lease_expires_at"] == beat["expiresAt"]


def test_no_task_is_leased_twice(rota: Rota) -> None:
    ids = {created(rota) for _ in range(8)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: leased(rota, f"host-{n}"), range(8)))
    assert sorted(lease["taskId"] for leases in found for lease in leases) == sorted(ids)


def test_a_silent_worker_loses_its_task_and_its_result_is_refused(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota, leaseMs=1000)
    until(lambda: row_of(rota, task_id)["status"] == "pending", what="the lease expired")
    late = outcome(rota, lease, "complete")
    assert (late.status, late.code) == (409, "stale_attempt")
    (again,) = leased(rota, "host-18-1")
    assert outcome(rota, again, "complete").status == 200
    today = rota.get("/v1/stats/daily").json["days"][-1]
    assert today["worker_heartbeat_delay"] >= 1000


def test_leases_go_by_priority_and_then_by_age(rota: Rota) -> None:
    low, first, second = (created(rota, priority=n) for n in (3, 0, 0))
    assert [lease["taskId"] for lease in leased(rota, max=3)] == [first, second, low]


# -- 5. Backoff Rules -----------------------------------------------------------------------------


def test_a_failed_attempt_waits_five_seconds(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    answer = outcome(rota, lease, "fail", error="no such part").json
    row = row_of(rota, task_id)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert row["error_info"]["message"] == "no such part"
    assert answer["nextAttemptAt"] == row["available_at"]
    assert parse_rfc3339(row["available_at"]) - parse_rfc3339(row["updated_at"]) == 5_000_000
    assert leased(rota) == []


def test_the_third_failure_is_dead(quick: Rota) -> None:
    task_id = created(quick)
    for attempts in (1, 2, 3):
        (lease,) = until(lambda: leased(quick, waitMs=1000), what="the next attempt")
        assert lease["attempt"] == attempts
        outcome(quick, lease, "fail", error="no such part")
        assert row_of(quick, task_id)["attempts"] == attempts
    assert row_of(quick, task_id)["status"] == "dead"


# -- 6. Worker Responsibilities -------------------------------------------------------------------


def test_a_worker_waits_for_work_and_frees_what_it_cannot_do(rota: Rota) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leased, rota, waitMs=20_000)
        task_id = created(rota)
        (lease,) = waiting.result()
    assert outcome(rota, lease, "release").json["state"] == "ready"
    row = row_of(rota, task_id)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    (worker,) = rota.get("/v1/workers").json["workers"]
    assert worker["workerId"] == WORKER


# -- 8. Dead Letter Queue -------------------------------------------------------------------------


def test_a_dead_task_can_be_revived_with_another_payload(quick: Rota) -> None:
    task_id = created(quick, max_attempts=1)
    (lease,) = leased(quick)
    outcome(quick, lease, "fail", error="no such part")
    (dead,) = quick.get("/v1/dead?agentId=FitmentAgent").json["dead"]
    assert (dead["taskId"], dead["attempts"]) == (task_id, 1)
    assert quick.post(f"/v1/dead/{task_id}/revive", {"params": {"sku": "BRK-2"}}).status in (
        200,
        202,
    )
    row = row_of(quick, task_id)
    assert (row["status"], row["attempts"], row["payload"]) == ("pending", 0, {"sku": "BRK-2"})


# -- 9. Orchestrator → Queue Interaction ----------------------------------------------------------


def test_tasks_join_a_workflow(rota: Rota) -> None:
    workflow = rota.post("/v1/workflows", {"name": "catalogue", "tasks": [], "open": True}).json
    task_id = created(rota, workflow_id=workflow["workflowId"])
    assert row_of(rota, task_id)["workflow_id"] == workflow["workflowId"]
    events = rota.get("/v1/events?view=automechanica").json["events"]
    mine = [event for event in events if event["task_id"] == task_id]
    assert {event["workflow_id"] for event in mine} == {workflow["workflowId"]}
    rota.post(f"/v1/workflows/{workflow['workflowId']}/close")
    (lease,) = leased(rota)
    outcome(rota, lease, "complete")
    seen = until(
        lambda: rota.get(f"/v1/workflows/{workflow['workflowId']}").json["state"] == "completed",
        what="the workflow is completed",
    )
    assert seen


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
    (lease,) = leased(rota, agents=["FitmentAgent"], types=["generate_fitment"], max=10)
    assert lease["taskId"] == mine


# -- 12. Embedding Integration --------------------------------------------------------------------


def test_a_completed_task_makes_one_embedding_job(serve: Servers) -> None:
    follow_up = {"type": "embed", "agent": "EmbeddingAgent", "params": {"text": "{{result.text}}"}}
    rota = serve(preset(types={"generate_fitment": {"followUp": follow_up}}))
    created(rota)
    (lease,) = leased(rota, agents=["FitmentAgent"])
    outcome(rota, lease, "complete", result={"text": "fits"})
    (job,) = leased(rota, agents=["EmbeddingAgent"], waitMs=5000)
    assert (job["task"]["action"], job["params"]) == ("embed", {"text": "fits"})
    assert leased(rota, agents=["EmbeddingAgent"]) == []


# -- 13. Scaling ----------------------------------------------------------------------------------


def test_a_lease_outlives_a_restart_of_the_server(rota: Rota) -> None:
    task_id = created(rota)
    (lease,) = leased(rota)
    rota.restart()
    assert row_of(rota, task_id)["lease_owner"] == WORKER
    assert outcome(rota, lease, "complete").status == 200
    assert row_of(rota, task_id)["status"] == "completed"

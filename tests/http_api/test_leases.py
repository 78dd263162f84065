"""Leases over HTTP: a worker takes tasks, is heard of, and says what became of them."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, look, until
from support.leasing import Waiting, is_waiting, say, take, take_one, workers

from rota.clock import parse_rfc3339
from rota.domain import lending

if TYPE_CHECKING:
    from support.http_server import Rota, Servers, Target


# -- taking --------------------------------------------------------------------------------------


def test_a_worker_takes_a_task_and_completes_it(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit", params={"part": 7})
    lease = take_one(rota)
    assert lease["leaseId"] == f"lse_{lease['token']}_{task_id}"
    assert (lease["taskId"], lease["workerId"], lease["attempt"]) == (task_id, "ada", 1)
    assert (lease["params"], lease["leaseMs"]) == ({"part": 7}, 30_000)
    [assigned] = rota.events(task=task_id, kind="task_assigned")
    assert lease["token"] == assigned["seq"]
    assert parse_rfc3339(lease["expiresAt"]) >= assigned["at"] + 30_000_000
    assert lease["task"]["state"] == look(rota, task_id)["state"] == "assigned"
    answer = say(rota, lease, "complete", result={"fits": True})
    assert (answer.status, answer.json) == (
        200,
        {"leaseId": lease["leaseId"], "taskId": task_id, "state": "succeeded"},
    )
    task = look(rota, task_id)
    assert (task["state"], task["result"], task["attempt"]) == ("succeeded", {"fits": True}, 1)
    assert rota.kinds(task_id) == ["task_submitted", "task_assigned", "task_succeeded"]
    [succeeded] = rota.events(task=task_id, kind="task_succeeded")
    assert succeeded["by"] == "ada"


def test_workers_that_wait_for_one_key_have_it_one_after_the_other(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "EASED_AT_ONCE", 1)
    names = [f"agent-{number}" for number in range(6)]
    for name in names:
        rota.submit_native(name, "fit", key="lock")
    [held] = take(rota, "first", agents=names[:1])
    others = [Waiting(rota, name, agents=[name]) for name in names[1:]]
    for left in range(len(others), 0, -1):
        assert say(rota, held, "complete").status == 200
        until(lambda left=left: sum(each.answer is None for each in others) < left)
        [held] = [
            lease
            for each in others
            if each.answer is not None
            for lease in each.given()
            if look(rota, lease["taskId"])["state"] == "assigned"
        ]
    assert say(rota, held, "complete").status == 200
    assert len(rota.events(kind="task_succeeded")) == len(names)


def test_a_worker_that_holds_nothing_has_no_delay(rota: Rota) -> None:
    rota.submit_native("ann", "fit")
    lease = take_one(rota)
    assert workers(rota)["ada"]["heartbeatDelayMs"] >= 0
    say(rota, lease, "heartbeat")
    say(rota, lease, "complete")
    assert "heartbeatDelayMs" not in workers(rota)["ada"]


def test_a_worker_for_whom_there_is_nothing_gets_an_empty_list(rota: Rota) -> None:
    rota.submit_native("ann", "fit")
    assert take(rota, types=["paint"]) == []
    assert take(rota, types=["paint"], waitMs=1) == []
    assert look(rota, rota.submit_native("ann", "fit"))["state"] == "ready"


def test_a_worker_that_starts_at_once_has_a_running_task(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    assert take_one(rota, start=True)["task"]["state"] == "running"
    assert rota.kinds(task_id)[-2:] == ["task_assigned", "task_started"]


def test_a_worker_gets_no_more_than_it_asked_for_in_the_order_of_turns(rota: Rota) -> None:
    late = rota.submit_native("ann", "fit", priority=3)
    soon = rota.submit_native("ann", "fit", priority=0)
    other = rota.submit_native("bob", "fit", priority=3)
    assert [lease["taskId"] for lease in take(rota, max=2)] == [soon, other]
    assert [lease["taskId"] for lease in take(rota, max=1000)] == [late]


def test_a_worker_gets_only_what_it_takes(rota: Rota) -> None:
    fit = rota.submit_native("ann", "fit")
    rota.submit_native("bob", "fit")
    paint = rota.submit_native("ann", "paint")
    rota.submit_native("ann", "weld")
    found = take(rota, agents=["ann", "ann"], types=["fit", "paint"], max=10)
    assert [lease["taskId"] for lease in found] == [fit, paint]


def test_a_worker_with_several_filters_gets_the_pairs_that_they_name(rota: Rota) -> None:
    wants = [{"agents": ["ann"], "types": ["fit"]}, {"agents": ["bob"], "types": ["paint"]}]
    served = [rota.submit_native("ann", "fit"), rota.submit_native("bob", "paint")]
    others = [rota.submit_native("ann", "paint"), rota.submit_native("bob", "fit")]
    found = take(rota, wants=wants, max=10)
    assert [lease["taskId"] for lease in found] == served
    assert [look(rota, task)["state"] for task in others] == ["ready", "ready"]
    assert workers(rota)["ada"]["wants"] == wants
    [lease] = take(rota, "ben", wants=[{"types": ["fit"]}, {"agents": ["bob"]}, {"types": ["fit"]}])
    assert lease["taskId"] == others[1]  # asked for twice and more, and lent once


def test_what_rota_runs_itself_is_lent_to_nobody(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "sleep", params={"ms": 60_000})
    assert take(rota, max=10) == []
    rota.post(f"/v1/tasks/{task_id}/cancel")


def test_only_a_worker_with_its_labels_gets_a_task(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit", requires=["gpu", "linux"])
    plain = rota.submit_native("ann", "fit")
    assert look(rota, task_id)["requires"] == ["gpu", "linux"]
    assert take_one(rota, labels=["gpu"], max=10)["taskId"] == plain
    assert take_one(rota, "ben", labels=["linux", "cuda", "gpu"])["taskId"] == task_id


@pytest.mark.parametrize("wants", [{}, {"types": ["fit"]}, {"agents": ["ann"]}])
def test_a_task_with_new_labels_reaches_a_worker_that_waits_already(
    rota: Rota, wants: dict[str, Any]
) -> None:
    plain = Waiting(rota, "ben", **wants)
    ada = Waiting(rota, "ada", labels=["gpu"], **wants)
    task_id = rota.submit_native("ann", "fit", requires=["gpu"])
    assert [lease["taskId"] for lease in ada.given()] == [task_id]
    other = rota.submit_native("ann", "fit")
    assert [lease["taskId"] for lease in plain.given()] == [other]


def test_a_worker_that_waits_is_woken_by_whatever_makes_work(rota: Rota, tab: Target) -> None:
    rota.post("/v1/agents/ann/pause")
    rota.post("/v1/types/fit/pause")
    rota.post("/v1/scheduler/pause")
    waiting = Waiting(rota)
    task_id = rota.submit_native("ann", "fit", delayMs=30, dependsOn=["parent"])
    rota.submit_native("bob", "echo", taskId="parent")
    for path in ("/v1/agents/ann/resume", "/v1/types/fit/resume", "/v1/scheduler/resume"):
        assert waiting.answer is None
        rota.post(path)
    assert [lease["taskId"] for lease in waiting.given()] == [task_id]


def test_a_worker_that_waits_gets_what_another_released(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, "ben")
    waiting = Waiting(rota)
    assert say(rota, lease, "release").json["state"] in ("ready", "assigned")
    assert [given["taskId"] for given in waiting.given()] == [task_id]


def test_results_of_parents_are_filled_in(rota: Rota) -> None:
    first = rota.submit_native("ann", "fit", params={"n": 1})
    say(rota, take_one(rota), "complete", result={"width": 5})
    rota.submit_native("ann", "cut", dependsOn=[first], params={"w": "{{" + first + ".width}}"})
    assert take_one(rota)["params"] == {"w": 5}


def test_params_that_cannot_be_made_fail_their_task_and_hold_up_nobody(rota: Rota) -> None:
    first = rota.submit_native("ann", "fit")
    say(rota, take_one(rota), "complete", result="x" * (1 << 20))
    params = {"x": ["{{" + first + "}}"] * 9}
    bad = rota.submit_native("ann", "cut", dependsOn=[first], params=params, priority=0)
    good = rota.submit_native("ann", "cut")
    assert [lease["taskId"] for lease in take(rota, max=2)] == [good]
    task = ended(rota, bad)
    assert (task["state"], task["error"]["code"]) == ("failed", "bad_params")


def test_a_worker_whose_only_task_cannot_be_made_is_answered_and_may_come_again(
    rota: Rota,
) -> None:
    first = rota.submit_native("ann", "fit")
    say(rota, take_one(rota), "complete", result="x" * (1 << 20))
    waiting = Waiting(rota)
    params = {"x": ["{{" + first + "}}"] * 9}
    bad = rota.submit_native("ann", "cut", dependsOn=[first], params=params)
    assert waiting.given() == []
    assert look(rota, bad)["state"] == "failed"


# -- caps and pauses -----------------------------------------------------------------------------


def test_lent_tasks_are_under_every_cap(serve: Servers) -> None:
    limits = {"maxInflight": 4, "maxPerAgentInflight": 2, "maxPerKey": 1}
    rota = serve({"scheduler": limits, "types": {"paint": {"max_concurrent": 1}}})
    for agent in ("ann", "bob"):
        for n in range(3):
            rota.submit_native(agent, "fit", params={"n": n})
    rota.submit_native("cyd", "paint", taskId="p1")
    rota.submit_native("dan", "paint")
    assert [lease["taskId"] for lease in take(rota, types=["paint"], max=10)] == ["p1"]
    found = take(rota, max=10)
    assert [lease["task"]["agentId"] for lease in found] == ["ann", "bob", "ann"]
    assert take(rota, max=10) == []


def test_a_key_is_worked_on_once_at_a_time(rota: Rota) -> None:
    first = rota.submit_native("ann", "fit", key="shop")
    second = rota.submit_native("bob", "fit", key="shop")
    lease = take_one(rota, max=10)
    assert lease["taskId"] == first
    say(rota, lease, "complete")
    assert take_one(rota, max=10)["taskId"] == second


def test_a_batch_is_worked_on_by_so_many_at_a_time(rota: Rota) -> None:
    tasks = [{"action": "fit"} for _ in range(3)]
    body = {"agentId": "ann", "tasks": tasks, "parallelism": 2}
    assert rota.post("/v1/batches", body).status == 202
    leases = take(rota, max=10)
    assert len(leases) == 2
    say(rota, leases[0], "fail", error="no")
    assert len(take(rota, max=10)) == 1


def test_what_is_paused_is_lent_to_nobody(rota: Rota) -> None:
    rota.post("/v1/agents/ann/pause")
    rota.post("/v1/types/paint/pause")
    rota.submit_native("ann", "fit")
    rota.submit_native("bob", "paint")
    assert take(rota, max=10) == []
    rota.submit_native("bob", "fit")
    rota.post("/v1/scheduler/pause")
    assert take(rota, max=10) == []


def test_a_key_prefers_the_worker_that_had_it(serve: Servers) -> None:
    rota = serve({"scheduler": {"stickyMs": 60_000}})
    rota.submit_native("ann", "fit", key="shop")
    lease = take_one(rota, "ada")
    rota.submit_native("ann", "fit", key="shop")
    say(rota, lease, "complete")
    assert take(rota, "ben") == []
    assert take_one(rota, "ada")["taskId"] != lease["taskId"]


def test_a_key_prefers_its_worker_from_when_the_next_task_is_ready(serve: Servers) -> None:
    rota = serve({"scheduler": {"stickyMs": 1}})
    task_id = rota.submit_native("ann", "fit", key="shop", retry={"kind": "fixed", "baseMs": 500})
    lease = take_one(rota, "ada")
    say(rota, lease, "fail", error="no")
    rota.post("/v1/config/reload", {"scheduler": {"stickyMs": 60_000}})
    until(lambda: look(rota, task_id)["state"] == "ready", what="the next attempt")
    assert take(rota, "ben") == []
    assert take_one(rota, "ada")["taskId"] == task_id


def test_a_key_goes_to_anyone_after_its_moment(serve: Servers) -> None:
    rota = serve({"scheduler": {"stickyMs": 20}})
    rota.submit_native("ann", "fit", key="shop")
    lease = take_one(rota, "ada")
    waiting = Waiting(rota, "ben")
    task_id = rota.submit_native("ann", "fit", key="shop")
    say(rota, lease, "complete")
    assert [given["taskId"] for given in waiting.given()] == [task_id]


def test_a_key_that_is_kept_no_longer_goes_to_who_waits_for_it(serve: Servers) -> None:
    rota = serve({"scheduler": {"stickyMs": 60_000}})
    rota.submit_native("ann", "fit", key="shop")
    lease = take_one(rota, "ada")
    task_id = rota.submit_native("ann", "fit", key="shop")
    say(rota, lease, "complete")
    waiting = Waiting(rota, "ben")
    rota.post("/v1/config/reload", {"scheduler": {"stickyMs": 1}})
    assert [given["taskId"] for given in waiting.given()] == [task_id]


def test_a_key_is_not_kept_for_a_worker_that_did_not_want_the_task(serve: Servers) -> None:
    rota = serve({"scheduler": {"stickyMs": 60_000}})
    task_id = rota.submit_native("ann", "fit", key="shop")
    say(rota, take_one(rota, "ada"), "release")
    assert take_one(rota, "ben")["taskId"] == task_id


# -- being heard of ------------------------------------------------------------------------------


def test_a_heartbeat_extends_a_lease_and_carries_what_is_to_be_told(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, leaseMs=1000)
    answer = say(rota, lease, "heartbeat", progress={"at": 3}, lines=["one", "two"], leaseMs=60_000)
    assert answer.status == 200
    said = answer.json
    assert (said["state"], said["cancelRequested"]) == ("running", False)
    assert parse_rfc3339(said["expiresAt"]) >= parse_rfc3339(lease["expiresAt"]) + 50_000_000
    assert look(rota, task_id)["progress"] == {"at": 3}
    kinds = rota.kinds(task_id)
    assert kinds == [
        "task_submitted", "task_assigned", "task_started", "task_logged", "task_progressed",
    ]  # fmt: skip
    assert {event["by"] for event in rota.events(task=task_id)[2:]} == {"ada"}
    say(rota, lease, "heartbeat")
    assert rota.kinds(task_id) == kinds
    say(rota, lease, "complete")
    [over] = rota.events(task=task_id, kind="lease_ended")
    assert (over["data"]["extended"], over["data"]["how"]) == (2, "completed")


def test_a_heartbeat_may_shorten_a_lease(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, leaseMs=3_600_000)
    assert say(rota, lease, "heartbeat", leaseMs=1000).status == 200
    until(lambda: look(rota, task_id)["state"] == "ready", what="the lease has expired")
    assert say(rota, lease, "complete").code == "stale_attempt"


def test_a_heartbeat_tells_of_a_cancel(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    say(rota, lease, "heartbeat")
    rota.post(f"/v1/tasks/{task_id}/cancel", {"reason": "no glue left"})
    answer = say(rota, lease, "heartbeat", lines=["still here"])
    assert (answer.status, answer.json) == (
        200,
        {
            "leaseId": lease["leaseId"],
            "taskId": task_id,
            "state": "cancelled",
            "cancelRequested": True,
        },
    )
    assert say(rota, lease, "complete").code == "stale_attempt"
    [over] = rota.events(task=task_id, kind="lease_ended")
    assert over["data"]["how"] == "cancelled"


def test_lines_and_progress_of_a_leased_task_go_with_its_token(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    path = f"/v1/tasks/{task_id}"
    assert rota.post(f"{path}/logs", {"lines": ["x"], "token": lease["token"]}).status == 201
    assert rota.post(f"{path}/progress", {"progress": 5, "token": lease["token"]}).status == 201
    assert rota.post(f"{path}/logs", {"lines": ["x"], "token": 1}).code == "stale_attempt"


# -- how it ends ---------------------------------------------------------------------------------


def test_a_failure_is_tried_again_by_the_tasks_policy(rota: Rota) -> None:
    policy = {"kind": "fixed", "baseMs": 60_000, "maxAttempts": 2}
    task_id = rota.submit_native("ann", "fit", retry=policy)
    answer = say(rota, take_one(rota), "fail", error="no glue", code="glue", details={"left": 0})
    assert (answer.status, answer.json["state"]) == (200, "scheduled")
    assert answer.json["nextAttemptAt"] == look(rota, task_id)["nextAttemptAt"]
    [failed] = rota.events(task=task_id, kind="attempt_failed")
    assert (failed["data"]["code"], failed["data"]["error"]) == ("glue", "no glue")


def test_a_worker_may_say_when_to_try_again_and_that_it_is_no_use(rota: Rota) -> None:
    policy = {"kind": "fixed", "baseMs": 10_000_000, "maxMs": 10_000_000, "maxAttempts": 5}
    later = rota.submit_native("ann", "fit", retry=policy)
    answer = say(rota, take_one(rota), "fail", error="busy", retryAfterMs=60_000)
    assert answer.json["state"] == "scheduled"
    never = rota.submit_native("ann", "fit", retry=policy)
    answer = say(rota, take_one(rota), "fail", error="broken", retryable=False)
    assert answer.json["state"] == look(rota, never)["state"] == "failed"
    assert look(rota, later)["state"] == "scheduled"
    [failed] = rota.events(task=later, kind="attempt_failed")
    assert failed["data"]["next_at"] - failed["at"] == 60_000_000


def test_a_released_task_is_back_at_once_and_costs_no_attempt(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit", onInterrupt="fail")
    for _ in range(10):
        lease = take_one(rota, start=True)
        assert lease["attempt"] == 1
        answer = say(rota, lease, "release")
        assert (answer.status, answer.json["state"]) == (200, "ready")
    assert look(rota, task_id)["attempt"] == 0
    assert {e["data"]["reason"] for e in rota.events(task=task_id, kind="attempt_interrupted")} == {
        "released"
    }


def test_a_lease_that_nobody_extends_expires_and_the_task_waits_again(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, leaseMs=1000)
    again = take_one(rota, "ben", waitMs=20_000)
    assert (again["taskId"], again["attempt"]) == (task_id, 1)
    kinds = rota.kinds(task_id)
    assert kinds[1:] == ["task_assigned", "lease_expired", "attempt_interrupted", "task_assigned"]
    expired, interrupted = rota.events(task=task_id)[2:4]
    assert expired["data"]["worker"] == "ada"
    assert expired["data"]["gap_ms"] >= 1000
    assert interrupted["data"]["reason"] == "lease expired"
    [assigned, _] = rota.events(task=task_id, kind="task_assigned")
    assert expired["at"] >= assigned["at"] + 1_000_000
    for what in ("complete", "release", "heartbeat"):
        assert (say(rota, lease, what).status, say(rota, lease, what).code) == (
            409,
            "stale_attempt",
        )
    assert say(rota, again, "complete").status == 200
    assert look(rota, task_id)["state"] == "succeeded"


def test_a_task_that_must_not_run_twice_fails_when_its_lease_expires(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit", onInterrupt="fail")
    take_one(rota, leaseMs=1000)
    task = ended(rota, task_id)
    assert (task["state"], task["error"]["code"]) == ("failed", "interrupted")


def test_a_lease_has_the_tasks_own_timeout_over_it(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit", timeoutMs=50)
    lease = take_one(rota)
    assert ended(rota, task_id)["error"]["code"] == "timeout"
    assert say(rota, lease, "complete").code == "stale_attempt"


# -- settle --------------------------------------------------------------------------------------


def test_many_outcomes_are_taken_in_one_call_and_the_next_tasks_with_it(rota: Rota) -> None:
    tasks = [rota.submit_native("ann", "fit", params={"n": n}) for n in range(5)]
    done, failed, back, other = take(rota, max=4)
    outcomes = [
        {"leaseId": done["leaseId"], "token": done["token"], "outcome": "complete", "result": [1]},
        {"leaseId": "lse_9_nobody", "token": 9, "outcome": "complete"},
        {"leaseId": failed["leaseId"], "token": failed["token"], "outcome": "fail", "error": "no"},
        {"leaseId": done["leaseId"], "token": done["token"], "outcome": "complete"},
        {"leaseId": other["leaseId"], "token": done["token"], "outcome": "complete"},
        {"leaseId": "nonsense", "token": 9, "outcome": "release"},
        {"leaseId": back["leaseId"], "token": back["token"], "outcome": "release"},
    ]
    answer = rota.post(
        "/v1/leases/settle", {"workerId": "ada", "outcomes": outcomes, "lease": {"max": 10}}
    )
    assert answer.status == 200
    said = [row.get("state") or row["code"] for row in answer.json["outcomes"]]
    assert said[:6] == [
        "succeeded", "not_found", "failed", "stale_attempt", "stale_attempt", "not_found",
    ]  # fmt: skip
    assert said[6] in ("ready", "assigned")
    assert [row["leaseId"] for row in answer.json["outcomes"]] == [o["leaseId"] for o in outcomes]
    assert {lease["taskId"] for lease in answer.json["leases"]} == {back["taskId"], tasks[4]}
    assert look(rota, done["taskId"])["result"] == [1]
    assert look(rota, other["taskId"])["state"] == "assigned"


def test_a_call_may_settle_nothing_or_wait_for_the_next(rota: Rota) -> None:
    body: dict[str, Any] = {"workerId": "ada", "outcomes": []}
    assert rota.post("/v1/leases/settle", body).json == {"outcomes": [], "leases": []}
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    outcome = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
    found: list[Any] = []
    body = {"workerId": "ada", "outcomes": [outcome], "lease": {"waitMs": 20_000}}
    thread = threading.Thread(target=lambda: found.append(rota.post("/v1/leases/settle", body)))
    thread.start()
    assert ended(rota, task_id)["state"] == "succeeded"  # before the next task is there
    until(is_waiting(rota, "ada"))
    next_one = rota.submit_native("ann", "fit")
    thread.join(30)
    assert [each["taskId"] for each in found[0].json["leases"]] == [next_one]


# -- workers -------------------------------------------------------------------------------------


def test_the_workers_are_listed_with_what_they_hold_and_take(rota: Rota) -> None:
    assert rota.get("/v1/workers").json == {"workers": [], "count": 0}
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, "ada", agents=["ann"], types=["fit"], labels=["gpu", "big"])
    waiting = Waiting(rota, "ben")
    known = workers(rota)
    assert list(known) == ["ben", "ada"]
    assert {
        key: known["ada"][key] for key in ("waiting", "labels", "agents", "types", "holds")
    } == {
        "waiting": False,
        "labels": ["big", "gpu"],
        "agents": ["ann"],
        "types": ["fit"],
        "holds": 1,
    }
    assert known["ada"]["leases"] == [
        {
            "leaseId": lease["leaseId"],
            "taskId": task_id,
            "agentId": "ann",
            "type": "fit",
            "expiresAt": lease["expiresAt"],
        }
    ]
    assert (known["ben"]["waiting"], known["ben"]["holds"]) == (True, 0)
    page = rota.get("/v1/workers?limit=1").json
    assert (page["count"], page["nextCursor"]) == (1, "1")
    page = rota.get("/v1/workers?limit=1&cursor=1").json
    assert ([row["workerId"] for row in page["workers"]], page.get("nextCursor")) == (["ada"], None)
    say(rota, lease, "release")
    assert waiting.given()[0]["taskId"] == task_id
    assert json.dumps(workers(rota)["ada"]["leases"]) == "[]"


def test_a_worker_that_holds_a_task_is_known_after_a_restart(rota: Rota) -> None:
    rota.submit_native("ann", "fit")
    lease = take_one(rota)
    rota.restart()
    [row] = rota.get("/v1/workers").json["workers"]
    assert (row["workerId"], row["holds"], row["waiting"]) == ("ada", 1, False)
    assert say(rota, lease, "complete", result=1).status == 200


def test_an_expired_lease_is_the_tasks_last_error(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    rota.post("/v1/leases", {"workerId": "ada", "leaseMs": 1000})
    task = until(lambda: (t := look(rota, task_id))["state"] == "ready" and t, what="its expiry")
    assert task["lastError"] == {
        "code": "lease_expired",
        "message": "worker ada was silent until its lease expired",
    }

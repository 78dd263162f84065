"""/v1/batches: admitted whole, bounded together, looked at, told of and cancelled as one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Rota, Servers, Target, until, with_tab

from rota.config import BATCH_MAX
from rota.http.answers import BatchSubmitted, BatchView

if TYPE_CHECKING:
    from support.http_server import Answer

WIDE = {"workerCount": 50, "maxInflight": 50, "maxPerAgentInflight": 50}


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server with room for many tasks at once."""
    return serve(with_tab(tab, **WIDE))


def click(tag: str, hold: str = "", **fields: Any) -> dict[str, Any]:
    """Describe a task that the browser runs until `hold` is let go."""
    params = {"tag": tag, **({"hold": hold} if hold else {})}
    return {"action": "click", "tabId": "t", "params": params, **fields}


def post(rota: Rota, *tasks: dict[str, Any], **fields: Any) -> Answer:
    return rota.post("/v1/batches", {"agentId": "ann", "tasks": list(tasks), **fields})


def submit(rota: Rota, *tasks: dict[str, Any], **fields: Any) -> tuple[str, list[str]]:
    """Submit a batch that must be taken; give its id and its tasks' ids."""
    answer = post(rota, *tasks, **fields)
    assert answer.status == 202, answer
    assert BatchSubmitted.model_validate(answer.json, strict=True)
    return answer.json["batchId"], [task["taskId"] for task in answer.json["tasks"]]


def look(rota: Rota, batch_id: str) -> dict[str, Any]:
    answer = rota.get(f"/v1/batches/{batch_id}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    assert BatchView.model_validate(found, strict=True)
    return found


def finished(rota: Rota, batch_id: str) -> dict[str, Any]:
    return until(
        lambda: view if (view := look(rota, batch_id))["state"] == "finished" else None,
        what=f"{batch_id} is finished",
    )


ECHO = {"action": "echo"}
WAITS = {"action": "waits"}


# -- admission -----------------------------------------------------------------------------------


def test_a_batch_is_taken_with_an_id_and_a_place_for_each_task(rota: Rota) -> None:
    answer = post(rota, WAITS, WAITS | {"agentId": "bob"}, ECHO | {"dependsOn": [0]})
    assert answer.status == 202
    assert set(answer.json) == {"batchId", "tasks", "createdAt"}
    assert answer.json["batchId"].startswith("bat_")
    rows = answer.json["tasks"]
    assert [(row["state"], row["position"]) for row in rows] == [
        ("ready", 1), ("ready", 2), ("blocked", 3),
    ]  # fmt: skip
    agents = [rota.get(f"/v1/tasks/{row['taskId']}").json["agentId"] for row in rows]
    assert agents == ["ann", "bob", "ann"]
    for row in rows:
        task = rota.get(f"/v1/tasks/{row['taskId']}").json
        assert task["batchId"] == answer.json["batchId"]


def test_a_batchs_record_comes_right_before_its_tasks(rota: Rota) -> None:
    batch_id, ids = submit(rota, WAITS, WAITS, WAITS)
    events = [event for event in rota.events() if event["kind"] != "server_started"]
    assert [event["kind"] for event in events] == ["batch_submitted", *["task_submitted"] * 3]
    assert events[0]["data"]["tasks"] == ids
    assert [event["data"]["batch"] for event in events[1:]] == [batch_id] * 3


@pytest.mark.parametrize("limit", ["maxQueueSize", "maxPerAgent"])
def test_a_batch_that_does_not_fit_is_refused_whole(serve: Servers, limit: str) -> None:
    rota = serve({"scheduler": {limit: 5}})
    submit(rota, WAITS, WAITS, WAITS)
    answer = post(rota, WAITS, WAITS, WAITS)
    assert (answer.status, answer.code, answer.json["retryable"]) == (429, "queue_full", True)
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json["details"]["size"] == 3
    assert rota.get("/v1/tasks").json["count"] == 3
    (rejected,) = rota.events(kind="batch_rejected")
    assert rejected["data"]["size"] == 3
    assert rota.get(f"/v1/batches/{answer.json['details']['batchId']}").status == 404
    submit(rota, WAITS, WAITS)
    assert post(rota, WAITS).status == 429


@pytest.mark.parametrize("limit", ["maxQueueSize", "maxPerAgent"])
def test_a_batch_that_could_never_fit_is_told_so_and_by_which_limit(
    serve: Servers, limit: str
) -> None:
    rota = serve({"scheduler": {limit: 3}})
    answer = post(rota, *[WAITS] * 4)
    assert (answer.status, answer.code) == (422, "batch_too_large_for_queue")
    assert answer.json["retryable"] is False
    assert "retry-after" not in answer.headers
    assert answer.json["details"] == {"size": 4, "limit": limit, "max": 3}
    assert "can never fit" in answer.json["error"]
    assert f"raise scheduler.{limit}" in answer.json["error"]
    assert rota.get("/v1/tasks").json["count"] == 0
    submit(rota, WAITS, WAITS, WAITS)


def test_a_thousand_tasks_of_many_agents_fit_where_as_many_of_one_do_not(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxPerAgent": 100}})
    items = [WAITS | {"agentId": f"agent-{n % 10}"} for n in range(BATCH_MAX)]
    assert rota.post("/v1/batches", {"tasks": items}).status == 202
    of_one = [WAITS | {"agentId": "ann"}] * BATCH_MAX
    answer = rota.post("/v1/batches", {"tasks": of_one})
    assert (answer.status, answer.json["retryable"]) == (422, False)
    assert "1000 tasks of agent 'ann' can never fit" in answer.json["error"]


@pytest.mark.parametrize(
    ("name", "meant"), [("first", "'ref:first'"), ("0", "0, without quotes"), ("own", None)]
)
def test_an_item_named_without_its_mark_is_refused_with_what_was_meant(
    rota: Rota, name: str, meant: str | None
) -> None:
    first = WAITS | {"ref": "first"}
    other = WAITS | {"ref": "own", "taskId": "own"}
    answer = post(rota, first, other, WAITS | {"dependsOn": [name]})
    if meant is None:  # an id that one of them has is no mistake
        assert answer.status == 202
        return
    assert (answer.status, answer.json["details"]["field"]) == (400, "dependsOn")
    assert f"did you mean {meant}?" in answer.json["error"]
    assert rota.get("/v1/tasks").json["count"] == 0


def test_a_name_that_is_a_task_is_no_mistake_though_an_item_has_it_too(rota: Rota) -> None:
    assert rota.post("/v1/tasks", {"agentId": "ann", **WAITS, "taskId": "first"}).status == 202
    assert post(rota, WAITS | {"ref": "first"}, WAITS | {"dependsOn": ["first"]}).status == 202


def test_one_bad_item_keeps_the_whole_batch_out(rota: Rota) -> None:
    before = rota.get("/v1/events/head").json
    for bad, field in (
        ({"action": ""}, "tasks.1.action"),
        ({}, "tasks.1.action"),
        (ECHO | {"surprise": 1}, "tasks.1.surprise"),
        (ECHO | {"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        (ECHO | {"callbackUrl": "http://10.0.0.1/"}, None),
        (ECHO | {"dependsOn": [7]}, "dependsOn"),
    ):
        answer = post(rota, ECHO, bad, ECHO)
        assert answer.status == 400, bad
        assert answer.json.get("details", {}).get("field") == field or field is None
    assert rota.get("/v1/events/head").json == before


def test_every_item_needs_an_agent_from_somewhere(rota: Rota) -> None:
    answer = rota.post("/v1/batches", {"tasks": [ECHO | {"agentId": "ann"}, ECHO]})
    assert (answer.status, answer.json["details"]) == (400, {"field": "tasks.1.agentId"})


def test_a_batch_has_a_largest_size(serve: Servers) -> None:
    limits = {"maxQueueSize": 10_000, "maxPerAgent": 10_000}
    rota = serve({"scheduler": limits})
    for count in (0, BATCH_MAX + 1):
        answer = post(rota, *[WAITS] * count)
        assert (answer.status, answer.json["details"]) == (400, {"field": "tasks"})
    batch_id, ids = submit(rota, *[WAITS] * BATCH_MAX)
    assert len(set(ids)) == look(rota, batch_id)["total"] == BATCH_MAX


# -- counts and progress -------------------------------------------------------------------------


def test_a_batch_counts_its_tasks_and_says_how_far_it_is(rota: Rota, tab: Target) -> None:
    batch_id, ids = submit(
        rota,
        click("one", "one"), ECHO, {"action": "fail"}, WAITS,
        ECHO | {"delayMs": 60_000}, ECHO | {"dependsOn": ["later"]},
        ECHO | {"dependsOn": [2]}, ECHO | {"dependsOn": [0]},
    )  # fmt: skip
    tab.wait_for(1)
    until(lambda: look(rota, batch_id)["counts"]["cancelled"] == 1, what="one falls with another")
    view = look(rota, batch_id)
    assert (view["state"], view["total"], view["progress"]) == ("running", 8, 0.375)
    assert view["counts"] == {
        "running": 1, "ready": 1, "scheduled": 1, "blocked": 2,
        "succeeded": 1, "failed": 1, "cancelled": 1,
    }  # fmt: skip
    assert [row["taskId"] for row in view["tasks"]] == ids
    assert "completedAt" not in view
    tab.release("one")
    until(lambda: look(rota, batch_id)["progress"] == 0.625)


def test_a_batch_is_finished_when_its_last_task_is(rota: Rota) -> None:
    batch_id, ids = submit(rota, ECHO, {"action": "fail"}, ECHO | {"dependsOn": [0]})
    view = finished(rota, batch_id)
    assert view["counts"] == {"succeeded": 2, "failed": 1, "cancelled": 0}
    assert view["progress"] == 1
    assert [row["state"] for row in view["tasks"]] == ["succeeded", "failed", "succeeded"]
    (event,) = rota.events(kind="batch_finished")
    assert event["data"]["succeeded"] == 2
    assert event["seq"] > max(each["seq"] for t in ids for each in rota.events(task=t))


def test_a_batch_whose_tasks_can_never_run_is_finished_at_once(rota: Rota) -> None:
    parent = rota.submit_native(action="waits")
    rota.post(f"/v1/tasks/{parent}/cancel")
    batch_id, _ = submit(rota, ECHO | {"dependsOn": [parent]}, ECHO | {"dependsOn": [0]})
    assert finished(rota, batch_id)["counts"] == {"succeeded": 0, "failed": 0, "cancelled": 2}


def test_the_tasks_of_a_batch_can_be_listed(rota: Rota) -> None:
    batch_id, ids = submit(rota, WAITS, ECHO)
    rota.submit_native(action="waits")
    found = rota.get(f"/v1/tasks?batchId={batch_id}").json["tasks"]
    assert [task["taskId"] for task in found] == ids[::-1]


def test_an_unknown_batch_is_not_found(rota: Rota) -> None:
    task_id = rota.submit_native()
    for batch_id in ("bat_nobody00", task_id):
        for answer in (
            rota.get(f"/v1/batches/{batch_id}"),
            rota.post(f"/v1/batches/{batch_id}/cancel"),
        ):
            assert (answer.status, answer.code) == (404, "not_found")
    batch_id, _ = submit(rota, ECHO)
    assert rota.get(f"/v1/tasks/{batch_id}").status == 404


def test_a_task_that_is_retried_by_hand_takes_its_batch_back(rota: Rota) -> None:
    batch_id, ids = submit(rota, {"action": "fail"}, ECHO)
    finished(rota, batch_id)
    rota.post("/v1/agents/ann/pause")
    rota.post(f"/v1/tasks/{ids[0]}/retry")
    view = look(rota, batch_id)
    assert (view["state"], view["progress"], view["counts"]["failed"]) == ("running", 0.5, 0)
    rota.post("/v1/agents/ann/resume")
    assert finished(rota, batch_id)["counts"] == {"succeeded": 1, "failed": 1, "cancelled": 0}


# -- parallelism ---------------------------------------------------------------------------------


def most_at_once(rota: Rota, ids: list[str]) -> int:
    now = most = 0
    for event in rota.events():
        if event.get("task") in ids:
            now += event["kind"] == "task_assigned"
            now -= event["kind"] in ("task_succeeded", "task_failed", "attempt_interrupted")
            most = max(most, now)
    return most


@pytest.mark.parametrize("parallelism", [1, 3])
def test_no_more_of_a_batch_run_at_once_than_it_asked_for(
    rota: Rota, tab: Target, parallelism: int
) -> None:
    tasks = [click("in", "in", agentId=f"agent-{n % 3}") for n in range(7)]
    batch_id, ids = submit(rota, *tasks, parallelism=parallelism)
    out = [click("out", agentId=f"agent-{n % 3}") for n in range(6)]
    other, _ = submit(rota, *out)
    finished(rota, other)
    assert look(rota, batch_id)["counts"]["ready"] == 7 - parallelism
    assert look(rota, batch_id)["parallelism"] == parallelism
    assert tab.tags().count("in") == parallelism
    tab.release("in")
    assert finished(rota, batch_id)["counts"]["succeeded"] == 7
    assert most_at_once(rota, ids) == parallelism


def test_two_batches_are_bounded_apart(rota: Rota, tab: Target) -> None:
    one, _ = submit(rota, *[click("one", "all")] * 3, parallelism=1)
    two, _ = submit(rota, *[click("two", "all")] * 3, parallelism=2)
    tab.wait_for(3)
    until(lambda: look(rota, two)["counts"].get("running") == 2)
    assert sorted(tab.tags()) == ["one", "two", "two"]
    tab.release("all")
    finished(rota, one)
    finished(rota, two)


def test_parallelism_holds_over_a_restart(rota: Rota, tab: Target) -> None:
    batch_id, ids = submit(rota, *[click("in", "in")] * 4, parallelism=2)
    tab.wait_for(2)
    rota.restart()
    tab.wait_for(4)
    assert look(rota, batch_id)["counts"]["ready"] == 2
    tab.release("in")
    finished(rota, batch_id)
    assert most_at_once(rota, ids) == 2


# -- one callback --------------------------------------------------------------------------------


def test_a_batch_tells_once_when_all_of_it_has_ended(rota: Rota, hooks: Target) -> None:
    url = f"{hooks.url}/batch"
    batch_id, ids = submit(
        rota,
        ECHO,
        {"action": "fail"},
        ECHO | {"callbackUrl": f"{hooks.url}/task"},
        callbackUrl=url,
    )
    until(lambda: rota.get("/v1/stats").json["callbacks"]["delivered"] == 2)
    by_path = {request.path: request for request in hooks.requests}
    assert set(by_path) == {"/batch", "/task"}
    told = by_path["/batch"]
    assert told.headers["x-rota-event"] == "batch.finished"
    assert told.headers["x-rota-batch-id"] == batch_id
    assert told.body == look(rota, batch_id) | {"callbackUrl": url}
    assert told.body["counts"] == {"succeeded": 2, "failed": 1, "cancelled": 0}
    assert by_path["/task"].body["taskId"] == ids[2]


def test_a_batchs_callback_is_tried_again_and_survives_a_restart(rota: Rota, hooks: Target) -> None:
    hooks.respond = lambda _: (500, b"")
    submit(rota, ECHO, callbackUrl=hooks.url)
    until(lambda: rota.get("/v1/stats").json["callbacks"]["failedTries"] == 1)
    rota.restart()
    hooks.respond = None
    until(lambda: rota.get("/v1/stats").json["callbacks"]["delivered"] == 1)
    assert len({request.headers["webhook-id"] for request in hooks.requests}) == 1


def test_a_cancelled_batch_tells_once_too(rota: Rota, hooks: Target) -> None:
    batch_id, _ = submit(rota, WAITS, WAITS, callbackUrl=hooks.url)
    assert not hooks.requests
    rota.post(f"/v1/batches/{batch_id}/cancel")
    until(lambda: rota.get("/v1/stats").json["callbacks"]["delivered"] == 1)
    (request,) = hooks.requests
    assert request.body["counts"] == {"succeeded": 0, "failed": 0, "cancelled": 2}


def test_a_callback_address_that_may_not_be_called_is_refused(rota: Rota) -> None:
    answer = post(rota, ECHO, callbackUrl="http://169.254.169.254/latest")
    assert (answer.status, answer.code) == (400, "callback_refused")
    assert rota.get("/v1/tasks").json["count"] == 0


# -- cancel --------------------------------------------------------------------------------------


def test_cancelling_a_batch_ends_what_has_not_ended(rota: Rota, tab: Target) -> None:
    batch_id, ids = submit(
        rota,
        ECHO, click("runs", "for ever"), WAITS, ECHO | {"delayMs": 60_000},
        ECHO | {"dependsOn": [1]},
    )  # fmt: skip
    tab.wait_for(1)
    until(lambda: look(rota, batch_id)["counts"]["succeeded"] == 1)
    answer = rota.post(f"/v1/batches/{batch_id}/cancel", {"reason": "enough"})
    assert (answer.status, answer.json) == (200, {"batchId": batch_id, "cancelled": 4})
    view = look(rota, batch_id)
    assert view["counts"] == {"succeeded": 1, "failed": 0, "cancelled": 4}
    for task_id in ids[1:]:
        task = rota.get(f"/v1/tasks/{task_id}").json
        assert task["error"] == {"code": "batch_cancelled", "message": "enough"}
    until(lambda: tab.left, what="the browser sees the connection close")
    finished(rota, batch_id)
    again = rota.post(f"/v1/batches/{batch_id}/cancel")
    assert (again.status, again.code) == (409, "conflict")


def test_a_cancelled_batch_says_so_without_a_reason(rota: Rota) -> None:
    batch_id, (task_id,) = submit(rota, WAITS)
    rota.post(f"/v1/batches/{batch_id}/cancel")
    assert batch_id in rota.get(f"/v1/tasks/{task_id}").json["error"]["message"]


# -- idempotency ---------------------------------------------------------------------------------


def test_a_repeat_of_a_batch_answers_with_the_batch(rota: Rota) -> None:
    tasks = [ECHO, WAITS]
    first = post(rota, *tasks, idempotencyKey="once")
    second = post(rota, *tasks, idempotencyKey="once")
    assert (first.status, second.status) == (202, 200)
    assert second.json["idempotent"] is True
    assert second.json["batchId"] == first.json["batchId"]
    assert [t["taskId"] for t in second.json["tasks"]] == [t["taskId"] for t in first.json["tasks"]]
    headers = {"Idempotency-Key": "once"}
    third = rota.request("POST", "/v1/batches", {"agentId": "ann", "tasks": tasks}, headers)
    assert (third.status, third.json["batchId"]) == (200, first.json["batchId"])
    assert len(rota.events(kind="batch_submitted")) == 1
    other = post(rota, *tasks, ECHO, idempotencyKey="once")
    assert (other.status, other.code) == (422, "idempotency_conflict")


def test_a_key_of_a_batch_is_no_key_for_a_task(rota: Rota) -> None:
    post(rota, ECHO, idempotencyKey="b")
    body = {"agentId": "ann", "action": "echo"}
    assert rota.post("/v1/tasks", {**body, "idempotencyKey": "b"}).status == 422
    rota.submit_native(idempotencyKey="t")
    assert post(rota, ECHO, idempotencyKey="t").status == 422


def test_a_hundred_repeats_at_once_make_one_batch(rota: Rota) -> None:
    with ThreadPoolExecutor(20) as threads:
        answers = list(
            threads.map(lambda _: post(rota, WAITS, WAITS, idempotencyKey="k"), range(100))
        )
    assert sorted({answer.status for answer in answers}) == [200, 202]
    assert len({answer.json["batchId"] for answer in answers}) == 1
    assert rota.get("/v1/tasks").json["count"] == 2


def test_a_refused_batch_does_not_use_up_its_key(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    waits = rota.submit_native(action="waits")
    assert post(rota, WAITS, idempotencyKey="k").status == 429
    rota.post(f"/v1/tasks/{waits}/cancel")
    assert post(rota, WAITS, idempotencyKey="k").status == 202


# -- over a restart, and later -------------------------------------------------------------------


def test_a_batch_is_the_same_after_a_restart(rota: Rota, tab: Target) -> None:
    batch_id, _ = submit(rota, ECHO, click("it", "it"), WAITS, parallelism=2, idempotencyKey="k")
    until(lambda: look(rota, batch_id)["counts"]["succeeded"] == 1)
    done, _ = submit(rota, ECHO)
    before = finished(rota, done)
    rota.restart()
    assert look(rota, done) == before
    tab.release("it")
    until(lambda: look(rota, batch_id)["counts"]["succeeded"] == 2)
    assert look(rota, batch_id)["counts"]["ready"] == 1


def test_a_batch_past_its_retention_is_still_answered_from_the_log(serve: Servers) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    tasks = [ECHO, {"action": "fail"}, ECHO | {"dependsOn": [1]}]
    batch_id, _ = submit(rota, *tasks, parallelism=2, idempotencyKey="k")
    view = finished(rota, batch_id)
    until(lambda: rota.get("/v1/tasks").json["count"] == 0, what="it is past its retention")
    rota.submit_native(action="waits")
    assert rota.get("/v1/stats").json["queue"]["tasksInMemory"] == 1
    assert look(rota, batch_id) == view
    again = post(rota, *tasks, parallelism=2, idempotencyKey="k")
    assert (again.status, again.json["batchId"]) == (200, batch_id)
    late = rota.post(f"/v1/batches/{batch_id}/cancel")
    assert (late.status, late.code) == (409, "conflict")
    rota.restart()
    assert look(rota, batch_id) == view


def test_batches_of_one_moment_have_ids_of_their_own(rota: Rota) -> None:
    """There are but a thousand ids to draw from in a moment, and batches are not tasks."""
    body = {"agentId": "ann", "tasks": [{"action": "echo"}]}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: rota.post("/v1/batches", body), range(1500)))
    taken = [answer.json["batchId"] for answer in answers if answer.status == 202]
    assert len(taken) > 500
    assert len(set(taken)) == len(taken)

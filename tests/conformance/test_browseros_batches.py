"""The BrowserOS task queue document: Batches."""

from __future__ import annotations

from typing import Any

import pytest
from support.chat_server import (
    ONCE,
    Chat,
    Hold,
    Status,
    completed,
    ended,
    event,
    moment_us,
    submit,
    submit_batch,
    told,
    with_chat,
)
from support.http_server import Rota, Servers, Target, until

NONE = dict.fromkeys(
    ["pending", "queued", "running", "completed", "failed", "cancelled", "waiting_dependency"], 0
)


@pytest.fixture
def wide(chat: Chat, serve: Servers) -> Rota:
    """A server that runs ten tasks at once."""
    return serve(with_chat(chat, maxConcurrent=10) | {"scheduler": {"workerCount": 20}})


def batch(rota: Rota, batch_id: str) -> dict[str, Any]:
    answer = rota.get(f"/tasks/batch/{batch_id}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def finished(rota: Rota, batch_id: str) -> dict[str, Any]:
    """Wait until a batch is finished; give it."""

    def look() -> dict[str, Any] | None:
        found = batch(rota, batch_id)
        return found if "completedAt" in found else None

    return until(look, what="the batch is finished")


def items(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"instruction": f"task {n}", **fields} for n in range(count)]


def holding(chat: Chat, count: int) -> list[dict[str, Any]]:
    """Tasks that each run until `all` or the task's own name is released."""
    for n in range(count):
        chat.on(f"task {n}", Hold(f"task {n}"), event(n))
    return items(count)


# -- submission ----------------------------------------------------------------------------------


def test_the_tasks_of_a_batch_get_the_same_batch_id(rota: Rota, chat: Chat) -> None:
    answer = rota.post("/tasks/batch", {"tasks": items(3)})
    assert answer.status == 201
    body = answer.json
    assert set(body) == {"batchId", "taskIds", "tasks", "createdAt"}
    assert [task["taskId"] for task in body["tasks"]] == body["taskIds"]
    assert [task["state"] for task in body["tasks"]] == ["pending"] * 3
    completed(rota, *body["taskIds"])
    assert {rota.task(task_id)["batchId"] for task_id in body["taskIds"]} == {body["batchId"]}
    assert chat.messages() == ["task 0", "task 1", "task 2"]
    listed = rota.get(f"/tasks?batchId={body['batchId']}").json["tasks"]
    assert {task["taskId"] for task in listed} == set(body["taskIds"])


@pytest.mark.parametrize("size", [1, 100])
def test_a_batch_has_from_1_to_100_tasks(rota: Rota, size: int) -> None:
    batch_id, ids = submit_batch(rota, *items(size))
    assert len(set(ids)) == size
    assert batch(rota, batch_id)["total"] == size


def test_a_batch_of_101_is_refused(rota: Rota) -> None:
    answer = rota.post("/tasks/batch", {"tasks": items(101)})
    assert (answer.status, answer.code) == (400, "batch_too_large")
    assert answer.json["details"] == {"tasks": 101, "max": 100}
    assert rota.get("/tasks/stats").json["total"] == 0


@pytest.mark.parametrize("tasks", [[], None, {}, "x", [[]], [1], [{}], [{"instruction": ""}]])
def test_an_empty_or_senseless_batch_is_refused(rota: Rota, tasks: Any) -> None:
    assert rota.post("/tasks/batch", {"tasks": tasks}).status == 400


def test_a_batch_with_one_bad_task_is_refused_whole(rota: Rota) -> None:
    bad: list[dict[str, Any]] = [
        {"instruction": 5},
        {"instruction": "x", "priority": "urgent"},
        {"instruction": "x", "timeoutMs": 600_001},
        {"instruction": "x", "retryPolicy": {"maxRetries": -1}},
        {"instruction": "x", "dependsOn": [99]},
        {"instruction": "x", "dependsOn": [-1]},
        {"instruction": "x", "dependsOn": ["ref:nobody"]},
        {"instruction": "x", "dependsOn": "task 0"},
    ]
    for each in bad:
        answer = rota.post("/tasks/batch", {"tasks": [*items(2), each]})
        assert answer.status == 400, each
    assert rota.get("/tasks/stats").json["total"] == 0


def test_a_ref_that_two_tasks_have_names_neither(rota: Rota) -> None:
    twins = [{"instruction": "x", "ref": "twin"}] * 2
    dependent = {"instruction": "y", "dependsOn": ["ref:twin"]}
    answer = rota.post("/tasks/batch", {"tasks": [*twins, dependent]})
    assert answer.status == 400
    assert "twin" in answer.json["error"]


def test_an_own_id_cannot_be_had_twice(rota: Rota) -> None:
    twins = [{"instruction": "x", "taskId": "twin"}] * 2
    answer = rota.post("/tasks/batch", {"tasks": twins})
    assert (answer.status, answer.code) == (409, "id_taken")
    submit(rota, "x", taskId="twin")
    assert rota.post("/tasks/batch", {"tasks": twins[:1]}).code == "id_taken"
    assert rota.get("/tasks/stats").json["total"] == 1


def test_a_batch_for_which_there_is_no_room_is_refused_whole(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 5}})
    submit_batch(rota, *items(3))
    answer = rota.post("/tasks/batch", {"tasks": items(3)})
    assert (answer.status, answer.code) == (429, "queue_full")
    assert "retry-after" in answer.headers
    submit_batch(rota, *items(2))
    assert rota.get("/tasks/stats").json["pending"] == 5


# -- individual dependencies, priorities, policies, webhooks -------------------------------------


def test_tasks_of_a_batch_have_individual_priorities(rota: Rota, chat: Chat) -> None:
    chat.on("block", Hold("block"), event("done"))
    block = submit(rota, "block")
    chat.wait_for(1)
    words = ["low", "normal", "critical", "high"]
    _, ids = submit_batch(rota, *({"instruction": word, "priority": word} for word in words))
    chat.release("block")
    completed(rota, block, *ids)
    assert chat.messages()[1:] == ["critical", "high", "normal", "low"]


def test_tasks_of_a_batch_have_individual_retry_policies_and_timeouts(
    rota: Rota, chat: Chat
) -> None:
    chat.on("slow", Hold("never"))
    _, ids = submit_batch(
        rota,
        {"instruction": "fail", "retryPolicy": ONCE},
        {"instruction": "fail", "retryPolicy": {"maxRetries": 2, "backoffMs": 1}},
        {"instruction": "slow", "retryPolicy": ONCE, "timeoutMs": 50},
        {"instruction": "good", "llmConfig": {"provider": "mine"}},
    )
    tasks = [ended(rota, task_id) for task_id in ids]
    assert [task["state"] for task in tasks] == ["failed", "failed", "failed", "completed"]
    assert [task["retryCount"] for task in tasks] == [0, 2, 0, 0]
    assert [task["timeoutMs"] for task in tasks] == [120_000, 120_000, 50, 120_000]
    assert [r.body["provider"] for r in chat.requests if r.message == "good"] == ["mine"]


def test_tasks_of_a_batch_have_individual_dependencies(rota: Rota, chat: Chat) -> None:
    outside = submit(rota, "outside")
    _, ids = submit_batch(
        rota,
        {"instruction": "last", "dependsOn": ["ref:b", 2, outside]},
        {"instruction": "b", "ref": "b", "dependsOn": [2]},
        {"instruction": "first"},
    )
    completed(rota, *ids)
    assert chat.messages() == ["outside", "first", "b", "last"]
    assert rota.task(ids[0])["dependsOn"] == [ids[1], ids[2], outside]


def test_tasks_of_a_batch_have_individual_webhooks_next_to_the_shared_one(
    rota: Rota, hooks: Target
) -> None:
    first, second = (
        {"instruction": "one", "webhookUrl": f"{hooks.url}/one"},
        {"instruction": "two"},
    )
    batch_id, ids = submit_batch(rota, first, second, webhookUrl=f"{hooks.url}/batch")
    until(lambda: "delivery_succeeded" in rota.kinds(batch_id), what="the batch is told")
    until(lambda: "delivery_succeeded" in rota.kinds(ids[0]), what="the task is told")
    assert sorted(request.path for request in hooks.requests) == ["/batch", "/one"]
    (own,) = [request.body for request in hooks.requests if request.path == "/one"]
    assert (own["taskId"], own["state"]) == (ids[0], "completed")


# -- parallelism ---------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 10])
def test_parallelism_bounds_how_many_of_a_batch_run_at_once(
    wide: Rota, chat: Chat, parallelism: int
) -> None:
    batch_id, ids = submit_batch(wide, *holding(chat, 12), parallelism=parallelism)
    for n in range(12):
        chat.wait_for(min(n + parallelism, 12))
        counts = batch(wide, batch_id)["counts"]
        assert counts["running"] + counts["queued"] <= parallelism
        assert chat.busy <= parallelism
        chat.release(f"task {n}")
    completed(wide, *ids)
    assert chat.peak == parallelism
    assert batch(wide, batch_id)["parallelism"] == parallelism


def test_without_parallelism_only_max_concurrent_bounds_a_batch(wide: Rota, chat: Chat) -> None:
    batch_id, _ = submit_batch(wide, *holding(chat, 12))
    chat.wait_for(10)
    assert wide.get("/tasks/stats").json["activeTasks"] == 10
    assert "parallelism" not in batch(wide, batch_id)


def test_max_concurrent_bounds_a_batch_of_higher_parallelism(rota: Rota, chat: Chat) -> None:
    _, ids = submit_batch(rota, *items(6), parallelism=10)
    completed(rota, *ids)
    assert chat.peak == 1


def test_a_batch_at_its_bound_does_not_hold_up_others(wide: Rota, chat: Chat) -> None:
    _, ids = submit_batch(wide, *holding(chat, 4), parallelism=1)
    chat.wait_for(1)
    _, others = submit_batch(wide, {"instruction": "other"}, {"instruction": "another"})
    completed(wide, submit(wide, "low", priority="low"), *others)
    assert sorted(chat.messages()) == ["another", "low", "other", "task 0"]
    for n in range(4):
        chat.release(f"task {n}")
    completed(wide, *ids)


def test_two_batches_have_their_own_bounds(wide: Rota, chat: Chat) -> None:
    for name in ("a", "b"):
        for n in range(3):
            chat.on(f"{name}{n}", Hold("all"), event(n))
        submit_batch(wide, *({"instruction": f"{name}{n}"} for n in range(3)), parallelism=2)
    chat.wait_for(4)
    assert sorted(chat.messages()) == ["a0", "a1", "b0", "b1"]


def test_the_bound_holds_over_retries(wide: Rota, chat: Chat) -> None:
    for n in range(12):
        if n % 3 == 0:
            chat.on(f"task {n}", Status(500))
        chat.on(f"task {n}", event(n))
    policy = {"retryPolicy": {"maxRetries": 2, "backoffMs": 1}}
    batch_id, _ = submit_batch(wide, *items(12, **policy), parallelism=2)
    assert finished(wide, batch_id)["state"] == "completed"
    assert chat.peak <= 2


@pytest.mark.parametrize("parallelism", [0, -1, 11, 1000, 2.5, "2", True, [2]])
def test_parallelism_is_from_1_to_10(rota: Rota, parallelism: Any) -> None:
    answer = rota.post("/tasks/batch", {"tasks": items(2), "parallelism": parallelism})
    assert answer.status == 400
    assert answer.json["details"] == {"field": "parallelism"}


# -- the shared webhook --------------------------------------------------------------------------


def test_the_shared_webhook_is_sent_once_at_the_end(rota: Rota, chat: Chat, hooks: Target) -> None:
    batch_id, ids = submit_batch(rota, *holding(chat, 3), webhookUrl=hooks.url)
    for n in range(2):
        chat.release(f"task {n}")
        completed(rota, ids[n])
    chat.wait_for(3)
    assert hooks.requests == []
    chat.release("task 2")
    until(lambda: "delivery_succeeded" in rota.kinds(batch_id), what="the batch is told")
    (request,) = hooks.requests
    assert request.headers["x-browseros-event"] == "batch.completed"
    body = request.body
    finish = batch(rota, batch_id)
    time_ms = (moment_us(finish["completedAt"]) - moment_us(finish["createdAt"])) // 1000
    assert body.pop("executionTimeMs") == time_ms
    assert body == {
        "batchId": batch_id,
        "state": "completed",
        "total": 3,
        "completed": 3,
        "failed": 0,
        "cancelled": 0,
        "tasks": [
            {
                "taskId": task_id,
                "state": "completed",
                "result": n,
                "executionTimeMs": rota.task(task_id)["executionTimeMs"],
            }
            for n, task_id in enumerate(ids)
        ],
    }


def test_the_shared_webhook_tells_how_each_task_ended(rota: Rota, hooks: Target) -> None:
    batch_id, ids = submit_batch(
        rota,
        {"instruction": "good"},
        {"instruction": "fail", "retryPolicy": ONCE},
        {"instruction": "then", "dependsOn": [1]},
        webhookUrl=hooks.url,
    )
    until(lambda: "delivery_succeeded" in rota.kinds(batch_id), what="the batch is told")
    (request,) = hooks.requests
    body = request.body
    assert (body["state"], body["completed"], body["failed"], body["cancelled"]) == (
        "failed",
        1,
        1,
        1,
    )
    assert [task["state"] for task in body["tasks"]] == ["completed", "failed", "cancelled"]
    assert body["tasks"][1]["error"] == "Chat API returned 500: Internal Server Error"
    assert body["tasks"][2]["error"] == f"dependency {ids[1]} failed"


def test_a_batch_that_lives_again_is_told_of_at_each_of_its_ends(
    rota: Rota, chat: Chat, hooks: Target
) -> None:
    chat.on("try", Status(500))
    chat.on("try", Hold("second life"), event("better"))
    item = {"instruction": "try", "retryPolicy": ONCE}
    batch_id, (task_id,) = submit_batch(rota, item, webhookUrl=hooks.url)
    until(lambda: "delivery_succeeded" in rota.kinds(batch_id), what="the first end is told")
    assert hooks.requests[0].body["state"] == "failed"
    assert rota.post(f"/tasks/{task_id}/retry").status == 202
    chat.wait_for(2)
    shown = batch(rota, batch_id)
    assert (shown["state"], shown["progress"], shown["counts"]["failed"]) == ("running", 0, 0)
    chat.release("second life")
    assert finished(rota, batch_id)["state"] == "completed"
    until(lambda: rota.kinds(batch_id).count("delivery_succeeded") == 2, what="the second, too")
    assert [request.body["state"] for request in hooks.requests] == ["failed", "completed"]


def test_a_batch_that_lives_again_is_not_told_of_in_between(
    rota: Rota, chat: Chat, hooks: Target
) -> None:
    answers = iter([500, *[200] * 5])
    hooks.respond = lambda _: (next(answers), b"")
    chat.on("try", Status(500))
    chat.on("try", Hold("never"))
    item = {"instruction": "try", "retryPolicy": ONCE, "timeoutMs": 1500}
    batch_id, (task_id,) = submit_batch(rota, item, webhookUrl=hooks.url)
    until(lambda: "delivery_failed" in rota.kinds(batch_id), what="the first try is in vain")
    assert rota.post(f"/tasks/{task_id}/retry").status == 202
    finished(rota, batch_id)  # meanwhile, a second after the first, the second try is due
    until(lambda: not rota.get("/v1/stats").json["callbacks"]["pending"], what="all is told")
    bodies = [request.body for request in hooks.requests]
    assert {body["state"] for body in bodies} == {"failed"}, bodies
    assert all(body["executionTimeMs"] >= 0 for body in bodies), bodies


# -- looking -------------------------------------------------------------------------------------


def test_a_batch_shows_counts_and_progress(rota: Rota, chat: Chat) -> None:
    chat.on("work", Hold("work"), event("done"))
    batch_id, ids = submit_batch(
        rota,
        {"instruction": "good", "priority": "critical"},
        {"instruction": "fail", "retryPolicy": ONCE, "priority": "high"},
        {"instruction": "doomed", "dependsOn": [1]},
        {"instruction": "work"},
        {"instruction": "wait", "priority": "low"},
        {"instruction": "then", "dependsOn": [4]},
        {"instruction": "never", "dependsOn": ["missing"]},
        {"instruction": "last", "dependsOn": ["missing"]},
        parallelism=3,
        webhookUrl="http://127.0.0.1:9/hook",
    )
    until(lambda: "work" in chat.messages(), what="the fourth runs")
    ended(rota, ids[2])
    shown = batch(rota, batch_id)
    assert set(shown) == {
        "batchId",
        "state",
        "total",
        "counts",
        "progress",
        "tasks",
        "createdAt",
        "parallelism",
        "webhookUrl",
    }
    assert (shown["batchId"], shown["state"], shown["total"]) == (batch_id, "running", 8)
    assert shown["counts"] == {
        **NONE,
        "completed": 1,
        "failed": 1,
        "cancelled": 1,
        "running": 1,
        "pending": 1,
        "waiting_dependency": 3,
    }
    assert shown["progress"] == 0.375
    assert [task["taskId"] for task in shown["tasks"]] == ids
    assert [task["state"] for task in shown["tasks"]][:4] == [
        "completed",
        "failed",
        "cancelled",
        "running",
    ]


def test_a_finished_batch_says_how_it_ended(rota: Rota, chat: Chat) -> None:
    good, _ = submit_batch(rota, *items(2))
    bad, _ = submit_batch(
        rota, {"instruction": "good"}, {"instruction": "fail", "retryPolicy": ONCE}
    )
    for batch_id, state, counts in (
        (good, "completed", {"completed": 2}),
        (bad, "failed", {"completed": 1, "failed": 1}),
    ):
        shown = finished(rota, batch_id)
        assert (shown["state"], shown["progress"]) == (state, 1)
        assert shown["counts"] == {**NONE, **counts}
        assert moment_us(shown["createdAt"]) <= moment_us(shown["completedAt"])


def test_a_batch_is_shown_natively_too(rota: Rota) -> None:
    batch_id, ids = submit_batch(rota, *items(2))
    finished(rota, batch_id)
    native = rota.get(f"/v1/batches/{batch_id}").json
    assert (native["state"], native["counts"]["succeeded"]) == ("finished", 2)
    assert [task["taskId"] for task in native["tasks"]] == ids


def test_unknown_batches_are_not_found(rota: Rota) -> None:
    task_id = submit(rota, "look")
    for batch_id in ("bat_nobody", task_id, "x", "%00"):
        assert rota.get(f"/tasks/batch/{batch_id}").status == 404
        assert rota.request("DELETE", f"/tasks/batch/{batch_id}").status == 404


def test_the_events_of_a_batch_carry_its_id(rota: Rota) -> None:
    batch_id, ids = submit_batch(rota, *items(2))
    finished(rota, batch_id)
    for task_id in ids:
        found = told(rota, task=task_id)
        assert [each["type"] for each in found][1:] == ["task.started", "task.completed"]
        assert {each["batchId"] for each in found[1:]} == {batch_id}


# -- cancelling ----------------------------------------------------------------------------------


def test_cancelling_a_batch_cancels_all_that_has_not_ended(
    rota: Rota, chat: Chat, hooks: Target
) -> None:
    tasks = [
        *holding(chat, 3),
        {"instruction": "then", "dependsOn": [2]},
        {"instruction": "never", "dependsOn": ["missing"]},
    ]
    batch_id, ids = submit_batch(rota, *tasks, webhookUrl=hooks.url)
    chat.release("task 0")
    chat.wait_for(2)
    completed(rota, ids[0])
    other = submit(rota, "other")
    answer = rota.request("DELETE", f"/tasks/batch/{batch_id}")
    assert answer.status == 200
    assert answer.json == {"batchId": batch_id, "state": "cancelled", "cancelled": 4}
    chat.wait_until_left("task 1")
    shown = finished(rota, batch_id)
    assert shown["state"] == "cancelled"
    assert shown["counts"] == {**NONE, "completed": 1, "cancelled": 4}
    completed(rota, other)
    assert chat.messages() == ["task 0", "task 1", "other"]
    until(lambda: "delivery_succeeded" in rota.kinds(batch_id), what="the batch is told")
    (request,) = hooks.requests
    assert (request.body["state"], request.body["cancelled"]) == ("cancelled", 4)


def test_a_finished_batch_cannot_be_cancelled(rota: Rota) -> None:
    batch_id, _ = submit_batch(rota, *items(2))
    finished(rota, batch_id)
    for _ in range(2):
        assert rota.request("DELETE", f"/tasks/batch/{batch_id}").status == 409
    assert batch(rota, batch_id)["state"] == "completed"


def test_one_task_of_a_batch_can_be_cancelled(rota: Rota, chat: Chat) -> None:
    batch_id, ids = submit_batch(rota, *holding(chat, 2))
    chat.wait_for(1)
    assert rota.request("DELETE", f"/tasks/{ids[1]}").status == 200
    chat.release("task 0")
    shown = finished(rota, batch_id)
    assert shown["counts"] == {**NONE, "completed": 1, "cancelled": 1}

"""The BrowserOS task queue document, "persisted": what a restart and a repeat must not change."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.chat_server import (
    ONCE,
    Chat,
    Hold,
    Status,
    completed,
    ended,
    event,
    submit,
    submit_batch,
    with_chat,
)
from support.http_server import Rota, Servers, Target, running_process, until

if TYPE_CHECKING:
    from pathlib import Path


def restart(rota: Rota) -> None:
    """Stop and start on the same folder; what was loaded is what a replay of the log gives."""
    rota.restart()
    live, replayed = rota.digests()
    assert live == replayed


# -- restart -------------------------------------------------------------------------------------


def test_a_running_task_runs_again_and_has_lost_no_retry(rota: Rota, chat: Chat) -> None:
    chat.on("work", Hold("work"), event("done"))
    task_id = submit(rota, "work", retryPolicy=ONCE)
    chat.wait_for(1)
    restart(rota)
    chat.wait_for(2)
    chat.release("work")
    task = ended(rota, task_id)
    assert (task["state"], task["result"], task["retryCount"]) == ("completed", "done", 0)


def test_dependencies_are_kept(rota: Rota, chat: Chat) -> None:
    chat.on("first", Hold("first"), event({"n": 1}))
    first = submit(rota, "first")
    then = submit(rota, f"then {{{{{first}.n}}}}", dependsOn=[first])
    orphan = submit(rota, "orphan", dependsOn=["later"])
    before = [rota.task(task_id) for task_id in (then, orphan)]
    restart(rota)
    assert [rota.task(task_id) for task_id in (then, orphan)] == before
    chat.release("first")
    completed(rota, first, then)
    submit(rota, "late", taskId="later")
    completed(rota, orphan)
    assert "then 1" in chat.messages()


def test_a_dependency_that_fails_after_the_restart_still_cancels(rota: Rota, chat: Chat) -> None:
    chat.on("first", Hold("first"), Status(500))
    ids = [submit(rota, "first", retryPolicy=ONCE)]
    for n in range(5):
        ids.append(submit(rota, f"then {n}", dependsOn=[ids[-1]]))
    restart(rota)
    chat.release("first")
    assert [ended(rota, task_id)["state"] for task_id in ids] == ["failed", *["cancelled"] * 5]


def test_backoff_is_kept_to_the_moment(rota: Rota, chat: Chat) -> None:
    chat.on("fail", Status(500))
    task_id = submit(rota, "fail", retryPolicy={"backoffMs": 30_000})
    until(lambda: "nextAttemptAt" in rota.task(task_id), what="the task backs off")
    before = rota.task(task_id)
    restart(rota)
    assert rota.task(task_id) == before
    assert before["state"] == "pending"
    assert len(chat.requests) == 1


def test_a_retry_that_came_due_during_the_restart_is_made(rota: Rota, chat: Chat) -> None:
    chat.on("fail", Status(500))
    policy = {"maxRetries": 2, "backoffMs": 200, "backoffMultiplier": 1}
    task_id = submit(rota, "fail", retryPolicy=policy)
    until(lambda: "nextAttemptAt" in rota.task(task_id), what="the task backs off")
    restart(rota)
    assert ended(rota, task_id)["retryCount"] == 2
    assert len(chat.requests) == 3


def test_a_batch_goes_on_with_its_bound_and_is_told_of_once(
    serve: Servers, chat: Chat, hooks: Target
) -> None:
    rota = serve(with_chat(chat, maxConcurrent=4))
    for n in range(6):
        chat.on(f"task {n}", Hold(f"task {n}"), event(n))
    items = [{"instruction": f"task {n}"} for n in range(6)]
    batch_id, ids = submit_batch(rota, *items, parallelism=2, webhookUrl=hooks.url)
    chat.release("task 0")
    completed(rota, ids[0])
    chat.wait_for(3)
    restart(rota)
    chat.wait_for(5)
    shown = rota.get(f"/tasks/batch/{batch_id}").json
    assert (shown["counts"]["completed"], shown["counts"]["running"]) == (1, 2)
    assert shown["counts"]["pending"] == 3
    assert (shown["parallelism"], shown["webhookUrl"]) == (2, hooks.url)
    for n in range(6):
        chat.release(f"task {n}")
    completed(rota, *ids)
    until(lambda: "delivery_succeeded" in rota.kinds(batch_id), what="the batch is told")
    (request,) = hooks.requests
    assert request.body["completed"] == 6
    restart(rota)
    assert rota.get(f"/tasks/batch/{batch_id}").json["state"] == "completed"
    assert len(hooks.requests) == 1


def test_priorities_are_kept(rota: Rota, chat: Chat) -> None:
    chat.on("block", Hold("block"), event("done"))
    ids = [submit(rota, "block", priority="critical")]
    chat.wait_for(1)
    ids += [submit(rota, word, priority=word) for word in ("low", "high", "normal")]
    restart(rota)
    chat.release("block")
    completed(rota, *ids)
    assert chat.messages() == ["block", "block", "high", "normal", "low"]


def test_ends_are_kept(rota: Rota, chat: Chat) -> None:
    chat.on("fail", Status(500))
    ids = [submit(rota, text, retryPolicy=ONCE) for text in ("good", "fail")]
    ids.append(submit(rota, "gone", dependsOn=["never"], llmConfig={"a": 1}))
    rota.request("DELETE", f"/tasks/{ids[2]}")
    before = [ended(rota, task_id) for task_id in ids]
    stats = rota.get("/tasks/stats").json
    restart(rota)
    assert [rota.task(task_id) for task_id in ids] == before
    assert rota.get("/tasks/stats").json == stats
    assert rota.post(f"/tasks/{ids[1]}/retry").status == 202


def test_a_killed_server_has_lost_nothing(tmp_path: Path, chat: Chat) -> None:
    chat.on("first", Hold("first"), event("done"))
    chat.on("fail", Status(500))
    with running_process(tmp_path, with_chat(chat, maxConcurrent=2)) as rota:
        batch_id, ids = submit_batch(
            rota,
            {"instruction": "first", "taskId": "first"},
            {"instruction": "then", "dependsOn": [0]},
            {"instruction": "fail", "retryPolicy": {"backoffMs": 20_000}},
            parallelism=2,
            idempotencyKey="k",
        )
        until(lambda: "nextAttemptAt" in rota.task(ids[2]), what="the third backs off")
        chat.wait_for(2)
        before = [rota.task(task_id) for task_id in ids[1:]]
        rota.end(signal.SIGKILL)
        rota.start()
        assert [rota.task(task_id) for task_id in ids[1:]] == before
        chat.release("first")
        completed(rota, *ids[:2])
        assert rota.task("first")["retryCount"] == 0
        shown = rota.get(f"/tasks/batch/{batch_id}").json
        assert (shown["counts"]["completed"], shown["counts"]["pending"]) == (2, 1)


# -- idempotency keys ----------------------------------------------------------------------------


def keyed(rota: Rota, text: str = "look", key: str = "key-1", **headers: str) -> Any:
    return rota.post("/tasks", {"instruction": text, "idempotencyKey": key}, **headers)


def test_a_repeat_gives_the_same_task(rota: Rota, chat: Chat) -> None:
    first = keyed(rota)
    assert first.status == 201
    again = keyed(rota)
    assert again.status == 200
    assert again.json["taskId"] == first.json["taskId"]
    assert again.json["createdAt"] == first.json["createdAt"]
    assert again.json["idempotent"] is True
    completed(rota, first.json["taskId"])
    assert keyed(rota).json["state"] == "completed"
    assert chat.messages() == ["look"]


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Idempotency-Key"])
def test_the_key_can_come_as_a_header(rota: Rota, name: str) -> None:
    first = rota.post("/tasks", {"instruction": "look"}, **{name: "key-1"})
    again = rota.post("/tasks", {"instruction": "look"}, **{name: "key-1"})
    assert (first.status, again.status) == (201, 200)
    assert first.json["taskId"] == again.json["taskId"] == keyed(rota).json["taskId"]


def test_another_request_under_the_same_key_is_refused(rota: Rota) -> None:
    keyed(rota)
    answer = keyed(rota, "something else")
    assert (answer.status, answer.code) == (422, "idempotency_conflict")
    assert rota.get("/tasks/stats").json["total"] == 1


def test_a_hundred_submissions_at_once_make_one_task(rota: Rota, chat: Chat) -> None:
    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(lambda _: keyed(rota), range(100)))
    assert sorted(answer.status for answer in answers) == [200] * 99 + [201]
    (task_id,) = {answer.json["taskId"] for answer in answers}
    completed(rota, task_id)
    assert rota.get("/tasks/stats").json["total"] == 1
    assert chat.messages() == ["look"]


def test_a_hundred_batches_at_once_make_one_batch(rota: Rota, chat: Chat) -> None:
    body = {"tasks": [{"instruction": f"task {n}"} for n in range(3)], "idempotencyKey": "key-1"}
    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(lambda _: rota.post("/tasks/batch", body), range(100)))
    assert sorted(answer.status for answer in answers) == [200] * 99 + [201]
    (batch_id,) = {answer.json["batchId"] for answer in answers}
    (ids,) = {tuple(answer.json["taskIds"]) for answer in answers}
    completed(rota, *ids)
    assert rota.get(f"/tasks/batch/{batch_id}").json["counts"]["completed"] == 3
    assert chat.messages() == ["task 0", "task 1", "task 2"]


def test_keys_are_kept_over_a_restart(rota: Rota, chat: Chat) -> None:
    body = {"tasks": [{"instruction": "one"}], "idempotencyKey": "batch-key"}
    task, batch = keyed(rota).json, rota.post("/tasks/batch", body).json
    completed(rota, task["taskId"], *batch["taskIds"])
    restart(rota)
    assert keyed(rota).json["taskId"] == task["taskId"]
    again = rota.post("/tasks/batch", body)
    assert (again.status, again.json["batchId"]) == (200, batch["batchId"])
    assert again.json["taskIds"] == batch["taskIds"]
    assert keyed(rota, "something else").status == 422
    assert chat.messages() == ["look", "one"]


def test_own_ids_stay_taken_over_a_restart(rota: Rota) -> None:
    submit(rota, "look", taskId="mine")
    restart(rota)
    answer = rota.post("/tasks", {"instruction": "look", "taskId": "mine"})
    assert (answer.status, answer.code) == (409, "id_taken")


@pytest.mark.parametrize("key", ["", " ", "a\nb", "k" * 201, 5, ["k"], {}])
def test_senseless_keys_are_refused(rota: Rota, key: Any) -> None:
    for path, body in (
        ("/tasks", {"instruction": "look"}),
        ("/tasks/batch", {"tasks": [{"instruction": "look"}]}),
    ):
        assert rota.post(path, {**body, "idempotencyKey": key}).status == 400
    assert rota.get("/tasks/stats").json["total"] == 0


def test_a_key_and_a_header_that_differ_are_refused(rota: Rota) -> None:
    assert keyed(rota, **{"X-Idempotency-Key": "key-2"}).status == 400

"""A task can say whom to tell when it has ended."""

from __future__ import annotations

from support.http_server import Rota, Target, until


def delivered(rota: Rota, task_id: str) -> bool:
    return "delivery_succeeded" in rota.kinds(task_id)


def test_the_end_of_a_task_is_told_once(rota: Rota, receiver: Target) -> None:
    task_id = rota.submit("ann", tabId="t", callbackUrl=f"{receiver.url}/done")

    until(lambda: delivered(rota, task_id))

    (request,) = receiver.requests
    assert request.path == "/done"
    assert request.body == rota.task(task_id)
    assert request.headers["x-pinchtab-task-id"] == task_id


def test_a_native_task_is_told_natively(rota: Rota, receiver: Target) -> None:
    task_id = rota.submit_native("ann", "echo", callbackUrl=receiver.url)

    until(lambda: delivered(rota, task_id))

    (request,) = receiver.requests
    assert request.headers["x-rota-event"] == "task.succeeded"
    assert request.body == rota.get(f"/v1/tasks/{task_id}").json


def test_a_receiver_that_is_down_is_tried_again(rota: Rota, receiver: Target) -> None:
    answers = iter([500, 200])
    receiver.respond = lambda _: (next(answers), b"")
    task_id = rota.submit_native("ann", "echo", callbackUrl=receiver.url)

    until(lambda: delivered(rota, task_id), what="the second try succeeds")

    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert rota.task(task_id)["state"] == "done"


def test_every_callback_is_delivered_without_a_hitch(rota: Rota, receiver: Target) -> None:
    tasks = [rota.submit_native("ann", "echo", callbackUrl=receiver.url) for _ in range(5)]

    until(lambda: all(delivered(rota, task_id) for task_id in tasks))

    assert len(receiver.requests) == 5
    assert rota.events(kind="actor_failed") == []

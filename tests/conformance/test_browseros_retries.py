"""The BrowserOS task queue document: Retry Strategy.

Delays are read from the history: when an attempt failed, and when the next was due. Where real time
must pass, it does so with a small `backoffMs`.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.chat_server import (
    ONCE,
    Chat,
    Cut,
    Hold,
    Status,
    completed,
    ended,
    event,
    lived,
    moment_us,
    submit,
    told,
    with_chat,
)
from support.http_server import Rota, Servers, Target, until

DEFAULT = {"maxRetries": 3, "backoffMs": 1000, "backoffMultiplier": 2}
FAILURE = "Chat API returned 500: Internal Server Error"


@pytest.fixture
def rota(chat: Chat, serve: Servers) -> Rota:
    """A server with the document's defaults, but for how many run at once."""
    return serve(with_chat(chat, maxConcurrent=4))


def backing_off(rota: Rota, task_id: str) -> dict[str, Any]:
    """Wait until a task waits for its next attempt; give it."""

    def look() -> dict[str, Any] | None:
        task = rota.task(task_id)
        return task if "nextAttemptAt" in task else None

    return until(look, what="the task backs off")


def delays_ms(rota: Rota, *task_ids: str) -> list[float]:
    """The pauses after each failure, as the log has them; of several tasks the longest."""
    rows = []
    for task_id in task_ids:
        failed = rota.events(task=task_id, kind="attempt_failed")
        rows.append([(each["data"]["next_at"] - each["at"]) / 1000 for each in failed])
    assert len({len(row) for row in rows}) == 1, rows
    return [max(column) for column in zip(*rows, strict=True)]


def assert_delays(found: list[float], table: list[float]) -> None:
    assert len(found) == len(table), found
    for delay, wanted in zip(found, table, strict=True):
        assert delay == pytest.approx(wanted), (found, table)


# -- Default Configuration, Backoff Formula ------------------------------------------------------


def test_by_default_a_task_is_retried_three_times_after_1_2_and_4_seconds(
    rota: Rota, chat: Chat
) -> None:
    task_id = submit(rota, "fail")
    assert rota.task(task_id)["retryPolicy"] == DEFAULT
    seen = set()

    def look() -> bool:
        task = rota.task(task_id)
        seen.add((task["state"], "error" in task))
        return task["state"] == "failed"

    until(look, within_s=30, what="the task fails for good")
    assert_delays(delays_ms(rota, task_id), [1000, 2000, 4000])
    assert len(chat.requests) == 1 + 3
    assert rota.task(task_id)["retryCount"] == rota.task(task_id)["maxRetries"] == 3
    assert {state for state, has_error in seen if has_error} == {"failed"}
    assert lived(rota, task_id).count("failed") == 1, "no failure is visible that is not final"


def test_the_table_goes_on_doubling_up_to_the_maximum(serve: Servers, chat: Chat) -> None:
    retry = {"baseMs": 10, "maxMs": 600, "maxAttempts": 9}
    rota = serve(with_chat(chat, maxConcurrent=4, retry=retry))
    ids = [submit(rota, "fail") for _ in range(4)]
    for task_id in ids:
        assert ended(rota, task_id)["state"] == "failed"
    assert_delays(delays_ms(rota, *ids), [10, 20, 40, 80, 160, 320, 600, 600])


def test_no_delay_is_longer_than_60_seconds(rota: Rota) -> None:
    task_id = submit(rota, "fail", retryPolicy={"backoffMs": 3_600_000})
    backing_off(rota, task_id)
    assert_delays(delays_ms(rota, task_id), [60_000])


def test_every_part_of_a_policy_has_its_default(rota: Rota) -> None:
    for part, value in {"maxRetries": 7, "backoffMs": 5, "backoffMultiplier": 4}.items():
        task_id = submit(rota, "good", retryPolicy={part: value})
        assert rota.task(task_id)["retryPolicy"] == {**DEFAULT, part: value}
    for nothing in ({}, None, dict.fromkeys(DEFAULT)):
        task_id = submit(rota, "good", retryPolicy=nothing)
        assert rota.task(task_id)["retryPolicy"] == DEFAULT


# -- Per-Task Override ---------------------------------------------------------------------------


def test_the_example_policy_is_kept_and_its_first_delay_is_its_own(rota: Rota) -> None:
    policy = {"maxRetries": 5, "backoffMs": 2000, "backoffMultiplier": 3}
    task_id = submit(rota, "fail", retryPolicy=policy)
    task = backing_off(rota, task_id)
    assert task["retryPolicy"] == policy
    assert task["maxRetries"] == 5
    assert_delays(delays_ms(rota, task_id), [2000])


def test_the_example_policy_a_hundred_times_faster(rota: Rota, chat: Chat) -> None:
    policy = {"maxRetries": 5, "backoffMs": 20, "backoffMultiplier": 3}
    ids = [submit(rota, "fail", retryPolicy=policy) for _ in range(4)]
    for task_id in ids:
        assert ended(rota, task_id)["state"] == "failed"
    assert_delays(delays_ms(rota, *ids), [20, 60, 180, 540, 1620])
    assert len(chat.requests) == 4 * (1 + 5)


def test_without_retries_the_first_failure_is_final(rota: Rota, chat: Chat) -> None:
    task_id = submit(rota, "fail", retryPolicy=ONCE)
    task = ended(rota, task_id)
    assert (task["state"], task["retryCount"], task["maxRetries"]) == ("failed", 0, 0)
    assert len(chat.requests) == 1


def test_a_policy_without_retries_is_shown_as_it_was_given(rota: Rota) -> None:
    policy = {"maxRetries": 0, "backoffMs": 20, "backoffMultiplier": 3}
    task_id = submit(rota, "good", retryPolicy=policy)
    assert rota.task(task_id)["retryPolicy"] == policy


def test_a_multiplier_of_one_waits_the_same_every_time(rota: Rota) -> None:
    policy = {"maxRetries": 4, "backoffMs": 50, "backoffMultiplier": 1}
    ids = [submit(rota, "fail", retryPolicy=policy) for _ in range(4)]
    for task_id in ids:
        ended(rota, task_id)
    assert_delays(delays_ms(rota, *ids), [50] * 4)


def test_no_backoff_retries_at_once(rota: Rota, chat: Chat) -> None:
    task_id = submit(rota, "fail", retryPolicy={"backoffMs": 0})
    assert ended(rota, task_id)["retryCount"] == 3
    assert len(chat.requests) == 4


def test_the_most_retries_there_are_end(rota: Rota, chat: Chat) -> None:
    task_id = submit(rota, "fail", retryPolicy={"maxRetries": 99, "backoffMs": 0})
    assert ended(rota, task_id)["retryCount"] == 99
    assert len(chat.requests) == 100


# -- Retry Flow ----------------------------------------------------------------------------------

QUICK = {"maxRetries": 1, "backoffMs": 1}
TROUBLE = {
    "status 500": (Status(500, "Internal Server Error"),),
    "status 503": (Status(503),),
    "status 404": (Status(404, "no chat here"),),
    "status 302": (Status(302, headers={"Location": "/elsewhere"}),),
    "broken off": (event({"step": 1}), b'data: {"half', Cut()),
    "refused": (Cut(),),
    "empty": (),
    "no JSON": (b"data: not json\n\n",),
    "error event": (event({"type": "error", "message": "the model is overloaded"}),),
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_step_1_every_failed_execution_is_retried(rota: Rota, chat: Chat, trouble: str) -> None:
    chat.on("try", *TROUBLE[trouble])
    chat.on("try", event("better"))
    task_id = submit(rota, "try", retryPolicy=QUICK)
    task = ended(rota, task_id)
    assert (task["state"], task["result"], task["retryCount"]) == ("completed", "better", 1)
    assert "error" not in task
    assert "lastError" not in task


def test_step_1_a_timeout_is_retried(rota: Rota, chat: Chat) -> None:
    chat.on("try", Hold("never"))
    chat.on("try", event("better"))
    completed(rota, submit(rota, "try", retryPolicy=QUICK, timeoutMs=100))
    chat.wait_until_left("try")


def test_step_1_a_chat_that_cannot_be_reached_is_retried(rota: Rota, chat: Chat) -> None:
    chat.close()
    task_id = submit(rota, "try", retryPolicy=QUICK)
    task = ended(rota, task_id)
    assert (task["state"], task["retryCount"]) == ("failed", 1)
    assert "cannot be reached" in task["error"]


def test_step_2_every_failure_is_a_task_failed_event(rota: Rota) -> None:
    task_id = submit(rota, "fail", retryPolicy={"maxRetries": 2, "backoffMs": 1})
    ended(rota, task_id)
    failed = [each for each in told(rota, task=task_id) if each["type"] == "task.failed"]
    assert [each["state"] for each in failed] == ["pending", "pending", "failed"]
    assert {each["error"] for each in failed} == {FAILURE}
    assert ["nextAttemptAt" in each for each in failed] == [True, True, False]


def test_step_4_during_backoff_a_task_is_pending_with_its_next_attempt(rota: Rota) -> None:
    task_id = submit(rota, "fail")
    task = backing_off(rota, task_id)
    assert task["state"] == "pending"
    assert task["lastError"] == FAILURE
    assert not {"error", "completedAt", "executionTimeMs"} & set(task)
    (failed,) = rota.events(task=task_id, kind="attempt_failed")
    assert moment_us(task["nextAttemptAt"]) == failed["data"]["next_at"]
    native = rota.get(f"/v1/tasks/{task_id}").json
    assert (native["state"], native["nextAttemptAt"]) == ("scheduled", task["nextAttemptAt"])
    assert rota.get("/tasks/stats").json["pending"] == 1


def test_step_4_the_retry_count_goes_up_before_the_wait(rota: Rota) -> None:
    task_id = submit(rota, "fail")
    assert backing_off(rota, task_id)["retryCount"] == 1


def test_step_4_a_task_in_backoff_can_be_cancelled(rota: Rota, chat: Chat) -> None:
    task_id = submit(rota, "fail", retryPolicy={"backoffMs": 60_000})
    backing_off(rota, task_id)
    assert rota.request("DELETE", f"/tasks/{task_id}").status == 200
    assert rota.task(task_id)["state"] == "cancelled"
    assert "nextAttemptAt" not in rota.task(task_id)
    assert len(chat.requests) == 1


@pytest.mark.parametrize("priority", ["high", "normal"])
def test_step_4_a_retry_is_dequeued_by_priority_then_creation_time(
    serve: Servers, chat: Chat, priority: str
) -> None:
    rota = serve(with_chat(chat))
    chat.on("old", Hold("all are there"), Status(500))
    chat.on("old", event("better"))
    chat.on("block", Hold("block"), event("done"))
    old = submit(rota, "old", priority=priority, retryPolicy=QUICK)
    chat.wait_for(1)
    block = submit(rota, "block", priority="critical")
    new = submit(rota, "new")
    chat.release("all are there")
    until(lambda: "block" in chat.messages(), what="the slot is taken")
    until(lambda: "task_released" in rota.kinds(old), what="the retry is ready")
    chat.release("block")
    completed(rota, block, old, new)
    assert chat.messages() == ["old", "block", "old", "new"]


def test_step_4_the_chats_own_retry_after_is_kept(rota: Rota, chat: Chat) -> None:
    chat.on("busy", Status(429, "slow down", headers={"Retry-After": "7"}))
    task_id = submit(rota, "busy", retryPolicy={"backoffMs": 1})
    task = backing_off(rota, task_id)
    assert_delays(delays_ms(rota, task_id), [7000])
    assert task["lastError"] == "Chat API returned 429: slow down"


def test_step_5_only_the_final_failure_is_told_by_webhook(rota: Rota, hooks: Target) -> None:
    policy = {"maxRetries": 3, "backoffMs": 1}
    task_id = submit(rota, "fail", retryPolicy=policy, webhookUrl=hooks.url)
    assert ended(rota, task_id)["retryCount"] == 3
    until(lambda: "delivery_succeeded" in rota.kinds(task_id), what="the webhook is delivered")
    (request,) = hooks.requests
    assert (request.body["state"], request.body["error"]) == ("failed", FAILURE)


def test_what_no_repetition_can_mend_is_not_retried(rota: Rota, chat: Chat) -> None:
    chat.on("large", b"data: [" + b"1," * (1 << 20) + b"1]\n\n")
    task = ended(rota, submit(rota, "large", retryPolicy={"maxRetries": 5, "backoffMs": 1}))
    assert (task["state"], task["retryCount"]) == ("failed", 0)
    assert "larger than" in task["error"]
    assert len(chat.requests) == 1


def test_a_chat_can_say_that_a_failure_is_final(rota: Rota, chat: Chat) -> None:
    chat.on("no", Status(422, '{"error": "no such profile", "retryable": false}'))
    task = ended(rota, submit(rota, "no"))
    assert (task["state"], task["retryCount"]) == ("failed", 0)


# -- by hand -------------------------------------------------------------------------------------


def test_a_task_that_lives_again_is_told_of_by_webhook_only_at_its_ends(
    rota: Rota, chat: Chat, hooks: Target
) -> None:
    answers = iter([500, *[200] * 5])
    hooks.respond = lambda _: (next(answers), b"")
    chat.on("try", Status(500))
    chat.on("try", Hold("never"))
    task_id = submit(rota, "try", retryPolicy=ONCE, webhookUrl=hooks.url, timeoutMs=1500)
    until(lambda: "delivery_failed" in rota.kinds(task_id), what="the first try is in vain")
    assert rota.post(f"/tasks/{task_id}/retry").status == 202
    ended(
        rota, task_id
    )  # meanwhile, a second after the first, the second try of the webhook is due
    until(lambda: not rota.get("/v1/stats").json["callbacks"]["pending"], what="all is told")
    bodies = [request.body for request in hooks.requests]
    assert {body["state"] for body in bodies} == {"failed"}, bodies
    assert all(body["executionTimeMs"] >= 0 for body in bodies), bodies

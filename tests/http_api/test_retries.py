"""Retries: which failures are worth another attempt, when it comes, and when it ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Received, Rota, Servers, Target, ended, look, until

from rota.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

AT_ONCE: dict[str, Any] = {"kind": "fixed", "baseMs": 0}


class Executor(Target):
    """Runs attempts as their task's params say: the n-th by the n-th of `do`, later ones as the last.

    A step may `hold` until its name is released, `drop` the connection, or choose `status`,
    `headers` and `json` of the answer.
    """

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        said = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        request = Received(handler.path, {}, said)
        self.requests.append(request)
        steps = said["params"]["do"]
        step = steps[min(said["attempt"], len(steps)) - 1]
        is_held = "hold" in step and not self._hold(handler.connection, request, step["hold"])
        if is_held or step.get("drop"):
            handler.close_connection = True
            return
        body = json.dumps(step.get("json", {"done": True})).encode()
        lines = [f"HTTP/1.1 {step.get('status', 200)} Whatever", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in step.get("headers", {}).items()]
        handler.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)

    def attempts(self, task_id: str) -> list[int]:
        """The numbers of the attempts of a task that have come in."""
        return [r.body["attempt"] for r in list(self.requests) if r.body["taskId"] == task_id]


@pytest.fixture
def executor() -> Iterator[Executor]:
    """Runs `job` tasks."""
    made = Executor()
    yield made
    made.close()


def config(executor: Executor, **kind: Any) -> dict[str, Any]:
    return {
        "executors": {"web": {"kind": "http", "url": executor.url}},
        "types": {"job": {"executor": "web", **kind}},
    }


@pytest.fixture
def rota(serve: Servers, executor: Executor) -> Rota:
    """A server that runs `job` tasks on the executor."""
    return serve(config(executor))


def submit(rota: Rota, *do: dict[str, Any], **fields: Any) -> str:
    return rota.submit_native(action="job", params={"do": list(do)}, **fields)


def scheduled(rota: Rota, task_id: str) -> dict[str, Any]:
    """Wait until the task waits for its next attempt."""
    return until(
        lambda: task if (task := look(rota, task_id))["state"] == "scheduled" else None,
        what=f"{task_id} backs off",
    )


def pauses(rota: Rota, task_id: str) -> list[tuple[int, int]]:
    """Between what bounds, in µs, each pause after a failed attempt lies.

    A pause begins between the start of an attempt and the record of its failure.
    """
    found, began = [], 0
    for event in rota.events(task=task_id):
        if event["kind"] == "task_started":
            began = event["at"]
        elif event["kind"] == "attempt_failed":
            next_at = event["data"]["next_at"]
            found.append((next_at - event["at"], next_at - began))
    return found


# -- the curves ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "waits_ms"),
    [
        ({"kind": "exponential", "baseMs": 10, "multiplier": 3}, [10, 30, 90]),
        ({"kind": "exponential", "baseMs": 20}, [20, 40, 80]),
        ({"kind": "exponential", "baseMs": 10, "multiplier": 1.5}, [10, 15, 22.5]),
        ({"kind": "quadratic", "baseMs": 10}, [10, 40, 90]),
        ({"kind": "linear", "baseMs": 20}, [20, 40, 60]),
        ({"kind": "fixed", "baseMs": 20}, [20, 20, 20]),
        ({"kind": "exponential", "baseMs": 10, "multiplier": 10, "maxMs": 50}, [10, 50, 50]),
        ({"kind": "fixed", "baseMs": 0}, [0, 0, 0]),
    ],
)
def test_the_next_attempt_comes_when_the_curve_says(
    rota: Rota, policy: dict[str, Any], waits_ms: list[float]
) -> None:
    task_id = rota.submit_native(action="fail", retry={**policy, "maxAttempts": 4})
    assert ended(rota, task_id)["attempt"] == 4
    found = pauses(rota, task_id)
    assert len(found) == 3
    for (low, high), wait_ms in zip(found, waits_ms, strict=True):
        assert low <= wait_ms * 1000 <= high
    events = rota.events(task=task_id)
    due = [e["data"]["next_at"] for e in events if e["kind"] == "attempt_failed"]
    came = [e["at"] for e in events if e["kind"] == "task_assigned"]
    assert all(at >= moment for at, moment in zip(came[1:], due, strict=True))


def test_the_first_retry_of_a_plain_policy_waits_a_second(rota: Rota) -> None:
    task_id = rota.submit_native(action="fail", retry={})
    scheduled(rota, task_id)
    ((low, high),) = pauses(rota, task_id)
    assert low <= 1_000_000 <= high
    assert look(rota, task_id)["retry"] == {
        "kind": "exponential", "baseMs": 1000, "multiplier": 2.0, "jitterMs": 0, "maxMs": 60_000,
        "maxAttempts": 4,
    }  # fmt: skip


def test_jitter_lengthens_a_pause_within_its_bounds(rota: Rota) -> None:
    policy = {"kind": "fixed", "baseMs": 3_600_000, "maxMs": 86_400_000, "maxAttempts": 2}
    tasks = [
        rota.submit_native(action="fail", retry={**policy, "jitterMs": 1_800_000}) for _ in range(8)
    ]
    found = set()
    for task_id in tasks:
        scheduled(rota, task_id)
        ((low, high),) = pauses(rota, task_id)
        assert low <= 5_400_000_000
        assert high >= 3_600_000_000
        found.add(low // 1_000_000)
    assert len(found) > 1


# -- while it backs off --------------------------------------------------------------------------


def test_a_task_that_backs_off_says_when_and_why(rota: Rota) -> None:
    policy = {"kind": "fixed", "baseMs": 60_000, "maxAttempts": 3}
    task_id = submit(rota, {"status": 503, "json": {"why": "busy"}}, retry=policy)
    task = scheduled(rota, task_id)
    (failed,) = rota.events(task=task_id, kind="attempt_failed")
    assert task["nextAttemptAt"] == rfc3339(failed["data"]["next_at"])
    assert (task["attempt"], task["maxAttempts"]) == (1, 3)
    assert task["lastError"]["code"] == "status_503"
    assert task["lastError"]["details"] == {"status": 503, "body": {"why": "busy"}}
    assert not {"error", "completedAt"} & set(task)
    queue = rota.get("/v1/stats").json["queue"]
    assert (queue["waiting"], queue["inflight"]) == (1, 0)
    assert rota.post(f"/v1/tasks/{task_id}/cancel").status == 200
    assert look(rota, task_id)["state"] == "cancelled"
    assert "nextAttemptAt" not in look(rota, task_id)


def test_success_after_retries_clears_the_error(rota: Rota, executor: Executor) -> None:
    task_id = submit(rota, {"status": 500}, {"drop": True}, {"json": [1]}, retry=AT_ONCE)
    task = ended(rota, task_id)
    assert (task["state"], task["result"], task["attempt"]) == ("succeeded", [1], 3)
    assert not {"error", "lastError", "nextAttemptAt"} & set(task)
    assert executor.attempts(task_id) == [1, 2, 3]
    assert rota.kinds(task_id) == [
        "task_submitted",
        *["task_assigned", "task_started", "attempt_failed", "task_released"] * 2,
        "task_assigned", "task_started", "task_succeeded",
    ]  # fmt: skip
    released = rota.events(task=task_id, kind="task_released")
    assert [event["data"]["after"] for event in released] == ["backoff", "backoff"]


def test_a_slot_is_free_while_a_task_backs_off(serve: Servers, executor: Executor) -> None:
    rota = serve({**config(executor), "scheduler": {"maxInflight": 1, "workerCount": 1}})
    policy = {"kind": "fixed", "baseMs": 60_000}
    scheduled(rota, submit(rota, {"status": 500}, retry=policy))
    assert ended(rota, rota.submit_native())["state"] == "succeeded"


# -- which failures ------------------------------------------------------------------------------

SERVER_ERROR = {"status": 500}
NOT_FOUND = {"status": 404}
DROPPED = {"drop": True}
SLOW = {"hold": "for ever"}
BUSY = {"status": 500, "json": {"code": "resource_busy"}}
BUSY_INSIDE = {"status": 409, "json": {"error": {"code": "resource_busy"}}}
HOPELESS = {"status": 500, "json": {"retryable": False}}
HOPEFUL = {"status": 400, "json": {"retryable": True}}


@pytest.mark.parametrize(
    ("step", "retry_on", "is_retried"),
    [
        (SERVER_ERROR, None, True),
        (SERVER_ERROR, ["status:5xx"], True),
        (SERVER_ERROR, ["status:500"], True),
        (SERVER_ERROR, ["code:status_500"], True),
        (SERVER_ERROR, ["status:503", "status:4xx", "timeout", "connection"], False),
        (SERVER_ERROR, [], False),
        (NOT_FOUND, None, True),
        (NOT_FOUND, ["status:404"], True),
        (NOT_FOUND, ["status:5xx"], False),
        (DROPPED, None, True),
        (DROPPED, ["connection"], True),
        (DROPPED, ["timeout", "status:5xx"], False),
        (SLOW, None, True),
        (SLOW, ["timeout"], True),
        (SLOW, ["connection"], False),
        (BUSY, ["code:resource_busy"], True),
        (BUSY_INSIDE, ["code:resource_busy"], True),
        (BUSY, ["code:other"], False),
        (HOPELESS, None, False),
        (HOPELESS, ["status:5xx"], False),
        (HOPEFUL, [], False),
        (HOPEFUL, None, True),
    ],
)
def test_only_failures_of_the_named_classes_are_tried_again(
    rota: Rota,
    step: dict[str, Any],
    retry_on: list[str] | None,
    is_retried: bool,  # noqa: FBT001
) -> None:
    policy = {**AT_ONCE, "maxAttempts": 2}
    if retry_on is not None:
        policy["retryOn"] = retry_on
    more = {"timeoutMs": 40} if step is SLOW else {}
    task = ended(rota, submit(rota, step, retry=policy, **more))
    assert (task["state"], task["attempt"]) == ("failed", 2 if is_retried else 1)


def test_an_executor_that_does_not_listen_is_a_connection_error(serve: Servers) -> None:
    gone = Executor()
    gone.close()
    rota = serve(config(gone))
    policy = {**AT_ONCE, "maxAttempts": 3, "retryOn": ["connection"]}
    task = ended(rota, submit(rota, {}, retry=policy))
    assert (task["attempt"], task["error"]["code"]) == (3, "connection")


def test_what_no_repetition_can_mend_is_not_repeated(rota: Rota) -> None:
    task_id = rota.submit_native(action="sleep", params={"ms": "long"}, retry=AT_ONCE)
    task = ended(rota, task_id)
    assert (task["attempt"], task["error"]["code"]) == (1, "bad_params")


# -- Retry-After ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("7", 7), ("100", 100), ("999999999", 3600), ("0", 1), ("-5", 1), ("soon", 1), ("", 1)],
)
def test_retry_after_lengthens_a_pause_and_never_shortens_it(
    rota: Rota, header: str, wait_s: int
) -> None:
    policy = {"kind": "fixed", "baseMs": 1000, "maxMs": 2000, "maxAttempts": 2}
    step = {"status": 503, "headers": {"Retry-After": header}}
    task_id = submit(rota, step, retry=policy)
    scheduled(rota, task_id)
    ((low, high),) = pauses(rota, task_id)
    assert low <= wait_s * 1_000_000 <= high


def test_retry_after_may_be_a_date(rota: Rota) -> None:
    moment = (datetime.now(UTC) + timedelta(minutes=30)).replace(microsecond=0)
    step = {
        "status": 503,
        "headers": {"Retry-After": moment.strftime("%a, %d %b %Y %H:%M:%S GMT")},
    }
    task_id = submit(rota, step, retry={"maxAttempts": 2})
    scheduled(rota, task_id)
    (failed,) = rota.events(task=task_id, kind="attempt_failed")
    (started,) = rota.events(task=task_id, kind="task_started")
    late_us = failed["data"]["next_at"] - moment.timestamp() * 1e6
    assert -10 <= late_us <= failed["at"] - started["at"] + 10


# -- how often -----------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_task_has_as_many_attempts_as_it_asked_for(
    rota: Rota, executor: Executor, most: int
) -> None:
    task_id = submit(rota, {"status": 500}, retry={**AT_ONCE, "maxAttempts": most})
    task = ended(rota, task_id)
    assert executor.attempts(task_id) == list(range(1, most + 1))
    assert (task["state"], task["error"]["code"]) == ("failed", "status_500")
    assert rota.kinds(task_id).count("attempt_failed") == most - 1
    assert rota.kinds(task_id)[-1] == "task_failed"


def test_without_a_policy_there_is_one_attempt(rota: Rota, executor: Executor) -> None:
    task_id = submit(rota, {"status": 500})
    assert ended(rota, task_id)["state"] == "failed"
    assert executor.attempts(task_id) == [1]
    assert "maxAttempts" not in look(rota, task_id)


def test_a_types_policy_holds_unless_the_task_has_its_own(
    serve: Servers, executor: Executor
) -> None:
    rota = serve(config(executor, retry={**AT_ONCE, "maxAttempts": 3}))
    by_type = submit(rota, {"status": 500})
    once = submit(rota, {"status": 500}, retry={"maxAttempts": 1})
    twice = submit(rota, {"status": 500}, retry={**AT_ONCE, "maxAttempts": 2})
    for task_id, count in ((by_type, 3), (once, 1), (twice, 2)):
        ended(rota, task_id)
        assert len(executor.attempts(task_id)) == count
    assert look(rota, by_type)["maxAttempts"] == 3
    (row,) = [t for t in rota.get("/v1/types").json["types"] if t["type"] == "job"]
    assert row["retry"]["maxAttempts"] == 3


def test_a_types_policy_does_not_touch_other_types(serve: Servers, executor: Executor) -> None:
    rota = serve(config(executor, retry=AT_ONCE))
    assert ended(rota, rota.submit_native(action="fail"))["attempt"] == 1


# -- by hand -------------------------------------------------------------------------------------


def test_a_failed_task_can_be_retried_by_hand(rota: Rota, executor: Executor) -> None:
    task_id = submit(rota, {"status": 500}, {"status": 404}, {"json": "ok"})
    assert ended(rota, task_id)["state"] == "failed"
    answer = rota.post(f"/v1/tasks/{task_id}/retry")
    assert (answer.status, answer.json) == (202, {"taskId": task_id, "state": "ready"})
    assert ended(rota, task_id)["error"]["code"] == "status_404"
    rota.post(f"/v1/tasks/{task_id}/retry")
    task = ended(rota, task_id)
    assert (task["state"], task["result"], task["attempt"]) == ("succeeded", "ok", 3)
    assert "error" not in task
    assert executor.attempts(task_id) == [1, 2, 3]
    assert rota.kinds(task_id).count("task_revived") == 2


def test_a_new_life_has_all_its_attempts_again(rota: Rota, executor: Executor) -> None:
    task_id = submit(rota, {"status": 500}, retry={**AT_ONCE, "maxAttempts": 2})
    ended(rota, task_id)
    rota.post(f"/v1/tasks/{task_id}/retry")
    assert ended(rota, task_id)["state"] == "failed"
    assert executor.attempts(task_id) == [1, 2, 3, 4]


def test_only_a_failed_task_can_be_retried(rota: Rota, executor: Executor) -> None:
    done = submit(rota, {})
    ended(rota, done)
    waits = rota.submit_native(action="waits")
    cancelled = rota.submit_native(action="waits")
    rota.post(f"/v1/tasks/{cancelled}/cancel")
    running = submit(rota, {"hold": "it"})
    until(lambda: look(rota, running)["state"] == "running")
    backs_off = submit(rota, {"status": 500}, retry={})
    scheduled(rota, backs_off)
    blocked = rota.submit_native(dependsOn=["later"])
    before = rota.get("/v1/events/head").json
    for task_id, state in (
        (done, "succeeded"), (waits, "ready"), (cancelled, "cancelled"), (running, "running"),
        (backs_off, "scheduled"), (blocked, "blocked"),
    ):  # fmt: skip
        answer = rota.post(f"/v1/tasks/{task_id}/retry")
        assert (answer.status, answer.code) == (409, "conflict")
        assert answer.json["details"] == {"taskId": task_id, "state": state}
    missing = rota.post("/v1/tasks/tsk_nobody00/retry")
    assert (missing.status, missing.code) == (404, "not_found")
    assert rota.get("/v1/events/head").json == before
    executor.release("it")


def test_a_failed_task_past_its_retention_is_found_and_retried(serve: Servers) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    task_id = rota.submit_native(action="fail", params={"message": "once"})
    ended(rota, task_id)
    until(lambda: rota.get("/v1/stats").json["queue"]["tasksInMemory"] == 0, what="it is forgotten")
    assert rota.get("/tasks").json["count"] == 0
    assert rota.get("/tasks?state=failed").json["count"] == 0
    (found,) = rota.get("/v1/tasks?state=failed").json["tasks"]
    assert (found["taskId"], found["error"]["message"]) == (task_id, "once")
    assert rota.post(f"/v1/tasks/{task_id}/retry").status == 202
    again = ended(rota, task_id)
    assert (again["state"], again["attempt"], again["params"]) == ("failed", 2, {"message": "once"})
    assert again["createdAt"] == found["createdAt"]
    rota.restart()
    assert look(rota, task_id)["attempt"] == 2


def test_what_succeeded_and_was_forgotten_is_not_retried(serve: Servers) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    task_id = rota.submit_native()
    ended(rota, task_id)
    until(lambda: rota.get("/v1/stats").json["queue"]["tasksInMemory"] == 0, what="it is forgotten")
    answer = rota.post(f"/v1/tasks/{task_id}/retry")
    assert (answer.status, answer.code) == (409, "conflict")


def test_failed_tasks_are_listed_by_pages_beyond_memory(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxEndedTasks": 3}})
    ids = []
    for n in range(10):
        ids.append(rota.submit_native(f"agent-{n % 2}", "fail"))
        ended(rota, ids[-1])
    ended(rota, rota.submit_native("agent-0", "echo"))
    assert rota.get("/v1/stats").json["queue"]["tasksInMemory"] == 3
    found, cursor = [], ""
    for _ in range(10):
        page = rota.get(f"/v1/tasks?state=failed&limit=3{cursor}").json
        found += [task["taskId"] for task in page["tasks"]]
        if "nextCursor" not in page:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert found == ids[::-1]
    only = rota.get("/v1/tasks?state=failed&agentId=agent-1").json["tasks"]
    assert [task["taskId"] for task in only] == ids[1::2][::-1]
    assert rota.get("/v1/tasks?state=failed&type=echo").json["count"] == 0
    assert rota.post(f"/v1/tasks/{ids[0]}/retry").status == 202
    ended(rota, ids[0])  # fails again: its last failure is the newest now, and it comes once
    page = rota.get("/v1/tasks?state=failed").json["tasks"]
    assert [task["taskId"] for task in page] == [ids[0], *ids[:0:-1]]


def test_a_retry_by_hand_needs_room_in_the_queue(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    task_id = rota.submit_native(action="fail")
    ended(rota, task_id)
    waits = rota.submit_native(action="waits")
    answer = rota.post(f"/v1/tasks/{task_id}/retry")
    assert (answer.status, answer.code, answer.json["retryable"]) == (429, "queue_full", True)
    assert look(rota, task_id)["state"] == "failed"
    rota.post(f"/v1/tasks/{waits}/cancel")
    assert rota.post(f"/v1/tasks/{task_id}/retry").status == 202


def test_a_callback_is_owed_for_every_end(rota: Rota, serve: Servers, hooks: Target) -> None:
    rota = serve({"webhooks": {"allow_hosts": ["127.0.0.1"]}})
    task_id = rota.submit_native(
        action="fail", callbackUrl=hooks.url, retry={**AT_ONCE, "maxAttempts": 3}
    )
    hooks.wait_for(1)
    rota.post(f"/v1/tasks/{task_id}/retry")
    hooks.wait_for(2)
    until(lambda: rota.kinds(task_id).count("delivery_succeeded") == 2)
    assert [r.headers["x-rota-event"] for r in hooks.requests] == ["task.failed"] * 2
    assert len({r.headers["webhook-id"] for r in hooks.requests}) == 2


# -- over a restart ------------------------------------------------------------------------------


def test_a_restart_in_the_middle_of_a_backoff_changes_nothing(rota: Rota) -> None:
    task_id = submit(rota, {"status": 500}, retry={"kind": "fixed", "baseMs": 60_000})
    before = scheduled(rota, task_id)
    rota.restart()
    assert look(rota, task_id) == before


def test_the_next_attempt_comes_at_its_moment_after_a_restart(
    rota: Rota, executor: Executor
) -> None:
    policy = {"kind": "fixed", "baseMs": 400, "maxAttempts": 2}
    task_id = submit(rota, {"status": 500}, {}, retry=policy)
    scheduled(rota, task_id)
    rota.restart()
    task = ended(rota, task_id)
    assert (task["state"], task["attempt"]) == ("succeeded", 2)
    (failed,) = rota.events(task=task_id, kind="attempt_failed")
    (released,) = rota.events(task=task_id, kind="task_released")
    assert released["at"] >= failed["data"]["next_at"]
    assert executor.attempts(task_id) == [1, 2]


def test_a_backoff_that_ends_while_the_server_is_down_ends_with_its_start(
    rota: Rota, executor: Executor
) -> None:
    policy = {"kind": "fixed", "baseMs": 150, "maxAttempts": 2}
    task_id = submit(rota, {"status": 500}, {}, retry=policy)
    due = datetime.fromisoformat(scheduled(rota, task_id)["nextAttemptAt"])
    rota.stop()
    assert executor.attempts(task_id) == [1]
    until(lambda: datetime.now(UTC) > due)
    rota.start()
    assert ended(rota, task_id)["state"] == "succeeded"
    assert executor.attempts(task_id) == [1, 2]


def test_an_attempt_cut_off_by_a_restart_is_not_spent(rota: Rota, executor: Executor) -> None:
    policy = {**AT_ONCE, "maxAttempts": 2}
    task_id = submit(rota, {"status": 500}, {"hold": "it"}, retry=policy)
    until(lambda: executor.attempts(task_id) == [1, 2], what="the second attempt runs")
    rota.restart()
    until(lambda: executor.attempts(task_id) == [1, 2, 2], what="it runs again")
    executor.release("it")
    task = ended(rota, task_id)
    assert (task["state"], task["attempt"]) == ("succeeded", 2)

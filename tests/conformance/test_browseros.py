"""The BrowserOS task queue document: lifecycle, states, concurrency, priorities, constants.

The sections carry the document's headings; its other sections have files of their own beside this
one. A chat endpoint (`chat`) stands on the loopback; a test puts down how each message is answered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from support.chat_server import (
    ONCE,
    Chat,
    Hold,
    Status,
    completed,
    ended,
    event,
    lived,
    moment_us,
    submit,
    with_chat,
)
from support.http_server import Rota, Servers, running_process, until

from rota.config import with_presets

if TYPE_CHECKING:
    from pathlib import Path

STATES = ["pending", "queued", "running", "completed", "failed", "cancelled", "waiting_dependency"]
PRIORITIES = ["critical", "high", "normal", "low"]


def stats(rota: Rota) -> dict[str, Any]:
    found: dict[str, Any] = rota.get("/tasks/stats").json
    return found


def hold_the_slot(rota: Rota, chat: Chat, **fields: Any) -> str:
    """Fill the one slot until `slot` is released."""
    chat.on("hold the slot", Hold("slot"), event("held"))
    task_id = submit(rota, "hold the slot", **fields)
    until(lambda: "hold the slot" in chat.messages(), what="the slot is held")
    return task_id


# -- Overview ------------------------------------------------------------------------------------


def test_a_task_is_submitted_by_rest_and_executed_by_the_chat(rota: Rota, chat: Chat) -> None:
    answer = rota.post("/tasks", {"instruction": "Navigate to https://example.com"})
    assert answer.status == 201
    assert set(answer.json) == {"taskId", "state", "createdAt"}
    assert answer.json["state"] == "pending"
    task = ended(rota, answer.json["taskId"])
    assert task["state"] == "completed"
    assert task["result"] == {"echo": "Navigate to https://example.com"}
    assert chat.messages() == ["Navigate to https://example.com"]


def test_a_task_shows_what_was_asked_and_how_it_went(rota: Rota) -> None:
    given = {
        "instruction": "Extract page title",
        "priority": "high",
        "retryPolicy": {"maxRetries": 5, "backoffMs": 2000, "backoffMultiplier": 3},
        "timeoutMs": 45_000,
        "llmConfig": {"provider": "mine"},
        "webhookUrl": "http://127.0.0.1:9/hook",
    }
    task = ended(rota, rota.post("/tasks", given).json["taskId"])
    assert {name: task[name] for name in given} == given
    assert (task["retryCount"], task["maxRetries"], task["dependsOn"]) == (0, 5, [])
    assert not {"batchId", "error", "waitingFor", "nextAttemptAt"} & set(task)
    created, started, finished = (
        moment_us(task[name]) for name in ("createdAt", "startedAt", "completedAt")
    )
    assert created <= started <= finished
    assert task["executionTimeMs"] == (finished - started) // 1000


def test_what_has_not_happened_is_left_out(rota: Rota, chat: Chat) -> None:
    hold_the_slot(rota, chat)
    waiting = rota.task(submit(rota, "wait"))
    assert waiting["state"] == "pending"
    absent = {"startedAt", "completedAt", "executionTimeMs", "result", "error", "nextAttemptAt"}
    assert not absent & set(waiting)
    assert not {"waitingFor", "progress", "lastError", "webhookUrl", "llmConfig"} & set(waiting)


def test_the_result_is_persisted_and_outlives_its_time_in_memory(
    serve: Servers, chat: Chat
) -> None:
    rota = serve(with_chat(chat) | {"scheduler": {"resultTTLSec": 1}})
    task = ended(rota, submit(rota, "remember"))
    until(lambda: rota.get("/tasks").json["count"] == 0, what="the task has left memory")
    assert rota.task(task["taskId"]) == task
    rota.restart()
    assert rota.task(task["taskId"]) == task


# -- Task Lifecycle, State Definitions -----------------------------------------------------------


def test_a_good_task_goes_from_pending_by_queued_and_running_to_completed(rota: Rota) -> None:
    task_id = submit(rota, "look")
    completed(rota, task_id)
    assert lived(rota, task_id) == ["pending", "queued", "running", "completed"]


def test_pending_is_submitted_and_waiting_to_be_picked_up(rota: Rota, chat: Chat) -> None:
    hold_the_slot(rota, chat)
    task_id = submit(rota, "wait")
    assert rota.task(task_id)["state"] == "pending"
    assert stats(rota)["pending"] == 1
    assert "wait" not in chat.messages()
    chat.release("slot")
    completed(rota, task_id)


def test_running_is_when_the_instruction_was_sent_to_the_chat(rota: Rota, chat: Chat) -> None:
    task_id = hold_the_slot(rota, chat)
    running = rota.task(task_id)
    assert running["state"] == "running"
    assert "startedAt" in running
    assert "completedAt" not in running


def test_completed_has_its_result_stored(rota: Rota, chat: Chat) -> None:
    chat.on("extract", event({"title": "Example Domain"}))
    task = ended(rota, submit(rota, "extract"))
    assert task["state"] == "completed"
    assert task["result"] == {"title": "Example Domain"}


def test_failed_has_its_error_and_no_result(rota: Rota, chat: Chat) -> None:
    task_id = submit(rota, "fail", retryPolicy=ONCE)
    task = ended(rota, task_id)
    assert task["state"] == "failed"
    assert task["error"] == "Chat API returned 500: Internal Server Error"
    assert "result" not in task
    assert lived(rota, task_id) == ["pending", "queued", "running", "failed"]


def test_a_failure_that_is_retried_goes_back_to_pending(rota: Rota, chat: Chat) -> None:
    chat.on("try", Status(500))
    chat.on("try", event("better"))
    task_id = submit(rota, "try", retryPolicy={"backoffMs": 1})
    completed(rota, task_id)
    attempt = ["pending", "queued", "running"]
    assert lived(rota, task_id) == [*attempt, *attempt, "completed"]


def test_cancelled_can_come_out_of_pending(rota: Rota, chat: Chat) -> None:
    hold_the_slot(rota, chat)
    task_id = submit(rota, "never mind")
    assert rota.request("DELETE", f"/tasks/{task_id}").status == 200
    assert lived(rota, task_id) == ["pending", "cancelled"]


def test_waiting_dependency_has_unmet_dependencies_and_goes_on_when_they_are_met(
    rota: Rota, chat: Chat
) -> None:
    first = hold_the_slot(rota, chat)
    second = submit(rota, "then", dependsOn=[first])
    assert rota.task(second)["state"] == "waiting_dependency"
    chat.release("slot")
    completed(rota, second)
    words = ["waiting_dependency", "pending", "queued", "running", "completed"]
    assert lived(rota, second) == words


# -- both own /tasks: who is meant ---------------------------------------------------------------


def test_a_body_with_an_agent_is_pinchtabs_and_one_with_an_instruction_browseros(
    rota: Rota,
) -> None:
    answer = rota.post("/tasks", {"agentId": "ann", "action": "echo"})
    assert (answer.status, answer.json["state"]) == (202, "queued")
    mine = rota.post("/tasks", {"instruction": "look"})
    assert (mine.status, mine.json["state"]) == (201, "pending")
    assert "agentId" in rota.task(answer.json["taskId"])
    assert "instruction" in rota.task(mine.json["taskId"])


@pytest.mark.parametrize("other", [{"agentId": "ann"}, {"action": "click"}])
@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch"])
def test_a_body_with_both_is_refused(rota: Rota, path: str, other: dict[str, str]) -> None:
    item = {"instruction": "look", **other}
    body = item if path == "/tasks" else {"tasks": [item]}
    answer = rota.post(path, body)
    assert (answer.status, answer.code) == (400, "ambiguous_dialect")
    assert rota.get("/tasks").json["count"] == 0


def test_a_task_is_shown_in_the_words_of_any_dialect(rota: Rota, chat: Chat) -> None:
    first = hold_the_slot(rota, chat)
    blocked = submit(rota, "then", dependsOn=[first])
    words = {"native": "blocked", "pinchtab": "queued", "browsermanager": "queued"}
    words["browseros"] = "waiting_dependency"
    for path in ("/tasks", "/v1/tasks"):
        for view, word in words.items():
            shown = rota.get(f"{path}/{blocked}?view={view}").json
            assert word in (shown.get("state"), shown.get("status")), view
    answer = rota.get(f"/tasks/{blocked}?view=greek")
    assert (answer.status, answer.json["details"]) == (400, {"field": "view"})


@pytest.mark.parametrize(
    ("action", "native", "word"), [("echo", "succeeded", "completed"), ("fail", "failed", "failed")]
)
def test_other_tasks_can_be_seen_in_browseros_words(
    rota: Rota, action: str, native: str, word: str
) -> None:
    task_id = rota.submit_native("ann", action)
    until(lambda: rota.get(f"/v1/tasks/{task_id}").json["state"] == native, what=native)
    shown = rota.get(f"/v1/tasks/{task_id}?view=browseros").json
    assert (shown["taskId"], shown["state"], shown["priority"]) == (task_id, word, "normal")


def test_the_list_filters_by_the_documents_states(rota: Rota, chat: Chat) -> None:
    done = submit(rota, "done")
    completed(rota, done)
    first = hold_the_slot(rota, chat)
    ready = submit(rota, "ready")
    blocked = submit(rota, "blocked", dependsOn=[ready])
    wanted = {
        "completed": {done},
        "running": {first},
        "pending": {ready},
        "waiting_dependency": {blocked},
        "pending,running": {ready, first},
        "queued": set(),
        "failed": set(),
        "cancelled": set(),
    }
    for state, ids in wanted.items():
        found = rota.get(f"/tasks?view=browseros&state={state}").json
        assert {task["taskId"] for task in found["tasks"]} == ids, state
    assert rota.get("/tasks?view=browseros&state=done").status == 400


def test_stats_count_the_tasks_by_state(rota: Rota, chat: Chat) -> None:
    nothing = {"total": 0, **dict.fromkeys(STATES, 0), "activeTasks": 0, "maxConcurrent": 1}
    assert stats(rota) == nothing
    for text in ("one", "two", "fail"):
        ended(rota, submit(rota, text, retryPolicy=ONCE))
    rota.submit("ann", "echo")
    first = hold_the_slot(rota, chat)
    submit(rota, "wait")
    submit(rota, "then", dependsOn=[first])
    rota.request("DELETE", f"/tasks/{submit(rota, 'never mind')}")
    assert stats(rota) == {
        **nothing,
        "total": 7,
        "completed": 2,
        "failed": 1,
        "cancelled": 1,
        "running": 1,
        "pending": 1,
        "waiting_dependency": 1,
        "activeTasks": 1,
    }


def test_a_submission_that_finds_no_room_is_refused_and_is_no_task(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    task_id = submit(rota, "wait")
    answer = rota.post("/tasks", {"instruction": "one too many"})
    assert (answer.status, answer.code) == (429, "queue_full")
    assert "retry-after" in answer.headers
    found = stats(rota)
    assert (found["total"], found["pending"], found["failed"]) == (1, 1, 0)
    listed = rota.get("/tasks?view=browseros").json["tasks"]
    assert [task["taskId"] for task in listed] == [task_id]


# -- Concurrency Control -------------------------------------------------------------------------


def test_one_task_executes_at_a_time_by_default(rota: Rota, chat: Chat) -> None:
    ids = [submit(rota, f"task {n}") for n in range(6)]
    completed(rota, *ids)
    assert chat.peak == 1
    assert chat.messages() == [f"task {n}" for n in range(6)]


@pytest.mark.parametrize("name", ["maxConcurrent", "max_concurrent", "TASK_QUEUE_MAX_CONCURRENT"])
def test_max_concurrent_is_configured(serve: Servers, chat: Chat, name: str) -> None:
    rota = serve(with_chat(chat, **{name: 3}))
    for n in range(5):
        chat.on(f"task {n}", Hold("all"), event(n))
    ids = [submit(rota, f"task {n}") for n in range(5)]
    chat.wait_for(3)
    found = stats(rota)
    assert (found["activeTasks"], found["pending"], found["maxConcurrent"]) == (3, 2, 3)
    chat.release("all")
    completed(rota, *ids)
    assert chat.peak == 3


def test_max_concurrent_alone_says_how_many_execute_at_once(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat, maxConcurrent=10))
    for n in range(11):
        chat.on(f"task {n}", Hold("all"), event(n))
        submit(rota, f"task {n}")
    chat.wait_for(10)
    found = stats(rota)
    assert (found["activeTasks"], found["pending"]) == (10, 1)


def test_max_concurrent_holds_also_when_the_type_is_configured(serve: Servers, chat: Chat) -> None:
    kind = {"executor": "chat", "queueTimeoutMs": 60_000}
    rota = serve(with_chat(chat) | {"types": {"chat": kind}})
    assert stats(rota)["maxConcurrent"] == 1
    completed(rota, *[submit(rota, f"task {n}") for n in range(6)])
    assert chat.peak == 1


def test_what_the_type_says_goes_before_what_all_of_them_get(serve: Servers, chat: Chat) -> None:
    kind = {
        "executor": "chat",
        "maxConcurrent": 2,
        "timeoutMs": 5000,
        "timeoutMsMax": 7000,
        "retry": {"maxAttempts": 2, "baseMs": 30},
    }
    rota = serve(with_chat(chat) | {"types": {"chat": kind}})
    task = rota.task(submit(rota, "look"))
    assert (task["timeoutMs"], task["maxRetries"]) == (5000, 1)
    assert task["retryPolicy"]["backoffMs"] == 30
    assert stats(rota)["maxConcurrent"] == 2
    answer = rota.post("/tasks", {"instruction": "look", "timeoutMs": 7001})
    assert (answer.status, answer.json["details"]) == (400, {"field": "timeoutMs"})


def test_the_preset_keeps_results_for_the_documents_thirty_days(serve: Servers, chat: Chat) -> None:
    rota = serve(with_presets(with_chat(chat), ("browseros",)))
    assert rota.get("/v1/config").json["scheduler"]["resultTTLSec"] == 30 * 24 * 3600


def test_whole_batches_fit_behind_what_waits_already_without_a_preset(
    serve: Servers, chat: Chat
) -> None:
    """The document knows no cap per agent; only the global one binds its tasks."""
    rota = serve(with_chat(chat) | {"scheduler": {"maxPerAgent": 100}})
    hold_the_slot(rota, chat)
    for _ in range(3):
        tasks = [{"instruction": f"task {n}"} for n in range(100)]
        assert rota.post("/tasks/batch", {"tasks": tasks}).status == 201
    submit(rota, "one more")
    native = [rota.post("/v1/tasks", {"agentId": "ann", "action": "waits"}) for _ in range(101)]
    assert [answer.status for answer in native] == [202] * 100 + [429]


def test_ids_of_tasks_and_batches_are_uuids(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat))
    batch = rota.post("/tasks/batch", {"tasks": [{"instruction": "look"}] * 3}).json
    found = [submit(rota, "look"), batch["batchId"], *batch["taskIds"]]
    assert all(str(UUID(each)) == each and UUID(each).version == 7 for each in found)
    assert len(set(found)) == 5
    completed(rota, found[0], *batch["taskIds"])
    assert rota.get(f"/tasks/batch/{batch['batchId']}").json["state"] == "completed"
    for path in ("/tasks", "/tasks/batch"):
        item = {"instruction": "then", "dependsOn": [batch["batchId"]]}
        answer = rota.post(path, {"tasks": [item]} if path.endswith("batch") else item)
        assert answer.status == 400
        assert "is a batch; name its tasks" in answer.json["error"]
    after = submit(rota, "then", dependsOn=[found[0]])
    completed(rota, after)
    rota.restart()
    assert rota.task(after)["dependsOn"] == [found[0]]


def test_a_state_is_asked_for_in_the_words_of_the_tasks_own_dialect(rota: Rota, chat: Chat) -> None:
    running = hold_the_slot(rota, chat)
    pending = submit(rota, "wait")
    other = rota.submit(action="waits", tabId="t")

    def listed(query: str) -> set[str]:
        return {task["taskId"] for task in rota.get(f"/tasks?{query}").json["tasks"]}

    assert listed("state=queued") == {other}
    assert listed("state=pending") == {pending}
    assert listed("state=pending,queued,running") == {running, pending, other}
    assert listed("state=pending&view=browseros") == {pending, other}


def test_an_empty_batch_is_told_what_it_lacks(rota: Rota) -> None:
    answer = rota.post("/tasks/batch", {"tasks": []})
    assert (answer.status, answer.json["details"]) == (400, {"field": "tasks"})


def test_max_concurrent_can_be_changed_while_the_server_runs(
    serve: Servers, chat: Chat, tmp_path: Path
) -> None:
    rota = Rota(tmp_path / "reloading", with_chat(chat))
    rota.write_config(rota.config)
    serve.adopt(rota)
    hold_the_slot(rota, chat)
    waiting = submit(rota, "wait")
    rota.write_config(with_chat(chat, maxConcurrent=2))
    assert rota.post("/v1/config/reload").status == 200
    completed(rota, waiting)
    assert stats(rota)["maxConcurrent"] == 2


def test_submission_does_not_wait_for_completion(rota: Rota, chat: Chat) -> None:
    hold_the_slot(rota, chat)
    assert [rota.task(submit(rota, f"task {n}"))["state"] for n in range(3)] == ["pending"] * 3


def test_a_slot_is_given_back_whatever_became_of_the_task(rota: Rota, chat: Chat) -> None:
    chat.on("late", Hold("never"))
    chat.on("cancel", Hold("never"))
    ended(rota, submit(rota, "good"))
    ended(rota, submit(rota, "fail", retryPolicy=ONCE))
    ended(rota, submit(rota, "late", retryPolicy=ONCE, timeoutMs=50))
    cancelled = submit(rota, "cancel")
    until(lambda: "cancel" in chat.messages(), what="the task runs")
    rota.request("DELETE", f"/tasks/{cancelled}")
    completed(rota, submit(rota, "last"))
    assert stats(rota)["activeTasks"] == 0


def test_a_task_that_backs_off_does_not_hold_a_slot(rota: Rota, chat: Chat) -> None:
    failing = submit(rota, "fail")
    until(lambda: "nextAttemptAt" in rota.task(failing), what="it backs off")
    completed(rota, submit(rota, "other"))
    assert stats(rota)["activeTasks"] == 0


# -- Priority Ordering ---------------------------------------------------------------------------


def test_tasks_are_dequeued_by_priority_then_creation_time(rota: Rota, chat: Chat) -> None:
    hold_the_slot(rota, chat)
    words = ["low", "normal", "high", "critical", "low", "critical", "normal", "high"]
    ids = [submit(rota, f"{word} {n}", priority=word) for n, word in enumerate(words)]
    chat.release("slot")
    completed(rota, *ids)
    order = sorted(range(8), key=lambda n: (PRIORITIES.index(words[n]), n))
    assert chat.messages()[1:] == [f"{words[n]} {n}" for n in order]


@pytest.mark.parametrize(("word", "weight"), list(zip(PRIORITIES, range(4), strict=True)))
def test_a_priority_has_the_weight_of_the_table(rota: Rota, word: str, weight: int) -> None:
    task_id = submit(rota, "look", priority=word)
    assert rota.task(task_id)["priority"] == word
    assert rota.get(f"/v1/tasks/{task_id}").json["priority"] == weight


def test_normal_is_the_default_priority(rota: Rota, chat: Chat) -> None:
    hold_the_slot(rota, chat)
    low, plain = submit(rota, "low", priority="low"), submit(rota, "plain")
    assert rota.task(plain)["priority"] == "normal"
    chat.release("slot")
    completed(rota, low, plain)
    assert chat.messages()[1:] == ["plain", "low"]


def test_critical_overtakes_what_waits_and_leaves_alone_what_runs(rota: Rota, chat: Chat) -> None:
    running = hold_the_slot(rota, chat, priority="low")
    ids = [submit(rota, "low", priority="low"), submit(rota, "high", priority="high")]
    ids.append(submit(rota, "critical", priority="critical"))
    assert rota.task(running)["state"] == "running"
    chat.release("slot")
    completed(rota, running, *ids)
    assert chat.messages() == ["hold the slot", "critical", "high", "low"]
    assert chat.left == []


def test_critical_interrupts_what_runs_if_it_asks_to(rota: Rota, chat: Chat) -> None:
    running = hold_the_slot(rota, chat, priority="low")
    urgent = submit(rota, "urgent", priority="critical", preempt=True)
    until(lambda: "urgent" in chat.messages(), what="the urgent task takes the slot")
    chat.wait_until_left("hold the slot")
    chat.release("slot")
    completed(rota, urgent, running)
    assert rota.task(running)["retryCount"] == 0


@pytest.mark.parametrize("word", ["urgent", "medium", "", "CRITICAL", 0, 2, ["low"], True])
def test_unknown_priorities_are_refused(rota: Rota, word: Any) -> None:
    answer = rota.post("/tasks", {"instruction": "look", "priority": word})
    assert answer.status == 400
    assert answer.json["details"] == {"field": "priority"}
    assert stats(rota)["total"] == 0


# -- Constants Reference -------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_constants(serve: Servers) -> None:
    config = serve().get("/v1/config").json
    browseros, retry = config["browseros"], config["browseros"]["retry"]
    assert browseros["maxConcurrent"] == 1, "MAX_CONCURRENT_TASKS"
    assert browseros["timeoutMs"] == 120_000, "DEFAULT_TIMEOUT_MS"
    assert browseros["timeoutMsMax"] == 600_000, "MAX_TIMEOUT_MS"
    assert retry["maxAttempts"] == 1 + 3, "DEFAULT_MAX_RETRIES"
    assert retry["baseMs"] == 1_000, "DEFAULT_BACKOFF_MS"
    assert retry["multiplier"] == 2, "DEFAULT_BACKOFF_MULTIPLIER"
    assert retry["maxMs"] == 60_000, "MAX_BACKOFF_MS"
    assert (retry["kind"], retry["jitterMs"]) == ("exponential", 0)
    assert config["webhooks"]["timeoutMs"] == 10_000, "WEBHOOK_TIMEOUT_MS"


def test_the_constants_can_be_configured_in_a_file(tmp_path: Path, chat: Chat) -> None:
    config = with_chat(chat, maxConcurrent=2, timeoutMs=5000, timeoutMsMax=9000, agent="os")
    config["browseros"]["retry"] = {"maxAttempts": 2, "baseMs": 7, "multiplier": 1.5}
    with running_process(tmp_path, config) as rota:
        assert rota.get("/tasks/stats").json["maxConcurrent"] == 2
        task = ended(rota, submit(rota, "look"))
        assert task["timeoutMs"] == 5000
        policy = {"maxRetries": 1, "backoffMs": 7, "backoffMultiplier": 1.5}
        assert task["retryPolicy"] == policy
        assert rota.get(f"/v1/tasks/{task['taskId']}").json["agentId"] == "os"
        answer = rota.post("/tasks", {"instruction": "look", "timeoutMs": 9001})
        assert answer.status == 400


def test_a_task_is_found_by_an_id_of_the_clients_own(rota: Rota) -> None:
    own = str(uuid4())
    assert submit(rota, "look", taskId=own) == own
    completed(rota, own)
    answer = rota.post("/tasks", {"instruction": "again", "taskId": own})
    assert (answer.status, answer.code) == (409, "id_taken")


@pytest.mark.parametrize("own", ["stats", "batch"])
def test_an_own_id_that_is_also_a_path_is_refused_or_can_be_found(rota: Rota, own: str) -> None:
    answer = rota.post("/tasks", {"instruction": "look", "taskId": own})
    if answer.status == 201:
        assert rota.get(f"/tasks/{own}").json.get("taskId") == own
    else:
        assert answer.status == 400, json.dumps(answer.json)


def test_an_own_id_that_looks_like_a_ref_is_refused(rota: Rota) -> None:
    answer = rota.post("/tasks", {"instruction": "first", "taskId": "ref:first"})
    assert (answer.status, answer.json["details"]) == (400, {"field": "taskId"})


# -- retry by hand -------------------------------------------------------------------------------


def test_a_failed_task_gets_a_new_life(rota: Rota, chat: Chat) -> None:
    for _ in range(3):
        chat.on("try", Status(500))
    chat.on("try", event("better"))
    task_id = submit(rota, "try", retryPolicy={"maxRetries": 1, "backoffMs": 1})
    assert ended(rota, task_id)["retryCount"] == 1
    answer = rota.post(f"/tasks/{task_id}/retry")
    assert answer.status == 202
    assert answer.json["taskId"] == task_id
    task = rota.when(task_id, "completed")
    assert task["result"] == "better"
    assert task["retryCount"] == 1, "the new life has all its retries again"
    assert "error" not in task
    assert len(chat.requests) == 4


def test_only_a_failed_task_can_be_retried(rota: Rota, chat: Chat) -> None:
    done = submit(rota, "done")
    completed(rota, done)
    running = hold_the_slot(rota, chat)
    pending, gone = submit(rota, "wait"), submit(rota, "never mind")
    blocked = submit(rota, "then", dependsOn=[running])
    rota.request("DELETE", f"/tasks/{gone}")
    for task_id in (done, running, pending, gone, blocked):
        before = rota.task(task_id)["state"]
        answer = rota.post(f"/tasks/{task_id}/retry")
        assert answer.status == 409, before
        assert answer.json["details"] == {"taskId": task_id, "state": before}
        assert rota.task(task_id)["state"] == before
    assert rota.post("/tasks/tsk_nobody/retry").status == 404


# -- what looks odd and is allowed ---------------------------------------------------------------


def test_the_largest_values_there_are(rota: Rota) -> None:
    policy = {"maxRetries": 99, "backoffMs": 24 * 3600 * 1000, "backoffMultiplier": 100}
    task_id = submit(rota, "look", retryPolicy=policy, timeoutMs=600_000, taskId="x" * 100)
    completed(rota, task_id)
    assert rota.task(task_id)["retryPolicy"] == policy


def test_a_thousand_dependencies(rota: Rota) -> None:
    task_id = submit(rota, "look", dependsOn=[f"task-{n}" for n in range(1000)])
    assert len(rota.task(task_id)["waitingFor"]) == 1000
    assert rota.request("DELETE", f"/tasks/{task_id}").status == 200


def test_fields_that_the_document_does_not_know_are_ignored(rota: Rota) -> None:
    completed(rota, submit(rota, "look", mood="good", deadline=5))


def test_nulls_are_as_good_as_nothing(rota: Rota) -> None:
    names = ("taskId", "retryPolicy", "timeoutMs", "webhookUrl", "llmConfig")
    completed(rota, submit(rota, "look", **dict.fromkeys(names)))


def test_a_null_is_a_field_that_is_absent(rota: Rota) -> None:
    fields = ("priority", "dependsOn", "onMissing", "preempt", "timeoutMs", "retryPolicy", "ref")
    body = {"instruction": "x", **dict.fromkeys(fields)}
    assert rota.post("/tasks", body).status == 201
    assert rota.post("/tasks/batch", {"tasks": [body]}).status == 201
    assert rota.post("/tasks", {"instruction": None}).status == 400

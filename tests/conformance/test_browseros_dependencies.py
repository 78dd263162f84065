"""The BrowserOS task queue document: Dependency Resolution."""

from __future__ import annotations

import json
from itertools import pairwise
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
    lived,
    submit,
    submit_batch,
    told,
    with_chat,
)
from support.http_server import Rota, Servers, until


@pytest.fixture
def rota(chat: Chat, serve: Servers) -> Rota:
    """A server that runs four tasks at once: only dependencies hold anything back."""
    return serve(with_chat(chat, maxConcurrent=4))


def held(rota: Rota, chat: Chat, text: str, **fields: Any) -> str:
    """Submit a task that runs until its text is released."""
    chat.on(text, Hold(text), event({"of": text}))
    return submit(rota, text, **fields)


def delete(rota: Rota, task_id: str) -> None:
    answer = rota.request("DELETE", f"/tasks/{task_id}")
    assert answer.status == 200, answer


# -- Rule 1: all dependencies completed ----------------------------------------------------------


def test_rule_1_a_task_executes_only_when_all_dependencies_are_completed(
    rota: Rota, chat: Chat
) -> None:
    first, second = held(rota, chat, "first"), held(rota, chat, "second")
    both = submit(rota, "both", dependsOn=[first, second])
    assert rota.task(both)["state"] == "waiting_dependency"
    assert rota.task(both)["dependsOn"] == [first, second]
    assert rota.task(both)["waitingFor"] == sorted([first, second])
    chat.release("first")
    completed(rota, first)
    waiting = until(
        lambda: task if (task := rota.task(both))["waitingFor"] == [second] else None,
        what="one dependency is left",
    )
    assert waiting["state"] == "waiting_dependency"
    assert "both" not in chat.messages()
    chat.release("second")
    completed(rota, both)
    assert "waitingFor" not in rota.task(both)


def test_rule_1_a_dependency_that_is_completed_already_is_met(rota: Rota) -> None:
    first = submit(rota, "first")
    completed(rota, first)
    answer = rota.post("/tasks", {"instruction": "then", "dependsOn": [first]})
    assert answer.json["state"] == "pending"
    completed(rota, answer.json["taskId"])


def test_rule_1_a_dependency_that_has_left_memory_is_met(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat) | {"scheduler": {"resultTTLSec": 1}})
    first = submit(rota, "first")
    completed(rota, first)
    until(lambda: rota.get("/tasks").json["count"] == 0, what="the task has left memory")
    completed(rota, submit(rota, "then", dependsOn=[first]))


def test_rule_1_a_dependency_named_twice_is_one(rota: Rota, chat: Chat) -> None:
    first = held(rota, chat, "first")
    then = submit(rota, "then", dependsOn=[first, first])
    assert rota.task(then)["waitingFor"] == [first]
    chat.release("first")
    completed(rota, then)


def test_rule_1_a_chain_runs_in_its_order_whatever_the_priorities(rota: Rota, chat: Chat) -> None:
    ids = [held(rota, chat, "task 0", priority="low")]
    for n in range(1, 6):
        word = ("critical", "high")[n % 2]
        ids.append(submit(rota, f"task {n}", dependsOn=[ids[-1]], priority=word))
    chat.release("task 0")
    completed(rota, *ids)
    assert chat.messages() == [f"task {n}" for n in range(6)]


@pytest.mark.parametrize("priority", ["high", "normal"])
def test_rule_1_a_released_task_is_dequeued_by_priority_then_creation_time(
    serve: Servers, chat: Chat, priority: str
) -> None:
    rota = serve(with_chat(chat))
    chat.on("block", Hold("block"), event("done"))
    chat.on("block again", Hold("block again"), event("done"))
    ids = [submit(rota, "block")]
    chat.wait_for(1)
    ids.append(submit(rota, "first", priority="critical"))
    ids.append(submit(rota, "then", priority=priority, dependsOn=[ids[-1]]))
    ids.append(submit(rota, "block again", priority="critical"))
    ids.append(submit(rota, "younger"))
    chat.release("block")
    chat.wait_for(3)
    rota.when(ids[2], "pending")
    chat.release("block again")
    completed(rota, *ids)
    assert chat.messages() == ["block", "first", "block again", "then", "younger"]


def test_rule_1_a_dependency_of_another_dialect_counts_the_same(rota: Rota) -> None:
    first = rota.submit_native("ann", "sleep", params={"ms": 100})
    then = submit(rota, "then", dependsOn=[first])
    assert rota.task(then)["state"] == "waiting_dependency"
    completed(rota, then)
    assert rota.get(f"/v1/tasks/{first}").json["state"] == "succeeded"


# -- Rule 2: failed or cancelled dependencies ----------------------------------------------------


def test_rule_2_a_failed_dependency_cancels_its_dependents(rota: Rota, chat: Chat) -> None:
    chat.on("first", Hold("first"), Status(500, "Internal Server Error"))
    first = submit(rota, "first", retryPolicy=ONCE)
    then = submit(rota, "then", dependsOn=[first])
    chat.release("first")
    task = ended(rota, then)
    assert task["state"] == "cancelled"
    assert task["error"] == f"dependency {first} failed"
    assert rota.get(f"/v1/tasks/{then}").json["error"]["code"] == "dependency_failed"
    assert lived(rota, then) == ["waiting_dependency", "cancelled"]
    assert "then" not in chat.messages()


def test_rule_2_a_cancelled_dependency_cancels_its_dependents(rota: Rota, chat: Chat) -> None:
    first = held(rota, chat, "first")
    then = submit(rota, "then", dependsOn=[first])
    delete(rota, first)
    task = ended(rota, then)
    assert (task["state"], task["error"]) == ("cancelled", f"dependency {first} was cancelled")


def test_rule_2_a_timed_out_dependency_cancels_its_dependents(rota: Rota, chat: Chat) -> None:
    first = held(rota, chat, "first", timeoutMs=50, retryPolicy=ONCE)
    then = submit(rota, "then", dependsOn=[first])
    assert ended(rota, then)["error"] == f"dependency {first} failed"


def test_rule_2_it_goes_on_to_the_dependents_of_dependents(rota: Rota, chat: Chat) -> None:
    ids = [held(rota, chat, "task 0")]
    for n in range(1, 20):
        ids.append(submit(rota, f"task {n}", dependsOn=[ids[-1]]))
    delete(rota, ids[0])
    for parent, child in pairwise(ids):
        task = ended(rota, child)
        assert (task["state"], task["error"]) == (
            "cancelled",
            f"dependency {parent} was cancelled",
        )
    assert chat.messages() == ["task 0"]


def test_rule_2_one_bad_dependency_of_many_is_enough(rota: Rota, chat: Chat) -> None:
    good, bad, open_ = submit(rota, "good"), held(rota, chat, "bad"), held(rota, chat, "open")
    then = submit(rota, "then", dependsOn=[good, bad, open_, "never-comes"])
    completed(rota, good)
    delete(rota, bad)
    assert ended(rota, then)["error"] == f"dependency {bad} was cancelled"
    assert rota.task(open_)["state"] == "running"


def test_rule_2_others_are_not_touched(rota: Rota, chat: Chat) -> None:
    good, bad = held(rota, chat, "good"), held(rota, chat, "bad")
    spared, doomed = (submit(rota, f"after {p}", dependsOn=[p]) for p in (good, bad))
    delete(rota, bad)
    assert ended(rota, doomed)["state"] == "cancelled"
    assert rota.task(spared)["state"] == "waiting_dependency"
    chat.release("good")
    completed(rota, spared)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_rule_2_a_dependency_that_has_failed_before_cancels_at_once(
    rota: Rota, chat: Chat, end: str
) -> None:
    chat.on("first", Hold("first"), Status(500))
    first = submit(rota, "first", retryPolicy=ONCE)
    if end == "cancelled":
        delete(rota, first)
    chat.release("first")
    assert ended(rota, first)["state"] == end
    then = submit(rota, "then", dependsOn=[first])
    assert rota.task(then)["state"] == "cancelled"
    assert "then" not in chat.messages()


def test_rule_2_a_dependency_that_will_be_retried_has_not_failed(rota: Rota, chat: Chat) -> None:
    chat.on("first", Status(500))
    chat.on("first", Hold("again"), event("better"))
    first = submit(rota, "first", retryPolicy={"backoffMs": 1})
    then = submit(rota, "then", dependsOn=[first])
    chat.wait_for(2)
    assert rota.task(then)["state"] == "waiting_dependency"
    chat.release("again")
    completed(rota, first, then)


def test_rule_2_the_cancellation_is_told_like_any_other(rota: Rota, chat: Chat) -> None:
    first = held(rota, chat, "first")
    then = submit(rota, "then", dependsOn=[first])
    delete(rota, first)
    ended(rota, then)
    assert [each["type"] for each in told(rota, task=then)] == ["task.created", "task.cancelled"]


# -- Rule 3: cycles ------------------------------------------------------------------------------


def refused_cycle(answer: Any) -> list[str]:
    assert (answer.status, answer.code) == (400, "dependency_cycle"), answer
    path: list[str] = answer.json["details"]["path"]
    assert path[0] == path[-1]
    assert " -> ".join(path) in answer.json["error"]
    return path


def test_rule_3_a_circle_in_a_batch_is_refused_with_its_path(rota: Rota) -> None:
    tasks = [
        {"instruction": "one", "taskId": "one", "dependsOn": ["three"]},
        {"instruction": "two", "taskId": "two", "dependsOn": ["one"]},
        {"instruction": "three", "taskId": "three", "dependsOn": ["two"]},
        {"instruction": "four", "dependsOn": []},
    ]
    path = refused_cycle(rota.post("/tasks/batch", {"tasks": tasks}))
    assert path == ["one", "three", "two", "one"]
    assert rota.get("/tasks/stats").json["total"] == 0


@pytest.mark.parametrize("dependency", ["me", "ref:myself", 0])
def test_rule_3_a_task_that_depends_on_itself_is_refused(rota: Rota, dependency: Any) -> None:
    task = {"instruction": "x", "taskId": "me", "ref": "myself", "dependsOn": [dependency]}
    assert refused_cycle(rota.post("/tasks/batch", {"tasks": [task]})) == ["me", "me"]


def test_rule_3_a_single_task_that_depends_on_itself_is_refused(rota: Rota) -> None:
    answer = rota.post("/tasks", {"instruction": "x", "taskId": "me", "dependsOn": ["me"]})
    assert refused_cycle(answer) == ["me", "me"]
    assert rota.get("/tasks/me").status == 404


def test_rule_3_a_circle_that_closes_with_a_later_task_is_refused(rota: Rota) -> None:
    submit(rota, "a", taskId="a", dependsOn=["b"])
    submit(rota, "b", taskId="b", dependsOn=["c"])
    answer = rota.post("/tasks", {"instruction": "c", "taskId": "c", "dependsOn": ["a"]})
    assert refused_cycle(answer) == ["c", "a", "b", "c"]
    assert rota.get("/tasks/c").status == 404
    submit(rota, "c", taskId="c")
    completed(rota, "c", "b", "a")


def test_rule_3_diamonds_are_no_circles(rota: Rota, chat: Chat) -> None:
    _, ids = submit_batch(
        rota,
        {"instruction": "top", "ref": "top"},
        {"instruction": "left", "ref": "left", "dependsOn": ["ref:top"]},
        {"instruction": "right", "ref": "right", "dependsOn": ["ref:top"]},
        {"instruction": "bottom", "dependsOn": ["ref:left", "ref:right", "ref:top"]},
    )
    completed(rota, *ids)
    assert chat.messages()[0] == "top"
    assert chat.messages()[3] == "bottom"


def test_rule_3_a_long_chain_is_searched_and_a_long_circle_found(rota: Rota) -> None:
    chain = [
        {"instruction": "x", "taskId": f"task-{n}", "dependsOn": [f"task-{n + 1}"]}
        for n in range(100)
    ]
    chain[-1]["dependsOn"] = ["task-0"]
    answer = rota.post("/tasks/batch", {"tasks": chain})
    assert (answer.status, answer.code) == (400, "dependency_cycle")
    path = answer.json["details"]["path"]
    assert path == [*(f"task-{n}" for n in range(50)), "..."], "the path is shown as far as it fits"
    chain[-1]["dependsOn"] = []
    _, ids = submit_batch(rota, *chain)
    completed(rota, *ids)


# -- Rule 4: missing dependencies ----------------------------------------------------------------


def test_rule_4_a_task_with_a_missing_dependency_waits_visibly(rota: Rota, chat: Chat) -> None:
    answer = rota.post("/tasks", {"instruction": "then", "dependsOn": ["not-there"]})
    assert (answer.status, answer.json["state"]) == (201, "waiting_dependency")
    completed(rota, submit(rota, "other"))
    task = rota.task(answer.json["taskId"])
    assert task["state"] == "waiting_dependency"
    assert task["waitingFor"] == ["not-there"]
    assert chat.messages() == ["other"]


def test_rule_4_it_is_released_when_the_task_comes_and_completes(rota: Rota, chat: Chat) -> None:
    then = submit(rota, "then", dependsOn=["later"])
    held(rota, chat, "first", taskId="later")
    chat.wait_for(1)
    assert rota.task(then)["state"] == "waiting_dependency"
    chat.release("first")
    completed(rota, then)


def test_rule_4_it_is_cancelled_when_the_task_comes_and_fails(rota: Rota, chat: Chat) -> None:
    then = submit(rota, "then", dependsOn=["later"])
    chat.on("first", Status(500))
    submit(rota, "first", taskId="later", retryPolicy=ONCE)
    assert ended(rota, then)["error"] == "dependency later failed"


def test_rule_4_it_can_be_cancelled_while_it_waits(rota: Rota) -> None:
    then = submit(rota, "then", dependsOn=["never"])
    delete(rota, then)
    assert rota.task(then)["state"] == "cancelled"


def test_rule_4_it_holds_up_nobody(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat))
    for n in range(20):
        submit(rota, f"blocked {n}", dependsOn=["never"], priority="critical")
    completed(rota, submit(rota, "low", priority="low"))


def test_rule_4_a_client_can_ask_to_be_refused_instead(rota: Rota) -> None:
    body = {"instruction": "then", "dependsOn": ["not-there"], "onMissing": "fail"}
    answer = rota.post("/tasks", body)
    assert (answer.status, answer.code) == (400, "missing_dependency")
    assert answer.json["details"]["taskId"] == "not-there"
    assert rota.post("/tasks/batch", {"tasks": [body]}).code == "missing_dependency"
    assert rota.get("/tasks/stats").json["total"] == 0


# -- Example -------------------------------------------------------------------------------------


TEXTS = ["Navigate to https://example.com", "Extract page title", "Take screenshot"]


@pytest.mark.parametrize("way", ["own id", "ref", "index"])
def test_the_example_runs_two_and_three_after_one(rota: Rota, chat: Chat, way: str) -> None:
    own = "c0ffee00-1234-4abc-8def-0123456789ab"
    first = {"own id": {"taskId": own}, "ref": {"ref": "task-1"}, "index": {}}[way]
    name = {"own id": own, "ref": "ref:task-1", "index": 0}[way]
    chat.on(TEXTS[0], Hold("navigation"), event("there"))
    for text in TEXTS[1:]:
        chat.on(text, Hold("both run at once"), event("done"))
    _, ids = submit_batch(
        rota,
        {"instruction": TEXTS[0], "dependsOn": [], **first},
        {"instruction": TEXTS[1], "dependsOn": [name]},
        {"instruction": TEXTS[2], "dependsOn": [name]},
    )
    chat.wait_for(1)
    assert [rota.task(task_id)["state"] for task_id in ids] == [
        "running",
        "waiting_dependency",
        "waiting_dependency",
    ]
    assert rota.task(ids[1])["dependsOn"] == rota.task(ids[2])["dependsOn"] == [ids[0]]
    assert chat.messages() == TEXTS[:1]
    chat.release("navigation")
    chat.wait_for(3)
    assert sorted(chat.messages()) == sorted(TEXTS)
    chat.release("both run at once")
    completed(rota, *ids)


def test_the_example_runs_one_by_one_by_default(serve: Servers, chat: Chat) -> None:
    rota = serve(with_chat(chat))
    items = [{"instruction": text, "dependsOn": [0] if at else []} for at, text in enumerate(TEXTS)]
    _, ids = submit_batch(rota, *items)
    completed(rota, *ids)
    assert chat.messages() == TEXTS
    assert chat.peak == 1


# -- results flow into instructions --------------------------------------------------------------


def test_a_dependencys_result_is_put_into_the_instruction(rota: Rota, chat: Chat) -> None:
    chat.on("fetch", event({"title": "Example", "links": ["/a", "/b"]}))
    text = "Open {{page.links.1}} of {{page.title}} ({{ page }}) but leave {{this}} and {{page.no}}"
    _, ids = submit_batch(
        rota,
        {"instruction": "fetch", "ref": "page"},
        {"instruction": text, "dependsOn": ["ref:page"], "llmConfig": {"seen": "{{page}}"}},
    )
    completed(rota, *ids)
    page = '{"title":"Example","links":["/a","/b"]}'
    assert chat.messages()[1] == f"Open /b of Example ({page}) but leave {{{{this}}}} and null"
    assert chat.requests[1].body["seen"] == {"title": "Example", "links": ["/a", "/b"]}
    assert rota.task(ids[1])["instruction"] == text


def test_a_result_is_reached_by_the_name_that_depends_on_used(rota: Rota, chat: Chat) -> None:
    chat.on("fetch", event("the text"))
    first = submit(rota, "fetch", taskId="own.id")
    completed(rota, first)
    by_id = submit(rota, "say {{own.id}}", dependsOn=["own.id"])
    _, by_index = submit_batch(
        rota, {"instruction": "fetch"}, {"instruction": "tell {{0}}", "dependsOn": [0]}
    )
    completed(rota, by_id, *by_index)
    assert {"say the text", "tell the text"} < set(chat.messages())


@pytest.mark.parametrize("result", ["a text", {"title": "Example"}, ["a", 1], 42])
def test_a_result_can_be_the_whole_instruction(rota: Rota, chat: Chat, result: Any) -> None:
    chat.on("write the next instruction", event(result))
    _, ids = submit_batch(
        rota,
        {"instruction": "write the next instruction", "ref": "plan"},
        {"instruction": "{{plan}}", "dependsOn": ["ref:plan"]},
    )
    completed(rota, *ids)
    said = chat.requests[1].body["message"]
    assert said == (
        result if isinstance(result, str) else json.dumps(result, separators=(",", ":"))
    )


def test_without_a_dependency_braces_stay_as_they_are(rota: Rota, chat: Chat) -> None:
    completed(rota, submit(rota, "fill {{name}} in"))
    assert chat.messages() == ["fill {{name}} in"]


def test_a_result_may_not_put_its_own_placeholders_in(rota: Rota, chat: Chat) -> None:
    chat.on("secret", event("the secret"))
    chat.on("outside", event("{{secret}}"))
    _, ids = submit_batch(
        rota,
        {"instruction": "secret", "ref": "secret"},
        {"instruction": "outside", "ref": "page"},
        {"instruction": "read {{page}}", "dependsOn": ["ref:secret", "ref:page"]},
    )
    completed(rota, *ids)
    assert chat.messages()[2] == "read {{secret}}"

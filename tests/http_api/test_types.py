"""Types and keys: their limits hold, and never hold up anybody else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Rota, Servers, Target, ended, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WIDE = {"workerCount": 50, "maxInflight": 50, "maxPerAgentInflight": 50}
ENDS = ("task_succeeded", "task_failed", "task_cancelled", "attempt_failed", "attempt_interrupted")


def config(tab: Target, types: dict[str, Any], **scheduler: Any) -> dict[str, Any]:
    """Every type is run by a browser that does what a task's own params ask."""
    return {
        "executors": {"tab": {"kind": "tab", "url": tab.url}},
        "types": {name: {"executor": "tab", **kind} for name, kind in types.items()},
        "scheduler": {**WIDE, **scheduler},
    }


def submit(rota: Rota, action: str, tag: str, agent: str = "ann", **fields: Any) -> str:
    params = {"tag": tag, **fields.pop("params", {})}
    return rota.submit_native(agent, action, tabId="t", params=params, **fields)


def row(rota: Rota, name: str) -> dict[str, Any]:
    found = {each["type"]: each for each in rota.get("/v1/types").json["types"]}
    return found[name]


def peaks(rota: Rota, group: Callable[[dict[str, Any]], str]) -> Counter[str]:
    """How many tasks of each group were in flight at most, by the history."""
    about: dict[str, str] = {}
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for event in rota.events():
        task_id = event.get("task", "")
        if event["kind"] == "task_submitted":
            about[task_id] = group(event)
        elif event["kind"] == "task_assigned":
            now[about[task_id]] += 1
            most |= now
        elif event["kind"] in ENDS:
            now[about[task_id]] -= 1
    return most


# -- types ---------------------------------------------------------------------------------------


def test_no_more_of_a_type_run_at_once_than_it_allows(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"scan": {"maxConcurrent": 2}, "click": {}}))
    scans = [submit(rota, "scan", "s", agent=f"a{n % 3}", params={"hold": "s"}) for n in range(8)]
    clicks = [submit(rota, "click", "c", agent=f"a{n % 3}", params={"hold": "c"}) for n in range(6)]
    until(lambda: row(rota, "click")["inflight"] == 6, what="every click runs")
    assert row(rota, "scan")["inflight"] == 2
    assert row(rota, "scan")["maxConcurrent"] == 2
    tab.release("s")
    tab.release("c")
    assert {ended(rota, t)["state"] for t in scans + clicks} == {"succeeded"}
    most = peaks(rota, lambda event: str(event["data"]["action"]))
    assert (most["scan"], most["click"]) == (2, 6)


def test_a_type_that_is_full_never_stalls_the_rest_of_its_agent(
    serve: Servers, tab: Target
) -> None:
    rota = serve(config(tab, {"scan": {"maxConcurrent": 1}, "click": {}}, workerCount=2))
    submit(rota, "scan", "first", params={"hold": "scan"})
    tab.wait_for(1)
    stuck = [submit(rota, "scan", "stuck", priority=0) for _ in range(5)]
    others = [submit(rota, "click", f"other {n}", priority=3) for n in range(3)]
    assert {ended(rota, task_id)["state"] for task_id in others} == {"succeeded"}
    assert tab.tags() == ["first", "other 0", "other 1", "other 2"]
    tab.release("scan")
    assert {ended(rota, task_id)["state"] for task_id in stuck} == {"succeeded"}


def test_a_type_gives_what_a_task_leaves_open(serve: Servers, tab: Target) -> None:
    kind = {
        "timeoutMs": 4000, "queueTimeoutMs": 5000, "onInterrupt": "fail",
        "retry": {"maxAttempts": 7},
    }  # fmt: skip
    rota = serve(config(tab, {"scan": kind}))
    task = ended(rota, submit(rota, "scan", "plain"))
    assert (task["timeoutMs"], task["queueTimeoutMs"], task["maxAttempts"]) == (4000, 5000, 7)
    own = submit(rota, "scan", "own", timeoutMs=10, queueTimeoutMs=20_000, params={"hold": "x"})
    task = rota.get(f"/v1/tasks/{own}").json
    assert (task["timeoutMs"], task["queueTimeoutMs"]) == (10, 20_000)
    shown = row(rota, "scan")
    assert shown["timeoutMs"] == 4000
    assert shown["onInterrupt"] == "fail"


def test_what_must_not_run_twice_can_be_said_for_a_whole_type(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"pay": {"onInterrupt": "fail"}}))
    fails = submit(rota, "pay", "once", params={"hold": "x"})
    again = submit(rota, "pay", "again", params={"hold": "x"}, onInterrupt="retry")
    tab.wait_for(2)
    rota.restart()
    assert ended(rota, fails)["error"]["code"] == "interrupted"
    until(lambda: tab.tags().count("again") == 2, what="the other runs again")
    tab.release("x")
    assert ended(rota, again)["state"] == "succeeded"


def test_a_timeout_over_the_types_most_is_refused(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"scan": {"timeoutMs": 100, "timeoutMsMax": 1000}}))
    assert ended(rota, submit(rota, "scan", "just so", timeoutMs=1000))["timeoutMs"] == 1000
    before = rota.get("/v1/events/head").json
    body = {"agentId": "ann", "action": "scan", "tabId": "t", "timeoutMs": 1001}
    answer = rota.post("/v1/tasks", body)
    assert (answer.status, answer.json["details"]) == (400, {"field": "timeoutMs"})
    assert "1000" in answer.json["error"]
    assert rota.post("/v1/batches", {"tasks": [body]}).status == 400
    assert rota.get("/v1/events/head").json == before
    assert rota.post("/v1/tasks", body | {"action": "echo"}).status == 202


def test_type_is_another_word_for_action(serve: Servers) -> None:
    rota = serve()
    answer = rota.post("/v1/tasks", {"agentId": "ann", "type": "echo"})
    assert ended(rota, answer.json["taskId"])["action"] == "echo"
    for other in ("echo", "fail"):
        both = rota.post("/v1/tasks", {"agentId": "ann", "type": "echo", "action": other})
        assert both.status == 400
        assert "either action or type" in both.json["error"]


def test_a_types_settings_change_with_the_file(serve: Servers, tab: Target, tmp_path: Path) -> None:
    made = Rota(tmp_path / "own", config(tab, {"scan": {"maxConcurrent": 1}}))
    made.write_config(made.config)
    rota = serve.adopt(made)
    tasks = [submit(rota, "scan", "s", params={"hold": "s"}) for _ in range(3)]
    tab.wait_for(1)
    rota.write_config(config(tab, {"scan": {"maxConcurrent": 2, "timeoutMs": 7000}}))
    assert rota.post("/v1/config/reload").status == 200
    until(lambda: row(rota, "scan")["inflight"] == 2, what="the new limit is in force")
    tab.release("s")
    assert {ended(rota, task_id)["state"] for task_id in tasks} == {"succeeded"}
    assert ended(rota, submit(rota, "scan", "after"))["timeoutMs"] == 7000


def test_the_rules_of_types_are_recorded_when_they_change(
    serve: Servers, tab: Target, tmp_path: Path
) -> None:
    made = Rota(tmp_path / "own", config(tab, {"scan": {"timeoutMs": 5000}}))
    made.write_config(made.config)
    rota = serve.adopt(made)
    rota.restart()
    rota.write_config(config(tab, {"scan": {"timeoutMs": 7000}}))
    assert rota.post("/v1/config/reload").json["changed"] == [], "no limit did"
    assert rota.post("/v1/config/reload").status == 200
    rota.write_config(config(tab, {"scan": {"timeoutMs": 7000}}, maxQueueSize=5))
    assert rota.post("/v1/config/reload").json["changed"] == ["maxQueueSize"]
    told = [e for e in rota.events() if e["kind"] in ("server_started", "config_changed")]
    first, second = (
        {"types": {"scan": {"executor": "tab", "timeout_ms": ms}}, "tab": "tab"}
        for ms in (5000, 7000)
    )
    found = [(each["kind"], each["data"].get("rules")) for each in told]
    assert found == [
        ("server_started", first),
        ("server_started", None),
        ("config_changed", second),
        ("config_changed", None),
    ]


# -- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_tasks_of_a_key_run_at_once_than_allowed(
    serve: Servers, tab: Target, most: int
) -> None:
    rota = serve(config(tab, {"click": {}, "scan": {}}, maxPerKey=most))
    tasks = [
        submit(rota, action, "k", agent=agent, key=key, params={"hold": key})
        for _ in range(2)
        for action in ("click", "scan")
        for agent in ("ann", "bob")
        for key in ("profile-1", "profile-2")
    ]
    free = [submit(rota, "click", "free", key=f"own-{n}") for n in range(3)]
    assert {ended(rota, task_id)["state"] for task_id in free} == {"succeeded"}
    assert rota.get("/health").json["queue"]["running"] == 2 * most
    tab.release("profile-1")
    tab.release("profile-2")
    assert {ended(rota, task_id)["state"] for task_id in tasks} == {"succeeded"}
    found = peaks(rota, lambda event: str(event["data"].get("key")))
    assert (found["profile-1"], found["profile-2"]) == (most, most)
    assert rota.get(f"/v1/tasks/{tasks[0]}").json["key"] == "profile-1"


def test_a_key_that_is_busy_never_stalls_the_rest_of_its_agent(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"click": {}}, workerCount=2))
    submit(rota, "click", "first", key="k", params={"hold": "k"})
    tab.wait_for(1)
    stuck = [submit(rota, "click", "stuck", key="k", priority=0) for _ in range(5)]
    other = submit(rota, "click", "other key", key="other", priority=3)
    plain = submit(rota, "click", "plain", priority=3)
    for task_id in (other, plain):
        assert ended(rota, task_id)["state"] == "succeeded"
    assert tab.tags() == ["first", "other key", "plain"]
    tab.release("k")
    assert {ended(rota, task_id)["state"] for task_id in stuck} == {"succeeded"}
    assert peaks(rota, lambda event: str(event["data"].get("key")))["k"] == 1


def test_a_key_keeps_the_order_of_its_tasks(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"click": {}}))
    submit(rota, "click", "first", key="k", params={"hold": "k"})
    tab.wait_for(1)
    last = [submit(rota, "click", tag, key="k", priority=p) for tag, p in (("c", 3), ("b", 1))]
    last.append(submit(rota, "click", "a", key="k", priority=0))
    tab.release("k")
    for task_id in last:
        ended(rota, task_id)
    assert tab.tags() == ["first", "a", "b", "c"]


def test_a_key_is_free_while_its_task_backs_off(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"click": {}}))
    slow = {"kind": "fixed", "baseMs": 60_000}
    backs_off = submit(rota, "click", "one", key="k", params={"status": 500}, retry=slow)
    until(lambda: rota.get(f"/v1/tasks/{backs_off}").json["state"] == "scheduled")
    assert ended(rota, submit(rota, "click", "two", key="k"))["state"] == "succeeded"


def test_the_limit_of_keys_holds_over_a_restart(serve: Servers, tab: Target) -> None:
    rota = serve(config(tab, {"click": {}}))
    tasks = [submit(rota, "click", str(n), key="k", params={"hold": "k"}) for n in range(3)]
    tab.wait_for(1)
    rota.restart()
    tab.wait_for(2)
    assert rota.get("/health").json["queue"] == {"queued": 2, "running": 1, "max_concurrent": 50}
    tab.release("k")
    assert {ended(rota, task_id)["state"] for task_id in tasks} == {"succeeded"}
    assert peaks(rota, lambda event: str(event["data"].get("key")))["k"] == 1


# -- priorities ----------------------------------------------------------------------------------


def test_priorities_are_words_or_numbers_and_words_have_their_places(
    serve: Servers, tab: Target
) -> None:
    rota = serve(config(tab, {"click": {}}, workerCount=1))
    submit(rota, "click", "busy", params={"hold": "busy"})
    tab.wait_for(1)
    words = ["low", "normal", "high", "medium", "critical", 9, 0]
    last = [submit(rota, "click", word, priority=word) for word in words]
    tab.release("busy")
    for task_id in last:
        ended(rota, task_id)
    assert tab.tags()[1:] == ["critical", 0, "high", "normal", "medium", "low", 9]


@pytest.mark.parametrize("word", ["urgent", "Critical", "HIGH", "", " high", "1", "lo\u0301w"])
def test_an_unknown_word_for_a_priority_is_refused_with_the_known_ones(
    serve: Servers, word: str
) -> None:
    rota = serve()
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", "priority": word})
    assert (answer.status, answer.json["details"]) == (400, {"field": "priority"})
    assert all(known in answer.json["error"] for known in ("critical", "high", "normal", "low"))
    body = {"agentId": "ann", "tasks": [{"action": "echo", "priority": word}]}
    batch = rota.post("/v1/batches", body)
    assert (batch.status, batch.json["details"]) == (400, {"field": "tasks.0.priority"})
    assert rota.get("/v1/tasks").json["count"] == 0


def test_the_type_of_chats_is_shown_as_it_is_in_force(serve: Servers) -> None:
    executors = {"chat": {"kind": "chat", "url": "http://127.0.0.1:1/chat"}}
    (row,) = serve({"executors": executors}).get("/v1/types").json["types"]
    assert (row["type"], row["executor"], row["timeoutMs"]) == ("chat", "chat", 120_000)
    assert (row["retry"]["maxAttempts"], row["maxConcurrent"]) == (4, 1)
    types = {"chat": {"executor": "chat", "timeoutMs": 5000, "maxConcurrent": 3}}
    (row,) = serve({"executors": executors, "types": types}).get("/v1/types").json["types"]
    assert (row["executor"], row["timeoutMs"], row["maxConcurrent"]) == ("chat", 5000, 3)
    assert row["retry"]["maxAttempts"] == 4

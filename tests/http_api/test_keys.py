"""Idempotency keys make a repeat harmless; dedup keys keep like tasks apart."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.clocks import passing
from support.http_server import Rota, RotaProcess, Servers, Target, ended, until, with_tab

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Answer, Client

X_KEY, KEY = "X-Idempotency-Key", "Idempotency-Key"


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server with a browser."""
    return serve(with_tab(tab))


def post(rota: Client, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    body = {"agentId": "ann", "action": "waits", **fields}
    return rota.request("POST", "/v1/tasks", body, headers)


def state(rota: Client, task_id: str) -> str:
    return str(rota.get(f"/v1/tasks/{task_id}").json["state"])


def submitted(rota: Client) -> int:
    return int(rota.get("/v1/stats").json["total"]["submitted"])


# -- idempotency keys ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({X_KEY: "k-1"}, None),
        ({KEY: "k-1"}, None),
        ({}, "k-1"),
        ({X_KEY: "k-1"}, "k-1"),
        ({KEY: "k-1"}, "k-1"),
        ({X_KEY: "k-1", KEY: "k-1"}, "k-1"),
    ],
)
def test_a_repeat_answers_with_the_same_task(
    rota: Rota, headers: dict[str, str], field: str | None
) -> None:
    fields = {} if field is None else {"idempotencyKey": field}
    first = post(rota, headers, params={"n": 1}, **fields)
    second = post(rota, headers, params={"n": 1}, **fields)
    assert (first.status, second.status) == (202, 200)
    assert second.json == {**first.json, "idempotent": True}
    assert rota.get(f"/v1/tasks/{first.json['taskId']}").json["idempotencyKey"] == "k-1"
    in_body = post(rota, params={"n": 1}, idempotencyKey="k-1")
    assert (in_body.status, in_body.json["taskId"]) == (200, first.json["taskId"])
    assert submitted(rota) == 1


def test_a_repeat_tells_where_the_task_is_now(rota: Rota) -> None:
    first = post(rota, action="echo", idempotencyKey="k")
    ended(rota, first.json["taskId"])
    assert post(rota, action="echo", idempotencyKey="k").json["state"] == "succeeded"


def test_the_order_of_a_bodys_fields_does_not_matter(rota: Rota) -> None:
    first = post(rota, params={"a": 1, "b": {"c": 2, "d": 3}}, priority=1, idempotencyKey="k")
    second = post(rota, idempotencyKey="k", priority=1, params={"b": {"d": 3, "c": 2}, "a": 1})
    assert (second.status, second.json["taskId"]) == (200, first.json["taskId"])


@pytest.mark.parametrize(
    "other", [{"params": {"n": 2}}, {"agentId": "bob"}, {"priority": 0}, {"delayMs": 5}]
)
def test_another_body_under_a_known_key_is_refused(rota: Rota, other: dict[str, Any]) -> None:
    post(rota, params={"n": 1}, idempotencyKey="k")
    before = rota.get("/v1/events/head").json
    answer = post(rota, idempotencyKey="k", **({"params": {"n": 1}} | other))
    assert (answer.status, answer.code) == (422, "idempotency_conflict")
    assert answer.json["details"] == {"idempotencyKey": "k"}
    assert rota.get("/v1/events/head").json == before


def test_two_keys_that_contradict_each_other_are_refused(rota: Rota) -> None:
    answer = post(rota, {X_KEY: "one"}, idempotencyKey="two")
    assert (answer.status, answer.json["details"]) == (400, {"field": "idempotencyKey"})
    assert submitted(rota) == 0


def test_two_headers_that_contradict_each_other_are_refused(rota: Rota) -> None:
    answer = post(rota, {X_KEY: "one", KEY: "two"})
    assert answer.status == 400
    assert submitted(rota) == 0


@pytest.mark.parametrize("name", [X_KEY, KEY])
@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a\x7fb", "a\tb"])
def test_a_header_that_is_no_key_is_refused(rota: Rota, name: str, key: str) -> None:
    answer = post(rota, {name: key})
    assert answer.status == 400
    assert answer.json["error"]
    assert submitted(rota) == 0


def test_a_hundred_submissions_at_once_make_one_task(rota: Rota) -> None:
    with ThreadPoolExecutor(25) as threads:
        answers = list(
            threads.map(lambda _: post(rota, action="echo", idempotencyKey="k"), range(100))
        )
    assert sorted(answer.status for answer in answers) == [200] * 99 + [202]
    assert len({answer.json["taskId"] for answer in answers}) == 1
    assert submitted(rota) == 1


def test_a_key_survives_a_restart(rota: Rota) -> None:
    done = post(rota, action="echo", idempotencyKey="done").json["taskId"]
    waits = post(rota, idempotencyKey="waits").json["taskId"]
    ended(rota, done)
    rota.restart()
    assert post(rota, action="echo", idempotencyKey="done").json["taskId"] == done
    assert post(rota, idempotencyKey="waits").json["taskId"] == waits
    assert post(rota, idempotencyKey="waits", priority=0).status == 422


def test_a_key_survives_the_tasks_retention(serve: Servers) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    task_id = post(rota, action="echo", idempotencyKey="k").json["taskId"]
    ended(rota, task_id)
    until(lambda: rota.get("/v1/tasks").json["count"] == 0, what="it is past its retention")
    rota.submit_native(action="waits")
    assert rota.get("/v1/stats").json["queue"]["tasksInMemory"] == 1
    again = post(rota, action="echo", idempotencyKey="k")
    assert (again.status, again.json["taskId"], again.json["state"]) == (200, task_id, "succeeded")


def test_keys_and_waiting_tasks_survive_a_kill(tmp_path: Path) -> None:
    rota = RotaProcess(tmp_path, {})
    rota.start()
    try:
        fields = {"idempotencyKey": "k", "dedup": {"key": "d"}, "dependsOn": ["later"]}
        task_id = post(rota, **fields).json["taskId"]
        delayed = post(rota, idempotencyKey="delayed", delayMs=3_600_000).json["taskId"]
        before = [rota.get(f"/v1/tasks/{each}").json for each in (task_id, delayed)]
        rota.end(signal.SIGKILL)
        rota.start()
        assert [rota.get(f"/v1/tasks/{each}").json for each in (task_id, delayed)] == before
        again = post(rota, **fields)
        assert (again.status, again.json["taskId"]) == (200, task_id)
        assert post(rota, dedup={"key": "d"}).json["details"]["taskId"] == task_id
        assert submitted(rota) == 2
    finally:
        assert rota.end() == 0


def test_a_key_is_free_a_day_after_its_task_has_ended(rota: Rota) -> None:
    done = post(rota, action="echo", idempotencyKey="done").json["taskId"]
    waits = post(rota, idempotencyKey="waits").json["taskId"]
    ended(rota, done)
    with passing(timedelta(days=1, minutes=1).total_seconds()):
        fresh = post(rota, action="echo", idempotencyKey="done")
        held = post(rota, idempotencyKey="waits")
    assert fresh.status == 202
    assert fresh.json["taskId"] != done
    assert held.json["taskId"] == waits


def test_a_rejected_task_does_not_use_up_its_key(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    waits = rota.submit_native(action="waits")
    assert post(rota, idempotencyKey="k").status == 429
    rota.post(f"/v1/tasks/{waits}/cancel")
    assert post(rota, idempotencyKey="k").status == 202
    assert post(rota, idempotencyKey="k").status == 200


def test_a_repeat_needs_no_room_in_the_queue(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    post(rota, idempotencyKey="k")
    assert post(rota, idempotencyKey="k").status == 200


def test_an_invalid_submission_does_not_use_up_its_key(rota: Rota) -> None:
    missing = {"dependsOn": ["nobody"], "onMissing": "fail"}
    assert post(rota, idempotencyKey="k", **missing).status == 400
    assert post(rota, idempotencyKey="k", surprise=1).status == 400
    assert post(rota, idempotencyKey="k").status == 202


def test_a_repeat_after_the_deadline_is_still_a_repeat(rota: Rota) -> None:
    """A client that lost the answer sends the very same bytes again, however late."""
    moment = (datetime.now(UTC) + timedelta(milliseconds=300)).isoformat()
    first = post(rota, idempotencyKey="k", deadline=moment)
    assert first.status == 202
    assert ended(rota, first.json["taskId"])["state"] == "failed"
    again = post(rota, idempotencyKey="k", deadline=moment)
    assert (again.status, again.json.get("taskId")) == (200, first.json["taskId"])


def test_a_key_belongs_to_whoever_used_it(serve: Servers) -> None:
    tokens = {"ops": "o" * 20, "dev": "d" * 20}
    rota = serve({"server": {"tokens": tokens}})
    made = {}
    for name, token in tokens.items():
        rota.token = token
        answer = post(rota, idempotencyKey="k", agentId=name, dedup={"key": "d"})
        assert answer.status == 202
        made[name] = answer.json["taskId"]
    for name, token in tokens.items():
        rota.token = token
        again = post(rota, idempotencyKey="k", agentId=name, dedup={"key": "d"})
        assert (again.status, again.json["taskId"]) == (200, made[name])
    assert len(set(made.values())) == 2


def test_keys_of_both_kinds_and_of_capacity_do_not_mix(rota: Rota) -> None:
    fields = [{"idempotencyKey": "k"}, {"dedup": {"key": "k"}}, {"key": "k"}, {"taskId": "k"}]
    assert [post(rota, **each).status for each in fields] == [202] * 4


# -- dedup ---------------------------------------------------------------------------------------


def test_a_duplicate_of_an_active_task_is_refused(rota: Rota) -> None:
    first = post(rota, dedup={"key": "d"}).json["taskId"]
    for mode in ({}, {"mode": "reject"}):
        answer = post(rota, agentId="bob", dedup={"key": "d", **mode})
        assert (answer.status, answer.code) == (409, "duplicate")
        assert answer.json["details"] == {"taskId": first, "dedupKey": "d"}
    assert rota.get(f"/v1/tasks/{first}").json["dedupKey"] == "d"
    assert submitted(rota) == 1
    assert post(rota, dedup={"key": "other"}).status == 202


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_a_dedup_key_is_free_when_its_task_has_ended(rota: Rota, how: str) -> None:
    action = {"succeeded": "echo", "failed": "fail"}.get(how, "waits")
    task_id = post(rota, action=action, dedup={"key": "d"}).json["taskId"]
    if how == "cancelled":
        rota.post(f"/v1/tasks/{task_id}/cancel")
    assert ended(rota, task_id)["state"] == how
    assert post(rota, dedup={"key": "d"}).status == 202


@pytest.mark.parametrize("mode", ["reject", "return"])
def test_a_dedup_key_is_held_wherever_its_task_waits(rota: Rota, tab: Target, mode: str) -> None:
    later = {"kind": "fixed", "baseMs": 60_000}
    active = {
        "blocked": {"dependsOn": ["later"]},
        "scheduled": {"delayMs": 60_000},
        "backs off": {"action": "fail", "retry": later},
        "running": {"action": "click", "tabId": "t", "params": {"hold": "x"}},
    }
    made = {}
    for key, fields in active.items():
        made[key] = post(rota, dedup={"key": key}, **fields).json["taskId"]
    tab.wait_for(1)
    for key, task_id in made.items():
        answer = post(rota, dedup={"key": key, "mode": mode})
        assert answer.status == (409 if mode == "reject" else 200)
        said = answer.json["details"] if mode == "reject" else answer.json
        assert said["taskId"] == task_id


def test_mode_return_answers_with_the_active_task(rota: Rota) -> None:
    first = post(rota, dedup={"key": "d", "mode": "return"})
    second = post(rota, agentId="bob", params={"n": 1}, dedup={"key": "d", "mode": "return"})
    assert (first.status, second.status) == (202, 200)
    assert second.json == {**first.json, "deduplicated": True}
    assert submitted(rota) == 1


def test_mode_replace_cancels_the_active_task(rota: Rota, tab: Target) -> None:
    dedup = {"key": "d", "mode": "replace"}
    fields = {"action": "click", "tabId": "t", "params": {"hold": "for ever"}}
    first = post(rota, dedup=dedup, **fields).json["taskId"]
    tab.wait_for(1)
    second = post(rota, dedup=dedup)
    assert second.status == 202
    task = rota.get(f"/v1/tasks/{first}").json
    assert (task["state"], task["error"]["code"]) == ("cancelled", "replaced")
    assert second.json["taskId"] in task["error"]["message"]
    until(lambda: tab.left, what="the browser sees the connection close")
    third = post(rota, dedup=dedup)
    assert state(rota, second.json["taskId"]) == "cancelled"
    assert state(rota, third.json["taskId"]) == "ready"
    held = post(rota, dedup={"key": "d"})
    assert held.json["details"]["taskId"] == third.json["taskId"]


def test_a_replacement_that_is_refused_replaces_nothing(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    dedup = {"key": "d", "mode": "replace"}
    first = post(rota, dedup=dedup).json["taskId"]
    missing = {"dependsOn": ["nobody"], "onMissing": "fail"}
    assert post(rota, dedup=dedup, **missing).status == 400
    assert state(rota, first) == "ready"


def test_a_task_that_waits_for_the_one_it_replaces_does_not_wait_for_ever(rota: Rota) -> None:
    dedup = {"key": "d", "mode": "replace"}
    first = post(rota, dedup=dedup).json["taskId"]
    second = post(rota, action="echo", dedup=dedup, dependsOn=[first])
    assert state(rota, first) == "cancelled"
    if second.status == 202:
        assert ended(rota, second.json["taskId"])["error"]["code"] == "dependency_failed"


def test_dependents_of_a_replaced_task_are_cancelled(rota: Rota) -> None:
    dedup = {"key": "d", "mode": "replace"}
    first = post(rota, dedup=dedup).json["taskId"]
    child = rota.submit_native(dependsOn=[first])
    post(rota, dedup=dedup)
    assert ended(rota, child)["error"]["code"] == "dependency_failed"


def test_a_ttl_holds_the_key_after_the_end(rota: Rota) -> None:
    dedup = {"key": "d", "ttlMs": 3_600_000}
    first = post(rota, action="echo", dedup=dedup).json["taskId"]
    ended(rota, first)
    assert post(rota, dedup={"key": "d"}).json["details"]["taskId"] == first
    back = post(rota, dedup={"key": "d", "mode": "return"})
    assert (back.status, back.json["taskId"], back.json["state"]) == (200, first, "succeeded")
    rota.restart()
    assert post(rota, dedup={"key": "d"}).json["details"]["taskId"] == first
    fresh = post(rota, dedup={"key": "d", "mode": "replace"})
    assert fresh.status == 202
    assert state(rota, first) == "succeeded"


def test_a_ttl_counts_from_the_submission_and_ends(rota: Rota) -> None:
    dedup = {"key": "d", "ttlMs": 300}
    first = post(rota, action="echo", dedup=dedup)
    ended(rota, first.json["taskId"])
    until(
        lambda: post(rota, dedup={"key": "d"}).status == 202, what="the key is free after its ttl"
    )
    created = [event["at"] for event in rota.events(kind="task_submitted")]
    assert created[1] >= created[0] + 300_000


def test_a_ttl_does_not_free_the_key_of_an_active_task(rota: Rota) -> None:
    first = post(rota, dedup={"key": "d", "ttlMs": 1}).json["taskId"]
    ended(rota, post(rota, queueTimeoutMs=20).json["taskId"])
    assert post(rota, dedup={"key": "d"}).json["details"]["taskId"] == first


def test_a_dedup_key_is_held_again_by_a_task_that_is_retried_by_hand(rota: Rota) -> None:
    first = post(rota, action="fail", dedup={"key": "d"}).json["taskId"]
    ended(rota, first)
    rota.post("/v1/agents/ann/pause")
    rota.post(f"/v1/tasks/{first}/retry")
    answer = post(rota, dedup={"key": "d"})
    assert (answer.status, answer.json.get("details", {}).get("taskId")) == (409, first)


def test_a_hundred_duplicates_at_once_make_one_task(rota: Rota) -> None:
    with ThreadPoolExecutor(25) as threads:
        answers = list(threads.map(lambda _: post(rota, dedup={"key": "d"}), range(100)))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 99
    assert submitted(rota) == 1


def test_a_hundred_replacements_at_once_leave_one_active(rota: Rota) -> None:
    dedup = {"key": "d", "mode": "replace"}
    with ThreadPoolExecutor(25) as threads:
        answers = list(threads.map(lambda _: post(rota, dedup=dedup), range(100)))
    assert {answer.status for answer in answers} == {202}
    assert rota.get("/v1/tasks?state=ready").json["count"] == 1
    assert rota.get("/v1/tasks?state=cancelled").json["count"] == 99

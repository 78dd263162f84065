"""What flows from task to task stays within bounds, and so does what is shown of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, until

if TYPE_CHECKING:
    from support.http_server import Rota, Servers


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"n": value}
    return value


def batch(rota: Rota, *tasks: dict[str, Any]) -> list[str]:
    answer = rota.post("/v1/batches", {"agentId": "ann", "tasks": list(tasks)})
    assert answer.status == 202, answer
    return [task["taskId"] for task in answer.json["tasks"]]


def test_a_result_cannot_be_nested_deeper_and_deeper(rota: Rota) -> None:
    first, second = batch(
        rota,
        {"action": "echo", "ref": "r0", "params": nested(1, 50)},
        {"action": "echo", "dependsOn": ["ref:r0"], "params": nested("{{r0}}", 50)},
    )
    assert ended(rota, first)["state"] == "succeeded"
    task = ended(rota, second)
    assert (task["state"], task["error"]["code"]) == ("failed", "bad_params")
    assert "nested deeper than 64 levels" in task["error"]["message"]


def test_a_long_chain_of_results_ends_where_it_gets_too_deep_and_all_can_be_listed(
    rota: Rota,
) -> None:
    chain = [{"action": "echo", "params": {"p": 0}}]
    chain += [
        {"action": "echo", "dependsOn": [n], "params": {"p": "{{%d}}" % n}}  # noqa: UP031
        for n in range(60)
    ]
    ids = batch(rota, *chain)
    states = [ended(rota, task_id)["state"] for task_id in ids]
    assert states == sorted(states, key=["succeeded", "failed", "cancelled"].index)
    assert set(states) == {"succeeded", "failed", "cancelled"}
    assert len(rota.get("/v1/tasks?limit=1000").json["tasks"]) == 61
    assert rota.get("/v1/events?limit=1000&view=browseros").status == 200


def test_many_copies_of_a_large_result_are_not_kept(rota: Rota) -> None:
    large = rota.submit_native(action="echo", params={"x": "z" * 600_000})
    ended(rota, large)
    name = "{{" + large + "}}"
    copy = rota.submit_native(action="echo", dependsOn=[large], params={"v": f"{name} {name}"})
    assert ended(rota, copy)["error"]["code"] == "result_too_large"
    copies = {"v": name * 8}
    many = rota.submit_native(action="echo", dependsOn=[large], params=copies)
    assert ended(rota, many)["error"]["code"] == "bad_params"


@pytest.mark.parametrize("text", ["{{a" + " " * 3_000_000, ("{{a" + " " * 20_000) * 150])
def test_a_placeholder_without_an_end_is_just_text(rota: Rota, text: str) -> None:
    parent = rota.submit_native(action="echo")
    ended(rota, parent)
    task = rota.submit_native(action="fail", dependsOn=[parent], params={"v": text})
    assert ended(rota, task)["error"]["code"] == "asked_to_fail"


def test_placeholders_are_bounded_in_number(rota: Rota) -> None:
    parent = rota.submit_native(action="echo")
    ended(rota, parent)
    name = "{{" + parent + ".none}}"
    for count, code in ((10_000, None), (10_001, "bad_params")):
        params = {"v": [name] * count}
        task = rota.submit_native(action="echo", dependsOn=[parent], params=params)
        assert ended(rota, task).get("error", {}).get("code") == code


def test_an_item_is_known_by_its_index_its_ref_and_its_id(rota: Rota) -> None:
    names = {"ix": "{{0.echo.n}}", "ref": "{{f.echo.n}}", "id": "{{ P1.echo.n }}", "no": "{{1}}"}
    _, child = batch(
        rota,
        {"action": "echo", "ref": "f", "taskId": "P1", "params": {"n": 5}},
        {"action": "echo", "dependsOn": [0], "params": names},
    )
    task = ended(rota, child)
    assert task["result"]["echo"] == {"ix": 5, "ref": 5, "id": 5, "no": "{{1}}"}
    assert task["dependsOn"] == ["P1"]


def test_a_list_is_bounded_in_size_and_goes_on_by_its_cursor(rota: Rota) -> None:
    ids = [rota.submit_native(action="waits", params={"x": "y" * 3_000_000}) for _ in range(5)]
    found, path = [], "/v1/tasks?limit=1000"
    while True:
        answer = rota.get(path)
        assert len(answer.body) < 12_000_000
        found += [task["taskId"] for task in answer.json["tasks"]]
        if "nextCursor" not in answer.json:
            break
        path = f"/v1/tasks?limit=1000&cursor={answer.json['nextCursor']}"
    assert found == ids[::-1]


def test_many_who_depend_on_one_of_long_ago_are_told_how_it_ended(serve: Servers) -> None:
    """Its history is long; it is read once for all of them."""
    rota = serve({"scheduler": {"resultTTLSec": 1, "maxPerAgent": 1000}})
    parent = rota.submit_native(action="waits")
    for _ in range(200):
        rota.post(f"/v1/tasks/{parent}/progress", {"progress": "x" * 4000})
    rota.post(f"/v1/tasks/{parent}/cancel")
    until(lambda: rota.get("/v1/tasks").json["count"] == 0, what="it has left memory")
    assert rota.get(f"/v1/tasks/{parent}").json["progress"] == "x" * 4000
    ids = batch(rota, *[{"action": "echo", "dependsOn": [parent]}] * 500)
    assert {ended(rota, task_id)["state"] for task_id in ids[:5]} == {"cancelled"}


def test_a_token_that_is_wrong_is_told_apart_from_none(serve: Servers) -> None:
    rota = serve({"server": {"tokens": {"ops": "t" * 20}}})
    assert "send Authorization" in rota.get("/v1/tasks").json["error"]
    answer = rota.get("/v1/tasks", Authorization="Bearer wrong")
    assert (answer.status, answer.json["error"]) == (401, "this token is not known here")

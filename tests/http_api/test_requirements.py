"""How many sets of labels waiting tasks may require of workers, and that no more do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import look
from support.leasing import say, take_one

from rota.domain import admission

if TYPE_CHECKING:
    from support.http_server import Answer, Rota


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks require four different sets, of which one caller has two."""
    monkeypatch.setattr(admission, "REQUIREMENTS_MAX", 4)


def submit(rota: Rota, *labels: str, **fields: Any) -> Answer:
    body = {"agentId": "ann", "action": "fit", "requires": list(labels), **fields}
    return rota.post("/v1/tasks", body)


def test_one_set_of_labels_too_many_is_429_and_the_known_ones_go_on(rota: Rota) -> None:
    assert submit(rota, "gpu").status == 202
    assert submit(rota, "gpu", "big", delayMs=60_000).status == 202
    answer = submit(rota, "tpu")
    assert (answer.status, answer.code) == (429, "too_many_requirements")
    assert answer.json["details"] == {"field": "requires", "max": 4}
    assert submit(rota, "big", "gpu").status == 202
    assert rota.post("/v1/tasks", {"agentId": "ann", "action": "fit"}).status == 202


def test_who_comes_next_finds_room_for_its_labels(rota: Rota) -> None:
    for label in ("a", "b"):
        assert submit(rota, label).status == 202
    assert submit(rota, "c").code == "too_many_requirements"
    assert submit(rota, "c", agentId="bob").status == 202
    assert submit(rota, "c").status == 202
    assert submit(rota, "a", agentId="eve").status == 202
    assert submit(rota, "d", agentId="eve").code == "too_many_requirements"


def test_there_is_room_again_when_nothing_waits_with_a_set(rota: Rota) -> None:
    gpu, big = submit(rota, "gpu").json["taskId"], submit(rota, "big").json["taskId"]
    rota.post(f"/v1/tasks/{big}/cancel")
    assert submit(rota, "tpu").status == 202
    lease = take_one(rota, labels=["gpu"])
    assert submit(rota, "npu").status == 202
    assert say(rota, lease, "release").status == 200  # what was admitted always comes back
    assert look(rota, gpu)["state"] == "ready"
    rota.restart()
    assert submit(rota, "dpu").code == "too_many_requirements"


def test_a_batch_with_too_many_sets_is_refused_whole(rota: Rota) -> None:
    tasks = [{"action": "fit", "requires": [name]} for name in "abcde"]
    answer = rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks})
    assert (answer.status, answer.code) == (429, "too_many_requirements")
    assert rota.get("/v1/tasks").json["count"] == 0
    assert rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks[:2]}).status == 202


def test_a_task_that_is_given_a_new_life_needs_room_for_its_labels_as_well(rota: Rota) -> None:
    task_id = submit(rota, "gpu").json["taskId"]
    say(rota, take_one(rota, labels=["gpu"]), "fail", error="no")
    for name in ("a", "b"):
        submit(rota, name)
    assert rota.post(f"/v1/tasks/{task_id}/retry").code == "too_many_requirements"


@pytest.mark.parametrize(
    "wrong", [[], ["x"] * 9, "gpu", ["a\nb"], [""], ["x" * 1001], [1], {"gpu": True}]
)
def test_labels_that_are_none_are_400(rota: Rota, wrong: Any) -> None:
    body = {"agentId": "ann", "action": "fit", "requires": wrong}
    answer = rota.post("/v1/tasks", body)
    assert (answer.status, "requires" in answer.json["error"]) == (400, True)


def test_what_rota_runs_itself_requires_nothing_of_a_worker(rota: Rota) -> None:
    body = {"agentId": "ann", "action": "echo", "requires": ["gpu"]}
    assert rota.post("/v1/tasks", body).json["details"] == {"field": "requires"}

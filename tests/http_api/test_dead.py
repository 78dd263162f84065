"""/v1/dead: what failed for good is found, also long after, and lives again with what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, look, until

from rota.http.work_answers import DeadPage, Revived, RevivedMany
from rota.sight.sight import Sight

if TYPE_CHECKING:
    from support.http_server import Answer, Rota, Servers

BAD = {"action": "sleep", "params": {"ms": "long"}}
FORGETFUL = {"scheduler": {"maxEndedTasks": 1}}


@pytest.fixture(params=["in memory", "gone"])
def rota(serve: Servers, request: pytest.FixtureRequest) -> Rota:
    """A server that keeps what has ended in memory, and one that does not."""
    return serve(FORGETFUL if request.param == "gone" else None)


def submit(rota: Rota, agent: str = "ann", **fields: Any) -> str:
    answer = rota.post("/v1/tasks", {"agentId": agent, **fields})
    assert answer.status == 202, answer
    return str(answer.json["taskId"])


def dead(rota: Rota, agent: str = "ann", **fields: Any) -> str:
    """Submit a task that fails, and wait until it has."""
    task = submit(rota, agent, **{**BAD, **fields})
    assert ended(rota, task)["state"] == "failed"
    return task


def revive(rota: Rota, task: str, **fields: Any) -> Answer:
    return rota.post(f"/v1/dead/{task}/revive", fields)


def forget(rota: Rota) -> None:
    """Let something else end, so that what ended before may leave memory."""
    ended(rota, submit(rota, "zoe", action="echo"))


def dead_ids(rota: Rota, query: str = "") -> list[str]:
    page = rota.get(f"/v1/dead{query}").json
    assert DeadPage.model_validate(page, strict=True)
    return [row["taskId"] for row in page["dead"]]


def kinds(rota: Rota, task: str) -> list[str]:
    return [event["kind"] for event in rota.get(f"/v1/tasks/{task}/events").json["events"]]


# -- the list ------------------------------------------------------------------------------------


def test_a_dead_task_is_shown_with_what_a_person_wants_to_know(rota: Rota) -> None:
    task = dead(rota)
    forget(rota)
    (row,) = rota.get("/v1/dead").json["dead"]
    assert row["taskId"] == task
    assert (row["agentId"], row["type"], row["attempts"]) == ("ann", "sleep", 1)
    assert row["params"] == {"ms": "long"}
    assert row["error"]["code"] == "bad_params"
    assert row["failedAt"] >= row["createdAt"]


def test_the_dead_are_found_by_agent_type_code_and_words(rota: Rota) -> None:
    ann, bob = dead(rota), dead(rota, "bob", action="fail", params={"message": "no such part"})
    forget(rota)
    assert dead_ids(rota) == [bob, ann]
    assert dead_ids(rota, "?agentId=ann") == [ann]
    assert dead_ids(rota, "?type=fail") == [bob]
    assert dead_ids(rota, "?code=bad_params") == [ann]
    assert dead_ids(rota, "?q=Such") == [bob]
    assert dead_ids(rota, "?workflowId=wfl_none") == []


def test_what_the_dead_were_given_is_read_for_those_that_are_shown(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota = serve(FORGETFUL)
    meant = dead(rota, "a")
    for each in ("b", "c"):
        dead(rota, each)
    read: list[str] = []
    whole = Sight.failed_whole

    async def seen(sight: Sight, task_id: str, seq: int) -> Any:
        read.append(task_id)
        return await whole(sight, task_id, seq)

    monkeypatch.setattr(Sight, "failed_whole", seen)
    [row] = rota.get("/v1/dead?agentId=a").json["dead"]
    assert (row["taskId"], row["params"], read) == (meant, BAD["params"], [meant])


def test_the_list_goes_on_by_its_cursor(rota: Rota) -> None:
    tasks = [dead(rota) for _ in range(3)]
    page = rota.get("/v1/dead?limit=2").json
    assert [row["taskId"] for row in page["dead"]] == [tasks[2], tasks[1]]
    assert dead_ids(rota, f"?limit=2&cursor={page['nextCursor']}") == [tasks[0]]


# -- one of them ---------------------------------------------------------------------------------


def test_a_dead_task_lives_again_with_other_params_and_one_history(rota: Rota) -> None:
    task = dead(rota)
    forget(rota)
    answer = revive(rota, task, params={"ms": 1})
    assert (answer.status, answer.json["taskId"], answer.json["edited"]) == (202, task, True)
    assert Revived.model_validate(answer.json, strict=True)
    after = ended(rota, task)
    assert after["state"] == "succeeded"
    assert (after["params"], after["edited"]) == ({"ms": 1}, True)
    events = rota.get(f"/v1/tasks/{task}/events").json["events"]
    (again,) = [event for event in events if event["kind"] == "task_revived"]
    assert (again["data"]["params"], again["data"]["edited"]) == ({"ms": 1}, True)
    assert events[0]["data"]["params"] == {"ms": "long"}  # as it was submitted
    forget(rota)
    assert look(rota, task)["params"] == {"ms": 1}
    assert dead_ids(rota) == []


def test_without_params_it_goes_on_with_its_own(rota: Rota) -> None:
    task = dead(rota)
    assert revive(rota, task).status == 202
    after = ended(rota, task)
    assert (after["state"], after["attempt"]) == ("failed", 2)
    assert "edited" not in after


def test_what_is_not_dead_is_not_revived(rota: Rota) -> None:
    done = submit(rota, action="echo")
    ended(rota, done)
    waits = submit(rota, action="waits")
    for task in (done, waits):
        answer = revive(rota, task)
        assert (answer.status, answer.code) == (409, "conflict")
    rota.post(f"/v1/tasks/{waits}/cancel", {})
    assert revive(rota, waits).status == 409
    assert revive(rota, "tsk_none").status == 404


@pytest.mark.parametrize(
    "body",
    [{"params": []}, {"params": {}, "what": 1}, {"dependents": "yes"}, []],
)
def test_a_wrong_body_is_refused(rota: Rota, body: Any) -> None:
    task = dead(rota)
    assert rota.post(f"/v1/dead/{task}/revive", body).status == 400
    assert dead_ids(rota) == [task]


# -- and what it took with it --------------------------------------------------------------------


def family(rota: Rota) -> tuple[str, str, str]:
    """Give a dead task, the dependent that it took with it, and the dependent of that."""
    parent = submit(rota, action="sleep", params={"ms": "long"}, delayMs=100)
    child = submit(rota, "bob", action="echo", dependsOn=[parent])
    grandchild = submit(rota, "cat", action="echo", dependsOn=[child])
    for task, state in ((parent, "failed"), (child, "cancelled"), (grandchild, "cancelled")):
        assert ended(rota, task)["state"] == state
    forget(rota)
    return parent, child, grandchild


def test_dependents_that_a_failure_cancelled_live_again_with_it(rota: Rota) -> None:
    parent, child, grandchild = family(rota)
    answer = revive(rota, parent, params={"ms": 1}, dependents=True)
    assert answer.status == 202, answer
    assert answer.json["dependents"] == [child, grandchild]
    for task in (parent, child, grandchild):
        assert ended(rota, task)["state"] == "succeeded"
    assert kinds(rota, child)[:5] == [
        "task_submitted", "task_cancelled", "task_revived", "task_released", "task_assigned",
    ]  # fmt: skip


def test_they_stay_cancelled_unless_asked_for_and_can_be_revived_later(rota: Rota) -> None:
    parent, child, grandchild = family(rota)
    assert "dependents" not in revive(rota, parent, params={"ms": 1}).json
    assert ended(rota, parent)["state"] == "succeeded"
    early = revive(rota, grandchild)
    assert (early.status, early.code) == (409, "dependency_failed")
    assert revive(rota, child).status == 202
    assert ended(rota, child)["state"] == "succeeded"
    assert revive(rota, grandchild).status == 202
    assert ended(rota, grandchild)["state"] == "succeeded"


def test_dependents_of_a_task_that_fails_again_are_cancelled_again_and_can_live_again(
    rota: Rota,
) -> None:
    parent, child, grandchild = family(rota)
    assert revive(rota, parent, dependents=True).json["dependents"] == [child, grandchild]
    until(lambda: kinds(rota, grandchild).count("task_cancelled") == 2)
    assert revive(rota, parent, params={"ms": 1}, dependents=True).status == 202
    assert ended(rota, grandchild)["state"] == "succeeded"


def test_a_dependent_with_another_dead_parent_stays_cancelled(rota: Rota) -> None:
    parent = submit(rota, action="sleep", params={"ms": "long"}, delayMs=100)
    other = submit(rota, action="waits")
    child = submit(rota, action="echo", dependsOn=[parent, other])
    ended(rota, child)
    rota.post(f"/v1/tasks/{other}/cancel", {})
    answer = revive(rota, parent, params={"ms": 1}, dependents=True)
    assert answer.json["dependents"] == []
    (refused,) = answer.json["refused"]
    assert (refused["taskId"], refused["code"]) == (child, "dependency_failed")
    assert look(rota, child)["state"] == "cancelled"


def forget_batches(rota: Rota) -> None:
    """Let other batches end, so that those that ended before may leave memory."""
    for _ in range(2):
        batch = rota.post("/v1/batches", {"agentId": "zoe", "tasks": [{"action": "echo"}]}).json
        path = f"/v1/batches/{batch['batchId']}"
        until(lambda path=path: rota.get(path).json["state"] == "finished")
    forget(rota)


def test_what_several_belong_to_comes_back_once(serve: Servers) -> None:
    rota = serve(FORGETFUL)
    tasks = [{**BAD, "ref": "a", "delayMs": 50}]
    tasks += [{"action": "echo", "dependsOn": ["ref:a"]} for _ in range(5)]
    batch = rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks}).json
    first, *rest = (task["taskId"] for task in batch["tasks"])
    for task in rest:
        ended(rota, task)
    forget_batches(rota)
    answer = revive(rota, first, params={"ms": 1}, dependents=True).json
    assert sorted(answer["dependents"]) == sorted(rest)
    found = [each["data"] for each in rota.events(kind="task_revived")]
    assert [bool(each.get("restored")) for each in found] == [True] * 6
    assert [bool(each.get("restored_batch")) for each in found] == [True] + [False] * 5
    for task in (first, *rest):
        assert ended(rota, task)["state"] == "succeeded"


def test_what_comes_back_is_bounded_in_bytes_with_the_batches_it_belongs_to(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota = serve(FORGETFUL)
    parent = submit(rota, action="sleep", params={"ms": "long"}, delayMs=200)
    for _ in range(3):
        tasks = [{"action": "echo", "dependsOn": [parent]}]
        batch = rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks}).json
    ended(rota, batch["tasks"][0]["taskId"])
    forget_batches(rota)
    monkeypatch.setattr("rota.actors.revival.RESTORED_BYTES_MAX", 300)
    answer = revive(rota, parent, params={"ms": 1}, dependents=True).json
    assert len(answer["dependents"]) == 1
    assert [each["code"] for each in answer["refused"]] == ["too_large"] * 2


def test_a_batch_counts_those_that_live_again(rota: Rota) -> None:
    tasks = [
        {**BAD, "ref": "a", "delayMs": 50},
        {"action": "echo", "dependsOn": ["ref:a"]},
    ]
    batch = rota.post("/v1/batches", {"agentId": "ann", "tasks": tasks}).json
    first, second = (task["taskId"] for task in batch["tasks"])
    path = f"/v1/batches/{batch['batchId']}"
    done = until(lambda: view if (view := rota.get(path).json)["state"] == "finished" else None)
    assert done["counts"] == {"succeeded": 0, "failed": 1, "cancelled": 1}
    forget(rota)
    assert revive(rota, first, params={"ms": 1}, dependents=True).json["dependents"] == [second]
    done = until(
        lambda: view if (view := rota.get(path).json)["counts"]["succeeded"] == 2 else None
    )
    assert done["counts"] == {"succeeded": 2, "failed": 0, "cancelled": 0}


# -- many ----------------------------------------------------------------------------------------


def test_many_are_revived_by_filter_each_for_itself(rota: Rota) -> None:
    ann = [dead(rota) for _ in range(3)]
    bob = dead(rota, "bob")
    late = dead(rota, taskId="twin", dedup={"key": "k"})
    rival = submit(rota, action="waits", dedup={"key": "k"})
    answer = rota.post("/v1/dead/revive", {"agentId": "ann"})
    assert answer.status == 200
    assert RevivedMany.model_validate(answer.json, strict=True)
    assert sorted(answer.json["revived"]) == sorted(ann)
    assert (answer.json["count"], answer.json["more"]) == (3, False)
    (refused,) = answer.json["failed"]
    assert (refused["taskId"], refused["code"]) == (late, "duplicate")
    assert look(rota, rival)["state"] == "ready"
    assert look(rota, bob)["state"] == "failed"


def test_a_limit_leaves_the_rest_to_the_next_call(rota: Rota) -> None:
    tasks = [dead(rota) for _ in range(3)]
    first = rota.post("/v1/dead/revive", {"all": True, "limit": 2}).json
    assert (first["count"], first["more"]) == (2, True)
    rest = {"all": True, "cursor": first["nextCursor"]}
    second = rota.post("/v1/dead/revive", rest).json
    assert (second["revived"], second["more"]) == ([tasks[0]], False)


def test_dependents_can_be_revived_with_many(rota: Rota) -> None:
    parent, child, grandchild = family(rota)
    answer = rota.post("/v1/dead/revive", {"type": "sleep", "dependents": True}).json
    assert (answer["revived"], answer["dependents"]) == ([parent], 2)
    assert kinds(rota, grandchild).count("task_revived") == kinds(rota, child).count("task_revived")


@pytest.mark.parametrize(
    "body", [{}, {"limit": 5}, {"all": True, "limit": 0}, {"all": True, "cursor": "x"}, {"q": "x"}]
)
def test_many_are_only_revived_if_it_is_said_which(rota: Rota, body: dict[str, Any]) -> None:
    task = dead(rota)
    answer = rota.post("/v1/dead/revive", body)
    assert answer.status == 400
    assert dead_ids(rota) == [task]

"""What workers declare about the types that they serve, and who may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.leasing import say, take, take_one
from support.tokens import Guarded

from rota.domain import declared

if TYPE_CHECKING:
    from support.http_server import Client, Rota, Servers

FIT = {"type": "fit", "retry": {"kind": "fixed", "baseMs": 0, "maxAttempts": 2}, "timeoutMs": 5000}


def declare(rota: Client, *types: dict[str, Any]) -> list[Any]:
    """Declare types; give for whom each was accepted, or False."""
    answer = rota.post("/v1/types", {"types": list(types)})
    assert answer.status == 200, answer
    assert answer.json["count"] == len(answer.json["types"])
    return [row["accepted"] and row.get("agentId", "*") for row in answer.json["types"]]


def shown(rota: Rota, name: str) -> list[dict[str, Any]]:
    rows = {row["type"]: row for row in rota.get("/v1/types").json["types"]}
    found: list[dict[str, Any]] = rows.get(name, {}).get("declared", [])
    return found


def test_what_a_worker_declares_holds_for_tasks_that_say_nothing(rota: Rota) -> None:
    before = rota.submit_native("ann", "fit")
    assert declare(rota, FIT) == ["*"]
    own = rota.submit_native("ann", "fit", timeoutMs=7000, retry={"maxAttempts": 3})
    task = rota.submit_native("bob", "fit")
    assert "timeoutMs" not in rota.get(f"/v1/tasks/{before}").json
    view = rota.get(f"/v1/tasks/{own}").json
    assert (view["timeoutMs"], view["maxAttempts"]) == (7000, 3)
    view = rota.get(f"/v1/tasks/{task}").json
    assert (view["timeoutMs"], view["maxAttempts"]) == (5000, 2)
    lease = take_one(rota, agents=["bob"])
    assert say(rota, lease, "fail", error="no").json["state"] in ("scheduled", "ready")
    assert say(rota, take_one(rota, agents=["bob"]), "fail", error="no").json["state"] == "failed"
    [row] = shown(rota, "fit")
    assert (row["by"], row["timeoutMs"], row["retry"]["maxAttempts"]) == ("local", 5000, 2)


def test_saying_the_same_again_writes_nothing_and_saying_nothing_takes_it_back(rota: Rota) -> None:
    for _ in range(3):
        declare(rota, FIT, {"type": "fit", "agents": ["ann"], "timeoutMs": 1})
    declare(rota, {"type": "never"})
    assert len(rota.events(kind="type_declared")) == 2
    declare(rota, {"type": "fit"})
    assert [row.get("agentId") for row in shown(rota, "fit")] == ["ann"]
    task = rota.submit_native("bob", "fit")
    assert "timeoutMs" not in rota.get(f"/v1/tasks/{task}").json
    task = rota.submit_native("ann", "fit")
    assert rota.get(f"/v1/tasks/{task}").json["timeoutMs"] == 1


def test_what_is_declared_outlives_a_restart(rota: Rota) -> None:
    declare(rota, FIT)
    rota.restart()
    assert [row["timeoutMs"] for row in shown(rota, "fit")] == [5000]
    declare(rota, FIT)
    assert len(rota.events(kind="type_declared")) == 1


def test_no_more_are_lent_at_once_than_was_declared(rota: Rota) -> None:
    declare(rota, {"type": "fit", "agents": ["ann", "bob"], "maxConcurrent": 1})
    mine = [rota.submit_native("ann", "fit") for _ in range(3)]
    rota.submit_native("bob", "fit")
    rota.submit_native("cyd", "fit")
    leases = take(rota, max=10)
    assert sorted(each["task"]["agentId"] for each in leases) == ["ann", "bob", "cyd"]
    held = next(each for each in leases if each["task"]["agentId"] == "ann")
    left = next(each for each in mine if each != held["taskId"])
    assert "declared for type 'fit'" in rota.get(f"/v1/tasks/{left}").json["waitReason"]
    assert [row["inflight"] for row in shown(rota, "fit")] == [1, 1]
    assert take(rota, max=10) == []
    say(rota, held, "complete")
    take_one(rota, max=10)
    declare(rota, {"type": "fit", "agents": ["ann"], "maxConcurrent": 2})
    take_one(rota, max=10)


def test_the_configuration_goes_before_what_is_declared(serve: Servers) -> None:
    fit = {"timeoutMs": 9000, "maxConcurrent": 2, "retry": {"maxAttempts": 5}}
    other = {"timeoutMsMax": 100}
    rota = serve({"types": {"fit": fit, "other": other}})
    declare(rota, {**FIT, "maxConcurrent": 1}, {"type": "other", "timeoutMs": 5000})
    tasks = [rota.submit_native("ann", "fit") for _ in range(3)]
    view = rota.get(f"/v1/tasks/{tasks[0]}").json
    assert (view["timeoutMs"], view["maxAttempts"]) == (9000, 5)
    assert len(take(rota, max=10)) == 2
    task = rota.submit_native("ann", "other")
    assert rota.get(f"/v1/tasks/{task}").json["timeoutMs"] == 100


def test_what_rota_runs_itself_is_nobodys_to_declare(rota: Rota) -> None:
    declare(rota, {"type": "echo", "timeoutMs": 1})
    task = rota.submit_native("ann", "echo")
    assert "timeoutMs" not in rota.get(f"/v1/tasks/{task}").json


def test_a_token_declares_for_its_agents_alone(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("fleet", "work", "ann", "bob")
    fleet = guarded.client("fleet")
    assert declare(fleet, FIT) == ["ann", "bob"]
    answer = fleet.post("/v1/types", {"types": [{**FIT, "agents": ["cyd"]}]})
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    guarded.make("client", "submit", "ann")
    assert guarded.ask("client", "POST", "/v1/types", {"types": [FIT]}).status == 403
    task = guarded.rota.submit_native("cyd", "fit")
    assert "timeoutMs" not in guarded.rota.get(f"/v1/tasks/{task}").json
    assert {row["by"] for row in shown(guarded.rota, "fit")} == {guarded.principals["fleet"]}


def test_no_token_changes_what_another_has_declared(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("first", "work", "ann")
    guarded.make("second", "work", "ann")
    first, second = guarded.client("first"), guarded.client("second")
    assert declare(first, FIT) == ["ann"]
    assert declare(second, FIT) == ["ann"], "it says the same"
    for said in ({"type": "fit", "timeoutMs": 1}, {"type": "fit"}):
        assert declare(second, said) == [False]
    assert [row["timeoutMs"] for row in shown(guarded.rota, "fit")] == [5000]
    assert declare(first, {"type": "fit", "timeoutMs": 6000}) == ["ann"]
    guarded.revoke("first")
    assert [row["timeoutMs"] for row in shown(guarded.rota, "fit")] == [6000]
    assert declare(second, {"type": "fit", "timeoutMs": 1}) == ["ann"]
    assert [row["by"] for row in shown(guarded.rota, "fit")] == [guarded.principals["second"]]


@pytest.mark.parametrize("bound", ["DECLARED_MAX", "DECLARED_BYTES_MAX"])
def test_a_token_has_its_share_of_the_room(
    serve: Servers, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    most = 10 if bound == "DECLARED_MAX" else 10 * 500
    monkeypatch.setattr(declared, bound, most)
    guarded = Guarded(serve)
    guarded.make("greedy", "work", "*")
    guarded.make("modest", "work", "*")
    greedy, modest = guarded.client("greedy"), guarded.client("modest")
    many = [{"type": f"t{n}", "timeoutMs": 1} for n in range(10)]
    answers = [greedy.post("/v1/types", {"types": [each]}) for each in many]
    taken = sum(answer.status == 200 for answer in answers)
    assert 4 <= taken <= 6
    assert (answers[-1].status, answers[-1].json["code"]) == (429, "too_many_declarations")
    assert declare(modest, FIT) == ["*"]
    guarded.revoke("greedy")
    guarded.make("next", "work", "*")
    assert (
        declare(guarded.client("next"), *({**each, "timeoutMs": 2} for each in many[5:]))
        == ["*"] * 5
    ), "what a revoked token declared makes room"

"""Who a worker is in the log: its name is its own to choose, its token's is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.leasing import say, take_one
from support.tokens import Guarded

from rota.sections import check_tokens

if TYPE_CHECKING:
    from support.http_server import Rota, Servers


@pytest.fixture
def guarded(serve: Servers) -> Guarded:
    made = Guarded(serve)
    made.make("fleet", "work", "ann")
    made.make("other", "work", "ann")
    return made


def lent(guarded: Guarded, token: str, worker: str, **wants: Any) -> dict[str, Any]:
    answer = guarded.ask(token, "POST", "/v1/leases", {"workerId": worker, **wants})
    [lease] = answer.json["leases"]
    found: dict[str, Any] = lease
    return found


def by_of(rota: Rota, task_id: str) -> dict[str, str]:
    return {event["kind"]: event["by"] for event in rota.events(task=task_id)}


@pytest.mark.parametrize("worker", ["ada", "ops", "other", "rota-1"])
def test_what_a_worker_says_is_by_its_token_and_its_name(guarded: Guarded, worker: str) -> None:
    task_id = guarded.rota.submit_native("ann", "fit")
    lease = lent(guarded, "fleet", worker)
    path = f"/v1/leases/{lease['leaseId']}"
    body = {"token": lease["token"]}
    assert guarded.ask("fleet", "POST", f"{path}/heartbeat", {**body, "lines": ["x"]}).status == 200
    assert guarded.ask("fleet", "POST", f"{path}/complete", body).status == 200
    said = by_of(guarded.rota, task_id)
    assert (said.pop("task_submitted"), said.pop("task_assigned")) == ("ops", "rota")
    assert set(said.values()) == {f"{guarded.principals['fleet']}/{worker}"}
    assert said.keys() == {"task_started", "task_logged", "lease_ended", "task_succeeded"}


@pytest.mark.parametrize("how", ["start", "release", "fail"])
def test_so_is_what_it_starts_gives_back_and_fails_at(guarded: Guarded, how: str) -> None:
    task_id = guarded.rota.submit_native("ann", "fit")
    lease = lent(guarded, "fleet", "ops", start=True)
    if how != "start":
        body = {"token": lease["token"], **({"error": "x"} if how == "fail" else {})}
        assert (
            guarded.ask("fleet", "POST", f"/v1/leases/{lease['leaseId']}/{how}", body).status == 200
        )
    kind = {"start": "task_started", "release": "attempt_interrupted", "fail": "task_failed"}[how]
    assert by_of(guarded.rota, task_id)[kind] == f"{guarded.principals['fleet']}/ops"


def test_whoever_ends_anothers_lease_is_named_and_so_is_whose_it_was(guarded: Guarded) -> None:
    task_id = guarded.rota.submit_native("ann", "fit")
    lease = lent(guarded, "fleet", "ada")
    body = {"token": lease["token"]}
    answer = guarded.ask("other", "POST", f"/v1/leases/{lease['leaseId']}/complete", body)
    assert answer.status == 200
    assert by_of(guarded.rota, task_id)["task_succeeded"] == f"{guarded.principals['other']}/ada"


def test_a_refused_outcome_is_by_its_worker(guarded: Guarded) -> None:
    task_id = guarded.rota.submit_native("ann", "fit")
    lease = lent(guarded, "fleet", "ada")
    path = f"/v1/leases/{lease['leaseId']}/complete"
    guarded.ask("fleet", "POST", path, {"token": lease["token"]})
    for who in ({"workerId": "eve"}, {"result": "late"}):
        answer = guarded.ask("fleet", "POST", path, {"token": lease["token"], **who})
        assert answer.code == "stale_attempt"
    refused = guarded.rota.events(task=task_id, kind="result_refused")
    fleet = guarded.principals["fleet"]
    assert [event["by"] for event in refused] == [f"{fleet}/eve", fleet]


def test_without_tokens_it_is_the_workers_name(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, "ada")
    assert say(rota, lease, "complete", workerId="ada").status == 200
    assert say(rota, lease, "complete", workerId="ada", result=1).code == "stale_attempt"
    said = by_of(rota, task_id)
    assert (said["task_succeeded"], said["result_refused"]) == ("ada", "ada")


@pytest.mark.parametrize("name", ["rota", "local"])
@pytest.mark.parametrize("path", ["complete", "release", "heartbeat"])
def test_nobody_says_anything_in_the_schedulers_name(rota: Rota, name: str, path: str) -> None:
    rota.submit_native("ann", "fit")
    answer = say(rota, take_one(rota), path, workerId=name)
    assert (answer.status, answer.json["details"]) == (400, {"field": "workerId"})


@pytest.mark.parametrize("name", ["fleet/ada", "rota", "local"])
def test_no_token_of_the_configuration_has_a_name_that_reads_as_another(name: str) -> None:
    with pytest.raises(ValueError, match="give it another"):
        check_tokens({name: "t" * 20}, {})

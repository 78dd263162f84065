"""Whoever notes something for an attempt says which, and is refused once that attempt is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rota.client.sync_client import JsonClient
from rota.errors import Conflict

if TYPE_CHECKING:
    from support.http_server import Rota, Servers, Target

WORK = {
    "scheduler": {"workerCount": 5},
    "types": {"work": {"executor": "worker", "retry": {"baseMs": 0, "maxAttempts": 2}}},
}


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    return serve({**WORK, "executors": {"worker": {"kind": "http", "url": tab.url}}})


def start(rota: Rota, tab: Target) -> tuple[str, int]:
    """Have an attempt run; gives its task and the token that its executor got."""
    tab.treat_as["hold"] = "it"
    seen = len(tab.requests)
    task = rota.submit_native(action="work")
    request = tab.wait_for(seen + 1)[-1]
    return task, int(request.headers["x-rota-token"])


def test_the_running_attempt_is_heard(rota: Rota, tab: Target) -> None:
    task, token = start(rota, tab)
    assert rota.post(f"/v1/tasks/{task}/logs", {"lines": ["a"], "token": token}).status == 201
    assert rota.post(f"/v1/tasks/{task}/progress", {"progress": 1, "token": token}).status == 201
    assert rota.get(f"/v1/tasks/{task}").json["progress"] == 1


@pytest.mark.parametrize("what", [("logs", {"lines": ["a"]}), ("progress", {"progress": 1})])
def test_an_attempt_that_was_replaced_is_refused_and_nothing_is_kept(
    rota: Rota, tab: Target, what: tuple[str, dict[str, object]]
) -> None:
    path, body = what
    answers = iter([500, 200])
    tab.respond = lambda _: (next(answers), b"{}")
    task, token = start(rota, tab)
    tab.release("it")
    rota.ended(task)
    for stale in (token, token + 1000, 1):
        answer = rota.post(f"/v1/tasks/{task}/{path}", {**body, "token": stale})
        assert (answer.status, answer.code) == (409, "stale_attempt")
        assert answer.json["retryable"] is False
    assert not {"task_logged", "task_progressed"} & set(rota.kinds(task))


def test_an_older_attempt_is_refused_while_the_next_one_runs(rota: Rota, tab: Target) -> None:
    tab.respond = lambda request: (500 if request.body["attempt"] == 1 else 200, b"{}")
    task = rota.submit_native(action="work")
    first, second = tab.wait_for(2)
    del second
    answer = rota.post(
        f"/v1/tasks/{task}/logs", {"lines": ["late"], "token": int(first.headers["x-rota-token"])}
    )
    assert (answer.status, answer.code) == (409, "stale_attempt")


def test_a_task_that_waits_has_no_attempt_to_speak_for(rota: Rota) -> None:
    task = rota.submit_native(action="nobodys")
    answer = rota.post(f"/v1/tasks/{task}/logs", {"lines": ["a"], "token": 1})
    assert (answer.status, answer.code) == (409, "stale_attempt")
    assert rota.post(f"/v1/tasks/{task}/logs", {"lines": ["a"]}).status == 201


@pytest.mark.parametrize("token", [0, -1, "7", 1.5, True, 1 << 70])
def test_a_token_is_a_number(rota: Rota, token: object) -> None:
    task = rota.submit_native(action="nobodys")
    answer = rota.post(f"/v1/tasks/{task}/logs", {"lines": ["a"], "token": token})
    assert (answer.status, answer.json["details"]) == (400, {"field": "token"})


def test_the_client_passes_it_on(rota: Rota, tab: Target) -> None:
    task, token = start(rota, tab)
    client = JsonClient(f"http://127.0.0.1:{rota.port}")
    client.add_logs(task, ["a"], token=token)
    client.add_progress(task, 2, token=token)
    with pytest.raises(Conflict) as refused:
        client.add_progress(task, 3, token=token - 1)
    assert refused.value.code == "stale_attempt"

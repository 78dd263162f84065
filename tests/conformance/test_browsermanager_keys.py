"""The BrowserManager job document, section 6: idempotency keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.job_server import Agent, Agents, later

from rota.projections.keys import IDEMPOTENCY_US

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.http_server import Answer

HELD = {"hold": "it"}
NO: dict[str, Any] = {"status": 404, "json": {"code": "profile_not_found"}}
KEY = "X-Idempotency-Key"


def start(agent: Agent, key: str | None = None, *do: dict[str, Any], **fields: Any) -> Answer:
    """POST /api/env/start for one profile, with the key in the header."""
    body = {"id": "env-uuid-xxx", **({"do": list(do)} if do else {}), **fields}
    return agent.request("POST", "/api/env/start", body, {} if key is None else {KEY: key})


# -- 6.1 Client-provided Idempotency Key ---------------------------------------------------------


def test_a_key_that_is_new_makes_a_job_and_is_kept_with_it(agent: Agent) -> None:
    data = agent.ok(start(agent, "idem-1"))
    assert set(data) == {"jobId", "status"}
    assert data["status"] == "queued"
    assert agent.job(data["jobId"])["idempotencyKey"] == "idem-1"


def test_a_key_that_is_known_gives_the_job_and_makes_none(agents: Agents, agent: Agent) -> None:
    first = agent.ok(start(agent, "idem-1"))["jobId"]
    agent.finish(first)
    again = agent.ok(start(agent, "idem-1"))
    assert (again["jobId"], again["idempotent"]) == (first, True)
    assert agent.listed() == [first]
    assert len(agents.browser.runs) == 1


@pytest.mark.parametrize("path", ["/api/env/start", "/api/jobs"])
def test_the_key_may_be_a_field_of_the_body(agent: Agent, path: str) -> None:
    body = {"idempotencyKey": "idem-1", "profileId": "env-1", "jobType": "browser_start"}
    first = agent.ok(agent.post(path, body))
    again = agent.ok(agent.post(path, body))
    assert "idempotent" not in first
    assert (again["jobId"], again["idempotent"]) == (first["jobId"], True)
    assert agent.job(first["jobId"])["idempotencyKey"] == "idem-1"


def test_the_key_in_the_header_is_the_key_in_the_body(agent: Agent) -> None:
    first = agent.ok(start(agent, "idem-1"))["jobId"]
    by_field = agent.ok(start(agent, None, idempotencyKey="idem-1"))
    by_both = agent.ok(start(agent, "idem-1", idempotencyKey="idem-1"))
    assert by_field["jobId"] == by_both["jobId"] == first
    assert agent.listed() == [first]


def test_a_header_that_contradicts_the_body_is_refused(agent: Agent) -> None:
    problem = agent.refused(start(agent, "idem-1", idempotencyKey="idem-2"), 400)
    assert "idempotencyKey" in problem["msg"]
    assert agent.listed() == []


def test_other_keys_make_other_jobs_and_so_does_none(agent: Agent) -> None:
    made = [agent.ok(start(agent, key))["jobId"] for key in ("a", "b", "A", None, None)]
    assert len(set(made)) == 5
    assert len(agent.listed()) == 5


@pytest.mark.parametrize("status", ["queued", "running", "failed", "canceled"])
def test_a_known_job_is_given_with_the_status_it_has(
    agents: Agents, agent: Agent, status: str
) -> None:
    step = {"failed": NO}.get(status, HELD)
    if status == "queued":
        agent.post("/v1/scheduler/pause", {})
    first = agent.ok(start(agent, "idem-1", step))["jobId"]
    if status == "canceled":
        agent.ok(agent.post(f"/api/jobs/{first}/cancel"))
    agent.wait(first, status)
    again = agent.ok(start(agent, "idem-1", step))
    assert again == {"jobId": first, "status": status, "idempotent": True}


def test_a_key_is_not_used_up_by_a_request_that_was_refused(agent: Agent) -> None:
    agent.refused(start(agent, "idem-1", timeoutMs=0), 400)
    data = agent.ok(start(agent, "idem-1"))
    assert "idempotent" not in data


@pytest.mark.parametrize(
    "other",
    [
        {"id": "env-other"},
        {"id": "env-uuid-xxx", "more": 1},
        {"id": "env-uuid-xxx", "priority": 1},
    ],
)
def test_another_body_under_the_same_key_is_422(agent: Agent, other: dict[str, Any]) -> None:
    first = agent.ok(start(agent, "idem-1"))["jobId"]
    problem = agent.refused(agent.request("POST", "/api/env/start", other, {KEY: "idem-1"}), 422)
    assert problem["code"] == -1422
    assert "idem-1" in problem["msg"]
    assert agent.listed() == [first]


def test_another_path_under_the_same_key_is_422(agent: Agent) -> None:
    first = agent.ok(start(agent, "idem-1"))["jobId"]
    body = {"id": "env-uuid-xxx"}
    agent.refused(agent.request("POST", "/api/env/stop", body, {KEY: "idem-1"}), 422)
    assert agent.listed() == [first]


def test_the_same_body_written_otherwise_is_the_same(agent: Agent) -> None:
    def post(raw: bytes) -> dict[str, Any]:
        headers = {KEY: "idem-1"}
        return agent.ok(agent.request("POST", "/api/env/start", None, headers, raw=raw))

    first = post(b'{"id":"env-1","a":{"b":1,"c":"\xc3\xbc"}}')
    again = post(b'{ "a" : {"c": "\\u00fc", "b": 1},\n "id": "env-1" }')
    assert again["jobId"] == first["jobId"]


@pytest.mark.parametrize("key", [" ", "x" * 201, "a\x01b"])
def test_a_key_that_is_none_is_refused_in_the_body(agent: Agent, key: str) -> None:
    agent.refused(start(agent, None, idempotencyKey=key), 400)
    assert agent.listed() == []


@pytest.mark.parametrize("key", [5, True, ["k"], {"k": 1}])
def test_a_key_of_the_wrong_type_is_refused(agent: Agent, key: Any) -> None:
    agent.refused(start(agent, None, idempotencyKey=key), 400)


def test_a_header_that_is_too_long_is_refused(agent: Agent) -> None:
    agent.refused(start(agent, "x" * 201), 400)
    assert agent.ok(start(agent, "x" * 200))["status"] == "queued"


def test_a_key_belongs_to_whoever_used_it(agents: Agents) -> None:
    agent = agents.start(server={"tokens": {"ann": "a" * 32, "bob": "b" * 32}})
    made = set()
    for token in ("a" * 32, "b" * 32):
        agent.token = token
        made.add(agent.ok(start(agent, "idem-1"))["jobId"])
        assert agent.ok(start(agent, "idem-1"))["jobId"] in made
    assert len(made) == 2


# -- 6.1 Idempotency window: 24 hours after the job is terminal ----------------------------------


def test_the_window_is_a_day() -> None:
    assert IDEMPOTENCY_US == 24 * 3600 * 1_000_000


@pytest.mark.parametrize("step", [{}, NO])
def test_a_key_is_known_for_a_day_after_the_end_and_no_longer(
    agents: Agents, step: dict[str, Any]
) -> None:
    agent = agents.start(scheduler={"resultTTLSec": 300})
    first = agent.ok(start(agent, "idem-1", step))["jobId"]
    status = agent.finish(first)["status"]
    with later(hours=23, minutes=59):
        again = agent.ok(start(agent, "idem-1", step))
        assert (again["jobId"], again["status"]) == (first, status)
        assert again.get("result") == ({"debugPort": 9222} if status == "succeeded" else None)
        assert first not in agent.listed(), "it has left memory, not the log"
    with later(hours=24, minutes=1):
        fresh = agent.ok(start(agent, "idem-1", step))
        assert fresh["jobId"] != first
        assert "idempotent" not in fresh
        agent.finish(fresh["jobId"])
        assert agent.ok(start(agent, "idem-1", step))["jobId"] == fresh["jobId"]
    assert len(agents.browser.runs) == 2


def test_the_day_begins_when_the_job_ends_not_when_it_came(agents: Agents, agent: Agent) -> None:
    with later(seconds=0) as clock:
        first = agent.ok(start(agent, "idem-1", HELD))["jobId"]
        clock.tick(30 * 3600)
        again = agent.ok(start(agent, "idem-1", HELD))
        assert (again["jobId"], again["status"]) == (first, "running")
        agents.browser.release("it")
        agent.finish(first)
        clock.tick(23 * 3600)
        assert agent.ok(start(agent, "idem-1", HELD))["jobId"] == first
        clock.tick(3600 + 60)
        assert agent.ok(start(agent, "idem-1", HELD))["jobId"] != first


def test_another_body_is_free_to_use_the_key_after_the_window(agents: Agents, agent: Agent) -> None:
    agent.finish(agent.ok(start(agent, "idem-1"))["jobId"])
    with later(hours=24, minutes=1):
        assert "idempotent" not in agent.ok(start(agent, "idem-1", {}, more=1))


# -- durable: the key survives as the job does ---------------------------------------------------


def test_a_key_survives_a_restart(agents: Agents, agent: Agent) -> None:
    done = agent.ok(start(agent, "done"))["jobId"]
    agent.finish(done)
    running = agent.ok(start(agent, "running", HELD))["jobId"]
    agents.browser.wait_for(2)
    agent.restart()
    again = agent.ok(start(agent, "done"))
    assert (again["jobId"], again["result"]) == (done, {"debugPort": 9222})
    assert agent.ok(start(agent, "running", HELD))["jobId"] == running
    agent.refused(start(agent, "done", {}, more=1), 422)
    assert sorted(agent.listed()) == sorted([done, running])
    living, replayed = agent.digests()
    assert living == replayed, "a replay of the whole log holds the same keys"


def test_the_window_is_the_same_after_a_restart(agents: Agents, agent: Agent) -> None:
    first = agent.ok(start(agent, "idem-1"))["jobId"]
    agent.finish(first)
    with later(hours=23, minutes=59):
        agent.restart()
        again = agent.ok(start(agent, "idem-1"))
        assert (again["jobId"], again["result"]) == (first, {"debugPort": 9222})
    with later(hours=24, minutes=1):
        agent.restart()
        assert agent.ok(start(agent, "idem-1"))["jobId"] != first


# -- one key, many at once -----------------------------------------------------------------------


def test_a_hundred_at_once_with_one_key_make_one_job(agents: Agents, agent: Agent) -> None:
    answers = agent.together(lambda _: start(agent, "idem-1"), 100)
    data = [agent.ok(answer) for answer in answers]
    assert len({each["jobId"] for each in data}) == 1
    assert sum("idempotent" not in each for each in data) == 1
    agent.finish(data[0]["jobId"])
    assert agent.listed() == [data[0]["jobId"]]
    assert len(agents.browser.runs) == 1


def test_a_hundred_at_once_with_one_key_and_two_bodies_make_one_job(
    agents: Agents, agent: Agent
) -> None:
    answers = agent.together(lambda n: start(agent, "idem-1", {}, side=n % 2), 100)
    taken = [agent.ok(answer) for answer in answers if answer.status == 200]
    for answer in answers:
        if answer.status != 200:
            agent.refused(answer, 422)
    assert len(taken) == 50
    assert len({each["jobId"] for each in taken}) == 1
    assert len(agent.listed()) == 1


# -- 6.2 Example ---------------------------------------------------------------------------------


def test_the_example_is_answered_as_the_document_shows(agent: Agent) -> None:
    body = {"id": "env-uuid-xxx"}
    headers = {KEY: "idem-abc123"}
    first = agent.ok(agent.request("POST", "/api/env/start", body, headers))["jobId"]
    agent.finish(first)
    headers["X-Request-ID"] = "req-xyz"
    answer = agent.request("POST", "/api/env/start", body, headers)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json == {
        "code": 0,
        "msg": "success",
        "data": {
            "jobId": first,
            "status": "succeeded",
            "result": {"debugPort": 9222},
            "idempotent": True,
        },
        "requestId": "req-xyz",
    }
    assert list(answer.json) == ["code", "msg", "data", "requestId"]
    assert list(answer.json["data"]) == ["jobId", "status", "result", "idempotent"]


def test_a_repeat_shows_a_job_as_it_was_at_one_moment(agents: Agents, agent: Agent) -> None:
    """A job that ends while the repeat waits for the disk is shown as running, or with its result.

    Never both: that result is not durable yet, and a power cut could still take it back.
    """
    first = agent.ok(start(agent, "idem-1", HELD))["jobId"]
    agents.browser.wait_for(1)

    def waits_for_the_disk(ask: Callable[[], Any]) -> None:
        before = agent.inside(lambda server: len(server.shard.journal._effects))
        ask()
        until(lambda: agent.inside(lambda s: len(s.shard.journal._effects)) > before)

    with ThreadPoolExecutor(2) as beside, agent.commits_held():
        other = {"jobType": "db_migration"}
        waits_for_the_disk(lambda: beside.submit(agent.post, "/api/jobs", other))
        repeats = []
        waits_for_the_disk(lambda: repeats.append(beside.submit(start, agent, "idem-1", HELD)))
        agents.browser.release("it")
        until(lambda: agent.state_inside(first) == "succeeded", what="it has ended")
    data = agent.ok(repeats[0].result())
    assert ("result" in data) == (data["status"] == "succeeded"), data

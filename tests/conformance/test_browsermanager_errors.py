"""The BrowserManager job document: what is refused, always in the envelope with a negative code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.job_server import Agent, Agents, agents_under

if TYPE_CHECKING:
    from collections.abc import Iterator

HELD = {"hold": "it"}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with agents_under(tmp_path_factory.mktemp("errors")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(agents: Agents) -> Agent:
    """One agent for all: nothing that is refused may leave anything behind."""
    return agents.start(server={"body_bytes_max": 65536})


@pytest.fixture
def agent(shared: Agent) -> Iterator[Agent]:
    before = shared.get("/v1/events/head").json
    yield shared
    assert shared.get("/v1/events/head").json == before, "a refused request was recorded"


# -- bodies --------------------------------------------------------------------------------------

BAD_FIELDS: list[dict[str, Any]] = [
    {"jobType": "no_such_type"},
    {"jobType": "Browser_Start"},
    {"jobType": "echo"},
    {"jobType": ""},
    {"jobType": " "},
    {"jobType": "browser_start\n"},
    {"jobType": "x" * 201},
    {"jobType": 5},
    {"jobType": None},
    {"jobType": ["browser_start"]},
    {"type": "no_such_type"},
    {},
    {"payload": [1]},
    {"payload": "text"},
    {"payload": 5},
    {"priority": -1},
    {"priority": "urgent"},
    {"priority": 1.5},
    {"priority": True},
    {"priority": 10**12},
    {"priority": [1]},
    {"timeoutMs": 0},
    {"timeoutMs": -1},
    {"timeoutMs": "1000"},
    {"timeoutMs": 1.5},
    {"timeoutMs": True},
    {"timeoutMs": 10**30},
    {"timeoutMs": 24 * 3600 * 1000 + 1},
    {"maxRetries": -1},
    {"maxRetries": 100},
    {"maxRetries": "2"},
    {"maxRetries": 10**30},
    {"profileId": 5},
    {"profileId": ""},
    {"profileId": "x" * 201},
    {"profileId": "a\u0000b"},
    {"profileId": ["env-1"]},
    {"agentId": ""},
    {"agentId": 5},
    {"agentId": "x" * 201},
    {"callbackUrl": 5},
    {"callbackUrl": "not a url"},
    {"callbackUrl": "ftp://example.org/"},
    {"callbackUrl": "http://127.0.0.1:1/"},
    {"webhookUrl": "http://169.254.169.254/"},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=lambda fields: str(fields)[:40])
def test_a_bad_field_is_400(agent: Agent, fields: dict[str, Any]) -> None:
    typed = {} if fields.keys() & {"jobType", "type"} or not fields else {"jobType": "proxy_test"}
    problem = agent.refused(agent.post("/api/jobs", {**typed, **fields}), 400)
    assert problem["code"] == -1400


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 5},
        {"id": ["env-1"]},
        {"id": "x" * 201},
        {"id": " "},
        {"profileId": {}},
        {"timeoutMs": "soon"},
        {"maxRetries": -1},
        {"priority": "urgent"},
        {"callbackUrl": "http://10.0.0.1/"},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_bad_field_is_400_on_a_path_of_its_own_too(agent: Agent, fields: dict[str, Any]) -> None:
    assert agent.refused(agent.post("/api/env/start", fields), 400)["code"] == -1400


def test_an_error_names_the_field(agent: Agent) -> None:
    for fields in ({"timeoutMs": "x"}, {"maxRetries": -1}, {"profileId": 5}, {"jobType": "what"}):
        (name,) = fields
        body = {"jobType": "proxy_test", **fields}
        problem = agent.refused(agent.post("/api/jobs", body), 400)
        assert problem["data"]["field"] == name


def test_an_unknown_type_says_which_there_are(agent: Agent) -> None:
    problem = agent.refused(agent.post("/api/jobs", {"jobType": "brwser_start"}), 400)
    assert "brwser_start" in problem["msg"]
    assert "browser_start" in problem["msg"]


@pytest.mark.parametrize("path", ["/api/jobs", "/api/env/start"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b"5",
        b'"text"',
        b"true",
        b'{"jobType": "proxy_test"',
        b'{"id": NaN}',
        b'{"id": "\xff"}',
        b'{"id": "\\ud800"}',
        b'{"payload": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=lambda raw: raw[:20].decode(errors="replace") or "empty",
)
def test_a_body_that_is_no_object_is_400(agent: Agent, path: str, raw: bytes) -> None:
    assert agent.refused(agent.request("POST", path, raw=raw), 400)["code"] == -1400


@pytest.mark.parametrize("path", ["/api/jobs", "/api/env/start"])
def test_a_body_that_is_too_large_is_413(agent: Agent, path: str) -> None:
    raw = b'{"id": "' + b"x" * 70_000 + b'"}'
    assert agent.refused(agent.request("POST", path, raw=raw), 413)["code"] == -1413


@pytest.mark.parametrize("path", ["/api/jobs", "/api/env/start"])
def test_a_body_of_another_kind_is_415(agent: Agent, path: str) -> None:
    headers = {"Content-Type": "text/plain"}
    answer = agent.request("POST", path, {"jobType": "proxy_test"}, headers)
    assert agent.refused(answer, 415)["code"] == -1415


# -- queries and paths ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=1001", "limit=x", "cursor=x", "cursor=-1", "status=flying",
     "state=cancelled", "limit=1e3", "cursor=99999999999999999999"],
)  # fmt: skip
def test_a_bad_query_of_the_list_is_400(agent: Agent, query: str) -> None:
    assert agent.refused(agent.get(f"/api/jobs?{query}"), 400)["code"] == -1400


@pytest.mark.parametrize("wait", ["x", "-1", "60001", "1.5", "1e3", "99999999999999999999"])
def test_a_bad_wait_is_400(shared: Agent, wait: str) -> None:
    job_id = shared.enqueue("proxy_test", HELD)
    shared.refused(shared.get(f"/api/jobs/{job_id}?waitMs={wait}"), 400)
    shared.ok(shared.post(f"/api/jobs/{job_id}/cancel"))


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "cursor=-1", "cursor=x"])
def test_a_bad_query_of_the_log_is_400(shared: Agent, query: str) -> None:
    job_id = shared.enqueue("proxy_test")
    shared.finish(job_id)
    shared.refused(shared.get(f"/api/jobs/{job_id}/logs?{query}"), 400)


@pytest.mark.parametrize(
    "path", ["/api/nothing", "/api/env/nothing", "/api/jobs/a/b/c", "/api/jobs/a/nothing"]
)
def test_a_path_under_api_that_is_not_there_is_404(agent: Agent, path: str) -> None:
    assert agent.refused(agent.get(path), 404)["code"] == -1404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/jobs", "GET, HEAD, POST"),
        ("PUT", "/api/jobs/tsk_00000000", "GET, HEAD"),
        ("GET", "/api/jobs/tsk_00000000/cancel", "POST"),
        ("POST", "/api/jobs/tsk_00000000/logs", "GET, HEAD"),
        ("GET", "/api/env/start", "POST"),
    ],
)
def test_another_method_is_405(agent: Agent, method: str, path: str, allowed: str) -> None:
    answer = agent.request(method, path)
    assert answer.headers["allow"] == allowed
    assert agent.refused(answer, 405)["code"] == -1405


# -- authority -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked(agents: Agents) -> Agent:
    return agents.start(server={"tokens": {"ops": "t" * 32}})


def test_a_page_of_another_origin_is_403(agent: Agent) -> None:
    answer = agent.get("/api/jobs", Origin="http://evil.example")
    assert agent.refused(answer, 403)["code"] == -1402


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/env/start"),
        ("POST", "/api/jobs"),
        ("GET", "/api/jobs"),
        ("GET", "/api/jobs/tsk_00000000"),
        ("POST", "/api/jobs/tsk_00000000/cancel"),
        ("GET", "/api/jobs/tsk_00000000/logs"),
    ],
)
def test_without_the_token_it_is_401(locked: Agent, method: str, path: str) -> None:
    body = {"id": "env-1", "jobType": "proxy_test"} if method == "POST" else None
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "t" * 32}):
        answer = locked.request(method, path, body, headers)
        assert locked.refused(answer, 401)["code"] == -1401
    known = {"Authorization": f"Bearer {'t' * 32}"}
    assert locked.ok(locked.request("GET", "/api/jobs", headers=known))["count"] == 0


# -- and what is not refused ---------------------------------------------------------------------


def test_fields_that_are_not_known_are_the_jobs_own_business(agents: Agents, shared: Agent) -> None:
    body = {"id": "env-1", "anything": {"at": ["all", 1, None]}, "taskId": 5}
    job_id = shared.ok(shared.post("/api/env/start", body))["jobId"]
    shared.finish(job_id)
    (run,) = agents.browser.of(job_id)
    assert run.payload == body


def test_a_body_may_be_an_empty_object_where_the_path_says_the_type(shared: Agent) -> None:
    job_id = shared.ok(shared.post("/api/env/stop-all", {}))["jobId"]
    job = shared.finish(job_id)
    assert (job["jobType"], job["status"]) == ("browser_stop_all", "succeeded")
    assert "profileId" not in job


def test_a_request_id_that_is_none_is_replaced(shared: Agent) -> None:
    for given in ("ok-1", "x" * 500, "<script>"):
        answer = shared.get("/api/jobs", **{"X-Request-ID": given})
        shared.ok(answer)
        assert (answer.json["requestId"] == given) == (given == "ok-1")


def test_the_executors_answer_may_be_anything(shared: Agent) -> None:
    for step, result in (
        ({"json": [1, None, {"ü": "\u0000"}]}, [1, None, {"ü": "\u0000"}]),
        ({"json": 5}, 5),
        ({"json": False}, False),
        ({"text": "plain"}, "plain"),
    ):
        job = shared.finish(shared.enqueue("proxy_test", step))
        assert (job["status"], job["result"]) == ("succeeded", result)
    empty = shared.finish(shared.enqueue("proxy_test", {"text": ""}))
    assert empty["status"] == "succeeded"
    assert empty.get("result") is None


def test_the_executors_failure_may_be_anything(shared: Agent) -> None:
    for step in (
        {"status": 500, "text": ""},
        {"status": 500, "text": "x" * 30_000},
        {"status": 500, "json": {"code": 5}},
        {"status": 500, "json": {"code": "x" * 500}},
        {"status": 500, "json": {"error": {"code": None}}},
        {"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}, "text": "elsewhere"},
        {"status": 404, "json": [["code"]]},
    ):
        job = shared.finish(shared.enqueue("db_migration", step))
        assert job["status"] == "failed"
        assert job["errorMessage"]
        assert len(job["errorMessage"]) <= 2000


def test_a_second_cancel_is_told_in_the_words_of_jobs(agents: Agents) -> None:
    agent = agents.start(types={"proxy_test": {"executor": "pull"}})
    path = f"/api/jobs/{(job_id := agent.enqueue('proxy_test'))}/cancel"
    agent.ok(agent.post(path, {}))
    data = agent.refused(agent.post(path, {}), 409)["data"]
    assert (data["jobId"], data["status"]) == (job_id, "canceled")
    assert not {"taskId", "state"} & set(data)


@pytest.mark.parametrize("name", ["status", "state"])
def test_a_status_that_there_is_not_is_refused_under_the_name_it_was_asked_by(
    agents: Agents, name: str
) -> None:
    agent = agents.start()
    problem = agent.refused(agent.get(f"/api/jobs?{name}=bogus"), 400)
    assert problem["data"]["field"] == name
    assert f"unknown {name} 'bogus'" in problem["msg"]


def test_jobs_are_listed_by_profile(agents: Agents) -> None:
    agent = agents.start(types={"proxy_test": {"executor": "pull"}})
    agent.enqueue("proxy_test")
    agent.enqueue("proxy_test", profileId="v")
    mine = agent.enqueue("proxy_test", profileId="w")
    assert agent.listed("?profileId=w") == agent.listed("?profileId=w&page=1") == [mine]
    assert agent.listed("?profileId=nobody") == []

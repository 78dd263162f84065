"""The BrowserManager job document, sections 1-3, 8.1 and 9: jobs, their states, types and paths.

Every test talks to a real server with the preset over HTTP; a real HTTP server runs its jobs as
their payload says (`hold` until released, or an answer). Headings are the document's.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.job_server import (
    BUSY,
    TYPES,
    Agent,
    Agents,
    agent_process,
    moment,
    watching,
)

from rota.config import load_settings
from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

HELD = {"hold": "it"}
NO: dict[str, Any] = {"status": 404, "json": {"code": "profile_not_found"}}


def kinds(agent: Agent, job_id: str) -> list[str]:
    return [event["kind"] for event in agent.history(job_id)]


def pausing(agents: Agents) -> Agent:
    """An agent whose failed jobs wait for a minute before they are tried again."""
    return agents.start(types={"*": {"retry": {"baseMs": 60_000}}})


# -- 1. Overview: the principles -----------------------------------------------------------------


def test_decoupled_the_job_id_comes_at_once_however_long_the_job_takes(
    agents: Agents, agent: Agent
) -> None:
    data = agent.ok(agent.post("/api/env/start", {"id": "env-1", "do": [HELD]}))
    assert set(data) == {"jobId", "status"}
    assert data["status"] == "queued"
    job = agent.wait(data["jobId"], "running")
    assert "result" not in job
    assert "finishedAt" not in job
    agents.browser.release("it")
    assert agent.finish(data["jobId"])["status"] == "succeeded"


def test_durable_no_job_is_lost_when_the_agent_restarts(agents: Agents) -> None:
    agent = agents.start(
        types={"*": {"retry": {"baseMs": 60_000}}, "browser_stop": {"maxConcurrent": 1}}
    )
    done = agent.enqueue("proxy_test")
    failed = agent.enqueue("proxy_test", NO)
    canceled = agent.enqueue("browser_stop", HELD)
    before = {
        done: agent.finish(done),
        failed: agent.finish(failed),
    }
    agent.ok(agent.post(f"/api/jobs/{canceled}/cancel"))
    before[canceled] = agent.job(canceled)
    running = agent.enqueue("browser_stop", HELD)
    until(lambda: agents.browser.of(running), what="it is in the browser")
    queued = agent.enqueue("browser_stop")
    pausing = agent.enqueue("cache_clear_local", BUSY)
    agent.failures(pausing)
    agent.restart()
    assert {job_id: agent.job(job_id) for job_id in before} == before
    assert agent.job(pausing)["status"] == "queued"
    assert agent.job(pausing)["nextRetryAt"]
    assert sorted(agent.listed()) == sorted([*before, running, queued, pausing])
    agents.browser.release("it")
    assert agent.finish(running)["status"] == "succeeded"
    assert agent.job(running)["retryCount"] == 0
    assert agent.finish(queued)["status"] == "succeeded"
    assert [run.attempt for run in agents.browser.of(running)] == [1, 1]


def test_every_call_with_a_side_effect_goes_through_the_queue(agents: Agents) -> None:
    agent = agents.start()
    assert agent.post("/v1/scheduler/pause", {}).status == 200
    data = agent.ok(agent.post("/api/env/start", {"id": "env-1"}))
    assert agent.job(data["jobId"])["status"] == "queued"
    assert agents.browser.runs == []
    agent.post("/v1/scheduler/resume", {})
    agent.finish(data["jobId"])


# -- 2.1 State Machine ---------------------------------------------------------------------------


def test_enqueue_queued_running_succeeded(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start")
    assert agent.finish(job_id)["status"] == "succeeded"
    assert kinds(agent, job_id) == [
        "task_submitted", "task_assigned", "task_started", "task_succeeded",
    ]  # fmt: skip


def test_failure_with_retries_left_goes_back_to_queued_and_runs_again(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", BUSY, {})
    job = agent.finish(job_id)
    assert (job["status"], job["retryCount"]) == ("succeeded", 1)
    assert kinds(agent, job_id) == [
        "task_submitted", "task_assigned", "task_started", "attempt_failed",
        "task_released", "task_assigned", "task_started", "task_succeeded",
    ]  # fmt: skip


def test_failure_with_no_retries_left_is_final(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", BUSY)
    job = agent.finish(job_id)
    assert (job["status"], job["retryCount"], job["maxRetries"]) == ("failed", 2, 2)
    assert kinds(agent, job_id)[-1] == "task_failed"
    assert len(agents.browser.of(job_id)) == 3


def test_between_attempts_a_job_is_queued_and_never_seen_as_failed(agents: Agents) -> None:
    agent = pausing(agents)
    job_id = agent.enqueue("browser_start", BUSY)
    agent.failures(job_id)
    job = agent.job(job_id)
    assert job["status"] == "queued"
    assert "finishedAt" not in job
    assert moment(job["nextRetryAt"]) > moment(job["createdAt"])
    assert agent.listed("?status=queued") == [job_id]
    assert agent.listed("?status=failed") == []


def test_no_failed_that_is_not_final_is_pushed(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", {**HELD, **BUSY}, BUSY, {})
    with watching(agent, job_id) as watcher:
        watcher.first()
        agents.browser.release("it")
        statuses = [message["status"] for message in watcher.all()]
    assert "failed" not in statuses
    assert statuses[-1] == "succeeded"


def test_queued_can_be_canceled(agents: Agents) -> None:
    agent = agents.start(types={"browser_stop": {"maxConcurrent": 1}})
    first = agent.enqueue("browser_stop", HELD)
    job_id = agent.enqueue("browser_stop")
    assert agent.job(job_id)["status"] == "queued"
    agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    agents.browser.release("it")
    agent.finish(first)
    agent.finish(agent.enqueue("browser_stop"))
    assert agent.job(job_id)["status"] == "canceled"
    assert agents.browser.of(job_id) == []


def test_running_can_be_canceled_and_its_executor_is_hung_up_on(
    agents: Agents, agent: Agent
) -> None:
    job_id = agent.enqueue("script_run", HELD)
    agents.browser.wait_for(1)
    agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    agents.browser.wait_left(job_id)
    assert agent.job(job_id)["status"] == "canceled"
    assert "result" not in agent.job(job_id)


def test_waiting_for_a_retry_can_be_canceled(agents: Agents) -> None:
    agent = pausing(agents)
    job_id = agent.enqueue("browser_start", BUSY)
    agent.failures(job_id)
    agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    job = agent.job(job_id)
    assert job["status"] == "canceled"
    assert "nextRetryAt" not in job
    assert agent.get("/health").json["queue"] == {"queued": 0, "running": 0, "max_concurrent": 20}


# -- 2.2 State Definitions -----------------------------------------------------------------------


def ended_as(agents: Agents, agent: Agent, status: str) -> str:
    """Make a job that has ended so."""
    step = {"succeeded": {}, "failed": NO, "canceled": HELD}[status]
    job_id = agent.enqueue("browser_start", step)
    if status == "canceled":
        agents.browser.wait_for(1)
        agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    assert agent.finish(job_id)["status"] == status
    return job_id


@pytest.mark.parametrize("status", ["succeeded", "failed", "canceled"])
def test_terminal_states_are_final(agents: Agents, agent: Agent, status: str) -> None:
    job_id = ended_as(agents, agent, status)
    before = agent.job(job_id)
    problem = agent.refused(agent.post(f"/api/jobs/{job_id}/cancel"), 409)
    assert status in problem["msg"]
    assert agent.post(f"/v1/tasks/{job_id}/cancel").status == 409
    agents.browser.release("it")
    agent.finish(agent.enqueue("browser_start"))
    agent.restart()
    assert agent.job(job_id) == before


@pytest.mark.parametrize("status", ["queued", "running"])
def test_the_other_states_are_not_terminal(agents: Agents, status: str) -> None:
    agent = agents.start(types={"browser_stop": {"maxConcurrent": 1}})
    ids = [agent.enqueue("browser_stop", HELD) for _ in range(2)]
    agent.wait(ids[0], "running")
    job_id = {"running": ids[0], "queued": ids[1]}[status]
    assert agent.job(job_id)["status"] == status
    assert agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))["status"] == "canceled"


def test_a_result_that_comes_after_the_cancel_changes_nothing(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    agents.browser.wait_for(1)
    with ThreadPoolExecutor(1) as beside, agent.commits_held():
        cancel = beside.submit(agent.post, f"/api/jobs/{job_id}/cancel")
        until(lambda: agent.state_inside(job_id) == "cancelled", what="it is canceled")
        agents.browser.release("it")
        until(lambda: agent.inside(lambda s: s.shard.state.stats.totals["refused"]), what="it ran")
    assert agent.ok(cancel.result())["status"] == "canceled"
    assert kinds(agent, job_id)[-2:] == ["task_cancelled", "result_refused"]
    assert agent.job(job_id)["status"] == "canceled"
    assert "result" not in agent.job(job_id)


def test_a_job_has_only_the_five_states_of_the_table(agents: Agents) -> None:
    agent = agents.start()
    for status in ("queued", "running", "succeeded", "failed", "canceled"):
        assert agent.listed(f"?status={status}") == []
    for word in ("ready", "pending", "cancelled", "assigned", "scheduled"):
        agent.refused(agent.get(f"/api/jobs?status={word}"), 400)


# -- 3. Job Types --------------------------------------------------------------------------------

TABLE = {
    "browser_start": (30, 2),
    "browser_stop": (15, 3),
    "browser_stop_all": (30, 1),
    "script_run": (300, 1),
    "cache_clear_local": (60, 3),
    "proxy_test": (15, 2),
    "profile_clone": (120, 1),
    "db_migration": (60, 0),
    "recycle_bin_cleanup": (300, 1),
}
"""Timeout and retries by default."""


def test_the_types_are_those_of_the_table_with_its_timeouts_and_retries(agents: Agents) -> None:
    agent = agents.start()
    for name, (timeout_s, retries) in TABLE.items():
        job = agent.job(agent.enqueue(name, HELD))
        assert job["jobType"] == name
        assert (job["timeoutSeconds"], job["maxRetries"]) == (timeout_s, retries)
    assert set(TYPES) == set(TABLE)


def test_cache_clear_cloud_is_out_of_scope(agents: Agents) -> None:
    agent = agents.start()
    problem = agent.refused(agent.post("/api/jobs", {"jobType": "cache_clear_cloud"}), 400)
    assert "cache_clear_cloud" in problem["msg"]
    assert agent.listed() == []


def test_every_type_can_be_run(agents: Agents, agent: Agent) -> None:
    for name in TABLE:
        job_id = agent.enqueue(name, {"json": {"ran": name}})
        assert agent.finish(job_id)["result"] == {"ran": name}
        assert [run.type for run in agents.browser.of(job_id)] == [name]


def test_the_preset_is_had_by_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        "[agent]\nmax_queue_size = 2\n"
        '[browsermanager.routes]\n"/api/profile/open" = "browser_start"\n'
        "[types.browser_start]\ntimeoutMs = 45000\n"
    )
    with agent_process(tmp_path, file) as agent:
        types = agent.get("/v1/config").json["types"]
        assert set(types) == set(TABLE)
        opened = agent.ok(agent.post("/api/profile/open", {"id": "env-1"}))
        job = agent.job(opened["jobId"])
        assert (job["jobType"], job["status"]) == ("browser_start", "queued")
        assert (job["timeoutSeconds"], job["maxRetries"]) == (45, 2)
        agent.ok(agent.post("/api/env/stop", {"id": "env-1"}))
        full = agent.refused(agent.post("/api/env/start", {"id": "env-1"}), 422)
        assert full["code"] == -1403
        assert agent.get("/health").json["queue"]["queued"] == 2


def test_exactly_the_tables_of_the_document_are_in_the_preset() -> None:
    settings = load_settings(None, ("browsermanager",))
    found = {
        name: (kind.timeout_ms, kind.retry.max_attempts - 1 if kind.retry else None)
        for name, kind in settings.types.items()
    }
    assert found == {name: (s * 1000, retries) for name, (s, retries) in TABLE.items()}
    for kind in settings.types.values():
        assert kind.retry is not None
        assert (kind.retry.kind, kind.retry.multiplier) == ("exponential", 2.0)
        assert (kind.retry.base_ms, kind.retry.jitter_ms, kind.retry.max_ms) == (1000, 1000, 60_000)


# -- 8.1 Sequence: Request, Enqueue, Execute, Result -----------------------------------------------


def test_the_sequence_of_the_diagram(agents: Agents, agent: Agent) -> None:
    answer = agent.post("/api/env/start", {"id": "env-uuid-xxx", "do": [HELD]})
    data = agent.ok(answer)
    assert set(data) == {"jobId", "status"}
    assert data["status"] == "queued"
    (run,) = agents.browser.wait_for(1)
    assert (run.job, run.type, run.profile) == (data["jobId"], "browser_start", "env-uuid-xxx")
    assert agent.job(data["jobId"])["status"] == "running"
    agents.browser.release("it")
    job = agent.finish(data["jobId"])
    assert (job["status"], job["result"]) == ("succeeded", {"debugPort": 9222})
    assert job["profileId"] == "env-uuid-xxx"
    assert moment(job["createdAt"]) <= moment(job["startedAt"]) <= moment(job["finishedAt"])


def test_the_worker_gets_the_body_as_it_was_sent_without_what_is_meant_for_the_queue(
    agents: Agents, agent: Agent
) -> None:
    body = {"id": "env-1", "url": "https://example.org", "deep": {"list": [1, None, "ü"]}}
    control = {"priority": 1, "timeoutMs": 5000, "maxRetries": 1, "agentId": "ann"}
    agent.ok(agent.post("/api/env/start", {**body, **control, "idempotencyKey": "k"}))
    (run,) = agents.browser.wait_for(1)
    assert run.payload == body


@pytest.mark.parametrize(
    ("path", "job_type"),
    [
        ("/api/env/start", "browser_start"),
        ("/api/env/stop", "browser_stop"),
        ("/api/env/stop-all", "browser_stop_all"),
        ("/api/env/clone", "profile_clone"),
        ("/api/env/clear-cache", "cache_clear_local"),
        ("/api/script/run", "script_run"),
        ("/api/proxy/test", "proxy_test"),
    ],
)
def test_a_path_makes_jobs_of_its_type(agent: Agent, path: str, job_type: str) -> None:
    data = agent.ok(agent.post(path, {"id": "env-1"}))
    job = agent.finish(data["jobId"])
    assert (job["jobType"], job["status"]) == (job_type, "succeeded")


def test_paths_and_types_of_ones_own_are_had_by_configuration(agents: Agents) -> None:
    routes = {"/api/mail/send": "send_mail", "/api/env/start": "browser_stop"}
    agent = agents.start(
        types={"send_mail": {"timeoutMs": 1500}}, browsermanager={"routes": routes}
    )
    sent = agent.ok(agent.post("/api/mail/send", {"to": "ann"}))
    job = agent.finish(sent["jobId"])
    assert (job["jobType"], job["timeoutSeconds"], job["maxRetries"]) == ("send_mail", 1.5, 0)
    other = agent.ok(agent.post("/api/env/start", {"id": "env-1"}))
    assert agent.job(other["jobId"])["jobType"] == "browser_stop"
    kept = agent.ok(agent.post("/api/proxy/test", {"id": "env-1"}))
    assert agent.job(kept["jobId"])["jobType"] == "proxy_test"


@pytest.mark.parametrize(
    "routes",
    ['"/api/x" = "no_such_type"', '"/elsewhere" = "proxy_test"', '"/api/a b" = "proxy_test"'],
)
def test_a_path_that_leads_nowhere_is_refused_at_the_start(tmp_path: Path, routes: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f"[browsermanager.routes]\n{routes}\n")
    with pytest.raises(ConfigError, match="browsermanager.routes"):
        load_settings(file, ("browsermanager",))


def test_a_path_asked_for_in_absolute_form_is_the_same_path(agent: Agent) -> None:
    """What a client behind a proxy sends; RFC 9112, 3.2.2 has every server take it."""
    body = b'{"id":"env-1"}'
    head = (
        f"POST http://127.0.0.1:{agent.port}/api/env/start HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{agent.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer = agent.raw(head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert b'"status":"queued"' in answer


# -- 9. API Endpoints ----------------------------------------------------------------------------


def test_get_a_job_gives_status_and_result(agent: Agent) -> None:
    job_id = agent.enqueue("proxy_test", {"json": {"ip": "203.0.113.7"}}, profileId="env-1")
    job = agent.finish(job_id)
    assert job["jobId"] == job_id
    assert (job["status"], job["result"]) == ("succeeded", {"ip": "203.0.113.7"})
    assert set(job) == {
        "jobId", "jobType", "status", "priority", "retryCount", "maxRetries", "createdAt",
        "profileId", "queueTimeoutSeconds", "payload", "timeoutSeconds", "startedAt",
        "finishedAt", "result",
    }  # fmt: skip


def test_a_failed_job_says_why(agent: Agent) -> None:
    job = agent.finish(agent.enqueue("browser_start", NO))
    assert job["status"] == "failed"
    assert "profile_not_found" in job["errorMessage"]
    assert job["errorCode"]
    assert "result" not in job


def test_cancel_answers_with_the_job_and_its_status(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    data = agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    assert data == {"jobId": job_id, "status": "canceled"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/jobs/tsk_00000000"),
        ("POST", "/api/jobs/tsk_00000000/cancel"),
        ("GET", "/api/jobs/tsk_00000000/logs"),
        ("GET", "/api/jobs/tsk_00000000?waitMs=5000"),
        ("GET", "/api/jobs/" + "x" * 600),
        ("GET", "/api/jobs/%00"),
    ],
)
def test_an_unknown_job_is_404(agent: Agent, method: str, path: str) -> None:
    assert agent.refused(agent.request(method, path), 404)["code"] == -1404


def test_recent_jobs_are_listed_newest_first_a_page_at_a_time(agents: Agents) -> None:
    agent = agents.start()
    made = [agent.enqueue("proxy_test") for _ in range(7)]
    newest = made[::-1]
    assert agent.listed() == newest
    found, cursor = [], ""
    for size in (3, 3, 1):
        page = agent.ok(agent.get(f"/api/jobs?limit=3{cursor}"))
        assert page["count"] == len(page["jobs"]) == size
        found += [job["jobId"] for job in page["jobs"]]
        assert ("nextCursor" in page) == (size == 3)
        cursor = f"&cursor={page.get('nextCursor')}"
        agent.enqueue("browser_stop")
    assert found == newest


def test_a_page_that_is_exactly_full_is_the_last(agents: Agents) -> None:
    agent = agents.start()
    made = [agent.enqueue("proxy_test") for _ in range(3)]
    page = agent.ok(agent.get("/api/jobs?limit=3"))
    assert [job["jobId"] for job in page["jobs"]] == made[::-1]
    assert "nextCursor" not in page


def test_jobs_can_be_listed_by_status_and_by_type(agents: Agents, agent: Agent) -> None:
    done = agent.enqueue("proxy_test")
    failed = agent.enqueue("browser_start", NO)
    running = agent.enqueue("browser_start", HELD)
    agent.finish(done)
    agent.finish(failed)
    agent.wait(running, "running")
    assert agent.listed("?status=succeeded") == [done]
    assert agent.listed("?status=running") == [running]
    assert agent.listed("?status=failed,succeeded") == [failed, done]
    assert agent.listed("?jobType=browser_start") == [running, failed]
    assert agent.listed("?jobType=browser_start&status=failed") == [failed]
    assert agent.ok(agent.get("/api/jobs?status=canceled")) == {"jobs": [], "count": 0}


def test_a_listed_job_is_shown_as_it_is_alone(agent: Agent) -> None:
    job = agent.finish(agent.enqueue("proxy_test", profileId="env-1"))
    assert agent.ok(agent.get("/api/jobs"))["jobs"] == [job]


def test_only_jobs_are_listed(agent: Agent) -> None:
    agent.submit_native(action="echo")
    job_id = agent.enqueue("proxy_test")
    assert agent.listed() == [job_id]


# -- DESIGN, section 4: any view of any task -----------------------------------------------------

WORDS = {
    "blocked": "queued",
    "scheduled": "queued",
    "ready": "queued",
    "running": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "canceled",
}


def test_a_job_can_be_seen_in_the_words_of_the_others(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    agents.browser.wait_for(1)

    def seen(view: str) -> dict[str, Any]:
        return agent.ok(agent.get(f"/api/jobs/{job_id}?view={view}"))

    assert (seen("native")["taskId"], seen("native")["state"]) == (job_id, "running")
    assert (seen("pinchtab")["taskId"], seen("pinchtab")["state"]) == (job_id, "running")
    assert "running" in seen("browseros").values()
    assert seen("browsermanager") == agent.job(job_id)
    agents.browser.release("it")
    agent.finish(job_id)
    assert seen("pinchtab")["state"] == "done"
    assert "completed" in seen("browseros").values()
    agent.refused(agent.get(f"/api/jobs/{job_id}?view=latin"), 400)


def test_any_task_can_be_seen_as_a_job(agents: Agents) -> None:
    agent = agents.start()
    done = agent.submit_native(action="echo", params={"a": 1})
    failed = agent.submit_native(action="fail")
    blocked = agent.submit_native(action="waits", dependsOn=["not-there"])
    made = [done, failed, blocked, agent.submit_native(action="waits", delayMs=60_000)]
    made += [agent.submit_native(action="waits"), agent.submit_native(action="waits")]
    made += [agent.submit_native(action="sleep", params={"ms": 5000})]
    agent.post(f"/v1/tasks/{made[5]}/cancel")
    agent.wait(made[6], "running")
    agent.finish(done)
    agent.finish(failed)
    seen = set()
    for task_id in made:
        state = agent.get(f"/v1/tasks/{task_id}").json["state"]
        seen.add(state)
        job = agent.get(f"/v1/tasks/{task_id}?view=browsermanager").json
        assert (job["jobId"], job["status"]) == (task_id, WORDS[state])
        assert agent.job(task_id) == job
    assert seen == set(WORDS)


def test_a_job_that_waits_for_its_worker_is_queued_with_the_plain_preset(agents: Agents) -> None:
    agent = agents.start(types={"*": {"executor": "pull"}})
    job_id = agent.enqueue("browser_start", profileId="env-1")
    assert agent.job(job_id)["status"] == "queued"
    assert agent.get(f"/v1/tasks/{job_id}").json["executor"] == "pull"


def test_a_callback_speaks_the_jobs_dialect(agents: Agents) -> None:
    agent = agents.start(webhooks={"allow_hosts": ["127.0.0.1"]})
    url = agents.browser.url.replace("/run", "/told")
    job_id = agent.enqueue("proxy_test", callbackUrl=url)
    agent.finish(job_id)
    (told,) = until(lambda: agents.browser.told, what="the callback")
    assert told[0]["X-BrowserManager-Event"] == "job.succeeded"
    assert told[1] == agent.job(job_id)
    assert re.fullmatch(r"tsk_[0-9A-Za-z]+", told[1]["jobId"])

"""The BrowserManager job document, 4.4 and 7.1: how many browsers run, whoever started them.

A browser runs from its start to its stop, however many jobs, restarts and days lie between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until

from rota.config import load_settings

if TYPE_CHECKING:
    from support.job_server import Agent, Agents

HELD = {"hold": "it"}
FULL = ("failed", "max_concurrent_browsers", "Max concurrent browsers reached")


def start(agent: Agent, profile: str, *do: dict[str, Any]) -> str:
    """Ask for a browser; give the job's id."""
    body: dict[str, Any] = {"do": list(do), "id": profile}
    return str(agent.ok(agent.post("/api/env/start", body))["jobId"])


def started(agent: Agent, *profiles: str) -> None:
    """Start browsers, and see them run."""
    for job_id in [start(agent, profile) for profile in profiles]:
        assert agent.finish(job_id)["status"] == "succeeded"


def stopped(agent: Agent, profile: str, *do: dict[str, Any]) -> dict[str, Any]:
    """Stop a browser; give the job when it has ended."""
    job_id = agent.ok(agent.post("/api/env/stop", {"id": profile, "do": list(do)}))["jobId"]
    return agent.finish(job_id)


def fate(agent: Agent, job_id: str) -> tuple[str, str, str]:
    """Tell how a job failed."""
    job = agent.finish(job_id)
    return job["status"], job.get("errorCode", ""), job.get("errorMessage", "")


def active(agent: Agent) -> int:
    found: int = agent.get("/health").json["browsers"]["active"]
    return found


@pytest.fixture
def agent(agents: Agents) -> Agent:
    """An agent with room for two browsers."""
    return agents.start(agent={"max_concurrent_browsers": 2})


def test_a_browser_that_was_started_is_held_until_it_is_stopped(agent: Agent) -> None:
    started(agent, "a", "b")
    assert active(agent) == 2
    assert fate(agent, start(agent, "c")) == FULL
    assert stopped(agent, "a")["status"] == "succeeded"
    assert active(agent) == 1
    started(agent, "c")
    assert active(agent) == 2


def test_at_the_limit_a_start_fails_at_once_and_is_not_tried(agents: Agents, agent: Agent) -> None:
    started(agent, "a", "b")
    before = len(agents.browser.runs)
    job_id = start(agent, "c")
    assert fate(agent, job_id) == FULL
    assert len(agents.browser.runs) == before
    kinds = [event["kind"] for event in agent.history(job_id)]
    assert kinds == ["task_submitted", "task_failed"]
    assert agent.job(job_id)["retryCount"] == 0


def test_browsers_are_held_over_restarts_and_from_snapshots(agent: Agent) -> None:
    started(agent, "a", "b")
    for _ in range(2):
        agent.restart()
        assert active(agent) == 2
        assert fate(agent, start(agent, "c")) == FULL
    live, replayed = agent.digests()
    assert live == replayed
    stopped(agent, "b")
    agent.restart()
    assert active(agent) == 1
    started(agent, "c")


def test_starts_under_way_count_too(agents: Agents, agent: Agent) -> None:
    started(agent, "a")
    waiting = start(agent, "b", HELD)
    agents.browser.wait_for(2)
    assert fate(agent, start(agent, "c")) == FULL
    assert active(agent) == 1
    agents.browser.release("it")
    assert agent.finish(waiting)["status"] == "succeeded"
    assert active(agent) == 2


def test_a_start_that_fails_or_is_cancelled_holds_none(agents: Agents, agent: Agent) -> None:
    assert fate(agent, start(agent, "a", {"status": 400, "json": {"code": "no_such_profile"}}))
    cancelled = start(agent, "b", HELD)
    agents.browser.wait_for(2)
    agent.ok(agent.post(f"/api/jobs/{cancelled}/cancel"))
    assert active(agent) == 0
    started(agent, "c", "d")


def test_a_stop_that_fails_frees_none(agent: Agent) -> None:
    started(agent, "a", "b")
    assert stopped(agent, "a", {"status": 400, "json": {"code": "nope"}})["status"] == "failed"
    assert active(agent) == 2
    assert fate(agent, start(agent, "c")) == FULL


def test_a_stop_of_another_profile_frees_none(agent: Agent) -> None:
    started(agent, "a", "b")
    assert stopped(agent, "z")["status"] == "succeeded"
    assert active(agent) == 2


def test_a_profile_whose_browser_runs_already_takes_no_second_place(agent: Agent) -> None:
    started(agent, "a", "b", "a", "b")
    assert active(agent) == 2
    stopped(agent, "a")
    assert active(agent) == 1


def test_stop_all_needs_no_body_and_frees_all(agent: Agent) -> None:
    started(agent, "a", "b")
    assert active(agent) == 2
    job_id = agent.ok(agent.request("POST", "/api/env/stop-all"))["jobId"]
    assert agent.finish(job_id)["status"] == "succeeded"
    assert active(agent) == 0
    started(agent, "b", "c")


@pytest.mark.parametrize("what", ["start", "stop"])
def test_a_start_or_stop_of_nobodys_browser_is_refused(agent: Agent, what: str) -> None:
    """Nothing could give its place back but a stop of all."""
    for path, body in [
        (f"/api/env/{what}", {}),
        ("/api/jobs", {"jobType": f"browser_{what}", "payload": {}}),
    ]:
        problem = agent.refused(agent.post(path, body), 400)
        assert (problem["code"], problem["data"]["field"]) == (-1400, "profileId")
    assert active(agent) == 0


def test_scripts_run_so_many_at_once_and_hold_no_browser(agents: Agents, agent: Agent) -> None:
    started(agent, "a", "b")
    made = [agent.enqueue("script_run", HELD, profileId=f"s{n}") for n in range(3)]
    agents.browser.wait_busy(2)
    assert [agent.job(job_id)["status"] for job_id in made] == ["running", "running", "queued"]
    assert active(agent) == 2
    agents.browser.release("it")
    for job_id in made:
        assert agent.finish(job_id)["status"] == "succeeded"


def test_a_lower_limit_stops_nobody_and_a_higher_one_lets_in(agents: Agents) -> None:
    agent = agents.start(agent={"max_concurrent_browsers": 3})
    started(agent, "a", "b", "c")
    agent.config["agent"] = {"maxConcurrentBrowsers": 1}
    agent.restart()
    assert agent.get("/health").json["browsers"] == {"active": 3, "max": 1}
    stopped(agent, "a")
    assert fate(agent, start(agent, "d")) == FULL
    agent.config["agent"] = {"maxConcurrentBrowsers": 3}
    agent.restart()
    started(agent, "d")


def test_many_starts_at_once_never_pass_the_limit(agents: Agents) -> None:
    agent = agents.start(agent={"max_concurrent_browsers": 7})
    made = [start(agent, f"p{n}") for n in range(30)]
    ends = [agent.finish(job_id)["status"] for job_id in made]
    assert (ends.count("succeeded"), ends.count("failed")) == (7, 23)
    assert active(agent) == 7
    assert agent.get("/v1/stats").json["total"]["executed"] == 7


# -- what else the document leaves open ----------------------------------------------------------


def test_jobs_are_listed_for_a_day_under_the_preset() -> None:
    settings = load_settings(None, ("browsermanager",))
    assert settings.scheduler.result_ttl_sec == 24 * 3600


def test_jobs_are_listed_by_page_and_size_with_the_total(agents: Agents) -> None:
    agent = agents.start()
    made = [agent.enqueue() for _ in range(7)][::-1]
    for job_id in made:
        agent.finish(job_id)
    agent.submit_native(action="echo")
    pages = [agent.ok(agent.get(f"/api/jobs?page={n}&pageSize=3")) for n in (1, 2, 3, 4)]
    assert [[job["jobId"] for job in page["jobs"]] for page in pages] == [
        made[:3], made[3:6], made[6:], [],
    ]  # fmt: skip
    assert [page["count"] for page in pages] == [3, 3, 1, 0]
    assert all((page["total"], page["pageSize"]) == (7, 3) for page in pages)
    assert [page["page"] for page in pages] == [1, 2, 3, 4]
    assert agent.ok(agent.get("/api/jobs?pageSize=2&status=failed"))["total"] == 0
    assert agent.ok(agent.get("/api/jobs?page=1"))["pageSize"] == 100


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=x", "pageSize=0", "pageSize=1001", "page=1&limit=3", "page=1&cursor=9"],
)
def test_a_page_that_makes_no_sense_is_refused(agents: Agents, query: str) -> None:
    agent = agents.start()
    assert agent.refused(agent.get(f"/api/jobs?{query}"), 400)["code"] == -1400


@pytest.mark.parametrize("seconds", [45, 0.25, 3600])
def test_a_timeout_may_be_given_in_seconds(agents: Agents, seconds: float) -> None:
    agent = agents.start()
    body = {"jobType": "script_run", "timeoutSeconds": seconds}
    job = agent.job(agent.ok(agent.post("/api/jobs", body))["jobId"])
    assert job["timeoutSeconds"] == seconds
    by_path = agent.ok(agent.post("/api/script/run", {"id": "a", "timeoutSeconds": seconds}))
    job = agent.job(by_path["jobId"])
    assert (job["timeoutSeconds"], job["payload"]) == (seconds, {"id": "a"})


@pytest.mark.parametrize(
    "fields",
    [
        {"timeoutSeconds": 3601},
        {"timeoutSeconds": 0},
        {"timeoutSeconds": -1},
        {"timeoutSeconds": "60"},
        {"timeoutSeconds": True},
        {"timeoutSeconds": 1e300},
        {"timeoutSeconds": 5, "timeoutMs": 6000},
    ],
)
def test_a_timeout_that_makes_no_sense_is_refused(agents: Agents, fields: dict[str, Any]) -> None:
    agent = agents.start()
    refused = agent.refused(agent.post("/api/jobs", {"jobType": "script_run", **fields}), 400)
    assert refused["data"]["field"] == "timeoutSeconds"


def test_a_script_times_out_after_the_seconds_it_asked_for(agents: Agents) -> None:
    agent = agents.start()
    body = {"id": "a", "do": [HELD], "timeoutSeconds": 0.05, "maxRetries": 0}
    job_id = agent.ok(agent.post("/api/script/run", body))["jobId"]
    job = until(lambda: found if (found := agent.finish(job_id)) else None, what="it ends")
    assert (job["status"], job["errorMessage"]) == ("failed", "Execution timeout")

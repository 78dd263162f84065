"""The BrowserManager job document, section 7: how much runs and waits at once.

Dispatch is decided with the submission, so once a submission is answered the lists tell what may
run. The browser counts on its own side how many attempts it has had at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.job_server import BUSY, SOON, Agent, Agents

from rota.config import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Answer

HELD = {"hold": "it"}


def held(agent: Agent, job_type: str, count: int, profile: str = "", **fields: Any) -> list[str]:
    """Enqueue jobs that run until they are released, each of a profile of its own or all of one."""
    return [
        agent.enqueue(
            job_type,
            HELD,
            profileId=profile or f"{job_type}-{n}",
            payload={"id": profile or f"{job_type}-{n}"},
            **fields,
        )
        for n in range(count)
    ]


def counts(agents: Agents, agent: Agent) -> tuple[int, int]:
    """How many jobs run, with the browser at work on all of them, and how many are queued."""
    queue = agent.get("/health").json["queue"]
    assert len(agent.listed("?status=running&limit=1000")) == queue["running"]
    assert len(agent.listed("?status=queued&limit=1000")) == queue["queued"]
    agents.browser.wait_busy(queue["running"])
    return queue["running"], queue["queued"]


def let_go(agents: Agents, agent: Agent, job_ids: list[str]) -> None:
    """Release all, and see them end well."""
    agents.browser.release("it")
    for job_id in job_ids:
        assert agent.finish(job_id)["status"] == "succeeded"


# -- 7.1 Global Limits ---------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_table(agents: Agents) -> None:
    limits = load_settings(None, ("browsermanager",)).limits()
    assert (limits.inflight, limits.queued, limits.per_key) == (20, 500, 3)
    assert limits.browsers == 20
    health = agents.start().get("/health").json
    assert (health["queue"]["max_concurrent"], health["browsers"]["max"]) == (20, 20)


def test_twenty_jobs_run_at_once_and_no_more(agents: Agents) -> None:
    agent = agents.start()
    made = held(agent, "browser_start", 5) + held(agent, "browser_stop", 10)
    made += held(agent, "cache_clear_local", 10)
    assert counts(agents, agent) == (20, 5)
    let_go(agents, agent, made)
    assert agents.browser.peak["all"] == 20


def test_the_five_hundred_and_first_queued_job_is_refused(agents: Agents) -> None:
    agent = agents.start(types={"*": {"executor": "pull"}})
    answers = agent.together(
        lambda n: agent.post("/api/jobs", {"jobType": "proxy_test", "profileId": f"env-{n}"}), 500
    )
    assert {answer.status for answer in answers} == {200}
    assert agent.get("/health").json["queue"]["queued"] == 500
    assert agent.refused(agent.post("/api/env/start", {"id": "env-1"}), 422)["code"] == -1403


def test_three_jobs_of_a_profile_run_at_once_and_no_more(agents: Agents) -> None:
    agent = agents.start()
    made = held(agent, "proxy_test", 5, "env-1")
    assert counts(agents, agent) == (3, 2)
    let_go(agents, agent, made)
    assert agents.browser.peak["profile env-1"] == 3


def test_the_types_of_a_profiles_jobs_are_counted_together(agents: Agents) -> None:
    agent = agents.start()
    first = agent.ok(agent.post("/api/env/start", {"id": "env-1", "do": [HELD]}))["jobId"]
    made = [first, *held(agent, "cache_clear_local", 1, "env-1")]
    made += held(agent, "proxy_test", 1, "env-1")
    waiting = agent.ok(agent.post("/api/env/stop", {"id": "env-1", "do": [HELD]}))["jobId"]
    assert agent.job(waiting)["status"] == "queued"
    assert counts(agents, agent) == (3, 1)
    let_go(agents, agent, [*made, waiting])
    assert agents.browser.peak["profile env-1"] == 3


def test_jobs_without_a_profile_share_none(agents: Agents) -> None:
    agent = agents.start()
    made = [agent.enqueue("browser_stop_all", HELD) for _ in range(6)]
    assert counts(agents, agent) == (6, 0)
    let_go(agents, agent, made)


@pytest.mark.parametrize(("key", "most"), [("max_concurrent_jobs", 2), ("maxConcurrentJobs", 30)])
def test_max_concurrent_jobs_is_configurable(agents: Agents, key: str, most: int) -> None:
    agent = agents.start(agent={key: most})
    made = held(agent, "profile_clone", most + 2)
    assert counts(agents, agent) == (most, 2)
    assert agent.get("/health").json["queue"]["max_concurrent"] == most
    let_go(agents, agent, made)
    assert agents.browser.peak["all"] == most


@pytest.mark.parametrize("key", ["max_concurrent_browsers", "maxConcurrentBrowsers"])
def test_max_concurrent_browsers_is_configurable(agents: Agents, key: str) -> None:
    agent = agents.start(agent={key: 2})
    made = held(agent, "script_run", 4)
    assert counts(agents, agent) == (2, 2)
    assert agent.get("/health").json["browsers"] == {"active": 0, "max": 2}
    let_go(agents, agent, made)
    assert agents.browser.peak["script_run"] == 2


@pytest.mark.parametrize(("key", "most"), [("max_queue_size", 600), ("maxQueueSize", 2)])
def test_max_queue_size_is_configurable(agents: Agents, key: str, most: int) -> None:
    agent = agents.start(agent={key: most}, types={"*": {"executor": "pull"}})
    answers = agent.together(lambda _: agent.post("/api/jobs", {"jobType": "proxy_test"}), most)
    assert {answer.status for answer in answers} == {200}
    full = agent.refused(agent.post("/api/jobs", {"jobType": "proxy_test"}), 422)
    assert full["code"] == -1403


@pytest.mark.parametrize(("key", "most"), [("max_jobs_per_profile", 1), ("maxJobsPerProfile", 5)])
def test_max_jobs_per_profile_is_configurable(agents: Agents, key: str, most: int) -> None:
    agent = agents.start(agent={key: most})
    made = held(agent, "proxy_test", most + 2, "env-1")
    assert counts(agents, agent) == (most, 2)
    let_go(agents, agent, made)
    assert agents.browser.peak["profile env-1"] == most


def test_the_settings_of_the_table_are_shown(agents: Agents) -> None:
    given = {"max_concurrent_jobs": 7, "max_concurrent_browsers": 6}
    given |= {"max_queue_size": 5, "max_jobs_per_profile": 4}
    agent = agents.start(agent=given)
    assert agent.get("/v1/config").json["agent"] == {
        "maxConcurrentJobs": 7,
        "maxConcurrentBrowsers": 6,
        "maxQueueSize": 5,
        "maxJobsPerProfile": 4,
    }


def test_a_changed_file_is_put_in_force_without_a_restart(agents: Agents, tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    given = {
        "executors": {"browser": {"kind": "http", "url": agents.browser.url}},
        "types": {"profile_clone": {"executor": "browser"}},
        "agent": {"max_concurrent_jobs": 1},
    }
    file.write_text(json.dumps(given))
    agent = agents.start(file, agent={"max_concurrent_jobs": 1})
    made = held(agent, "profile_clone", 4, "env-1")
    assert counts(agents, agent) == (1, 3)
    given["agent"] = {"max_concurrent_jobs": 8, "max_jobs_per_profile": 2}
    file.write_text(json.dumps(given))
    assert agent.post("/v1/config/reload").status == 200
    until(lambda: counts(agents, agent) == (2, 2), what="the new limits are in force")
    let_go(agents, agent, made)


# -- 7.2 Per-type Concurrency --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_type", "most"),
    [
        ("browser_start", 5),
        ("browser_stop", 10),
        ("script_run", 20),
        ("cache_clear_local", 10),
        ("proxy_test", 20),
    ],
)
def test_a_type_runs_so_many_at_once_and_no_more(agents: Agents, job_type: str, most: int) -> None:
    agent = agents.start(agent={"max_concurrent_jobs": 50})
    made = held(agent, job_type, most + 3)
    assert counts(agents, agent) == (most, 3)
    let_go(agents, agent, made)
    assert agents.browser.peak[job_type] == most


def test_types_that_are_not_in_the_table_have_only_the_global_limit(agents: Agents) -> None:
    agent = agents.start()
    made = held(agent, "recycle_bin_cleanup", 21)
    assert counts(agents, agent) == (20, 1)
    let_go(agents, agent, made)


def test_a_type_at_its_limit_does_not_hold_up_the_others(agents: Agents) -> None:
    agent = agents.start()
    made = held(agent, "browser_start", 9)
    assert counts(agents, agent) == (5, 4)
    for job_type in ("proxy_test", "browser_stop", "script_run", "db_migration"):
        assert agent.finish(agent.enqueue(job_type))["status"] == "succeeded"
    assert counts(agents, agent) == (5, 4)
    let_go(agents, agent, made)


def test_a_profile_at_its_limit_does_not_hold_up_the_others(agents: Agents) -> None:
    agent = agents.start()
    made = held(agent, "proxy_test", 8, "env-1")
    assert counts(agents, agent) == (3, 5)
    for profile in ("env-2", "env-3"):
        other = agent.enqueue("proxy_test", profileId=profile)
        assert agent.finish(other)["status"] == "succeeded"
    assert agent.finish(agent.enqueue("browser_stop_all"))["status"] == "succeeded"
    assert counts(agents, agent) == (3, 5)
    let_go(agents, agent, made)


def test_a_place_that_becomes_free_goes_to_the_job_that_has_waited_longest(
    agents: Agents,
) -> None:
    agent = agents.start(types={"browser_start": {"maxConcurrent": 1}})
    made = [agent.enqueue("browser_start", {"hold": str(n)}) for n in range(4)]
    for n, job_id in enumerate(made):
        until(lambda at=n: len(agents.browser.runs) == at + 1, what=f"{n + 1} attempts")
        assert agents.browser.runs[-1].job == job_id
        agents.browser.release(str(n))
    for job_id in made:
        assert agent.finish(job_id)["status"] == "succeeded"


def test_a_more_urgent_job_overtakes_in_the_queue(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"maxConcurrent": 1}})
    first = agent.enqueue("browser_start", HELD)
    late, urgent = (agent.enqueue("browser_start", priority=word) for word in ("low", "high"))
    agents.browser.release("it")
    for job_id in (first, late, urgent):
        agent.finish(job_id)
    assert [run.job for run in agents.browser.runs] == [first, urgent, late]


def test_a_cancelled_job_frees_its_place(agents: Agents) -> None:
    agent = agents.start()
    made = held(agent, "browser_start", 6)
    agents.browser.wait_for(5)
    assert agent.job(made[5])["status"] == "queued"
    agent.ok(agent.post(f"/api/jobs/{made[0]}/cancel"))
    agent.wait(made[5], "running")
    let_go(agents, agent, made[1:])


def test_a_job_that_waits_for_its_retry_holds_no_place(agents: Agents) -> None:
    kind = {"maxConcurrent": 1, "retry": {"baseMs": 60_000}}
    agent = agents.start(types={"browser_start": kind})
    waiting = agent.enqueue("browser_start", BUSY, profileId="env-1")
    agent.failures(waiting)
    other = agent.enqueue("browser_start", profileId="env-1")
    assert agent.finish(other)["status"] == "succeeded"
    assert counts(agents, agent) == (0, 1)


def test_a_storm_of_jobs_keeps_within_every_limit(agents: Agents) -> None:
    agent = agents.start(types={"*": {"retry": SOON}})
    most = {"browser_start": 5, "browser_stop": 10, "cache_clear_local": 10, "proxy_test": 20}
    names = list(most)

    def submit(n: int) -> Answer:
        profile = f"env-{n % 7}"
        do = [{"drop": True}, {}] if n % 3 == 0 else [{}]
        body = {"jobType": names[n % 4], "profileId": profile, "payload": {"id": profile, "do": do}}
        return agent.post("/api/jobs", body)

    made = [agent.ok(answer)["jobId"] for answer in agent.together(submit, 140)]
    for job_id in made:
        assert agent.finish(job_id)["status"] == "succeeded"
    peak = agents.browser.peak
    assert peak["all"] <= 20
    assert all(peak[name] <= most[name] for name in most)
    assert all(peak[f"profile env-{n}"] <= 3 for n in range(7))
    assert agent.get("/health").json["queue"] == {"queued": 0, "running": 0, "max_concurrent": 20}


# -- 7.3 Queue Full Behavior ---------------------------------------------------------------------


@pytest.fixture
def small(agents: Agents) -> Agent:
    """An agent with two places in its queue, and one slot."""
    return agents.start(
        agent={"max_queue_size": 2, "max_concurrent_jobs": 1}, types={"*": {"retry": SOON}}
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/jobs", {"jobType": "proxy_test"}), ("/api/env/start", {"id": "env-1"})],
)
def test_a_full_queue_is_422_with_the_documents_code_and_words(
    agents: Agents, small: Agent, path: str, body: dict[str, Any]
) -> None:
    made = held(small, "proxy_test", 3)
    assert counts(agents, small) == (1, 2)
    full = small.refused(small.post(path, body), 422)
    assert (full["code"], full["msg"]) == (-1403, "Job queue full")
    let_go(agents, small, made)


def test_running_jobs_do_not_fill_the_queue(agents: Agents, small: Agent) -> None:
    made = held(small, "proxy_test", 1)
    small.wait(made[0], "running")
    made += held(small, "proxy_test", 2)
    assert counts(agents, small) == (1, 2)
    let_go(agents, small, made)


def test_a_client_polls_and_tries_again_when_there_is_room(agents: Agents, small: Agent) -> None:
    made = held(small, "proxy_test", 3)
    body = {"jobType": "proxy_test", "payload": {}, "idempotencyKey": "mine"}
    assert small.refused(small.post("/api/jobs", body), 422)["code"] == -1403
    agents.browser.release("it")
    until(lambda: small.get("/health").json["queue"]["queued"] < 2, what="there is room")
    data = small.ok(small.post("/api/jobs", body))
    assert set(data) == {"jobId", "status"}
    assert small.finish(data["jobId"])["status"] == "succeeded"
    for job_id in made:
        small.finish(job_id)


def test_a_key_that_is_known_is_answered_even_when_the_queue_is_full(
    agents: Agents, small: Agent
) -> None:
    body = {"jobType": "proxy_test", "payload": {"do": [HELD]}, "idempotencyKey": "mine"}
    first = small.ok(small.post("/api/jobs", body))["jobId"]
    made = held(small, "proxy_test", 2)
    again = small.ok(small.post("/api/jobs", body))
    assert (again["jobId"], again["idempotent"]) == (first, True)
    let_go(agents, small, [first, *made])


def test_a_retry_finds_its_place_in_a_full_queue(agents: Agents, small: Agent) -> None:
    first = small.enqueue("browser_start", {**HELD, **BUSY}, {})
    made = held(small, "proxy_test", 2)
    let_go(agents, small, [first, *made])
    assert small.job(first)["retryCount"] == 1


def test_one_full_queue_is_told_to_each_in_its_own_words(agents: Agents, small: Agent) -> None:
    made = held(small, "proxy_test", 3)
    native = small.post("/v1/tasks", {"agentId": "ann", "action": "echo"})
    assert (native.status, native.code) == (429, "queue_full")
    pinchtab = small.post("/tasks", {"agentId": "ann", "action": "click"})
    assert (pinchtab.status, pinchtab.code) == (429, "queue_full")
    let_go(agents, small, made)


def test_a_job_that_was_refused_is_none_of_the_jobs(agents: Agents, small: Agent) -> None:
    """In DESIGN's table `rejected` has no word of BrowserManager: the client got its 422."""
    made = held(small, "proxy_test", 3)
    small.refused(small.post("/api/jobs", {"jobType": "proxy_test"}), 422)
    listed, failed = small.listed(), small.listed("?status=failed")
    let_go(agents, small, made)
    assert listed == made[::-1]
    assert failed == []

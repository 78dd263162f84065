"""The BrowserManager job document, sections 4 and 5: retries and timeouts.

Pauses are read from the events: `next_at` of a failed attempt less its own moment. Where the
preset's own pauses would take minutes, the clock is moved and the agent started anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from support.http_server import until
from support.job_server import BUSY, SOON, Agent, Agents, later, moment

from rota.config import load_settings

HELD = {"hold": "it"}
SHORT_MS = 40


def says(code: str, status: int = 500) -> dict[str, Any]:
    """An answer that names its error."""
    return {"status": status, "json": {"code": code}}


class Pause(NamedTuple):
    """How long a job was to wait after a failure, seen from either side of it.

    The pause is counted from a moment between the start of the attempt and its recorded failure.
    """

    since_start_ms: float
    since_failure_ms: float

    def is_within(self, low_ms: float, high_ms: float) -> bool:
        return self.since_start_ms >= low_ms and self.since_failure_ms <= high_ms


def pauses(agent: Agent, job_id: str) -> list[Pause]:
    """The pauses of a job that has failed at least once."""
    found = []
    for failure in agent.failures(job_id):
        next_at, attempt = failure["data"]["next_at"], failure["data"]["attempt"]
        (start,) = (
            event
            for event in agent.history(job_id)
            if event["kind"] == "task_started" and event["data"]["attempt"] == attempt
        )
        found.append(Pause((next_at - start["at"]) / 1000, (next_at - failure["at"]) / 1000))
    return found


# -- 4.1 Principles ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [BUSY, {"drop": True}], ids=["resource busy", "network error"])
def test_transient_failures_are_tried_again(
    agents: Agents, agent: Agent, step: dict[str, Any]
) -> None:
    job_id = agent.enqueue("browser_start", step, {})
    assert agent.finish(job_id)["status"] == "succeeded"
    assert [run.attempt for run in agents.browser.of(job_id)] == [1, 2]


def test_an_executor_that_is_not_there_is_a_network_error(agents: Agents) -> None:
    executors = {"browser": {"kind": "http", "url": "http://127.0.0.1:1/run"}}
    agent = agents.start(types={"*": {"retry": SOON}}, executors=executors)
    job = agent.finish(agent.enqueue("browser_start"))
    assert (job["status"], job["retryCount"]) == ("failed", 2)
    assert job["errorCode"] == "connection"


def test_a_timeout_is_tried_again(agents: Agents, agent: Agent) -> None:
    assert run_out(agent, "browser_start", HELD) == [1, 2, 3]


def test_an_executor_that_forbids_a_repetition_is_believed(agents: Agents, agent: Agent) -> None:
    no = {"status": 503, "json": {"code": "resource_busy", "retryable": False}}
    job_id = agent.enqueue("browser_start", no)
    assert agent.finish(job_id)["status"] == "failed"
    assert len(agents.browser.of(job_id)) == 1


# -- 4.2 Backoff Formula -------------------------------------------------------------------------

BOUNDS_S = {1: (1, 2), 2: (2, 4), 3: (4, 8), 4: (8, 16), 5: (16, 32)}
"""Retry number: shortest and longest pause."""


def test_the_formula_gives_the_table() -> None:
    kinds = load_settings(None, ("browsermanager",)).types
    for kind in kinds.values():
        assert kind.retry is not None
        policy = kind.retry.policy()
        for number, (low_s, high_s) in BOUNDS_S.items():
            for draw in (0.0, 0.25, 1.0):
                base = 1 * 2 ** (number - 1)
                delay_s = policy.delay_us(number, draw) / 1e6
                assert delay_s == min(base + draw * 1.0, 60)
                assert low_s <= delay_s <= high_s
        for number in (7, 8, 50, 99):
            assert policy.delay_us(number, 0.5) == 60_000_000


def test_the_pauses_of_the_preset_are_those_of_the_formula(agents: Agents) -> None:
    agent = agents.start()
    with later(seconds=0) as clock:
        job_id = agent.enqueue("browser_stop", BUSY, maxRetries=8)
        for number in range(1, 9):
            until(lambda n=number: len(agent.failures(job_id)) >= n, what=f"failure {number}")
            clock.tick(65)
            agent.restart()
        job = agent.finish(job_id)
    assert (job["status"], job["retryCount"], job["maxRetries"]) == ("failed", 8, 8)
    found = pauses(agent, job_id)
    for number, pause in enumerate(found, 1):
        low_ms = 1000 * 2 ** (number - 1)
        assert pause.is_within(min(low_ms, 60_000), min(low_ms + 1000, 60_000))
    for number, (low_s, high_s) in BOUNDS_S.items():
        assert found[number - 1].is_within(low_s * 1000, high_s * 1000)
    assert len(found) == 8


def test_the_curve_in_a_hundredth_of_its_size_is_waited_out(agents: Agents) -> None:
    small = {"baseMs": 10, "jitterMs": 10, "maxMs": 600, "maxAttempts": 8}
    agent = agents.start(types={"cache_clear_local": {"retry": small}})
    job_id = agent.enqueue("cache_clear_local", says("file_locked"))
    assert agent.finish(job_id)["retryCount"] == 7
    for number, pause in enumerate(pauses(agent, job_id), 1):
        low_ms = 10 * 2 ** (number - 1)
        assert pause.is_within(min(low_ms, 600), min(low_ms + 10, 600))
    history = agent.history(job_id)
    due = [e["data"]["next_at"] for e in history if e["kind"] == "attempt_failed"]
    began = [e["at"] for e in history if e["kind"] == "task_assigned"]
    assert all(at >= next_at for at, next_at in zip(began[1:], due, strict=True))


def test_the_jitter_is_drawn_anew_each_time(agents: Agents) -> None:
    agent = agents.start()
    found = [pauses(agent, agent.enqueue("browser_start", BUSY))[0] for _ in range(10)]
    assert all(pause.is_within(1000, 2000) for pause in found)
    assert len({round(pause.since_failure_ms) for pause in found}) > 1


def test_a_waiting_job_says_when_it_is_tried_again(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"retry": {"baseMs": 60_000}}})
    job_id = agent.enqueue("browser_start", BUSY)
    (failure,) = agent.failures(job_id)
    job = agent.job(job_id)
    assert job["status"] == "queued"
    assert round(moment(job["nextRetryAt"]).timestamp() * 1e6) == failure["data"]["next_at"]


def test_a_busy_executor_may_ask_for_a_longer_pause(agents: Agents) -> None:
    agent = agents.start()
    busy = {"status": 503, "headers": {"Retry-After": "70"}, "json": {"code": "resource_busy"}}
    job_id = agent.enqueue("browser_start", busy)
    assert pauses(agent, job_id)[0].is_within(70_000, 70_000)
    soon = {**busy, "headers": {"Retry-After": "0"}}
    assert pauses(agent, agent.enqueue("browser_start", soon))[0].is_within(1000, 2000)


# -- 4.3 Retry Configuration per Job Type ----------------------------------------------------------

CONDITIONS = [
    ("browser_start", 2, says("browser_crashed")),
    ("browser_start", 2, says("port_bind_failed")),
    ("browser_stop", 3, says("still_running", 409)),
    ("script_run", 1, HELD),
    ("cache_clear_local", 3, says("file_locked", 423)),
    ("proxy_test", 2, {"drop": True}),
    ("proxy_test", 2, HELD),
]


def attempts(agent: Agent, job_id: str) -> list[int]:
    """The attempts that a job was given."""
    history = agent.history(job_id)
    return [e["data"]["attempt"] for e in history if e["kind"] == "task_assigned"]


def run_out(agent: Agent, job_type: str, step: dict[str, Any]) -> list[int]:
    """Run a job to its failure; give the attempts. A step that hangs is timed out."""
    hangs = {"timeoutMs": SHORT_MS} if step == HELD else {}
    job_id = agent.enqueue(job_type, step, **hangs)
    job = agent.finish(job_id)
    found = attempts(agent, job_id)
    assert (job["status"], job["retryCount"]) == ("failed", len(found) - 1)
    return found


@pytest.mark.parametrize(("job_type", "retries", "step"), CONDITIONS)
def test_a_retryable_condition_is_tried_as_often_as_the_table_says(
    agents: Agents, agent: Agent, job_type: str, retries: int, step: dict[str, Any]
) -> None:
    assert run_out(agent, job_type, step) == list(range(1, retries + 2))


@pytest.mark.parametrize(("job_type", "retries", "step"), CONDITIONS[:-1])
def test_the_last_attempt_may_still_succeed(
    agents: Agents, agent: Agent, job_type: str, retries: int, step: dict[str, Any]
) -> None:
    hangs = {"timeoutMs": 1000} if step == HELD else {}
    job = agent.finish(agent.enqueue(job_type, *[step] * retries, {}, **hangs))
    assert (job["status"], job["retryCount"]) == ("succeeded", retries)
    assert job["result"] == {"debugPort": 9222}
    assert "errorMessage" not in job


@pytest.mark.parametrize("step", [BUSY, {"drop": True}, says("browser_crashed")])
def test_a_script_is_tried_again_after_a_timeout_only(
    agents: Agents, agent: Agent, step: dict[str, Any]
) -> None:
    assert run_out(agent, "script_run", step) == [1]


@pytest.mark.parametrize("step", [BUSY, {"drop": True}, HELD])
def test_a_migration_is_never_tried_again(
    agents: Agents, agent: Agent, step: dict[str, Any]
) -> None:
    assert run_out(agent, "db_migration", step) == [1]


def test_a_migration_is_never_tried_again_whatever_the_client_asks_for(
    agents: Agents, agent: Agent
) -> None:
    body = {"jobType": "db_migration", "payload": {}, "maxRetries": 5}
    answer = agent.post("/api/jobs", body)
    assert (answer.status, answer.json["code"]) == (400, -1400)
    assert "never tried again" in answer.json["msg"]
    job_id = agent.enqueue("db_migration", BUSY, maxRetries=0)
    assert agent.finish(job_id)["status"] == "failed"
    assert len(agents.browser.of(job_id)) == 1


def test_a_type_without_a_policy_has_the_documents_backoff_if_asked_to_retry(
    agents: Agents,
) -> None:
    agent = agents.start(types={"plain": {}})
    job = agent.job(agent.enqueue("plain", BUSY, maxRetries=4))
    assert job["maxRetries"] == 4


def test_the_retry_that_a_job_waits_for_counts(agents: Agents) -> None:
    slow = {"kind": "fixed", "baseMs": 60_000, "maxAttempts": 3}
    agent = agents.start(types={"browser_start": {"retry": slow}})
    job_id = agent.enqueue("browser_start", BUSY)
    until(lambda: "nextRetryAt" in agent.job(job_id), what="the job waits for its retry")
    assert (agent.job(job_id)["status"], agent.job(job_id)["retryCount"]) == ("queued", 1)


def test_a_condition_of_one_type_is_none_of_another(agents: Agents, agent: Agent) -> None:
    assert run_out(agent, "browser_stop", says("port_bind_failed")) == [1]
    assert run_out(agent, "browser_start", says("still_running")) == [1]
    assert run_out(agent, "proxy_test", says("file_locked")) == [1]


def test_a_client_may_ask_for_fewer_retries_or_for_more(agents: Agents, agent: Agent) -> None:
    for asked in (0, 1, 4):
        job_id = agent.enqueue("browser_start", BUSY, maxRetries=asked)
        job = agent.finish(job_id)
        assert (job["retryCount"], job["maxRetries"]) == (asked, asked)
        assert len(agents.browser.of(job_id)) == asked + 1


def test_the_file_may_say_other_retries(agents: Agents) -> None:
    own = {**SOON, "maxAttempts": 2, "retryOn": ["status:418"]}
    agent = agents.start(types={"browser_start": {"retry": own}})
    job_id = agent.enqueue("browser_start", {"status": 418})
    assert agent.finish(job_id)["retryCount"] == 1
    assert run_out(agent, "browser_start", BUSY) == [1]


# -- 4.4 Non-retryable Conditions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("profile_not_found", 404),
        ("profile_in_recycle_bin", 409),
        ("max_browsers_reached", 409),
        ("invalid_payload", 422),
    ],
)
def test_a_permanent_failure_fails_at_once(
    agents: Agents, agent: Agent, code: str, status: int
) -> None:
    for job_type in ("browser_start", "browser_stop", "cache_clear_local", "profile_clone"):
        job_id = agent.enqueue(job_type, says(code, status))
        job = agent.finish(job_id)
        assert (job["status"], job["retryCount"]) == ("failed", 0)
        assert code in job["errorMessage"]
        assert len(agents.browser.of(job_id)) == 1


def test_a_canceled_job_is_not_tried_again(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"retry": {"baseMs": 60_000}}})
    with later(seconds=0) as clock:
        job_id, other = (agent.enqueue("browser_start", BUSY, {}) for _ in range(2))
        agent.failures(job_id)
        agent.failures(other)
        agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
        clock.tick(65)
        agent.restart()
        assert agent.finish(other)["status"] == "succeeded"
        assert agent.job(job_id)["status"] == "canceled"
    assert len(agents.browser.of(job_id)) == 1


def test_a_running_job_that_is_canceled_is_not_tried_again(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    agents.browser.wait_for(1)
    agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    agents.browser.wait_left(job_id)
    agent.finish(agent.enqueue("browser_start", BUSY, {}))
    assert len(agents.browser.of(job_id)) == 1


# -- 5.1 Timeout Types ---------------------------------------------------------------------------


def test_the_execution_timeout_is_counted_from_running(agents: Agents) -> None:
    agent = agents.start(types={"browser_stop": {"maxConcurrent": 1}})
    agent.enqueue("browser_stop", HELD)
    queued = agent.enqueue("browser_stop", timeoutMs=1000)
    meanwhile = agent.enqueue("db_migration", {"hold": "ever"}, timeoutMs=1100)
    assert agent.finish(meanwhile)["errorMessage"] == "Execution timeout"
    assert agent.job(queued)["status"] == "queued"
    agents.browser.release("it")
    assert agent.finish(queued)["status"] == "succeeded"


def test_the_queue_timeout_is_counted_while_queued(agents: Agents) -> None:
    kind = {"maxConcurrent": 1, "queueTimeoutMs": SHORT_MS}
    agent = agents.start(types={"browser_stop": kind})
    running = agent.enqueue("browser_stop", HELD)
    agent.wait(running, "running")
    job_id = agent.enqueue("browser_stop")
    job = agent.finish(job_id)
    assert (job["status"], job["errorMessage"]) == ("failed", "Queue timeout")
    assert "startedAt" not in job
    assert agents.browser.of(job_id) == []
    assert agent.job(running)["status"] == "running"
    agents.browser.release("it")
    assert agent.finish(running)["status"] == "succeeded"


# -- 5.2 Timeout Values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_type", "execution_s", "queue_s"),
    [
        ("browser_start", 30, 300),
        ("browser_stop", 15, 60),
        ("script_run", 300, 600),
        ("cache_clear_local", 60, 300),
        ("proxy_test", 15, 60),
    ],
)
def test_the_timeouts_of_the_table(
    agents: Agents, job_type: str, execution_s: int, queue_s: int
) -> None:
    agent = agents.start()
    job = agent.job(agent.enqueue(job_type))
    assert (job["timeoutSeconds"], job["queueTimeoutSeconds"]) == (execution_s, queue_s)


@pytest.mark.parametrize(
    ("job_type", "queue_s"),
    [
        ("browser_start", 300),
        ("browser_stop", 60),
        ("script_run", 600),
        ("cache_clear_local", 300),
        ("proxy_test", 60),
    ],
)
def test_a_job_is_queued_so_long_and_no_longer(agents: Agents, job_type: str, queue_s: int) -> None:
    agent = agents.start(types={"*": {"executor": "pull"}})
    job_id = agent.enqueue(job_type)
    with later(seconds=queue_s - 5):
        agent.restart()
        assert agent.job(job_id)["status"] == "queued"
    with later(seconds=queue_s + 1):
        agent.restart()
        job = agent.finish(job_id)
    assert (job["status"], job["errorMessage"]) == ("failed", "Queue timeout")


def test_a_script_may_take_up_to_an_hour_and_no_longer(agents: Agents) -> None:
    agent = agents.start()
    for path, more in (("/api/jobs", {"jobType": "script_run"}), ("/api/script/run", {})):
        data = agent.ok(agent.post(path, {**more, "timeoutMs": 3_600_000}))
        assert agent.job(data["jobId"])["timeoutSeconds"] == 3600
        problem = agent.refused(agent.post(path, {**more, "timeoutMs": 3_600_001}), 400)
        assert "timeoutMs" in problem["msg"]


def test_the_default_of_a_script_is_configurable(agents: Agents) -> None:
    agent = agents.start(types={"script_run": {"timeoutMs": 900_000}})
    job = agent.job(agent.enqueue("script_run"))
    assert (job["timeoutSeconds"], job["queueTimeoutSeconds"]) == (900, 600)
    job = agent.job(agent.enqueue("script_run", timeoutMs=1000))
    assert job["timeoutSeconds"] == 1


# -- 5.3 Timeout Handling ------------------------------------------------------------------------


def test_a_job_past_its_timeout_fails_with_the_documents_words(
    agents: Agents, agent: Agent
) -> None:
    job_id = agent.enqueue("db_migration", HELD, timeoutMs=1000)
    agents.browser.wait_for(1)
    job = agent.finish(job_id)
    assert (job["status"], job["errorMessage"]) == ("failed", "Execution timeout")
    agents.browser.wait_left(job_id)


def test_a_timeout_with_retries_left_schedules_a_retry(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"retry": {"baseMs": 60_000}}})
    job_id = agent.enqueue("browser_start", HELD, timeoutMs=1000)
    agents.browser.wait_for(1)
    agent.failures(job_id)
    job = agent.job(job_id)
    assert (job["status"], job["errorMessage"]) == ("queued", "Execution timeout")
    assert job["nextRetryAt"]
    agents.browser.wait_left(job_id)


def test_a_timeout_with_no_retries_left_is_final(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("script_run", HELD, timeoutMs=SHORT_MS)
    job = agent.finish(job_id)
    assert (job["status"], job["retryCount"]) == ("failed", 1)
    assert job["errorMessage"] == "Execution timeout"
    assert attempts(agent, job_id) == [1, 2]


def test_each_attempt_has_the_whole_timeout(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD, timeoutMs=SHORT_MS)
    agent.finish(job_id)
    history = agent.history(job_id)
    began = [e["at"] for e in history if e["kind"] == "task_assigned"]
    ended = [e["at"] for e in history if e["kind"] in ("attempt_failed", "task_failed")]
    assert len(began) == 3
    assert all(b - a >= SHORT_MS * 1000 for a, b in zip(began, ended, strict=True))


def test_a_job_that_ran_out_of_queue_time_is_not_tried_again(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"executor": "pull", "queueTimeoutMs": SHORT_MS}})
    job_id = agent.enqueue("browser_start")
    assert agent.finish(job_id)["errorMessage"] == "Queue timeout"
    kinds = [event["kind"] for event in agent.history(job_id)]
    assert kinds == ["task_submitted", "task_expired"]


def test_the_pause_before_a_retry_is_no_queue_time(agents: Agents) -> None:
    retry = {"baseMs": 4 * SHORT_MS, "jitterMs": 0}
    agent = agents.start(types={"browser_start": {"queueTimeoutMs": SHORT_MS, "retry": retry}})
    job = agent.finish(agent.enqueue("browser_start", BUSY, {}))
    assert (job["status"], job["retryCount"]) == ("succeeded", 1)


def test_running_is_no_queue_time(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"queueTimeoutMs": SHORT_MS}})
    job_id = agent.enqueue("browser_start", HELD)
    meanwhile = agent.enqueue("db_migration", {"hold": "ever"}, timeoutMs=2 * SHORT_MS)
    agent.finish(meanwhile)
    assert agent.job(job_id)["status"] == "running"
    agents.browser.release("it")
    assert agent.finish(job_id)["status"] == "succeeded"

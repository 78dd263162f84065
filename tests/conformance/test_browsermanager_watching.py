"""The BrowserManager job document, sections 8.2, 9 (logs) and 10: who watches, and the health."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.job_server import (
    BUSY,
    Agent,
    Agents,
    Watcher,
    later,
    moment,
    watching,
)

from rota import __version__
from rota.errors import LogUnusable

if TYPE_CHECKING:
    from rota.server import Server

HELD = {"hold": "it"}
NO: dict[str, Any] = {"status": 404, "json": {"code": "profile_not_found"}}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
PATH = [
    "task_submitted", "task_assigned", "task_started", "attempt_failed",
    "task_released", "task_assigned", "task_started", "attempt_failed",
    "task_released", "task_assigned", "task_started", "task_succeeded",
]  # fmt: skip
"""The way of a job that fails twice."""


# -- 8.2 Long-polling ----------------------------------------------------------------------------


def test_a_poll_is_answered_at_once(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    assert agent.job(job_id)["status"] == "running"
    agents.browser.release("it")
    assert agent.finish(job_id)["status"] == "succeeded"


@pytest.mark.parametrize("end", ["succeeded", "failed", "canceled"])
def test_a_long_poll_is_answered_when_the_job_has_ended(
    agents: Agents, agent: Agent, end: str
) -> None:
    job_id = agent.enqueue("browser_start", {**HELD, **(NO if end == "failed" else {})})
    with ThreadPoolExecutor(3) as beside:
        polls = [beside.submit(agent.get, f"/api/jobs/{job_id}?waitMs=20000") for _ in range(3)]
        until(
            lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held) == 3,
            what="all of them are waiting",
        )
        if end == "canceled":
            agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
        agents.browser.release("it")
        found = [agent.ok(poll.result()) for poll in polls]
    assert [job["status"] for job in found] == [end] * 3
    assert found[0] == agent.job(job_id)


def test_a_long_poll_lasts_through_retries(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", {**HELD, **BUSY}, BUSY, {})
    with ThreadPoolExecutor(1) as beside:
        poll = beside.submit(agent.get, f"/api/jobs/{job_id}?waitMs=20000")
        until(
            lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held),
            what="it is waiting",
        )
        agents.browser.release("it")
        job = agent.ok(poll.result())
    assert (job["status"], job["retryCount"]) == ("succeeded", 2)


def test_a_long_poll_gives_the_job_as_it_is_when_the_wait_is_over(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    job = agent.ok(agent.get(f"/api/jobs/{job_id}?waitMs=30"))
    assert job["status"] == "running"


def test_a_long_poll_for_a_job_that_has_ended_is_answered_at_once(agent: Agent) -> None:
    job = agent.finish(agent.enqueue("browser_start"))
    assert agent.ok(agent.get(f"/api/jobs/{job['jobId']}?waitMs=60000")) == job


def test_a_long_poll_does_not_hold_up_the_stop_of_the_agent(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    with ThreadPoolExecutor(1) as beside:
        poll = beside.submit(agent.get, f"/api/jobs/{job_id}?waitMs=60000")
        until(
            lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held),
            what="it is waiting",
        )
        agent.restart()
        assert agent.ok(poll.result())["jobId"] == job_id
    assert agent.job(job_id)["status"] in ("queued", "running")


# -- 8.2 WebSocket -------------------------------------------------------------------------------


def test_a_watcher_gets_the_job_and_then_every_transition_in_order(
    agents: Agents, agent: Agent
) -> None:
    agent.post("/v1/scheduler/pause", {})
    job_id = agent.enqueue("browser_start", BUSY, {"drop": True}, {})
    with watching(agent, job_id) as watcher:
        first = watcher.first()
        agent.post("/v1/scheduler/resume", {})
        messages = watcher.all()
    assert (first["type"], first["jobId"], first["status"]) == ("job.snapshot", job_id, "queued")
    assert first["data"]["status"] == "queued"
    assert {message["type"] for message in messages[1:]} == {"job.transition"}
    assert [message["event"] for message in messages[1:]] == PATH[1:]
    assert [message["status"] for message in messages] == [
        "queued", "running", "running", "queued", "queued", "running", "running", "queued",
        "queued", "running", "running", "succeeded",
    ]  # fmt: skip
    history = agent.history(job_id)
    assert [message["seq"] for message in messages] == [event["seq"] for event in history]
    assert [event["kind"] for event in history] == PATH
    retries = [message["data"]["retryCount"] for message in messages]
    assert retries == sorted(retries)
    assert retries[-1] == 2


def test_the_last_push_shows_the_job_as_a_poll_does(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as watcher:
        watcher.first()
        agents.browser.release("it")
        last = watcher.all()[-1]
    assert last["data"] == agent.job(job_id)
    assert last["data"]["result"] == {"debugPort": 9222}
    assert moment(last["timestamp"]) == moment(last["data"]["finishedAt"])


@pytest.mark.parametrize("end", ["succeeded", "failed", "canceled"])
def test_the_server_closes_after_the_end(agents: Agents, agent: Agent, end: str) -> None:
    job_id = agent.enqueue("browser_start", {**HELD, **(NO if end == "failed" else {})})
    with watching(agent, job_id) as watcher:
        watcher.first()
        if end == "canceled":
            agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
        agents.browser.release("it")
        assert watcher.all()[-1]["status"] == end
        assert watcher.close_code == 1000


def test_a_watcher_that_comes_after_the_end_gets_the_job_and_is_sent_off(agent: Agent) -> None:
    job = agent.finish(agent.enqueue("browser_start"))
    with watching(agent, job["jobId"]) as watcher:
        (only,) = watcher.all()
    assert (only["type"], only["data"]) == ("job.snapshot", job)
    assert watcher.close_code == 1000


def test_a_large_payload_is_not_pushed(agent: Agent) -> None:
    """Each of a thousand watchers would hold a copy of it."""
    body = {"jobType": "script_run", "payload": {"id": "env-1", "blob": "x" * 20_000}}
    job_id = agent.ok(agent.post("/api/jobs", body))["jobId"]
    job = agent.finish(job_id)
    with watching(agent, job_id) as watcher:
        (only,) = watcher.all()
    assert job.pop("payload") == body["payload"]
    assert only["data"] == job


def test_a_queue_timeout_is_pushed(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"executor": "pull", "queueTimeoutMs": 300}})
    job_id = agent.enqueue("browser_start")
    with watching(agent, job_id) as watcher:
        last = watcher.all()[-1]
    assert (last["status"], last["data"]["errorMessage"]) == ("failed", "Queue timeout")


def test_progress_is_pushed(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("script_run", HELD)
    agents.browser.wait_for(1)
    with watching(agent, job_id) as watcher:
        watcher.first()
        assert agent.post(f"/v1/tasks/{job_id}/progress", {"progress": 0.5}).status == 201
        until(lambda: watcher.messages[-1]["data"].get("progress") == 0.5, what="the progress")
        agents.browser.release("it")
        assert watcher.all()[-1]["status"] == "succeeded"
    assert agent.job(job_id)["progress"] == 0.5


def test_an_unknown_job_is_404(agent: Agent) -> None:
    for headers in (UPGRADE, {}):
        answer = agent.request("GET", "/ws/jobs/tsk_00000000", headers=headers)
        assert agent.refused(answer, 404)["code"] == -1404


def test_a_request_without_an_upgrade_is_told_so(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    problem = agent.refused(agent.get(f"/ws/jobs/{job_id}"), 426)
    assert "WebSocket" in problem["msg"]


def test_a_page_of_another_origin_may_not_watch(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    headers = {**UPGRADE, "Origin": "http://evil.example"}
    agent.refused(agent.request("GET", f"/ws/jobs/{job_id}", headers=headers), 403)


def test_a_watcher_that_leaves_hurts_nobody(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as stays:
        for _ in range(3):
            with watching(agent, job_id) as leaves:
                leaves.first()
        stays.first()
        until(
            lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held) == 1,
            what="they are forgotten",
        )
        agents.browser.release("it")
        assert stays.all()[-1]["status"] == "succeeded"
    assert agent.job(job_id)["status"] == "succeeded"
    until(
        lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held) == 0,
        what="all are forgotten",
    )


def test_a_connection_that_breaks_hurts_nobody(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    head = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items())
    with agent.connected() as sock:
        request = f"GET /ws/jobs/{job_id} HTTP/1.1\r\nHost: localhost:{agent.port}\r\n{head}\r\n"
        sock.sendall(request.encode())
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 101 ")
    agents.browser.release("it")
    assert agent.finish(job_id)["status"] == "succeeded"
    until(
        lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held) == 0,
        what="it is forgotten",
    )


@pytest.mark.parametrize("text", ["hello", '{"type":"cancel"}', ""])
def test_what_a_watcher_says_changes_nothing(agents: Agents, agent: Agent, text: str) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as watcher:
        watcher.first()
        watcher.say(text)
        agents.browser.release("it")
        assert watcher.all()[-1]["status"] == "succeeded"


def test_a_watcher_that_says_too_much_is_sent_off_and_the_job_goes_on(
    agents: Agents, agent: Agent
) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as watcher:
        watcher.first()
        watcher.say("x" * 100_000)
        watcher.all()
    agents.browser.release("it")
    assert agent.finish(job_id)["status"] == "succeeded"


def test_all_watchers_of_a_job_see_the_same_and_only_their_own(
    agents: Agents, agent: Agent
) -> None:
    job_id, other = (agent.enqueue("browser_start", {"hold": name}) for name in ("one", "two"))
    agents.browser.wait_for(2)
    until(lambda: agent.history(job_id)[-1]["kind"] == "task_started", what="it has started")
    with (
        watching(agent, job_id) as first,
        watching(agent, job_id) as second,
        watching(agent, other) as third,
    ):
        for watcher in (first, second, third):
            watcher.first()
        agents.browser.release("one")
        assert first.all() == second.all()
        assert len(first.all()) == 2
        assert {message["jobId"] for message in third.messages} == {other}
        assert not third.closed.is_set()
        agents.browser.release("two")
        third.all()


def test_watchers_have_a_bound(agent: Agent) -> None:
    watching_of = agent.inside(lambda server: server.app.namespaces.default.watches.watching)
    watching_of.most = 4
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as one, watching(agent, job_id) as two:
        one.first()
        two.first()
        agent.refused(agent.request("GET", f"/ws/jobs/{job_id}", headers=UPGRADE), 503)


def test_a_token_is_wanted_of_watchers_too(agents: Agents) -> None:
    agent = agents.start(server={"tokens": {"ops": "t" * 32}})
    agent.token = "t" * 32
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as watcher:
        watcher.first()
        agents.browser.release("it")
        watcher.all()
    agent.token = None
    answer = agent.request("GET", f"/ws/jobs/{job_id}", headers=UPGRADE)
    assert agent.refused(answer, 401)["code"] == -1401


def test_watchers_do_not_hold_up_the_stop_of_the_agent(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    with watching(agent, job_id) as watcher:
        watcher.first()
        agent.restart()
        watcher.all()
    with watching(agent, job_id) as watcher:
        watcher.first()
        agents.browser.release("it")
        assert watcher.all()[-1]["status"] == "succeeded"


def test_a_job_that_ends_while_the_watcher_connects_is_not_missed(
    agents: Agents, agent: Agent
) -> None:
    """The end is recorded but not durable yet when the watcher comes: it is pushed when it is."""
    job_id = agent.enqueue("browser_start", HELD)
    agents.browser.wait_for(1)
    with ThreadPoolExecutor(1) as beside, agent.commits_held():
        agents.browser.release("it")
        until(lambda: agent.state_inside(job_id) == "succeeded", what="it has ended")
        connecting = beside.submit(Watcher, agent, job_id)
        until(
            lambda: agent.inside(lambda s: s.app.namespaces.default.watches.watching.held),
            what="the watcher has come",
        )
    watcher = connecting.result()
    try:
        found = watcher.closed.wait(5)
    finally:
        watcher.leave()
    assert found, f"never told of the end: {watcher.messages}"
    assert watcher.messages[-1]["status"] == "succeeded"


# -- 9. /api/jobs/{jobId}/logs -------------------------------------------------------------------


def test_every_transition_has_a_line(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", BUSY, {"drop": True}, {})
    agent.finish(job_id)
    data = agent.ok(agent.get(f"/api/jobs/{job_id}/logs"))
    assert set(data) == {"jobId", "lines", "count"}
    assert data["jobId"] == job_id
    assert data["count"] == len(data["lines"]) == len(PATH)
    history = agent.history(job_id)
    stamps = [round(moment(line["at"]).timestamp() * 1e6) for line in data["lines"]]
    assert stamps == [event["at"] for event in history]
    words = ["submitted", "dispatched", "started", "retried", "ready", "dispatched", "started"]
    words += ["retried", "ready", "dispatched", "started", "succeeded"]
    for line, word in zip(data["lines"], words, strict=True):
        assert word in line["message"]
    assert [line.get("attempt") for line in data["lines"]] == [
        None, 1, 1, 1, None, 2, 2, 2, None, 3, 3, 3,
    ]  # fmt: skip


def test_a_failure_is_a_line_of_level_error(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", NO)
    agent.finish(job_id)
    last = agent.ok(agent.get(f"/api/jobs/{job_id}/logs"))["lines"][-1]
    assert last["level"] == "error"
    assert "profile_not_found" in last["message"]


def test_a_cancel_has_a_line(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", HELD)
    agent.ok(agent.post(f"/api/jobs/{job_id}/cancel"))
    assert "cancel" in agent.lines(job_id)[-1]


def test_a_worker_adds_lines_of_its_own(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("script_run", HELD)
    agents.browser.wait_for(1)
    until(lambda: agent.history(job_id)[-1]["kind"] == "task_started", what="it has started")
    added = agent.post(f"/v1/tasks/{job_id}/logs", {"lines": ["opening", "clicking ü"]})
    assert added.status == 201
    agent.post(f"/v1/tasks/{job_id}/logs", {"lines": ["careful"], "level": "warning"})
    agents.browser.release("it")
    agent.finish(job_id)
    lines = agent.ok(agent.get(f"/api/jobs/{job_id}/logs"))["lines"]
    own = [(line["level"], line["message"], line["attempt"]) for line in lines[3:6]]
    assert own == [
        ("info", "opening", 1),
        ("info", "clicking ü", 1),
        ("warning", "careful", 1),
    ]
    assert lines[-1]["message"] == "succeeded"


def test_lines_come_a_page_at_a_time(agents: Agents, agent: Agent) -> None:
    job_id = agent.enqueue("script_run", HELD)
    agents.browser.wait_for(1)
    until(lambda: agent.history(job_id)[-1]["kind"] == "task_started", what="it has started")
    agent.post(f"/v1/tasks/{job_id}/logs", {"lines": [f"line {n}" for n in range(7)]})
    everything = agent.lines(job_id)
    assert len(everything) == 10
    found, cursor = [], ""
    for size in (4, 4, 2):
        data = agent.ok(agent.get(f"/api/jobs/{job_id}/logs?limit=4{cursor}"))
        assert data["count"] == size
        found += [line["message"] for line in data["lines"]]
        cursor = f"&cursor={data.get('nextCursor')}"
        assert ("nextCursor" in data) == (size == 4)
    assert found == everything


def test_a_log_survives_a_restart(agent: Agent) -> None:
    job_id = agent.enqueue("browser_start", BUSY, {})
    agent.finish(job_id)
    before = agent.ok(agent.get(f"/api/jobs/{job_id}/logs"))
    agent.restart()
    assert agent.ok(agent.get(f"/api/jobs/{job_id}/logs")) == before


def test_a_job_that_has_left_memory_is_told_of_from_the_log(agent: Agent) -> None:
    job = agent.finish(agent.enqueue("browser_start", BUSY, {}))
    path = f"/api/jobs/{job['jobId']}"
    lines = agent.lines(job["jobId"])
    with later(hours=1):
        assert agent.listed() == [job["jobId"]], "the preset lists jobs for a day"
    with later(hours=25):
        assert agent.listed() == []
        assert agent.job(job["jobId"]) == job
        assert agent.ok(agent.get(f"{path}?waitMs=5000")) == job
        assert agent.lines(job["jobId"]) == lines
        agent.refused(agent.post(f"{path}/cancel"), 409)
        with watching(agent, job["jobId"]) as watcher:
            (only,) = watcher.all()
        assert only["data"] == job


# -- 10. Health Check ----------------------------------------------------------------------------


def test_the_health_has_exactly_the_fields_of_the_example(agents: Agents, agent: Agent) -> None:
    for job_type in ("browser_start", "script_run", "proxy_test"):
        agent.enqueue(job_type, HELD)
    agent.post("/v1/types/browser_stop/pause", {})
    for _ in range(2):
        agent.enqueue("browser_stop", HELD)
    before = datetime.now(UTC)
    answer = agent.get("/health")
    assert answer.status == 200
    found = answer.json
    assert list(found) == [
        "status", "agent_version", "uptime_seconds", "queue", "browsers", "callbacks", "db", "timestamp",
    ]  # fmt: skip
    assert (found["status"], found["db"]) == ("ok", "ok")
    assert found["agent_version"] == __version__
    assert type(found["uptime_seconds"]) is int
    assert found["queue"] == {"queued": 2, "running": 3, "max_concurrent": 20}
    assert found["browsers"] == {"active": 0, "max": 20}
    stamp = datetime.strptime(found["timestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert before - timedelta(seconds=1) <= stamp <= datetime.now(UTC)


def test_the_uptime_is_counted_in_whole_seconds(agents: Agents) -> None:
    agent = agents.start()
    uptime = until(lambda: agent.get("/health").json["uptime_seconds"], what="a second has passed")
    assert uptime == 1


def test_the_health_is_public(agents: Agents) -> None:
    agent = agents.start(server={"tokens": {"ops": "t" * 32}})
    assert agent.get("/health").json["status"] == "ok"
    assert agent.get("/health", Authorization="Bearer wrong").status == 200
    agent.refused(agent.get("/api/jobs"), 401)


def test_a_job_that_waits_for_its_retry_is_queued_in_the_health(agents: Agents) -> None:
    agent = agents.start(types={"browser_start": {"retry": {"baseMs": 60_000}}})
    agent.failures(agent.enqueue("browser_start", BUSY))
    assert agent.get("/health").json["queue"] == {"queued": 1, "running": 0, "max_concurrent": 20}


def test_a_log_that_takes_no_writes_makes_the_agent_degraded(agents: Agents) -> None:
    agent = agents.start(types={"*": {"executor": "pull"}})
    kept = agent.enqueue("browser_start")

    def full(*_: Any) -> None:
        raise LogUnusable("No space left on device")

    def fill(server: Server) -> None:
        server.shard.log.append = server.shard.log.reopen = full

    def make_room(server: Server) -> None:
        del server.shard.log.append, server.shard.log.reopen

    agent.inside(fill)
    problem = agent.post("/api/jobs", {"jobType": "proxy_test"})
    assert agent.refused(problem, 503)["code"] == -1503
    found = until(  # its figures are there again once its state is rebuilt
        lambda: "callbacks" in (h := agent.get("/health").json) and h["status"] == "degraded" and h,
        what="degraded",
    )
    assert list(found)[:2] == ["status", "reason"]
    assert "No space left" in found["reason"]
    assert set(found) == {
        "status", "reason", "agent_version", "uptime_seconds", "queue", "browsers", "callbacks", "db",
        "timestamp",
    }  # fmt: skip
    assert found["db"] != "ok"
    assert agent.job(kept)["status"] == "queued"
    agent.inside(make_room)
    until(
        lambda: agent.post("/api/jobs", {"jobType": "proxy_test"}).status == 200,
        what="writing goes on by itself",
    )
    assert agent.get("/health").json["status"] == "ok"

"""The wall clock is set while a server runs, and between two runs of it.

What is counted from something that happened goes on as if nothing had been; what a client named
as a moment follows the clock; and everybody is told.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.clocks import SetClock, passing
from support.http_server import Rota, Servers, ended, look, until
from support.job_server import watching

from rota.clock import parse_rfc3339, rfc3339
from rota.domain import events as e
from rota.domain.commands import Limits
from rota.domain.plan import Plan
from rota.eventlog import chain, codec
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import Stored
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3600.0
SLACK_S = 1.0
ONCE_MORE = {"kind": "fixed", "baseMs": 1000, "maxAttempts": 2}


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def rota(serve: Servers, tmp_path: Path, clock: SetClock) -> Rota:
    return serve.adopt(Rota(tmp_path / "stepped", {"scheduler": {"resultTTLSec": 2}}, clock))


BEYOND_US = 4_000_000_000_000_000


def moment(clock: SetClock, seconds: float) -> str:
    """So long from now, by the server's wall clock."""
    ahead = timedelta(seconds=clock.ahead_s + seconds)
    return (datetime.now(UTC) + ahead).isoformat()


def steps(rota: Rota) -> list[dict[str, Any]]:
    return rota.events(kind="clock_stepped")


def set_clock(rota: Rota, clock: SetClock, ahead_s: float) -> None:
    """Set the clock, and wait until the server has noticed by itself: it takes a second at most."""
    known = len(steps(rota))
    clock.ahead_s = ahead_s
    until(lambda: len(steps(rota)) > known, within_s=1.0 + SLACK_S, what="the step is noticed")


def check_in_time(rota: Rota) -> None:
    """A delay, a backoff, a timeout and a queue timeout take as long as they say."""
    began = time.monotonic()
    delayed = rota.submit_native(delayMs=1000)
    failed = rota.submit_native(action="fail", retry=ONCE_MORE)
    slow = rota.submit_native(action="sleep", params={"ms": 60_000}, timeoutMs=1000)
    waits = rota.submit_native(action="waits", queueTimeoutMs=1000)
    dated = rota.submit_native(deadline=moment(rota.clock, 60))  # type: ignore[arg-type]
    assert ended(rota, dated)["state"] == "succeeded"
    assert ended(rota, delayed)["state"] == "succeeded"
    assert ended(rota, failed)["attempt"] == 2
    assert ended(rota, slow)["error"]["code"] == "timeout"
    assert ended(rota, waits)["error"]["code"] == "queue_timeout_exceeded"
    assert 0.9 <= time.monotonic() - began < 1.0 + 2 * SLACK_S


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_wrong_for_a_moment_poisons_nothing(
    rota: Rota, clock: SetClock, ahead_s: float
) -> None:
    set_clock(rota, clock, ahead_s)
    check_in_time(rota)
    set_clock(rota, clock, 0.0)
    check_in_time(rota)
    clock.ahead_s = 0.0
    rota.restart()
    check_in_time(rota)
    assert rota.digests()[0] == rota.digests()[1]


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_what_runs_when_the_clock_is_set_takes_as_long_as_it_says(
    rota: Rota, clock: SetClock, ahead_s: float
) -> None:
    began = time.monotonic()
    patient = {**ONCE_MORE, "baseMs": 3000}
    waiting = [
        rota.submit_native(delayMs=3000),
        rota.submit_native(action="fail", retry=patient),
        rota.submit_native(action="sleep", params={"ms": 60_000}, timeoutMs=3000),
        rota.submit_native(action="waits", queueTimeoutMs=3000),
        rota.submit_native(dependsOn=["parent"], delayMs=3000),
    ]
    rota.submit_native(taskId="parent")
    set_clock(rota, clock, ahead_s)
    assert [look(rota, task_id)["state"] for task_id in waiting] == [
        "scheduled",
        "scheduled",
        "running",
        "ready",
        "scheduled",
    ]
    for task_id in waiting:
        ended(rota, task_id)
    assert 2.9 <= time.monotonic() - began < 3.0 + 2 * SLACK_S
    assert look(rota, waiting[2])["error"]["code"] == "timeout"
    assert 2500 <= look(rota, waiting[2])["latencyMs"] <= 5000
    assert rota.digests()[0] == rota.digests()[1]


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_retention_goes_on(rota: Rota, clock: SetClock, ahead_s: float) -> None:
    done = rota.submit_native()
    ended(rota, done)
    set_clock(rota, clock, ahead_s)
    assert [task["taskId"] for task in rota.get("/v1/tasks").json["tasks"]] == [done]
    until(lambda: not rota.get("/v1/tasks").json["tasks"], within_s=2.0 + SLACK_S)
    after = rota.submit_native()
    ended(rota, after)
    rota.inside(lambda server: server.shard.state.tasks.by_id[after])
    assert rota.inside(lambda server: server.shard.state.tasks.get(done)) is None


def test_a_moment_that_a_client_named_follows_the_clock(rota: Rota, clock: SetClock) -> None:
    soon, later = moment(clock, 1800), moment(clock, 7200)
    expires = rota.submit_native(action="waits", deadline=soon)
    stays = rota.submit_native(action="waits", deadline=later)
    starts = rota.submit_native(notBefore=soon)
    waits = rota.submit_native(notBefore=later)
    set_clock(rota, clock, HOUR_S)
    assert ended(rota, expires)["error"]["code"] == "deadline_exceeded"
    assert ended(rota, starts)["state"] == "succeeded"
    assert [look(rota, each)["state"] for each in (stays, waits)] == ["ready", "scheduled"]
    assert look(rota, waits)["notBefore"] == rfc3339(parse_rfc3339(later))
    assert rota.post(f"/v1/tasks/{expires}/retry").json["code"] == "deadline_passed"
    set_clock(rota, clock, 0.0)
    assert rota.post(f"/v1/tasks/{expires}/retry").json["code"] == "deadline_passed"


def test_a_deadline_ahead_of_the_clock_is_taken_before_the_step_is_noticed(
    rota: Rota, clock: SetClock
) -> None:
    set_clock(rota, clock, HOUR_S)
    clock.ahead_s = 0.0
    body = {"agentId": "ann", "action": "waits", "deadline": moment(clock, 60)}
    assert rota.post("/v1/tasks", body).status == 202
    set_clock(rota, clock, HOUR_S)
    clock.ahead_s = 0.0
    assert rota.post("/v1/tasks", {**body, "notBefore": moment(clock, 60)}).json["state"] == (
        "scheduled"
    )


def test_a_step_is_told_in_the_log_the_history_and_the_health(rota: Rota, clock: SetClock) -> None:
    assert "clock_steps" not in rota.get("/health").json
    set_clock(rota, clock, HOUR_S)
    set_clock(rota, clock, 0.0)
    forward, back = steps(rota)
    assert abs(forward["data"]["now"] - forward["data"]["was"] - 3_600_000_000) < 1_000_000
    assert forward["at"] == forward["data"]["now"] > back["at"] == back["data"]["now"]
    health = rota.get("/health").json
    assert health["status"] == "ok"
    assert health["uptime_seconds"] < 60
    first, second = health["clock_steps"]
    assert (first["seq"], second["seq"]) == (forward["seq"], back["seq"])
    assert first["now"] == rfc3339(forward["at"])
    assert abs(first["seconds"] - 3600) < 1
    assert abs(second["seconds"] + 3600) < 1
    told = [line for line in rota.log.lines if "the clock was set" in line]
    assert [line.split(" ", 1)[0] for line in told] == ["WARNING", "WARNING"]
    rota.restart()
    assert len(rota.get("/health").json["clock_steps"]) == 2


def test_a_step_of_less_than_half_a_second_is_none(rota: Rota, clock: SetClock) -> None:
    for ahead_s in (0.4, -0.4, 0.0):
        clock.ahead_s = ahead_s
        rota.submit_native()
    ats = [event["at"] for event in rota.events()]
    assert steps(rota) == []
    assert ats == sorted(ats)


def test_a_clock_that_is_behind_the_last_record_at_a_start_is_a_step(
    rota: Rota, clock: SetClock
) -> None:
    set_clock(rota, clock, HOUR_S)
    delayed = rota.submit_native(delayMs=2000)
    backs_off = rota.submit_native(action="fail", retry={**ONCE_MORE, "baseMs": 2000})
    until(lambda: look(rota, backs_off)["state"] == "scheduled")
    rota.stop()
    clock.ahead_s = 0.0
    rota.start()
    began = time.monotonic()
    (_, back) = steps(rota)
    kinds = [event["kind"] for event in rota.events(after=back["seq"] - 1, limit=2)]
    assert kinds == ["clock_stepped", "server_started"]
    assert ended(rota, delayed)["state"] == "succeeded"
    assert ended(rota, backs_off)["attempt"] == 2
    assert time.monotonic() - began < 2.0 + SLACK_S
    check_in_time(rota)


def test_a_log_that_an_earlier_rota_wrote_under_a_wrong_clock_holds_nobody_up(
    serve: Servers, tmp_path: Path
) -> None:
    """It knew no steps: an hour ahead once, its records stayed there."""
    now = SetClock().now_us()
    told = (
        (now, e.ServerStarted("0.1.0", limits_to(Limits()))),
        (
            now,
            e.TaskSubmitted(
                "tsk_a", "ann", "echo", "builtin", 1, plan=Plan(not_before=now + 2_000_000)
            ),
        ),
        (
            now + 3_600_000_000,
            e.TaskSubmitted("tsk_b", "ann", "fail", "builtin", 2, plan=Plan(retry={})),
        ),
        (now + 3_600_000_000, e.TaskAssigned("tsk_b", "ann", 1)),
        (
            now + 3_600_000_000,
            e.AttemptFailed("tsk_b", "ann", 1, "boom", "boom", now + 3_602_000_000),
        ),
    )
    digest, stored = chain.GENESIS, []
    for seq, (at, event) in enumerate(told, 1):
        body = codec.encode(e.Record(seq, at, event))
        digest = chain.extend(digest, body)
        stored.append(Stored(seq, digest, body, codec.subject_of(event)))
    log = LmdbLog(tmp_path / "old" / "data", map_bytes=1 << 28)
    log.append(stored, 0, log.claim())
    log.close()
    rota = serve.adopt(Rota(tmp_path / "old", None, SetClock()))
    began = time.monotonic()
    assert ended(rota, "tsk_a")["state"] == "succeeded"
    assert ended(rota, "tsk_b")["attempt"] >= 1
    assert time.monotonic() - began < 2.0 + SLACK_S
    check_in_time(rota)


@pytest.mark.parametrize("steps", [(-3600.0,), (3600.0,), (-3600.0, 1800.0), (3600.0, -1800.0)])
def test_the_moment_that_a_submission_is_dated_shows_the_task(
    rota: Rota, clock: SetClock, steps: tuple[float, ...]
) -> None:
    tasks = [rota.submit_native()]
    for ahead_s in steps:
        set_clock(rota, clock, ahead_s)
        tasks.append(rota.submit_native())
    for task in tasks:
        at = rfc3339(rota.events(task=task)[0]["at"])
        assert rota.get(f"/v1/tasks/{task}?at={at}").json.get("taskId") == task
    beyond = rota.get(f"/v1/tasks/{tasks[0]}?at={rfc3339(BEYOND_US)}")
    assert (beyond.status, beyond.code) == (400, "seq_beyond_head")


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_job_is_pushed_as_a_poll_shows_it(rota: Rota, clock: SetClock, ahead_s: float) -> None:
    job = rota.submit_native("ann", "sleep", params={"ms": 60_000})
    rota.when(job, "running")
    with watching(rota, job) as early:
        early.first()
        set_clock(rota, clock, ahead_s)
        with watching(rota, job) as late:
            assert late.first()["data"] == rota.get(f"/api/jobs/{job}").json["data"]
            assert rota.post(f"/v1/tasks/{job}/cancel").status == 200
            pushed = [early.all()[-1]["data"], late.all()[-1]["data"]]
    assert pushed == [rota.get(f"/api/jobs/{job}").json["data"]] * 2


def test_a_start_with_a_clock_that_is_ahead_forgets_nothing(
    serve: Servers, tmp_path: Path, clock: SetClock
) -> None:
    rota = serve.adopt(Rota(tmp_path / "ahead", {"scheduler": {"resultTTLSec": 3600}}, clock))
    keyed = {"agentId": "ann", "action": "echo", "idempotencyKey": "once"}
    first = rota.post("/v1/tasks", keyed).json["taskId"]
    created_at = ended(rota, first)["createdAt"]
    rota.stop()
    clock.ahead_s = 25 * HOUR_S
    rota.start()
    assert rota.post("/v1/tasks", keyed).json["taskId"] == first
    assert first in [task["taskId"] for task in rota.get("/v1/tasks").json["tasks"]]
    early = rota.submit_native(action="waits", delayMs=3_600_000)
    assert rota.inside(lambda server: first in server.shard.state.tasks.by_id)
    set_clock(rota, clock, 0.0)
    assert rota.post("/v1/tasks", keyed).json["taskId"] == first
    assert look(rota, first)["createdAt"] == created_at
    assert rota.inside(lambda server: first in server.shard.state.tasks.by_id)
    now = clock.now_us()
    assert abs(parse_rfc3339(look(rota, early)["createdAt"]) - now) < 60_000_000
    assert abs(parse_rfc3339(look(rota, early)["notBefore"]) - now) < 3_660_000_000
    rota.restart()
    assert rota.digests()[0] == rota.digests()[1]
    assert rota.post("/v1/tasks", keyed).json["taskId"] == first


@pytest.mark.parametrize("way", ["started twice", "stopped and set right", "set further ahead"])
def test_a_clock_that_is_ahead_for_longer_than_a_start_forgets_nothing(
    serve: Servers, tmp_path: Path, clock: SetClock, way: str
) -> None:
    rota = serve.adopt(Rota(tmp_path / "ahead", {"scheduler": {"resultTTLSec": 3600}}, clock))
    keyed = {"agentId": "ann", "action": "echo", "idempotencyKey": "once"}
    first = rota.post("/v1/tasks", keyed).json["taskId"]
    created_at = ended(rota, first)["createdAt"]
    rota.stop()
    clock.ahead_s = 25 * HOUR_S
    with passing() as time_passed:
        rota.start()
        early = rota.submit_native(action="waits", delayMs=3_600_000)
        if way == "set further ahead":
            set_clock(rota, clock, 27 * HOUR_S)
        else:
            rota.stop()
            clock.ahead_s = 0.0 if way == "stopped and set right" else clock.ahead_s
            rota.start()
        if clock.ahead_s:
            set_clock(rota, clock, 0.0)
        assert look(rota, first)["createdAt"] == created_at
        now = clock.now_us()
        assert abs(parse_rfc3339(look(rota, early)["createdAt"]) - now) < 60_000_000
        time_passed.tick(660)
        rota.submit_native()
        assert rota.post("/v1/tasks", keyed).json["taskId"] == first
        assert look(rota, first)["createdAt"] == created_at
        assert rota.inside(lambda server: first in server.shard.state.tasks.by_id)
    assert rota.digests()[0] == rota.digests()[1]


def test_a_start_after_a_day_forgets_when_the_clock_has_been_believed(
    serve: Servers, tmp_path: Path, clock: SetClock
) -> None:
    rota = serve.adopt(Rota(tmp_path / "away", {"scheduler": {"resultTTLSec": 3600}}, clock))
    done = rota.submit_native()
    ended(rota, done)
    rota.stop()
    clock.ahead_s = 25 * HOUR_S
    with passing() as time_passed:
        rota.start()
        assert rota.inside(lambda server: done in server.shard.state.tasks.by_id)
        time_passed.tick(601)
        rota.submit_native()
        assert rota.inside(lambda server: server.shard.state.tasks.get(done)) is None

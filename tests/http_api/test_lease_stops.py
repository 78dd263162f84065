"""What a worker is to stop working on reaches it at once: in a heartbeat that waits, or a request for tasks."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.leasing import WAIT_MS, Waiting, say, take, take_one
from support.tokens import Guarded

if TYPE_CHECKING:
    from support.http_server import Answer, Client, Rota, Servers

FOREVER_MS = 60_000


def beating(rota: Rota) -> int:
    """How many requests wait for something to stop."""
    return rota.inside(lambda server: sum(map(len, server.shard.cast.workers.told.values())))


class Beat:
    """A heartbeat that waits, in a thread of its own."""

    def __init__(self, rota: Rota, lease: dict[str, Any], by: Client | None = None) -> None:
        """Begin to wait; come back when the server knows of it."""
        self.answer: Answer | None = None
        before = beating(rota)

        def ask() -> None:
            self.answer = say(by or rota, lease, "heartbeat", waitMs=FOREVER_MS)

        self._thread = threading.Thread(target=ask)
        self._thread.start()
        until(lambda: beating(rota) > before, what="the heartbeat waits")

    def heard(self) -> dict[str, Any]:
        """Give what it was answered."""
        self._thread.join(30)
        assert self.answer is not None
        assert self.answer.status == 200, self.answer
        answer: dict[str, Any] = self.answer.json
        return answer


def leased(rota: Rota, worker: str = "ada", **wants: Any) -> dict[str, Any]:
    rota.submit_native("ann", "fit")
    return take_one(rota, worker, **wants)


def cancel(rota: Rota, lease: dict[str, Any]) -> None:
    assert rota.post(f"/v1/tasks/{lease['taskId']}/cancel").status == 200


def test_a_heartbeat_that_waits_is_answered_by_the_cancel_of_its_task(rota: Rota) -> None:
    lease = leased(rota)
    beat = Beat(rota, lease)
    cancel(rota, lease)
    assert beat.heard() == {
        "leaseId": lease["leaseId"],
        "taskId": lease["taskId"],
        "state": "cancelled",
        "cancelRequested": True,
    }
    assert beating(rota) == 0


def test_one_heartbeat_hears_of_all_leases_of_its_worker(rota: Rota) -> None:
    first, second, others = leased(rota), leased(rota), leased(rota, "ben")
    beat = Beat(rota, first)
    third = leased(rota)  # taken while the heartbeat waits
    cancel(rota, others)
    assert say(rota, second, "complete").status == 200  # what the worker says itself is no news
    assert beat.answer is None
    cancel(rota, third)
    heard = beat.heard()
    assert heard["stop"] == [{"leaseId": third["leaseId"], "state": "cancelled"}]
    assert (heard["cancelRequested"], heard["state"]) == (False, "running")
    assert heard["expiresAt"] > first["expiresAt"]


def test_what_happened_between_two_heartbeats_is_told_at_once(rota: Rota) -> None:
    first, second, others = leased(rota), leased(rota), leased(rota, "ben")
    cancel(rota, second)
    never = "lse_1_nothing"
    holds = [second["leaseId"], others["leaseId"], never, "nonsense"]
    heard = say(rota, first, "heartbeat", waitMs=FOREVER_MS, holds=holds).json
    assert heard["stop"] == [
        {"leaseId": second["leaseId"], "state": "cancelled"},
        {"leaseId": others["leaseId"], "state": "assigned"},  # another worker's
        {"leaseId": never},
    ]
    assert "stop" not in say(rota, first, "heartbeat", holds=[first["leaseId"]]).json


def test_a_force_stop_is_told_with_the_time_until_which_it_waits(serve: Servers) -> None:
    rota = serve({"projects": {"killWaitMs": 1}})
    rota.post("/projects/p/tasks", {"action": "fit", "agentId": "ann"})
    own = leased(rota, "ada", agents=["ann"])
    rota.post("/projects/p/run", {"mode": "loop"})
    [lease] = take(rota, "ada", waitMs=WAIT_MS)
    beat = Beat(rota, own)
    rota.post("/projects/p/queue/force-stop")
    [stop] = beat.heard()["stop"]
    assert stop == {
        "leaseId": lease["leaseId"], "state": "assigned", "expiresAt": lease["expiresAt"]
    }  # fmt: skip
    assert say(rota, lease, "release").json["state"] == "failed"


def run_of(rota: Rota, worker: str = "ada") -> tuple[str, dict[str, Any]]:
    """Have a worker hold the task of a project's run."""
    rota.post("/v1/projects/p/tasks", {"action": "fit", "agentId": "ann"})
    run = rota.post("/v1/projects/p/run", {"mode": "loop"}).json["runId"]
    [lease] = take(rota, worker, waitMs=WAIT_MS)
    return run, lease


def test_what_is_given_back_after_a_stop_is_on_its_list_and_not_lent_again(rota: Rota) -> None:
    run, lease = run_of(rota)
    rota.post("/v1/projects/p/queue/stop")
    waiting = Waiting(rota)
    assert say(rota, lease, "release").json["state"] == "blocked"
    assert rota.get(f"/v1/projects/p/runs/{run}?waitMs=20000").json["stopReason"] == "stopped"
    other = rota.submit_native("ann", "fit")
    assert [each["taskId"] for each in waiting.given()] == [other]


def test_an_attempt_that_is_cut_off_ends_under_its_number(serve: Servers) -> None:
    rota = serve({"projects": {"killWaitMs": 1}})
    _, lease = run_of(rota)
    rota.post("/v1/projects/p/queue/force-stop")
    say(rota, lease, "release")
    [failed] = rota.events(kind="task_failed")
    assert failed["data"]["attempt"] == 1


@pytest.mark.parametrize("path", ["fail", "settle"])
@pytest.mark.parametrize(("how", "state"), [("force-stop", "failed"), ("stop", "blocked")])
def test_a_failure_of_what_is_stopped_promises_no_attempt(
    serve: Servers, how: str, state: str, path: str
) -> None:
    rota = serve({"projects": {"killWaitMs": 1}})
    _, lease = run_of(rota)
    rota.post(f"/v1/projects/p/queue/{how}")
    said = {"error": "no glue", "retryable": True}
    if path == "fail":
        answer = say(rota, lease, "fail", **said).json
    else:
        outcome = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "fail", **said}
        body = {"workerId": "ada", "outcomes": [outcome]}
        [answer] = rota.post("/v1/leases/settle", body).json["outcomes"]
    assert answer["state"] == state
    assert "nextAttemptAt" not in answer
    if state == "failed":
        assert not any("tried again" in line for line in rota.log.lines)


def test_what_a_run_that_took_too_long_cuts_off_says_so(serve: Servers) -> None:
    rota = serve({"projects": {"runTimeoutMs": 1000}})
    run, lease = run_of(rota)
    until(lambda: rota.get("/v1/projects/p/queue/status").json["stopReason"] == "run_timeout")
    say(rota, lease, "release")
    rota.get(f"/v1/projects/p/runs/{run}?waitMs=20000")
    why = "the run made no progress for 1000 ms"
    assert rota.get("/v1/projects/p/queue/status").json["lastError"] == why
    assert rota.get(f"/v1/tasks/{lease['taskId']}").json["error"]["message"] == why


def test_a_lease_that_has_expired_is_told(rota: Rota) -> None:
    kept = leased(rota)
    lost = leased(rota, leaseMs=1000)
    [stop] = Beat(rota, kept).heard()["stop"]
    assert stop == {"leaseId": lost["leaseId"], "state": "ready"}


@pytest.mark.parametrize(("retry", "state"), [(None, "failed"), ({"maxAttempts": 2}, "scheduled")])
def test_a_timeout_is_told_with_its_code(rota: Rota, retry: Any, state: str) -> None:
    beat = Beat(rota, leased(rota))
    rota.submit_native("ann", "fit", timeoutMs=1000, retry=retry)
    [late] = take(rota, "ada", start=True)
    [stop] = beat.heard()["stop"]
    assert (stop["leaseId"], stop["state"], stop["code"]) == (late["leaseId"], state, "timeout")
    assert stop["error"]
    rota.submit_native("ann", "fit", timeoutMs=3000, retry=retry)
    [late] = take(rota, "ben", start=True)
    heard = Beat(rota, late).heard()
    assert (heard["cancelRequested"], heard["code"]) == (True, "timeout")


def test_a_request_for_tasks_is_answered_when_there_is_something_to_stop(rota: Rota) -> None:
    lease = leased(rota)
    waiting = Waiting(rota)
    cancel(rota, lease)
    assert waiting.given() == []
    assert waiting.answer is not None
    assert waiting.answer.json["stop"] == [{"leaseId": lease["leaseId"], "state": "cancelled"}]


def test_a_lease_is_extended_before_its_heartbeat_waits(rota: Rota) -> None:
    lease = leased(rota, leaseMs=3000)
    beat = Beat(rota, lease)
    [row] = rota.get("/v1/workers").json["workers"]
    assert row["leases"][0]["expiresAt"] > lease["expiresAt"]
    assert rota.task(lease["taskId"])["state"] == "running"
    until(lambda: rota.get(f"/v1/tasks/{lease['taskId']}").json["state"] == "ready")
    assert beat.heard()["cancelRequested"]  # to wait is not to be heard of


def test_a_heartbeat_ends_with_its_time(rota: Rota) -> None:
    lease = leased(rota)
    heard = say(rota, lease, "heartbeat", waitMs=20).json
    assert (heard["state"], heard["cancelRequested"]) == ("running", False)
    for wait_ms in (-1, 60_001, "1"):
        assert say(rota, lease, "heartbeat", waitMs=wait_ms).status == 400


def test_a_caller_has_a_share_of_the_heartbeats_that_wait(rota: Rota) -> None:
    def few(server: Any) -> None:
        server._http.server.places.waiting.most = 2

    rota.inside(few)
    own, other = leased(rota), leased(rota, "ben")
    waiting = Beat(rota, own)
    answer = say(rota, own, "heartbeat", waitMs=FOREVER_MS)  # answered at once, and extended
    assert (answer.status, answer.json["cancelRequested"]) == (200, False)
    second = Beat(rota, other)
    for lease in (own, other):
        cancel(rota, lease)
    assert waiting.heard()["cancelRequested"]
    assert second.heard()["cancelRequested"]


def test_a_worker_of_another_token_hears_of_nothing_it_may_not_see(serve: Servers) -> None:
    guarded = Guarded(serve)
    rota = guarded.rota
    for name in ("ann", "bob"):
        guarded.make(name, "work", name)
        rota.submit_native(name, "fit")
    mine, theirs = (take_one(guarded.client(name), "ada") for name in ("ann", "bob"))
    beat = Beat(rota, mine, guarded.client("ann"))
    cancel(rota, theirs)
    assert beat.answer is None
    holds = [theirs["leaseId"]]
    heard = say(guarded.client("ann"), mine, "heartbeat", holds=holds).json
    assert heard["stop"] == [{"leaseId": theirs["leaseId"]}]  # as of what never was
    cancel(rota, mine)
    assert beat.heard() == {
        "leaseId": mine["leaseId"],
        "taskId": mine["taskId"],
        "state": "cancelled",
        "cancelRequested": True,
    }


def test_a_token_that_is_revoked_waits_no_longer(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("ann", "work", "ann")
    guarded.rota.submit_native("ann", "fit")
    lease = take_one(guarded.client("ann"))
    beat = Beat(guarded.rota, lease, guarded.client("ann"))
    guarded.revoke("ann")
    with pytest.raises(AssertionError, match="401"):
        beat.heard()


def test_a_worker_that_leaves_is_waited_for_no_longer(rota: Rota) -> None:
    lease = leased(rota)
    for how in (socket.SHUT_WR, socket.SHUT_RDWR):
        with rota.connected() as sock:
            path = f"/v1/leases/{lease['leaseId']}/heartbeat"
            body = f'{{"token": {lease["token"]}, "waitMs": {FOREVER_MS}}}'
            head = "Host: localhost\r\nContent-Type: application/json\r\n"
            length = f"Content-Length: {len(body)}\r\n\r\n"
            sock.sendall(f"POST {path} HTTP/1.1\r\n{head}{length}{body}".encode())
            until(lambda: beating(rota) == 1)
            sock.shutdown(how)
            until(lambda: beating(rota) == 0)


def test_a_server_that_stops_answers_heartbeats_that_wait(rota: Rota) -> None:
    beat = Beat(rota, leased(rota))
    rota.restart()
    assert beat.heard()["cancelRequested"] is False

"""What was taken back is shown to nobody: a commit fails while a request waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support.http_server import Rota, Servers, until

from rota.domain import events as e
from rota.errors import LogUnusable
from rota.projections.state import State

if TYPE_CHECKING:
    from rota.server import Server

CONFIG = {"types": {"scan": {"executor": "pull"}}}


class Disk:
    """Holds a commit up, then fails it, and everything after it until it is mended."""

    def __init__(self, rota: Rota) -> None:
        self.rota = rota
        self._fail = threading.Event()
        rota.inside(self._break)

    def _break(self, server: Server) -> None:
        def append(*_: Any) -> None:
            self._fail.wait(30)
            raise LogUnusable("No space left on device")

        def reopen() -> None:
            raise LogUnusable("No space left on device")

        server.shard.log.append, server.shard.log.reopen = append, reopen

    def fail(self) -> None:
        """Let the commit fail."""
        self._fail.set()

    def mend(self) -> None:
        """Accept writes again."""

        def whole(server: Server) -> None:
            del server.shard.log.append, server.shard.log.reopen

        self.rota.inside(whole)


def in_thread(call: Any, *args: Any) -> tuple[threading.Thread, list[Any]]:
    """Send a request that waits."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call(*args)))
    thread.start()
    return thread, answers


def waiting(rota: Rota) -> int:
    return rota.inside(lambda server: len(server.shard.journal._effects))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/tasks", [{"state": "ready"}]),
        ("/v1/tasks?state=cancelled", []),
        ("/v1/tasks?state=ready", [{"state": "ready"}]),
        ("/api/jobs", [{"status": "queued"}]),
        ("/tasks", [{"state": "queued"}]),
    ],
)
def test_a_list_shows_no_cancel_that_was_taken_back(serve: Servers, path: str, shown: Any) -> None:
    rota = serve(CONFIG)
    job = rota.post("/api/jobs", {"jobType": "scan"}).json["data"]["jobId"]
    disk = Disk(rota)
    cancel, cancelled = in_thread(rota.post, f"/v1/tasks/{job}/cancel")
    until(lambda: waiting(rota) >= 2, what="the cancel and its effect wait for their commit")
    look, looked = in_thread(rota.get, path)
    until(lambda: waiting(rota) >= 3, what="the list waits for it too")
    disk.fail()
    cancel.join(30)
    look.join(30)
    assert cancelled[0].status == 503
    body = looked[0].json
    rows = body["data"]["jobs"] if path == "/api/jobs" else body["tasks"]
    assert [row.get("state") or row["status"] for row in rows] == [
        row.get("state") or row["status"] for row in shown
    ]
    disk.mend()
    until(lambda: rota.get("/health").json["status"] == "ok")


class Doing(NamedTuple):
    """What is under way, what is asked meanwhile, and what the answer is once it is taken back."""

    path: str
    body: Any
    asked: tuple[str, str, Any]
    status: int
    shown: str = ""


HELD = {"workerId": "w", "token": 1}
SCHEDULE = {"name": "nightly", "cron": "0 3 * * *", "task": {"agentId": "ann", "action": "scan"}}


@pytest.mark.parametrize(
    "doing",
    [
        Doing("DELETE /v1/schedules/nightly", None, ("GET", "/v1/schedules/nightly", None), 200),
        *(
            Doing(
                "DELETE /v1/schedules/nightly", None, (method, f"/v1/schedules/nightly{at}", b), 503
            )
            for method, at, b in [
                ("PATCH", "", {"jitterMs": 1}),
                ("DELETE", "", None),
                *(("POST", at, None) for at in ("/pause", "/resume", "/run")),
            ]
        ),
        Doing("POST /v1/leases", {"workerId": "w"}, ("GET", "/v1/workers", None), 200, '"count":0'),
        Doing("DELETE /v1/projects/p", None, ("GET", "/v1/projects/p", None), 200),
        Doing("POST /v1/tasks/LIVE/cancel", None, ("POST", "/v1/tasks/LIVE/cancel", None), 503),
        Doing(
            "POST /v1/tasks/LIVE/cancel",
            None,
            ("POST", "/v1/tasks/LIVE/logs", {"lines": ["hi"], "token": 1}),
            409,
            '"state":"ready"',
        ),
        Doing(
            "POST /v1/tasks/LIVE/cancel",
            None,
            ("POST", "/v1/leases/lse_7_LIVE/heartbeat", HELD),
            409,
            '"state":"ready"',
        ),
        Doing("POST /v1/tasks/DEAD/retry", None, ("GET", "/v1/dead", None), 200, '"count":1'),
        Doing(
            "POST /v1/tasks/DEAD/retry",
            None,
            ("POST", "/v1/tasks/retry", {"all": True, "dryRun": True}),
            200,
            '"matched":1',
        ),
    ],
)
def test_no_answer_shows_what_was_taken_back(serve: Servers, doing: Doing) -> None:
    rota = serve(CONFIG)
    live, dead = rota.submit_native("ann", "scan"), rota.submit_native("ann", "fail")
    rota.ended(dead)
    assert rota.post("/v1/schedules", SCHEDULE).status == 201
    assert rota.post("/v1/projects/p/tasks", {"action": "scan"}).status == 201

    def named(path: str) -> str:
        return path.replace("LIVE", live).replace("DEAD", dead)

    disk = Disk(rota)
    method, path = named(doing.path).split()
    done, answers = in_thread(rota.request, method, path, doing.body)
    until(lambda: waiting(rota), what="it waits for its commit")
    before = waiting(rota)
    method, path, body = doing.asked
    look, looked = in_thread(rota.request, method, named(path), body)
    until(lambda: looked or waiting(rota) > before, what="the question waits for it, too")
    disk.fail()
    done.join(30)
    look.join(30)
    assert answers[0].status in (200, 503)
    assert looked[0].status == doing.status, looked[0]
    assert doing.shown in looked[0].body.decode()
    disk.mend()
    until(lambda: rota.get("/health").json["status"] == "ok")


def test_a_fact_that_cannot_be_folded_is_seen_in_health_and_mended(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota = serve(CONFIG)
    kept = rota.submit_native(action="scan")
    apply, left = State.apply, [1]

    def poor(self: State, record: e.Record) -> None:
        if type(record.event) is e.TaskCancelled and left[0]:
            left[0] -= 1
            raise TypeError("unsupported operand")
        apply(self, record)

    monkeypatch.setattr(State, "apply", poor)
    answer = rota.post(f"/v1/tasks/{kept}/cancel")
    assert answer.status in (500, 503)
    health = until(lambda: (h := rota.get("/health").json)["status"] == "degraded" and h)
    assert "could not be recorded: TypeError" in health["reason"]
    until(lambda: rota.get("/health").json["status"] == "ok", what="it goes on")
    assert rota.get(f"/v1/tasks/{kept}").json["state"] == "ready"
    assert rota.post(f"/v1/tasks/{kept}/cancel").status == 200
    rota.log.lines[:] = [line for line in rota.log.lines if "could not be recorded" not in line]

"""Http executors whose attempts are cut off: their `cancelUrl` is told, and its answer counts."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, running_process, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http_server import Client, Received, Rota, Servers, Target


class Worker:
    """A worker that rota calls: it answers attempts at the end of the test, cancels as it is told."""

    def __init__(self, hooks: Target) -> None:
        self.hooks = hooks
        self.cancel_status = 200
        self.over = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        hooks.respond = self._answer

    def _answer(self, request: Received) -> tuple[int, bytes]:
        if request.path == "/run":
            self.over.wait(60)
            return 200, b"{}"
        self.may_answer.wait(60)
        return self.cancel_status, b""

    def cancels(self) -> list[Received]:
        return [each for each in self.hooks.requests if each.path == "/cancel"]

    def serve(self, serve: Servers, **more: Any) -> Rota:
        return serve(self.config(**more))

    def config(self, **more: Any) -> dict[str, Any]:
        own = {"kind": "http", "url": f"{self.hooks.url}/run", "headers": {"X-Key": "k"}, **more}
        return {
            "executors": {"own": own},
            "types": {"dig": {"executor": "own"}},
            "projects": {"killWaitMs": 20_000},
        }

    def under_way(self, count: int = 1) -> None:
        until(lambda: len([r for r in self.hooks.requests if r.path == "/run"]) == count)


@pytest.fixture
def worker(hooks: Target) -> Iterator[Worker]:
    made = Worker(hooks)
    yield made
    made.over.set()
    made.may_answer.set()


def run_of(rota: Client, worker: Worker) -> tuple[str, str]:
    """Have a project's task worked on; give its run and its id."""
    added = rota.post("/v1/projects/p/tasks", {"action": "dig", "agentId": "ann"}).json
    run_id = rota.post("/v1/projects/p/run", {"mode": "loop"}).json["runId"]
    worker.under_way()
    return run_id, added["taskId"]


def force_stop(rota: Client) -> dict[str, Any]:
    answer: dict[str, Any] = rota.post("/v1/projects/p/queue/force-stop").json
    return answer


def test_what_its_worker_says_is_stopped_is_killed(serve: Servers, worker: Worker) -> None:
    rota = worker.serve(serve, cancelUrl=f"{worker.hooks.url}/cancel")
    run_id, task_id = run_of(rota, worker)
    assert force_stop(rota) == {"success": True, "killedRuns": [run_id], "stillRunning": []}
    [told] = worker.cancels()
    assert told.body == {"taskId": task_id, "agentId": "ann", "attempt": 1, "runId": run_id}
    assert (told.headers["x-rota-task-id"], told.headers["x-key"]) == (task_id, "k")
    assert told.headers["x-rota-token"] == worker.hooks.requests[0].headers["x-rota-token"]
    assert "details" not in rota.task(task_id)["error"]


@pytest.mark.parametrize("status", [None, 500, 302])
def test_what_nobody_says_is_stopped_is_killed_and_unconfirmed(
    serve: Servers, worker: Worker, status: int | None
) -> None:
    worker.cancel_status = status or 200
    rota = worker.serve(serve, **({"cancelUrl": f"{worker.hooks.url}/cancel"} if status else {}))
    run_id, task_id = run_of(rota, worker)
    assert force_stop(rota) == {
        "success": True,
        "killedRuns": [run_id],
        "stillRunning": [],
        "unconfirmed": [{"runId": run_id, "taskId": task_id}],
    }
    error = rota.get(f"/v1/tasks/{task_id}").json["error"]
    assert (error["code"], error["details"]) == ("force_stopped", {"unconfirmed": True})


def test_a_cancel_that_is_not_answered_holds_a_force_stop_up_for_a_bounded_time(
    serve: Servers, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.executors.http.CANCEL_S", 0.1)
    rota = worker.serve(serve, cancelUrl=f"{worker.hooks.url}/cancel")
    run_id, task_id = run_of(rota, worker)
    worker.may_answer.clear()
    answer = force_stop(rota)
    assert (answer["success"], answer["killedRuns"]) == (True, [run_id])
    assert answer["unconfirmed"] == [{"runId": run_id, "taskId": task_id}]


def since_it_started(rota: Client, task_id: str) -> list[str]:
    kinds = [each["kind"] for each in rota.get(f"/v1/tasks/{task_id}/events").json["events"]]
    return kinds[kinds.index("task_started") + 1 :]


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_killed_server_left_is_unconfirmed_and_not_begun_again(
    tmp_path: Path, worker: Worker, when: str
) -> None:
    worker.may_answer.clear()
    config = worker.config(cancelUrl=f"{worker.hooks.url}/cancel")
    config["projects"]["killWaitMs"] = 1
    config["scheduler"] = {"startPaused": when == "after"}
    with running_process(tmp_path, config) as rota:
        rota.post("/v1/scheduler/resume")
        task_id = run_of(rota, worker)[1]
        if when == "before":
            assert force_stop(rota)["success"] is False
        else:
            until(lambda: rota.get(f"/v1/tasks/{task_id}").json["state"] == "running")
        rota.end(signal.SIGKILL)
        rota.start()
        if when == "after":
            assert force_stop(rota)["success"]
        error = rota.get(f"/v1/tasks/{task_id}?waitMs=20000").json["error"]
        assert (error["code"], error["details"]) == ("force_stopped", {"unconfirmed": True})
        assert since_it_started(rota, task_id) == ["attempt_interrupted", "task_failed"]
    assert len([r for r in worker.hooks.requests if r.path == "/run"]) == 1


def test_a_killed_server_s_stop_takes_back_what_it_ran(tmp_path: Path, worker: Worker) -> None:
    with running_process(tmp_path, worker.config()) as rota:
        run_id, task_id = run_of(rota, worker)
        rota.post("/v1/projects/p/queue/stop")
        rota.end(signal.SIGKILL)
        rota.start()
        ended = rota.get(f"/v1/projects/p/runs/{run_id}?waitMs=20000").json
        assert (ended["state"], ended["stopReason"]) == ("completed", "stopped")
        assert since_it_started(rota, task_id)[:2] == ["attempt_interrupted", "task_held"]
    assert len([r for r in worker.hooks.requests if r.path == "/run"]) == 1


def test_a_run_keeps_its_place_until_its_cancel_is_answered(serve: Servers, worker: Worker) -> None:
    rota = worker.serve(serve, cancelUrl=f"{worker.hooks.url}/cancel")
    run_id, _ = run_of(rota, worker)
    worker.may_answer.clear()
    answers: list[Any] = []
    asking = [threading.Thread(target=lambda: answers.append(force_stop(rota))) for _ in range(2)]
    for each in asking:
        each.start()
    until(lambda: len(worker.cancels()) == 1)
    assert rota.post("/v1/projects/p/run", {"mode": "loop"}).status == 409
    worker.may_answer.set()
    for each in asking:
        each.join(30)
    assert [answer["success"] for answer in answers] == [True, True]
    assert run_id in answers[0]["killedRuns"] + answers[1]["killedRuns"]
    assert len(worker.cancels()) == 1


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_another_end_is_told_too_and_waits_for_nothing(
    serve: Servers, worker: Worker, how: str
) -> None:
    rota = worker.serve(serve, cancelUrl=f"{worker.hooks.url}/cancel")
    worker.may_answer.clear()
    more = {"timeoutMs": 300} if how == "timed out" else {}
    task_id = rota.submit_native("ann", "dig", **more)
    worker.under_way()
    if how == "cancelled":
        rota.post(f"/v1/tasks/{task_id}/cancel")
    assert ended(rota, task_id)["state"] == ("failed" if more else "cancelled")
    until(worker.cancels)
    assert worker.cancels()[0].body == {"taskId": task_id, "agentId": "ann", "attempt": 1}
    assert rota.inside(lambda server: server.shard.state.slots.total) == 0


def test_an_attempt_that_ends_by_itself_tells_no_cancel(serve: Servers, worker: Worker) -> None:
    rota = worker.serve(serve, cancelUrl=f"{worker.hooks.url}/cancel")
    worker.over.set()
    assert ended(rota, rota.submit_native("ann", "dig"))["state"] == "succeeded"
    assert worker.cancels() == []

"""The queue-state plan: lists of tasks, worked through once or in a loop, stopped and cut off.

One start at a time; the next task is selected when its turn comes; a stop lets the running one end;
a force-stop kills, and names what it cannot kill; a restart goes on where it was.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.http_server import Client, Rota, ended, until
from support.leasing import say, take, take_one
from support.server_process import ServerProcess
from support.stubborn import EXECUTORS, STUBBORN, TYPES, StubbornRota

from rota.config import with_presets
from rota.domain.commands import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Answer, Servers

STATUS = {
    "isRunning", "mode", "currentRunId", "startedAt", "shouldStop", "stoppedAt", "lastError",
    "stopReason", "currentTaskId", "completed", "remaining",
}  # fmt: skip
ALREADY = {
    "error": "queue-already-running",
    "message": "Queue is already processing tasks for this project",
}


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server with the plan's defaults."""
    return serve(with_presets({}, ("projects",)))


@pytest.fixture
def stubborn(serve: Servers, tmp_path: Path) -> StubbornRota:
    """A server with an action that cannot be killed, which waits a moment for a kill."""
    config = {"types": TYPES, "executors": EXECUTORS, "projects": {"killWaitMs": 200}}
    made = StubbornRota(tmp_path / "stubborn", config)
    serve.adopt(made)
    return made


def add(rota: Client, project: str, *actions: str, **fields: Any) -> list[str]:
    """Put tasks on a list; give their ids."""
    tasks = [{"action": action, **fields} for action in actions]
    answer = rota.post(f"/projects/{project}/tasks", {"tasks": tasks})
    assert answer.status == 201, answer
    return [row["taskId"] for row in answer.json["tasks"]]


def sleeping(rota: Rota, project: str, count: int = 1, seconds: float = 30) -> list[str]:
    return add(rota, project, *["sleep"] * count, params={"ms": round(seconds * 1000)})


def run(rota: Client, project: str, mode: str = "single", **more: Any) -> str:
    answer = rota.post(f"/projects/{project}/run", {"mode": mode, **more})
    assert answer.status == 202, answer
    return str(answer.json["runId"])


def status(rota: Rota, project: str) -> dict[str, Any]:
    answer = rota.get(f"/projects/{project}/queue/status")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def idle(rota: Rota, project: str) -> dict[str, Any]:
    """Wait until a project runs no more; give its status."""

    def ended() -> dict[str, Any] | None:
        found = status(rota, project)
        return None if found["isRunning"] else found

    return until(ended, what=f"{project} runs no more")


def in_hand(rota: Rota, project: str, task: str) -> None:
    """Wait until a task of a list runs."""
    until(lambda: status(rota, project)["currentTaskId"] == task)
    until(lambda: rota.get(f"/v1/tasks/{task}").json["state"] == "running")


def listed(rota: Rota, project: str) -> list[str]:
    return [row["taskId"] for row in rota.get(f"/projects/{project}/tasks").json["tasks"]]


def history(rota: Rota, project: str, run_id: str) -> list[str]:
    found = rota.get(f"/projects/{project}/runs/{run_id}/events").json["events"]
    return [event["kind"] for event in found]


def kinds(rota: Rota) -> list[str]:
    return [event["kind"] for event in rota.events(limit=1000)]


@pytest.mark.parametrize(
    ("method", "path", "told", "error"),
    [
        ("PUT", "/projects", 405, "method-not-allowed"),
        ("PUT", "/projects/p/run", 405, "method-not-allowed"),
        ("GET", "/projects/", 404, "not-found"),
        ("GET", "/projects/p/bogus", 404, "not-found"),
        ("GET", "/projects/p/queue/status/more", 404, "not-found"),
    ],
)
def test_a_path_that_leads_nowhere_is_told_in_the_plans_words(
    rota: Rota, method: str, path: str, told: int, error: str
) -> None:
    answer = rota.request(method, path)
    assert (answer.status, answer.json["error"]) == (told, error)
    assert set(answer.json) == {"error", "message"}
    native = rota.request(method, f"/v1{path}")
    assert (native.status, native.code) == (told, error.replace("-", "_"))


# -- phase 1: the state of a queue


def test_status_has_every_field_of_the_plan(rota: Rota) -> None:
    add(rota, "p", "echo", "echo")
    assert set(status(rota, "p")) == STATUS
    assert status(rota, "p") == {
        "isRunning": False, "mode": None, "currentRunId": None, "startedAt": None,
        "shouldStop": False, "stoppedAt": None, "lastError": None, "stopReason": None,
        "currentTaskId": None, "completed": 0, "remaining": 2,
    }  # fmt: skip


def test_status_of_a_queue_that_runs(rota: Rota) -> None:
    first, second = sleeping(rota, "p", 2)
    run_id = run(rota, "p", "loop")
    in_hand(rota, "p", first)
    found = status(rota, "p")
    assert found["isRunning"]
    assert found["mode"] == "loop"
    assert found["currentRunId"] == run_id
    assert run_id.startswith("run-")
    assert found["startedAt"].endswith("Z")
    assert found["currentTaskId"] == first
    assert found["remaining"] == 1
    assert listed(rota, "p") == [second]


def test_a_single_run_takes_one_task_and_completes(rota: Rota) -> None:
    first, second = add(rota, "p", "echo", "echo")
    run_id = run(rota, "p")
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"], ended["remaining"]) == ("single_done", 1, 1)
    assert ended["stoppedAt"] is not None
    assert rota.get(f"/v1/tasks/{first}").json["state"] == "succeeded"
    assert rota.get(f"/v1/tasks/{second}").status == 404
    assert history(rota, "p", run_id) == [
        "run_queued", "run_started", "run_task_selected", "run_ended"
    ]  # fmt: skip


def test_a_loop_goes_on_until_its_list_is_empty(rota: Rota) -> None:
    ids = add(rota, "p", "echo", "echo", "echo")
    run(rota, "p", "loop")
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"], ended["remaining"]) == ("empty", 3, 0)
    tasks = [rota.get(f"/v1/tasks/{task}").json for task in ids]
    assert [task["state"] for task in tasks] == ["succeeded"] * 3
    assert [task["startedAt"] for task in tasks] == sorted(task["startedAt"] for task in tasks)
    assert {task["projectId"] for task in tasks} == {"p"}
    assert {task["agentId"] for task in tasks} == {"p"}


def test_an_empty_list_ends_a_run_cleanly(rota: Rota) -> None:
    add(rota, "p", "echo")
    run(rota, "p")
    idle(rota, "p")
    run_id = run(rota, "p", "loop")
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"], ended["lastError"]) == ("empty", 0, None)
    assert rota.get(f"/projects/p/runs/{run_id}").json["state"] == "completed"


def test_a_loop_ends_where_a_task_fails_for_good(rota: Rota) -> None:
    add(rota, "p", "echo", "fail", "echo")
    run_id = run(rota, "p", "loop")
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"], ended["remaining"]) == ("task_failed", 1, 1)
    assert ended["lastError"] == "failed as asked"
    assert rota.get(f"/projects/p/runs/{run_id}").json["state"] == "failed"


def test_a_failed_attempt_that_is_tried_again_ends_nothing(rota: Rota) -> None:
    retry = {"kind": "fixed", "baseMs": 1, "maxAttempts": 3}
    [task] = add(rota, "p", "fail", retry=retry)
    run(rota, "p", "loop")
    assert idle(rota, "p")["stopReason"] == "task_failed"
    assert rota.get(f"/v1/tasks/{task}").json["attempt"] == 3


def test_a_task_that_is_cancelled_fails_its_run(rota: Rota) -> None:
    first, _ = sleeping(rota, "p", 2)
    run(rota, "p", "loop")
    in_hand(rota, "p", first)
    assert rota.post(f"/v1/tasks/{first}/cancel", {"reason": "not today"}).status == 200
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["lastError"]) == ("task_cancelled", "not today")


# -- phase 2: one start at a time


@pytest.mark.parametrize("modes", [("single", "loop"), ("loop", "single"), ("loop", "loop")])
def test_starting_twice_is_refused_in_the_plans_words(rota: Rota, modes: tuple[str, str]) -> None:
    sleeping(rota, "p")
    run(rota, "p", modes[0])
    answer = rota.post("/projects/p/run", {"mode": modes[1]})
    assert (answer.status, answer.json) == (409, ALREADY)


def test_ten_concurrent_starts_make_one_run(rota: Rota) -> None:
    sleeping(rota, "p", 3)

    def start(_: int) -> Answer:
        return rota.post("/projects/p/run", {"mode": "loop"})

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(start, range(10)))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 9
    assert [answer.json for answer in answers if answer.status == 409] == [ALREADY] * 9
    assert kinds(rota).count("run_queued") == 1
    assert rota.get("/projects/p").json["figures"]["starts"] == 1


def test_one_project_does_not_lock_another(rota: Rota) -> None:
    sleeping(rota, "p")
    sleeping(rota, "q")
    run(rota, "p")
    run(rota, "q")


def test_the_lock_ends_with_its_run(rota: Rota) -> None:
    add(rota, "p", "echo", "echo")
    for _ in range(2):
        run(rota, "p")
        idle(rota, "p")
    assert rota.get("/projects/p").json["figures"]["starts"] == 2


# -- phase 3: stop, and stop by force


def test_stop_lets_the_running_task_end_and_no_other_begin(rota: Rota) -> None:
    first, second = sleeping(rota, "p", 2, seconds=0.5)
    run(rota, "p", "loop")
    in_hand(rota, "p", first)
    answer = rota.post("/projects/p/queue/stop")
    assert (answer.status, answer.json) == (200, {"success": True})
    assert status(rota, "p")["shouldStop"]
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"], ended["remaining"]) == ("stopped", 1, 1)
    assert not ended["shouldStop"]
    assert rota.get(f"/v1/tasks/{first}").json["state"] == "succeeded"
    assert listed(rota, "p") == [second]


def test_stop_can_be_said_twice_and_without_a_run(rota: Rota) -> None:
    add(rota, "p", "echo")
    for _ in range(2):
        assert rota.post("/projects/p/queue/stop").json == {"success": True}
    sleeping(rota, "q")
    run(rota, "q", "loop")
    for _ in range(2):
        assert rota.post("/projects/q/queue/stop").json == {"success": True}
    assert kinds(rota).count("run_stop_requested") == 1


def test_stop_takes_a_task_back_that_has_not_begun(rota: Rota) -> None:
    [task] = add(rota, "p", "echo", delayMs=3_600_000)
    other = add(rota, "p", "echo")[0]
    run(rota, "p", "loop")
    until(lambda: status(rota, "p")["currentTaskId"] == task)
    rota.post("/projects/p/queue/stop")
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["remaining"]) == ("stopped", 2)
    assert rota.get(f"/v1/tasks/{task}").json["state"] == "blocked"
    assert listed(rota, "p") == [task, other]
    again = rota.get("/projects/p/tasks").json["tasks"][0]
    assert (again["action"], again["delayMs"]) == ("echo", 3_600_000)
    run(rota, "p", "loop")
    until(lambda: rota.get(f"/v1/tasks/{task}").json["state"] == "scheduled")


def test_a_task_that_waits_for_its_next_attempt_does_not_hold_a_stop_up(rota: Rota) -> None:
    slow = {"kind": "fixed", "baseMs": 3_600_000, "maxAttempts": 3}
    [task] = add(rota, "p", "fail", retry=slow)
    run(rota, "p", "loop")
    until(lambda: rota.get(f"/v1/tasks/{task}").json["state"] == "scheduled")
    rota.post("/projects/p/queue/stop")
    assert idle(rota, "p")["stopReason"] == "stopped"
    assert listed(rota, "p") == [task]


def test_force_stop_kills_what_runs_and_says_so(rota: Rota) -> None:
    first, second = sleeping(rota, "p", 2)
    run_id = run(rota, "p", "loop")
    in_hand(rota, "p", first)
    answer = rota.post("/projects/p/queue/force-stop")
    assert (answer.status, answer.json) == (
        200,
        {"success": True, "killedRuns": [run_id], "stillRunning": []},
    )
    ended = status(rota, "p")
    assert (ended["isRunning"], ended["stopReason"]) == (False, "force_stopped")
    assert rota.get(f"/projects/p/runs/{run_id}").json["state"] == "failed"
    task = rota.get(f"/v1/tasks/{first}").json
    assert (task["state"], task["error"]["code"]) == ("failed", "force_stopped")
    assert listed(rota, "p") == [second]


def test_force_stop_kills_the_processes_of_a_command(tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "sleep 600 & echo $$ $!; wait"]
    shell = {"kind": "command", "argv": argv, "graceMs": 100}
    config = {"executors": {"shell": shell}, "types": {"shell": {"executor": "shell"}}}
    with ServerProcess(tmp_path / "data", config) as server:
        rota = Client()
        rota.port = server.port
        [task] = add(rota, "p", "shell")
        run_id = run(rota, "p", "loop")
        [said] = until(lambda: rota.get(f"/v1/tasks/{task}/logs").json["lines"])
        processes = [int(word) for word in said["message"].split()]
        assert len(processes) == 2
        assert all(map(psutil.pid_exists, processes))
        answer = rota.post("/projects/p/queue/force-stop").json
        assert answer == {"success": True, "killedRuns": [run_id], "stillRunning": []}
        assert not any(map(psutil.pid_exists, processes))
        assert rota.get(f"/v1/tasks/{task}").json["error"]["code"] == "force_stopped"


def test_force_stop_without_a_run_kills_nothing(rota: Rota) -> None:
    add(rota, "p", "echo")
    answer = rota.post("/projects/p/queue/force-stop")
    assert answer.json == {"success": True, "killedRuns": [], "stillRunning": []}


def test_force_stop_ends_a_task_that_no_worker_has(rota: Rota) -> None:
    add(rota, "q", "for-a-worker")
    waiting = run(rota, "q", "loop")
    until(lambda: status(rota, "q")["currentTaskId"])
    assert rota.post("/projects/q/queue/force-stop").json["killedRuns"] == [waiting]


def lent(rota: Rota, project: str, **wants: Any) -> tuple[str, dict[str, Any]]:
    """Have a project's task lent to a worker; give its run and the lease."""
    add(rota, project, "for-a-worker", retry={"kind": "fixed", "maxAttempts": 3})
    run_id = run(rota, project, "loop")
    until(lambda: status(rota, project)["currentTaskId"])
    return run_id, take_one(rota, **wants)


@pytest.mark.parametrize("said", ["release", "fail", "complete"])
def test_what_a_worker_has_is_killed_when_it_says_that_it_has_stopped(
    stubborn: StubbornRota, said: str
) -> None:
    run_id, lease = lent(stubborn, "p")
    task = lease["taskId"]
    left = {"success": False, "killedRuns": [], "stillRunning": [{"runId": run_id, "taskId": task}]}
    for _ in range(2):
        assert stubborn.post("/projects/p/queue/force-stop").json == left
    assert stubborn.post("/projects/p/run", {"mode": "loop"}).status == 409
    assert stubborn.post(f"/v1/tasks/{task}/cancel").code == "being_killed"
    beat = say(stubborn, lease, "heartbeat").json
    assert (beat["state"], beat["cancelRequested"]) == ("running", True)
    assert beat["expiresAt"] > lease["expiresAt"]
    with ThreadPoolExecutor() as aside:
        asked = aside.submit(stubborn.post, "/projects/p/queue/force-stop")
        more = {"release": {}, "fail": {"error": "cut off"}, "complete": {"result": 1}}[said]
        assert say(stubborn, lease, said, **more).status == 200
        assert asked.result(20).json["stillRunning"] == []
    assert idle(stubborn, "p")["stopReason"] == "force_stopped"
    ended = stubborn.get(f"/v1/tasks/{task}").json
    if said == "complete":
        assert ended["state"] == "succeeded"
    else:
        assert (ended["state"], ended["error"]["code"]) == ("failed", "force_stopped")
    assert stubborn.inside(lambda s: s.shard.state.slots.total) == 0
    assert take(stubborn) == []


def test_what_a_silent_worker_has_is_killed_when_its_lease_ends(stubborn: StubbornRota) -> None:
    _, lease = lent(stubborn, "p", leaseMs=1000)
    assert not stubborn.post("/projects/p/queue/force-stop").json["success"]
    assert idle(stubborn, "p")["stopReason"] == "force_stopped"
    task = stubborn.get(f"/v1/tasks/{lease['taskId']}").json
    assert task["error"]["code"] == "force_stopped"
    assert say(stubborn, lease, "complete").code == "stale_attempt"


def test_what_cannot_be_killed_is_named_and_keeps_its_slot(stubborn: StubbornRota) -> None:
    [task] = add(stubborn, "p", STUBBORN, timeoutMs=300)
    run_id = run(stubborn, "p", "loop")
    in_hand(stubborn, "p", task)
    answer = stubborn.post("/projects/p/queue/force-stop").json
    still = [{"runId": run_id, "taskId": task}]
    assert answer == {"success": False, "killedRuns": [], "stillRunning": still}
    assert stubborn.runner.aborted == [task]
    assert stubborn.post(f"/v1/tasks/{task}/cancel").code == "being_killed"
    again = stubborn.post("/projects/p/queue/force-stop").json
    assert again["stillRunning"] == still
    assert stubborn.get(f"/v1/tasks/{task}").json["state"] == "running"
    assert stubborn.inside(lambda s: s.shard.state.slots.total) == 1
    assert stubborn.post("/projects/p/run", {"mode": "loop"}).status == 409
    stubborn.inside(lambda _: stubborn.runner.let_go(task))
    ended = idle(stubborn, "p")
    assert ended["stopReason"] == "force_stopped"
    assert stubborn.inside(lambda s: s.shard.state.slots.total) == 0
    assert stubborn.get(f"/v1/tasks/{task}").json["error"]["code"] == "force_stopped"


def test_an_attempt_that_ends_by_itself_while_it_is_killed_ends_its_task(
    stubborn: StubbornRota,
) -> None:
    [task] = add(stubborn, "p", STUBBORN)
    run(stubborn, "p", "loop")
    in_hand(stubborn, "p", task)
    assert not stubborn.post("/projects/p/queue/force-stop").json["success"]
    stopping = status(stubborn, "p")
    assert (stopping["isRunning"], stopping["shouldStop"]) == (True, True)
    assert (stopping["stopReason"], stopping["stoppedAt"]) == ("force_stopped", None)
    stubborn.inside(lambda _: stubborn.runner.running[task](Outcome(ok=True, result=1)))
    assert idle(stubborn, "p")["stopReason"] == "force_stopped"
    assert stubborn.get(f"/v1/tasks/{task}").json["state"] == "succeeded"


def test_an_operation_on_many_tasks_leaves_what_is_being_killed(stubborn: StubbornRota) -> None:
    [task] = add(stubborn, "p", STUBBORN)
    run(stubborn, "p", "loop")
    in_hand(stubborn, "p", task)
    assert not stubborn.post("/projects/p/queue/force-stop").json["success"]
    answer = stubborn.post("/v1/tasks/cancel", {"agentId": "p"}).json
    assert (answer["changed"], answer["refused"]) == (0, {"being_killed": 1})
    assert stubborn.inside(lambda s: s.shard.state.slots.total) == 1
    stubborn.inside(lambda _: stubborn.runner.let_go(task))
    assert idle(stubborn, "p")["stopReason"] == "force_stopped"


def failed_once(rota: StubbornRota, project: str, **fields: Any) -> tuple[str, str]:
    """Let a run fail by its stubborn task, retry that, and run it; give the run and it."""
    [task] = add(rota, project, STUBBORN, **fields)
    run(rota, project)
    in_hand(rota, project, task)
    bad = Outcome(ok=False, code="bad", error="x" * 1000, retryable=False)
    rota.inside(lambda _: rota.runner.running[task](bad))
    assert idle(rota, project)["lastError"] == "x" * 300
    assert rota.post(f"/v1/tasks/{task}/retry").json == {"taskId": task, "state": "blocked"}
    run_id = run(rota, project)
    in_hand(rota, project, task)
    return run_id, task


def test_a_retried_task_waits_at_the_head_of_its_list_for_a_run(rota: Rota) -> None:
    [task] = add(rota, "p", "fail", idempotencyKey="k")
    run(rota, "p")
    assert idle(rota, "p")["stopReason"] == "task_failed"
    [busy, *_] = sleeping(rota, "p", 2)
    run(rota, "p", "loop")
    in_hand(rota, "p", busy)
    assert rota.post(f"/v1/tasks/{task}/retry").json == {"taskId": task, "state": "blocked"}
    assert listed(rota, "p")[0] == task
    assert rota.get(f"/v1/tasks/{task}").json["waitingFor"] == ["project/p"]
    assert rota.inside(lambda s: s.shard.state.slots.total) == 1
    again = rota.post("/projects/p/tasks", {"action": "fail", "idempotencyKey": "k"})
    assert (again.status, again.json["taskId"]) == (200, task)
    rota.post("/projects/p/queue/force-stop")
    last = run(rota, "p")
    assert idle(rota, "p")["stopReason"] == "task_failed"
    found = rota.get(f"/v1/tasks/{task}").json
    assert (found["state"], found["runId"], found["attempt"]) == ("failed", last, 2)
    assert rota.post(f"/v1/tasks/{busy}/retry").status == 202, "a force-stopped one can be, too"
    assert listed(rota, "p")[0] == busy


def test_a_key_stands_for_one_request_by_either_path_and_whatever_it_is_for(rota: Rota) -> None:
    item = {"agentId": "p", "action": "echo", "idempotencyKey": "k"}
    first = rota.post("/v1/projects/p/tasks", item)
    for base in ("/projects", "/v1/projects"):
        again = rota.post(f"{base}/p/tasks", item)
        assert (again.status, again.json["taskId"]) == (200, first.json["taskId"])
    paths = ("/v1/projects/q/tasks", "/projects/q/tasks", "/v1/tasks")
    batch = {"tasks": [{"agentId": "p", "action": "echo"}], "idempotencyKey": "k"}
    others = [*((path, item) for path in paths), ("/v1/batches", batch), ("/v1/workflows", batch)]
    for path, body in others:
        answer = rota.post(path, body)
        assert answer.status == 422, path
    rota.restart()
    assert rota.post(*others[0]).status == 422
    rota.request("DELETE", f"/v1/projects/p/tasks/{first.json['taskId']}")
    assert rota.post(*others[2]).status == 202, "a key is free once what it stood for is gone"
    taken = rota.post("/v1/projects/p/tasks", item)
    assert (taken.status, taken.code) == (422, "idempotency_conflict")


@pytest.mark.parametrize("action", ["fail", "echo"])
def test_no_task_ends_what_a_project_holds_whatever_it_is_called(rota: Rota, action: str) -> None:
    [task] = add(rota, "p", "fail")
    run(rota, "p")
    assert idle(rota, "p")["stopReason"] == "task_failed"
    rota.post(f"/v1/tasks/{task}/retry")
    held_by = rota.get(f"/v1/tasks/{task}").json["waitingFor"]
    for name in ("p", "project:p", *held_by):
        made = rota.post("/v1/tasks", {"agentId": "me", "action": action, "taskId": name})
        assert (made.status == 400) == ("/" in name)
        if made.status != 400:
            ended(rota, name)
    assert rota.get(f"/v1/tasks/{task}").json["state"] == "blocked"
    [row] = rota.get("/projects/p/tasks").json["tasks"]
    assert (row["taskId"], row["state"]) == (task, "pending")


def test_a_task_on_a_list_again_goes_when_it_is_removed_or_its_project_deleted(rota: Rota) -> None:
    tasks = add(rota, "p", "fail", "fail", "fail")
    for _ in tasks:
        run(rota, "p")
        idle(rota, "p")
    for task in tasks:
        assert rota.post(f"/v1/tasks/{task}/retry").status == 202
    assert listed(rota, "p") == tasks[::-1]
    first = f"/projects/p/tasks/{tasks[0]}"
    assert rota.request("PATCH", first, {"position": 0}).status == 200
    edit = rota.request("PATCH", first, {"params": {}})
    assert (edit.status, edit.json["error"]) == (409, "task-not-pending")
    assert rota.request("DELETE", first).status == 200
    assert rota.post(f"/v1/tasks/{tasks[1]}/cancel").status == 200
    assert listed(rota, "p") == tasks[2:]
    assert rota.request("DELETE", "/projects/p").json["removed"] == 1
    states = [rota.get(f"/v1/tasks/{task}").json["state"] for task in tasks]
    assert states == ["cancelled"] * 3


def test_a_restart_finishes_a_kill(stubborn: StubbornRota) -> None:
    _, task = failed_once(stubborn, "p")
    assert not stubborn.post("/projects/p/queue/force-stop").json["success"]
    stubborn.restart()
    found = until(lambda: stubborn.get(f"/v1/tasks/{task}").json)
    assert (found["state"], found["error"]["code"]) == ("failed", "force_stopped")
    assert stubborn.runner.running == {}


def test_a_kill_is_not_undone_by_a_failure_that_would_be_tried_again(
    stubborn: StubbornRota,
) -> None:
    _, task = failed_once(stubborn, "p", retry={"kind": "fixed", "baseMs": 1, "maxAttempts": 3})
    assert not stubborn.post("/projects/p/queue/force-stop").json["success"]
    bad = Outcome(ok=False, code="bad", error="cut off")
    stubborn.inside(lambda _: stubborn.runner.running[task](bad))
    found = until(
        lambda: s if (s := stubborn.get(f"/v1/tasks/{task}").json)["state"] != "running" else None
    )
    assert (found["state"], found["error"]["code"]) == ("failed", "force_stopped")


def test_a_run_without_progress_ends_and_leaves_its_task_on_the_list(tmp_path: Path) -> None:
    config = {"projects": {"runTimeoutMs": 300, "maxConcurrent": 1}}
    with ServerProcess(tmp_path / "data", config) as server:
        rota = Client()
        rota.port = server.port
        [task] = add(rota, "p", "for-a-worker")
        add(rota, "q", "echo")
        run_id = run(rota, "p", "loop")
        run(rota, "q")
        assert idle(rota, "q")["stopReason"] == "single_done", "its place is free"
        found = rota.get(f"/projects/p/runs/{run_id}").json
        assert (found["state"], found["stopReason"]) == ("failed", "run_timeout")
        assert found["error"] == "the run made no progress for 300 ms"
        assert listed(rota, "p") == [task]


# -- phase 4: a task is selected when its turn comes


def test_the_next_task_is_chosen_from_what_is_pending_then(rota: Rota) -> None:
    first, second, third = sleeping(rota, "p", 3, seconds=0.4)
    run(rota, "p", "loop")
    in_hand(rota, "p", first)
    [added] = add(rota, "p", "echo")
    assert rota.request("PATCH", f"/projects/p/tasks/{added}", {"before": second}).status == 200
    assert rota.request("DELETE", f"/projects/p/tasks/{third}").status == 200
    edit = {"params": {"ms": 10}, "priority": "normal"}
    assert rota.request("PATCH", f"/projects/p/tasks/{second}", edit).status == 200
    assert listed(rota, "p") == [added, second]
    assert idle(rota, "p")["completed"] == 3
    rows = [e["data"]["item"] for e in rota.events(limit=1000) if e["kind"] == "run_task_selected"]
    assert rows == [first, added, second]
    assert rota.get(f"/v1/tasks/{second}").json["params"] == {"ms": 10}
    assert rota.get(f"/v1/tasks/{third}").status == 404


def test_what_has_started_cannot_be_changed(rota: Rota) -> None:
    [first] = sleeping(rota, "p")
    run(rota, "p")
    in_hand(rota, "p", first)
    for method, body in (("PATCH", {"priority": 1}), ("DELETE", None)):
        answer = rota.request(method, f"/projects/p/tasks/{first}", body)
        assert (answer.status, answer.json["error"]) == (409, "task-not-pending")


def test_a_run_may_be_told_which_task_comes_first(rota: Rota) -> None:
    first, second = add(rota, "p", "echo", "echo")
    run(rota, "p", taskId=second)
    idle(rota, "p")
    assert listed(rota, "p") == [first]
    assert rota.post("/projects/p/run", {"taskId": second}).json["error"] == "task-not-pending"
    unknown = rota.post("/projects/p/run", {"taskId": "nobody"})
    assert (unknown.status, unknown.json["error"]) == (404, "task-not-found")


# -- runs


def test_each_start_is_a_run_of_its_own_with_its_history(rota: Rota) -> None:
    add(rota, "p", "echo", "fail")
    first = run(rota, "p")
    idle(rota, "p")
    second = run(rota, "p")
    idle(rota, "p")
    runs = rota.get("/projects/p/runs").json["runs"]
    assert [(each["runId"], each["state"]) for each in runs] == [
        (second, "failed"), (first, "completed")
    ]  # fmt: skip
    assert all(each["durationMs"] >= 0 for each in runs)
    for run_id in (first, second):
        assert history(rota, "p", run_id)[-1] == "run_ended"
    assert rota.get(f"/projects/other/runs/{first}").status == 404
    assert rota.get("/projects/p/runs/run-nobody").json["error"] == "run-not-found"


def test_a_run_that_has_left_memory_is_read_from_the_log(rota: Rota) -> None:
    add(rota, "p", "echo")
    first = run(rota, "p")
    shown = idle(rota, "p") and rota.get(f"/projects/p/runs/{first}").json
    for _ in range(11):
        run(rota, "p")
        idle(rota, "p")
    assert first not in [each["runId"] for each in rota.get("/projects/p/runs").json["runs"]]
    assert rota.get(f"/projects/p/runs/{first}").json == shown
    assert rota.get("/projects/p").json["figures"]["starts"] == 12


def test_five_projects_are_processed_at_once_and_the_sixth_waits_its_turn(rota: Rota) -> None:
    names = [f"p{n}" for n in range(7)]
    tasks = {name: sleeping(rota, name)[0] for name in names}
    runs = {name: run(rota, name) for name in names}
    for name in names[:5]:
        in_hand(rota, name, tasks[name])
    states = [rota.get(f"/projects/{n}/runs/{runs[n]}").json["state"] for n in names]
    assert states == ["in_progress"] * 5 + ["pending"] * 2
    assert status(rota, "p5")["isRunning"]
    assert status(rota, "p5")["startedAt"] is None
    assert rota.post("/projects/p5/run").json == ALREADY
    rota.post("/projects/p6/queue/stop")
    assert idle(rota, "p6")["stopReason"] == "stopped"
    rota.post("/projects/p3/queue/force-stop")
    in_hand(rota, "p5", tasks["p5"])


# -- recovery


def test_a_restart_goes_on_where_it_was(rota: Rota) -> None:
    first, second, third = sleeping(rota, "p", 3, seconds=0.4)
    run_id = run(rota, "p", "loop")
    in_hand(rota, "p", first)
    rota.restart()
    assert status(rota, "p")["currentRunId"] == run_id
    assert rota.post("/projects/p/run").json == ALREADY
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"]) == ("empty", 3)
    rows = [e["data"]["item"] for e in rota.events(limit=1000) if e["kind"] == "run_task_selected"]
    assert rows == [first, second, third]


def test_a_restart_keeps_a_stop(rota: Rota) -> None:
    first, second = sleeping(rota, "p", 2, seconds=0.4)
    run(rota, "p", "loop")
    in_hand(rota, "p", first)
    rota.post("/projects/p/queue/stop")
    rota.restart()
    ended = idle(rota, "p")
    assert (ended["stopReason"], ended["completed"]) == ("stopped", 0)
    assert listed(rota, "p") == [first, second], "the attempt was cut off, so its task waits again"


def test_a_restart_finishes_a_force_stop(stubborn: StubbornRota) -> None:
    [task] = add(stubborn, "p", STUBBORN)
    run(stubborn, "p", "loop")
    in_hand(stubborn, "p", task)
    assert not stubborn.post("/projects/p/queue/force-stop").json["success"]
    stubborn.restart()
    assert idle(stubborn, "p")["stopReason"] == "force_stopped"
    assert stubborn.get(f"/v1/tasks/{task}").json["error"]["code"] == "force_stopped"


# -- several at once, and figures


def test_several_projects_are_started_and_stopped_each_on_its_own(rota: Rota) -> None:
    for name in ("a", "b"):
        sleeping(rota, name)
    busy = run(rota, "b")
    answer = rota.post("/projects/run", {"projects": ["a", "b", "nobody"], "mode": "loop"})
    assert answer.status == 200
    a, b, nobody = answer.json["projects"]
    assert (a["projectId"], a["success"], a["mode"]) == ("a", True, "loop")
    assert b == {"projectId": "b", "success": False, **ALREADY}
    assert (nobody["success"], nobody["error"]) == (False, "project-not-found")
    assert not answer.json["success"]
    answer = rota.post("/projects/stop", {"projects": ["a"]})
    assert answer.json == {"projects": [{"projectId": "a", "success": True}], "success": True}
    answer = rota.post("/projects/force-stop", {"projects": ["a", "b"]})
    assert [each["killedRuns"] for each in answer.json["projects"]] == [[a["runId"]], [busy]]
    assert answer.json["success"]


def test_a_project_shows_its_status_and_figures(rota: Rota) -> None:
    add(rota, "p", "echo", "fail")
    for _ in range(3):
        run(rota, "p")
        idle(rota, "p")
    found = rota.get("/projects/p").json
    assert set(found["status"]) == STATUS
    figures = found["figures"]
    assert (figures["starts"], figures["completed"], figures["failed"]) == (3, 2, 1)
    assert figures["stopReasons"] == {"single_done": 1, "task_failed": 1, "empty": 1}
    assert 0 <= figures["longestMs"] <= figures["totalMs"]
    page = rota.get("/projects").json
    assert [each["projectId"] for each in page["projects"]] == ["p"]
    text = rota.get("/metrics").body.decode()
    assert 'rota_project_runs_total{fate="task_failed",namespace="default"} 1.0' in text
    assert 'rota_project_runs_in_progress{namespace="default"} 0.0' in text
    of_p = 'namespace="default",project="p"'
    assert f"rota_project_run_seconds_count{{{of_p}}} 3.0" in text
    assert f'rota_project_runs_ended_total{{{of_p},reason="task_failed"}} 1.0' in text


def test_each_transition_of_a_run_is_a_line_in_the_servers_log(
    rota: Rota, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="rota.projects")
    sleeping(rota, "p")
    run_id = run(rota, "p")
    in_hand(rota, "p", str(status(rota, "p")["currentTaskId"]))
    rota.post("/projects/p/queue/force-stop", {"reason": "enough"})
    idle(rota, "p")
    start = f"INFO rota.projects: run {run_id} of project p "
    lines = until(lambda: len(found := _about(rota, start)) == 4 and found)
    assert lines == [
        "is pending (by local)",
        "is in progress (by rota)",
        "is to stop by force (by local)",
        "failed after 0 tasks: force_stopped (by rota)",
    ]


def _about(rota: Rota, start: str) -> list[str]:
    return [line.partition(start)[2] for line in rota.log.lines if start in line]


def test_every_transition_is_an_event_with_its_reason(rota: Rota) -> None:
    first, _ = sleeping(rota, "p", 2)
    run_id = run(rota, "p", "loop", reason="a new day")
    in_hand(rota, "p", first)
    rota.post("/projects/p/queue/stop", {"reason": "for lunch"})
    rota.post("/projects/p/queue/force-stop", {"reason": "now"})
    events = rota.get(f"/projects/p/runs/{run_id}/events").json["events"]
    said = [(event["kind"], event["data"].get("reason")) for event in events]
    assert said == [
        ("run_queued", "a new day"), ("run_started", "0 were in progress of 5 that may be"),
        ("run_task_selected", None),
        ("run_stop_requested", "for lunch"), ("run_stop_requested", "now"),
        ("run_ended", "force_stopped"),
    ]  # fmt: skip


def test_the_native_twin_tells_errors_natively(rota: Rota) -> None:
    sleeping(rota, "p")
    assert rota.post("/v1/projects/p/run").status == 202
    answer = rota.post("/v1/projects/p/run")
    assert (answer.status, answer.code) == (409, "queue_already_running")
    assert answer.json["error"] == ALREADY["message"]
    assert rota.get("/v1/projects/p/queue/status").json["isRunning"]

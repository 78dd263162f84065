"""kill -9 while successes make the next tasks: there is exactly one for each, whenever it dies.

An echo is followed by a sleep, and that by an `embed` which nobody takes. Workflows escalate
meanwhile: each once. What is counted is the log, after the last restart.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

from support.kill_harness import verify
from support.server_process import ServerProcess

from rota.client.sync_client import JsonClient

if TYPE_CHECKING:
    from pathlib import Path

TASKS, SIZE, KILLS = 160, 40, 2
START_S = 60.0
CONFIG = {
    "scheduler": {"maxInflight": 50, "maxPerAgentInflight": 50, "workerCount": 20,
                  "maxQueueSize": 10_000, "maxPerAgent": 10_000, "maxEndedTasks": 50},
    "types": {
        "echo": {
            "executor": "builtin",
            "followUp": {"type": "sleep", "agent": "b", "params": {"ms": "{{result.echo.ms}}"}},
        },
        "sleep": {
            "executor": "builtin",
            "followUp": {"type": "embed", "agent": "c", "params": {"of": "{{task.id}}"}},
        },
    },
}  # fmt: skip
ESCALATION = {"agent": "boss", "action": "note", "params": {"flow": "{{workflow.id}}"}}


def test_each_success_is_followed_by_exactly_one_task(tmp_path: Path, kill_seed: int) -> None:
    chance = random.Random(kill_seed)
    server = ServerProcess(tmp_path / "data", config=CONFIG)
    with ExitStack() as undo, server:
        server.args = ("--port", str(server.port))
        rota = undo.enter_context(JsonClient(server.url, retries=200, timeout_s=START_S))
        killer = threading.Thread(target=_kill, args=(chance, server))
        killer.start()
        try:
            flows = [_submit(rota, chance) for _ in range(TASKS // SIZE)]
            _wait_for(rota, "task_succeeded", 2 * TASKS)
            _wait_for(rota, "workflow_tripped", len(flows))
        finally:
            killer.join()
        _check(list(rota.iter_events()), flows)
    verify(tmp_path / "data")


def _submit(rota: JsonClient, chance: random.Random) -> str:
    """Submit a workflow of echoes, and of one task that fails."""
    tasks: list[dict[str, Any]] = [
        {"agent": "a", "action": "echo", "params": {"ms": chance.randrange(20)}}
        for _ in range(SIZE)
    ]
    tasks.append({"agent": "a", "action": "fail"})
    made = rota.submit_workflow(tasks, on_failure="escalate", escalate={"task": ESCALATION})
    return str(made["workflowId"])


def _wait_for(rota: JsonClient, kind: str, count: int) -> None:
    assert len(list(islice(rota.stream(after=0, kinds=(kind,)), count))) == count


def _kill(chance: random.Random, server: ServerProcess) -> None:
    pause = threading.Event()
    for _ in range(KILLS):
        pause.wait(chance.uniform(0, 0.4))
        server.kill()
        server.start(timeout=START_S)


def _check(events: list[dict[str, Any]], flows: list[str]) -> None:
    action = {x["task"]: x["data"]["action"] for x in events if x["kind"] == "task_submitted"}
    succeeded = [x["task"] for x in events if x["kind"] == "task_succeeded"]
    assert len(succeeded) == len(set(succeeded)) == 2 * TASKS
    after = {x["seq"] + 1: x["task"] for x in events if x["kind"] == "task_succeeded"}
    follows: Counter[str] = Counter()
    for each in events:
        if each["kind"] != "task_submitted" or "follows" not in each["data"]:
            continue
        parent = each["data"]["follows"]
        follows[parent] += 1
        assert after[each["seq"]] == parent, "it is not in the record of its cause"
        assert each["data"]["action"] == {"echo": "sleep", "sleep": "embed"}[action[parent]]
    assert follows == Counter(succeeded)
    assert Counter(action.values()) == {
        "echo": TASKS, "sleep": TASKS, "embed": TASKS, "fail": len(flows), "note": len(flows)
    }  # fmt: skip
    tripped = [x["data"]["workflow"] for x in events if x["kind"] == "workflow_tripped"]
    assert sorted(tripped) == sorted(flows)

"""Workers and their server are killed with SIGKILL at random, and started again.

Several worker processes share the tasks of one server. Every task is completed, none twice, each grant
has its end in the log, and nothing is left lent. `--worker-tasks 20000` makes the run of a release,
with eight of them.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from support.kill_harness import verify
from support.server_process import ServerProcess
from support.worker_process import WorkerProcess

from rota.client.calls.history import END_KINDS
from rota.client.sync_client import JsonClient

if TYPE_CHECKING:
    from pathlib import Path

WORKERS, FEWER_WORKERS = 8, 3
MANY = 10_000
KILL_EVERY_S = 1.0
START_S = 120.0
END_S = 1200.0
MODULE = """
import asyncio
import random

from rota.client import Worker

worker = Worker(concurrency=16, prefetch=8, lease_s=1.5, grace_s=2)


@worker.task("add", agent=["a0", "a1", "a2", "a3"])
async def add(ctx, x, y):
    await asyncio.sleep(random.uniform(0, 0.05))
    return x + y


@worker.task("multiply")
def multiply(ctx, x, y):
    if x % 10 == 0:
        ctx.log("a round number")
    return x * y
"""
LIMITS = {
    "maxInflight": 1000,
    "maxPerAgentInflight": 400,
    "maxQueueSize": 100_000,
    "maxPerAgent": 100_000,
}


def test_every_task_is_completed_once_whoever_is_killed(
    tmp_path: Path, worker_tasks: int, kill_seed: int
) -> None:
    chance = random.Random(kill_seed)
    (tmp_path / "adding.py").write_text(MODULE)
    server = ServerProcess(tmp_path / "data", config={"scheduler": LIMITS})
    with ExitStack() as undo, server:
        server.args = ("--port", str(server.port))
        rota = undo.enter_context(JsonClient(server.url, retries=200, timeout_s=START_S))
        made = [
            undo.enter_context(
                WorkerProcess(tmp_path, "adding:worker", server.url, name=f"worker-{n}")
            )
            for n in range(WORKERS if worker_tasks >= MANY else FEWER_WORKERS)
        ]
        done, enough = threading.Event(), threading.Event()
        counts: Counter[str] = Counter()
        args = (chance, server, made, done, enough, counts)
        killer = threading.Thread(target=_kill, args=args)
        killer.start()
        try:
            ids = _submit(rota, range(worker_tasks // 2))
            assert enough.wait(START_S)  # a fast machine would be done before the first kill
            ids += _submit(rota, range(worker_tasks // 2, worker_tasks))
            _wait_for_ends(rota, set(ids))
        finally:
            done.set()
            killer.join()
        codes = {worker.stop() for worker in made}
        assert codes <= {0, -signal.SIGTERM}, codes  # the latter by one that was only starting
        _check_log(rota, ids)
        holds = [each["holds"] for each in rota.iter_workers()]
        assert not any(holds), holds
        print(f"{len(ids)} tasks, killed: {dict(counts)}")
        assert counts["worker"]
    verify(tmp_path / "data")


def _submit(rota: JsonClient, numbers: range) -> list[str]:
    ids: list[str] = []
    for at in range(0, len(numbers), 100):
        more = numbers[at : at + 100]
        items = [
            {
                "action": ("add", "multiply")[n % 2],
                "agent": f"a{n % 4}",
                "params": {"x": n, "y": 3},
                "retry": {"max_attempts": 3, "kind": "fixed", "base_s": 0.01},
            }
            for n in more
        ]
        ids += [task["taskId"] for task in rota.submit_batch(items)["tasks"]]
    return ids


def _wait_for_ends(rota: JsonClient, left: set[str]) -> None:
    end = time.monotonic() + END_S
    for event in rota.stream(after=0, kinds=END_KINDS):
        left.discard(event["task"])
        assert time.monotonic() < end, f"{len(left)} tasks are left"
        if not left:
            return


def _kill(
    chance: random.Random,
    server: ServerProcess,
    workers: list[WorkerProcess],
    done: threading.Event,
    enough: threading.Event,
    counts: Counter[str],
) -> None:
    while not done.wait(chance.uniform(0, 2 * KILL_EVERY_S)):
        if chance.random() < 0.25:
            server.kill()
            server.start(timeout=START_S)
            counts["server"] += 1
        else:
            worker = chance.choice(workers)
            worker.kill()
            worker.start()
            counts["worker"] += 1
            enough.set()


def _check_log(rota: JsonClient, ids: list[str]) -> None:
    """Hold each task's history to the promise."""
    granted: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    succeeded: Counter[str] = Counter()
    results: dict[str, int] = {}
    kinds: Counter[str] = Counter()
    for event in rota.iter_events():
        kind, task = event["kind"], event.get("task")
        kinds[kind] += 1
        if kind == "task_assigned":
            granted[task] += 1
        elif kind in ("task_succeeded", "attempt_interrupted", "attempt_failed", "task_failed"):
            ended[task] += 1
        if kind == "task_succeeded":
            succeeded[task] += 1
            results[task] = event["data"]["result"]
    assert kinds["task_failed"] == 0, "a task was given up"
    for n, task in enumerate(ids):
        assert succeeded[task] == 1, (task, succeeded[task])
        assert granted[task] == ended[task], (task, granted[task], ended[task])
        assert results[task] == (n * 3 if n % 2 else n + 3), task

"""A server full of batches, dependencies, retries and keys is killed with SIGKILL again and again.

Whoever got no answer sends the same batch again under the same idempotency key. In the end the log
must tell of one batch a key, each finished once, with no task before its parents, no backoff cut
short and no bound exceeded.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from support.kill_harness import (
    END_S,
    GONE,
    STEP_S,
    client,
    config,
    get,
    open_log,
    post,
    verify,
)
from support.server_process import ServerProcess
from support.wishes import flat

from rota.actors.recovery import rebuild
from rota.domain import events as e
from rota.eventlog.replay import replay

if TYPE_CHECKING:
    from pathlib import Path

BACKOFF_MS = 20
CLIENTS = 4


class Sender:
    """Sends batches, and sends again what it got no answer for."""

    def __init__(self, name: int, dice: random.Random) -> None:
        self._name = name
        self._dice = dice
        self._count = 0
        self.open: list[dict[str, Any]] = []
        self.known: dict[str, str] = {}
        self.bodies: dict[str, dict[str, Any]] = {}

    def _body(self) -> dict[str, Any]:
        dice = self._dice
        self._count += 1
        retry = {"kind": "fixed", "baseMs": BACKOFF_MS, "maxAttempts": dice.randint(1, 3)}
        key = {"key": f"k{dice.randrange(3)}"} if dice.random() < 0.5 else {}
        tasks: list[dict[str, Any]] = [
            {"action": "sleep", "params": {"ms": dice.randrange(30)}, "ref": "root", **key},
            {"action": "echo", "dependsOn": ["ref:root"], "params": {"got": "{{root.sleptMs}}"}},
            {"action": "echo", "dependsOn": [0, 1], "delayMs": dice.randrange(60)},
        ]
        if dice.random() < 0.4:
            tasks += [{"action": "fail", "retry": retry}, {"action": "echo", "dependsOn": [3]}]
        body: dict[str, Any] = {"agentId": f"a{dice.randrange(4)}", "tasks": tasks}
        if dice.random() < 0.7:
            body["parallelism"] = dice.randint(1, 2)
        return {**body, "idempotencyKey": f"batch-{self._name}-{self._count}"}

    async def run(self, url: str) -> None:
        """Send until the server is gone."""
        async with client() as session:
            again, self.open = self.open, []
            repeat = self._dice.sample(sorted(self.known), min(5, len(self.known)))
            again += [self.bodies[key] for key in repeat]
            try:
                while True:
                    body = again.pop() if again else self._body()
                    self.open.append(body)
                    status, said = await post(session, f"{url}/v1/batches", body)
                    self.heard(body, status, said)
            except GONE:
                self.open += again

    def heard(self, body: dict[str, Any], status: int, said: Any) -> None:
        """Take an answer: the same batch for the same key, always."""
        key = body["idempotencyKey"]
        self.open.remove(body)
        assert status in (200, 202), said
        assert self.known.setdefault(key, said["batchId"]) == said["batchId"]
        self.bodies[key] = body


class History:
    """Reads a log from its beginning, and holds each record to the rules."""

    def __init__(self, folder: Path) -> None:
        self.batches: dict[str, str] = {}
        self.finished: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self._tasks: dict[str, Any] = {}
        self._done: set[str] = set()
        self._due: dict[str, int] = {}
        self._flying: dict[str, list[str]] = {}
        log = open_log(folder)
        try:
            for record in replay(log):
                self.seq = record.seq
                self._judge(record)
            assert not any(self._flying.values())
            assert rebuild(log).digest() == rebuild(log, use_snapshots=False).digest()
        finally:
            log.close()

    def _judge(self, record: e.Record) -> None:
        event: Any = record.event
        self.kinds[type(event).__name__] += 1
        if isinstance(event, e.BatchSubmitted):
            assert event.idempotency not in self.batches.values(), event
            self.batches[event.batch] = event.idempotency or ""
        elif isinstance(event, e.BatchFinished):
            self.finished[event.batch] += 1
        elif isinstance(event, e.TaskSubmitted):
            self._tasks[event.task] = flat(event)
        elif isinstance(event, e.TaskAssigned):
            self._assigned(event, record.at)
        elif isinstance(event, e.AttemptFailed):
            assert event.next_at - record.at >= BACKOFF_MS * 1000, record
            self._due[event.task] = event.next_at
            self._landed(event.task)
        elif isinstance(event, e.TaskSucceeded):
            self._done.add(event.task)
            self._landed(event.task)
        elif isinstance(event, e.TaskFailed | e.AttemptInterrupted):
            self._landed(event.task)

    def _assigned(self, event: e.TaskAssigned, at: int) -> None:
        task = self._tasks[event.task]
        assert set((task.depends or {}).values()) <= self._done, task
        assert at >= max(self._due.get(task.task, 0), task.not_before or 0), task
        for name, most in self._bounds(task):
            flying = self._flying.setdefault(name, [])
            flying.append(task.task)
            assert len(flying) <= most, (name, flying)

    def _landed(self, task_id: str) -> None:
        for name, _ in self._bounds(self._tasks[task_id]):
            if task_id in self._flying.get(name, ()):
                self._flying[name].remove(task_id)

    def _bounds(self, task: Any) -> list[tuple[str, int]]:
        bounds = [(f"batch {task.batch}", task.parallelism)] if task.parallelism else []
        return [*bounds, (f"key {task.key}", 1)] if task.key else bounds


def test_batches_survive_kills_whole_and_once(
    tmp_path: Path, kill_rounds: int, kill_seed: int
) -> None:
    dice = random.Random(kill_seed)
    limits = {"maxQueueSize": 100_000, "maxPerAgent": 100_000, "resultTTLSec": 2}
    server = ServerProcess(tmp_path / "data", config(**limits))
    senders = [Sender(name, random.Random(dice.random())) for name in range(CLIENTS)]

    async def load(seconds: float) -> None:
        sending = [asyncio.create_task(sender.run(server.url)) for sender in senders]
        await asyncio.sleep(seconds)
        assert await asyncio.to_thread(server.kill) == -9, server.output()
        await asyncio.gather(*sending)

    async def settle() -> None:
        async with client() as session:
            for sender in senders:
                for body in list(sender.open):
                    sender.heard(body, *await post(session, f"{server.url}/v1/batches", body))
            async with asyncio.timeout(END_S):
                while True:
                    queue = (await get(session, f"{server.url}/v1/stats"))["queue"]
                    if not queue["waiting"] and not queue["inflight"]:
                        return
                    await asyncio.sleep(STEP_S)

    try:
        for _ in range(max(5, kill_rounds // 3)):
            server.start()
            asyncio.run(load(dice.uniform(0.1, 0.5)))
        server.start()
        asyncio.run(settle())
        assert server.stop() == 0, server.output()
    finally:
        if server.returncode is None:
            server.kill()
    verify(tmp_path / "data")
    told = History(tmp_path / "data")
    known = {batch: key for sender in senders for key, batch in sender.known.items()}
    assert told.batches == known
    assert told.finished == dict.fromkeys(known, 1)
    print(f"{len(known)} batches, {told.seq} events, {dict(told.kinds)}")
    for kind in (e.AttemptFailed, e.TaskCancelled):
        assert told.kinds[kind.__name__], "the load must reach what it is meant to reach"

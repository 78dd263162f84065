"""The functions of a `Worker`, run in the in-memory scheduler, and a `Context` to call one with.

Tasks are lent to them by real leases, one after the other, on the thread of the test; time stands
still while a function runs, and its `ctx.sleep` is over at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from rota.actors import lease_messages as lm
from rota.actors import messages as m
from rota.client.calls.leases import declared_body
from rota.client.context import Context
from rota.client.threads import Threads
from rota.client.trade import wish_of
from rota.client.words import in_python
from rota.domain.commands import Outcome
from rota.domain.leases import lease_id
from rota.domain.tokens import LOCAL
from rota.domain.wants import Filter, Wants
from rota.http.lease_models import DeclareBody
from rota.http.problems import invalid
from rota.http.v1.leases import WORKER_ERROR, declared_in
from rota.http.views import native

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.actors.lent import Lent
    from rota.actors.system import Shard
    from rota.client.fields import Level
    from rota.client.worker import Worker


class RecordingContext(Context):
    """A `Context` without a server: it keeps the lines and the progress that a function tells of.

    `params` and the rest are of the attempt that it stands for; `cancel()` cancels it.
    """

    def __init__(
        self,
        params: dict[str, Any] | None = None,
        *,
        task_id: str = "tsk_1",
        agent: str = "agent-1",
        action: str = "test",
        attempt: int = 1,
        token: int = 1,
        worker_id: str = "worker-1",
        task: Mapping[str, Any] | None = None,
    ) -> None:
        shown = {"taskId": task_id, "agentId": agent, "action": action, "params": params or {}}
        super().__init__(
            {
                "leaseId": lease_id(task_id, token),
                "token": token,
                "workerId": worker_id,
                "taskId": task_id,
                "attempt": attempt,
                "params": params or {},
                "task": {**shown, "state": "running", "attempt": attempt, **(task or {})},
            }
        )
        self.lines: list[str] = []
        self.told: list[Any] = []
        """The progress that it was told of, the last one last."""
        self.slept_s = 0.0

    def log(self, *lines: object, level: Level = "info") -> None:
        self.lines += [text for line in lines for text in str(line).splitlines() or [""]]
        super().log(*lines, level=level)

    def progress(self, progress: dict[str, Any] | float | str) -> None:
        self.told.append(progress)
        super().progress(progress)

    def sleep(self, seconds: float) -> bool:
        """Come back at once, and remember for how long it would have slept."""
        self.slept_s += seconds
        return self.cancelled


class Inline(Threads):
    """Calls plain functions where they are asked for."""

    async def run(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        return function(**given)


class Waiting:
    """The reply to a worker that is there."""

    def __init__(self) -> None:
        self.lent: list[Lent] = []

    def ok(self, value: list[Lent]) -> None:
        self.lent = value

    def fail(self, error: Exception) -> None:
        raise error

    def is_awaited(self) -> bool:
        return True


class WorkerAtHand:
    """Does a worker's work whenever it is asked to."""

    def __init__(self, worker: Worker) -> None:
        """Take a worker's functions. Raises InvalidRequest if a declaration is out of range."""
        self.worker = worker
        try:
            self._declares = DeclareBody.model_validate(declared_body(worker.declared))
        except ValidationError as error:
            raise in_python(invalid(error)) from None
        self._threads = Inline("test")
        wish = wish_of(worker.functions, worker.labels, worker.lease_s, start=True)
        filters = [(each.get("agents"), each.get("types")) for each in wish["wants"]]
        self._wants = Wants(
            worker.worker_id,
            tuple(Filter(*(tuple(each) if each else None for each in pair)) for pair in filters),
            frozenset(worker.labels),
            worker.concurrency,
            round(worker.lease_s * 1000),
            start=True,
        )

    def declare(self, shard: Shard) -> None:
        """Tell a shard what the functions declare of their types."""
        said = declared_in(self._declares, LOCAL, lambda agents: agents)
        if said:
            shard.admission.tell(m.DeclareTypes(said, frozenset(), LOCAL, Waiting()))

    def serves(self, agent: str, action: str) -> bool:
        return self.worker.function_for(agent, action) is not None

    def work(self, shard: Shard, settle: Callable[[], None]) -> bool:
        """Take what there is, do it, and say what came of it; say whether there was any.

        `settle` lets the shard come to rest.
        """
        asked = Waiting()
        shard.dispatcher.tell(lm.LendTasks(self._wants, 0, asked))
        settle()
        for lent in asked.lent:
            self._do(lent, shard, settle)
        return bool(asked.lent)

    def _do(self, lent: Lent, shard: Shard, settle: Callable[[], None]) -> None:
        task, name = lent.task, lease_id(lent.task.id, lent.token)
        function = self.worker.function_for(task.agent, task.action)
        assert function is not None, task
        ctx = RecordingContext(
            orjson.loads(lent.params),
            task_id=task.id,
            agent=task.agent,
            action=task.action,
            attempt=lent.attempt,
            token=lent.token,
            worker_id=self.worker.worker_id,
            task=orjson.loads(orjson.dumps(native(task))),
        )
        came_of_it = asyncio.run(function.perform(ctx, self._threads))
        while ctx.has_notes():
            told = ctx.take_notes()
            lines, level = tuple(told.get("lines", ())), told.get("level", "info")
            note = (lines, level, told.get("progress"), None, LOCAL, Waiting())
            shard.leases.tell(lm.ExtendLease(name, task.id, lent.token, None, *note))
        outcome = lm.LeaseOutcome(name, task.id, task.agent, lent.token, _outcome(came_of_it))
        shard.leases.tell(lm.SettleLeases((outcome,), None, LOCAL, Waiting()))
        settle()


def _outcome(told: Mapping[str, Any]) -> Outcome:
    """Read what a worker would send."""
    if told["outcome"] == "complete":
        result = told["result"]
        return Outcome(ok=True, result=None if result is None else orjson.loads(result))
    after_ms = told.get("retryAfterMs")
    return Outcome(
        ok=False,
        code=told.get("code", WORKER_ERROR),
        error=told["error"],
        details=told.get("details"),
        retry_after_s=None if after_ms is None else after_ms / 1000,
        retryable=told.get("retryable"),
    )

"""Between HTTP handlers and actors.

A handler builds a command, tells an actor, and awaits a reply that comes when the facts behind it
are durable. Reads go to the projections and wait until what they saw is durable too: nobody is
shown a fact that a power cut could still take back.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rota.actors import messages as m
from rota.actors.failover import Phase
from rota.domain.notes import check_token
from rota.domain.task import TERMINAL
from rota.errors import Conflict, NotFound, ShuttingDown, StorageUnavailable
from rota.http.foresight import foresee

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pykka import ActorRef

    from rota.actors.system import Shard
    from rota.config import Settings
    from rota.domain.batch import Batch
    from rota.domain.commands import Limits, SubmitBatch, SubmitTask
    from rota.domain.task import Task
    from rota.errors import RotaError
    from rota.executors.guard import CallbackGuard


REBUILT_S = 2.0
"""How long a read waits for a state that may be read, before it is refused."""

T = TypeVar("T")
Shown = TypeVar("Shown")

GATHERED_MAX = 10


class FutureReply:
    """A reply that a coroutine can await."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        """Make the future on the running loop."""
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ok(self, value: Any) -> None:
        """Answer."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: RotaError) -> None:
        """Answer that it was not done."""
        if not self.future.done():
            self.future.set_exception(error)


class Bridge:
    """What handlers may do with a shard."""

    def __init__(self, shard: Shard, settings: Settings, guard: CallbackGuard) -> None:
        """Stand before `shard`."""
        self.shard = shard
        self.settings = settings
        self.guard = guard
        self._rebuilt: asyncio.Future[None] | None = None

    def _check_open(self) -> None:
        if self.shard.stopping:
            raise ShuttingDown("the server is stopping and takes no new work")
        failure = self.shard.journal.failure
        if failure is not None:
            raise StorageUnavailable(failure.message, hint=failure.hint)

    async def submit(
        self, commands: tuple[SubmitTask, ...]
    ) -> list[m.Admitted | m.Refused | RotaError]:
        """Submit tasks, each on its own."""
        self._check_open()
        foreseen = await foresee(self.shard.archive, commands)
        reply = FutureReply()
        self.shard.admission.tell(m.SubmitTasks(commands, reply, foreseen))
        self.shard.hurry()
        answers: list[m.Admitted | m.Refused | RotaError] = await reply.future
        return answers

    async def cancel(self, task_id: str, reason: str, by: str) -> str:
        """Cancel a task. Raises NotFound or Conflict."""
        self._check_open()
        task = self.task(task_id)
        if task.state in TERMINAL:
            state = await self.durable(lambda: self.task(task_id).state)
            details = {"taskId": task.id, "state": state.value}
            raise Conflict(f"task is already {state.value}", details=details)
        return await self._ask_queue(task.agent, m.CancelTask, task_id, reason, by)

    async def retry(self, task_id: str, by: str) -> str:
        """Give a failed task a new life. Raises NotFound or Conflict."""
        agent = self.task(task_id).agent
        return await self._ask_queue(agent, m.ReviveTask, task_id, by)

    async def submit_batch(self, command: SubmitBatch) -> m.BatchAdmitted:
        """Submit a batch, whole. Raises a RequestError."""
        foreseen = await foresee(self.shard.archive, command.tasks)
        admitted: m.BatchAdmitted = await self._ask(
            self.shard.admission, lambda reply: m.SubmitTogether(command, reply, foreseen)
        )
        return admitted

    async def cancel_batch(self, batch_id: str, reason: str, by: str) -> int:
        """Cancel what has not ended of a batch. Raises NotFound or Conflict."""
        count: int = await self._ask(
            self.shard.admission, lambda reply: m.CancelBatch(batch_id, reason, by, reply)
        )
        return count

    def batch(self, batch_id: str) -> Batch:
        """Give a batch. Raises NotFound."""
        batch = self.shard.archive.batch(batch_id)
        if batch is None:
            raise NotFound("batch not found")
        return batch

    async def note(
        self,
        task_id: str,
        *,
        lines: tuple[str, ...] = (),
        level: str = "info",
        progress: Any = None,
        by: str = "",
        token: int | None = None,
    ) -> None:
        """Add log lines or progress to a task. Raises NotFound or Conflict."""
        task = self.task(task_id)
        check_token(task, token)
        if task_id not in self.shard.state.tasks.by_id:
            raise Conflict(f"task is already {task.state.value}", details={"taskId": task.id})
        await self._ask(
            self.shard.pool,
            lambda reply: m.NoteTask(task_id, lines, level, progress, by, reply, token),
        )

    async def pause_type(self, name: str, *, paused: bool, reason: str, by: str) -> None:
        """Pause or resume a type."""
        await self._ask(
            self.shard.dispatcher, lambda reply: m.PauseType(name, paused, reason, by, reply)
        )

    async def pause_scheduler(self, *, paused: bool, reason: str, by: str) -> None:
        """Pause or resume everything."""
        await self._ask(
            self.shard.dispatcher, lambda reply: m.PauseScheduler(paused, reason, by, reply)
        )

    async def pause(self, agent: str, reason: str, by: str) -> str:
        """Pause an agent."""
        return await self._ask_queue(agent, m.PauseAgent, reason, by)

    async def resume(self, agent: str, by: str) -> str:
        """Resume an agent."""
        return await self._ask_queue(agent, m.ResumeAgent, by)

    async def _ask_queue(self, agent: str, message: Any, *values: Any) -> str:
        answer: str = await self._ask(
            self.shard.queue(agent), lambda reply: message(*values, reply)
        )
        return answer

    async def _ask(self, actor: ActorRef[Any], message: Callable[[FutureReply], Any]) -> Any:
        """Tell an actor something that wants an answer, and wait for it."""
        self._check_open()
        reply = FutureReply()
        actor.tell(message(reply))
        return await reply.future

    async def change_limits(self, limits: Limits, source: str, by: str) -> list[str]:
        """Put other limits in force; give the names of those that changed."""
        changed: list[str] = await self._ask(
            self.shard.admission, lambda reply: m.ChangeLimits(limits, source, by, reply)
        )
        return changed

    def task(self, task_id: str) -> Task:
        """Give a task. Raises NotFound."""
        task = self.shard.archive.task(task_id)
        if task is None:
            raise NotFound("task not found")
        return task

    async def durable(self, look: Callable[[], T]) -> T:
        """Look, and give what was seen when everything it was made from is durable."""
        await self.readable()
        value = look()
        journal = self.shard.journal
        if journal.failure is not None or journal.durable_seq >= self.shard.state.seq:
            return value
        reply = FutureReply()
        journal.answer(reply, None)
        try:
            await reply.future
        except StorageUnavailable:
            await self.readable()
            return look()  # what was seen is gone; the state was rebuilt from the log
        return value

    async def readable(self) -> None:
        """Wait while the state is being rebuilt after a failure, but not for long."""
        failover = self.shard.failover
        if self.shard.journal.failure is not None and failover.phase is Phase.RUNNING:
            await asyncio.sleep(0)  # a fact could not be folded: the rebuilding begins at once
        if failover.phase is not Phase.REBUILDING:
            return
        if self._rebuilt is None or self._rebuilt.done():
            reply = FutureReply()
            self._rebuilt = reply.future
            failover.when_readable(lambda: reply.ok(None))
        await asyncio.wait([self._rebuilt], timeout=REBUILT_S)

    async def gathered(
        self, gather: Callable[[], Awaitable[T]], show: Callable[[T], Shown]
    ) -> Shown:
        """Show what takes several turns of the loop to gather, when all of it is durable.

        What was gathered from a state that has been replaced since may never have become a fact: it
        is gathered again.
        """
        for _ in range(GATHERED_MAX):
            state = self.shard.state
            shown = await self.durable(partial(show, await gather()))
            if self.shard.state is state:
                return shown
        raise StorageUnavailable("the log fails again and again", hint="try again later")

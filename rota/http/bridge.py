"""Between HTTP handlers and actors.

A handler builds a command, tells an actor, and awaits a reply that comes when the facts behind it
are durable. Reads go to the projections and wait until what they saw is durable too: nobody is
shown a fact that a power cut could still take back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from rota.actors import messages as m
from rota.domain.task import TERMINAL
from rota.errors import Conflict, NotFound, ShuttingDown, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.system import Shard
    from rota.config import Settings
    from rota.domain.commands import Limits, SubmitTask
    from rota.domain.task import Task
    from rota.errors import RotaError
    from rota.executors.guard import CallbackGuard


T = TypeVar("T")


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

    def _check_open(self) -> None:
        if self.shard.stopping:
            raise ShuttingDown("the server is stopping and takes no new work")
        failure = self.shard.journal.failure
        if failure is not None:
            raise StorageUnavailable(failure.message, hint=failure.hint)

    async def submit(self, commands: tuple[SubmitTask, ...]) -> list[m.Admitted | m.Refused]:
        """Submit tasks, each on its own."""
        self._check_open()
        reply = FutureReply()
        self.shard.admission.tell(m.SubmitTasks(commands, reply))
        self.shard.hurry()
        answers: list[m.Admitted | m.Refused] = await reply.future
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

    async def pause(self, agent: str, reason: str, by: str) -> str:
        """Pause an agent."""
        return await self._ask_queue(agent, m.PauseAgent, reason, by)

    async def resume(self, agent: str, by: str) -> str:
        """Resume an agent."""
        return await self._ask_queue(agent, m.ResumeAgent, by)

    async def _ask_queue(self, agent: str, message: Any, *values: Any) -> str:
        self._check_open()
        reply = FutureReply()
        queue: ActorRef[Any] = self.shard.queue(agent)
        queue.tell(message(*values, reply))
        answer: str = await reply.future
        return answer

    async def change_limits(self, limits: Limits, source: str, by: str) -> list[str]:
        """Put other limits in force; give the names of those that changed."""
        self._check_open()
        reply = FutureReply()
        self.shard.admission.tell(m.ChangeLimits(limits, source, by, reply))
        changed: list[str] = await reply.future
        return changed

    def task(self, task_id: str) -> Task:
        """Give a task. Raises NotFound."""
        task = self.shard.archive.task(task_id)
        if task is None:
            raise NotFound("task not found")
        return task

    async def durable(self, look: Callable[[], T]) -> T:
        """Look, and give what was seen when everything it was made from is durable."""
        value = look()
        journal = self.shard.journal
        if journal.failure is not None or journal.durable_seq >= self.shard.state.seq:
            return value
        reply = FutureReply()
        journal.answer(reply, None)
        try:
            await reply.future
        except StorageUnavailable:
            return look()  # what was seen is gone; the state was rebuilt from the log
        return value

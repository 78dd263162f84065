"""Between HTTP handlers and actors: what handlers may do.

A handler builds a command, tells an actor, and awaits a reply that comes when the facts behind it
are durable. What handlers may see is `rota/sight`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.actors.answer import Answer
from rota.domain.notes import check_token
from rota.domain.task import TERMINAL
from rota.domain.tokens import LOCAL
from rota.errors import Conflict
from rota.sight.feed import Feed
from rota.sight.sight import Sight

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.system import Shard
    from rota.config import Settings
    from rota.domain.commands import Limits
    from rota.domain.events import TokenCreated
    from rota.domain.intake import BatchRequest, Request, Rules
    from rota.domain.tokens import NewToken
    from rota.errors import RotaError
    from rota.executors.guard import CallbackGuard


class Bridge:
    """What handlers may do with a shard."""

    def __init__(self, shard: Shard, settings: Settings, guard: CallbackGuard) -> None:
        self.shard = shard
        self.sight = Sight(shard)
        self.feed = Feed(shard)
        self.settings = settings
        self.guard = guard

    def sight_for(self, by: str) -> Sight:
        """Give what whoever has this bridge may see: all; scoped_bridge.py has less."""
        del by
        return self.sight

    async def submit(
        self, requests: tuple[Request, ...]
    ) -> list[m.Admitted | m.Refused | RotaError]:
        """Submit tasks, each on its own. Raises InvalidRequest if one cannot be meant so."""
        self.shard.check_open()
        reply = Answer()
        self.shard.admission.tell(m.SubmitTasks(requests, reply))
        self.shard.hurry()
        answers: list[m.Admitted | m.Refused | RotaError] = await reply.future
        return answers

    async def cancel(self, task_id: str, reason: str, by: str) -> str:
        """Cancel a task. Raises NotFound or Conflict."""
        self.shard.check_open()
        sight = self.sight_for(by)
        task = await sight.task(task_id)
        if task.state in TERMINAL:
            state = await sight.show_task(task_id, lambda task: task.state)
            details = {"taskId": task.id, "state": state.value}
            raise Conflict(f"task is already {state.value}", details=details)
        return await self._ask_queue(task.agent, m.CancelTask, task_id, reason, by)

    async def retry(self, task_id: str, by: str) -> str:
        """Give a failed task a new life. Raises NotFound or Conflict."""
        agent = (await self.sight_for(by).task(task_id)).agent
        return await self._ask_queue(agent, m.ReviveTask, task_id, by)

    async def submit_batch(self, batch: BatchRequest) -> m.BatchAdmitted:
        """Submit a batch, whole. Raises a RequestError."""
        admitted: m.BatchAdmitted = await self._ask(
            self.shard.admission, lambda reply: m.SubmitTogether(batch, reply)
        )
        return admitted

    async def cancel_batch(self, batch_id: str, reason: str, by: str) -> int:
        """Cancel what has not ended of a batch. Raises NotFound or Conflict."""
        sight = self.sight_for(by)
        if not sight.sees_all:
            await sight.show_batch(batch_id, lambda *_: None)
        count: int = await self._ask(
            self.shard.admission, lambda reply: m.CancelBatch(batch_id, reason, by, reply)
        )
        return count

    async def note(
        self,
        task_id: str,
        *,
        lines: tuple[str, ...] = (),
        level: str = "info",
        progress: Any = None,
        by: str = LOCAL,
        token: int | None = None,
    ) -> None:
        """Add log lines or progress to a task. Raises NotFound or Conflict."""
        sight = self.sight_for(by)
        task = await sight.task(task_id)
        check_token(task, token)
        if not sight.is_in_memory(task_id):
            raise Conflict(f"task is already {task.state.value}", details={"taskId": task.id})
        await self._ask(
            self.shard.pool,
            lambda reply: m.NoteTask(task_id, lines, level, progress, by, reply, token),
        )

    async def pause_type(self, name: str, *, paused: bool, reason: str, by: str) -> None:
        await self._ask(
            self.shard.dispatcher, lambda reply: m.PauseType(name, paused, reason, by, reply)
        )

    async def pause_scheduler(self, *, paused: bool, reason: str, by: str) -> None:
        await self._ask(
            self.shard.dispatcher, lambda reply: m.PauseScheduler(paused, reason, by, reply)
        )

    async def pause(self, agent: str, reason: str, by: str) -> str:
        return await self._ask_queue(agent, m.PauseAgent, reason, by)

    async def resume(self, agent: str, by: str) -> str:
        return await self._ask_queue(agent, m.ResumeAgent, by)

    async def create_token(self, wanted: NewToken, taken: frozenset[str], by: str) -> TokenCreated:
        """Make a token whose name is none of `taken`. Raises a RequestError."""
        made: TokenCreated = await self._ask(
            self.shard.admission, lambda reply: m.CreateToken(wanted, taken, by, reply)
        )
        return made

    async def revoke_token(self, name: str, by: str) -> str:
        """Take a token back. Raises NotFound."""
        revoked: str = await self._ask(
            self.shard.admission, lambda reply: m.RevokeToken(name, by, reply)
        )
        return revoked

    async def _ask_queue(self, agent: str, message: Any, *values: Any) -> str:
        answer: str = await self._ask(
            self.shard.queue(agent), lambda reply: message(*values, reply)
        )
        return answer

    async def _ask(self, actor: ActorRef[Any], message: Callable[[Answer], Any]) -> Any:
        self.shard.check_open()
        reply = Answer()
        actor.tell(message(reply))
        return await reply.future

    async def change_limits(self, limits: Limits, rules: Rules, source: str, by: str) -> list[str]:
        """Put other limits and rules in force; give the names of the limits that changed."""
        changed: list[str] = await self._ask(
            self.shard.admission, lambda reply: m.ChangeLimits(limits, source, by, reply, rules)
        )
        self.shard.configure(limits, rules)
        return changed

    @property
    def rules(self) -> Rules:
        return self.shard.rules_in_force

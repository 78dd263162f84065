"""Between HTTP handlers and actors: what handlers may do.

A handler builds a command, tells an actor, and awaits a reply that comes when the facts behind it
are durable. What handlers may see is `rota/sight`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import bulk_messages as bm
from rota.actors import lease_messages as lm
from rota.actors import messages as m
from rota.actors.answer import Answer
from rota.actors.lent import Settled
from rota.domain.leases import named_by, stale
from rota.domain.notes import check_token
from rota.domain.task import RELEASED, SCHEDULED, TERMINAL
from rota.domain.tokens import LOCAL, by_worker
from rota.errors import Conflict, RotaError
from rota.http.project_bridge import ProjectsBridge
from rota.http.schedule_bridge import SchedulesBridge
from rota.sight.feed import Feed
from rota.sight.sight import Sight

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pykka import ActorRef

    from rota.actors.lent import Heard, Lent
    from rota.actors.system import Shard
    from rota.config import Settings
    from rota.domain.bulk import Change, Filter
    from rota.domain.commands import Limits, Outcome
    from rota.domain.declared import Declared, Key
    from rota.domain.events import TokenCreated
    from rota.domain.intake import BatchRequest, Request, Rules
    from rota.domain.task import Task
    from rota.domain.tokens import NewToken
    from rota.domain.wants import Wants
    from rota.executors.guard import CallbackGuard


class Asked:
    """A worker that waits for tasks."""

    def __init__(self, shard: Shard) -> None:
        self.reply = Answer()
        self._shard = shard

    async def answer(self) -> list[Lent]:
        lent: list[Lent] = await self.reply.future
        return lent

    def wait_no_longer(self) -> None:
        """Have it answered: with what it was given, if anything."""
        self._shard.dispatcher.tell(lm.LeaveLine(self.reply))

    def leave(self) -> None:
        """Have it forgotten: what it was given by then goes back."""
        self.reply.ok([])
        self.wait_no_longer()


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

    @property
    def projects(self) -> ProjectsBridge:
        return ProjectsBridge(self)

    @property
    def schedules(self) -> SchedulesBridge:
        return SchedulesBridge(self)

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
        task = await self._unended(task_id, by)
        return await self._ask_queue(task.agent, m.CancelTask, task_id, reason, by)

    async def _unended(self, task_id: str, by: str) -> Task:
        """Give a task that can be changed. Raises NotFound or Conflict."""
        self.shard.check_open()
        sight = self.sight_for(by)

        async def unended() -> Task:
            task = await sight.task(task_id)
            if task.state in TERMINAL:
                raise _ended(task)
            return task

        return await sight.checked(unended)

    async def retry(self, task_id: str, by: str) -> str:
        """Give a failed task a new life. Raises NotFound or Conflict."""
        agent = (await self.sight_for(by).task(task_id)).agent
        revived: m.Revived = await self.ask(
            self.shard.queue(agent), lambda reply: m.ReviveTask(task_id, by, reply)
        )
        return revived.task

    async def reprioritise(self, task_id: str, priority: int, by: str) -> str:
        """Give a task another priority; give its state. Raises NotFound or Conflict."""
        await self._unended(task_id, by)
        found: str = await self.ask(
            self.shard.bulk, lambda reply: bm.ReprioritiseTask(task_id, priority, by, reply)
        )
        return found

    async def change(
        self, task_ids: Sequence[str], meant: Filter, change: Change, by: str
    ) -> bm.Changed:
        """Do something with a slice of many tasks, which the caller may see."""
        changed: bm.Changed = await self.ask(
            self.shard.bulk,
            lambda reply: bm.ChangeTasks(tuple(task_ids), meant, change, by, reply),
        )
        return changed

    async def revive(
        self, task_id: str, by: str, params: dict[str, Any] | None = None, *, dependents: bool
    ) -> m.Revived:
        """Give a dead task a new life, and its dependents if asked for.

        Raises NotFound, Conflict or QueueFull.
        """
        sight = self.sight_for(by)
        agent = (await sight.task(task_id)).agent
        doomed = await sight.doomed_by(task_id) if dependents else ()
        revived: m.Revived = await self.ask(
            self.shard.queue(agent),
            lambda reply: m.ReviveTask(
                task_id, by, reply, params=params, dependents=doomed, is_any=True
            ),
        )
        return revived

    async def submit_batch(self, batch: BatchRequest) -> m.BatchAdmitted:
        """Submit a batch, whole. Raises a RequestError."""
        admitted: m.BatchAdmitted = await self.ask(
            self.shard.admission, lambda reply: m.SubmitTogether(batch, reply)
        )
        return admitted

    async def cancel_batch(self, batch_id: str, reason: str, by: str) -> int:
        """Cancel what has not ended of a batch. Raises NotFound or Conflict."""
        sight = self.sight_for(by)
        if not sight.sees_all:
            await sight.show_batch(batch_id, lambda *_: None)
        count: int = await self.ask(
            self.shard.admission, lambda reply: m.CancelBatch(batch_id, reason, by, reply)
        )
        return count

    async def steer(self, workflow_id: str, how: str, reason: str, by: str) -> str:
        """Cancel, pause, resume or close a workflow; give its state. Raises NotFound, Conflict."""
        sight = self.sight_for(by)
        if not sight.sees_all:
            await sight.show_workflow(workflow_id, lambda *_: None)
        state: str = await self.ask(
            self.shard.orchestrator,
            lambda reply: m.SteerWorkflow(workflow_id, how, reason, by, reply),
        )
        return state

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

        async def in_memory() -> None:
            task = await sight.task(task_id)
            check_token(task, token)
            if not sight.is_in_memory(task_id):
                raise _ended(task)

        await sight.checked(in_memory)
        await self.ask(
            self.shard.pool,
            lambda reply: m.NoteTask(task_id, lines, level, progress, by, reply, token),
        )

    # -- leases

    def lend(self, wants: Wants, wait_ms: int) -> Asked:
        """Have a worker wait for tasks. Raises ShuttingDown or StorageUnavailable."""
        self.shard.check_open()
        asked = Asked(self.shard)
        self.shard.dispatcher.tell(lm.LendTasks(wants, wait_ms * 1000, asked.reply))
        self.shard.hurry()
        return asked

    def give_back(self, lent: list[Lent]) -> None:
        """Put tasks back that their worker cannot be told of."""
        back = tuple((each.task.id, each.token) for each in lent)
        self.shard.leases.tell(lm.GiveBack(back, RELEASED))

    async def tell_settled(
        self, said: Sequence[tuple[str, int, Outcome | None]], worker: str | None, by: str
    ) -> Awaitable[list[Settled | RotaError]]:
        """Take what a worker says of its leases; give what will say what became of each."""
        sight = self.sight_for(by)
        found = await sight.leased([name for name, _, _ in said])
        speaker = None if worker is None else by_worker(by, worker)
        outcomes: list[lm.LeaseOutcome] = []
        answers: dict[int, Settled | RotaError] = {}
        for at, (name, token, outcome) in enumerate(said):
            task = found[name]
            if isinstance(task, RotaError):
                answers[at] = task
            elif token != named_by(name)[1]:
                answers[at] = stale(task, "the token is not this lease's")
            elif await sight.was_accepted(task, token, outcome, speaker):
                answers[at] = await sight.show_task(task.id, _repeated)
            else:
                outcomes.append(lm.LeaseOutcome(name, task.id, task.agent, token, outcome))
        self.shard.check_open()
        reply = Answer()
        self.shard.leases.tell(lm.SettleLeases(tuple(outcomes), worker, by, reply))
        self.shard.hurry()
        return self._in_order(reply, answers)

    @staticmethod
    async def _in_order(
        reply: Answer, known: dict[int, Settled | RotaError]
    ) -> list[Settled | RotaError]:
        settled: list[Settled | RotaError] = list(await reply.future)
        for at, answer in known.items():  # which come in order
            settled.insert(at, answer)
        return settled

    async def settle_leases(
        self, said: Sequence[tuple[str, int, Outcome | None]], worker: str | None, by: str
    ) -> list[Settled | RotaError]:
        return await (await self.tell_settled(said, worker, by))

    async def extend_lease(
        self,
        name: str,
        token: int,
        *,
        worker: str | None,
        lines: tuple[str, ...],
        level: str,
        progress: Any,
        lease_ms: int | None,
        by: str,
    ) -> Heard:
        """Let a lease live on. Raises NotFound or Conflict."""
        sight = self.sight_for(by)

        async def held() -> Task:
            task = (await sight.leased([name]))[name]
            if isinstance(task, RotaError):
                raise task
            if token != named_by(name)[1]:
                raise stale(task, "the token is not this lease's")
            return task

        task = await sight.checked(held)
        heard: Heard = await self.ask(
            self.shard.leases,
            lambda reply: lm.ExtendLease(
                name, task.id, token, worker, lines, level, progress, lease_ms, by, reply
            ),
        )
        return heard

    async def pause_type(self, name: str, *, paused: bool, reason: str, by: str) -> None:
        await self.ask(
            self.shard.dispatcher, lambda reply: m.PauseType(name, paused, reason, by, reply)
        )

    async def pause_scheduler(self, *, paused: bool, reason: str, by: str) -> None:
        await self.ask(
            self.shard.dispatcher, lambda reply: m.PauseScheduler(paused, reason, by, reply)
        )

    async def pause(self, agent: str, reason: str, by: str) -> str:
        return await self._ask_queue(agent, m.PauseAgent, reason, by)

    async def resume(self, agent: str, by: str) -> str:
        return await self._ask_queue(agent, m.ResumeAgent, by)

    async def create_token(self, wanted: NewToken, taken: frozenset[str], by: str) -> TokenCreated:
        """Make a token whose name is none of `taken`. Raises a RequestError."""
        made: TokenCreated = await self.ask(
            self.shard.admission, lambda reply: m.CreateToken(wanted, taken, by, reply)
        )
        return made

    async def declare_types(
        self, said: dict[Key, Declared], taken: frozenset[str], by: str
    ) -> list[bool]:
        """Keep what a worker declares; say of each whether it holds. Raises QueueFull."""
        holds: list[bool] = await self.ask(
            self.shard.admission, lambda reply: m.DeclareTypes(said, taken, by, reply)
        )
        return holds

    async def revoke_token(self, name: str, by: str) -> str:
        """Take a token back. Raises NotFound."""
        revoked: str = await self.ask(
            self.shard.admission, lambda reply: m.RevokeToken(name, by, reply)
        )
        return revoked

    async def _ask_queue(self, agent: str, message: Any, *values: Any) -> str:
        answer: str = await self.ask(self.shard.queue(agent), lambda reply: message(*values, reply))
        return answer

    async def ask(self, actor: ActorRef[Any], message: Callable[[Answer], Any]) -> Any:
        self.shard.check_open()
        reply = Answer()
        actor.tell(message(reply))
        return await reply.future

    def why_paused(self, agent: str, action: str) -> str | None:
        """Say which pause will keep a task waiting that was just submitted; None if none will."""
        control = self.shard.state.control
        is_any = control.paused or control.paused_types or control.stopped is not None
        return control.why_paused(agent, action) if is_any else None

    async def change_limits(self, limits: Limits, rules: Rules, source: str, by: str) -> list[str]:
        """Put other limits and rules in force; give the names of the limits that changed."""
        changed: list[str] = await self.ask(
            self.shard.admission, lambda reply: m.ChangeLimits(limits, source, by, reply, rules)
        )
        self.shard.configure(limits, rules)
        return changed

    @property
    def rules(self) -> Rules:
        return self.shard.rules_in_force


def _ended(task: Task) -> Conflict:
    state = task.state.value
    return Conflict(f"task is already {state}", details={"taskId": task.id, "state": state})


def _repeated(task: Task) -> Settled:
    next_at = task.next_at if task.state is SCHEDULED else 0
    return Settled(task.id, task.state.value, next_at, is_repeated=True)

"""The simulated clients: they ask for things, and check that the answers are true.

Answers come when everything they rest on is durable, so they are checked against the log and the
model at that moment.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
from support.sim_model import FINAL
from support.sim_outside import SimReply
from support.sim_work import ACTIONS

from rota.actors import bulk_messages as bm
from rota.actors import messages as m
from rota.domain.bulk import CANCEL, LIVE, REPRIORITISE, Change, Filter
from rota.domain.intake import Request
from rota.domain.task import READY
from rota.eventlog.replay import stored_of
from rota.projections.control import limits_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from support.simulation import World

    from rota.domain.intake import BatchRequest

RECENT = 20
BULK_SLICE = 3
S = 1_000_000


class Clients:
    """Everybody who sends requests."""

    def __init__(self, world: World) -> None:
        """Belong to a world."""
        self._world = world
        self._rng = world.rng

    def _reply(
        self,
        kind: str,
        on_ok: Callable[[Any], None],
        on_fail: Callable[[str, Any], None] | None = None,
    ) -> SimReply:
        return SimReply(self._world, kind, on_ok, on_fail)

    def _recent(self, many: int = RECENT) -> list[str]:
        return list(self._world.model.tasks)[-many:]

    def parents(self) -> list[str]:
        """Name recent tasks that one may depend on, and now and then one that was rejected."""
        state_of, rng = self._world.model.state_of, self._rng
        return [t for t in self._recent() if state_of(t) != "rejected" or rng.random() < 0.1]

    # -- submissions ---------------------------------------------------------------------------

    def submit(self) -> None:
        """Submit a task, or some at once."""
        world, rng = self._world, self._rng
        if world.draining:
            return
        now, recent = world.clock.wall_us(), self.parents()
        many = 1 if rng.random() < 0.8 else rng.randint(2, 5)
        commands = tuple(world.work.task(now, recent) for _ in range(many))
        world.trace("submit %s", commands)

        def check(answers: list[Any]) -> None:
            for command, answer in zip(commands, answers, strict=True):
                self._check_answer(command, answer)

        reply = self._reply("submit", check)
        world.shard.admission.tell(m.SubmitTasks(commands, reply))

    def _check_answer(self, command: Request, answer: Any) -> None:
        world = self._world
        if type(answer) is m.Refused and answer.counted:
            world.counted += 1
        elif type(answer) is m.Refused:
            world.acknowledged(answer.task, "task_rejected")
        elif type(answer) is not m.Admitted:
            self._check_refusal(command, (command,), answer.code, answer)
        else:
            world.acknowledged(answer.task, "task_submitted")
            found = world.model.tasks[answer.task]
            world.counts[answer.known or "admitted"] += 1
            if not answer.known:
                true = found.event.action == command.action and found.by == command.by
                true = true and answer.task == (command.wanted_id or answer.task)
            elif answer.known == "idempotent":
                said = (found.event.idempotency, found.event.digest, found.by)
                true = said == (command.plan.idempotency, command.plan.digest, command.by)
            else:
                same = command.dedup is not None and found.event.dedup == command.dedup.key
                true = same and command.dedup.mode == "return" and found.by == command.by
            if not true:
                world.violated(f"{answer} is no answer to {command}")

    def batch(self) -> None:
        """Submit a batch."""
        self._submit_batch(*self._world.work.batch(self._world.clock.wall_us(), self.parents()))

    def wide_batch(self) -> None:
        """Submit a batch of some hundred."""
        self._submit_batch(*self._world.work.wide_batch(self._world.clock.wall_us(), []))

    def _submit_batch(self, batch: BatchRequest, shape: str) -> None:
        world = self._world
        if world.draining:
            return
        world.trace("submit a batch (%s): %s", shape, batch)

        def check(answer: m.BatchAdmitted) -> None:
            world.acknowledged(answer.batch, "batch_submitted")
            event = world.model.batches.known[answer.batch]
            said = (event.idempotency, event.digest)
            if answer.known and said != (batch.idempotency, batch.digest):
                world.violated(f"{answer} is no answer to {batch}")
            if event.tasks != [each.task for each in answer.tasks]:
                world.violated(f"the answer names other tasks than {answer.batch} has")
            world.counts[f"{answer.known or 'admitted'} batch"] += 1
            for each in answer.tasks:
                world.acknowledged(each.task, "task_submitted")

        def check_refusal(code: str, error: Any) -> None:
            if code == "queue_full":
                if "batchId" in error.details:
                    world.acknowledged(error.details["batchId"], "batch_rejected")
            elif code != "bad_request" or shape != "bad":
                self._check_refusal(batch, batch.tasks, code, error)

        reply = self._reply("batch", check, check_refusal)
        world.shard.admission.tell(m.SubmitTogether(batch, reply))

    def _check_refusal(
        self, request: Request | BatchRequest, tasks: Sequence[Request], code: str, error: Any
    ) -> None:
        """Look whether there is a reason to refuse."""
        world, model = self._world, self._world.model
        world.counts[code] += 1
        said = request.plan if isinstance(request, Request) else request
        keys = {said.idempotency}
        subjects: list[Any] = [*model.batches.known.values()]
        subjects += [task.event for task in model.tasks.values()]
        if code == "idempotency_conflict":
            digests = {s.digest for s in subjects if getattr(s, "idempotency", None) in keys}
            true = said.idempotency is not None and bool(digests - {said.digest})
        elif code == "unprocessable":
            true = any(getattr(s, "idempotency", None) in keys for s in subjects)
            true = true and said.idempotency is not None
        elif code == "duplicate":
            other = model.tasks[error.details["taskId"]].event
            dedup = tasks[0].dedup
            true = dedup is not None and dedup.mode == "reject" and other.dedup == dedup.key
        elif code == "id_taken":
            wanted = [task.wanted_id for task in tasks]
            taken = error.details["taskId"]
            true = taken in wanted and (taken in model.tasks or wanted.count(taken) > 1)
        elif code == "missing_dependency":
            true = any(task.on_missing == "fail" for task in tasks)
        elif code == "dependency_rejected":
            true = model.state_of(error.details["taskId"]) == "rejected"
        elif code == "dependency_cycle":
            true = self._is_cycle(error.details["path"], tasks)
        elif code == "batch_too_large_for_queue":
            true = self._can_never_fit(tasks)
        elif code == "bad_request":  # the clock went on while the request was under way
            late = [task.deadline for task in tasks if task.deadline is not None]
            true = "in the past" in str(error) and min(late) <= self._latest() + S
        else:
            true = False
        if not true:
            world.violated(f"there was no reason for {code}: {error} of {request}")

    def _latest(self) -> int:
        """Give the latest time that the clock showed while whoever is answered waited."""
        reply = self._world.answering
        return reply.latest if reply is not None else 0

    def _can_never_fit(self, tasks: Sequence[Request]) -> bool:
        """Look whether a batch is larger than one of the limits that may have been in force."""
        agents = Counter(task.agent for task in tasks if task.dialect != "browseros")
        wides = [limits_from(e["data"]["settings"]) for e in self._settings()]
        return any(
            len(tasks) > each.queued or max(agents.values(), default=0) > each.queued_per_agent
            for each in wides
        )

    def _settings(self) -> Iterator[dict[str, Any]]:
        """Give the records that put limits in force."""
        for item in self._world.log.read(0, 1 << 30):
            if b'"settings":' in item.body:
                yield orjson.loads(item.body)

    def _is_cycle(self, path: list[str], tasks: Sequence[Request]) -> bool:
        """Look whether each step of a path is there, as far as it is between known tasks."""
        tasks_known = self._world.model.tasks
        wanted = {task.wanted_id for task in tasks}
        known = [at for at in path[:-1] if at in tasks_known and at not in wanted]
        steps = pairwise(path)
        if any(at in known and to not in tasks_known[at].parents for at, to in steps):
            return False
        return path[0] == path[-1] and 0 < len(path) - 1 - len(known) <= len(tasks)

    # -- what is done to tasks -----------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel a task."""
        world = self._world
        if not world.model.tasks:
            return
        task = world.model.tasks[self._rng.choice(self._recent())]
        world.trace("cancel %s", task.id)
        reply = self._reply("cancel", lambda name: world.acknowledged(name, "task_cancelled"))
        reason = self._rng.choice(("", "no longer wanted"))
        world.shard.queue(task.agent).tell(m.CancelTask(task.id, reason, "sim", reply))

    def reprioritise(self) -> None:
        """Give a task another priority, mostly one that waits."""
        world, rng = self._world, self._rng
        recent = self._recent(40)
        if not recent:
            return
        ready = [each for each in recent if world.model.state_of(each) == "ready"]
        task_id, priority = rng.choice(ready or recent), rng.randrange(4)
        world.trace("reprioritise %s to %d", task_id, priority)

        def check(state: str) -> None:
            task = world.model.tasks[task_id]
            if task.event.priority != priority:
                world.acknowledged(task_id, "task_reprioritised")
            if state in FINAL:
                world.violated(f"{task_id} was {state}, and is said to have another priority")

        message = bm.ReprioritiseTask(task_id, priority, "sim", self._reply("reprioritise", check))
        world.shard.bulk.tell(message)

    def bulk(self) -> None:
        """Cancel many tasks, or give them another priority, a slice at a time."""
        rng = self._rng
        if rng.random() < 0.4:
            change = Change(CANCEL, reason="sim")
        else:
            change = Change(REPRIORITISE, priority=rng.randrange(4))
        agent = rng.choice(self._world.work.agents)
        meant = Filter(rng.choice((LIVE, frozenset({READY}))), agent)
        tasks = self._world.model.tasks.values()
        found = [each.id for each in tasks if each.agent == agent and each.state not in FINAL]
        self._world.trace("%s %d tasks of %s", change, len(found), agent)
        self._bulk_slice(found[::-1], meant, change)

    def _bulk_slice(self, ids: list[str], meant: Filter, change: Change) -> None:
        """Send a slice, and the next when it is answered; after a failure the rest is left."""
        world = self._world
        some, rest = ids[:BULK_SLICE], ids[BULK_SLICE:]
        if not some:
            return

        def check(done: bm.Changed) -> None:
            kind = "task_cancelled" if change.how == CANCEL else "task_reprioritised"
            changed = [each for each in some if self._has(each, kind)]
            if len(changed) < done.changed or done.changed + sum(done.refused.values()) != len(
                some
            ):
                world.violated(f"{done} of {some} is not what the log tells")
            self._bulk_slice(rest, meant, change)

        reply = self._reply("bulk", check)
        world.shard.bulk.tell(bm.ChangeTasks(tuple(some), meant, change, "sim", reply))

    def revive(self) -> None:
        """Give a task another life, mostly one that has failed."""
        world, rng = self._world, self._rng
        recent = self._recent(40)
        if not recent:
            return
        failed = [each for each in recent if world.model.state_of(each) == "failed"]
        keyed = [each for each in failed if world.model.tasks[each].event.dedup is not None]
        task = world.model.tasks[rng.choice(keyed or failed or recent)]
        world.trace("revive %s", task.id)
        reply = self._reply("revive", lambda name: world.acknowledged(name.task, "task_revived"))
        world.shard.queue(task.agent).tell(m.ReviveTask(task.id, "sim", reply))

    def cancel_batch(self) -> None:
        """Cancel a batch."""
        world = self._world
        batches = list(world.model.batches.known)[-5:]
        if not batches:
            return
        batch_id = self._rng.choice(batches)
        world.trace("cancel batch %s", batch_id)

        def check(many: int) -> None:
            members = world.model.batches.members_of(batch_id)
            cancelled = [each for each in members if self._is_cancelled(each)]
            if many < 1 or len(cancelled) < many:
                world.violated(f"{many} tasks of {batch_id} were said to be cancelled")

        message = m.CancelBatch(batch_id, "", "sim", self._reply("cancel_batch", check))
        world.shard.admission.tell(message)

    def _is_cancelled(self, task_id: str) -> bool:
        return self._has(task_id, "task_cancelled")

    def _has(self, task_id: str, kind: str) -> bool:
        needle = f'"kind":"{kind}"'.encode()
        return any(needle in item.body for item in stored_of(self._world.log, task_id))

    def note(self) -> None:
        """Add to a task's log from outside."""
        world, rng = self._world, self._rng
        recent = self._recent()
        if not recent:
            return
        task_id = rng.choice(recent)
        lines = tuple("y" * rng.choice((1, 20, 200)) for _ in range(rng.choice((0, 1, 5, 10))))
        progress = rng.choice((None, 0.5, {"page": 2}))

        def check(many: int) -> None:
            if many:
                kind = "task_logged" if lines else "task_progressed"
                world.acknowledged(task_id, kind if many == 1 else "task_logged")

        reply = self._reply("note", check)
        message = m.NoteTask(task_id, lines, "info", progress, "sim", reply)
        world.shard.pool.tell(message)

    # -- control -------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause or resume an agent, a type or everything."""
        rng = self._rng
        what = rng.choice(("agent", "agent", "type", "scheduler"))
        if what == "agent":
            self.pause_agent(rng.choice(self._world.work.agents), paused=rng.random() < 0.4)
        elif what == "type":
            self.pause_type(rng.choice(ACTIONS), paused=rng.random() < 0.4)
        else:
            self.pause_scheduler(paused=rng.random() < 0.3)

    def resume_all(self) -> None:
        """Let everything go on."""
        for agent in self._world.work.agents:
            self.pause_agent(agent, paused=False)
        for action in ACTIONS:
            self.pause_type(action, paused=False)
        self.pause_scheduler(paused=False)

    def pause_agent(self, agent: str, *, paused: bool) -> None:
        """Pause or resume an agent."""
        reply = self._told_in_log("agent_paused", f'"agent":"{agent}"', paused=paused)
        message = m.PauseAgent("", "sim", reply) if paused else m.ResumeAgent("sim", reply)
        self._world.shard.queue(agent).tell(message)

    def pause_type(self, action: str, *, paused: bool) -> None:
        """Pause or resume a type."""
        reply = self._told_in_log("type_paused", f'"type":"{action}"', paused=paused)
        self._world.shard.dispatcher.tell(m.PauseType(action, paused, "", "sim", reply))

    def pause_scheduler(self, *, paused: bool) -> None:
        """Pause or resume everything."""
        reply = self._told_in_log("scheduler_paused", "", paused=paused)
        self._world.shard.dispatcher.tell(m.PauseScheduler(paused, "", "sim", reply))

    def _told_in_log(self, kind: str, detail: str, *, paused: bool) -> SimReply:
        """Wait for a pause to be acknowledged; it must be in the log then."""
        world = self._world
        needles = (f'"kind":"{kind}"'.encode(), detail.encode())
        world.trace("%s %s %s", kind, detail, paused)

        def check(value: Any) -> None:
            del value
            records = world.log.read(0, 1 << 30)
            if paused and not any(all(n in item.body for n in needles) for item in records):
                world.violated(f"{kind} {detail} was acknowledged and is not in the log")

        return self._reply(kind, check)

    def limits(self) -> None:
        """Put other limits in force."""
        world = self._world
        limits = world.work.limits()
        world.trace("change limits to %s", limits)
        reply = self._reply("limits", lambda _changed: None)
        world.shard.admission.tell(m.ChangeLimits(limits, "sim", "sim", reply))

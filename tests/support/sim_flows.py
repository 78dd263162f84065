"""Workflows, follow-ups and dead letters in the simulation.

`Flows` is the rule, worked out from the records alone: each success of a type that has a follow-up
is followed by one in the same go; a workflow is what the states of its tasks say, trips and
escalates once, ends once, is joined by nobody after that, and none of its tasks goes out while it
is paused. `Undertakings` are the clients that submit workflows, join and steer them, and revive
dead letters with what depended on them.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from support.sim_outside import SimReply
from support.sim_rules import DAY_US, FINAL, Rule
from support.sim_work import ACTIONS, AGENTS, HOSTS
from support.wishes import changed

from rota.actors import messages as m
from rota.actors.failover import Phase
from rota.actors.recovery import batch_from_log
from rota.domain.commands import Flow
from rota.domain.derived import FollowUp
from rota.domain.intake import Rules, TypeRules
from rota.sight.doomed import doomed_by

if TYPE_CHECKING:
    from support.sim_model import Model, ModelTask
    from support.simulation import World

    from rota.domain.events import Record
    from rota.domain.intake import BatchRequest

FOLLOW_DEPTH_MAX = 10
ESCALATED = ".escalated"
STEPS = ("cancel", "pause", "resume", "resume", "close", "close")


class ModelFlow:
    """One workflow, as the model sees it."""

    def __init__(self, record: Record) -> None:
        """Be born by its record."""
        event: Any = record.event
        self.event = event
        self.by = record.by
        self.tasks: list[str] = []
        self.is_open = bool(event.open)
        self.is_cancelled = self.is_stopping = self.is_paused = False
        self.tripped: str | None = None
        self.escalations = 0
        self.ended_as = ""
        self.ended_at = 0


class Flows(Rule):
    """Workflows and follow-ups: what belongs together, and what comes after what."""

    def __init__(self, model: Model) -> None:
        """Start with none, and with no rules."""
        super().__init__(model)
        self.known: dict[str, ModelFlow] = {}
        self._follow_ups: dict[str, dict[str, Any]] = {}
        self._coming: dict[str, Any] | None = None  # what the next follow-up must be like
        self._escalation: str | None = None

    # -- follow-ups

    def on_server_started(self, record: Record) -> None:
        rules = record.event.rules  # type: ignore[union-attr]
        if rules is not None:
            kinds = rules.get("types", {})
            self._follow_ups = {n: k["follow_up"] for n, k in kinds.items() if k.get("follow_up")}

    on_config_changed = on_server_started

    def on_task_succeeded(self, task: ModelTask, record: Record) -> None:
        """Exactly one follows, in the same go, after those that the success lets go."""
        rule = self._follow_ups.get(task.action)
        if rule is None and task.event.follows is None:
            rule = self._follow_ups.get("*")
        depth = (task.event.follow_depth or 0) + 1
        if rule is None or depth > FOLLOW_DEPTH_MAX:
            return
        self.model.seen["followed"] += 1
        workflow = task.event.workflow
        is_counted = rule["joins"] and not task.event.uncounted
        self._coming = {
            "follows": task.id,
            "follow_depth": depth,
            "workflow": workflow,
            "uncounted": True if workflow is not None and not is_counted else None,
            "agent": rule["agent"] or task.agent,
            "action": rule["type"],
        }
        self.model.then.append(("task_submitted", None))
        if self._is_unknown(rule["params"]):
            self.model.then.append(("task_failed", None))

    @staticmethod
    def _is_unknown(params: dict[str, Any] | None) -> bool:
        return "nothing" in str(params)

    def is_derived(self, event: Any) -> bool:
        """Whether rota submits a task itself: it is taken whatever waits."""
        return event.follows is not None or event.task == self._escalation

    def _derived(self, task: ModelTask) -> None:
        coming, self._coming = self._coming, None
        said = {name: getattr(task.event, name) for name in coming or ()}
        if coming is None:
            self.violated(f"{task.id} follows {task.event.follows}, which has had its follow-up")
        elif said != coming:
            self.violated(f"{task.id} should have been {coming}, and is {said}")

    # -- who belongs to what

    def on_workflow_submitted(self, record: Record) -> None:
        event: Any = record.event
        if event.workflow in self.known:
            self.violated(f"workflow {event.workflow} was born twice")
        self.known[event.workflow] = ModelFlow(record)
        self.model.then.extend([("task_submitted", None)] * event.size)
        if event.idempotency is not None:
            name = ("idempotency", record.by, event.idempotency)
            other = self.model.keys.held(name, self.model.steady)
            if other is not None:
                self.violated(f"{event.workflow} was made under the idempotency key of {other}")
            self.model.keys.holders[name] = event.workflow

    def held_until(self, subject: str) -> int | None:
        """Say until when a workflow that has ended holds its key."""
        flow = self.known.get(subject)
        return flow.ended_at + DAY_US if flow is not None and flow.ended_as else None

    def on_task_submitted(self, task: ModelTask, record: Record) -> None:
        if task.event.follows is not None:
            self._derived(task)
        elif self._coming is not None:
            self.violated(f"{task.id} was submitted where a task should follow another")
        if task.id == self._escalation:
            self._escalation = None
        if task.event.workflow is None or task.event.uncounted:
            return
        flow = self.known.get(task.event.workflow)
        if flow is None:
            self.violated(f"{task.id} is of {task.event.workflow}, which there is not")
            return
        if flow.ended_as or (flow.is_stopping and task.event.follows is None):
            self.violated(f"{task.id} joined {task.event.workflow}, which has ended")
        flow.tasks.append(task.id)

    def of(self, task: ModelTask) -> ModelFlow | None:
        """Give the workflow of a task."""
        if getattr(task.event, "uncounted", None):
            return None
        return self.known.get(getattr(task.event, "workflow", None) or "")

    def is_paused(self, workflow: str) -> bool:
        """Whether a workflow is paused."""
        return workflow in self.known and self.known[workflow].is_paused

    def on_task_assigned(self, task: ModelTask, record: Record) -> None:
        flow = self.of(task)
        if flow is not None and (flow.is_paused or flow.ended_as):
            self.violated(f"{task.id} was assigned although {task.event.workflow} is paused")

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        """A workflow goes on with a task of it; its failures may be too few again."""
        flow = self.of(task)
        if flow is None:
            return
        if flow.is_stopping:
            self.violated(f"{task.id} was revived while its workflow is being cancelled")
        if record.event.restored_workflow is not None:  # type: ignore[union-attr]
            self.model.seen["restored workflow"] += 1
        self.model.keys.forget_lapsed(task.event.workflow)
        flow.ended_as = ""
        flow.ended_at = 0
        flow.is_stopping = flow.is_cancelled = False
        if flow.tripped != "escalate" and not self._is_crossed(flow, but=task.id):
            flow.tripped = None

    # -- what is done about failures

    def _fates(self, flow: ModelFlow, but: str = "") -> tuple[int, int, int]:
        states = [self.model.state_of(each) for each in flow.tasks if each != but]
        return (states.count("succeeded"), states.count("failed"), states.count("cancelled"))

    def _is_crossed(self, flow: ModelFlow, but: str = "") -> bool:
        failed, rule = self._fates(flow, but)[1], flow.event.failure or {"count": 1}
        if "count" in rule:
            return bool(failed >= rule["count"])
        return bool(failed > 0 and failed >= rule["share"] * len(flow.tasks))

    def _must_trip(self, flow: ModelFlow) -> bool:
        if flow.event.on_failure is None or flow.tripped or flow.is_cancelled or flow.ended_as:
            return False
        return self._is_crossed(flow)

    def _live(self, record: Record, *, may_stop: bool = False) -> ModelFlow | None:
        """Give the workflow of a record, which must be going on."""
        name = record.event.workflow  # type: ignore[union-attr]
        flow = self.known.get(name)
        if flow is None or flow.ended_as or (flow.is_stopping and not may_stop):
            self.violated(f"{record.event} tells of a workflow that does not go on")
            return None
        return flow

    def on_workflow_tripped(self, record: Record) -> None:
        event: Any = record.event
        flow = self._live(record)
        if flow is None:
            return
        if not self._must_trip(flow) or event.action != flow.event.on_failure:
            self.violated(f"there was no reason for {event}")
        if (event.failed, event.total) != (self._fates(flow)[1], len(flow.tasks)):
            self.violated(f"{event} counts otherwise than its tasks")
        flow.tripped = event.action
        self.model.seen[f"tripped {event.action}"] += 1
        flow.is_paused = flow.is_paused or event.action == "pause"
        if event.action == "cancel":
            flow.is_stopping, flow.is_open = True, False
        if event.action == "escalate":
            self._escalated(flow, record)

    def _escalated(self, flow: ModelFlow, record: Record) -> None:
        event: Any = record.event
        flow.escalations += 1
        if flow.escalations > 1:
            self.violated(f"workflow {event.workflow} escalated twice")
        wanted = flow.event.escalate or {}
        if ("task" in wanted) != (event.escalation is not None):
            self.violated(f"{event} is not the escalation that was asked for")
        if event.escalation is not None:
            self._escalation = event.escalation
            self.model.then.append(("task_submitted", event.escalation))
            if self._is_unknown(wanted["task"].get("params")):
                self.model.then.append(("task_failed", event.escalation))
        if wanted.get("callback"):
            self.model.callbacks.owe(event.workflow + ESCALATED, record)

    # -- what people do

    def on_workflow_paused(self, record: Record) -> None:
        flow = self._live(record)
        if flow is not None:
            if flow.is_paused:
                self.violated(f"{record.event} tells of a pause of what is paused")
            flow.is_paused = True

    def on_workflow_resumed(self, record: Record) -> None:
        flow = self._live(record)
        if flow is not None:
            if not flow.is_paused:
                self.violated(f"{record.event} tells of an end of no pause")
            flow.is_paused = False

    def on_workflow_closed(self, record: Record) -> None:
        flow = self._live(record)
        if flow is not None:
            if not flow.is_open:
                self.violated(f"{record.event} closes what is closed")
            flow.is_open = False

    def on_workflow_cancelled(self, record: Record) -> None:
        flow = self._live(record)
        if flow is not None:
            flow.is_cancelled = flow.is_stopping = True
            flow.is_open = False

    # -- how it ends

    def _end_state(self, flow: ModelFlow) -> str:
        succeeded, _, cancelled = self._fates(flow)
        if flow.is_cancelled:
            return "cancelled"
        if flow.tripped == "escalate":
            return "escalated"
        if self._is_crossed(flow):
            return "failed"
        return "cancelled" if cancelled and not succeeded else "completed"

    def state_of(self, flow: ModelFlow) -> str:
        """Say what a workflow is."""
        if flow.ended_as:
            return flow.ended_as
        if flow.is_stopping:
            return "cancelled" if flow.is_cancelled else "failed"
        if flow.is_paused:
            return "paused"
        return "escalated" if flow.tripped == "escalate" else "running"

    def _is_complete(self, flow: ModelFlow) -> bool:
        return all(self.model.state_of(each) in FINAL for each in flow.tasks)

    def on_workflow_ended(self, record: Record) -> None:
        event: Any = record.event
        flow = self._live(record, may_stop=True)
        if flow is None:
            return
        if flow.is_open or not self._is_complete(flow):
            self.violated(f"workflow {event.workflow} ended although it goes on")
        if self._must_trip(flow):
            self.violated(f"workflow {event.workflow} ended before its rule was followed")
        if event.tasks != flow.tasks:
            self.violated(f"workflow {event.workflow} ended with other tasks than it has")
        if (event.succeeded, event.failed, event.cancelled) != self._fates(flow):
            self.violated(f"{event} counts otherwise than its tasks")
        if (event.state, event.tripped) != (self._end_state(flow), flow.tripped):
            self.violated(f"workflow {event.workflow} should have ended as {self._end_state(flow)}")
        self.model.seen[f"ended {event.state}"] += 1
        flow.ended_as, flow.ended_at = event.state, self.model.steady
        flow.is_paused = flow.is_stopping = flow.is_open = flow.is_cancelled = False
        if flow.event.callback:
            self.model.callbacks.owe(event.workflow, record)

    def at_rest(self) -> None:
        for name, flow in self.known.items():
            if flow.ended_as:
                continue
            if self._must_trip(flow):
                self.violated(f"so many tasks of {name} failed, and nothing is done about it")
            if flow.is_stopping and not self._is_complete(flow):
                self.violated(f"tasks of {name} go on, which was cancelled")
            if not flow.is_open and self._is_complete(flow):
                self.violated(f"workflow {name} is complete, and was never ended")


class Undertakings:
    """Those who have workflows, and the rules that follow-ups go by."""

    def __init__(self, world: World) -> None:
        """Belong to a world; what they do is drawn apart from all the rest."""
        self._world = world
        self._rng = rng = Random(f"flows {world.seed}")
        self._odds = rng.choice((0.0, 0.0, 0.02, 0.06))
        self._following = rng.choice((0.0, 0.0, 0.3, 0.7))
        self.rules = self._drawn_rules()

    def _drawn_rules(self) -> Rules:
        rng = self._rng
        types: dict[str, TypeRules] = {}
        for action in ACTIONS:
            if rng.random() < self._following:
                after = rng.choice([each for each in ACTIONS if each != action])
                agent = rng.choice((None, None, rng.choice(AGENTS)))
                params = rng.choice(
                    (None, {"was": "{{task.id}}"}, {"was": "{{result.n}}"}, {"a": "{{nothing}}"})
                )
                joins = rng.random() < 0.7
                rule = FollowUp(after, agent, params, rng.choice((None, 0, 3)), joins)
                types[action] = TypeRules("builtin", follow_up=rule._asdict())
        follows = {name: kind.follow_up["type"] for name, kind in types.items() if kind.follow_up}
        for start in list(types):  # a circle is possible only by a change of the rules
            at, walked = start, {start}
            while (at := follows.get(at, "")) and at not in walked:
                walked.add(at)
            if at:
                types.pop(start, None)
                follows.pop(start, None)
        if self._following and rng.random() < 0.2:
            every = FollowUp(rng.choice(ACTIONS), joins=rng.random() < 0.5)
            types["*"] = TypeRules(follow_up=every._asdict())
        return Rules(types=types)

    def new_rules(self) -> Rules:
        """Give the rules to start with; now and then others than before."""
        if self._rng.random() < 0.3:
            self.rules = self._drawn_rules()
        return self.rules

    def act(self) -> None:
        """Now and then do something with a workflow, or a dead letter."""
        world, rng = self._world, self._rng
        if world.calm or world.draining or not self._odds or rng.random() >= self._odds:
            return
        what = rng.random()
        if what < 0.25:
            self._submit()
        elif what < 0.4:
            self._join()
        elif what < 0.65:
            self._steer()
        else:
            self._revive()

    def _known(self) -> list[str]:
        return list(self._world.model.flows.known)[-5:]

    # -- submissions

    def _flow(self) -> Flow:
        rng = self._rng
        on_failure = rng.choice((None, "cancel", "pause", "escalate", "escalate"))
        escalate: dict[str, Any] | None = None
        if on_failure == "escalate":
            params = rng.choice((None, {"w": "{{workflow.id}}"}, {"w": "{{nothing}}"}))
            task = {"agent": rng.choice(AGENTS), "action": rng.choice(("echo", "sleep"))}
            if params is not None:
                task["params"] = params
            escalate = rng.choice(({"task": task}, {"callback": rng.choice(HOSTS)}))
        failure = rng.choice((None, {"count": 1}, {"count": 2}, {"share": 0.5}))
        is_open = rng.random() < 0.4
        return Flow(rng.choice((None, "night")), is_open, failure, on_failure, escalate)

    def _drawn_tasks(self) -> BatchRequest:
        """Draw tasks as a batch has them, from the run's own source of work."""
        world, rng = self._world, self._rng
        work = world.work
        work.rng = rng
        try:
            batch, _ = work.batch(world.clock.wall_us(), world.clients.parents())
        finally:
            work.rng = world.rng
        tasks = tuple(task._replace(wanted_id=None, dialect="native") for task in batch.tasks)
        return batch._replace(tasks=tasks, dialect="native", parallelism=None)

    def _submit(self) -> None:
        world, rng = self._world, self._rng
        key = rng.choice((None, None, None, "w0", "w1"))
        digest = f"body {key}" if key is not None else None
        batch = self._drawn_tasks()._replace(flow=self._flow(), idempotency=key, digest=digest)
        if batch.flow is not None and batch.flow.is_open and rng.random() < 0.3:
            batch = batch._replace(tasks=())
        world.trace("submit a workflow: %s", batch)

        def check(answer: m.BatchAdmitted) -> None:
            world.acknowledged(answer.batch, "workflow_submitted")
            event = world.model.flows.known[answer.batch].event
            if answer.known and event.idempotency != key:
                world.violated(f"{answer} is no answer to {batch}")
            world.counts[f"{answer.known or 'admitted'} workflow"] += 1
            for each in answer.tasks:
                world.acknowledged(each.task, "task_submitted")

        def check_refusal(code: str, error: Any) -> None:
            del error
            world.counts[f"workflow {code}"] += 1

        reply = SimReply(world, "workflow", check, check_refusal)
        world.shard.admission.tell(m.SubmitTogether(batch, reply))

    def _join(self) -> None:
        """Submit a task that joins a workflow, perhaps one that has ended."""
        world, rng, known = self._world, self._rng, self._known()
        if not known:
            return
        name = rng.choice(known)
        task = changed(self._drawn_tasks().tasks[0]._replace(depends=()), workflow=name)
        task = task._replace(params=None, ref=None)
        world.trace("join %s by %s", name, task)

        def check(answers: list[Any]) -> None:
            answer = answers[0]
            if type(answer) is m.Refused:
                world.counted += answer.counted
            elif type(answer) is m.Admitted:
                world.acknowledged(answer.task, "task_submitted")
                world.counts["joined"] += 1
                if world.model.tasks[answer.task].event.workflow != name:
                    world.violated(f"{answer.task} is not of {name}, which it joined")
            else:
                world.counts[answer.code] += 1

        world.shard.admission.tell(m.SubmitTasks((task,), SimReply(world, "join", check)))

    # -- what is done to them

    def _steer(self) -> None:
        known = self._known()
        if known:
            self._tell(self._rng.choice(known), self._rng.choice(STEPS))

    def _tell(self, name: str, how: str) -> None:
        world = self._world
        world.trace("%s workflow %s", how, name)

        def check(state: str) -> None:
            del state
            if how == "cancel":
                world.acknowledged(name, "workflow_cancelled")

        def check_refusal(code: str, error: Any) -> None:
            world.counts[code] += 1
            if code != "workflow_ended":
                world.violated(f"there was no reason for {code}: {error}")

        reply = SimReply(world, "steer", check, check_refusal)
        world.shard.orchestrator.tell(m.SteerWorkflow(name, how, "", "sim", reply))

    def _revive(self) -> None:
        """Give a dead letter another life, with what was cancelled because of it."""
        world, rng = self._world, self._rng
        if world.shard.failover.phase is Phase.REBUILDING:
            return
        tasks = list(world.model.tasks.values())[-60:]
        doomed = [task for task in tasks if task.is_doomed]
        failed = [task for task in tasks if task.state == "failed"]
        depended = {parent for task in doomed for parent in task.parents}
        best = [task for task in failed if task.id in depended]
        if not (best or failed or doomed):
            return
        is_any = bool(doomed) and rng.random() < 0.3
        task = rng.choice(doomed if is_any else best or failed or doomed)
        with_them = tuple(each for each, _ in doomed_by(world.log, task.id))
        dependents = with_them if rng.random() < 0.8 else ()
        params = None
        if rng.random() < 0.2:
            params = {**(task.event.params or {}), "edited": 1}
        world.trace("revive %s with %s", task.id, dependents)

        def check(answer: m.Revived) -> None:
            for name in (answer.task, *answer.dependents):
                world.acknowledged(name, "task_revived")
            world.counts["revived dependents"] += len(answer.dependents)

        reply = SimReply(world, "revive", check)
        message = m.ReviveTask(
            task.id, "sim", reply, params=params, dependents=dependents, is_any=is_any
        )
        world.shard.queue(task.agent).tell(message)

    # -- at rest

    def let_go(self) -> bool:
        """Let whatever still waits for somebody go on; False if nothing does."""
        waits = [
            (name, "resume" if flow.is_paused else "close")
            for name, flow in self._world.model.flows.known.items()
            if not flow.ended_as and not flow.is_stopping and (flow.is_paused or flow.is_open)
        ]
        for name, how in waits:
            self._tell(name, how)
        if waits:
            self._world.rest()
        return bool(waits)

    def judge(self) -> None:
        """See that every workflow is found as it is, in memory or in the log."""
        world, rule = self._world, self._world.model.flows
        state = world.shard.state
        for name, flow in rule.known.items():
            found: Any = state.batches.flow(name) or batch_from_log(world.log, name, state.steps)
            if found is None or found.state != rule.state_of(flow):
                world.violated(f"workflow {name} is {rule.state_of(flow)}, and is not found so")
            elif found.tasks != flow.tasks:
                world.violated(f"workflow {name} is found with other tasks")

    def compare(self, record: Any) -> None:
        """Hold what is in memory of a workflow against the model, after a record about it."""
        name = getattr(record.event, "workflow", None)
        if name is None:
            return
        rule, state = self._world.model.flows, self._world.shard.state
        flow, found = rule.known.get(name), state.batches.flow(name)
        if flow is not None and found is not None and found.state != rule.state_of(flow):
            self._world.violated(f"{name} is {found.state} in memory, not {rule.state_of(flow)}")
        paused = {each for each, known in rule.known.items() if known.is_paused}
        if set(state.batches.paused_flows) != paused:
            self._world.violated("the workflows that are held are not those that are paused")

"""What must hold, worked out a second time.

`Model` folds the same records as the projections do, in the plainest way that can be read, and
knows nothing of their code: counts are counted, orders are sorted, nothing is cached. Every
record is judged before it is folded; what breaks a promise is told to `violated` in a sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.task import BLAMELESS, MOVES, TaskState
from rota.eventlog.codec import KINDS
from rota.projections.control import limits_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.domain.commands import Limits
    from rota.domain.events import Record

FINAL = {"succeeded", "failed", "cancelled", "rejected"}
INTERRUPTIONS_MAX = 5
SETTINGS = {e.ServerStarted, e.ConfigChanged, e.AgentPaused, e.AgentResumed, e.ActorFailed}
FLYING = {"assigned", "running"}


class ModelTask:
    """One task, as the model sees it."""

    __slots__ = (
        "agent",
        "assigned_at",
        "began",
        "callback",
        "closed",
        "created_seq",
        "ended_kind",
        "ended_seq",
        "event",
        "id",
        "interruptions",
        "lane",
        "priority",
        "state",
        "token",
        "tries",
    )

    def __init__(self, record: Record) -> None:
        """Be born by a submission or a rejection."""
        event: Any = record.event
        self.id = event.task
        self.agent = event.agent
        self.lane = (getattr(event, "executor", "pull"), event.action)
        self.priority = event.priority
        self.created_seq = record.seq
        self.callback = event.callback
        self.event = event
        self.state = "ready" if type(event) is e.TaskSubmitted else "rejected"
        self.token = self.assigned_at = 0
        self.began = False
        self.ended_seq = 0 if self.state == "ready" else record.seq
        self.ended_kind = ""
        self.closed = ""
        self.tries = 0
        self.interruptions = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Its place inside its agent: priority, then age."""
        return (self.priority, self.created_seq)


class Model:
    """The scheduler's state, kept naively, and its promises."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        """Start before the first record; tell `violated` of what must not be."""
        self.violated = violated
        self.seq = 0
        self.at = 0
        self.limits: Limits = limits_from({})
        self.tasks: dict[str, ModelTask] = {}
        self.waiting: dict[str, dict[str, ModelTask]] = {}
        self.flying: dict[str, ModelTask] = {}
        self.since: dict[str, int] = {}
        self.paused: set[str] = set()
        self.refused = 0
        self.assigned = 0
        self.exact = 0

    # -- counting ------------------------------------------------------------------------------

    def waiting_total(self) -> int:
        """Count all that wait."""
        return sum(len(tasks) for tasks in self.waiting.values())

    def in_flight(self, agent: str) -> int:
        """Count the agent's tasks in flight."""
        return sum(1 for task in self.flying.values() if task.agent == agent)

    def full_caps(self, lane: tuple[str, str], flying: Iterable[ModelTask] = ()) -> list[str]:
        """Name the caps of a lane that are used up."""
        flying = list(flying) or list(self.flying.values())
        full = []
        if lane[0] != "pull" and sum(t.lane[0] != "pull" for t in flying) >= self.limits.push:
            full.append("push")
        for action, cap in self.limits.types:
            if action == lane[1] and sum(t.lane[1] == action for t in flying) >= cap:
                full.append(f"type {action}")
        return full

    # -- the reference decision ----------------------------------------------------------------

    def choice(self) -> ModelTask | None:
        """Say whose turn it is, by looking at everything."""
        if len(self.flying) >= self.limits.inflight:
            return None
        flying = list(self.flying.values())
        counts: dict[str, int] = {}
        for task in flying:
            counts[task.agent] = counts.get(task.agent, 0) + 1
        lanes: dict[tuple[str, str], bool] = {}
        best: tuple[int, int, str] | None = None
        found: ModelTask | None = None
        for agent, tasks in self.waiting.items():
            count = counts.get(agent, 0)
            if agent in self.paused or count >= self.limits.inflight_per_agent or not tasks:
                continue
            turn = (count, self.since[agent], agent)
            if best is not None and best < turn:
                continue
            open_tasks = []
            for task in tasks.values():
                lane = task.lane
                if lane not in lanes:
                    lanes[lane] = lane[0] != "pull" and not self.full_caps(lane, flying)
                if lanes[lane]:
                    open_tasks.append(task)
            if open_tasks:
                best, found = turn, min(open_tasks, key=lambda task: task.rank)
        return found

    # -- the fold ------------------------------------------------------------------------------

    def observe(self, record: Record, *, exact: bool = False) -> None:
        """Judge a record, then fold it; `exact`: the dispatcher had heard of everything."""
        if record.seq != self.seq + 1:
            self.violated(f"record {record.seq} follows record {self.seq}")
        if record.at < self.at:
            self.violated(f"record {record.seq} is dated before the one ahead of it")
        self.seq, self.at = record.seq, record.at
        if type(record.event) in SETTINGS:
            self._setting(record.event)
        elif type(record.event) in (e.TaskSubmitted, e.TaskRejected):
            self._born(record)
        elif type(record.event) in (e.DeliverySucceeded, e.DeliveryFailed, e.DeliveryAbandoned):
            self._delivery(record.event)
        elif type(record.event) is e.ResultRefused:
            self._refused(record.event)
        elif type(record.event) is not e.ServerStopped:
            self._moved(record, exact=exact)

    def _setting(self, event: Any) -> None:
        """Fold what is about no task."""
        if type(event) is e.AgentPaused:
            self.paused.add(event.agent)
        elif type(event) is e.AgentResumed:
            self.paused.discard(event.agent)
        elif type(event) is e.ActorFailed:
            self.violated(f"{event.actor} failed on {event.message}: {event.error}")
        else:
            self.limits = limits_from(event.settings)

    def _born(self, record: Record) -> None:
        event: Any = record.event
        limits = self.limits
        if event.task in self.tasks:
            self.violated(f"task {event.task} was born twice")
            return
        total = self.waiting_total()
        agent = len(self.waiting.get(event.agent, ()))
        full = total >= limits.queued or agent >= limits.queued_per_agent
        if type(event) is e.TaskSubmitted:
            if full:
                self.violated(
                    f"{event.task} was admitted although {total} of {limits.queued} waited, "
                    f"{agent} of {limits.queued_per_agent} of its agent"
                )
            if event.position != total + 1:
                self.violated(f"{event.task} got position {event.position}, not {total + 1}")
        elif not full:
            self.violated(f"{event.task} was rejected although both queues had room")
        task = self.tasks[event.task] = ModelTask(record)
        if task.state == "ready":
            self._enter(task, record.seq)

    def _enter(self, task: ModelTask, seq: int) -> None:
        queue = self.waiting.setdefault(task.agent, {})
        if not queue:
            self.since[task.agent] = seq
        queue[task.id] = task

    def _moved(self, record: Record, *, exact: bool) -> None:
        event: Any = record.event
        name = KINDS[type(event)]
        task = self.tasks.get(event.task)
        if task is None:
            self.violated(f"{name} tells of {event.task}, which was never submitted")
            return
        if task.state in FINAL:
            self.violated(f"{task.id} ended ({task.state}), and then came {name}")
            return
        to = MOVES[TaskState(task.state)].get(name)
        if to is None:
            self.violated(f"{name} is no legal move of {task.id}, which is {task.state}")
            return
        if name == "task_assigned":
            self._assignment(task, exact=exact)
            task.token, task.assigned_at = record.seq, record.at
            self.assigned += 1
        if name == "task_started":
            task.began = True
        if name == "attempt_interrupted":
            task.interruptions += event.reason not in BLAMELESS
            if task.interruptions > INTERRUPTIONS_MAX:
                self.violated(f"{task.id} went back to its queue after too many interruptions")
        self.waiting.get(task.agent, {}).pop(task.id, None)
        self.flying.pop(task.id, None)
        task.state = to.value
        if to == "ready":
            self._enter(task, record.seq)
        elif to in FLYING:
            self.flying[task.id] = task
            if name == "task_assigned":
                self.since[task.agent] = record.seq
        else:
            task.ended_seq, task.ended_kind = record.seq, name

    def _assignment(self, task: ModelTask, *, exact: bool) -> None:
        limits = self.limits
        if task.event.on_interrupt == "fail" and task.began:
            self.violated(f"{task.id} must not run twice, and was assigned again")
        if len(self.flying) >= limits.inflight:
            self.violated(f"{task.id} was assigned over the cap of {limits.inflight} in flight")
        if self.in_flight(task.agent) >= limits.inflight_per_agent:
            self.violated(f"{task.id} was assigned over the cap of its agent {task.agent}")
        if self.flying:
            for cap in self.full_caps(task.lane):
                self.violated(f"{task.id} was assigned over the cap of {cap}")
        if task.agent in self.paused:
            self.violated(f"{task.id} was assigned although {task.agent} is paused")
        for other in self.waiting[task.agent].values():
            if other.lane == task.lane and other.rank < task.rank:
                self.violated(f"{task.id} overtook {other.id}, which is ahead of it in its lane")
        if exact:
            self.exact += 1
            turn = self.choice()
            if turn is not task:
                name = turn.id if turn else "nobody"
                self.violated(f"{task.id} was assigned, but it was the turn of {name}")

    def _refused(self, event: e.ResultRefused) -> None:
        self.refused += 1
        task = self.tasks.get(event.task)
        if task is None:
            self.violated(f"a result was refused for {event.task}, which was never submitted")

    def _delivery(self, event: Any) -> None:
        task = self.tasks.get(event.task)
        if task is None or not task.callback or task.state not in FINAL:
            self.violated(f"a callback was reported for {event.task}, which owes none")
            return
        if task.state == "rejected":
            self.violated(f"a callback was sent for {task.id}, which was rejected")
        if task.closed:
            self.violated(f"the callback of {task.id} was {task.closed} and then reported again")
        if event.delivery != f"dlv_{task.ended_seq}_{task.id}":
            self.violated(f"the delivery of {task.id} has the id {event.delivery}")
        task.tries += 1
        if event.number != task.tries:
            self.violated(f"try {task.tries} to deliver {task.id} was counted as {event.number}")
        if type(event) is e.DeliverySucceeded:
            task.closed = "delivered"
        elif type(event) is e.DeliveryAbandoned:
            task.closed = "abandoned"

    # -- at the end ----------------------------------------------------------------------------

    def overdue(self, now: int) -> None:
        """Judge a moment at which all that was due should have happened."""
        for task in self.tasks.values():
            if task.state in FINAL:
                continue
            if task.event.deadline is not None and task.event.deadline <= now:
                self.violated(f"{task.id} is {task.state} after its deadline")
            limit_ms = task.event.timeout_ms
            if task.state in FLYING and limit_ms and task.assigned_at + limit_ms * 1000 <= now:
                self.violated(f"{task.id} runs on after its timeout")

    def settled(self) -> None:
        """Judge the rest: everything that can end has ended."""
        for task in self.tasks.values():
            endless = task.lane[0] == "pull" and task.event.deadline is None
            if task.state not in FINAL and not endless:
                self.violated(f"{task.id} of {task.agent} never ended: it is {task.state}")
            if task.state in FINAL and task.state != "rejected" and task.callback:
                if not task.closed:
                    self.violated(f"the callback of {task.id} was neither delivered nor given up")
            elif task.closed:
                self.violated(f"{task.id} owes no callback, yet one was {task.closed}")
        if self.flying:
            self.violated(f"at rest, {len(self.flying)} tasks still hold slots")

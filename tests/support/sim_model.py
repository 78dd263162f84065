"""What must hold, worked out a second time.

`Model` folds the same records as the projections do, in the plainest way that can be read, and
knows nothing of their code: counts are counted, orders are sorted, nothing is cached. Every
record is judged before it is folded; what breaks a promise is told to `violated` in a sentence.
Here are the states, the queues, the caps and whose turn it is; sim_rules has the rest.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from support.sim_browsers import Browsers
from support.sim_flows import Flows
from support.sim_memory import Refusals
from support.sim_projects import Projects
from support.sim_rules import RULES, Batches, Callbacks, Clocks, Keys
from support.sim_schedules import Schedules
from support.sim_tokens import Tokens
from support.sim_workers import Leases
from support.wishes import flat

from rota.domain import events as e
from rota.eventlog.codec import KINDS
from rota.projections.control import limits_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rota.domain.commands import Limits
    from rota.domain.events import Record

FINAL = {"succeeded", "failed", "cancelled", "rejected"}
FLYING = {"assigned", "running"}
INTERRUPTIONS_MAX = 5
STEP_US = 500_000
BLAMELESS = {"shutdown", "log failed", "preempted", "results not read", "released"}
REASONS = BLAMELESS | {"server restarted", "lease expired", "internal fault"}
OF_LEASES = {"lease_expired", "lease_ended"}

_WAITS = {"task_cancelled": "cancelled", "task_expired": "failed", "task_failed": "failed"}
_FLIES = {
    "task_succeeded": "succeeded",
    "task_failed": "failed",
    "attempt_failed": "scheduled",
    "task_cancelled": "cancelled",
    "attempt_interrupted": "ready",
}
NEXT: dict[str, dict[str, str]] = {
    "blocked": {"task_released": "ready", "task_delayed": "scheduled", **_WAITS},
    "scheduled": {"task_released": "ready", "task_held": "blocked", **_WAITS},
    "ready": {"task_assigned": "assigned", "task_held": "blocked", **_WAITS},
    "assigned": {"task_started": "running", **_FLIES},
    "running": _FLIES,
    "failed": {"task_revived": "ready"},
    "succeeded": {},
    "cancelled": {"task_revived": "blocked"},
    "rejected": {},
}
"""From a state, by a kind of record, to a state."""
MOVES = {kind for moves in NEXT.values() for kind in moves}
NOTES = {"task_logged", "task_progressed"}


class ModelTask:
    """One task, as the model sees it."""

    __slots__ = (
        "action",
        "agent",
        "assigned_at",
        "attempt",
        "by",
        "caps",
        "charged",
        "created_at",
        "created_seq",
        "ended_at",
        "ended_seq",
        "event",
        "fell",
        "id",
        "interruptions",
        "is_doomed",
        "lane",
        "lines",
        "next_at",
        "not_before",
        "parents",
        "priority",
        "ready_at",
        "reports",
        "result",
        "shift",
        "state",
        "token",
        "waits_since",
    )

    def __init__(self, record: Record, shift: int) -> None:
        """Be born by a submission or a rejection, when the clock had been set by so much in all.

        What it counts from is kept in a time that nobody sets; so are its `next_at` and its
        `not_before` where they are not of the wall clock.
        """
        self.event = event = flat(record.event)
        self.shift = shift
        self.not_before: int | None = getattr(event, "not_before", None)
        if self.is_delay:
            self.not_before -= shift  # type: ignore[operator]
        self.id: str = event.task
        self.agent: str = event.agent
        self.action: str = event.action
        self.by = record.by
        self.priority: int = event.priority
        self.created_seq = self.waits_since = record.seq
        self.is_doomed = False
        self.created_at = record.at - shift
        self.ready_at = self.next_at = self.token = self.assigned_at = 0
        self.attempt = self.charged = self.interruptions = 0
        self.lines = self.reports = 0
        self.ended_seq = self.ended_at = self.fell = 0
        self.result: Any = None
        self.parents: frozenset[str] = frozenset()
        self.caps: tuple[tuple[Any, ...], ...] = ()
        self.lane: tuple[Any, ...] = ()
        self.state = "rejected"
        if type(record.event) is e.TaskSubmitted:
            self.parents = frozenset((event.depends or {}).values())
            caps: list[tuple[Any, ...]] = [("type", event.action)]
            if event.executor != "pull":
                caps.append(("push",))
            if event.key:
                caps.append(("key", event.key))
            if event.action == "script_run":
                caps.append(("browsers",))
            if event.parallelism:
                caps.append(("batch", event.batch, event.parallelism))
            if event.workflow and not event.uncounted:
                caps.append(("flow", event.workflow))
            self.caps = tuple(caps)
            requires = tuple(event.requires or ())
            self.lane = (event.executor, *caps, event.priority if event.preempt else None, requires)
            self.state = "ready"

    @property
    def is_delay(self) -> bool:
        """Whether it asked for a delay, and not for a moment."""
        return getattr(self.event, "delay_ms", None) is not None

    @property
    def is_pull(self) -> bool:
        """Whether it waits for a worker."""
        return self.lane[:1] == ("pull",)


class Model:
    """The scheduler's state, kept naively, and its promises."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        """Start before the first record; tell `violated` of what must not be."""
        self.violated = violated
        self.seq = 0
        self.at = 0
        self.shift = 0
        self.steady = 0
        self.stepped_back = False
        self.believed_at = self.doubted_until = self.set_forward = 0
        self.late_from: int | None = None
        self.kept: dict[str, int] = {}
        self.limits: Limits = limits_from({})
        self.tasks: dict[str, ModelTask] = {}
        self.ready: dict[str, dict[str, ModelTask]] = {}
        self.aside: dict[str, ModelTask] = {}
        self.flying: dict[str, ModelTask] = {}
        self._revived: tuple[int, list[str]] = (0, [])
        """When tasks were revived last, and those that were at that moment."""
        self.since: dict[str, int] = {}
        self.paused: set[str] = set()
        self.paused_types: set[str] = set()
        self.stopped = False
        self.then: deque[tuple[str, str | None]] = deque()
        self.last: Record | None = None
        self.seen: Counter[str] = Counter()
        self.exact = 0
        rules = {
            kind: kind(self)
            for kind in (*RULES, Refusals, Browsers, Tokens, Leases, Flows, Projects, Schedules)
        }
        self.refusals: Refusals = rules[Refusals]
        self.browsers: Browsers = rules[Browsers]
        self.tokens: Tokens = rules[Tokens]
        self.leases: Leases = rules[Leases]
        self.flows: Flows = rules[Flows]
        self.projects: Projects = rules[Projects]
        self.schedules: Schedules = rules[Schedules]
        self.batches: Batches = rules[Batches]
        self.callbacks: Callbacks = rules[Callbacks]
        self.clocks: Clocks = rules[Clocks]
        self.keys: Keys = rules[Keys]
        self._rules = list(rules.values())
        self._hooks = {kind: self._hooks_of(f"on_{kind}") for kind in (*KINDS.values(), "end")}
        self._at_rest = self._hooks_of("at_rest")

    def _hooks_of(self, name: str) -> list[Callable[..., None]]:
        return [getattr(rule, name) for rule in self._rules if hasattr(rule, name)]

    # -- counting ------------------------------------------------------------------------------

    def waiting_total(self) -> int:
        """Count all that wait."""
        return sum(map(len, self.ready.values())) + len(self.aside)

    def waiting_of(self, agent: str) -> int:
        """Count the agent's tasks that wait."""
        aside = sum(1 for task in self.aside.values() if task.agent == agent)
        return len(self.ready.get(agent, ())) + aside

    def in_flight(self, agent: str) -> int:
        """Count the agent's tasks in flight."""
        return sum(1 for task in self.flying.values() if task.agent == agent)

    def state_of(self, task_id: str) -> str:
        """Say where a task is; nothing of one that was never submitted."""
        task = self.tasks.get(task_id)
        return task.state if task is not None else ""

    def cap_of(self, name: tuple[Any, ...]) -> float:
        """Give a cap by its name."""
        if name[0] == "type":
            if name[1] in self.paused_types:
                return 0
            return dict(self.limits.types).get(name[1], inf)
        if name[0] == "flow":
            return 0 if self.flows.is_paused(name[1]) else inf
        if name[0] == "push":
            return self.limits.push
        if name[0] == "browsers":
            return self.limits.browsers or inf
        return self.limits.per_key if name[0] == "key" else name[2]

    def taken(self) -> Counter[tuple[Any, ...]]:
        """Count what is in flight under each cap, with the agents' and the global one."""
        counts: Counter[tuple[Any, ...]] = Counter()
        for task in self.flying.values():
            counts.update(task.caps)
            counts["agent", task.agent] += 1
        counts["all",] = len(self.flying)
        return counts

    def full_caps(self, task: ModelTask, taken: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Name the caps that hold a task back."""
        full = [name for name in task.caps if taken[name] >= self.cap_of(name)]
        if taken["agent", task.agent] >= self.limits.inflight_per_agent:
            full.append(("agent", task.agent))
        if taken["all",] >= self.limits.inflight:
            full.append(("all",))
        return full

    def rank(self, task: ModelTask) -> tuple[int, int]:
        """Give its place among others: priority, or with aging its moment; then age."""
        aging_us = self.limits.aging_ms * 1000
        rank = task.priority * aging_us + task.created_at if aging_us else task.priority
        return (rank, task.created_seq)

    # -- the reference decisions ---------------------------------------------------------------

    def choice(self) -> ModelTask | None:
        """Say whose turn it is, by looking at everything."""
        if self.stopped or len(self.flying) >= self.limits.inflight:
            return None
        taken = self.taken()
        lanes: dict[tuple[Any, ...], bool] = {}
        by_priority = self.limits.strategy == "priority-fifo"
        best: tuple[Any, ...] | None = None
        found: ModelTask | None = None
        for agent, tasks in self.ready.items():
            count = taken["agent", agent]
            if agent in self.paused or count >= self.limits.inflight_per_agent or not tasks:
                continue
            turn: tuple[Any, ...] = (count, self.since[agent], agent)
            if best is not None and best < turn and not by_priority:
                continue
            open_tasks = []
            for task in tasks.values():
                lane = task.lane
                if lane not in lanes:
                    lanes[lane] = not task.is_pull and not self.full_caps(task, taken)
                if lanes[lane]:
                    open_tasks.append(task)
            if open_tasks:
                first = min(open_tasks, key=self.rank)
                turn = self.rank(first) if by_priority else turn
                if best is None or turn < best:
                    best, found = turn, first
        return found

    def swap(self) -> tuple[ModelTask, ModelTask] | None:
        """Find a task that may pre-empt and could, and one that would have to make room."""
        if self.stopped:
            return None
        taken = None
        for agent, tasks in self.ready.items():
            if agent in self.paused or not any(task.event.preempt for task in tasks.values()):
                continue
            taken = taken or self.taken()
            heads: dict[tuple[Any, ...], ModelTask] = {}
            for task in tasks.values():
                head = heads.get(task.lane)
                if head is None or self.rank(task) < self.rank(head):
                    heads[task.lane] = task
            for task in heads.values():
                victim = self._victim(task, taken) if task.event.preempt else None
                if victim is not None and not task.is_pull:
                    return task, victim
        return None

    def _victim(self, task: ModelTask, taken: Counter[tuple[Any, ...]]) -> ModelTask | None:
        """Find somebody less urgent whose slot alone would let the task run."""
        full = self.full_caps(task, taken)
        own = {
            ("agent", task.agent): self.limits.inflight_per_agent,
            ("all",): self.limits.inflight,
        }
        for name in full:
            cap = own.get(name) or self.cap_of(name)
            if not cap or taken[name] > cap:
                return None
        for other in self.flying.values():
            if (
                other.agent == task.agent
                and other.priority > task.priority
                and other.event.on_interrupt != "fail"
                and other.id not in self.projects.killing
                and all(name in own or name in other.caps for name in full)
            ):
                return other
        return None

    # -- the fold ------------------------------------------------------------------------------

    def observe(self, record: Record, *, exact: bool = False) -> None:
        """Judge a record, then fold it; `exact`: the dispatcher had heard of everything."""
        event: Any = record.event
        kind = KINDS[type(event)]
        if record.seq != self.seq + 1:
            self.violated(f"record {record.seq} follows record {self.seq}")
        if kind == "clock_stepped":
            self._stepped(record)
        elif record.at < self.at:
            self.violated(f"record {record.seq} is dated before the one ahead of it")
        if kind == "server_started":
            self._started(event)
        self.seq, self.at = record.seq, record.at
        self.steady = record.at - self.shift
        if self.then:
            self._in_one_go(kind, event)
        if kind in MOVES:
            self._moved(record, kind, exact=exact)
        elif kind in ("task_submitted", "task_rejected"):
            self._born(record, kind)
        elif kind == "task_reprioritised":
            self._reprioritised(record)
        elif kind in NOTES or kind in OF_LEASES or kind == "result_refused":
            self._told(record, kind)
        else:
            self._setting(event)
            for hook in self._hooks[kind]:
                hook(record)
        self.seen[kind] += 1
        self.last = record
        self._forget(event)

    def _stepped(self, record: Record) -> None:
        """Go on by another clock."""
        event: Any = record.event
        by_us = event.now - event.was
        if not by_us or record.at != event.now or event.was < self.at - STEP_US:
            self.violated(f"record {record.seq} after {self.at} tells of no step: {event}")
        if event.was < self.doubted_until and not event.corrects:
            would_correct = event.now >= self.believed_at and -by_us > max(0, self.set_forward)
            if by_us < 0 and would_correct:
                self.violated(f"record {record.seq} sets a clock back that was ahead at the start")
        if not event.corrects:
            self.believed_at += by_us
            self.set_forward += by_us
        self.doubted_until += by_us
        self.shift += by_us
        steady = record.at - self.shift
        self.kept = {name: min(ended_at, steady) for name, ended_at in self.kept.items()}
        self.stepped_back = self.stepped_back or by_us < 0

    def _started(self, event: Any) -> None:
        """Know since when the clock is doubted: since the last start before which it was not."""
        if event.settles_at is None:
            if self.at < self.doubted_until and not event.resumed:
                self.violated("a start believes a clock that was doubted")
            return
        if self.at >= self.doubted_until:
            self.believed_at, self.set_forward = self.at, 0
        self.doubted_until = event.settles_at

    def _forget(self, event: Any) -> None:
        """Keep what has ended for as long as it is kept in memory."""
        task = self.tasks.get(getattr(event, "task", ""))
        if task is not None:
            if task.state not in FINAL:
                self.kept.pop(task.id, None)
            elif task.ended_seq == self.seq:
                self.kept[task.id] = task.ended_at
        gone = self.steady - self.limits.result_ttl_s * 1_000_000
        for task_id in [name for name, ended_at in self.kept.items() if ended_at <= gone]:
            del self.kept[task_id]

    def _in_one_go(self, kind: str, event: Any) -> None:
        """Judge a record that must be a certain one, after what the one before it said."""
        wanted = self.then.popleft()
        subject = getattr(event, "task", "")
        if wanted not in ((kind, subject), (kind, None)):
            self.violated(f"{wanted[0]} of {wanted[1]} should have followed, not {kind} {subject}")

    def whole(self) -> None:
        """Judge the end of a log: what is written in one go is there whole, or not at all."""
        if self.then:
            kind, subject = self.then[0]
            self.violated(f"the log ends where {kind} of {subject} should follow")

    def _setting(self, event: Any) -> None:
        """Fold what is about no task."""
        kind = type(event)
        if kind is e.AgentPaused:
            self.paused.add(event.agent)
        elif kind is e.AgentResumed:
            self.paused.discard(event.agent)
        elif kind is e.TypePaused:
            self.paused_types.add(event.type)
        elif kind is e.TypeResumed:
            self.paused_types.discard(event.type)
        elif kind in (e.SchedulerPaused, e.SchedulerResumed):
            self.stopped = kind is e.SchedulerPaused
        elif kind is e.ActorFailed and not event.error.startswith("InjectedError"):
            self.violated(f"{event.actor} failed on {event.message}: {event.error}")
        elif kind in (e.ServerStarted, e.ConfigChanged):
            self.limits = limits_from(event.settings)

    def _told(self, record: Record, kind: str) -> None:
        """Fold what changes no state."""
        event: Any = record.event
        task = self.tasks.get(event.task)
        if task is None:
            self.violated(f"{kind} tells of {event.task}, which was never submitted")
            return
        for hook in self._hooks[kind]:
            hook(task, record)

    def _reprioritised(self, record: Record) -> None:
        """Let a task stand elsewhere from now on, if it has not ended."""
        event: Any = record.event
        task = self.tasks.get(event.task)
        if task is None or task.state in FINAL:
            self.violated(f"{event.task} has ended, and was given another priority")
        elif event.was != task.priority or event.priority == event.was:
            self.violated(f"{task.id} went from {event.was} to {event.priority}, and had another")
        else:
            task.priority = event.priority
            self.projects.reorder(task.id, event.priority)
            if task.event.preempt:
                task.lane = (*task.lane[:-2], event.priority, task.lane[-1])

    def _born(self, record: Record, kind: str) -> None:
        event: Any = record.event
        limits = self.limits
        if event.task in self.tasks or event.task in self.batches.known:
            self.violated(f"task {event.task} was born twice")
            return
        total, full = (
            self.waiting_total(),
            self._is_full(event, record.by, self._mates(event, record)),
        )
        task = self.tasks[event.task] = ModelTask(record, self.shift)
        if kind == "task_submitted":
            promised = self.flows.is_derived(task.event) or self.projects.is_selected(task.event)
            promised = promised or task.event.schedule is not None
            if full and not promised:
                caps = f"{limits.queued} or {limits.queued_per_agent}"
                self.violated(f"{event.task} was admitted although {caps} waited")
            if event.position != total + 1:
                self.violated(f"{event.task} got position {event.position}, not {total + 1}")
            task.state = self._place(task, record)
            self._enter(task, record)
        else:
            task.ended_seq, task.ended_at = record.seq, self.steady
            if not full:
                self.violated(f"{event.task} was rejected although both queues had room")
        for hook in self._hooks[kind]:
            hook(task, record)

    def _place(self, task: ModelTask, record: Record) -> str:
        """Say where a new task belongs."""
        not_before = task.event.not_before
        if any(self.state_of(parent) != "succeeded" for parent in task.parents):
            return "blocked"
        if not_before is not None and not_before > record.at:
            task.next_at = task.not_before or 0
            return "scheduled"
        return "ready"

    def _waiting(self) -> Iterable[ModelTask]:
        return chain(self.aside.values(), *(tasks.values() for tasks in self.ready.values()))

    def _mates(self, event: Any, record: Record) -> list[str]:
        """Name the tasks that were admitted with this one, in the same step."""
        plan, at = getattr(event, "plan", None), record.at - self.shift
        group = (plan.batch, plan.workflow) if plan is not None else (None, None)
        if group == (None, None):
            return []
        return [
            each.id
            for each in self._waiting()
            if (each.event.batch, each.event.workflow) == group and each.created_at == at
        ]

    def _is_full(self, event: Any, by: str, mates: Sequence[str] = ()) -> bool:
        limits = self.limits
        if not self.has_share(by, 1, mates):
            return True
        if event.dialect == "browseros":  # its document knows no cap per agent
            return False
        return self.waiting_of(event.agent) >= limits.queued_per_agent

    def has_share(self, by: str, count: int, mates: Sequence[str] = ()) -> bool:
        """Whether so many more of a caller's tasks may wait; a token's not as many as are left.

        One that had none waiting but its `mates`, of the same batch, may fill what is left.
        """
        left = self.limits.queued - self.waiting_total() - count
        token = by.partition("/")[0]
        own = [task for task in self._waiting() if task.by.partition("/")[0] == token]
        is_first = all(task.id in mates for task in own)
        return left >= 0 and (by in ("local", "rota") or is_first or len(own) + count <= left)

    def _enter(self, task: ModelTask, record: Record) -> None:
        if task.state != "ready":
            self.aside[task.id] = task
            return
        queue = self.ready.setdefault(task.agent, {})
        if not queue:
            self.since[task.agent] = record.seq
        queue[task.id] = task
        task.ready_at = self.steady

    def _leave(self, task: ModelTask) -> None:
        self.ready.get(task.agent, {}).pop(task.id, None)
        self.aside.pop(task.id, None)
        self.flying.pop(task.id, None)

    def _moved(self, record: Record, kind: str, *, exact: bool) -> None:
        event: Any = record.event
        task = self.tasks.get(event.task)
        if task is None:
            self.violated(f"{kind} tells of {event.task}, which was never submitted")
            return
        to = NEXT[task.state].get(kind)
        if to is None:
            self.violated(f"{kind} is no legal move of {task.id}, which is {task.state}")
            return
        for hook in self._hooks[kind]:
            hook(task, record)
        if kind == "task_assigned":
            self._assignment(task, exact=exact)
        elif kind == "attempt_interrupted":
            self._interruption(task, event)
        elif kind == "task_revived":
            if self._revived[0] != record.at:
                self._revived = (record.at, [])
            if self._is_full(task.event, task.by, self._revived[1]):
                self.violated(f"{task.id} was revived into a full queue")
            self._revived[1].append(task.id)
        elif kind == "task_cancelled" and event.was != task.state:
            self.violated(f"{task.id} was cancelled as {event.was}, but it was {task.state}")
        self._leave(task)
        task.state = to
        self._fold(task, record, kind)
        if to in FINAL:
            task.ended_seq, task.ended_at = record.seq, self.steady
            task.fell = record.seq if to != "succeeded" else 0
            for hook in self._hooks["end"]:
                hook(task, record)
        elif to in FLYING:
            self.flying[task.id] = task
        else:
            self._enter(task, record)

    def _fold(self, task: ModelTask, record: Record, kind: str) -> None:
        event: Any = record.event
        if kind == "task_assigned":
            task.token, task.assigned_at = record.seq, self.steady
            task.attempt, task.charged = event.attempt, task.charged + 1
            self.since[task.agent] = record.seq
        elif kind == "attempt_interrupted":
            task.attempt -= 1
            task.charged -= 1
            task.interruptions += event.reason not in BLAMELESS
        elif kind == "task_revived":
            task.charged = task.interruptions = 0
            task.waits_since, task.is_doomed = record.seq, False
        elif kind == "task_cancelled":
            task.is_doomed = event.code == "dependency_failed"
        elif kind == "attempt_failed":
            task.next_at = event.next_at - self.shift
        elif kind == "task_delayed":
            if not task.charged or event.until - self.shift != task.next_at:  # no backoff goes on
                task.next_at = event.until - (self.shift if task.is_delay else 0)
        elif kind == "task_succeeded":
            task.result = event.result

    def _interruption(self, task: ModelTask, event: e.AttemptInterrupted) -> None:
        if event.attempt != task.attempt:
            self.violated(f"attempt {task.attempt} of {task.id} was cut off as {event.attempt}")
        self.seen["unread"] += event.reason == "results not read"
        if event.reason not in REASONS:
            self.violated(f"{task.id} was cut off by a reason that nobody knows: {event.reason}")
        if event.reason == "preempted":
            self._preemption(task, event)
        elif (
            task.event.on_interrupt == "fail"
            and event.reason != "released"
            and (task.state == "running" or event.reason == "lease expired")
        ) or (event.reason not in BLAMELESS and task.interruptions + 1 >= INTERRUPTIONS_MAX):
            self.then.append(("task_failed", task.id))

    def _preemption(self, victim: ModelTask, event: e.AttemptInterrupted) -> None:
        self.seen["preempted"] += 1
        self.then.append(("task_assigned", event.for_task))
        task = self.tasks.get(event.for_task or "")
        if task is None or not task.event.preempt:
            self.violated(f"{victim.id} made room for {event.for_task}, which may not pre-empt")
            return
        if task.agent != victim.agent:
            self.violated(f"{task.id} of {task.agent} pre-empted {victim.id} of {victim.agent}")
        if task.priority >= victim.priority:
            self.violated(f"{task.id} pre-empted {victim.id}, which is as urgent")
        if victim.event.on_interrupt == "fail":
            self.violated(f"{victim.id} must not run twice, and was pre-empted")
        if not self.full_caps(task, self.taken()):
            self.violated(f"{victim.id} was pre-empted although there was room for {task.id}")

    def _assignment(self, task: ModelTask, *, exact: bool) -> None:
        victim = self._swapped_for(task)
        if task.interruptions >= INTERRUPTIONS_MAX:
            self.violated(f"{task.id} was assigned after {task.interruptions} interruptions")
        if self.stopped:
            self.violated(f"{task.id} was assigned although the scheduler is paused")
        if task.agent in self.paused:
            self.violated(f"{task.id} was assigned although {task.agent} is paused")
        if task.action in self.paused_types:
            self.violated(f"{task.id} was assigned although {task.action} is paused")
        for cap in self.full_caps(task, self.taken()):
            self.violated(f"{task.id} was assigned over the cap of {cap}")
        rank = self.rank(task)
        for other in self.ready[task.agent].values():
            if other.lane == task.lane and other is not victim and self.rank(other) < rank:
                self.violated(f"{task.id} overtook {other.id}, which is ahead of it in its lane")
        if exact and victim is None and not task.is_pull:
            self.exact += 1
            turn = self.choice()
            if turn is not task:
                name = turn.id if turn else "nobody"
                self.violated(f"{task.id} was assigned, but it was the turn of {name}")

    def _swapped_for(self, task: ModelTask) -> ModelTask | None:
        """Give the task that has just made room for this one."""
        before: Any = self.last.event if self.last is not None else None
        if type(before) is e.AttemptInterrupted and before.for_task == task.id:
            return self.tasks.get(before.task)
        return None

    # -- at rest -------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Judge a moment at which no actor has anything to do."""
        left = self.choice()
        if left is not None:
            self.violated(f"{left.id} of {left.agent} could run, and nobody runs it")
        swap = self.swap()
        if swap is not None:
            self.violated(f"{swap[0].id} could take the place of {swap[1].id}, and does not")
        for hook in self._at_rest:
            hook()

    def overdue(self, now: int) -> None:
        """Judge a moment at which all that was due should have happened."""
        self.clocks.overdue(now)
        self.schedules.overdue(now)

    def settled(self) -> None:
        """Judge the rest: everything that can end has ended."""
        for task in self.tasks.values():
            if task.state not in FINAL and not self._endless(task):
                self.violated(f"{task.id} of {task.agent} never ended: it is {task.state}")
        if self.flying:
            self.violated(f"at rest, {len(self.flying)} tasks still hold slots")
        for hook in self._hooks_of("settled"):
            hook()

    def _endless(self, task: ModelTask, under: Iterable[str] = ()) -> bool:
        """Whether nothing will ever end a task: no worker takes it, no parent of it comes."""
        if task.state in FINAL or task.event.deadline is not None or task.id in under:
            return False
        if self.projects.is_held(task):
            return True
        if task.state != "blocked":
            return task.is_pull and task.event.queue_timeout_ms is None
        parents = [self.tasks.get(parent) for parent in task.parents]
        return any(parent is None or self._endless(parent, (*under, task.id)) for parent in parents)

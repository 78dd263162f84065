"""Builders for tests: events with sensible defaults, chains of records, legal histories, and the
`given(events).when(decision).then(events)` form in which the core is tested.

`history(seed, length)` plays a random but legal run of a scheduler: every event in it comes out
of one of the decide functions, so it could stand in a real log. The same seed gives the same one.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.play_projects import play_projects
from support.play_schedules import play_schedules
from support.wishes import changed, made

from rota.domain import events as e
from rota.domain.admission import (
    check_same,
    decide_batch,
    decide_submission,
    duplicate,
    submitted_batch,
    why_full,
)
from rota.domain.attempts import (
    decide_assignment,
    decide_cancel,
    decide_expiry,
    decide_interruption,
    decide_preemption,
    decide_queue_timeout,
    decide_release,
    decide_result,
    decide_revival,
    decide_start,
    decide_timeout,
)
from rota.domain.bulk import decide_priority
from rota.domain.commands import PULL, Dedup, Flow, Limits, Outcome, SubmitBatch, SubmitTask
from rota.domain.dead import decide_return, is_doomed
from rota.domain.delivery import DeliveryReport, decide_delivery
from rota.domain.dependencies import (
    Prospects,
    check_cycles,
    decide_dependencies,
    doom_reason,
    resolve,
)
from rota.domain.derived import Place
from rota.domain.dispatch import Turns
from rota.domain.leases import Lease, decide_lease_expiry
from rota.domain.notes import LEVELS, decide_notes
from rota.domain.project import decide_hold, project_of
from rota.domain.retry import RetryPolicy
from rota.domain.task import (
    BLOCKED,
    FAILED,
    IN_FLIGHT,
    ORDERLY,
    READY,
    RELEASED,
    SCHEDULED,
    TERMINAL,
    Task,
)
from rota.domain.tokens import hash_of
from rota.domain.workflow import decide_end, decide_trip
from rota.errors import IllegalMove, RequestError
from rota.eventlog.chain import GENESIS, extend
from rota.eventlog.codec import encode, subject_of
from rota.eventlog.port import Head, Stored
from rota.projections import keys
from rota.projections.control import limits_to
from rota.projections.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
START_OF_LOG = Head(0, GENESIS)


# -- events with defaults ------------------------------------------------------------------------


def submitted(task: str = "t1", agent: str = "a1", **fields: Any) -> e.TaskSubmitted:
    """A submission of an `echo` to the builtin executor."""
    known = {"action": "echo", "executor": "builtin", "position": 1, **fields}
    return made(e.TaskSubmitted, task, agent, **known)


def rejected(task: str = "t1", agent: str = "a1", **fields: Any) -> e.TaskRejected:
    """A rejection by a full queue."""
    known = {"action": "echo", "code": "queue_full", "error": "full", **fields}
    return e.TaskRejected(task, agent, **known)


def assigned(
    task: str = "t1", agent: str = "a1", attempt: int = 1, worker: str | None = None
) -> e.TaskAssigned:
    """An assignment, to a worker if one is named."""
    return e.TaskAssigned(task, agent, attempt, worker)


def started(task: str = "t1", agent: str = "a1", attempt: int = 1) -> e.TaskStarted:
    """A start."""
    return e.TaskStarted(task, agent, attempt)


def succeeded(
    task: str = "t1", agent: str = "a1", attempt: int = 1, result: Any = None
) -> e.TaskSucceeded:
    """A success."""
    return e.TaskSucceeded(task, agent, attempt, result)


def failed(task: str = "t1", agent: str = "a1", attempt: int = 1, **fields: Any) -> e.TaskFailed:
    """A failure."""
    known = {"code": "boom", "error": "it broke", **fields}
    return e.TaskFailed(task, agent, attempt, **known)


def cancelled(
    task: str = "t1",
    agent: str = "a1",
    was: str = "ready",
    reason: str = "",
    code: str | None = None,
) -> e.TaskCancelled:
    """A cancellation."""
    return e.TaskCancelled(task, agent, was, reason, code)


def expired(task: str = "t1", agent: str = "a1") -> e.TaskExpired:
    """An expiry by deadline."""
    return e.TaskExpired(task, agent, "deadline", "too late")


def attempt_failed(
    task: str = "t1", agent: str = "a1", attempt: int = 1, *, next_at: int = 0, **fields: Any
) -> e.AttemptFailed:
    """A failure that is followed by another attempt at `next_at`."""
    known = {"code": "boom", "error": "it broke", **fields}
    return e.AttemptFailed(task, agent, attempt, next_at=next_at, **known)


def released(task: str = "t1", agent: str = "a1", after: str = "dependencies") -> e.TaskReleased:
    """The end of what a task waited for."""
    return e.TaskReleased(task, agent, after)


def revived(task: str = "t1", agent: str = "a1") -> e.TaskRevived:
    """A new life of a failed task."""
    return e.TaskRevived(task, agent)


def in_batch(batch_id: str, *tasks: e.TaskSubmitted, **fields: Any) -> list[e.Event]:
    """A batch of these tasks, and their own submissions."""
    told = e.BatchSubmitted(batch_id, [task.task for task in tasks], **fields)
    return [told, *(changed(t, batch=batch_id, parallelism=told.parallelism) for t in tasks)]


def interrupted(
    task: str = "t1", agent: str = "a1", attempt: int = 1, reason: str = "server restarted"
) -> e.AttemptInterrupted:
    """An interruption."""
    return e.AttemptInterrupted(task, agent, attempt, reason)


def server_started(**limits: Any) -> e.ServerStarted:
    """A start under these limits."""
    return e.ServerStarted("test", limits_to(Limits(**limits)))


# -- records and chains --------------------------------------------------------------------------


def records_of(
    events: Iterable[e.Event], *, after: int = 0, at: int = START_US, step: int = 1000
) -> list[e.Record]:
    """Number the events from `after` + 1 on, `step` microseconds apart."""
    return [e.Record(after + n, at + n * step, event) for n, event in enumerate(events, start=1)]


def chained(records: Iterable[e.Record], after: Head = START_OF_LOG) -> list[Stored]:
    """Make stored records that continue the chain after a head."""
    digest, found = after.digest, []
    for record in records:
        body = encode(record)
        digest = extend(digest, body)
        found.append(Stored(record.seq, digest, body, subject_of(record.event)))
    return found


def batch(count: int, after: Head = START_OF_LOG, *, size: int = 0) -> list[Stored]:
    """Make `count` submissions `t<seq>` that continue the chain, `size` bytes larger each."""
    params = {"pad": "x" * size} if size else None
    events = [
        submitted(f"t{n}", params=params) for n in range(after.seq + 1, after.seq + 1 + count)
    ]
    return chained(records_of(events, after=after.seq), after)


def head_of(records: list[Stored], before: Head = START_OF_LOG) -> Head:
    """Give the head after these records."""
    return Head(records[-1].seq, records[-1].digest) if records else before


def fold(records: Iterable[e.Record], state: State | None = None) -> State:
    """Fold records into a state."""
    state = state if state is not None else State()
    for record in records:
        state.apply(record)
    return state


def refuses(state: State, *events: e.Event) -> None:
    """See each event refused as an illegal move, and nothing changed by it."""
    before = state.digest()
    for event in events:
        with pytest.raises(IllegalMove):
            state.apply(e.Record(state.seq + 1, state.at, event))
        assert state.digest() == before


# -- given, when, then ---------------------------------------------------------------------------


class Given:
    """A history, seen through the state it folds to."""

    def __init__(self, events: tuple[e.Event, ...]) -> None:
        self.records = records_of(events)
        self.state = fold(self.records)
        self.now = self.state.at or START_US

    @property
    def task(self) -> Task:
        """The one task of the story."""
        return self.state.tasks.by_id["t1"]

    def token(self, nth: int = -1) -> int:
        """The fencing token of the n-th assignment (the last one, unless told)."""
        seqs = [r.seq for r in self.records if type(r.event) is e.TaskAssigned]
        return seqs[nth]

    def when(self, decide: Callable[..., Any], *args: Any, **kwargs: Any) -> When:
        """Let a function decide about the task."""
        return When(lambda: decide(self.task, *args, **kwargs))

    def when_submitting(self, command: SubmitTask, task: str = "new") -> When:
        """Ask for admission under the limits in force."""
        state = self.state
        return When(lambda: decide_submission(state.backlog, state.control.limits, command, task))


class When:
    """A decision about to be made."""

    def __init__(self, decide: Callable[[], Any]) -> None:
        self._decide = decide

    def then(self, *expected: e.Event) -> None:
        """The decision is exactly these events."""
        found = self._decide()
        events = () if found is None else found if isinstance(found, tuple) else (found,)
        if hasattr(events, "_fields"):
            events = (events,)
        assert list(events) == list(expected)
        assert [type(event) for event in events] == [type(event) for event in expected]

    def then_nothing(self) -> None:
        """Nothing is decided."""
        assert self._decide() is None

    def then_refused(self, error: type[Exception], words: str) -> None:
        """The request is refused in these words."""
        with pytest.raises(error, match=words):
            self._decide()


def one_short(turns: Turns, task: Task) -> tuple[str, ...] | None:
    """Name the limits that hold a task back, if one slot less taken would let it run."""
    full, over = turns._caps.held_by(task)
    return full if full and not over else None


def given(*events: e.Event) -> Given:
    """Tell what happened so far."""
    return Given(events)


# -- legal histories -----------------------------------------------------------------------------

DAY_US = 24 * 3600 * SECOND_US
KINDS_OF_RETRY = ("exponential", "quadratic", "linear", "fixed")


class _Play:
    """A scheduler played by dice: each move is one that a decide function grants."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._count = 0
        self._batches = 0
        self._at = START_US
        self._late: list[tuple[str, int, int]] = []
        self.state = State()
        self.records: list[e.Record] = []

    def record(self, *events: e.Event, by: str = "", cause: int = 0) -> None:
        for event in events:
            record = e.Record(self.state.seq + 1, self._at, event, by, cause)
            self.state.apply(record)
            self.records.append(record)

    def start(self) -> None:
        limits = Limits(
            queued=18,
            queued_per_agent=5,
            inflight=8,
            types=(("sleep", 2),),
            result_ttl_s=self._dice.choice([1, 3, 8]),
            aging_ms=self._dice.choice([0, 0, 100]),
        )
        seq = self.state.seq
        self.record(e.ServerStarted("test", limits_to(limits), seq))

    def move(self) -> None:
        self._at += self._dice.choice([0, 0, 1, 500, 20_000, 200_000])
        moves = [self.submit] * 6 + [self.assign] * 7 + [self.begin] * 4 + [self.end] * 6
        moves += [self.cancel, self.expire, self.deliver, self.deliver, self.time_out]
        moves += [self.reprioritise]
        moves += [self.settle] * 3 + [self.release] * 2 + [self.submit_batch, self.finish_batch]
        moves += [self.revive, self.note, self.end_wait, self.end_lease, self.preempt, self.pause]
        moves += [partial(play_projects, self, self._dice)] * 3
        moves += [partial(play_schedules, self, self._dice)] * 3
        moves += [self.submit_flow, self.steer, self.come_back] + [self.orchestrate] * 2
        moves += [self.control, self.late] + [self.restart] * (self._dice.random() < 0.2)
        moves += [self.sleep] * (self._dice.random() < 0.05)
        moves += [self.step_clock] * (self._dice.random() < 0.3)
        self._dice.choice(moves)()

    def sleep(self) -> None:
        self._at += DAY_US

    def step_clock(self) -> None:
        was = self._at
        self._at += self._dice.choice([-1, 1]) * self._dice.choice([SECOND_US, 3600 * SECOND_US])
        self.record(e.ClockStepped(was, self._at))

    def pick(self, *states: Any) -> Task | None:
        found = [task for task in self.state.tasks if task.state in states]
        return self._dice.choice(found) if found else None

    # -- admission, as the actor does it

    def command(self) -> SubmitTask:
        dice = self._dice
        command = SubmitTask(
            agent=f"agent-{dice.randrange(6)}",
            action=dice.choice(["echo", "sleep", "fail"]),
            executor=dice.choice(["builtin", "web", PULL]),
            params=dice.choice([None, {}, {"n": dice.randrange(99), "s": "é\n\u2028"}]),
            priority=dice.randrange(-1, 5),
            dialect=dice.choice(["native", "pinchtab"]),
            tab=dice.choice([None, "tab-1"]),
            ref=dice.choice([None, "ref"]),
            callback=dice.choice([None, "https://example.com/hook"]),
            deadline=dice.choice([None, None, self._at + dice.randrange(6_000_000)]),
            timeout_ms=dice.choice([None, dice.randrange(1, 2000)]),
            on_interrupt=dice.choice([None, None, "fail"]),
            by=dice.choice(["", "somebody"]),
        )
        if dice.random() < 0.4:
            return command
        policy = RetryPolicy(
            kind=dice.choice(KINDS_OF_RETRY),
            base_ms=dice.randrange(300),
            jitter_ms=dice.choice([0, 50]),
            max_attempts=dice.randrange(1, 6),
            retry_on=dice.choice([None, None, ["boom"], ["timeout"]]),
        )
        return changed(
            command,
            key=dice.choice([None, "key-1", "key-2"]),
            retry=dice.choice([None, policy.to_dict(), policy.to_dict()]),
            queue_timeout_ms=dice.choice([None, None, dice.randrange(1, 5000)]),
            requires=dice.choice([None, None, ["gpu"]]),
            not_before=dice.choice([None, None, self._at + dice.randrange(6_000_000)]),
            delay_ms=dice.choice([None, None, dice.randrange(6000)]),
            preempt=dice.random() < 0.3,
            depends=self._parents(),
            on_missing=dice.choice(["wait", "wait", "fail"]),
        )

    def _parents(self) -> tuple[str | int, ...]:
        """Depend on what there is, and now and then on what may come."""
        dice = self._dice
        if dice.random() < 0.4:
            return ()
        hopeless = dice.random() < 0.1
        known = [t.id for t in self.state.tasks if hopeless or t.state not in TERMINAL]
        known += [f"tsk_{self._count + dice.randrange(1, 9)}"] * (dice.random() < 0.2)
        return tuple(dice.sample(known, min(len(known), dice.randrange(1, 4))))

    def submit(self) -> None:
        dice = self._dice
        self._count += 1
        task_id = f"tsk_{self._count}"
        command = changed(
            self.command(),
            idempotency=dice.choice([None, None, None, "i-1", "i-2"]),
            digest=dice.choice(["d-1", "d-2"]),
            dedup=dice.choice([None, None, None, self._dedup()]),
        )
        state = self.state
        try:
            if self._is_known(command):
                return
            depends = resolve(command.depends)
            edges = {task_id: depends.values()}
            check_cycles(edges, state.graph.waits_for(edges, depends.values()))
            prospects = decide_dependencies(depends, command.on_missing, state.tasks.get)
        except RequestError:
            return
        event = decide_submission(
            state.backlog,
            state.control.limits,
            command,
            task_id,
            at=self._at,
            depends=depends or None,
            prospects=prospects,
        )
        if isinstance(event, e.TaskSubmitted):
            replaced = self._replace(command, task_id)
            if replaced is not None and replaced.id in prospects.waits:
                prospects = prospects._replace(doomed_by=replaced)
        self.record(event, by=command.by)
        self._doom(task_id, prospects)

    def _dedup(self) -> Dedup:
        dice = self._dice
        mode = dice.choice(["reject", "return", "replace"])
        return Dedup(dice.choice(["x", "y"]), dice.choice([0, 400_000]), mode)

    def _is_known(self, command: SubmitTask) -> bool:
        held = self.state.keys
        plan = command.plan
        if plan.idempotency is not None:
            known = held.find(keys.idempotency(command.by, plan.idempotency), self._at)
            if known is not None:
                check_same(plan.idempotency, plan.digest, known.digest)
                return True
        if command.dedup is not None and command.dedup.mode != "replace":
            known = held.find(keys.dedup(command.by, command.dedup.key), self._at)
            if known is not None and command.dedup.mode == "reject":
                raise duplicate(command.dedup.key, known.subject)
            return known is not None
        return False

    def _replace(self, command: SubmitTask, task_id: str) -> Task | None:
        if command.dedup is None or command.dedup.mode != "replace":
            return None
        held = self.state.keys.find(keys.dedup(command.by, command.dedup.key), self._at)
        old = self.state.tasks.get(held.subject) if held is not None else None
        if old is None or old.state in TERMINAL:
            return None
        self.record(decide_cancel(old, f"replaced by {task_id}", "replaced"), by=command.by)
        return old

    def _doom(self, task_id: str, prospects: Prospects) -> None:
        task = self.state.tasks.get(task_id)
        parent = prospects.doomed_by
        if parent is not None and task is not None and task.state not in TERMINAL:
            self.record(decide_cancel(task, doom_reason(parent), "dependency_failed"))

    def submit_batch(self) -> None:
        dice, state = self._dice, self.state
        size = dice.randrange(1, 6)
        self._batches += 1
        batch_id = f"bat_{self._batches}"
        command = SubmitBatch(
            tasks=tuple(self._item(n) for n in range(size)),
            parallelism=dice.choice([None, 1, 2]),
            callback=dice.choice([None, "https://example.com/batch"]),
            idempotency=dice.choice([None, None, "b-1"]),
            digest="d-1",
            by="",
        )
        full = why_full(state.backlog, state.control.limits, [t.agent for t in command.tasks])
        if full is not None:
            self.record(e.BatchRejected(batch_id, size, "queue_full", full))
            return
        if command.idempotency is not None:
            name = keys.idempotency(command.by, command.idempotency)
            if state.keys.find(name, self._at) is not None:
                return
        ids = [f"tsk_{self._count + n}" for n in range(1, size + 1)]
        self._count += size
        try:
            tasks, prospects = decide_batch(
                command,
                batch_id,
                ids,
                waiting=state.backlog.total,
                find=state.tasks.get,
                graph=state.graph,
            )
        except RequestError:
            return
        self.record(submitted_batch(command, batch_id, ids), *tasks)
        for task_id, each in zip(ids, prospects, strict=True):
            self._doom(task_id, each)

    def _item(self, n: int) -> SubmitTask:
        """An item that depends on some of those before it, by index or by ref."""
        dice = self._dice
        before = [dice.choice((at, f"ref:item-{at}")) for at in range(n)]
        inside = dice.sample(before, dice.randrange(n + 1)) if n else []
        command = self.command()._replace(ref=f"item-{n}", by="")
        outside = command.depends if dice.random() < 0.3 else ()
        return command._replace(depends=(*inside, *outside))

    # -- workflows, as the orchestrator does it

    def submit_flow(self) -> None:
        dice, state = self._dice, self.state
        self._batches += 1
        name = f"wfl_{self._batches}"
        escalation = {"agent": "agent-0", "action": "echo", "params": {"of": "{{workflow.id}}"}}
        how = dice.choice([None, "cancel", "pause", "escalate", "escalate"])
        escalate = dice.choice([{"task": escalation}, {"callback": "https://example.com/up"}])
        flow = Flow(
            dice.choice([None, "nightly"]),
            dice.random() < 0.4,
            dice.choice([None, {"count": 2}, {"share": 0.5}]),
            how,
            escalate if how == "escalate" else None,
        )
        size = dice.randrange(1, 4)
        command = SubmitBatch(
            tuple(self._item(n) for n in range(size)),
            callback=dice.choice([None, "https://example.com/flow"]),
            flow=flow,
        )
        if why_full(state.backlog, state.control.limits, [t.agent for t in command.tasks]):
            return
        ids = [f"tsk_{self._count + n}" for n in range(1, size + 1)]
        self._count += size
        try:
            tasks, prospects = decide_batch(
                command,
                name,
                ids,
                waiting=state.backlog.total,
                find=state.tasks.get,
                graph=state.graph,
            )
        except RequestError:
            return
        self.record(submitted_batch(command, name, ids), *tasks)
        for task_id, each in zip(ids, prospects, strict=True):
            self._doom(task_id, each)

    def _new_id(self) -> str:
        self._count += 1
        return f"tsk_{self._count}"

    def orchestrate(self) -> None:
        """Do what is due about workflows, some of what is to be cancelled among it."""
        for name in self.state.batches.due_flows():
            flow = self.state.batches.flow(name)
            assert flow is not None
            place = Place(self._new_id, self.state.backlog.total, self._at)
            self.record(*decide_trip(flow, self.state.control.rules, place))
            if flow.stopping is not None:
                found = [t for each in flow.tasks if (t := self.state.tasks.get(each)) is not None]
                for task in [t for t in found if t.state not in TERMINAL][:2]:
                    self.record(decide_cancel(task, flow.stopping, "workflow_cancelled"))
            end = decide_end(flow)
            if end is not None:
                self.record(end)

    def steer(self) -> None:
        live = [f for f in self.state.batches.flows() if not f.finished_at and f.stopping is None]
        if not live:
            return
        flow = self._dice.choice(live)
        if flow.paused is not None:
            self.record(e.WorkflowResumed(flow.id))
        elif self._dice.random() < 0.5:
            self.record(e.WorkflowPaused(flow.id, "dice"))
        elif self._dice.random() < 0.3:
            self.record(e.WorkflowCancelled(flow.id, self._dice.choice(["", "dice"])))
        elif flow.is_open:
            self.record(e.WorkflowClosed(flow.id))

    def come_back(self) -> None:
        """Revive what a failed dependency cancelled, if that lives again."""
        for task in [t for t in self.state.tasks if is_doomed(t)]:
            flow = self.state.batches.flow(task.plan.workflow if task.plan is not None else None)
            is_here = self.state.tasks.get(task.id) is task and is_doomed(task)
            if is_here and (flow is None or flow.stopping is None):
                with suppress(RequestError):
                    self.record(*decide_return(task, self.state.tasks.get, self._at))

    def finish_batch(self) -> None:
        for batch_id in self.state.batches.unfinished():
            fates = self.state.batches.by_id[batch_id].fates
            counts = (fates["succeeded"], fates["failed"], fates["cancelled"])
            self.record(e.BatchFinished(batch_id, *counts))

    # -- waiting

    def settle(self) -> None:
        """Settle some of what is due, not all: the actor does it in slices."""
        state = self.state
        for task_id, reason in list(state.graph.due.items())[: self._dice.randrange(1, 4)]:
            task = state.tasks.get(task_id)
            assert task is not None
            assert task.state is BLOCKED
            if reason:
                self.record(decide_cancel(task, reason, "dependency_failed"))
            else:
                event = decide_release(task, self._at)
                assert event is not None
                self.record(event)

    def release(self) -> None:
        for task in [t for t in self.state.tasks if t.state is SCHEDULED]:
            event = decide_release(task, self._at)
            if event is not None:
                self.record(event)

    def end_wait(self) -> None:
        for task in list(self.state.tasks):
            event = decide_queue_timeout(task, task.entry, self._at)
            if event is not None:
                self.record(event)

    def revive(self) -> None:
        task = self.pick(FAILED)
        if task is None:
            return
        if why_full(self.state.backlog, self.state.control.limits, (task.agent,)) is None:
            params = self._dice.choice([None, None, {"edited": 1}])
            flow = self.state.batches.flow(task.plan.workflow if task.plan is not None else None)
            if flow is None or flow.stopping is None:
                with suppress(RequestError):
                    back = decide_revival(task, self._at, params)
                    self.record(back, *self._held(task), by="somebody")

    def _held(self, task: Task) -> tuple[e.Event, ...]:
        """Put a task of a project back on its list."""
        project = self.state.projects.get(project_of(task) or "")
        written = {"agent": task.agent, "action": task.action}
        return decide_hold(project, task, written) if project is not None else ()

    # -- attempts

    def _turns(self) -> Turns:
        state = self.state
        control = state.control
        return Turns(
            state.backlog.orders,
            state.slots,
            control.paused,
            control.limits,
            control.paused_types,
            state.batches.paused_flows,
        )

    def assign(self) -> None:
        """Give a slot to whose turn it is, or lend a task that waits for a worker."""
        if self.state.control.stopped is not None:
            return
        task = self._turns().next()
        lent = self.pick(READY)
        if lent is not None and lent.executor == PULL:
            slots, limits = self.state.slots, self.state.control.limits
            if slots.total < limits.inflight:
                task = lent
        if task is not None:
            lease = (f"worker-{self._dice.randrange(3)}", 30_000) if task is lent else ()
            self.record(decide_assignment(task, *lease), cause=task.created_seq)
            self._late.append((task.id, task.attempt, task.token))

    def preempt(self) -> None:
        turns = self._turns()
        if self.state.control.stopped is not None or turns.next() is not None:
            return
        for task in [t for t in self.state.tasks if t.state is READY and t.executor != PULL]:
            held_by = one_short(turns, task) if task.plan and task.plan.preempt else None
            if held_by is not None:
                running = self.state.slots.held_by(task.agent)
                swap = decide_preemption(task, held_by, running)
                if swap is not None:
                    self.record(*swap, cause=task.created_seq)
                    return

    def begin(self) -> None:
        task = next((t for t in self.state.tasks if t.state.value == "assigned"), None)
        event = decide_start(task, task.token) if task is not None else None
        if task is not None and event is not None:
            self.record(event, cause=task.token)

    def _outcome(self) -> Outcome:
        dice = self._dice
        if dice.random() < 0.5:
            return Outcome(ok=True, result=dice.choice([None, 0, "", {"x": [1, 2.5]}]))
        after = dice.choice([None, None, 0.2])
        details = {"why": "dice"}
        return Outcome(ok=False, code="boom", error="broke", details=details, retry_after_s=after)

    def _result(self, task: Task, attempt: int, token: int) -> e.Event:
        return decide_result(task, attempt, token, self._outcome(), self._at, self._dice.random())

    def end(self) -> None:
        task = self.pick(*IN_FLIGHT)
        if task is not None:
            self.record(self._result(task, task.attempt, task.token), cause=task.token)

    def late(self) -> None:
        if self._late:
            task_id, attempt, token = self._dice.choice(self._late)
            task = self.state.tasks.get(task_id)
            if task is not None:
                self.record(self._result(task, attempt, token))

    def end_lease(self) -> None:
        """Let a worker be silent for too long, or give its task back after it was heard of."""
        task = next((t for t in self.state.tasks if t.is_leased), None)
        if task is None:
            return
        lease = Lease(task, self._at)
        if self._dice.random() < 0.5:
            self.record(*decide_lease_expiry(task, lease, self._at + 1), cause=task.token)
        else:
            lease.extend(self._at, None)
            ended = lease.ended(task.attempt, RELEASED, self._at)
            self.record(*ended, *decide_interruption(task, RELEASED), cause=task.token)

    def note(self) -> None:
        task = self.pick(*IN_FLIGHT)
        if task is not None:
            dice = self._dice
            lines = dice.choice([(), ("one",), ("one", "two")])
            progress = dice.choice([None, 0, {"percent": dice.randrange(100)}])
            self.record(*decide_notes(task, lines, dice.choice(LEVELS), progress))

    def cancel(self) -> None:
        task = self.pick(*(s for s in type(READY) if s not in TERMINAL))
        if task is not None:
            self.record(decide_cancel(task, self._dice.choice(["", "no longer wanted"])))

    def reprioritise(self) -> None:
        task = self.pick(*(s for s in type(READY) if s not in TERMINAL))
        event = decide_priority(task, self._dice.randrange(4)) if task is not None else None
        if event is not None:
            self.record(event)

    def expire(self) -> None:
        for task in list(self.state.tasks):
            event = decide_expiry(task, self._at)
            if event is not None:
                self.record(event)

    def time_out(self) -> None:
        task = self.pick(*IN_FLIGHT)
        if task is not None:
            event = decide_timeout(task, task.token, self._at, self._dice.random())
            if event is not None:
                self.record(event)

    def deliver(self) -> None:
        pending = list(self.state.deliveries.pending.values())
        if pending:
            dice = self._dice
            ok = dice.random() < 0.4
            report = DeliveryReport(ok, 200 if ok else 500, "" if ok else "HTTP 500")
            self.record(decide_delivery(dice.choice(pending), report, 3, self._at))

    # -- control

    def control(self) -> None:
        dice = self._dice
        agent = f"agent-{dice.randrange(6)}"
        if agent in self.state.control.paused:
            self.record(e.AgentResumed(agent))
        elif dice.random() < 0.5:
            self.record(e.AgentPaused(agent, "dice"))
        else:
            limits = self.state.control.limits._replace(
                result_ttl_s=dice.choice([1, 3, 8]),
                aging_ms=dice.choice([0, 0, 100, 1000]),
                ended=dice.choice([0, 0, 3]),
                ended_bytes=dice.choice([0, 0, 4000]),
            )
            self.record(e.RefusalsCounted(3, {agent: 2}, 1, dice.randrange(2)))
            self.token(dice.choice("abc"))
            self.record(e.ConfigChanged(limits_to(limits), ["result_ttl_s"], "test"))

    def pause(self) -> None:
        control = self.state.control
        if control.stopped is not None:
            self.record(e.SchedulerResumed())
        elif control.paused_types:
            name = next(iter(control.paused_types))
            self.record(e.TypeResumed(name))
            self.record(e.TypeDeclared("", name, max_concurrent=2), by="fleet#1")
        elif self._dice.random() < 0.6:
            self.record(e.TypePaused(self._dice.choice(["echo", "sleep"]), "dice"))
        else:
            self.record(e.SchedulerPaused("dice"))

    def token(self, name: str) -> None:
        """Make a token of this name, or revoke it."""
        if name in self.state.tokens.by_name:
            self.record(e.TokenRevoked(name), by="ops")
        else:
            end = self._at + 1_000_000 if name == "a" else None
            digest = hash_of(f"{name} {self.state.seq}".encode())
            self.record(e.TokenCreated(name, "submit", digest, ["ann"], end), by="ops")

    def restart(self) -> None:
        orderly = self._dice.random() < 0.5
        if orderly:
            self.interrupt(ORDERLY)
            self.record(e.ServerStopped("asked to stop"))
        self.start()
        if not orderly:
            self.interrupt("server restarted")

    def interrupt(self, reason: str) -> None:
        for task in [t for t in self.state.tasks if t.state in IN_FLIGHT and not t.is_leased]:
            self.record(*decide_interruption(task, reason))


def history(seed: int, length: int) -> list[e.Record]:
    """Give a random but legal history of at least `length` records."""
    play = _Play(seed)
    play.start()
    while len(play.records) < length:
        play.move()
    return play.records

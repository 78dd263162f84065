"""Builders for tests: events with sensible defaults, chains of records, legal histories, and the
`given(events).when(decision).then(events)` form in which the core is tested.

`history(seed, length)` plays a random but legal run of a scheduler: every event in it comes out
of one of the decide functions, so it could stand in a real log. The same seed gives the same one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from rota.domain import events as e
from rota.domain.admission import decide_submission
from rota.domain.attempts import (
    decide_assignment,
    decide_cancel,
    decide_expiry,
    decide_interruption,
    decide_result,
    decide_start,
    decide_timeout,
)
from rota.domain.commands import Limits, Outcome, SubmitTask
from rota.domain.delivery import DeliveryReport, decide_delivery
from rota.domain.task import IN_FLIGHT, ORDERLY, READY, TERMINAL, Task
from rota.eventlog.chain import GENESIS, extend
from rota.eventlog.codec import encode, subject_of
from rota.eventlog.port import Head, Stored
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
    return e.TaskSubmitted(task, agent, **known)


def rejected(task: str = "t1", agent: str = "a1", **fields: Any) -> e.TaskRejected:
    """A rejection by a full queue."""
    known = {"action": "echo", "code": "queue_full", "error": "full", **fields}
    return e.TaskRejected(task, agent, **known)


def assigned(task: str = "t1", agent: str = "a1", attempt: int = 1) -> e.TaskAssigned:
    """An assignment."""
    return e.TaskAssigned(task, agent, attempt)


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
    task: str = "t1", agent: str = "a1", was: str = "ready", reason: str = ""
) -> e.TaskCancelled:
    """A cancellation."""
    return e.TaskCancelled(task, agent, was, reason)


def expired(task: str = "t1", agent: str = "a1") -> e.TaskExpired:
    """An expiry by deadline."""
    return e.TaskExpired(task, agent, "deadline", "too late")


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


def given(*events: e.Event) -> Given:
    """Tell what happened so far."""
    return Given(events)


# -- legal histories -----------------------------------------------------------------------------


class _Play:
    """A scheduler played by dice: each move is one that a decide function grants."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._count = 0
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
            queued=12, queued_per_agent=4, inflight=8, result_ttl_s=self._dice.choice([1, 3, 8])
        )
        seq = self.state.seq
        self.record(e.ServerStarted("test", limits_to(limits), seq))

    def move(self) -> None:
        self._at += self._dice.choice([0, 0, 1, 500, 20_000, 300_000])
        moves = [self.submit] * 5 + [self.assign] * 4 + [self.begin] * 3 + [self.end] * 4
        moves += [self.cancel, self.expire, self.deliver, self.deliver, self.time_out]
        moves += [self.control, self.late] + [self.restart] * (self._dice.random() < 0.2)
        self._dice.choice(moves)()

    def pick(self, *states: Any) -> Task | None:
        found = [task for task in self.state.tasks if task.state in states]
        return self._dice.choice(found) if found else None

    def submit(self) -> None:
        dice = self._dice
        self._count += 1
        command = SubmitTask(
            agent=f"agent-{dice.randrange(6)}",
            action=dice.choice(["echo", "sleep", "fail"]),
            executor=dice.choice(["builtin", "web", "pull"]),
            params=dice.choice([None, {}, {"n": dice.randrange(99), "s": "é\n\u2028"}]),
            priority=dice.randrange(-1, 5),
            dialect=dice.choice(["native", "pinchtab"]),
            tab=dice.choice([None, "tab-1"]),
            ref=dice.choice([None, "ref"]),
            callback=dice.choice([None, "https://example.com/hook"]),
            deadline=dice.choice([None, self._at + dice.randrange(2_000_000)]),
            timeout_ms=dice.choice([None, dice.randrange(1, 2000)]),
            on_interrupt=dice.choice([None, None, "fail"]),
        )
        state = self.state
        event = decide_submission(
            state.backlog, state.control.limits, command, f"tsk_{self._count}"
        )
        self.record(event, by=dice.choice(["", "somebody"]))

    def assign(self) -> None:
        task = self.pick(READY)
        if task is not None and self.state.slots.total < self.state.control.limits.inflight:
            self.record(decide_assignment(task), cause=task.created_seq)
            self._late.append((task.id, task.attempt, task.token))

    def begin(self) -> None:
        task = next((t for t in self.state.tasks if t.state.value == "assigned"), None)
        event = decide_start(task, task.token) if task is not None else None
        if task is not None and event is not None:
            self.record(event, cause=task.token)

    def _outcome(self) -> Outcome:
        if self._dice.random() < 0.6:
            return Outcome(ok=True, result=self._dice.choice([None, 0, "", {"x": [1, 2.5]}]))
        return Outcome(ok=False, code="boom", error="broke", details={"why": "dice"})

    def end(self) -> None:
        task = self.pick(*IN_FLIGHT)
        if task is not None:
            event = decide_result(task, task.attempt, task.token, self._outcome())
            self.record(event, cause=task.token)

    def late(self) -> None:
        if self._late:
            task_id, attempt, token = self._dice.choice(self._late)
            task = self.state.tasks.get(task_id)
            if task is not None:
                self.record(decide_result(task, attempt, token, self._outcome()))

    def cancel(self) -> None:
        task = self.pick(*(s for s in type(READY) if s not in TERMINAL))
        if task is not None:
            self.record(decide_cancel(task, self._dice.choice(["", "no longer wanted"])))

    def expire(self) -> None:
        for task in list(self.state.tasks):
            event = decide_expiry(task, self._at)
            if event is not None:
                self.record(event)

    def time_out(self) -> None:
        task = self.pick(*IN_FLIGHT)
        event = decide_timeout(task, task.token, self._at) if task is not None else None
        if event is not None:
            self.record(event)

    def deliver(self) -> None:
        pending = list(self.state.deliveries.pending.values())
        if pending:
            dice = self._dice
            ok = dice.random() < 0.4
            report = DeliveryReport(ok, 200 if ok else 500, "" if ok else "HTTP 500")
            self.record(decide_delivery(dice.choice(pending), report, 3, self._at))

    def control(self) -> None:
        agent = f"agent-{self._dice.randrange(6)}"
        if agent in self.state.control.paused:
            self.record(e.AgentResumed(agent))
        elif self._dice.random() < 0.5:
            self.record(e.AgentPaused(agent, "dice"))
        else:
            limits = self.state.control.limits._replace(result_ttl_s=self._dice.choice([1, 3, 8]))
            self.record(e.ConfigChanged(limits_to(limits), ["result_ttl_s"], "test"))

    def restart(self) -> None:
        orderly = self._dice.random() < 0.5
        if orderly:
            self.interrupt(ORDERLY)
            self.record(e.ServerStopped("asked to stop"))
        self.start()
        if not orderly:
            self.interrupt("server restarted")

    def interrupt(self, reason: str) -> None:
        for task in [t for t in self.state.tasks if t.state in IN_FLIGHT]:
            self.record(*decide_interruption(task, reason))


def history(seed: int, length: int) -> list[e.Record]:
    """Give a random but legal history of at least `length` records."""
    play = _Play(seed)
    play.start()
    while len(play.records) < length:
        play.move()
    return play.records

"""A shard on a bench: real actors over a log in memory, with a loop that runs when it is told to.

Time stands still until the bench moves it; attempts run until the test ends them; what is recorded is
written at once. So a test says exactly what happens, and in which order.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.actors.recovery import rebuild
from rota.actors.system import Shard
from rota.clock import ManualClock
from rota.domain.commands import Limits, Outcome, SubmitBatch, SubmitTask
from rota.errors import RotaError
from rota.eventlog.codec import decode
from rota.eventlog.committer import Committed
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.replay import stored_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.clock import Clock
    from rota.domain.delivery import DeliveryReport
    from rota.domain.events import Record
    from rota.domain.task import Task
    from rota.executors.port import Attempt, Tell

GOOD = Outcome(ok=True)
BAD = Outcome(ok=False, code="boom", error="it broke")
STEPS_MAX = 100_000


class Host:
    """A loop that runs when told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock: Clock = clock
        self._clock = clock
        self.soon: deque[Callable[[], Any]] = deque()
        self.later: list[tuple[int, int, Handle]] = []
        self.turns = 0
        self._count = count()

    def call_soon(self, what: Callable[[], None]) -> None:
        self.soon.append(what)

    def hurry(self, run: Callable[[], None]) -> None:
        run()

    def call_at(self, at_us: int, what: Callable[[], None]) -> Handle:
        handle = Handle(what)
        due = self._clock.steady_us() + at_us - self._clock.now_us()
        heappush(self.later, (due, next(self._count), handle))
        return handle

    def call_threadsafe(self, what: Callable[..., None], *args: Any) -> None:
        self.soon.append(lambda: what(*args))

    def run(self) -> None:
        """Do what is to be done now."""
        for _ in range(STEPS_MAX):
            if not self.soon:
                return
            self.turns += 1
            self.soon.popleft()()
        msg = "the loop never comes to rest"
        raise AssertionError(msg)

    def due(self) -> int | None:
        """Give the next moment that somebody waits for."""
        while self.later and not self.later[0][2].live:
            heappop(self.later)
        ahead = self._clock.now_us() - self._clock.steady_us()
        return self.later[0][0] + ahead if self.later else None

    def run_until(self, at_us: int) -> None:
        """Let time pass, moment by moment."""
        for _ in range(STEPS_MAX):
            self.run()
            due = self.due()
            if due is None or due > at_us:
                self._clock.move_to(at_us)
                return
            self._clock.move_to(due)
            heappop(self.later)[2].what()
        msg = "the timers never come to rest"
        raise AssertionError(msg)


class Handle:
    """A moment that can be called off."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what, self.live = what, True

    def cancel(self) -> None:
        self.live = False


class Line:
    """Writes at once."""

    def __init__(self, log: Any, epoch: int, report: Any) -> None:
        self.log, self.epoch, self.report = log, epoch, report

    def hand_over(self, records: list[Any]) -> None:
        self.log.append(records, records[0].seq - 1, self.epoch)
        self.report(Committed(records[-1].seq, len(records)))

    def save(self, snapshot: Any) -> None:
        self.log.save_snapshot(snapshot)

    def run(self, what: Callable[[], None]) -> None:
        what()

    def resume(self, epoch: int) -> None:
        self.epoch = epoch

    def close(self) -> None:
        pass


class Reply:
    """Keeps its answer."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def ok(self, value: Any) -> None:
        self.answers.append(value)

    def fail(self, error: RotaError) -> None:
        self.answers.append(error)


class Runner:
    """Lets attempts run until the test ends them."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[Attempt, Callable[[Outcome], None], Tell]] = {}
        self.started: list[Attempt] = []
        self.aborted: list[tuple[str, str]] = []

    def start(self, attempt: Attempt, ended: Callable[[Outcome], None], tell: Tell) -> Any:
        self.running[attempt.task] = (attempt, ended, tell)
        self.started.append(attempt)

        def abort(reason: str) -> None:
            if self.running.get(attempt.task, (None,))[0] is attempt:
                del self.running[attempt.task]
            self.aborted.append((attempt.task, reason))

        return abort


class Courier:
    """Keeps what is to be delivered until the test says how it went."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Callable[[DeliveryReport], None]]] = []

    def deliver(self, subject: Any, delivery_id: str, done: Any) -> None:
        state = getattr(subject, "state", "finished")
        self.sent.append((subject.id, str(state), done))


class Bench:
    """A shard and all it needs."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        self.log = MemoryLog()
        self.limits = limits or Limits()
        self.options = options
        self._clock = ManualClock()
        self._ids = count(1)
        self.start()

    def start(self) -> None:
        """Start a shard over the log, as after a crash of the one before."""
        self.host, self.runner, self.courier = Host(self._clock), Runner(), Courier()
        self.shard = Shard(
            self.log,
            self.host,
            limits=self.limits,
            line=Line,
            runner=self.runner,
            courier=self.courier,
            new_id=lambda: f"tsk_{next(self._ids)}",
            **{"draw": lambda: 0.0, **self.options},
        )
        self.shard.start()
        self.host.run()

    def crash(self, away_s: int = 0) -> None:
        """Lose everything but the log, and start again, maybe much later."""
        self.close()
        self.host.clock.advance_us(away_s * 1_000_000)
        self.start()

    def close(self) -> None:
        """Let the actors go."""
        self.shard._drop_actors("the test is over")

    # -- what clients ask

    def ask(self, ref: Any, make: Callable[[Reply], Any]) -> Any:
        """Send a message and give its answer; raises what it was refused with."""
        reply = Reply()
        ref.tell(make(reply))
        self.host.run()
        [answer] = reply.answers
        if isinstance(answer, RotaError):
            raise answer
        return answer

    def offer(self, *commands: SubmitTask) -> list[Any]:
        """Submit tasks, and give the answers as they are."""
        answers: list[Any] = self.ask(
            self.shard.admission, lambda reply: m.SubmitTasks(commands, reply)
        )
        return answers

    def submit(self, command: SubmitTask) -> str:
        """Submit a task that is taken; raises what it was refused with."""
        [answer] = self.offer(command)
        if isinstance(answer, RotaError):
            raise answer
        assert isinstance(answer, m.Admitted), answer
        return answer.task

    def submit_batch(self, *tasks: SubmitTask, **fields: Any) -> m.BatchAdmitted:
        """Submit tasks together."""
        batch = SubmitBatch(tasks, **fields)
        answer: m.BatchAdmitted = self.ask(
            self.shard.admission, lambda reply: m.SubmitTogether(batch, reply)
        )
        return answer

    def cancel(self, task: str, reason: str = "") -> None:
        """Cancel a task."""
        queue = self.shard.queue(self.task(task).agent)
        self.ask(queue, lambda reply: m.CancelTask(task, reason, "", reply))

    def revive(self, task: str) -> None:
        """Give a failed task a new life."""
        queue = self.shard.queue(self.task(task).agent)
        self.ask(queue, lambda reply: m.ReviveTask(task, "", reply))

    def pause_scheduler(self, *, paused: bool = True) -> None:
        """Pause the scheduler, or resume it."""
        dispatcher = self.shard.dispatcher
        self.ask(dispatcher, lambda reply: m.PauseScheduler(paused, "", "", reply))

    def pause_type(self, name: str, *, paused: bool = True) -> None:
        """Pause a type, or resume it."""
        dispatcher = self.shard.dispatcher
        self.ask(dispatcher, lambda reply: m.PauseType(name, paused, "", "", reply))

    def pause_agent(self, agent: str, *, paused: bool = True) -> None:
        """Pause an agent, or resume it."""
        queue = self.shard.queue(agent)
        if paused:
            self.ask(queue, lambda reply: m.PauseAgent("", "", reply))
        else:
            self.ask(queue, lambda reply: m.ResumeAgent("", reply))

    # -- what executors do

    def end(self, task: str, outcome: Outcome = GOOD) -> None:
        """End a running attempt."""
        _, ended, _ = self.runner.running.pop(task)
        ended(outcome)
        self.host.run()

    @property
    def running(self) -> list[str]:
        """Name the tasks whose attempts run."""
        return list(self.runner.running)

    # -- time

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.host.run_until(self.host.clock.now_us() + round(seconds * 1_000_000))

    # -- what came of it

    def task(self, task: str) -> Task:
        """Give a task, from memory or from the log."""
        found = self.shard.archive.task(task)
        assert found is not None, task
        return found

    def state(self, task: str) -> str:
        """Name where a task is."""
        return self.task(task).state.value

    def records(self) -> list[Record]:
        """Read the log."""
        return [decode(item.body) for item in self.log.read(0, 1 << 30)]

    def kinds(self, task: str) -> list[str]:
        """Name what happened to a task, or to a batch."""
        names = (type(decode(item.body).event).__name__ for item in stored_of(self.log, task))
        return list(names)

    def check_replay(self) -> None:
        """The state is what the log says, and nobody failed on the way."""
        assert rebuild(self.log, use_snapshots=False).digest() == self.shard.state.digest()
        assert "ActorFailed" not in {type(record.event).__name__ for record in self.records()}

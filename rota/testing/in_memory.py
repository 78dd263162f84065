"""The real scheduler in memory: submit, let time pass, look.

Every part is the one that a server runs, but for its edges: the log is in memory, time stands still
until `wait`, attempts are run by a worker's functions, go by a script or until the test ends them,
and callbacks are kept. A test runs on one thread and sleeps nowhere; two runs of it do the same.
"""

from __future__ import annotations

import asyncio
import inspect
from itertools import count
from typing import TYPE_CHECKING, Any, Self, Unpack

import orjson
from pydantic import ValidationError

from rota.actors import messages as m
from rota.actors.archive import from_log
from rota.actors.system import Shard
from rota.client.fields import TaskBody
from rota.client.models import read_task
from rota.client.words import in_python, wire
from rota.clock import ManualClock
from rota.domain.batch import Batch
from rota.domain.commands import Limits, Outcome
from rota.domain.delivery import DeliveryReport
from rota.domain.events import TaskLogged
from rota.domain.intake import BatchRequest, Request
from rota.domain.packed import written
from rota.domain.task import Task
from rota.domain.tokens import LOCAL, ROTA
from rota.errors import QueueFull, RotaError
from rota.eventlog.codec import KINDS, decode
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.replay import stored_of
from rota.http import problems
from rota.http.callbacks import render
from rota.http.models import SubmitBody
from rota.http.submissions import dedup_of, native_request
from rota.http.views import native
from rota.testing.courier import RecordingCourier
from rota.testing.host import ManualHost, PromptLine
from rota.testing.runner import ScriptedRunner, failed, succeeded
from rota.testing.working import WorkerAtHand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.client.fields import TaskFields
    from rota.client.worker import Worker
    from rota.domain.events import Event, Record
    from rota.testing.runner import Script

    Handler = Callable[[Record[Event]], Awaitable[None] | None]

READ_MAX = 1 << 30
DELIVERED = DeliveryReport(ok=True, status=200)


class Reply:
    """Keeps its answer."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def ok(self, value: Any) -> None:
        self.answers.append(value)

    def fail(self, error: Exception) -> None:
        self.answers.append(error)


class InMemoryRota:
    """A shard and all it needs, in memory."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        worker: Worker | None = None,
        limits: Limits | None = None,
        clock: ManualClock | None = None,
        **options: Any,
    ) -> None:
        """Start; a `worker` runs its functions, and `script` says what becomes of other attempts.

        `options` are a `Shard`'s.
        """
        self.log = MemoryLog()
        self.limits = limits or Limits()
        self.clock = clock or ManualClock()
        self._script = script
        self._worker = WorkerAtHand(worker) if worker is not None else None
        self._options = {"draw": lambda: 0.0, **options}
        self._ids = count(1)
        self._handlers: list[Handler] = []
        self._heard = 0
        self.start()

    def start(self) -> None:
        """Start a shard over the log, as after a crash of the one before."""
        self.host = ManualHost(self.clock)
        self.runner = ScriptedRunner(self.host, self._script)
        self.courier = RecordingCourier()
        self.shard = Shard(
            self.log,
            self.host,
            limits=self.limits,
            line=PromptLine,
            runner=self.runner,
            courier=self.courier,
            new_id=lambda: f"tsk_{next(self._ids)}",
            **self._options,
        )
        self.shard.start()
        if self._worker is not None:
            self._worker.declare(self.shard)
        self.run()

    def crash(self, away_s: float = 0.0) -> None:
        """Lose everything but the log, as a killed server does, and start again."""
        self.close()
        self.clock.advance_us(round(away_s * 1_000_000))
        self.start()

    def close(self) -> None:
        """Let the actors go."""
        self.shard.cast.abort_all("the test is over")
        self.shard.cast.retire("the test is over")

    def __enter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- what clients do

    def submit(
        self, what: str | Request, agent: str = "agent-1", **fields: Unpack[TaskFields]
    ) -> str:
        """Submit a task, by its action or as a whole request; give its id.

        `fields` are those of `submit` of the client. Raises the RotaError that it was refused with.
        """
        if isinstance(what, str):
            what = self._request(what, agent, fields)
        [answer] = self.offer(what)
        if isinstance(answer, m.Refused):
            raise QueueFull(answer.error, code=answer.code, details=answer.details)
        if isinstance(answer, RotaError):
            raise in_python(answer)
        assert isinstance(answer, m.Admitted), answer
        return answer.task

    def _request(self, action: str, agent: str, fields: TaskFields) -> Request:
        said = orjson.loads(
            orjson.dumps(wire({**fields, "action": action, "agent": agent}, TaskBody))
        )
        try:
            body = SubmitBody.model_validate(said)
        except ValidationError as error:
            raise in_python(problems.invalid(error)) from None
        request = native_request(body, agent, LOCAL)._replace(dedup=dedup_of(body.dedup))
        if body.idempotencyKey is not None:
            said = {"idempotency": body.idempotencyKey, "digest": repr(said)}
            request = request._replace(plan=request.plan._replace(**said))
        is_lent = self._worker is not None and self._worker.serves(agent, action)
        return request if is_lent else request._replace(executor="script")

    def offer(self, *requests: Request) -> list[Any]:
        """Submit tasks, and give the answers as they are: an `Admitted` or an error for each."""
        requests = _by_clients(requests)
        answers: list[Any] = self.ask(
            self.shard.admission, lambda reply: m.SubmitTasks(requests, reply)
        )
        return answers

    def submit_batch(self, *tasks: Request, **fields: Any) -> m.BatchAdmitted:
        """Submit tasks together, all or none. Raises a RotaError."""
        batch = BatchRequest(_by_clients(tasks), **{"by": LOCAL, **fields})
        answer: m.BatchAdmitted = self.ask(
            self.shard.admission, lambda reply: m.SubmitTogether(batch, reply)
        )
        return answer

    def cancel(self, task: str, reason: str = "") -> None:
        """Cancel a task. Raises a RotaError."""
        queue = self.shard.queue(self.task(task).agent)
        self.ask(queue, lambda reply: m.CancelTask(task, reason, LOCAL, reply))

    def revive(self, task: str) -> None:
        """Give a failed task a new life, as `rota retry` does. Raises a RotaError."""
        queue = self.shard.queue(self.task(task).agent)
        self.ask(queue, lambda reply: m.ReviveTask(task, LOCAL, reply))

    def ask(self, ref: Any, make: Callable[[Reply], Any]) -> Any:
        """Send a message to an actor and give its answer. Raises the RotaError it is."""
        reply = Reply()
        ref.tell(make(reply))
        self.run()
        [answer] = reply.answers
        if isinstance(answer, RotaError):
            raise answer
        return answer

    # -- what workers and receivers do

    @property
    def running(self) -> list[str]:
        """Name the tasks whose attempts run."""
        return list(self.runner.running)

    def end(self, task: str, outcome: Outcome) -> None:
        """End a running attempt."""
        self.runner.end(task, outcome)
        self.run()

    def succeed(self, task: str, result: Any = None) -> None:
        """Have a running attempt succeed."""
        self.end(task, succeeded(result))

    def fail(self, task: str, code: str = "failed", error: str = "") -> None:
        """Have a running attempt fail."""
        self.end(task, failed(code, error))

    def deliver(self, report: DeliveryReport = DELIVERED) -> list[str]:
        """Let every callback under way end so; give whose they were."""
        sent, self.courier.sent = self.courier.sent, []
        for callback in sent:
            callback.done(report)
        self.run()
        return [callback.task for callback in sent]

    # -- time

    def wait(self, seconds: float) -> None:
        """Let time pass, with everything that falls due in it."""
        end = self.clock.now_us() + round(seconds * 1_000_000)
        while self._worker is not None and (due := self.host.due()) is not None and due < end:
            self.host.run_until(due)
            self.run()  # so that what falls due is worked on at that moment
        self.host.run_until(end)
        self.run()

    def run(self) -> None:
        """Do what is to be done now, by the worker, too, and tell the handlers of it."""
        self.host.run()
        while self._worker is not None and self._worker.work(self.shard, self.host.run):
            pass
        while self._handlers and self._heard < self.log.head().seq:
            [stored] = self.log.read(self._heard, 1)
            self._heard = stored.seq
            for handler in self._handlers:
                waiting = handler(decode(stored.body))
                if inspect.iscoroutine(waiting):
                    asyncio.run(waiting)

    def on_event(self, handler: Handler) -> None:
        """Have a handler, plain or async, called with every fact from now on; it may raise."""
        self._heard = self._heard if self._handlers else self.log.head().seq
        self._handlers.append(handler)

    # -- what came of it

    def task(self, task: str) -> Task:
        """Give a task, from memory or from the log."""
        found = self._found(task)
        assert isinstance(found, Task), task
        return found

    def _found(self, subject: str) -> Task | Batch | None:
        here = self.shard.archive.here(subject)
        if here is not None:
            return here
        return from_log(self.log, (subject,), self.shard.state.steps, "shown")[subject][0]

    def state(self, task: str) -> str:
        """Name where a task is."""
        return self.task(task).state.value

    def view(self, task: str) -> dict[str, Any]:
        """Show a task as GET /v1/tasks/{id} does."""
        shown: dict[str, Any] = orjson.loads(written(native(self.task(task))))
        return shown

    def result(self, task: str) -> Any:
        """Give a task's result. Raises NoResult that says what became of it, as the client does."""
        return read_task(self.view(task)).value()

    def logs(self, task: str) -> list[str]:
        """Give the lines of a task's log."""
        told = [record.event for record in self.events(task)]
        return [line for event in told if isinstance(event, TaskLogged) for line in event.lines]

    def callback(self, subject: str) -> tuple[dict[str, str], bytes]:
        """Give the headers and the body of a task's or a batch's callback, before its signature."""
        found = self._found(subject)
        assert found is not None, subject
        tasks = [self.task(each) for each in found.tasks] if isinstance(found, Batch) else []
        return render(found, tasks)

    def events(self, task: str | None = None) -> list[Record[Event]]:
        """Read what happened to a task or a batch, or everything."""
        found = self.log.read(0, READ_MAX) if task is None else stored_of(self.log, task)
        return [decode(stored.body) for stored in found]

    def history(self, task: str) -> list[str]:
        """Name what happened to a task or a batch, by the kinds of the feed."""
        return [KINDS[type(record.event)] for record in self.events(task)]


def _by_clients(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Have what does not say by whom it is be a client's, and not the scheduler's own."""
    return tuple(each._replace(by=LOCAL) if each.by == ROTA else each for each in requests)

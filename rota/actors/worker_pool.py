"""The worker pool: runs attempts.

In: attempts to start (their assignment is durable), aborts, timeouts, results. Out:
`task_started`, `task_succeeded`, `task_failed`, `result_refused`. Keeps that an attempt is started
only while it is the valid one, and that a result counts only under its fencing token. How an
attempt is executed is the runner's business.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rota.actors.messages import AbortAttempt, AttemptEnded, Drain, StartAttempt, TimeOutAttempt
from rota.actors.runtime import CooperativeActor
from rota.domain.attempts import decide_result, decide_start, decide_timeout
from rota.domain.commands import Outcome
from rota.eventlog.crash_points import reach
from rota.executors.port import Attempt

if TYPE_CHECKING:
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.executors.port import Abort, AttemptRunner


logger = logging.getLogger("rota.pool")


class WorkerPool(CooperativeActor):
    """Runs what was dispatched."""

    def __init__(self, runtime: Runtime, journal: Journal, runner: AttemptRunner) -> None:
        """Let `runner` execute the attempts."""
        super().__init__(runtime)
        self._journal = journal
        self._runner = runner
        self._draining = False
        self.running: dict[str, tuple[int, Abort]] = {}

    def on_receive(self, message: Any) -> None:
        """Start, stop or settle an attempt."""
        kind = type(message)
        if kind is StartAttempt:
            self._start_attempt(message.task, message.token)
        elif kind is AttemptEnded:
            self._settle(message)
        elif kind is AbortAttempt:
            self._abort(message.task, message.seq, message.reason)
        elif kind is TimeOutAttempt:
            self._time_out(message.task, message.token)
        elif kind is Drain:
            self._draining = True

    def _start_attempt(self, task_id: str, token: int) -> None:
        task = self._journal.state.tasks.get(task_id)
        event = decide_start(task, token)
        if task is None or event is None or self._draining:
            return
        reach("pool.before_start")
        self._journal.record(event, cause=token)
        attempt = Attempt(
            task.id,
            task.agent,
            task.attempt,
            token,
            task.executor,
            task.action,
            task.params or {},
            task.tab,
            task.ref,
        )

        def ended(outcome: Outcome) -> None:
            self.actor_ref.tell(AttemptEnded(attempt.task, attempt.number, token, outcome))

        try:
            abort = self._runner.start(attempt, ended)
        except Exception as error:
            logger.exception("the attempt could not be started")
            text = f"the attempt could not be started: {type(error).__name__}"
            ended(Outcome(ok=False, code="executor_fault", error=text))
        else:
            self.running[task.id] = (token, abort)

    def _settle(self, message: AttemptEnded) -> None:
        held = self.running.get(message.task)
        if held is not None and held[0] == message.token:
            del self.running[message.task]
        task = self._journal.state.tasks.get(message.task)
        if task is None:
            return
        reach("pool.after_result")
        event = decide_result(task, message.attempt, message.token, message.outcome)
        self._journal.record(event, cause=message.token)

    def _abort(self, task_id: str, seq: int, reason: str) -> None:
        held = self.running.get(task_id)
        if held is not None and held[0] <= seq:
            del self.running[task_id]
            held[1](reason)

    def _time_out(self, task_id: str, token: int) -> None:
        task = self._journal.state.tasks.get(task_id)
        event = decide_timeout(task, token, self._journal.now())
        if event is not None:
            self._journal.record(event, cause=token)

    def abort_all(self, reason: str) -> list[str]:
        """Abort whatever runs and name it; for the end of the server."""
        left = list(self.running)
        for task_id in left:
            self._abort(task_id, self.running[task_id][0], reason)
        return left

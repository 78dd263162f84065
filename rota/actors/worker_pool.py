"""The worker pool: runs attempts.

In: attempts to start (their assignment is durable), aborts, timeouts, results, notes. Out:
`task_started`, `task_succeeded`, `task_failed`, `attempt_failed`, `result_refused`, `task_logged`,
`task_progressed`. Keeps that an attempt is started only while it is the valid one, that a result
counts only under its fencing token, and that a task's notes stay within their bounds. How an
attempt is executed is the runner's business.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rota.actors.messages import (
    AbortAttempt,
    AttemptEnded,
    AttemptNoted,
    Drain,
    NoteTask,
    StartAttempt,
    TimeOutAttempt,
)
from rota.actors.runtime import CooperativeActor
from rota.domain.attempts import decide_result, decide_start, decide_timeout
from rota.domain.commands import Outcome
from rota.domain.dependencies import Results
from rota.domain.notes import check_token, decide_notes
from rota.domain.task import IN_FLIGHT
from rota.errors import InvalidRequest, NotFound, RequestError
from rota.eventlog.crash_points import reach
from rota.executors.port import Attempt, Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.task import Task
    from rota.executors.port import Abort, AttemptRunner


logger = logging.getLogger("rota.pool")


class WorkerPool(CooperativeActor):
    """Runs what was dispatched."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        runner: AttemptRunner,
        *,
        find_task: Callable[[str], Task | None],
        draw: Callable[[], float],
    ) -> None:
        """Let `runner` execute the attempts; `find_task` finds parents, `draw` makes jitter."""
        super().__init__(runtime)
        self._journal = journal
        self._runner = runner
        self._find_task = find_task
        self._draw = draw
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
        elif kind is AttemptNoted:
            self._note(message)
        elif kind is NoteTask:
            self._note_from_outside(message)
        elif kind is Drain:
            self._draining = True

    def _start_attempt(self, task_id: str, token: int) -> None:
        task = self._journal.state.tasks.get(task_id)
        event = decide_start(task, token)
        if task is None or event is None or self._draining:
            return
        reach("pool.before_start")
        self._journal.record(event, cause=token)
        number = task.attempt

        def ended(outcome: Outcome) -> None:
            self.actor_ref.tell(AttemptEnded(task_id, number, token, outcome))

        def tell(note: Note) -> None:
            self.actor_ref.tell(AttemptNoted(task_id, token, note))

        try:
            attempt = Attempt(
                task.id,
                task.agent,
                number,
                token,
                task.executor,
                task.action,
                self._params(task),
                task.tab,
                task.ref,
                task.plan.key if task.plan is not None else None,
            )
            abort = self._runner.start(attempt, ended, tell)
        except InvalidRequest as error:
            ended(Outcome(ok=False, code="bad_params", error=error.message))
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
        now, draw = self._journal.now(), self._draw()
        settle = (task, message.attempt, message.token)
        try:
            event = decide_result(*settle, message.outcome, now, draw)
            self._journal.record(event, cause=message.token, at=now)
        except TypeError as error:  # nothing was recorded: it cannot be written as JSON
            text = f"the result cannot be kept: {error}"
            bad = Outcome(ok=False, code="bad_result", error=text)
            event = decide_result(*settle, bad, now, draw)
            self._journal.record(event, cause=message.token, at=now)

    def _params(self, task: Task) -> dict[str, Any]:
        """Give the task's params, with its parents' results where it asks for them."""
        params = task.params or {}
        depends = task.plan.depends if task.plan is not None else None
        if not depends:
            return params
        return Results(depends, self._find_task).fill_in(params)

    def _note(self, message: AttemptNoted) -> None:
        """Keep what an executor says, while its attempt is the valid one."""
        task = self._journal.state.tasks.get(message.task)
        if task is None or task.token != message.token or task.state not in IN_FLIGHT:
            return
        note = message.note
        lines = (note.line,) if note.line else ()
        for event in decide_notes(task, lines, note.level, note.progress):
            self._journal.record(event, cause=message.token)

    def _note_from_outside(self, message: NoteTask) -> None:
        task = self._journal.state.tasks.get(message.task)
        try:
            if task is None:
                raise NotFound("task not found", details={"taskId": message.task})
            check_token(task, message.token)
            events = decide_notes(task, message.lines, message.level, message.progress, strict=True)
        except RequestError as error:
            self._journal.refuse(message.reply, error)
            return
        for event in events:
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, len(events))

    def _abort(self, task_id: str, seq: int, reason: str) -> None:
        held = self.running.get(task_id)
        if held is not None and held[0] <= seq:
            del self.running[task_id]
            held[1](reason)

    def _time_out(self, task_id: str, token: int) -> None:
        task = self._journal.state.tasks.get(task_id)
        now = self._journal.now()
        event = decide_timeout(task, token, now, self._draw())
        if event is not None:
            self._journal.record(event, cause=token, at=now)

    def abort_all(self, reason: str) -> list[str]:
        """Abort whatever runs and name it; for the end of the server."""
        left = list(self.running)
        for task_id in left:
            self._abort(task_id, self.running[task_id][0], reason)
        return left

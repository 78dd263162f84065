"""The worker pool: runs attempts.

In: attempts to start (their assignment is durable), aborts, timeouts, results, notes. Out:
`task_started`, `task_succeeded`, `task_failed`, `attempt_failed`, `result_refused`, `task_logged`,
`task_progressed`, `attempt_interrupted` for what cannot be started now, `task_cancelled` for what
a force-stop has cut off and nothing is left of. Keeps that an attempt is
started only while it is the valid one, that a result counts only under its fencing token, and that
a task's notes stay within their bounds. How an attempt is executed is the runner's business.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rota.actors.killing import KILLING, Killing
from rota.actors.messages import (
    AbortAttempt,
    AttemptEnded,
    AttemptNoted,
    Drain,
    LookAgain,
    NoteTask,
    StartAttempt,
    TimeOutAttempt,
)
from rota.actors.params import UNREAD_PAUSE_US, filled_in
from rota.actors.project_messages import AttemptGone
from rota.actors.runtime import CooperativeActor
from rota.actors.settling import Settling
from rota.domain.attempts import (
    decide_start,
    decide_timeout,
)
from rota.domain.commands import Outcome
from rota.domain.notes import check_token, decide_notes
from rota.domain.project import decide_return
from rota.domain.task import ASSIGNED, FAULTED, IN_FLIGHT, UNREAD
from rota.errors import InvalidRequest, NotFound, NotWritable, RequestError, RotaError
from rota.eventlog.crash_points import reach
from rota.executors.port import Attempt, Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.domain.events import Event
    from rota.domain.task import Task
    from rota.executors.port import Abort, AttemptRunner


logger = logging.getLogger("rota.pool")


def _nothing(reason: str, gone: Callable[[], None] | None = None) -> None:
    del reason, gone


class _Aborts:
    """Aborts what has no business running any more, once that is durable."""

    def __init__(self, pool: WorkerPool, stale: list[tuple[str, int]]) -> None:
        self._pool = pool
        self._stale = stale

    def ok(self, value: Any) -> None:
        del value
        for task_id, token in self._stale:
            self._pool.actor_ref.tell(AbortAttempt(task_id, token, FAULTED))

    def fail(self, error: RotaError) -> None:
        """Leave them: they are aborted when the state is rebuilt."""


class WorkerPool(CooperativeActor):
    """Runs what was dispatched."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        runner: AttemptRunner,
        *,
        archive: Archive,
        ids: NewIds,
        resend: Callable[[StartAttempt], None],
        call_at: Callable[[int, Callable[[], None]], Any],
        draw: Callable[[], float],
    ) -> None:
        """Let `runner` execute the attempts; `archive` finds parents, `draw` makes jitter.

        What follows a success gets its id from `ids`.

        `resend` brings an attempt again that waited for parents to be read, or to be read again,
        for which it is woken by `call_at`.
        """
        super().__init__(runtime)
        self._journal = journal
        self._runner = runner
        self._archive = archive
        self._resend = resend
        self._call_at = call_at
        self._settling = Settling(journal, ids, draw)
        self._draining = False
        self._unread: set[int] = set()  # the tokens of those that pause
        self.running: dict[str, tuple[int, Abort]] = {}
        self._killing = Killing(journal, self.running, self.actor_ref)

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is StartAttempt:
            self._start_attempt(message)
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
        elif kind in KILLING:
            self._killing.on_receive(message)
        elif kind is LookAgain:
            self._look_again()
            self._killing.look_again()
        elif kind is Drain:
            self._draining = True

    def _look_again(self) -> None:
        """Start what is not started, interrupt what nobody runs, abort what should not run."""
        journal = self._journal
        for task in list(journal.state.slots.held()):
            if task.is_leased:
                continue
            held = self.running.get(task.id)
            if task.state is ASSIGNED:
                if task.token <= journal.durable_seq:
                    self.actor_ref.tell(StartAttempt(task.id, task.token))
            elif held is None or held[0] != task.token:
                self.subject = task.id
                journal.record(*self._return_of(task, FAULTED))
        self.subject = ""
        stale = [(id_, token) for id_, (token, _) in self.running.items() if self._is_over(id_)]
        if stale:
            journal.answer(_Aborts(self, stale), None)

    def _is_over(self, task_id: str) -> bool:
        """Whether the attempt that runs of a task is not, or no longer, the valid one."""
        task = self._journal.state.tasks.get(task_id)
        token = self.running[task_id][0]
        return task is None or task.token != token or task.state not in IN_FLIGHT

    def _start_attempt(self, message: StartAttempt) -> None:
        task_id, token, parents = message
        if isinstance(parents, RotaError):
            self._put_back_soon(message)
            return
        task = self._journal.state.tasks.get(task_id)
        event = decide_start(task, token)
        if task is None or event is None or self._draining:
            return
        if task_id in self._journal.state.projects.killing:  # force-stopped before a restart
            is_sure = self._runner.leaves_nothing(task.executor)
            self._killing.on_receive(AttemptGone(task_id, token, is_sure))
            return
        params, lacking = filled_in(self._archive, task, parents)
        if lacking:

            def go_on(found: Fetched | RotaError) -> None:
                self._resend(StartAttempt(task_id, token, found))

            self._archive.fetch(lacking, parents, go_on, go_on, depth="shown")
            return
        reach("pool.before_start")
        self._abort(task_id, token, "another attempt was assigned")
        self._journal.record(event, cause=token)
        self.running[task_id] = (token, _nothing)
        try:
            self._execute(task, token, params)
        except BaseException:
            self.running.pop(task_id, None)  # nobody runs it: the next look interrupts it
            raise

    def _put_back_soon(self, message: StartAttempt) -> None:
        """Put a task back that asks for what could not be read: it did nothing wrong.

        It may be given out again at once, so it pauses first: then the same message comes again.
        """
        token = message.token
        if token not in self._unread:
            self._unread.add(token)
            self._call_at(self._journal.now() + UNREAD_PAUSE_US, lambda: self._resend(message))
            return
        self._unread.remove(token)
        task = self._journal.state.tasks.get(message.task)
        if task is not None and decide_start(task, token) is not None and not self._draining:
            self._journal.record(*self._return_of(task, UNREAD), cause=token)

    def _return_of(self, task: Task, reason: str) -> tuple[Event, ...]:
        """Interrupt an attempt, and do what a stop of its project asks for."""
        is_over = self._runner.leaves_nothing(task.executor)
        return decide_return(
            task, reason, *self._journal.state.projects.stop_of(task), is_over=is_over
        )

    def _execute(self, task: Task, token: int, params: dict[str, Any] | InvalidRequest) -> None:
        task_id, number = task.id, task.attempt

        def ended(outcome: Outcome) -> None:
            self.actor_ref.tell(AttemptEnded(task_id, number, token, outcome))

        def tell(note: Note) -> None:
            self.actor_ref.tell(AttemptNoted(task_id, token, note))

        if isinstance(params, InvalidRequest):
            ended(Outcome(ok=False, code="bad_params", error=params.message))
            return
        try:
            attempt = Attempt(
                task.id,
                task.agent,
                number,
                token,
                task.executor,
                task.action,
                params,
                task.tab,
                task.ref,
                task.plan.key if task.plan is not None else None,
                task.plan.run if task.plan is not None else None,
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
        task = self._journal.state.tasks.get(message.task)
        if task is not None:
            reach("pool.after_result")
            self._settling.take(task, message.attempt, message.token, message.outcome)
        held = self.running.get(message.task)
        if held is not None and held[0] == message.token:
            del self.running[message.task]

    def _note(self, message: AttemptNoted) -> None:
        """Keep what an executor says, while its attempt is the valid one."""
        task = self._journal.state.tasks.get(message.task)
        if task is None or task.token != message.token or task.state not in IN_FLIGHT:
            return
        note = message.note
        lines = (note.line,) if note.line else note.lines
        events = decide_notes(task, lines, note.level, note.progress)
        try:
            for event in events:
                self._journal.record(event, cause=message.token)
        except NotWritable as error:
            logger.warning("a note of %s cannot be kept: %s", task.id, error)

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
            try:
                held[1](reason)
            except Exception:
                logger.exception("an attempt of %s could not be aborted", task_id)

    def _time_out(self, task_id: str, token: int) -> None:
        task = self._journal.state.tasks.get(task_id)
        now = self._journal.now()
        event = decide_timeout(task, token, now, self._settling.draw())
        if task is None or event is None or task_id in self._journal.state.projects.killing:
            return  # what is being cut off keeps its slot until it is gone
        if task.state is ASSIGNED and token in self._unread:
            self._journal.record(*self._return_of(task, UNREAD), cause=token)
        else:
            self._settling.end(task, event, token, now)

    def abort_all(self, reason: str) -> list[str]:
        """Abort whatever runs and name it; for the end of the server."""
        left = list(self.running)
        for task_id in left:
            self._abort(task_id, self.running[task_id][0], reason)
        return left

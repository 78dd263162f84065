"""Admission: who may enter, and what the limits are.

In: submissions, batches and changes of the limits. Out: `task_submitted`, `task_rejected`,
`batch_submitted`, `batch_rejected`, `refusals_counted` for those beyond a rate, `batch_finished`,
`config_changed`, and `task_cancelled` for what is replaced, cancelled with its batch, or doomed as
it comes in. Keeps that only waiting tasks count toward the caps, that one key never makes two
tasks, and that no cycle of dependencies exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.actors.runtime import CooperativeActor
from rota.domain import admission as decide
from rota.domain import events as e
from rota.domain.admission import decide_submission
from rota.domain.attempts import decide_cancel
from rota.domain.commands import SETTINGS
from rota.domain.dependencies import (
    check_cycles,
    check_no_batch,
    decide_dependencies,
    decide_doom,
    resolve,
)
from rota.domain.refusals import WINDOW_US, Refusals
from rota.domain.task import CANCELLED, TERMINAL, WAITING
from rota.errors import Conflict, NotFound, QueueFull, RequestError, Unprocessable
from rota.projections import keys
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive, Foreseen
    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.commands import SubmitBatch, SubmitTask
    from rota.domain.dependencies import Find, Prospects
    from rota.domain.task import Task


UUID_DIALECTS = frozenset({"browseros"})
"""The dialects whose documents say that ids are UUIDs."""


class AdmissionActor(CooperativeActor):
    """Decides submissions."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        new_id: Callable[[], str],
        new_uuid: Callable[[], str],
        archive: Archive,
        call_at: Callable[[int, Callable[[], None]], Any],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Take ids from `new_id` and `new_uuid`; find what has left memory in `archive`.

        It is woken by `call_at`; `look` looks whether the clock was set: a deadline is judged by
        the time that it tells now.
        """
        super().__init__(runtime)
        self._journal = journal
        self._new_id = new_id
        self._new_uuid = new_uuid
        self._archive = archive
        self._call_at = call_at
        self._refusals = journal.state.stats.uncounted = Refusals()
        self._look = look

    def on_receive(self, message: Any) -> None:
        """Decide."""
        kind = type(message)
        if kind is m.SubmitTasks:
            find = self._finder(message.foreseen)
            answers = [self._submit(command, find) for command in message.commands]
            self._journal.answer(message.reply, answers)
        elif kind is m.SubmitTogether:
            find = self._finder(message.foreseen)
            self._answer(message.reply, lambda: self._submit_together(message.command, find))
        elif kind is m.FinishBatch:
            self._finish(message.batch)
        elif kind is m.CancelBatch:
            self._answer(message.reply, lambda: self._cancel_batch(message))
        elif kind is m.ChangeLimits:
            self._change_limits(message)
        elif kind is m.CountRefusals or kind is m.LookAgain:
            self._count_refusals()

    def _answer(self, reply: m.Reply, do: Callable[[], Any]) -> None:
        try:
            value = do()
        except RequestError as error:
            self._journal.refuse(reply, error)
        else:
            self._journal.answer(reply, value)

    def _finder(self, foreseen: Foreseen | None) -> Find:
        """Give who finds tasks: with what was looked up before, if there was much to look up."""
        return self._archive.task if foreseen is None else self._archive.seer(foreseen)

    # -- one task

    def _submit(self, command: SubmitTask, find: Find) -> m.Admitted | m.Refused | RequestError:
        self._journal.check_open()
        try:
            known = self._known(command)
            if known is not None:
                return known
            self._check_ahead(command)
            if not (command.wanted_id or command.depends):
                return self._admit(command, self._draw_id(command.dialect), None, None)
            task_id = self._id_for(command)
            check_no_batch(command.depends, self._journal.state.batches.by_id)
            depends = resolve(command.depends)
            parents = depends.values()
            waits_of = self._journal.state.dependencies.waits_for((task_id,), parents)
            check_cycles({task_id: parents}, waits_of)
            prospects = decide_dependencies(depends, command.on_missing, find)
            return self._admit(command, task_id, depends or None, prospects)
        except RequestError as error:
            return error

    def _check_ahead(self, command: SubmitTask) -> None:
        """Refuse a deadline that has passed by the clock as it is now. Raises InvalidRequest."""
        if command.deadline is not None:
            self._look()
            decide.check_ahead(command.deadline, self._journal.now())

    def _admit(
        self,
        command: SubmitTask,
        task_id: str,
        depends: dict[str, str] | None,
        prospects: Prospects | None,
    ) -> m.Admitted | m.Refused:
        state, now = self._journal.state, self._journal.now()
        event = decide_submission(
            state.backlog,
            state.control.limits,
            command,
            task_id,
            at=now,
            depends=depends,
            prospects=prospects,
        )
        if type(event) is e.TaskRejected:
            if command.wanted_id is not None:
                fresh = self._draw_id(command.dialect)
                event = event._replace(task=fresh)  # the wanted one stays free
            counted = not self._refusals.has_room(now)
            if counted:
                self._refusals.count_task(command.agent)
                self._count_later(now)
            else:
                self._journal.record(event, by=command.by)
            details = {"agentId": command.agent, **self._fullness()}
            return m.Refused(event.task, now, event.code, event.error, details, counted)
        assert type(event) is e.TaskSubmitted
        events: list[e.Event] = []
        replaced = self._replaced(command)
        if replaced is not None:
            events.append(decide_cancel(replaced, f"replaced by {task_id}", "replaced"))
            left = state.backlog.total - (replaced.state in WAITING)
            event = event._replace(position=left + 1)
        events += [event, *decide_doom(event, prospects, replaced)]
        self._journal.record(*events, by=command.by, at=now)
        return m.Admitted(task_id, event.position, now, self._state_of(task_id))

    def _state_of(self, task_id: str) -> str:
        """Give the state of a task that was just taken; a doomed one may have left memory."""
        task = self._journal.state.tasks.get(task_id)
        return task.state.value if task is not None else CANCELLED.value

    def _fullness(self) -> dict[str, int]:
        """Tell who was refused how much waits, and how much may."""
        state = self._journal.state
        limits = state.control.limits
        return {
            "queued": state.backlog.total,
            "maxQueue": limits.queued,
            "maxPerAgent": limits.queued_per_agent,
        }

    def _known(self, command: SubmitTask) -> m.Admitted | None:
        """Give the task that a key stands for already. Raises a RequestError."""
        if command.idempotency is None and command.dedup is None:
            return None
        held_keys, now = self._journal.state.keys, self._journal.now()
        if command.idempotency is not None:
            held = held_keys.find(keys.idempotency(command.by, command.idempotency), now)
            if held is not None:
                decide.check_same(command.idempotency, command.digest, held.digest)
                return self._stands_for(held.subject, "idempotent")
        dedup = command.dedup
        if dedup is not None and dedup.mode != "replace":
            held = held_keys.find(keys.dedup(command.by, dedup.key), now)
            if held is not None:
                if dedup.mode == "reject":
                    raise decide.duplicate(dedup.key, held.subject)
                return self._stands_for(held.subject, "deduplicated")
        decide.check_keys(len(held_keys.held))
        return None

    def _stands_for(self, task_id: str, known: str) -> m.Admitted:
        task = self._archive.task(task_id)
        if task is None:
            raise Unprocessable("this idempotency key was used for a batch")
        return m.Admitted(task.id, task.position, task.created_at, task.state.value, known)

    def _replaced(self, command: SubmitTask) -> Task | None:
        """Give the active task that a new one replaces."""
        if command.dedup is None or command.dedup.mode != "replace":
            return None
        name = keys.dedup(command.by, command.dedup.key)
        held = self._journal.state.keys.find(name, self._journal.now())
        old = self._journal.state.tasks.get(held.subject) if held is not None else None
        return None if old is None or old.state in TERMINAL else old

    def _id_for(self, command: SubmitTask) -> str:
        """Give the id that was asked for, or a new one. Raises Conflict."""
        wanted = command.wanted_id
        if wanted is None:
            return self._draw_id(command.dialect)
        if self._archive.knows(wanted):
            details = {"taskId": wanted}
            raise Conflict(f"there is a task '{wanted}' already", code="id_taken", details=details)
        return wanted

    # -- batches

    def _submit_together(self, batch: SubmitBatch, find: Find) -> m.BatchAdmitted:
        """Admit a batch whole. Raises a RequestError."""
        self._journal.check_open()
        known = self._known_batch(batch)
        if known is not None:
            return known
        state = self._journal.state
        for command in batch.tasks:
            self._check_ahead(command)
            check_no_batch(command.depends, state.batches.by_id)
        limits, agents = state.control.limits, [task.agent for task in batch.tasks]
        decide.check_can_fit(limits, agents, batch.dialect)
        batch_id = self._new_batch_id(batch.dialect)
        full = decide.why_full(state.backlog, limits, agents, batch.dialect)
        if full is not None:
            raise self._refused_batch(batch, batch_id, full)
        ids: dict[str, None] = {}
        for command in batch.tasks:
            ids[self._fresh_id(command, ids)] = None
        tasks, prospects = decide.decide_batch(
            batch,
            batch_id,
            list(ids),
            waiting=state.backlog.total,
            find=find,
            graph=state.dependencies,
            at=self._journal.now(),
        )
        submitted = decide.submitted_batch(batch, batch_id, list(ids))
        doomed = [
            doom
            for task, each in zip(tasks, prospects, strict=True)
            for doom in decide_doom(task, each)
        ]
        at = self._journal.record(submitted, *tasks, *doomed, by=batch.by).at
        answers = [m.Admitted(t.task, t.position, at, self._state_of(t.task)) for t in tasks]
        return m.BatchAdmitted(batch_id, tuple(answers), at)

    def _refused_batch(self, batch: SubmitBatch, batch_id: str, full: str) -> QueueFull:
        """Record that a batch found no room, or count it; the error names only what is recorded."""
        size, now = len(batch.tasks), self._journal.now()
        details: dict[str, Any] = {"size": size, **self._fullness()}
        if self._refusals.has_room(now):
            event = e.BatchRejected(batch_id, size, "queue_full", full)
            self._journal.record(event, by=batch.by)
            details["batchId"] = batch_id
        else:
            self._refusals.count_batch()
            self._count_later(now)
        return QueueFull(full, details=details)

    def _new_batch_id(self, dialect: str) -> str:
        """Draw an id that no batch has: that no task has it says nothing about batches."""
        while True:
            batch_id = self._draw_id(dialect)
            if dialect not in UUID_DIALECTS:
                batch_id = "bat_" + batch_id.removeprefix("tsk_")
            if not self._archive.knows(batch_id):
                return batch_id

    def _fresh_id(self, command: SubmitTask, taken: dict[str, None]) -> str:
        task_id = self._id_for(command)
        while task_id in taken:
            if command.wanted_id is not None:
                msg = f"two tasks of this batch want the id '{task_id}'"
                raise Conflict(msg, code="id_taken", details={"taskId": task_id})
            task_id = self._draw_id(command.dialect)
        return task_id

    def _draw_id(self, dialect: str) -> str:
        """Draw an id of the form that a dialect's document gives."""
        return self._new_uuid() if dialect in UUID_DIALECTS else self._new_id()

    def _known_batch(self, batch: SubmitBatch) -> m.BatchAdmitted | None:
        """Give the batch that a key stands for already. Raises Unprocessable."""
        if batch.idempotency is None:
            return None
        name = keys.idempotency(batch.by, batch.idempotency)
        held = self._journal.state.keys.find(name, self._journal.now())
        if held is None:
            decide.check_keys(len(self._journal.state.keys.held))
            return None
        decide.check_same(batch.idempotency, batch.digest, held.digest)
        found = self._archive.batch(held.subject)
        if found is None:
            raise Unprocessable("this idempotency key was used for a single task")
        answers = [self._stands_for(task_id, "idempotent") for task_id in found.tasks]
        return m.BatchAdmitted(found.id, tuple(answers), found.created_at, "idempotent")

    def _finish(self, batch_id: str) -> None:
        """Record that all of a batch has ended, once."""
        batch = self._journal.state.batches.get(batch_id)
        if batch is not None and not batch.finished_at and not batch.left:
            fates = batch.fates
            self._journal.record(
                e.BatchFinished(batch_id, fates["succeeded"], fates["failed"], fates["cancelled"])
            )

    def _cancel_batch(self, message: m.CancelBatch) -> int:
        """Cancel what has not ended of a batch. Raises NotFound or Conflict."""
        state = self._journal.state
        batch = self._archive.batch(message.batch)
        if batch is None:
            raise NotFound("batch not found", details={"batchId": message.batch})
        found = [task for each in batch.tasks if (task := state.tasks.get(each)) is not None]
        live = [task for task in found if task.state not in TERMINAL]
        if not live:
            raise Conflict("the batch is already finished", details={"batchId": batch.id})
        reason = message.reason or f"batch {batch.id} was cancelled"
        events = [decide_cancel(task, reason, "batch_cancelled") for task in live]
        self._journal.record(*events, by=message.by)
        return len(live)

    # -- refusals without a record

    def _count_later(self, now: int) -> None:
        """Have what was counted recorded in a second, unless that is under way."""
        if self._refusals.tasks + self._refusals.batches == 1:
            self._call_at(now + WINDOW_US, self._count_now)

    def _count_now(self) -> None:
        if not self.stopped:
            self.actor_ref.tell(m.CountRefusals())

    def _count_refusals(self) -> None:
        self._journal.check_open()
        event = self._refusals.fact()
        if event is None:
            return
        before = self._journal.state.seq
        try:
            self._journal.record(event)
        finally:
            if self._journal.state.seq > before:
                self._refusals.clear()

    # -- limits

    def _change_limits(self, message: m.ChangeLimits) -> None:
        before = limits_to(self._journal.state.control.limits)
        after = limits_to(message.limits)
        changed = sorted(SETTINGS[name] for name in after if after[name] != before[name])
        if changed:
            event = e.ConfigChanged(after, changed, message.source)
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, changed)

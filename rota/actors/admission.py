"""Admission: who may enter, and what the limits are.

In: submissions, batches, changes of the limits and tokens. Out: `task_submitted`, `task_rejected`,
`batch_submitted`, `workflow_submitted`, `batch_rejected`, `refusals_counted` for those beyond a
rate, `batch_finished`, `config_changed`, `token_created`, `token_revoked`, `type_declared`, and
`task_cancelled` for what is replaced, cancelled with its batch, or doomed as it comes in. Keeps
that only waiting tasks count toward the caps, that one key never makes two tasks, and that no cycle
of dependencies exists. What a message depends on that has left memory is read from the log first;
the message comes again with it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.actors.foresight import Foresight
from rota.actors.runtime import CooperativeActor
from rota.actors.tokens import ABOUT_TOKENS
from rota.domain import admission as decide
from rota.domain import events as e
from rota.domain.admission import decide_submission
from rota.domain.attempts import decide_cancel
from rota.domain.batch import Batch, decide_finish
from rota.domain.commands import SETTINGS
from rota.domain.dependencies import (
    check_cycles,
    check_no_batch,
    decide_dependencies,
    decide_doom,
    resolve,
)
from rota.domain.intake import take_in, take_in_batch
from rota.domain.refusals import WINDOW_US, Refusals
from rota.domain.shares import share_of
from rota.domain.task import CANCELLED, TERMINAL, WAITING, Task
from rota.domain.workflow import Workflow, check_live, check_members, check_room, live_one
from rota.errors import Conflict, NotFound, QueueFull, RequestError, Unprocessable
from rota.projections import keys
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.domain.commands import SubmitBatch, SubmitTask
    from rota.domain.dependencies import Find, Prospects
    from rota.domain.intake import Request


FORESEEN = (m.SubmitTasks, m.SubmitTogether, m.CancelBatch)
"""What may depend on what has left memory."""


class AdmissionActor(CooperativeActor):
    """Decides submissions."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        ids: NewIds,
        archive: Archive,
        resend: Callable[[Any], None],
        call_at: Callable[[int, Callable[[], None]], Any],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Admit under `ids`.

        What has left memory is found in `archive`, and `resend` brings a message here again that
        waited for it. It is woken by `call_at`; `look` looks whether the clock was set: a deadline
        is judged by the time that it tells now.
        """
        super().__init__(runtime)
        self._journal = journal
        self._ids = ids
        self._archive = archive
        self._foresight = Foresight(journal, archive, resend)
        self._call_at = call_at
        self._refusals = journal.state.stats.uncounted = Refusals()
        self._look = look

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind in FORESEEN and self._foresight.lacks(message):
            return
        if kind is m.SubmitTasks:
            self._journal.answer_with(message.reply, lambda: self._submit_each(message))
        elif kind is m.SubmitTogether:
            self._journal.answer_with(message.reply, lambda: self._submit_together(message))
        elif kind is m.FinishBatch:
            self._finish(message.batch)
        elif kind is m.CancelBatch:
            self._journal.answer_with(message.reply, lambda: self._cancel_batch(message))
        elif kind is m.ChangeLimits:
            self._change_limits(message)
        elif kind in ABOUT_TOKENS:
            do = ABOUT_TOKENS[kind]
            self._journal.answer_with(message.reply, lambda: do(self._journal, message))
        elif kind is m.CountRefusals or kind is m.LookAgain:
            self._count_refusals()

    # -- one task

    def _submit_each(self, message: m.SubmitTasks) -> list[m.Admitted | m.Refused | RequestError]:
        """Admit tasks, each on its own. Raises InvalidRequest if one cannot be meant so."""
        now = self._now_for(message.requests)
        rules = self._journal.state.control.rules
        commands = [take_in(request, rules, now) for request in message.requests]
        return [self._submit(command, message.fetched) for command in commands]

    def _now_for(self, requests: tuple[Request, ...]) -> int:
        """Tell the time: by the clock as it is now, if a moment is to be judged by it."""
        if any(request.names_a_moment for request in requests):
            self._look()
        return self._journal.now()

    def _submit(
        self, command: SubmitTask, fetched: Fetched | None
    ) -> m.Admitted | m.Refused | RequestError:
        self._journal.check_room(command.by, command.agent)
        find = self._archive.finder(fetched)
        try:
            known = self._known(command, find)
            if known is not None:
                return known
            if command.plan.workflow is not None:
                self._check_joining((command,), fetched)
            if command.deadline is not None:
                decide.check_ahead(command.deadline, self._journal.now())
            if command.plan.requires:
                owner = share_of(command.by, command.agent)
                decide.check_requirements(self._journal.state.backlog, (command.plan,), owner)
            if not (command.wanted_id or command.depends):
                return self._admit(command, self._ids.draw(command.dialect), None, None)
            task_id = self._ids.of_task(command, fetched)
            check_no_batch(command.depends, self._journal.state.batches.by_id)
            depends = resolve(command.depends)
            parents = depends.values()
            waits_of = self._journal.state.graph.waits_for((task_id,), parents)
            check_cycles({task_id: parents}, waits_of)
            prospects = decide_dependencies(depends, command.on_missing, find)
            return self._admit(command, task_id, depends or None, prospects)
        except RequestError as error:
            return error

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
                fresh = self._ids.draw(command.dialect)
                event = event._replace(task=fresh)  # the wanted one stays free
            counted = not self._refusals.take_room(now)
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
        events.append(event)
        if prospects is not None:
            events += decide_doom(event, prospects, replaced)
        self._journal.record(*events, by=command.by, at=now)
        return self._admitted(event, now)

    def _admitted(self, event: e.TaskSubmitted, at: int) -> m.Admitted:
        """Tell of a task that was just taken; a doomed one may have left memory."""
        task = self._journal.state.tasks.get(event.task)
        state = task.state.value if task is not None else CANCELLED.value
        return m.Admitted(event.task, event.position, at, state, "", event.executor)

    def _fullness(self) -> dict[str, int]:
        """Tell who was refused how much waits, and how much may."""
        state = self._journal.state
        limits = state.control.limits
        return {
            "queued": state.backlog.total,
            "maxQueue": limits.queued,
            "maxPerAgent": limits.queued_per_agent,
        }

    def _known(self, command: SubmitTask, find: Find) -> m.Admitted | None:
        """Give the task that a key stands for already. Raises a RequestError."""
        key = command.plan.idempotency
        if key is None and command.dedup is None:
            return None
        held_keys, now = self._journal.state.keys, self._journal.now()
        if key is not None:
            held = held_keys.find(keys.idempotency(command.by, key), now)
            if held is not None:
                decide.check_same(key, command.plan.digest, held.digest)
                return self._stands_for(held.subject, "idempotent", find)
            self._check_not_listed(command.by, key, command.plan.digest)
        dedup = command.dedup
        if dedup is not None and dedup.mode != "replace":
            held = held_keys.find(keys.dedup(command.by, dedup.key), now)
            if held is not None:
                if dedup.mode == "reject":
                    raise decide.duplicate(dedup.key, held.subject)
                return self._stands_for(held.subject, "deduplicated", find)
        decide.check_keys(len(held_keys.held))
        return None

    def _check_not_listed(self, by: str, key: str, digest: str | None) -> None:
        """Refuse a key that stands for what is on a project's list. Raises Unprocessable."""
        known = self._journal.state.projects.of_key(by, key)
        if known is not None:
            decide.check_same(key, digest, known.digest)

    @staticmethod
    def _stands_for(task_id: str, known: str, find: Find) -> m.Admitted:
        task = find(task_id)
        if task is None:
            raise Unprocessable("this idempotency key was used for a batch")
        state = task.state.value
        return m.Admitted(task.id, task.position, task.created_at, state, known, task.executor)

    def _replaced(self, command: SubmitTask) -> Task | None:
        if command.dedup is None or command.dedup.mode != "replace":
            return None
        name = keys.dedup(command.by, command.dedup.key)
        held = self._journal.state.keys.find(name, self._journal.now())
        old = self._journal.state.tasks.get(held.subject) if held is not None else None
        return None if old is None or old.state in TERMINAL else old

    def _check_joining(self, commands: tuple[SubmitTask, ...], fetched: Fetched | None) -> None:
        """See that the workflows are there that tasks want to join, and take them.

        Raises NotFound, Conflict or QueueFull.
        """
        wanted = Counter(c.plan.workflow for c in commands if c.plan.workflow is not None)
        members = self._journal.state.batches.flow_tasks
        for name, count in wanted.items():
            check_room(live_one(self._archive.either(name, fetched), name), count, members)
            members += count

    # -- batches

    def _submit_together(self, message: m.SubmitTogether) -> m.BatchAdmitted:
        """Admit a batch whole. Raises a RequestError."""
        batch_agent = min((task.agent for task in message.batch.tasks), default="")
        self._journal.check_room(message.batch.by, batch_agent)
        now, fetched = self._now_for(message.batch.tasks), message.fetched
        state = self._journal.state
        batch = take_in_batch(message.batch, state.control.rules, now)
        known = self._known_batch(batch, fetched)
        if known is not None:
            return known
        for command in batch.tasks:
            decide.check_ahead(command.deadline, now)
            check_no_batch(command.depends, state.batches.by_id)
        if batch.flow is not None:
            check_live(state.batches.live_flows)
            check_members(state.batches.flow_tasks + len(batch.tasks))
        self._check_joining(batch.tasks, fetched)
        limits, agents = state.control.limits, [task.agent for task in batch.tasks]
        owner = share_of(batch.by, batch_agent)
        decide.check_can_fit(limits, agents, batch.dialect)
        decide.check_requirements(state.backlog, (task.plan for task in batch.tasks), owner)
        if batch.flow is not None:
            batch_id = self._ids.of_workflow(batch.wanted_id, fetched)
        else:
            batch_id = self._ids.of_batch(batch.dialect)
        full = decide.why_full(state.backlog, limits, agents, batch.dialect, batch.by)
        if full is not None:
            fresh = batch_id if batch.wanted_id is None else self._ids.of_workflow()
            raise self._refused_batch(batch, fresh, full)  # the wanted one stays free
        ids: dict[str, None] = {}
        for command in batch.tasks:
            if command.wanted_id == batch_id:
                msg = f"a task of this workflow wants its id '{batch_id}'"
                raise Conflict(msg, code="id_taken", details={"taskId": batch_id})
            ids[self._ids.of_task(command, fetched, ids)] = None
        tasks, prospects = decide.decide_batch(
            batch,
            batch_id,
            list(ids),
            waiting=state.backlog.total,
            find=self._archive.finder(fetched),
            graph=state.graph,
            at=self._journal.now(),
        )
        submitted = decide.submitted_batch(batch, batch_id, list(ids))
        doomed = [
            doom
            for task, each in zip(tasks, prospects, strict=True)
            for doom in decide_doom(task, each)
        ]
        at = self._journal.record(submitted, *tasks, *doomed, by=batch.by).at
        return m.BatchAdmitted(batch_id, tuple(self._admitted(t, at) for t in tasks), at)

    def _refused_batch(self, batch: SubmitBatch, batch_id: str, full: str) -> QueueFull:
        """Record that a batch found no room, or count it; the error names only what is recorded."""
        size, now = len(batch.tasks), self._journal.now()
        details: dict[str, Any] = {"size": size, **self._fullness()}
        if self._refusals.take_room(now):
            event = e.BatchRejected(batch_id, size, "queue_full", full)
            self._journal.record(event, by=batch.by)
            details["batchId"] = batch_id
        else:
            self._refusals.count_batch()
            self._count_later(now)
        return QueueFull(full, details=details)

    def _known_batch(self, batch: SubmitBatch, fetched: Fetched | None) -> m.BatchAdmitted | None:
        """Give the batch that a key stands for already. Raises Unprocessable."""
        if batch.idempotency is None:
            return None
        name = keys.idempotency(batch.by, batch.idempotency)
        held = self._journal.state.keys.find(name, self._journal.now())
        if held is None:
            self._check_not_listed(batch.by, batch.idempotency, batch.digest)
            decide.check_keys(len(self._journal.state.keys.held))
            return None
        decide.check_same(batch.idempotency, batch.digest, held.digest)
        found = self._archive.either(held.subject, fetched)
        if not isinstance(found, Batch):
            raise Unprocessable("this idempotency key was used for a single task")
        if isinstance(found, Workflow) != (batch.flow is not None):
            raise Unprocessable("this idempotency key was used for something else")
        find = self._archive.finder(fetched)
        answers = [self._stands_for(task_id, "idempotent", find) for task_id in found.tasks]
        return m.BatchAdmitted(found.id, tuple(answers), found.created_at, "idempotent")

    def _finish(self, batch_id: str) -> None:
        """Record that all of a batch has ended, once."""
        event = decide_finish(self._journal.state.batches.get(batch_id))
        if event is not None:
            self._journal.record(event)

    def _cancel_batch(self, message: m.CancelBatch) -> int:
        """Cancel what has not ended of a batch. Raises NotFound or Conflict."""
        state = self._journal.state
        batch = self._archive.either(message.batch, message.fetched)
        if not isinstance(batch, Batch) or isinstance(batch, Workflow):
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
        control = self._journal.state.control
        rules = control.news_of(message.rules) if message.rules is not None else None
        if changed or rules is not None:
            event = e.ConfigChanged(after, changed, message.source, rules)
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, changed)

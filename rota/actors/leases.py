"""The leases: tasks that workers have come for, until they give them back or are silent too long.

In: what the dispatcher has granted, heartbeats, outcomes, news of tasks that ended otherwise, the
moment of an expiry. Out: `task_started`, the ends of attempts, `lease_expired`, `lease_ended`,
`attempt_interrupted` (expired, released, or never received), `task_logged`, `task_progressed`,
`result_refused`. Keeps that an outcome counts only under the token of the lease that lives, and
that a grant is answered once it is durable, with its params filled in. Which leases there are is
in the projections; until when each lives is only here: after a restart it is the full length anew.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from rota.actors import lease_messages as lm
from rota.actors import messages as m
from rota.actors.lent import Heard, Lent, Settled
from rota.actors.params import UNREAD_PAUSE_US, filled_text
from rota.actors.runtime import CooperativeActor
from rota.actors.settling import Settling
from rota.domain.attempts import decide_start
from rota.domain.commands import Outcome
from rota.domain.events import AttemptFailed, Event, ResultRefused, TaskSucceeded
from rota.domain.lease_ends import LeaseEnds
from rota.domain.leases import (
    Lease,
    check_held,
    decide_lease_expiry,
    is_cancelled,
    lease_id,
    over_and_gone,
)
from rota.domain.lending import LENT_BYTES_MAX
from rota.domain.notes import decide_notes
from rota.domain.project import decide_return
from rota.domain.refusals import Refusals
from rota.domain.task import ASSIGNED, READY, RELEASED, SCHEDULED, UNREAD, Task
from rota.domain.tokens import ROTA, by_worker
from rota.errors import Conflict, InvalidRequest, RequestError, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Archive, Fetched
    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.actors.workers import Workers
    from rota.domain.project_parts import Project


class _Hand:
    """Hands leases to a worker once they are durable; if it has left, they are given back."""

    def __init__(self, actor: LeasesActor, reply: lm.AwaitedReply) -> None:
        self._actor = actor
        self._reply = reply

    def ok(self, lent: list[Lent]) -> None:
        if self._reply.is_awaited():
            self._reply.ok(lent)
            self._actor.told(lent)
        elif lent:
            self._actor.not_told(lent)

    def fail(self, error: RotaError) -> None:
        if self._reply.is_awaited():  # else a fault was told instead
            self._reply.fail(error)


class LeasesActor(CooperativeActor):
    """Keeps the leases."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        archive: Archive,
        resend: Callable[[Any], None],
        call_at: Callable[[int, Callable[[], None]], Any],
        ids: NewIds,
        draw: Callable[[], float],
        workers: Workers,
    ) -> None:
        """Find parents in `archive`, be woken by `call_at`, draw jitter from `draw`.

        `resend` brings a grant again that waited for parents to be read.
        """
        super().__init__(runtime)
        self._journal = journal
        self._archive = archive
        self._resend = resend
        self._call_at = call_at
        self._settling = Settling(journal, ids, draw)
        self._refusals = Refusals()
        self._shift_us = journal.state.steps.shift
        self._next: int | None = None
        self._handle: Any = None
        self._ends = LeaseEnds()
        self.workers = workers
        self.live: dict[int, Lease] = {}

    def on_receive(self, message: Any) -> None:
        self._keep_time()
        kind = type(message)
        if kind is lm.LeasesGranted:
            self._granted(message)
        elif kind is lm.SettleLeases:
            settled = [self._settle(each, message) for each in message.outcomes]
            self.workers.seen(message.worker, self._journal.now())
            self._journal.answer(message.reply, settled)
        elif kind is lm.ExtendLease:
            self._extend(message)
        elif kind is lm.LeaseOver:
            self._over(message)
        elif kind is lm.LeasesCutOff:
            self._cut_off(message)
        elif kind is lm.GiveBack:
            self._give_back(message)
        elif kind is lm.ExpireLeases:
            self._next = self._handle = None
            self._expire()
        elif kind is m.LookAgain:
            self._derive()
            self._expire()

    def reset(self) -> None:
        self.subject = ""
        self._keep_time()  # before a lease begins anew by the clock as it is set now
        self._derive()

    # -- which there are, and until when

    def _derive(self) -> None:
        """Keep just the leases that the projections tell of; those not known live anew."""
        now, known = self._journal.now(), self.live
        self.live = {}
        for task in self._journal.state.slots.held():
            if task.is_leased:
                lease = known.get(task.token)
                lease = Lease(task, now) if lease is None else lease
                self.live[task.token] = lease
                task.expires_at = lease.expires_at
        self._ends.derive(self.live)
        self._wake_for_next()

    def _keep_time(self) -> None:
        """Tell all moments by the clock as it is set now."""
        by_us = self._journal.state.steps.shift - self._shift_us
        if by_us:
            self._shift_us += by_us
            for lease in self.live.values():
                lease.carry_over(by_us)
            self.workers.carry_over(by_us)
            self._derive()

    def _begin(self, task: Task) -> Lease:
        """Let a lease live from its grant on, unless it lives already."""
        lease = self.live.get(task.token)
        if lease is None:
            lease = self.live[task.token] = Lease(task, task.assigned_at)
            task.expires_at = lease.expires_at
            self._ends.add(task.token, self.live)
            self._wake_for_next()
        return lease

    def _wake_for_next(self) -> None:
        """Be woken when the next lease may expire; one that was extended is looked at again."""
        first = self._ends.first
        if first is None or (self._next is not None and self._next <= first):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._next = first
        self._handle = self._call_at(self._next, self._wake)

    def _wake(self) -> None:
        if not self.stopped:
            self.actor_ref.tell(lm.ExpireLeases())

    def _expire(self) -> None:
        now = self._journal.now()
        for token, lease in self._ends.due(now, self.live):
            task = self._held(lease.task, token)
            if task is not None:
                self.subject = task.id
                expiry = decide_lease_expiry(task, lease, now, *self._stop_of(task))
                self._journal.record(*expiry, cause=token)
            self.live.pop(token, None)
            self._tell_to_stop(lease, token)
        self.subject = ""
        self._wake_for_next()

    def _held(self, task_id: str, token: int) -> Task | None:
        """Give a task, if this lease of it lives."""
        task = self._journal.state.tasks.get(task_id)
        return task if task is not None and task.token == token and task.is_leased else None

    def _stop_of(self, task: Task) -> tuple[Project | None, str | None]:
        return self._journal.state.projects.stop_of(task)

    def _is_killed(self, task: Task) -> bool:
        """Whether a force-stop cuts a task off."""
        return task.id in self._journal.state.projects.killing

    def told(self, lent: list[Lent]) -> None:
        """Take note that a worker knows of its leases."""
        for each in lent:
            lease = self.live.get(each.token)
            if lease is not None:
                lease.is_told = True

    def not_told(self, lent: list[Lent]) -> None:
        """Have those put back that their worker does not know of: it has left."""
        live = self.live
        back = tuple(
            (each.task.id, each.token)
            for each in lent
            if (lease := live.get(each.token)) is not None and not lease.is_told
        )
        if back:
            self.actor_ref.tell(lm.GiveBack(back, RELEASED))

    # -- what is granted

    def _granted(self, message: lm.LeasesGranted) -> None:
        """Tell a worker of its leases, once all params are at hand and all of it is durable."""
        wants, parents = message.wants, message.parents
        lacking: dict[str, None] = {}
        found: list[tuple[Task, bytes | InvalidRequest]] = []
        size = 0
        for task_id, token in message.given:
            task = self._held(task_id, token)
            if task is None:
                continue  # it was cancelled meanwhile
            self._begin(task)
            if isinstance(parents, RotaError):
                self._put_back_soon(task)
                continue
            if size >= LENT_BYTES_MAX or self._is_killed(task):
                self._release(task)  # it is more than was guessed, or not to be begun
                continue
            params, needed = filled_text(self._archive, task, parents)
            lacking.update(dict.fromkeys(needed))
            found.append((task, params))
            size += len(params) if isinstance(params, bytes) else 0
        if lacking:

            def go_on(read: Fetched | RotaError) -> None:
                self._resend(message._replace(parents=read))

            before = None if isinstance(parents, RotaError) else parents
            self._archive.fetch(list(lacking), before, go_on, go_on, depth="shown")
            return
        lent = [self._lend(task, params, wants.by, start=wants.start) for task, params in found]
        hand = _Hand(self, message.reply)
        self._journal.answer(hand, [each for each in lent if each is not None])

    def _lend(
        self, task: Task, params: bytes | InvalidRequest, by: str, *, start: bool
    ) -> Lent | None:
        """Give what a worker is told; None if the params cannot be made."""
        token = task.token
        if isinstance(params, InvalidRequest):
            bad = Outcome(ok=False, code="bad_params", error=params.message)
            self._settling.take(task, task.attempt, token, bad)
            return None
        if start:
            self._start(task, by)
        lease = self._begin(task)
        return Lent(copy(task), token, task.attempt, params, lease.lease_ms, lease.expires_at)

    def _start(self, task: Task, by: str) -> None:
        if task.state is ASSIGNED:
            event = decide_start(task, task.token)
            assert event is not None
            self._journal.record(event, by=by_worker(by, task.worker), cause=task.token)

    def _put_back_soon(self, task: Task) -> None:
        """Put a task back that asks for what could not be read; not at once, or it comes again."""
        back = lm.GiveBack(((task.id, task.token),), UNREAD)
        at = self._journal.now() + UNREAD_PAUSE_US
        self._call_at(at, lambda: None if self.stopped else self.actor_ref.tell(back))

    def _give_back(self, message: lm.GiveBack) -> None:
        for task_id, token in message.leases:
            task = self._held(task_id, token)
            if task is not None:
                self._release(task, message.reason)

    def _release(self, task: Task, reason: str = RELEASED, by: str = ROTA) -> None:
        token, before = task.token, self._ended(task, reason)
        back = decide_return(task, reason, *self._stop_of(task))
        self._journal.record(*before, *back, by=by, cause=token)

    def _ended(self, task: Task, how: str) -> tuple[Event, ...]:
        lease = self.live.pop(task.token, None)
        now = self._journal.now()
        return lease.ended(task.attempt, how, now) if lease is not None else ()

    # -- what workers say

    def _extend(self, message: lm.ExtendLease) -> None:
        journal = self._journal
        task, now = journal.state.tasks.get(message.task), journal.now()
        try:
            if task is None:
                raise over_and_gone(message.task)
            if is_cancelled(task, message.token):
                self.workers.seen(task.worker, now)
                heard = Heard(task.id, task.state.value, None, must_stop=True)
                journal.answer(message.reply, heard)
                return
            check_held(task, message.lease, message.token, message.worker)
            events = decide_notes(task, message.lines, message.level, message.progress)
        except RequestError as error:
            journal.refuse(message.reply, error)
            return
        lease = self._begin(task)
        before = lease.expires_at
        lease.extend(now, message.lease_ms)
        if lease.expires_at < before:
            self._ends.add(task.token, self.live)
            self._wake_for_next()
        task.expires_at = lease.expires_at
        self.workers.seen(task.worker, now)
        self._start(task, message.by)
        for event in events:
            journal.record(event, by=by_worker(message.by, task.worker), cause=message.token)
        must_stop = self._is_killed(task)
        heard = Heard(task.id, task.state.value, lease.expires_at, must_stop, lease.worker)
        journal.answer(message.reply, heard)

    def _settle(self, said: lm.LeaseOutcome, message: lm.SettleLeases) -> Settled | RequestError:
        task = self._journal.state.tasks.get(said.task)
        try:
            if task is None:
                raise over_and_gone(said.task)
            check_held(task, said.lease, said.token, message.worker)
        except Conflict as error:
            self._refuse(said, task, by_worker(message.by, message.worker))
            return error
        except RequestError as error:
            return error
        self.subject = task.id
        state = self._end(task, said, by_worker(message.by, task.worker))
        self.subject = ""
        return state

    def _end(self, task: Task, said: lm.LeaseOutcome, by: str) -> Settled:
        if said.outcome is None:
            self._release(task, by=by)
            return Settled(said.task, task.state.value)
        before = self._ended(task, "completed" if said.outcome.ok else "failed")
        if before:
            self._journal.record(*before, by=by, cause=said.token)
        event = self._settling.take(task, task.attempt, said.token, said.outcome, by=by)
        if type(event) is TaskSucceeded:
            return Settled(said.task, "succeeded")
        if type(event) is AttemptFailed:
            next_at = event.next_at if task.state in (SCHEDULED, READY) else 0  # stopped
            return Settled(said.task, task.state.value, next_at)
        return Settled(said.task, "failed")

    def _refuse(self, said: lm.LeaseOutcome, task: Task | None, by: str) -> None:
        """Record that an outcome came too late; not more often than so many a second."""
        if not self._refusals.take_room(self._journal.now()):
            return
        verdict = "released" if said.outcome is None else "succeeded"
        if said.outcome is not None and not said.outcome.ok:
            verdict = "failed"
        attempt = task.attempt if task is not None and task.token == said.token else 0
        refused = ResultRefused(said.task, said.agent, attempt, verdict, said.token)
        self._journal.record(refused, by=by)

    def _over(self, message: lm.LeaseOver) -> None:
        """Write down how the worker was heard of whose task has ended without it."""
        lease = self.live.get(message.token)
        task = self._archive.task_here(message.task)
        if lease is None or (task is not None and task.token == message.token and task.is_leased):
            return
        del self.live[message.token]
        self._tell_to_stop(lease, message.token)
        events = lease.ended(message.attempt, message.how, self._journal.now())
        if events:
            self._journal.record(*events, cause=message.token)

    def _cut_off(self, message: lm.LeasesCutOff) -> None:
        tasks = self._journal.state.tasks
        for task_id in message.tasks:
            task = tasks.get(task_id)
            if task is not None and (lease := self.live.get(task.token)) is not None:
                self._tell_to_stop(lease, task.token)

    def _tell_to_stop(self, lease: Lease, token: int) -> None:
        """Wake the requests that wait on behalf of a worker; they tell it what is durable."""
        self.workers.stop(lease.worker, lease_id(lease.task, token), lease.agent)

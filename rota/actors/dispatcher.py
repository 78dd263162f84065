"""The dispatcher: gives slots away.

In: news of heads, freed slots, pauses, limits; workers that want tasks. Out: `task_assigned`,
`task_expired` (of whose turn came too late), `task_failed` (of a start while all browsers run),
`attempt_interrupted` (of who makes room for a task that may pre-empt), `type_paused`,
`scheduler_paused` and their likes. Keeps
that no cap is ever exceeded: it asks `Turns` for one task at a time and records each assignment,
which the slots count, before it asks for the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.bulk_messages import Reprioritised
from rota.actors.lease_messages import GoOn, LeasesGranted, LeaveLine, LendTasks, LetKeysGo
from rota.actors.messages import (
    AgentReleased,
    Drain,
    HeadChanged,
    LimitEased,
    PauseScheduler,
    PauseType,
    SlotFreed,
)
from rota.actors.params import guessed_size
from rota.actors.runtime import CooperativeActor
from rota.domain import events as e
from rota.domain.admission import check_pauses
from rota.domain.attempts import (
    decide_assignment,
    decide_expiry,
    decide_preemption,
    decide_queue_timeout,
)
from rota.domain.browsers import START, decide_browser
from rota.domain.commands import PULL
from rota.domain.dispatch import Turns, side_of
from rota.domain.lending import Lending, Waiter
from rota.domain.tokens import by_worker
from rota.errors import QueueFull, RequestError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from rota.actors.journal import Journal
    from rota.actors.lease_messages import AwaitedReply
    from rota.actors.runtime import Runtime
    from rota.actors.workers import Workers
    from rota.domain.task import Lane, Task
    from rota.errors import RotaError


class DispatcherActor(CooperativeActor):
    """Decides whose turn it is."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        leases: ActorRef[Any],
        workers: Workers,
        call_at: Callable[[int, Callable[[], None]], Any],
    ) -> None:
        """Tell `leases` of what workers were given; be woken by `call_at`.

        Who comes for tasks is noted in `workers`.
        """
        super().__init__(runtime)
        self._journal = journal
        self._draining = False
        self._turns = self._derive()
        self._call_at = call_at
        self._leases = leases
        self._workers = workers
        self._lending = Lending(self._turns)
        self._served: dict[Waiter, None] = {}  # who was given something in this run
        self._impatient: list[Waiter] = []  # who is answered at the end of it in any case
        self._is_keeping = self._goes_on = False

    def _derive(self) -> Turns:
        state = self._journal.state
        control = state.control
        return Turns(
            state.backlog.orders,
            state.slots,
            control.paused,
            control.limits,
            control.paused_types,
            state.batches.paused_flows,
            control.declared.caps,
        )

    def reset(self) -> None:
        self.subject = ""
        self._goes_on = False
        self._turns = self._derive()
        self._lending.rebase(self._turns)
        self._keep_until()  # keys may be kept for less long than before

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is HeadChanged:
            self._head_changed(message.agent, message.lane)
        elif kind is SlotFreed:
            self._freed(message)
        elif kind is AgentReleased:
            self._turns.resumed(message.agent)
            self._lending.resumed(message.agent)
        elif kind is Reprioritised:
            self._reprioritised(message)
        elif kind is LendTasks:
            self._line_up(message)
        elif kind is LeaveLine:
            self._leave(message.waiting_for)
        else:
            self._on_order(message)
        if not self.actor_inbox.queue:  # whoever decides has heard all the news
            self._dispatch()
            self._preempt()

    def _head_changed(self, agent: str, lane: Lane) -> None:
        """Have it heard that another task is first in a lane, or none.

        One that is ready and has a key waits for the worker that had that last.
        """
        self._turns.head_changed(agent, lane)
        self._lending.head_changed(agent, lane)
        state = self._journal.state
        sticky_us = state.control.limits.sticky_ms * 1000
        order = state.backlog.orders.get(agent)
        if order is None or not (lane[2] and sticky_us) or side_of(lane) != PULL:
            return
        head = order.head(lane)
        if head is not None and (until := head.ready_at + sticky_us) > self._journal.now():
            self._lending.keep_for(head, until)
            self._let_keys_go_later()

    def _reprioritised(self, message: Reprioritised) -> None:
        for lane in message.lanes:
            self._head_changed(message.agent, lane)
        task = self._journal.state.tasks.get(message.held or "")
        if task is not None and task.holds:
            self._turns.reprioritised(task)

    def _on_order(self, message: Any) -> None:
        """Do what comes seldom."""
        if type(message) is LetKeysGo:
            self._let_keys_go()
        elif type(message) is GoOn:
            self._goes_on = False
        elif type(message) is LimitEased:
            self._turns.eased(message.limit)
            self._lending.eased()
        elif type(message) is Drain:
            self._draining = True
            self.send_away(None)
        elif type(message) is PauseType:
            self._pause_type(message)
        elif type(message) is PauseScheduler:
            self._pause_scheduler(message)

    def _dispatch(self) -> None:
        if self._turns.limits is not self._journal.state.control.limits:
            self.reset()
        turns, lending = self._turns, self._lending
        while self._may_dispatch() and (found := lending.next()) is not None:
            task, waiter = found
            self.subject = task.id
            if waiter is not None and not waiter.reply.is_awaited():
                self._dismiss(waiter)
                continue
            if self._is_over(task):
                continue
            if waiter is None:
                self._journal.record(decide_assignment(task), cause=task.created_seq)
            else:
                self._lend(task, waiter)
            turns.given(task)
        self.subject = ""
        if self._served or self._impatient:
            self._answer_workers()
        while lending.crowded:  # they may come again
            self._leave(next(iter(lending.crowded)).reply)
        if lending.is_easing and self._may_dispatch():
            self._go_on_soon()

    def _is_over(self, task: Task) -> bool:
        """End a task whose time has run out, or who may not start a browser, as its turn comes."""
        if task.deadline is None and task.plan is None and task.action != START:
            return False
        now, state = self._journal.now(), self._journal.state
        event = (
            decide_expiry(task, now)
            or decide_queue_timeout(task, task.entry, now)
            or decide_browser(task, state.browsers, state.control.limits.browsers)
        )
        if event is not None:
            self._journal.record(event)
            self._head_changed(task.agent, task.lane)
        return event is not None

    def _may_dispatch(self) -> bool:
        journal = self._journal
        is_paused = journal.state.control.stopped is not None
        return not (self._draining or is_paused or journal.failure is not None)

    def _preempt(self) -> None:
        """Let tasks that may, and must, take the places of less urgent ones."""
        state = self._journal.state
        while self._may_dispatch() and (found := self._turns.urgent.next()) is not None:
            task, held_by = found
            self.subject = task.id
            if self._is_over(task):
                continue
            running = state.slots.held_by(task.agent)
            if state.projects.killing:  # those keep their slots until they are gone
                running = [each for each in running if each.id not in state.projects.killing]
            swap = decide_preemption(task, held_by, running)
            if swap is not None:
                victim = state.tasks.by_id[swap[0].task]
                self._journal.record(*swap, cause=task.created_seq)
                self._turns.freed(task.agent, victim.lane)
                self._turns.given(task)
        self.subject = ""

    # -- workers

    def _line_up(self, message: LendTasks) -> None:
        """Let a worker wait for its turn; it has to be answered before `wait_us` is over."""
        wants, reply = message.wants, message.reply
        if self._draining:
            reply.ok([])
            return
        waiter = Waiter(wants, reply, is_patient=message.wait_us > 0)
        try:
            self._journal.check_room(by_worker(wants.by, wants.worker), "")
            self._lending.check_room(waiter)
        except (QueueFull, StorageUnavailable) as error:
            reply.fail(error)
            return
        self._workers.came(wants, self._journal.now())
        self._lending.join(waiter)
        if message.wait_us:
            at = self._journal.now() + message.wait_us
            waiter.timer = self._call_at(at, lambda: self._time_is_up(waiter))
        else:
            self._impatient.append(waiter)

    def _time_is_up(self, waiter: Waiter) -> None:
        """Have a worker answered, now or with whatever is decided next, should that fail."""
        self._impatient.append(waiter)
        self._tell_self(LeaveLine(waiter.reply))

    def why_held(self, agent: str, lane: Lane) -> str | None:
        return self._turns.why_held(agent, lane)

    def waits(self, worker: str) -> bool:
        return self._lending.waits(worker)

    def waiter_for(self, reply: AwaitedReply) -> Waiter | None:
        return self._lending.by_reply(reply)

    def _go_on_soon(self) -> None:
        """Look at the other lines after whoever else has something to do."""
        if not self._goes_on:
            self._goes_on = True
            self._call_at(self._journal.now(), lambda: self._tell_self(GoOn()))

    def _tell_self(self, message: Any) -> None:
        if not self.stopped:
            self.actor_ref.tell(message)

    def _dismiss(self, waiter: Waiter) -> None:
        self._lending.leave(waiter)
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None

    def _leave(self, reply: AwaitedReply) -> None:
        """Answer one that waits no longer; one that was given something is answered already."""
        waiter = self.waiter_for(reply)
        if waiter is not None and not waiter.given:
            self._dismiss(waiter)
            if reply.is_awaited():
                reply.ok([])

    def send_away(self, failure: RotaError | None) -> None:
        """Answer all who wait: there is nothing for them, or nothing can be done.

        With a failure also those who were given something: a fault may have come between.
        """
        for waiter in [*self._lending.all(), *(self._served if failure is not None else ())]:
            self._dismiss(waiter)
            if not waiter.reply.is_awaited():
                continue
            if failure is not None:
                waiter.reply.fail(failure)
            elif not waiter.given:
                waiter.reply.ok([])

    def _lend(self, task: Task, waiter: Waiter) -> None:
        wants = waiter.wants
        event = decide_assignment(task, wants.worker, wants.lease_ms)
        record = self._journal.record(event, cause=task.created_seq)
        waiter.given.append((task.id, record.seq))
        waiter.size += guessed_size(self._journal.state.tasks, task)
        self._served[waiter] = None
        if waiter.is_served:
            self._dismiss(waiter)

    def _answer_workers(self) -> None:
        """Have those told who were given something, and those who do not wait."""
        for waiter in list(self._served):  # after a fault, those that are left are told then
            self._dismiss(waiter)
            self._leases.tell(LeasesGranted(waiter.wants, tuple(waiter.given), waiter.reply))
            del self._served[waiter]
        while self._impatient:
            self._leave(self._impatient[-1].reply)
            self._impatient.pop()

    def _freed(self, message: SlotFreed) -> None:
        agent, lane, worker, of_key = message
        limits, now = self._journal.state.control.limits, self._journal.now()
        if worker is not None and lane[2] and limits.sticky_ms:
            since, order = now, self._journal.state.backlog.orders.get(agent)
            had_room = of_key + 1 < limits.per_key
            if had_room and order is not None and (head := order.head(lane)) is not None:
                since = head.ready_at
            self._lending.keep(lane[2], worker, since + limits.sticky_ms * 1000, now)
            self._let_keys_go_later()
        elif lane[2] and side_of(lane) == PULL:
            self._lending.forget(lane[2])
        self._turns.freed(agent, lane)
        self._lending.freed(agent, lane)

    def _let_keys_go_later(self) -> None:
        if not self._is_keeping:
            self._let_keys_go()

    def _let_keys_go(self) -> None:
        """Keep keys no longer than they should be for the workers that had them."""
        until = self._keep_until()
        self._is_keeping = until is not None
        if until is not None:
            self._call_at(until, lambda: self._tell_self(LetKeysGo()))

    def _keep_until(self) -> int | None:
        """Let go of the keys whose time is over; say when that of the next one is."""
        longest_us = self._journal.state.control.limits.sticky_ms * 1000
        return self._lending.let_go(self._journal.now(), longest_us)

    # -- pauses

    def _pause_type(self, message: PauseType) -> None:
        name, paused = message.type, self._journal.state.control.paused_types
        if message.paused and name not in paused:
            try:
                check_pauses(len(paused), of_types=True)
            except RequestError as error:
                self._journal.refuse(message.reply, error)
                return
        if message.paused != (name in paused):
            event = e.TypePaused(name, message.reason) if message.paused else e.TypeResumed(name)
            self._journal.record(event, by=message.by)
            self.reset()
        self._journal.answer(message.reply, name)

    def _pause_scheduler(self, message: PauseScheduler) -> None:
        if message.paused != (self._journal.state.control.stopped is not None):
            event = e.SchedulerPaused(message.reason) if message.paused else e.SchedulerResumed()
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, message.paused)

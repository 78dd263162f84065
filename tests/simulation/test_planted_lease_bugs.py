"""Bugs planted in leases, one at a time, each of which the simulator must find.

Grants, tokens, expiries, restarts, caps, filters, releases: each function breaks one of their
promises, in the way a hurried change could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import lease_messages as lm
from rota.actors import leases
from rota.actors.dispatcher import DispatcherActor
from rota.actors.leases import LeasesActor
from rota.domain import attempts
from rota.domain import events as e
from rota.domain.fold import FOLDS
from rota.domain.leases import Lease
from rota.domain.lending import Lending
from rota.domain.task import RELEASED
from rota.errors import Conflict

if TYPE_CHECKING:
    import pytest


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


# -- grants ------------------------------------------------------------------------------------


def a_grant_is_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    lend = LeasesActor._granted

    def hasty(self: LeasesActor, message: lm.LeasesGranted) -> None:
        answer = self._journal.answer
        self._journal.answer = lambda reply, value: reply.ok(value)  # type: ignore[method-assign]
        lend(self, message)
        self._journal.answer = answer  # type: ignore[method-assign]

    patch.setattr(LeasesActor, "_granted", hasty)


def a_worker_is_given_what_it_does_not_take(patch: pytest.MonkeyPatch) -> None:
    join = Lending.join

    def lax(self: Lending, waiter: Any) -> None:
        waiter.pairs = {(agent, None): None for agent, _ in waiter.pairs}
        join(self, waiter)

    patch.setattr(Lending, "join", lax)


def labels_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    join = Lending.join

    def lax(self: Lending, waiter: Any) -> None:
        waiter.wants = waiter.wants._replace(labels=frozenset({"gpu"}))
        join(self, waiter)

    patch.setattr(Lending, "join", lax)


def a_worker_gets_more_than_it_asked_for(patch: pytest.MonkeyPatch) -> None:
    lend = DispatcherActor._lend

    def generous(self: DispatcherActor, task: Any, waiter: Any) -> None:
        waiter.wants = waiter.wants._replace(most=waiter.wants.most + 1)
        lend(self, task, waiter)

    patch.setattr(DispatcherActor, "_lend", generous)


def what_a_worker_had_that_left_is_lost(patch: pytest.MonkeyPatch) -> None:
    def ok(self: Any, lent: Any) -> None:
        self._reply.ok(lent)

    patch.setattr(leases._Hand, "ok", ok)


def a_task_is_lent_above_a_cap(patch: pytest.MonkeyPatch) -> None:
    def given(self: Any, task: Any, waiter: Any) -> None:
        wants = waiter.wants
        event = attempts.decide_assignment(task, wants.worker, wants.lease_ms)
        record = self._journal.record(event, cause=task.created_seq)
        waiter.given.append((task.id, record.seq))
        self._served[waiter] = None
        state = self._journal.state
        state.slots.total -= 1  # as if what workers hold were not counted
        if waiter.is_served:
            self._dismiss(waiter)

    patch.setattr(DispatcherActor, "_lend", given)


def who_waits_is_not_told_of_heads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lending, "head_changed", nothing)


def who_waits_is_not_told_of_freed_slots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lending, "freed", nothing)


def who_waits_is_not_told_of_a_resumed_agent(patch: pytest.MonkeyPatch) -> None:
    resumed = Lending.resumed

    def deaf(self: Lending, agent: str) -> None:
        if self._turns._caps.holds_agent(agent):
            resumed(self, agent)

    patch.setattr(Lending, "resumed", deaf)


def parents_leave_a_worker_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        leases, "filled_text", lambda _archive, task, _parents: (task.params_json or b"{}", [])
    )


# -- tokens ------------------------------------------------------------------------------------


def an_outcome_under_an_old_token_is_taken(patch: pytest.MonkeyPatch) -> None:
    def lax(task: Any, name: str, token: int, worker: Any = None) -> None:
        if not task.is_leased:
            raise Conflict(name, code="stale_attempt")

    settle = LeasesActor._end

    def end(self: LeasesActor, task: Any, said: lm.LeaseOutcome) -> Any:
        return settle(self, task, said._replace(token=task.token))

    patch.setattr(leases, "check_held", lax)
    patch.setattr(LeasesActor, "_end", end)


def anybody_may_settle(patch: pytest.MonkeyPatch) -> None:
    check = leases.check_held
    patch.setattr(leases, "check_held", lambda task, name, token, _=None: check(task, name, token))


# -- how long ----------------------------------------------------------------------------------


def a_lease_expires_early(patch: pytest.MonkeyPatch) -> None:
    init = Lease.__init__

    def short(self: Lease, task: Any, now: int) -> None:
        init(self, task, now)
        self.expires_at = now + (self.expires_at - now) // 3

    patch.setattr(Lease, "__init__", short)


def a_heartbeat_extends_nothing(patch: pytest.MonkeyPatch) -> None:
    def deaf(self: Lease, now: int, _lease_ms: Any) -> None:
        self.seen_at = now
        self.extended += 1

    patch.setattr(Lease, "extend", deaf)


def a_restart_goes_on_with_old_moments(patch: pytest.MonkeyPatch) -> None:
    init = Lease.__init__
    patch.setattr(Lease, "__init__", lambda self, task, _now: init(self, task, task.assigned_at))


def a_lease_is_interrupted_by_a_restart(patch: pytest.MonkeyPatch) -> None:
    _interrupt_all(patch)


def _interrupt_all(patch: pytest.MonkeyPatch) -> None:
    derive = LeasesActor._derive

    def forgetful(self: LeasesActor) -> None:
        is_first = not hasattr(self, "_is_awake")
        self._is_awake = True  # type: ignore[attr-defined]
        derive(self)
        if is_first:
            back = tuple((lease.task, token) for token, lease in self.live.items())
            self._call_at(0, lambda: self.actor_ref.tell(lm.GiveBack(back, "crash")))

    patch.setattr(LeasesActor, "_derive", forgetful)


def nothing_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeasesActor, "_expire", nothing)


# -- how it ends -------------------------------------------------------------------------------


def a_released_task_spends_an_attempt(patch: pytest.MonkeyPatch) -> None:
    interrupted = FOLDS[e.AttemptInterrupted]

    def stingy(record: e.Record, task: Any) -> None:
        interrupted(record, task)
        task.attempt += record.event.reason == RELEASED  # type: ignore[union-attr]

    patch.setitem(FOLDS, e.AttemptInterrupted, stingy)


def a_released_task_may_fail(patch: pytest.MonkeyPatch) -> None:
    decide = leases.decide_return
    patch.setattr(
        leases, "decide_return", lambda task, reason, run: decide(task, reason + " or so", run)
    )


def an_expiry_is_not_written_down(patch: pytest.MonkeyPatch) -> None:
    decide = leases.decide_lease_expiry
    patch.setattr(leases, "decide_lease_expiry", lambda *args: decide(*args)[1:])


def an_expired_task_stays_with_its_worker(patch: pytest.MonkeyPatch) -> None:
    decide = leases.decide_lease_expiry
    patch.setattr(leases, "decide_lease_expiry", lambda *args: decide(*args)[:1])


BUGS: list[Plant] = [
    a_grant_is_answered_before_it_is_durable,
    a_worker_is_given_what_it_does_not_take,
    labels_are_not_asked_for,
    a_worker_gets_more_than_it_asked_for,
    what_a_worker_had_that_left_is_lost,
    a_task_is_lent_above_a_cap,
    who_waits_is_not_told_of_heads,
    who_waits_is_not_told_of_freed_slots,
    who_waits_is_not_told_of_a_resumed_agent,
    parents_leave_a_worker_nothing,
    an_outcome_under_an_old_token_is_taken,
    anybody_may_settle,
    a_lease_expires_early,
    a_heartbeat_extends_nothing,
    a_restart_goes_on_with_old_moments,
    a_lease_is_interrupted_by_a_restart,
    nothing_expires,
    a_released_task_spends_an_attempt,
    a_released_task_may_fail,
    an_expiry_is_not_written_down,
    an_expired_task_stays_with_its_worker,
]

test_the_simulator_finds_the_bug = finds(BUGS)

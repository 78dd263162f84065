"""What becomes of a lease: its name, its length, what is said of it at its end, who holds it."""

from __future__ import annotations

import pytest
from support.builders import assigned, cancelled, given, interrupted, started, submitted

from rota.domain import events as e
from rota.domain.leases import (
    Lease,
    check_held,
    decide_lease_expiry,
    is_cancelled,
    lease_id,
    named_by,
)
from rota.errors import Conflict, NotFound

S = 1_000_000
LENT = assigned()._replace(worker="ada", lease_ms=10_000)
TAKEN = given(submitted(), LENT)


@pytest.mark.parametrize("task", ["tsk_1", "lse_5_x", "a_b_c", "7", "é:1"])
def test_a_lease_is_named_after_its_token_and_task(task: str) -> None:
    assert named_by(lease_id(task, 7)) == (task, 7)


@pytest.mark.parametrize("name", ["", "lse_", "lse_7_", "lse_07_x", "lse_-1_x", "x", "LSE_1_x"])
def test_what_can_be_no_name_is_not_found(name: str) -> None:
    with pytest.raises(NotFound):
        named_by(name)


def test_a_lease_lives_for_its_length_from_when_it_was_heard_of() -> None:
    lease = Lease(TAKEN.task, 5 * S)
    assert lease.expires_at == 15 * S
    lease.extend(8 * S, None)
    assert (lease.expires_at, lease.seen_at) == (18 * S, 8 * S)
    lease.extend(9 * S, 1000)
    assert lease.expires_at == 10 * S
    lease.extend(9 * S, None)
    assert lease.expires_at == 10 * S


def test_nothing_is_said_of_a_lease_that_was_never_extended() -> None:
    assert Lease(TAKEN.task, 0).ended(1, "completed", 5 * S) == ()


def test_the_end_says_how_often_and_with_which_gaps_the_worker_was_heard_of() -> None:
    lease = Lease(TAKEN.task, 0)
    lease.extend(3 * S, None)
    lease.extend(4 * S, None)
    assert lease.ended(1, "failed", 5 * S) == (
        e.LeaseEnded("t1", "a1", 1, "ada", "failed", 4 * S, 3000, 2),
    )
    [event] = lease.ended(1, "failed", 11 * S)
    assert event.gap_ms == 7000


def test_a_clock_that_was_set_moves_a_lease_along() -> None:
    lease = Lease(TAKEN.task, 0)
    lease.carry_over(-100 * S)
    assert (lease.seen_at, lease.expires_at) == (-100 * S, -90 * S)


def test_an_expiry_says_who_was_silent_and_interrupts_the_attempt() -> None:
    lease = Lease(TAKEN.task, 0)
    TAKEN.when(decide_lease_expiry, lease, 10 * S).then(
        e.LeaseExpired("t1", "a1", 1, "ada", 0, 10_000, 0),
        e.AttemptInterrupted(
            "t1", "a1", 1, "lease expired", error="worker ada was silent until its lease expired"
        ),
    )


def test_a_task_that_must_not_run_twice_fails_by_an_expiry() -> None:
    careful = given(submitted(on_interrupt="fail"), LENT)
    events = decide_lease_expiry(careful.task, Lease(careful.task, 0), 10 * S)
    assert [type(event) for event in events][-1] is e.TaskFailed


def test_the_fifth_expiry_fails_a_task() -> None:
    silence = [LENT, interrupted()._replace(reason="lease expired")]
    tired = given(submitted(), *silence * 4, LENT)
    events = decide_lease_expiry(tired.task, Lease(tired.task, 0), 10 * S)
    assert type(events[-1]) is e.TaskFailed
    back = [LENT, interrupted()._replace(reason="released")]
    fresh = given(submitted(), *back * 20, LENT)
    assert len(decide_lease_expiry(fresh.task, Lease(fresh.task, 0), 10 * S)) == 2


def test_who_holds_a_lease_may_speak_for_it() -> None:
    token = TAKEN.token()
    check_held(TAKEN.task, "x", token)
    check_held(TAKEN.task, "x", token, "ada")
    running = given(submitted(), LENT, started())
    check_held(running.task, "x", running.token(), "ada")


def test_who_does_not_is_stale_or_unknown() -> None:
    token = TAKEN.token()
    with pytest.raises(Conflict, match="another worker"):
        check_held(TAKEN.task, "x", token, "eve")
    with pytest.raises(NotFound):
        check_held(TAKEN.task, "x", token + 1)
    back = given(submitted(), LENT, interrupted())
    with pytest.raises(Conflict, match="it has expired"):
        check_held(back.task, "x", back.token())
    again = given(submitted(), LENT, interrupted(), LENT)
    with pytest.raises(Conflict):
        check_held(again.task, "x", again.token(0))
    pushed = given(submitted(), assigned())
    with pytest.raises(NotFound):
        check_held(pushed.task, "x", pushed.token())


def test_only_the_lease_under_which_a_task_was_cancelled_is_told_so() -> None:
    over = given(submitted(), LENT, interrupted(), LENT, cancelled())
    assert is_cancelled(over.task, over.token())
    assert not is_cancelled(over.task, over.token(0))
    assert not is_cancelled(TAKEN.task, TAKEN.token())

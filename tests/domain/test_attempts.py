"""What the end of an attempt means for its task, told as given, when, then."""

from __future__ import annotations

import pytest
from support.builders import (
    START_US,
    assigned,
    cancelled,
    expired,
    failed,
    given,
    interrupted,
    rejected,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.attempts import (
    INTERRUPTIONS_MAX,
    QUEUED_TOO_LONG,
    RAN_TOO_LONG,
    decide_assignment,
    decide_cancel,
    decide_expiry,
    decide_interruption,
    decide_result,
    decide_start,
    decide_timeout,
)
from rota.domain.commands import Outcome
from rota.domain.task import ORDERLY
from rota.errors import Conflict

GOOD = Outcome(ok=True, result={"n": 1})
BAD = Outcome(ok=False, code="http_500", error="HTTP 500", details={"status": 500})
CRASH = "server restarted"
RUN = (assigned(), started(), interrupted())
ENDED = {
    "succeeded": (submitted(), assigned(), started(), succeeded()),
    "failed": (submitted(), assigned(), started(), failed()),
    "cancelled": (submitted(), assigned(), started(), cancelled(was="running")),
    "expired": (submitted(), expired()),
    "rejected": (rejected(),),
}


# -- assignment and start


def test_the_first_assignment_is_the_first_attempt() -> None:
    given(submitted()).when(decide_assignment).then(assigned(attempt=1))


def test_an_interruption_costs_no_attempt() -> None:
    given(submitted(), *RUN).when(decide_assignment).then(assigned(attempt=1))


def test_an_assigned_attempt_starts() -> None:
    story = given(submitted(), assigned())
    story.when(decide_start, story.token()).then(started())


def test_an_attempt_that_lost_its_token_does_not_start() -> None:
    story = given(submitted(), assigned(), interrupted(), assigned())
    story.when(decide_start, story.token(0)).then_nothing()
    story.when(decide_start, story.token(1)).then(started())


def test_an_attempt_that_runs_is_not_started_again() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_start, story.token()).then_nothing()


def test_an_attempt_whose_task_was_cancelled_does_not_start() -> None:
    story = given(submitted(), assigned(), cancelled(was="assigned"))
    story.when(decide_start, story.token()).then_nothing()


def test_a_task_that_is_gone_starts_nothing() -> None:
    assert decide_start(None, 1) is None
    assert decide_timeout(None, 1, START_US) is None
    assert decide_expiry(None, START_US) is None


# -- results and fencing


def test_a_good_result_ends_the_task_well() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_result, 1, story.token(), GOOD).then(succeeded(result={"n": 1}))


def test_a_bad_result_fails_the_task() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_result, 1, story.token(), BAD).then(
        e.TaskFailed("t1", "a1", 1, "http_500", "HTTP 500", {"status": 500})
    )


def test_a_result_may_come_before_its_start_is_recorded() -> None:
    story = given(submitted(), assigned())
    story.when(decide_result, 1, story.token(), GOOD).then(succeeded(result={"n": 1}))


def test_the_result_of_an_old_attempt_is_refused_and_recorded() -> None:
    story = given(submitted(), assigned(), started(), interrupted(), assigned(), started())
    old, new = story.token(0), story.token(1)
    story.when(decide_result, 1, old, GOOD).then(e.ResultRefused("t1", "a1", 1, "succeeded"))
    story.when(decide_result, 1, old, BAD).then(e.ResultRefused("t1", "a1", 1, "failed"))
    story.when(decide_result, 1, new, GOOD).then(succeeded(result={"n": 1}))


def test_a_result_is_refused_while_the_task_waits_again() -> None:
    story = given(submitted(), assigned(), started(), interrupted())
    story.when(decide_result, 1, story.token(), GOOD).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


@pytest.mark.parametrize("token", [0, -1, 1, 99])
def test_a_token_that_was_never_given_is_refused(token: int) -> None:
    given(submitted(), assigned(), started()).when(decide_result, 1, token, GOOD).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


@pytest.mark.parametrize("ended", ["succeeded", "failed", "cancelled"])
def test_a_task_that_has_ended_takes_no_result(ended: str) -> None:
    """Cancel wins, and so does whatever else came first."""
    story = given(*ENDED[ended])
    story.when(decide_result, 1, story.token(), GOOD).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


# -- cancel


@pytest.mark.parametrize(
    ("before", "was"),
    [
        ((), "ready"),
        ((assigned(),), "assigned"),
        ((assigned(), started()), "running"),
        ((assigned(), started(), interrupted()), "ready"),
    ],
)
def test_a_task_that_has_not_ended_is_cancelled(before: tuple[e.Event, ...], was: str) -> None:
    given(submitted(), *before).when(decide_cancel, "enough").then(
        cancelled(was=was, reason="enough")
    )


@pytest.mark.parametrize("ended", ENDED)
def test_a_task_that_has_ended_is_not_cancelled(ended: str) -> None:
    state = "failed" if ended == "expired" else ended
    given(*ENDED[ended]).when(decide_cancel, "").then_refused(Conflict, f"already {state}")


# -- interruptions


def test_an_interrupted_attempt_goes_back_to_its_queue() -> None:
    given(submitted(), assigned(), started()).when(decide_interruption, CRASH).then(
        interrupted(reason=CRASH)
    )


@pytest.mark.parametrize("before", range(INTERRUPTIONS_MAX - 1))
def test_fewer_than_five_interruptions_are_forgiven(before: int) -> None:
    story = given(submitted(), *RUN * before, assigned(), started())
    story.when(decide_interruption, CRASH).then(interrupted(reason=CRASH))


def test_the_fifth_interruption_fails_the_task() -> None:
    story = given(submitted(), *RUN * (INTERRUPTIONS_MAX - 1), assigned(), started())
    story.when(decide_interruption, CRASH).then(
        interrupted(reason=CRASH), failed(code="interrupted", error="interrupted 5 times")
    )


def test_an_orderly_shutdown_does_not_count() -> None:
    orderly = (assigned(), started(), interrupted(reason=ORDERLY))
    story = given(submitted(), *orderly * 20, assigned(), started())
    assert story.task.interruptions == 0
    story.when(decide_interruption, CRASH).then(interrupted(reason=CRASH))


def test_an_orderly_shutdown_does_not_fail_a_task_that_was_often_interrupted() -> None:
    story = given(submitted(), *RUN * (INTERRUPTIONS_MAX - 1), assigned(), started())
    story.when(decide_interruption, ORDERLY).then(interrupted(reason=ORDERLY))


@pytest.mark.parametrize("reason", [CRASH, ORDERLY])
def test_a_task_that_must_not_run_twice_fails_at_its_first_interruption(reason: str) -> None:
    story = given(submitted(on_interrupt="fail"), assigned(), started())
    error = "the attempt was interrupted and the task must not run twice"
    story.when(decide_interruption, reason).then(
        interrupted(reason=reason), failed(code="interrupted", error=error)
    )


# -- clocks

DUE = START_US + 1_000_000
LATE = submitted(deadline=DUE)


def test_a_deadline_that_passes_while_waiting_expires_the_task() -> None:
    given(LATE).when(decide_expiry, DUE).then(
        e.TaskExpired("t1", "a1", "deadline", QUEUED_TOO_LONG)
    )


@pytest.mark.parametrize("more", [(assigned(),), (assigned(), started())])
def test_a_deadline_that_passes_in_flight_fails_the_task(more: tuple[e.Event, ...]) -> None:
    given(LATE, *more).when(decide_expiry, DUE).then(
        failed(code="deadline_exceeded", error=RAN_TOO_LONG)
    )


def test_a_deadline_does_nothing_before_its_time_or_after_the_end() -> None:
    given(LATE).when(decide_expiry, DUE - 1).then_nothing()
    given(submitted()).when(decide_expiry, DUE * 2).then_nothing()
    given(LATE, assigned(), succeeded()).when(decide_expiry, DUE).then_nothing()
    given(LATE, cancelled()).when(decide_expiry, DUE).then_nothing()


def test_an_attempt_that_runs_past_its_timeout_fails() -> None:
    story = given(submitted(timeout_ms=50), assigned(), started())
    due = story.task.assigned_at + 50_000
    story.when(decide_timeout, story.token(), due - 1).then_nothing()
    story.when(decide_timeout, story.token(), due).then(
        failed(code="timeout", error="attempt timed out after 50 ms")
    )


def test_the_timeout_of_an_old_attempt_does_nothing() -> None:
    story = given(submitted(timeout_ms=50), assigned(), interrupted(), assigned())
    story.when(decide_timeout, story.token(0), START_US * 2).then_nothing()
    given(submitted(), assigned()).when(decide_timeout, 2, START_US * 2).then_nothing()
